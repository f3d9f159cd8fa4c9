"""What an evaluation says, from hand-made trajectories, and the proof that its tasks are unseen."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
import pytest

from ferrata.envs.base import Environment
from ferrata.errors import RolloutFault, TaskError
from ferrata.evaluation.evaluate import evaluate
from ferrata.evaluation.results import decode, encode, summarise
from ferrata.records import Group, StopReason, Task, Trajectory
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collection import Collection, CollectionStats
from ferrata.tasks.splits import fingerprints, refuse_overlap, task_set_version

MakeTrajectory = Callable[..., Trajectory]


def _task(key: int, split: str) -> Task:
    return Task("office", "lookup", 1, split, f"Find price {key}.", {"key": key}, (), 5)


@pytest.fixture
def mixed(make_trajectory: MakeTrajectory) -> list[Trajectory]:
    """Six scored episodes of three families in two tiers, and one that the environment broke."""
    return [
        make_trajectory(0, True),
        make_trajectory(1, True, invalid=1),
        make_trajectory(2, False, invalid=2, turns=4),
        make_trajectory(3, True, family="mail"),
        make_trajectory(4, False, family="compare", tier=2, stop=StopReason.MAX_TURNS),
        make_trajectory(5, True, family="compare", tier=2),
        make_trajectory(6, None, family="compare", tier=2, stop=StopReason.ENV_ERROR),
    ]


def test_counts_add_up_and_unscored_is_not_a_failure(mixed: list[Trajectory]) -> None:
    result = summarise(mixed, seed=7)
    assert (result.n, result.scored, result.unscored) == (7, 6, 1)
    assert (result.success.count, result.success.n) == (4, 6)
    assert {tier: (rate.count, rate.n) for tier, rate in result.by_tier.items()} == {1: (3, 4), 2: (1, 2)}
    families = [(one.tier, one.family, one.success.count, one.success.n) for one in result.by_family]
    assert families == [(1, "lookup", 2, 3), (1, "mail", 1, 1), (2, "compare", 1, 2)]
    assert result.stops == {"completed": 4, "env_error": 1, "max_turns": 1, "submitted": 1}
    assert sum(result.stops.values()) == result.n


def test_process_quality(mixed: list[Trajectory]) -> None:
    result = summarise(mixed)
    assert (result.invalid.count, result.invalid.n) == (3, 19)
    assert (result.recovery.count, result.recovery.n) == (1, 2)
    assert result.turns == pytest.approx(19 / 6)
    assert result.tokens == pytest.approx(190 / 6)
    assert result.components["outcome"] == pytest.approx((4 * 5.0 - 2 * 1.0) / 6)
    assert sum(result.components.values()) == pytest.approx(result.reward.value)


def test_a_positive_reward_is_not_success(make_trajectory: MakeTrajectory) -> None:
    generous = msgspec.structs.replace(make_trajectory(0, False), reward=9.0)
    assert summarise([generous]).success.count == 0


def test_episodes_dropped_before_they_were_recorded_are_unscored(mixed: list[Trajectory]) -> None:
    result = summarise(mixed, asked=10)
    assert (result.n, result.scored, result.unscored) == (10, 6, 4)


def test_a_share_of_nothing_is_not_a_number(make_trajectory: MakeTrajectory) -> None:
    result = summarise([make_trajectory(0, None, stop=StopReason.TIMEOUT)])
    assert math.isnan(result.success.share)
    assert (result.success.low, result.success.high) == (0.0, 1.0)


def test_an_episode_without_a_verdict_is_unscored(make_trajectory: MakeTrajectory) -> None:
    result = summarise([make_trajectory(0, True), make_trajectory(1, None, stop=StopReason.SUBMITTED)])
    assert (result.scored, result.unscored, result.success.count) == (1, 1, 1)


def test_result_survives_json(mixed: list[Trajectory]) -> None:
    result = summarise(mixed, seed=7, seconds=1.5, versions={"rewards": "abc"})
    assert decode(json.loads(json.dumps(encode(result)))) == result
    assert result.versions["rewards"] == "abc"


def test_decoding_is_named(make_trajectory: MakeTrajectory) -> None:
    assert summarise([make_trajectory(0, temperature=0.0)]).decoding == "greedy"
    assert summarise([make_trajectory(0, temperature=0.7)]).decoding == "sampled"


def test_outcomes_by_fingerprint_serve_paired_comparison(mixed: list[Trajectory]) -> None:
    outcomes = summarise(mixed).outcomes
    assert outcomes[mixed[0].task.fingerprint] is True
    assert outcomes[mixed[2].task.fingerprint] is False
    assert mixed[6].task.fingerprint not in outcomes


def test_overlapping_splits_are_refused_and_the_task_named() -> None:
    train = [_task(key, "train") for key in (1, 2, 3)]
    with pytest.raises(TaskError, match=rf"office/lookup.*{train[1].fingerprint}.*Find price 2") as caught:
        refuse_overlap(train, [_task(key, "eval") for key in (9, 2)])
    assert "1 task is both" in str(caught.value)


def test_disjoint_splits_pass() -> None:
    refuse_overlap([_task(1, "train")], [_task(2, "eval")])


def test_task_set_version_depends_on_content_alone() -> None:
    tasks = [_task(key, "eval") for key in range(5)]
    assert task_set_version(tasks) == task_set_version(reversed(tasks))
    assert task_set_version(tasks) != task_set_version(tasks[:4])
    assert len(fingerprints([*tasks, tasks[0]])) == 5


class Prices(Environment):
    """Three families in two tiers; only what drawing tasks needs."""

    name = "prices"
    version = "3"
    families: ClassVar = {1: ("lookup", "mail"), 2: ("compare",)}

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        return Task(self.name, family, tier, split, f"{split} {stream.random()}", {}, (), 5)


class PlayedByHand:
    """Stands in for the collector: every episode is a copy of one hand-made trajectory."""

    def __init__(self, example: Trajectory) -> None:
        self.example = example
        self.judge = None
        self.calls: list[tuple[object, ...]] = []

    def collect(
        self,
        requests: Sequence[tuple[Task, int]],
        seed: int,
        path: Sequence[str | int],
        temperature: float,
        progress: object,
        constrained: bool,
    ) -> Collection:
        self.calls.append((requests, seed, tuple(path), temperature, constrained))
        groups = [Group(task, [msgspec.structs.replace(self.example, task=task)] * count) for task, count in requests]
        return Collection(groups, CollectionStats(seconds=2.5))


def test_evaluate_plays_fixed_tasks_evenly_and_greedily(make_trajectory: MakeTrajectory) -> None:
    env, collector = Prices(tiers=(1, 2)), PlayedByHand(make_trajectory(0, True))
    result, trajectories = evaluate(collector, env, tasks=30, seed=5)
    assert [one.success.n for one in result.by_family] == [10, 10, 10]
    assert result.decoding == "greedy"
    assert (result.n, result.seed, result.seconds, len(trajectories)) == (30, 5, 2.5, 30)
    assert {one.task.split for one in trajectories} == {"eval"}
    evaluate(collector, env, tasks=30, seed=5)
    assert collector.calls[0] == collector.calls[1]


def test_evaluate_plays_the_tasks_that_it_is_given(make_trajectory: MakeTrajectory) -> None:
    env, collector = Prices(tiers=(1, 2)), PlayedByHand(make_trajectory(0, True))
    given = env.tasks("eval", 9, seed=1)[3:5]
    result, trajectories = evaluate(collector, env, tasks=given)
    assert [one.task for one in trajectories] == given
    assert (result.n, result.versions["tasks"]) == (2, task_set_version(given))


def test_evaluate_notes_what_was_measured(make_trajectory: MakeTrajectory) -> None:
    plain, scored = Prices(tiers=(1,)), Prices(tiers=(1,), score=RewardSpec())
    collector = PlayedByHand(make_trajectory(0, True))
    first, _ = evaluate(collector, plain, tasks=4)
    second, _ = evaluate(collector, scored, tasks=4)
    assert first.versions == {"tasks": task_set_version(plain.tasks("eval", 4, 7)), "environment": "prices-3"}
    assert second.versions == {**first.versions, "rewards": RewardSpec().version}


def test_an_evaluation_that_judged_nothing_is_a_fault(make_trajectory: MakeTrajectory) -> None:
    broken = PlayedByHand(make_trajectory(0, None, stop=StopReason.ENV_ERROR))
    with pytest.raises(RolloutFault, match="None of the 4 evaluation episodes"):
        evaluate(broken, Prices(tiers=(1,)), tasks=4)
