"""Rounds of RL without a model: what is drawn, what is replaced, what the ladder hears, what is trained again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ferrata.errors import RolloutFault
from ferrata.recipe import LadderSection, PoolSection, Recipe, RlSection
from ferrata.records import Group, StopReason, Task, Trajectory
from ferrata.rollout.collection import Collection, CollectionStats
from ferrata.training.climbing import Climb
from ferrata.training.material import Material
from ferrata.training.rounds import Round, Rounds

MakeTrajectory = Callable[..., Trajectory]


class Play:
    """A collector and a session in one: plays what `outcome(round, group, member)` says, notes what it was asked."""

    def __init__(self, make: MakeTrajectory, outcome: Callable[[int, int, int], bool], **sections: Any) -> None:
        self.make, self.outcome = make, outcome
        self.recipe = Recipe(name="play", **sections)
        self.collector = self.folder = self.store = self.view = self
        self.faults, self.version, self.published = None, 4, 0
        self.asked: list[tuple[Any, ...]] = []
        self.tiers: list[int] = []
        self.notes: list[tuple[int, str]] = []

    def collect(self, requests: list[tuple[Task, int]], seed: int, path: Any, **settings: Any) -> Collection:
        self.asked.append((*path, len(requests), settings["max_turns"]))
        groups = [
            Group(task, [self.episode(number, self.outcome(len(self.asked), number, i)) for i in range(n)])
            for number, (task, n) in enumerate(requests)
        ]
        settings["progress"](1, 1)
        return Collection(groups, CollectionStats(asked=sum(n for _, n in requests), seconds=1.0))

    def episode(self, number: int, success: bool) -> Trajectory:
        """An opening of four tokens, and then three in each turn."""
        made = self.make(number, success, temperature=1.0)
        mask = [False] * 4 + [True] * 3 * len(made.turns)
        return msgspec.structs.replace(
            made, token_ids=list(range(len(mask))), loss_mask=mask, logprobs=[-0.1 * sampled for sampled in mask]
        )

    def draw_tasks(self, count: int, *path: Any, env: Any = None) -> list[Task]:
        tasks = [self.make(number, tier=env.tiers[0] if env else 1).task for number in range(count)]
        self.tiers += [task.tier for task in tasks]
        return tasks

    def pattern(self, tiers: tuple[int, ...], tools: str = "") -> Any:
        return SimpleNamespace(tiers=tiers)

    def score_for(self, stage: str, update: int) -> None:
        pass

    def publish(self) -> None:
        self.published += 1

    def add_note(self, stage: str, step: int, kind: str, text: str) -> None:
        self.notes.append((step, text))

    def message(self, text: str) -> None:
        pass


def rl(**settings: Any) -> RlSection:
    return RlSection(tasks_per_update=3, group_size=2, **settings)


def test_groups_without_spread_are_replaced_as_often_as_allowed(make_trajectory: MakeTrajectory) -> None:
    # Group 0 differs at once, group 1 at the first replacement, group 2 at none.
    play = Play(make_trajectory, lambda turn, group, i: i == 0 and (turn, group) in {(1, 0), (2, 0)}, rl=rl(redraws=2))
    with Rounds(play, Climb(play)) as rounds:
        played = rounds.take(7)
    assert [asked[1:-1] for asked in play.asked] == [
        ("sampling", 7, 3),
        ("sampling", 7, "redraw", 1, 2),
        ("sampling", 7, "redraw", 2, 1),
    ]
    assert len(played.groups) == 3
    assert len(played.replaced) == played.metrics["groups/replaced"] == 3
    assert [group.trajectories[0].success for group in played.groups] == [True, True, False]


def test_replaced_groups_count_in_what_is_measured(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda turn, group, i: turn == 2 and i == 0, rl=rl(redraws=1))
    with Rounds(play, Climb(play)) as rounds:
        played = rounds.take(1)
    assert played.metrics["rollout/success"] == pytest.approx(3 / 12), "leaving failures out would flatter the policy"
    assert played.metrics["time/collection"] == 2.0


def test_the_next_round_is_played_with_what_is_published_and_given_once(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, rl=rl(staleness=1))
    with Rounds(play, Climb(play)) as rounds:
        rounds.begin(2)
        settled = rounds.settle()
        assert play.published == 1
        assert rounds.take(2) is settled
        assert rounds.settle() is None
        rounds.restore(settled)
        assert rounds.take(2) is settled
    assert len(play.asked) == 1


def test_a_round_survives_the_checkpoint(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, rl=rl())
    with Rounds(play, Climb(play)) as rounds:
        played = rounds.take(1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(played), type=Round) == played


def test_what_fails_ahead_is_told_where_it_is_awaited(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, rl=rl(staleness=1))

    def fail(*_: Any, **__: Any) -> Collection:
        raise RolloutFault("all of them failed")

    play.collect = fail
    with Rounds(play, Climb(play)) as rounds:
        rounds.begin(2)
        with pytest.raises(RolloutFault, match="all of them failed"):
            rounds.settle()


def test_a_round_that_nobody_awaits_is_given_up_at_the_next_episode(make_trajectory: MakeTrajectory) -> None:
    play, begun, go_on = (
        Play(make_trajectory, lambda *_: True, rl=rl(staleness=1)),
        threading.Event(),
        threading.Event(),
    )

    def endless(*_: Any, progress: Callable[[int, int], None], **__: Any) -> Collection:
        begun.set()
        while True:
            go_on.wait(10)
            progress(1, 1)

    play.collect = endless
    with Rounds(play, Climb(play)) as rounds:
        rounds.begin(2)
        begun.wait(10)
        go_on.set()
    assert not any(thread.name.startswith("round") for thread in threading.enumerate())


# The ladder -------------------------------------------------------------------------------------------------------


def ladder(**settings: Any) -> dict[str, Any]:
    return {"env": {"tiers": (1, 2, 3)}, "ladder": LadderSection(enabled=True, evaluations=1, **settings)}


def evaluation(**success: float) -> Any:
    return SimpleNamespace(by_tier={int(tier[1:]): SimpleNamespace(share=share) for tier, share in success.items()})


def test_tasks_come_from_open_tiers_by_their_shares(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, **ladder(newest=0.5))
    climb = Climb(play)
    for expected in ({1: 8}, {1: 4, 2: 4}, {1: 2, 2: 2, 3: 4}):
        play.tiers.clear()
        climb.draw(8, "rl", "tasks", 1)
        assert {tier: play.tiers.count(tier) for tier in play.tiers} == expected
        assert climb.tiers == tuple(expected)
        climb.judge(1, evaluation(t1=0.9, t2=0.9))
    assert [text.split(":")[0] for _, text in play.notes] == ["Promoted", "Promoted"]


def test_only_the_ladders_own_cap_counts_as_a_cut(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, **ladder(turn_caps=(3, 9), cut_share=0.4))
    climb = Climb(play)
    cut = make_trajectory(turns=3, success=False, stop=StopReason.MAX_TURNS)
    own = msgspec.structs.replace(cut, task=msgspec.structs.replace(cut.task, max_turns=3))
    shorter = make_trajectory(turns=2, success=False, stop=StopReason.MAX_TURNS)
    others = [own, shorter, make_trajectory(turns=3)]
    climb.hear([Group(cut.task, [cut, *others])], 3)
    climb.judge(1, evaluation(t1=0.0))
    assert climb.turn_cap == 3, "one of four is less than 40 %"
    climb.hear([Group(cut.task, [cut, *others])], 3)
    climb.hear([Group(cut.task, [cut, cut])], 3)
    assert climb.state()["played"] == 6, "what an evaluation has judged is not counted again"
    climb.judge(2, evaluation(t1=0.0))
    assert climb.turn_cap == 9


def test_a_climb_goes_on_where_it_was(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, **ladder())
    first, second = Climb(play), Climb(play)
    first.judge(1, evaluation(t1=0.9))
    first.hear([Group(make_trajectory().task, [make_trajectory()])], 30)
    second.load(msgspec.json.decode(msgspec.json.encode(first.state())))
    assert (second.state(), second.tiers) == (first.state(), (1, 2))


# What is learnt from ----------------------------------------------------------------------------------------------


def test_older_rounds_have_their_share_and_are_marked(make_trajectory: MakeTrajectory) -> None:
    section = PoolSection(enabled=True, share=0.5, fresh_rounds=3, per_hash=99)
    play = Play(make_trajectory, lambda turn, group, i: i == 0, rl=rl(), pool=section)
    material, learner = Material(play), SimpleNamespace(scores=False, score=None)
    counts = []
    for update in range(1, 5):
        with Rounds(play, Climb(play)) as rounds:
            examples, metrics = material.gather(update, rounds.take(update).groups, learner)
        counts.append((len(examples), sum(one.stale for one in examples), metrics["pool/size"]))
        assert metrics["pool/reused"] == sum(one.stale for one in examples)
        assert all(one.turns for one in examples if not one.stale)
        assert not any(one.turns for one in examples if one.stale), "a value head learns nothing from old returns"
    assert counts == [(6, 0, 6), (12, 6, 12), (12, 6, 18), (12, 6, 18)]


def test_what_older_weights_played_is_marked_even_when_fresh(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda turn, group, i: i == 0, rl=rl())
    material, learner = Material(play), SimpleNamespace(scores=False, score=None)
    with Rounds(play, Climb(play)) as rounds:
        groups = rounds.take(1).groups
    for version, stale in ((4, False), (5, True)):
        play.version = version
        examples, _ = material.gather(1, groups, learner)
        assert {one.stale for one in examples} == {stale}


def test_the_pool_goes_on_where_it_was(make_trajectory: MakeTrajectory) -> None:
    section = PoolSection(enabled=True)
    play = Play(make_trajectory, lambda turn, group, i: i == 0, rl=rl(), pool=section)
    learner = SimpleNamespace(scores=False, score=None)
    first, second = Material(play), Material(play)
    groups = play.collect([(make_trajectory().task, 2)], 0, ("x",), max_turns=0, progress=max).groups
    first.gather(1, groups, learner)
    second.load(msgspec.msgpack.decode(msgspec.msgpack.encode(first.state())))
    again = [material.gather(2, groups, learner) for material in (first, second)]
    assert again[0] == again[1]
    assert again[0][1]["pool/reused"] > 0
