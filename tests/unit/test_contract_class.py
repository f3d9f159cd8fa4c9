"""The contract as a test class: one test a check, messages for people, and no pytest inside."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from typing import ClassVar
from unittest.case import SkipTest

import pytest

from ferrata.envs import Environment, Script, Task, call, tool
from ferrata.envs.checker import check_environment
from ferrata.envs.contract import EnvironmentContract
from ferrata.envs.contract.suite import CHECKS, NEEDS
from ferrata.rewards import RewardSpec


class Bell(Environment):
    """Ring the bell."""

    name = "bell"
    families: ClassVar = {1: ("ring",), 2: ("ring_twice",)}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        world = {"times": tier, "where": f"{split} {stream.randrange(1000)}"}
        return Task("bell", family, tier, split, f"Ring at {world['where']}.", world, ("rung",), 4)

    def begin(self, task: Task) -> None:
        self.times = 0

    @tool("Ring.")
    def ring(self) -> str:
        self.times += 1
        if self.times == self.task.world["times"]:
            self.reach("rung")
            self.finish(success=True)
        return f"rung {self.times} times"

    @tool("Go away.")
    def go(self) -> str:
        self.finish(success=False)
        return "gone"

    def scripts(self, task: Task) -> list[Script]:
        return [Script("rings", (call("ring"),) * task.tier, True), Script("goes", (call("go"),), False)]


class Silent(Bell):
    @tool("Ring.")
    def ring(self) -> str:
        raise KeyError("clapper")


SPEC = RewardSpec()


class TestClass(EnvironmentContract):
    environment = Bell
    dominance = SPEC.check_dominance
    tasks_each = 4
    fuzzed = 50


class TestFunction(EnvironmentContract):
    environment = staticmethod(lambda: Bell(tiers=(2,)))
    dominance = SPEC.check_dominance
    tasks_each = 4
    fuzzed = 50


def make_bell() -> Bell:
    return Bell(tiers=(2,))


def check_rewards(tasks: Sequence[Task]) -> None:
    SPEC.check_dominance(tasks)


class TestPlainFunctions(EnvironmentContract):
    environment = make_bell
    dominance = check_rewards
    tasks_each = 4
    fuzzed = 50


class TestFixture(EnvironmentContract):
    dominance = SPEC.check_dominance
    tasks_each = 4
    fuzzed = 50

    @pytest.fixture(autouse=True)
    def bell(self) -> None:
        self.environment = Bell


def test_every_check_is_a_test() -> None:
    tests = {
        name.removeprefix("test_").replace("_", " ") for name in dir(EnvironmentContract) if name.startswith("test_")
    }
    assert tests == set(CHECKS)


def test_what_a_check_needs_comes_before_it() -> None:
    order = list(CHECKS)
    for name, needed in NEEDS.items():
        assert all(order.index(other) < order.index(name) for other in needed)


def test_a_method_makes_the_environment_too() -> None:
    class Method(EnvironmentContract):
        tasks_each = 2

        def environment(self) -> Bell:
            return Bell(tiers=(self.tasks_each,))

    Method().test_tasks()
    Method.teardown_class()


def test_a_fault_is_an_assertion_that_names_the_line() -> None:
    contract = EnvironmentContract()
    contract.environment = Silent
    contract.test_tasks()
    with pytest.raises(
        AssertionError, match=r"raised KeyError: 'clapper' \(.*test_contract_class.py:\d+ in ring\)"
    ) as raised:
        contract.test_scripts()
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("dominance", "not checked: no reward spec was given"), ("hostile_text", "not checked: no wild texts were")],
)
def test_what_was_not_checked_does_not_read_as_passed(name: str, reason: str) -> None:
    contract = type("Quick", (EnvironmentContract,), {"environment": Bell, "fuzzed": 0, "tasks_each": 2})()
    with pytest.raises(SkipTest, match=reason):
        getattr(contract, f"test_{name}")()
    rows = {row.name: row for row in check_environment(Bell(), 2, None, fuzzed=0).checks}
    assert rows[name.replace("_", " ")].ok is None
    assert reason.removeprefix("not checked: ") in rows[name.replace("_", " ")].detail


def test_no_test_library_is_loaded() -> None:
    code = "import sys, ferrata.envs.contract; print(*sorted({'pytest', 'torch', 'hypothesis'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""
