"""Injected faults: they follow from the seed, harm nothing, cost nothing, and to try again is no repetition."""

from __future__ import annotations

from random import Random
from typing import ClassVar

import pytest

from ferrata.envs import Effect, Environment, Task, call, tool
from ferrata.envs.faults import FaultRates
from ferrata.envs.snapshot import Snapshot
from ferrata.errors import RecipeError, UnknownNameError
from ferrata.recipe import FaultSection
from ferrata.recipe_loading import load_recipe
from ferrata.records import EventKind, StepResult
from ferrata.rewards import RewardSpec
from ferrata.rollout.worlds import make_env


class Bell(Environment):
    """A bell that can be rung and listened to."""

    name = "bell"
    families: ClassVar = {1: ("ring",)}

    def generate(self, family: str, tier: int, stream: Random, split: str) -> Task:
        return Task("bell", family, tier, split, "Ring.", {"n": stream.random(), "split": split}, (), 200)

    def begin(self, task: Task) -> None:
        self.rung = 0

    @tool("Ring it.", Effect.WRITE, cost=0.5)
    def ring(self, times: int = 1) -> str:
        self.rung += times
        return f"rung {self.rung}"

    @tool("Listen.")
    def listen(self, to: str = "bell") -> str:
        return f"heard {self.rung}"


def bell(seed: int = 3, **rates: float | dict[str, float]) -> Bell:
    env = Bell(score=RewardSpec(), faults=FaultRates(**rates))
    env.reset(env.tasks("train", 1)[0], seed)
    return env


def kinds(result: StepResult) -> set[EventKind]:
    return {event.kind for event in result.events}


def faults_of(results: list[StepResult]) -> list[str]:
    return [event.name for result in results for event in result.events if event.kind is EventKind.TOOL_FAULT]


def test_a_lost_call_did_nothing_costs_nothing_and_is_no_repetition() -> None:
    env = bell(timeout=1.0)
    for _ in range(5):
        result = env.step(call("ring"))
        assert result.observation.text.startswith("error: ring is temporarily unavailable")
        assert kinds(result) == {EventKind.STEP, EventKind.TOOL_FAULT}
        assert set(result.components) == {"efficiency"}
    assert env.rung == 0


def test_only_the_named_tools_fail() -> None:
    env = bell(timeout={"ring": 1.0})
    assert EventKind.TOOL_FAULT in kinds(env.step(call("ring")))
    assert EventKind.TOOL_FAULT not in kinds(env.step(call("listen")))
    env = bell(timeout={"ring": 0.0, "*": 1.0})
    assert EventKind.TOOL_FAULT not in kinds(env.step(call("ring")))
    assert EventKind.TOOL_FAULT in kinds(env.step(call("listen")))


def test_rates_of_a_tool_that_does_not_exist_are_refused() -> None:
    for kind in ("timeout", "missing", "repeated"):
        with pytest.raises(UnknownNameError, match=r"'send_mesage'\. Did you mean 'send_message'"):
            make_env("office", faults=FaultRates(**{kind: {"*": 0.1, "send_mesage": 0.5}}))
    make_env("office", faults=FaultRates(timeout={"*": 0.1, "send_message": 0.5})).close()
    with pytest.raises(UnknownNameError, match="Did you mean 'ring'"):
        bell(timeout={"rinq": 1.0})


def test_what_is_missing_comes_back_within_three_turns_and_stays() -> None:
    env = bell(missing=1.0)
    results = [env.step(call("listen", to="x")) for _ in range(8)]
    missing = [EventKind.TOOL_FAULT in kinds(result) for result in results]
    assert missing[0]
    assert 1 <= missing.count(True) <= 3
    assert missing == sorted(missing, reverse=True)
    first_success = results[missing.count(True)]
    assert EventKind.REPEAT not in kinds(first_success)
    assert EventKind.REPEAT in kinds(results[missing.count(True) + 1])
    assert EventKind.TOOL_FAULT not in kinds(env.step(call("ring")))


def test_a_call_that_worked_before_fails_and_its_retry_is_excused() -> None:
    env = bell(repeated=1.0)
    assert kinds(env.step(call("listen"))) == {EventKind.STEP}
    assert kinds(env.step(call("listen"))) == {EventKind.STEP, EventKind.REPEAT, EventKind.TOOL_FAULT}
    assert kinds(env.step(call("listen"))) == {EventKind.STEP, EventKind.TOOL_FAULT}
    assert kinds(env.step(call("listen", to="wall"))) == {EventKind.STEP}


def test_refused_calls_get_no_fault() -> None:
    env = bell(timeout=1.0)
    assert kinds(env.step(call("ring", times="x"))) == {EventKind.STEP, EventKind.INVALID}


def play(env: Bell, turns: int = 60) -> list[StepResult]:
    return [env.step(call("ring", times=turn)) for turn in range(turns)]


def test_the_same_seed_gives_the_same_faults_and_another_seed_others() -> None:
    first, again, other = (play(bell(seed, timeout=0.3)) for seed in (1, 1, 2))
    assert first == again
    assert [kinds(result) for result in first] != [kinds(result) for result in other]


def test_rates_are_met() -> None:
    results = [result for seed in range(25) for result in play(bell(seed, timeout=0.2))]
    assert 0.16 < len(faults_of(results)) / len(results) < 0.24


def test_a_snapshot_brings_its_faults_along() -> None:
    env = bell(missing=0.7, timeout=0.2)
    for _ in range(3):
        env.step(call("listen", to="x"))
    data = env.snapshot().to_bytes()
    texts = [call("listen", to="x"), call("ring"), call("listen", to="y"), call("ring", times=2)] * 4
    future = [env.step(text) for text in texts]
    without = Bell(score=RewardSpec())
    without.restore(Snapshot.from_bytes(data))
    assert [without.step(text) for text in texts] == future
    assert faults_of(future)
    without.reset(env.task)
    assert not faults_of(play(without))


def test_rates_of_a_recipe() -> None:
    assert FaultRates.of(FaultSection()) is None
    recipe = load_recipe("office-smoke", ["env.faults.timeout=0.1", "env.faults.missing={read_file = 0.2}"])
    assert FaultRates.of(recipe.env.faults) == FaultRates({"*": 0.1}, {"read_file": 0.2}, {})


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("env.faults=3", "'env.faults' is a section: set a key inside it, for example 'env.faults.timeout'."),
        ("env.faults.timeout=2", "expected a number of at most 1."),
        ("env.faults.timeout=x", "expected a number, or a table of numbers."),
        ("env.faults.timeout=true", "expected a number."),
        ("env.faults.timeot=1", "Did you mean 'env.faults.timeout'?"),
    ],
)
def test_wrong_rates_are_explained(override: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("office-smoke", [override])
    assert str(caught.value).endswith(sentence)
