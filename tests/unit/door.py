"""An environment without a mistake, for tests of the mistakes that an author can make in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from ferrata.envs import Effect, Environment, Script, Task, ToolError, call, tool
from ferrata.envs.checker import check_environment
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


class TaskChanged(Door):
    """The fields of every task are replaced."""

    fields: ClassVar[dict[str, Any]] = {}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        task = super().generate(family, tier, stream, split)
        return msgspec.structs.replace(task, **self.fields)


def with_fields(**fields: Any) -> Callable[[], type[Environment]]:
    return lambda: type("Door2", (TaskChanged,), {"fields": fields})


def solution(task: Task) -> Script:
    return Door.scripts(Door(), task)[0]


def failure(task: Task) -> Script:
    return Door.scripts(Door(), task)[1]


Mistake = tuple[str, Callable[[], type[Environment]], str, str]
"""The check that finds it, the class that makes it, and what is said of it and advised."""


def assert_found(mistake: Mistake) -> None:
    """One check finds it, no other does, and it says what and what to do."""
    name, make, seen, advice = mistake
    report = check_environment(make()(score=SPEC), 4, SPEC.check_dominance, fuzzed=400)
    told = {check.name: f"{check.detail} {check.advice}" for check in report.broken}
    assert list(told) == [name], told
    assert seen in told[name]
    assert advice in told[name]
    assert not report.ok
