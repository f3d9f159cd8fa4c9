"""Mistakes of an environment's author in what happens in an episode: each is found by one check, which names what is
wrong and says what to do; and nothing is found where there is none."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

from ferrata.envs import Effect, Environment, Script, Task, ToolError, call, tool
from ferrata.envs.checker import check_environment
from ferrata.records import Event, EventKind

from .door import SPEC, Door, Mistake, TaskChanged, assert_found, failure, with_fields


def solution_fails() -> type[Environment]:
    class Door2(Door):
        def scripts(self, task: Task) -> list[Script]:
            texts = (call("look"), call("turn_key", key=task.world["key"] + 2, confirm=True))
            return [Script("looks and turns", texts, True), failure(task)]

    return Door2


def judge_is_too_kind() -> type[Environment]:
    class Door2(Door):
        @tool("Turn a key.", effect=Effect.IRREVERSIBLE)
        def turn_key(self, key: int) -> str:
            self.reach("opened")
            self.finish(success=True)
            return "open"

    return Door2


def subgoal_never_reached() -> type[Environment]:
    return with_fields(subgoals=("read", "opened", "closed"))()


def subgoals_out_of_order() -> type[Environment]:
    return with_fields(subgoals=("opened", "read"))()


def unknown_subgoal() -> type[Environment]:
    class Door2(Door):
        @tool("Read the number on the door.")
        def look(self) -> str:
            self.reach("red")
            return super().look()

    return Door2


def verdict_in_passing() -> type[Environment]:
    class Door2(Door):
        @tool("Read the number on the door.")
        def look(self) -> str:
            self._events.append(Event(EventKind.FAILURE))
            return super().look()

    return Door2


def nothing_to_read() -> type[Environment]:
    class Door2(Door):
        @tool("Read the number on the door.")
        def look(self) -> str:
            self.reach("read")
            return ""

    return Door2


def chance_from_elsewhere() -> type[Environment]:
    class Door2(Door):
        @tool("Read the number on the door.")
        def look(self) -> str:
            return f"{super().look()} at {time.perf_counter_ns() % 100_000}"

    return Door2


def begin_forgets() -> type[Environment]:
    class Door2(Door):
        tries = 0

        def begin(self, task: Task) -> None:
            """Nothing is set up anew."""

        @tool("Read the number on the door.")
        def look(self) -> str:
            self.tries = self.tries + 1
            return f"{super().look()}, look {self.tries}"

        def world_state(self) -> Any:
            return None

    return Door2


def tuple_in_the_world() -> type[Environment]:
    class Door2(TaskChanged):
        fields: ClassVar = {"world": {"key": 5, "sizes": (1, 2)}}

        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            task = super().generate(family, tier, stream, split)
            key = Door.generate(self, family, tier, stream, split).world["key"]
            return msgspec.structs.replace(task, world={**task.world, "key": key})

        @tool("Read the number on the door.")
        def look(self) -> str:
            return f"{super().look()} {self.task.world['sizes']}"

    return Door2


def state_hash_leaves_out() -> type[Environment]:
    class Door2(Door):
        @tool("Read the number on the door.")
        def look(self) -> str:
            self.tries += 1
            return f"{super().look()}, {self.tries}"

        def scripts(self, task: Task) -> list[Script]:
            twice = Script("looks twice", (call("look"),) * 3, False)
            return [*super().scripts(task), twice]

        def world_state(self) -> Any:
            return None

    return Door2


def world_cannot_be_saved() -> type[Environment]:
    class Door2(Door):
        def begin(self, task: Task) -> None:
            super().begin(task)
            self.seen: set[int] = set()

        def world_state(self) -> Any:
            return sorted(self.seen)

    return Door2


def class_keeps_count() -> type[Environment]:
    class Door2(Door):
        SEEN: ClassVar[list[int]] = []

        @tool("Read the number on the door.")
        def look(self) -> str:
            self.SEEN.append(1)
            return super().look()

    return Door2


def pays_twice() -> type[Environment]:
    class Door2(Door):
        @tool("Read the number on the door.")
        def look(self) -> str:
            if self.reached:
                self._events.append(Event(EventKind.SUBGOAL, "read", 0.5))
            return super().look()

    return Door2


def save_world_forgets() -> type[Environment]:
    class Door2(Door):
        def save_world(self) -> Any:
            return {}

        def load_world(self, state: Any) -> None:
            """Nothing to put back."""

        def world_state(self) -> Any:
            return self.tries

    return Door2


def fork_shares() -> type[Environment]:
    memory: dict[str, int] = {}

    class Door2(Door):
        def begin(self, task: Task) -> None:
            memory["tries"] = 0

        @tool("Read the number on the door.")
        def look(self) -> str:
            memory["tries"] += 1
            self.reach("read")
            return "number"

        @tool("Turn a key.", effect=Effect.IRREVERSIBLE)
        def turn_key(self, key: int) -> str:
            if key == self.task.world["key"]:
                self.reach("opened")
            self.finish(success=key == self.task.world["key"])
            return "turned"

        def save_world(self) -> Any:
            return dict(memory)

        def load_world(self, state: Any) -> None:
            memory.update(state)

    return Door2


def ends_when_idle() -> type[Environment]:
    class Door2(Door):
        def after_step(self) -> list[str]:
            if self.turn == 4:
                self.finish(success=False)
            return []

    return Door2


def breaks_on_wild_arguments() -> type[Environment]:
    class Door2(Door):
        @tool("Turn a key.", effect=Effect.IRREVERSIBLE)
        def turn_key(self, key: int) -> str:
            if not -1 <= key <= 20_000:
                raise ValueError("no such key")
            return super().turn_key(key)

    return Door2


def process_outweighs_the_outcome() -> type[Environment]:
    class Door2(Door):
        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            more = tuple(f"step{number}" for number in range(20))
            return msgspec.structs.replace(
                super().generate(family, tier, stream, split), subgoals=("read", *more, "opened")
            )

        @tool("Read the number on the door.")
        def look(self) -> str:
            answer = super().look()
            for number in range(20):
                self.reach(f"step{number}")
            return answer

    return Door2


BEHAVIOUR: list[tuple[str, Callable[[], type[Environment]], str, str]] = [
    ("proof", solution_fails,
     "the task's own solution 'looks and turns' failed; turn 2 of 2 was answered by "
     "'error: the key does not turn'. Subgoal 'opened' was not reached.",
     "Mend the script or the judge"),
    ("proof", judge_is_too_kind,
     "the script 'guesses' must fail, but it succeeded.",
     "Let the judge look at everything"),
    ("subgoals", subgoal_never_reached, "never reaches subgoal 'closed'.", "Call self.reach('closed')"),
    ("subgoals", subgoals_out_of_order,
     "reaches read, opened, declared are opened, read.",
     "List the subgoals in the order"),
    ("subgoals", unknown_subgoal,
     "Door2 calls reach('red'), which no task lists as a subgoal.",
     "Did you mean 'read'?"),
    ("events", verdict_in_passing, "got a verdict without an end.", "self.finish"),
    ("observations", nothing_to_read, "was answered by nothing.", "say what it did"),
    ("determinism", chance_from_elsewhere, "turn 1 gave another observation: 'number", "self.random"),
    ("determinism", begin_forgets,
     "in an instance that had played before: turn 1 gave another observation",
     "begin()"),
    ("determinism", tuple_in_the_world,
     "with a task that was stored as JSON: turn 1 gave another observation",
     "Use lists"),
    ("determinism", state_hash_leaves_out, "two states with the same hash answered differently.", "world_state()"),
    ("determinism", class_keeps_count, "Episodes change Door2.SEEN", "Set it in begin()"),
    ("subgoals", pays_twice, "Door2 pays for subgoal 'read' a second time.", "Report subgoals by self.reach(...)"),
    ("snapshots", world_cannot_be_saved, "keeps a set in 'seen'", "Write save_world() and load_world()"),
    ("snapshots", save_world_forgets, "Family 'open', turn 1: ", "Let save_world() return everything"),
    ("snapshots", fork_shares, "a fork that was played on changed the original.", "Let save_world()"),
    ("turn budget", ends_when_idle, "must be cut there, but the episode ended by itself at turn 4.", "idleness"),
    ("hostile text", breaks_on_wild_arguments, "raised ValueError: no such key (", "ToolError"),
    ("dominance", process_outweighs_the_outcome,
     "Process reward outweighs the outcome in family 'open'",
     "Lower rewards.process"),
]  # fmt: skip


@pytest.fixture(params=BEHAVIOUR, ids=lambda case: f"{case[0]}-{case[2][:40]}")
def case(request: pytest.FixtureRequest) -> Mistake:
    return request.param


def test_one_check_finds_the_mistake(case: Mistake) -> None:
    assert_found(case)


# No mistakes ----------------------------------------------------------------------------------------------------


def test_nothing_is_found_without_a_mistake() -> None:
    report = check_environment(Door(score=SPEC), 4, SPEC.check_dominance, fuzzed=400)
    assert report.ok, report.broken
    assert [check.name for check in report.checks if check.ok is None] == []


class Calling(Door):
    """Its tools call one another, by position and by name."""

    @tool("Try two keys.", effect=Effect.IRREVERSIBLE)
    def try_keys(self, first: int, second: int) -> str:
        try:
            return self.turn_key(first)
        except ToolError:
            return self.turn_key(key=second)

    def scripts(self, task: Task) -> list[Script]:
        key = task.world["key"]
        right = (call("look"), call("try_keys", first=key + 1, second=key, confirm=True))
        return [
            Script("tries both", right, True),
            Script("tries wrongly", (call("try_keys", first=key + 1, second=key + 3, confirm=True),), False),
        ]


def test_tools_may_call_tools_by_position() -> None:
    report = check_environment(Calling(score=SPEC), 3, SPEC.check_dominance, fuzzed=50)
    assert report.ok, report.broken
