"""Many episodes at once: order, seeds, slots, failures and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pytest

from ferrata.envs import Environment
from ferrata.errors import RolloutFault, SamplerFault, TaskError, UnknownNameError, UsageError
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import StopReason, Task, Trajectory
from ferrata.rewards.judges import Line, Verdict
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collection import Collection
from ferrata.rollout.collector import Collector
from ferrata.rollout.judging import Judging
from ferrata.rollout.worlds import make_env
from ferrata.sampling.local import LocalSampler
from ferrata.seeds import derive

Saying = Callable[..., list[int]]


class Worlds:
    """Makes environments and remembers them."""

    def __init__(self, cls: type[Environment]) -> None:
        self.cls = cls
        self.made: list[Environment] = []
        self.closed: list[Environment] = []

    def __call__(self) -> Environment:
        env = self.cls(score=RewardSpec(RewardSection()))
        env.close = lambda: self.closed.append(env)  # type: ignore[method-assign]
        self.made.append(env)
        return env


class NoJudge:
    """A judge that is never asked."""

    version, at_once = "none", 1

    def judge(self, task: Task, transcript: Sequence[Line]) -> Verdict:
        raise AssertionError("it was asked")

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def worlds(errand: type[Environment]) -> Worlds:
    return Worlds(errand)


@pytest.fixture
def tasks(errand: type[Environment]) -> list[Task]:
    return errand().tasks("train", 5)


def collector(sampler: Any, worlds: Worlds, policy: Policy, **budgets: Any) -> Collector:
    section = RolloutSection(**{"max_tokens": 2000, "max_tokens_per_turn": 200, **budgets})
    return Collector(sampler, worlds, policy.chat, section)


def add_up(collection: Collection) -> bool:
    stats, trajectories = collection.stats, collection.trajectories
    return (
        stats.asked == len(trajectories) == stats.played + sum(stats.dropped.values())
        and stats.turns == sum(len(trajectory.turns) for trajectory in trajectories)
        and stats.tokens_sampled == sum(sum(trajectory.loss_mask) for trajectory in trajectories)
        and stats.tokens_read == sum(trajectory.loss_mask.count(False) for trajectory in trajectories)
    )


def test_groups_come_in_order_with_their_own_seeds(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    sampler = script(lambda key, turn: saying("say", word=f"w{key}x{turn}"), slots=3)
    collection = collector(sampler, worlds, tiny_policy).collect([(task, 3) for task in tasks], 9, ("sampling", 4), 0.7)
    assert [group.task for group in collection.groups] == tasks
    for index, group in enumerate(collection.groups):
        assert all(trajectory.task == group.task for trajectory in group.trajectories)
        seeds = [derive(9, "sampling", 4, index, member) for member in range(3)]
        assert [trajectory.seed for trajectory in group.trajectories] == seeds
    assert all(temperature == 0.7 for _, temperature in sampler.opened)
    assert {trajectory.policy_version for trajectory in collection.trajectories} == {3}
    assert collection.stats.played == 15
    assert add_up(collection)
    assert not sampler.live
    assert 0 < collection.stats.environment_seconds < collection.stats.seconds


def test_environments_are_reused_and_no_more_than_slots(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    sampler = script(lambda key, turn: saying("submit", word="ka"), slots=8)
    under_test = collector(sampler, worlds, tiny_policy, episodes_at_once=2)
    under_test.collect([(task, 4) for task in tasks], 0)
    under_test.collect([(task, 4) for task in tasks], 1)
    assert len(worlds.made) == 2
    under_test.close()
    assert sorted(map(id, worlds.closed)) == sorted(map(id, worlds.made))


def test_progress_is_told_after_every_episode(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    told: list[tuple[int, int]] = []
    sampler = script(lambda key, turn: saying("submit", word="ka"))
    collector(sampler, worlds, tiny_policy).collect(
        [(tasks[0], 3)], 0, progress=lambda over, asked: told.append((over, asked))
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_failed_episode_is_played_again_with_the_same_seed(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    sampler = script(lambda key, turn: saying("say" if key == 1 else "submit", word="crash"))
    collection = collector(sampler, worlds, tiny_policy).collect([(task, 1) for task in tasks], 0)
    assert collection.stats.retried == 1
    assert collection.stats.turns == sum(len(t.turns) for t in collection.trajectories) + 1, "the crashed turn was work"
    assert collection.stats.played == 5
    assert not collection.stats.dropped
    seeds = [seed for seed, _ in sampler.opened]
    assert len(seeds) == 6
    assert len(set(seeds)) == 5
    assert len(worlds.closed) == 1


def test_what_fails_again_is_dropped_counted_and_unscored(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    broken = msgspec.structs.replace(tasks[2], world={**tasks[2].world, "broken": True})
    sampler = script(lambda key, turn: saying("submit", word="ka"))
    collection = collector(sampler, worlds, tiny_policy, max_fault_share=0.2).collect(
        [(task, 1) for task in (*tasks[:2], broken, *tasks[3:])], 0
    )
    assert collection.stats.dropped == {"env_error": 1}
    assert add_up(collection)
    dropped = collection.groups[2].trajectories[0]
    assert (dropped.stop, dropped.reward, dropped.success) == (StopReason.ENV_ERROR, None, None)


def test_too_many_failures_stop_the_run_with_their_cause(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    sampler = script(lambda key, turn: saying("say", word="crash"))
    with pytest.raises(RolloutFault, match=r"2 of 5 episodes .*env_error 2.*the line is dead"):
        collector(sampler, worlds, tiny_policy, max_fault_share=0.2).collect([(task, 1) for task in tasks], 0)
    assert not sampler.live
    assert sorted(map(id, worlds.closed)) == sorted(map(id, worlds.made))


def test_an_interruption_leaves_nothing_open_and_the_collector_usable(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    def interrupted(key: int, turn: int) -> list[int]:
        if turn == 1 and len(worlds.closed) == 0:
            raise KeyboardInterrupt
        return saying("say", word=f"w{turn}")

    sampler = script(interrupted)
    under_test = collector(sampler, worlds, tiny_policy)
    with pytest.raises(KeyboardInterrupt):
        under_test.collect([(task, 1) for task in tasks], 0)
    assert not sampler.live
    assert sorted(map(id, worlds.closed)) == sorted(map(id, worlds.made))
    sampler._asked.clear()
    assert under_test.collect([(task, 1) for task in tasks], 0).stats.played == 5


@pytest.mark.parametrize("failing", ["sampler", "clock", "judging", "release"])
def test_what_fails_while_things_are_closed_hides_neither_the_first_error_nor_keeps_anything_open(
    script: Any,
    worlds: Worlds,
    tasks: list[Task],
    tiny_policy: Policy,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
) -> None:
    sampler = script(lambda key, turn: [])
    under_test = Collector(sampler, worlds, tiny_policy.chat, RolloutSection(max_tokens=2000), NoJudge())
    tried: list[str] = []

    def fail(*_: object, **__: object) -> None:
        tried.append(failing)
        raise RuntimeError("cannot be closed either")

    def advance() -> None:
        owner, name = {
            "sampler": (sampler, "close"),
            "clock": (type(sampler), "clock"),
            "judging": (Judging, "close"),
            "release": (under_test.host, "release"),
        }[failing]
        if failing == "clock":
            del sampler.clock
        monkeypatch.setattr(owner, name, property(fail) if failing == "clock" else fail, raising=False)
        raise SamplerFault("The engine is dead.")

    monkeypatch.setattr(sampler, "advance", advance)
    with pytest.raises(SamplerFault, match=r"The engine is dead\."):
        under_test.collect([(task, 1) for task in tasks[:2]], 0)
    assert tried
    stats = under_test.last_stats
    assert (stats.asked, stats.played, stats.dropped) == (2, 0, {"cancelled": 2})
    assert (not sampler.live) == (failing != "sampler")
    assert len(worlds.made) == 2
    assert sorted(map(id, worlds.closed)) == sorted(map(id, worlds.made))


def test_a_sampler_that_is_full_of_others_episodes_ends_the_run(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [0] * 100
    monkeypatch.setattr(script, "free", property(lambda sampler: looks.pop()))
    sampler = script(lambda key, turn: [])
    with pytest.raises(SamplerFault, match="holds episodes of others"):
        collector(sampler, worlds, tiny_policy).collect([(tasks[0], 1)], 0)


def test_a_turn_that_the_budget_cut_was_sampled(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy, saying: Saying
) -> None:
    sampler = script(lambda key, turn: saying("say", word="ka") * 400)
    collection = collector(sampler, worlds, tiny_policy, max_tokens_per_turn=4000).collect([(tasks[0], 2)], 0)
    assert {trajectory.stop for trajectory in collection.trajectories} == {StopReason.MAX_TOKENS}
    assert collection.stats.turns == 2
    assert add_up(collection)


def test_a_users_mistake_is_not_hidden_as_a_failure(
    script: Any, worlds: Worlds, tasks: list[Task], tiny_policy: Policy
) -> None:
    foreign = msgspec.structs.replace(tasks[0], env="elsewhere")
    with pytest.raises(UsageError, match="cannot be played in 'errand'"):
        collector(script(lambda key, turn: []), worlds, tiny_policy).collect([(foreign, 1)], 0)


def test_a_real_sampler_plays_the_office_the_same_way_twice(tiny_policy: Policy) -> None:
    with closing(make_env("office", tiers=(1,))) as office:
        tasks = office.tasks("train", 3)

    def collect(slots: int) -> list[Trajectory]:
        sampler = LocalSampler(tiny_policy, slots, 160)
        under_test = Collector(
            sampler, lambda: make_env("office", tiers=(1,)), tiny_policy.chat, RolloutSection(max_tokens_per_turn=20)
        )
        collection = under_test.collect([(task, 2) for task in tasks], 0)
        under_test.close()
        assert add_up(collection)
        return collection.trajectories

    first = collect(4)
    assert [trajectory.token_ids for trajectory in collect(4)] == [trajectory.token_ids for trajectory in first]
    assert {trajectory.stop for trajectory in first} == {StopReason.CONTEXT_OVERFLOW}


def test_environments_by_name() -> None:
    with closing(make_env("office", tier=1)) as office:
        assert office.tiers == (1,)
        assert office.score is not None
    with pytest.raises(UnknownNameError, match="Did you mean 'office'"):
        make_env("ofice")
    with pytest.raises(TaskError, match=r"has no 'Nowhere'\. Known: OfficeEnvironment"):
        make_env("ferrata.envs.office:Nowhere")
    with pytest.raises(TaskError, match="there is no module 'no'"):
        make_env("no.such.module:Office")
    with pytest.raises(TaskError, match="not a subclass"):
        make_env("ferrata.records:Task")
