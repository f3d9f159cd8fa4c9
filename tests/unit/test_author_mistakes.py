"""Mistakes of an environment's author: each is found by one check, which names what is wrong and says what to do."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

from ferrata.envs import Effect, Environment, Script, Task, ToolError, call, tool
from ferrata.envs.checker import check_environment
from ferrata.envs.contract.definition import check_definition, refuse_mistakes
from ferrata.envs.contract.report import Broken
from ferrata.errors import TaskError
from ferrata.records import Event, EventKind
from ferrata.rewards import RewardSpec

SPEC = RewardSpec()


class Door(Environment):
    """Without a mistake: read the number, turn the key that has it."""

    name = "door"
    families: ClassVar = {1: ("open",)}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        key = 2 * stream.randrange(5000) + (split == "eval")
        return Task("door", family, tier, split, "Open the door.", {"key": key}, ("read", "opened"), 6)

    def begin(self, task: Task) -> None:
        self.tries = 0

    @tool("Read the number on the door.")
    def look(self) -> str:
        self.reach("read")
        return f"number {self.task.world['key']}"

    @tool("Turn a key.", effect=Effect.IRREVERSIBLE)
    def turn_key(self, key: int) -> str:
        self.tries += 1
        if key == self.task.world["key"]:
            self.reach("opened")
            self.finish(success=True)
            return "open"
        if self.tries == 2:
            self.finish(success=False)
        raise ToolError("the key does not turn")

    def scripts(self, task: Task) -> list[Script]:
        key = task.world["key"]
        return [
            Script("looks and turns", (call("look"), call("turn_key", key=key, confirm=True)), True),
            Script("guesses", (call("turn_key", key=key + 1, confirm=True),) * 2, False),
        ]


# In the class: refused when it is loaded ------------------------------------------------------------------------


def no_name() -> type[Environment]:
    class Door2(Door):
        name = " "

    return Door2


def no_families() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {}

    return Door2


def family_without_comma() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {1: ("open")}

    return Door2


def tier_without_family() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {1: ("open",), 2: ()}

    return Door2


def tier_out_of_range() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {4: ("open",)}

    return Door2


def no_generate() -> type[Environment]:
    class Bare(Environment):
        name = "bare"
        families: ClassVar = {1: ("open",)}

    return Bare


def no_tools() -> type[Environment]:
    class Bare(Environment):
        name = "bare"
        families: ClassVar = {1: ("open",)}
        generate = Door.generate

    return Bare


def no_type_hint() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.")
        def knock(self, times) -> str:
            return "knock"

    return Door2


def no_schema_for_the_hint() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.")
        def knock(self, rhythm: complex) -> str:
            return "knock"

    return Door2


def any_number_of_arguments() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.")
        def knock(self, *times: int) -> str:
            return "knock"

    return Door2


def no_description() -> type[Environment]:
    class Door2(Door):
        @tool("")
        def knock(self) -> str:
            return "knock"

    return Door2


def bare_decorator() -> type[Environment]:
    class Door2(Door):
        @tool  # type: ignore[arg-type]
        def knock(self) -> str:
            return "knock"

    return Door2


def tool_named_like_a_method() -> type[Environment]:
    class Door2(Door):
        @tool("Take a step.")
        def step(self, text: str) -> str:  # type: ignore[override]
            return "one step"

    return Door2


def tool_declared_to_return_a_number() -> type[Environment]:
    class Door2(Door):
        @tool("Count the doors.")  # type: ignore[arg-type]
        def count(self) -> int:
            return 1

    return Door2


def async_tool() -> type[Environment]:
    class Door2(Door):
        @tool("Wait.")  # type: ignore[arg-type]
        async def wait(self) -> str:
            return "waited"

    return Door2


def own_confirm() -> type[Environment]:
    class Door2(Door):
        @tool("Burn it.", effect=Effect.IRREVERSIBLE)
        def burn(self, confirm: bool) -> str:
            return "burnt"

    return Door2


def constructor_without_tiers() -> type[Environment]:
    class Door2(Door):
        def __init__(self, colour: str) -> None:
            super().__init__()

    return Door2


def half_a_pair() -> type[Environment]:
    class Door2(Door):
        def save_world(self) -> Any:
            return self.tries

    return Door2


def state_in_the_class() -> type[Environment]:
    class Door2(Door):
        pass

    Door2.opened = {}  # type: ignore[attr-defined]

    return Door2


def tool_that_costs_less_than_nothing() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.", cost=-0.5)
        def knock(self) -> str:
            return "knock"

    return Door2


DEFINITIONS: list[tuple[Callable[[], type[Environment]], str, str]] = [
    (no_name, "Door2 has no name.", 'Write name = "door2"'),
    (no_families, "Door2 has no families", 'Write families = {1: ("open",)}'),
    (family_without_comma, "Door2.families[1] is the text 'open'.", "needs a comma: ('open',)"),
    (tier_without_family, "Door2.families[2] names no family.", "leave it out"),
    (tier_out_of_range, "Door2.families has a tier 4.", "Tiers are 1, 2 and 3."),
    (no_generate, "Bare has no generate().", "Write def generate(self, family, tier, stream, split)"),
    (no_tools, "Bare has no tools.", '@tool("...")'),
    (no_type_hint, "Tool 'knock' of Door2: parameter 'times' has no type hint.", "Write 'times: str'"),
    (no_schema_for_the_hint, "Door2: Tool 'knock': no JSON schema for the type hint <class 'complex'>", "Use str, int"),
    (any_number_of_arguments, "Tool 'knock' of Door2 takes '*times: ", "Give every argument a name"),
    (no_description, "Tool 'knock' of Door2 has no description.", '@tool("What it does.")'),
    (bare_decorator, "Tool 'knock' of Door2 has no description.", "instead of @tool."),
    (tool_named_like_a_method, "Tool 'step' of Door2 hides Environment.step", "Give the tool another name."),
    (tool_declared_to_return_a_number, "Tool 'count' of Door2 is declared to return int.", "-> str"),
    (async_tool, "Tool 'wait' of Door2 is an async method.", "plain method"),
    (own_confirm, "Tool 'burn' of Door2 has a parameter 'confirm'.", "Leave it out"),
    (constructor_without_tiers, "Door2(tiers=..., score=...) cannot be called", "super().__init__(tiers, score)"),
    (state_in_the_class, "Door2.opened is a dict in the class", "Set it in begin(): self.opened = ..."),
    (tool_that_costs_less_than_nothing, "Tool 'knock' of Door2 has the cost -0.5.", "A cost is a number from 0 on"),
    (half_a_pair, "Door2 has save_world() but no load_world().", "Write def load_world(self, state)"),
]


@pytest.mark.parametrize(("make", "seen", "advice"), DEFINITIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_mistake_in_the_class_is_refused_at_load(
    make: Callable[[], type[Environment]], seen: str, advice: str
) -> None:
    with pytest.raises(TaskError) as raised:
        refuse_mistakes(make())
    assert seen in str(raised.value)
    assert advice in str(raised.value)


def test_scripts_are_missed_when_checking_and_not_when_loading() -> None:
    class Unproven(Door):
        scripts = Environment.scripts

    refuse_mistakes(Unproven)
    with pytest.raises(Broken, match=r"Unproven has no scripts\(\)\. Write def scripts"):
        check_definition(Unproven)


# In what it does: one row of the table --------------------------------------------------------------------------


class TaskChanged(Door):
    """The fields of every task are replaced."""

    fields: ClassVar[dict[str, Any]] = {}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        task = super().generate(family, tier, stream, split)
        return msgspec.structs.replace(task, **self.fields)


def with_fields(**fields: Any) -> Callable[[], type[Environment]]:
    return lambda: type("Door2", (TaskChanged,), {"fields": fields})


def generate_raises() -> type[Environment]:
    class Door2(Door):
        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            raise KeyError("keys")

    return Door2


def generate_gives_no_task() -> type[Environment]:
    class Door2(Door):
        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Any:
            return {"instruction": "Open."}

    return Door2


def generate_ignores_stream() -> type[Environment]:
    class Door2(Door):
        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            return super().generate(family, tier, random.Random(4), split)

    return Door2


def generate_draws_from_elsewhere() -> type[Environment]:
    class Door2(Door):
        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            return super().generate(family, tier, random.Random(), split)

    return Door2


def generate_ignores_split() -> type[Environment]:
    class Door2(Door):
        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            return msgspec.structs.replace(super().generate(family, tier, stream, "train"), split=split)

    return Door2


def too_few_tasks() -> type[Environment]:
    class Door2(Door):
        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            return super().generate(family, tier, random.Random(stream.randrange(2)), split)

    return Door2


def with_scripts(scripts: Callable[[Task], Any]) -> Callable[[], type[Environment]]:
    return lambda: type("Door2", (Door,), {"scripts": lambda self, task: scripts(task)})


def solution(task: Task) -> Script:
    return Door.scripts(Door(), task)[0]


def failure(task: Task) -> Script:
    return Door.scripts(Door(), task)[1]


def begin_raises() -> type[Environment]:
    class Door2(Door):
        def begin(self, task: Task) -> None:
            self.tries = task.world["tries"]

    return Door2


def judge_raises() -> type[Environment]:
    class Door2(Door):
        @tool("Turn a key.", effect=Effect.IRREVERSIBLE)
        def turn_key(self, key: int) -> str:
            self.finish(success=self.judge(key))
            return "turned"

        def judge(self, key: int) -> bool:
            return bool(self.task.world["lock"] == key)

    return Door2


def tool_returns_a_number() -> type[Environment]:
    class Door2(Door):
        @tool("Read the number on the door.")
        def look(self) -> str:
            self.reach("read")
            return self.task.world["key"]  # type: ignore[no-any-return]

    return Door2


def takes_a_name_of_the_base_class() -> type[Environment]:
    class Door2(Door):
        def begin(self, task: Task) -> None:
            super().begin(task)
            self.score = None if self.score is not None else len

    return Door2


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
    ("tasks", generate_raises, "generate() of Door2 for family 'open' raised KeyError: 'keys' (", "Mend that line."),
    ("tasks", generate_gives_no_task, "generate() of Door2 returns dict for family 'open'.", "Return a Task."),
    ("tasks", generate_ignores_stream, "generate() of Door2 ignores `stream`: 20 streams gave", "from `stream`"),
    ("tasks", generate_draws_from_elsewhere, "generate() of Door2 gave two different tasks", "`stream` alone"),
    ("tasks", too_few_tasks, "'door' has only 2 different tasks of 4", "--tasks"),
    ("tasks", with_fields(tier=2), "A task of family 'open' of Door2 has tier = 2.", "passes tier on: here it is 1."),
    ("tasks", with_fields(split="train"), "has split = 'train'.", "passes split on: here it is 'eval'."),
    ("tasks", with_fields(instruction=" "), "has no instruction.", "Say in `instruction`"),
    ("tasks", with_fields(max_turns=0), "has max_turns = 0.", "the turns of its solution"),
    ("tasks", with_fields(subgoals="read"), "has subgoals = 'read', a text.", "needs a comma: ('read',)"),
    ("tasks", with_fields(subgoals=("read", "read")), "names one of its subgoals twice.", "once"),
    ("tasks", with_fields(key_steps=("opend",)), "the key step 'opend', which is no subgoal.", "mean 'opened'?"),
    ("tasks", with_fields(tools=("lok",)), "allows a tool 'lok' that does not exist.", "mean 'look'?"),
    ("tasks", with_fields(world={"keys": [{1, 2}]}), "JSON-ready: world['keys'][0] is of type set.", "list"),
    ("tasks", with_fields(world={"key": {1: "a"}}), "world['key'] has the key 1 of type int.", "text keys"),
    ("tasks", with_fields(world={"key": float("nan")}), "world['key'] is nan.", "Use dict"),
    ("splits", generate_ignores_split, "generate() of Door2 ignores `split`", "two disjoint sets"),
    ("scripts", with_scripts(lambda task: [solution(task)]),
     "Family 'open' of Door2 has no script that must fail.",
     "success=False"),
    ("scripts", with_scripts(lambda task: [failure(task)]), "has no script that must succeed.", "success=True"),
    ("scripts", with_scripts(lambda task: [("look",)]),
     "scripts() of Door2 returns something that is no Script",
     "Return Script("),
    ("scripts", with_scripts(lambda task: 1 / 0),
     "scripts() of Door2 for a task of family 'open' raised ZeroDivisionError",
     "Mend that line"),
    ("scripts", with_fields(max_turns=1),
     "the solution 'looks and turns' takes 2 turns, but max_turns is 1.",
     "more than 2"),
    ("scripts", begin_raises,
     "begin() of Door2 for a task of family 'open' raised KeyError: 'tries' (",
     "Mend that line"),
    ("scripts", judge_raises, "raised KeyError: 'lock' (", "Mend that line"),
    ("scripts", tool_returns_a_number, "tool 'look' of Door2 returned int, not text.", "as a str"),
    ("scripts", takes_a_name_of_the_base_class,
     "Door2 sets self.score, which belongs to the base class.",
     "self.my_score"),
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
def case(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_one_check_finds_the_mistake(case: tuple[str, Callable[[], type[Environment]], str, str]) -> None:
    name, make, seen, advice = case
    report = check_environment(make()(score=SPEC), 4, SPEC.check_dominance, fuzzed=400)
    told = {check.name: f"{check.detail} {check.advice}" for check in report.broken}
    assert list(told) == [name], told
    assert seen in told[name]
    assert advice in told[name]
    assert not report.ok


def test_nothing_is_found_without_a_mistake() -> None:
    report = check_environment(Door(score=SPEC), 4, SPEC.check_dominance, fuzzed=400)
    assert report.ok, report.broken
    assert [check.name for check in report.checks if check.ok is None] == []


def test_what_raised_is_told_with_action_and_line() -> None:
    report = check_environment(judge_raises()(), 4, fuzzed=0)
    (broken,) = report.broken
    assert broken.detail.startswith('Family \'open\', action \'{"action": "turn_key", ')
    assert "test_author_mistakes.py:" in broken.detail
    assert broken.detail.endswith(" in judge).")


def test_checks_that_need_a_broken_one_are_not_made() -> None:
    report = check_environment(begin_raises()(), 4, fuzzed=0)
    skipped = {check.name: check.detail for check in report.checks if check.ok is None}
    assert set(skipped.values()) == {"needs 'scripts'", "no reward spec was given"}
    assert [check.name for check in report.checks if check.ok] == ["definition", "tasks", "splits"]


# No mistakes --------------------------------------------------------------------------------------------------------


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


class ForgetsOnce(Door):
    """Six turns, and only the snapshot of `forgets` lacks what was counted."""

    forgets = 0

    @tool("Wait.")
    def wait(self, number: int) -> str:
        self.tries += 1
        return f"waited {self.tries} times"

    def scripts(self, task: Task) -> list[Script]:
        key = task.world["key"]
        waiting = tuple(call("wait", number=number) for number in range(4))
        right = (*waiting, call("look"), call("turn_key", key=key, confirm=True))
        return [Script("waits and turns", right, True), Script("guesses", (call("finish_wrong"),), False)]

    @tool("Give up.")
    def finish_wrong(self) -> str:
        self.finish(success=False)
        return "gone"

    def save_world(self) -> Any:
        return {"tries": 0 if self.turn == type(self).forgets else self.tries}

    def load_world(self, state: Any) -> None:
        self.tries = state["tries"]

    def world_state(self) -> Any:
        return self.turn


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_snapshot_is_taken_at_every_turn_of_a_solution(turn: int) -> None:
    kind = type("ForgetsOnce", (ForgetsOnce,), {"forgets": turn})
    [fault] = check_environment(kind(score=SPEC), 2, SPEC.check_dominance, fuzzed=20).broken
    assert fault.name == "snapshots"
    assert f"turn {turn}: the episode went on differently" in fault.detail


# What cannot be saved -------------------------------------------------------------------------------------------


class Keeping(Door):
    """Keeps in a tool what JSON has no kind for."""

    def begin(self, task: Task) -> None:
        self.tries = 0
        self.tried = []

    @tool("Turn a key.", effect=Effect.IRREVERSIBLE)
    def turn_key(self, key: int) -> str:
        if self.tried == []:
            self.tried = {key}  # here
        return super().turn_key(key)


class Giving(Door):
    """Gives a world that JSON cannot hold."""

    def save_world(self) -> Any:  # here
        return {"tries": self.tries, "made": object()}

    def load_world(self, state: Any) -> None:
        self.tries = state["tries"]


@pytest.mark.parametrize(
    ("kind", "what", "function", "advice"),
    [
        (Keeping, "keeps a set in 'tried', which cannot be saved by itself", "begin", "Write save_world()"),
        (Giving, "save_world() of environment 'door' must give JSON-ready content", "save_world", "Encoding objects"),
    ],
)
def test_what_cannot_be_saved_is_blamed_on_the_author_s_line(
    kind: type[Environment], what: str, function: str, advice: str
) -> None:
    [fault, *_] = check_environment(kind(), 2, SPEC.check_dominance, fuzzed=20).broken
    assert what in fault.detail
    assert "test_author_mistakes.py:" in fault.detail
    assert fault.detail.endswith(f" in {function}).")
    assert "snapshot.py" not in fault.detail
    assert fault.advice.startswith(advice)
