"""Mistakes of an environment's author in tasks and scripts: each is found by one check, which names what is wrong and
says what to do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferrata.envs import Effect, Environment, Task, tool
from ferrata.envs.checker import check_environment

from .door import Door, Mistake, assert_found, failure, solution, with_fields


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
            return self.task.world["key"]

    return Door2


def takes_a_name_of_the_base_class() -> type[Environment]:
    class Door2(Door):
        def begin(self, task: Task) -> None:
            super().begin(task)
            self.score = None if self.score is not None else len

    return Door2


GENERATED: list[tuple[str, Callable[[], type[Environment]], str, str]] = [
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
]  # fmt: skip


@pytest.fixture(params=GENERATED, ids=lambda case: f"{case[0]}-{case[2][:40]}")
def case(request: pytest.FixtureRequest) -> Mistake:
    return request.param


def test_one_check_finds_the_mistake(case: Mistake) -> None:
    assert_found(case)


def test_what_raised_is_told_with_action_and_line() -> None:
    report = check_environment(judge_raises()(), 4, fuzzed=0)
    (broken,) = report.broken
    assert broken.detail.startswith('Family \'open\', action \'{"action": "turn_key", ')
    assert "test_mistakes_in_tasks.py:" in broken.detail
    assert broken.detail.endswith(" in judge).")


def test_checks_that_need_a_broken_one_are_not_made() -> None:
    report = check_environment(begin_raises()(), 4, fuzzed=0)
    skipped = {check.name: check.detail for check in report.checks if check.ok is None}
    assert set(skipped.values()) == {"needs 'scripts'", "no reward spec was given"}
    assert [check.name for check in report.checks if check.ok] == ["definition", "tasks", "splits"]
