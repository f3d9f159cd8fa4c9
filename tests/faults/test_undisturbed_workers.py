"""Environments in worker processes when nothing goes wrong: they play what this process plays, each draws its own
numbers, and none waits for another."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ferrata.envs.audit import AuditLog, verify
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import Task
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import EnvironmentSpec
from ferrata.sampling.local import LocalSampler
from ferrata.seeds import derive

from .lodges import LODGE, Saying, adds_up, drawing, essences, host_of

pytestmark = pytest.mark.usefixtures("lodge")


def test_workers_give_the_trajectories_of_this_process(collector: Any, tasks: list[Task], saying: Saying) -> None:
    here = collector(drawing(saying), workers=0).collect([(task, 4) for task in tasks], 7)
    under_test = collector(drawing(saying))
    there = under_test.collect([(task, 4) for task in tasks], 7)
    assert essences(there) == essences(here)
    assert adds_up(there)
    assert len({trajectory.stop for trajectory in there.trajectories}) == 2
    again = under_test.collect([(task, 4) for task in tasks], 7)
    assert essences(again) == essences(here), "a second collection in the same processes"


def test_fault_23_no_two_workers_draw_the_same(collector: Any, tasks: list[Task], saying: Saying) -> None:
    """The same seed gives duplicate rollouts across workers (fault 23)."""
    under_test = collector(lambda seed, turn: saying("draw" if turn == 0 else "leave"))
    drawn = [t.turns[1].observation for t in under_test.collect([(task, 8) for task in tasks], 1).trajectories]
    assert len(host_of(under_test).pids) == 2
    assert len(set(drawn)) == len(drawn) == 48


@pytest.mark.parametrize("workers", [0, 2])
def test_fault_23_members_of_a_group_are_no_copies_of_one_another(
    tiny_policy: Policy, tasks: list[Task], workers: int
) -> None:
    """Nor are those of other groups, nor of the next collection: what a real sampler draws."""
    sampler = LocalSampler(tiny_policy, 8, 160)
    budgets = RolloutSection(workers=workers, max_turns=1, max_tokens=160, max_tokens_per_turn=30, max_fault_share=0.0)
    with closing(Collector(sampler, LODGE, tiny_policy.chat, budgets)) as under_test:
        said = [
            tuple(trajectory.turns[0].token_ids)
            for update in (1, 2)
            for trajectory in under_test.collect([(tasks[0], 8), (tasks[0], 8)], 0, ("sampling", update)).trajectories
        ]
    assert len(said) == 32
    long = [ids for ids in said if len(ids) > 5]
    assert len(long) > 16
    assert len(set(long)) == len(long), "two rollouts are the same"


def test_fault_6_a_slow_environment_holds_up_nobody(
    collector: Any, tasks: list[Task], saying: Saying, tmp_path: Path
) -> None:
    """All episodes wait for the slowest in every round (fault 6): here it waits until all others are over."""
    gate, slow = tmp_path / "gate", derive(0, "sampling", 0, 0)

    def decide(seed: int, turn: int) -> list[int]:
        waits = seed == slow and turn == 0
        return saying("fail", how=f"wait {gate}") if waits else saying("leave" if turn == 5 else "draw")

    def open_gate(over: int, asked: int) -> None:
        if over == asked - 1:
            time.sleep(0.2)
            gate.touch()

    under_test = collector(decide, workers=1, step_seconds=30.0)
    collection = under_test.collect([(task, 2) for task in tasks], 0, progress=open_gate)
    assert (collection.stats.played, collection.stats.retried) == (12, 0)
    assert collection.stats.idle_seconds > 0


def test_naps_of_one_worker_overlap(collector: Any, tasks: list[Task], saying: Saying) -> None:
    under_test = collector(lambda seed, turn: saying("leave") if turn else saying("fail", how="nap"), workers=1)
    under_test.collect([(tasks[0], 1)], 0)
    collection = under_test.collect([(tasks[0], 16)], 0)
    assert collection.stats.environment_seconds >= 16 * 0.3
    assert collection.stats.seconds < 0.5 * collection.stats.environment_seconds


def test_every_worker_logs_what_it_did(collector: Any, tasks: list[Task], saying: Saying, tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit")
    under_test = collector(drawing(saying), EnvironmentSpec("lodge:Lodge", audit=audit))
    collection = under_test.collect([(task, 2) for task in tasks], 7)
    under_test.close()
    audit.close()
    report = verify(tmp_path / "audit")
    assert (report.ok, report.unfinished, report.lines) == (True, 0, collection.stats.turns)
    assert report.files == 3, "one of this process and one of each worker"


def test_other_weights_reach_the_workers(collector: Any, tasks: list[Task], saying: Saying) -> None:
    under_test = collector(lambda seed, turn: saying("leave"), workers=1)
    [before] = under_test.collect([(tasks[0], 1)], 0).trajectories
    under_test.remake(EnvironmentSpec("lodge:Lodge", rewards=RewardSection(success=9.0)))
    [after] = under_test.collect([(tasks[0], 1)], 0).trajectories
    assert after.reward - before.reward == pytest.approx(4.0)
    assert after.reward_version != before.reward_version
