"""Rewards come from events, by component, and the outcome dominates."""

import random
from typing import ClassVar

import pytest

from ferrata.envs import Environment, call, tool
from ferrata.envs.actions import Fault, Malformed, parse
from ferrata.errors import TaskError
from ferrata.recipe import RewardSection
from ferrata.records import Event, EventKind, Task
from ferrata.rewards import RewardSpec
from ferrata.rewards.spec import FORMAT_FAULTS


class KeyStepped(Environment):
    """Two subgoals, of which one is decisive."""

    name = "key_stepped"
    families: ClassVar = {1: ("only",)}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        world = {"key": stream.random()}
        return Task(self.name, family, tier, split, "go", world, ("looked", "verified"), 9, key_steps=("verified",))

    @tool("Look.")
    def look(self) -> str:
        self.reach("looked")
        return "seen"

    @tool("Verify.")
    def verify(self) -> str:
        self.reach("verified")
        return "verified"


def task_with(subgoals: int, key_steps: tuple[str, ...] = ()) -> Task:
    names = tuple(f"s{i}" for i in range(subgoals))
    return Task("office", "report", 2, "train", "do it", {}, names, 20, key_steps=key_steps)


def test_components_by_hand() -> None:
    spec = RewardSpec()
    events = [Event(EventKind.STEP), Event(EventKind.SUBGOAL, "a"), Event(EventKind.SUBGOAL, "b")]
    assert spec(events) == {"efficiency": -0.01, "process": pytest.approx(0.16)}
    assert spec([Event(EventKind.STEP), Event(EventKind.INVALID, "no_json")]) == {"efficiency": -0.01, "format": -0.2}
    assert spec([Event(EventKind.INVALID, "unconfirmed")]) == {"invalid": -0.2}
    assert spec([Event(EventKind.REPEAT, "x"), Event(EventKind.NEAR_REPEAT)]) == {"repetition": pytest.approx(-0.12)}
    assert spec([Event(EventKind.FORBIDDEN, "x")]) == {"safety": -10.0}
    assert spec([Event(EventKind.TOOL_COST, "x", 0.3)]) == {"tool_cost": pytest.approx(-0.3)}
    assert spec([Event(EventKind.UNFINISHED)]) == {"unfinished": -1.5}
    assert spec([Event(EventKind.TOOL_ERROR, "x")]) == {}


def test_every_outcome_beats_every_loophole() -> None:
    section = RewardSection()
    assert section.success > 0 > section.failure > section.unfinished > section.safety


def test_process_reward_that_outweighs_the_outcome_is_refused_with_the_sums() -> None:
    RewardSpec().check_dominance([task_with(12)])
    with pytest.raises(TaskError, match=r"13 subgoals x 0.08 = 1.04, more than 20% of the success reward 5.0 = 1.00"):
        RewardSpec().check_dominance([task_with(13)])


def test_key_steps_alone_are_rewarded() -> None:
    RewardSpec().check_dominance([task_with(13, key_steps=("s1", "s2"))])
    with pytest.raises(TaskError, match=r"13 key steps x 0.08 = 1.04"):
        RewardSpec().check_dominance([task_with(20, key_steps=tuple(f"s{i}" for i in range(13)))])
    env = KeyStepped(score=RewardSpec())
    task = env.tasks("train", 1)[0]
    env.reset(task)
    by_the_way, decisive = env.step(call("look")), env.step(call("verify"))
    assert env.reached == ["looked", "verified"]
    assert "process" not in by_the_way.components or by_the_way.components["process"] == 0.0
    assert decisive.components["process"] == 0.08


def test_a_key_step_that_is_no_subgoal_is_refused() -> None:
    with pytest.raises(TaskError, match=r"Key step 'never' of family 'report' can never be reached.*s0, s1, s2"):
        RewardSpec().check_dominance([task_with(3, key_steps=("s1", "never"))])


def test_the_faults_of_form_are_those_of_the_parser() -> None:
    assert {fault.value for fault in Fault} >= FORMAT_FAULTS
    spec = RewardSpec(RewardSection(format=-0.5, invalid=-0.3))
    for text in ("no json", "{", '{"a": 1}', '{"action": "look"}{"action": "look"}', "x" * 200_000):
        parsed = parse(text, {})
        assert isinstance(parsed, Malformed)
        assert spec([Event(EventKind.INVALID, parsed.fault.value)]) == {"format": -0.5}, parsed
    parsed = parse('{"action": "fly", "arguments": {}}', {})
    assert isinstance(parsed, Malformed)
    assert spec([Event(EventKind.INVALID, parsed.fault.value)]) == {"invalid": -0.3}


def test_every_weight_of_the_recipe_is_paid_for_some_event() -> None:
    weights = set(RewardSection.model_fields) - {"process_limit", "phases"}
    every = [*(Event(kind) for kind in EventKind), *(Event(EventKind.INVALID, fault.value) for fault in Fault)]
    for weight in weights:
        before, after = RewardSpec(), RewardSpec(RewardSection(**{weight: getattr(RewardSection(), weight) * 0.9}))
        assert before(every) != after(every), weight


# Earning once ---------------------------------------------------------------------------------------------------


def paid(env: KeyStepped, *texts: str) -> float:
    return sum(env.step(text).components.get("process", 0.0) for text in texts)


def test_a_subgoal_pays_once_however_often_it_is_reached() -> None:
    env = KeyStepped(score=RewardSpec())
    env.reset(env.tasks("train", 1)[0])
    assert paid(env, *[call("verify")] * 5) == 0.08


def test_a_restored_or_forked_state_does_not_earn_again() -> None:
    env = KeyStepped(score=RewardSpec())
    env.reset(env.tasks("train", 1)[0])
    assert paid(env, call("verify")) == 0.08
    snapshot = env.snapshot()
    env.restore(snapshot)
    assert paid(env, call("verify")) == 0.0
    fork = env.fork()
    assert isinstance(fork, KeyStepped)
    assert paid(fork, call("verify")) == 0.0


def test_the_version_follows_the_weights() -> None:
    assert RewardSpec().version == RewardSpec(RewardSection()).version
    assert RewardSpec().version != RewardSpec(RewardSection(process=0.07)).version
