"""Rounds of RL without a model: what is drawn, what is replaced, what the ladder hears, what is trained again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ferrata.errors import RolloutFault, TaskError
from ferrata.recipe import LadderSection, PoolSection, Recipe, RlSection
from ferrata.records import Group, StopReason, Task, Trajectory
from ferrata.rollout.collection import Collection, CollectionStats
from ferrata.training import rounds as rounds_module
from ferrata.training.climbing import Climb
from ferrata.training.material import Material
from ferrata.training.rounds import Round, Rounds

MakeTrajectory = Callable[..., Trajectory]


class Play:
    """A collector and a session in one: plays what `outcome(round, group, member)` says, notes what it was asked."""

    def __init__(self, make: MakeTrajectory, outcome: Callable[[int, int, int], bool], **sections: Any) -> None:
        self.make, self.outcome = make, outcome
        self.recipe = Recipe(name="play", **sections)
        self.collector = self.folder = self.view = self
        self.store = SimpleNamespace(add_note=self.add_note, notes=self.told)
        self.faults, self.version, self.published = None, 4, 0
        self.asked: list[tuple[Any, ...]] = []
        self.tiers: list[int] = []
        self.scored_for: list[int] = []
        self.said: list[str] = []
        self.left: list[str] = []
        self.unseen = [self.make(number, tier=1 + number % 3).task for number in range(60)]
        self.notes: list[tuple[int, str]] = []

    def collect(self, requests: list[tuple[Task, int]], seed: int, path: Any, **settings: Any) -> Collection:
        self.asked.append((*path, len(requests), settings["max_turns"]))
        groups = [
            Group(task, [self.episode(number, self.outcome(len(self.asked), number, i)) for i in range(n)])
            for number, (task, n) in enumerate(requests)
        ]
        settings["pulse"]()
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
        return SimpleNamespace(tiers=tiers, open_families=tuple({task.family for task in self.unseen}))

    def score_for(self, stage: str, update: int) -> None:
        self.scored_for.append(update)

    def publish(self) -> None:
        self.published += 1

    def leave_thread(self) -> None:
        self.left.append(threading.current_thread().name)

    def add_note(self, stage: str, step: int, kind: str, text: str) -> None:
        self.notes.append((step, text))

    def told(self, kind: str) -> list[Any]:
        return [SimpleNamespace(step=step, text=text) for step, text in self.notes]

    def message(self, text: str) -> None:
        self.said.append(text)


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
        assert play.left == ["MainThread", "round"], "no environment goes from one thread to another"
        assert rounds.take(2) is settled
        assert rounds.settle() is None
        rounds.restore(2, settled)
        assert play.scored_for == [2, 2], "a phase that began with this round has begun again"
        assert rounds.take(2) is settled
    assert len(play.asked) == 1


def test_a_round_survives_the_checkpoint(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, rl=rl())
    with Rounds(play, Climb(play)) as rounds:
        played = rounds.take(1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(played), type=Round) == played


def test_what_fails_ahead_is_told_when_the_round_is_needed(make_trajectory: MakeTrajectory) -> None:
    """Not before: until then, what is done can be saved."""
    play = Play(make_trajectory, lambda *_: True, rl=rl(staleness=1))

    def fail(*_: Any, **__: Any) -> Collection:
        raise RolloutFault("all of them failed")

    play.collect = fail
    with Rounds(play, Climb(play)) as rounds:
        rounds.begin(2)
        assert rounds.settle() is None
        with pytest.raises(RolloutFault, match="all of them failed"):
            rounds.take(2)


def test_a_round_that_nobody_awaits_is_given_up_at_the_next_pulse(make_trajectory: MakeTrajectory) -> None:
    play, begun, go_on = (
        Play(make_trajectory, lambda *_: True, rl=rl(staleness=1)),
        threading.Event(),
        threading.Event(),
    )

    def endless(*_: Any, pulse: Callable[[], None], **__: Any) -> Collection:
        begun.set()
        while True:
            go_on.wait(10)
            pulse()

    play.collect = endless
    with Rounds(play, Climb(play)) as rounds:
        rounds.begin(2)
        begun.wait(10)
        go_on.set()
    assert not any(thread.name.startswith("round") for thread in threading.enumerate())


def test_a_round_that_hangs_is_left_behind(make_trajectory: MakeTrajectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that never answers in this process cannot be cut; it keeps neither Ctrl-C nor the end of the process."""
    monkeypatch.setattr(rounds_module, "GIVING_UP_SECONDS", 0.05)
    play, release = Play(make_trajectory, lambda *_: True, rl=rl(staleness=1)), threading.Event()

    def hang(*_: Any, **__: Any) -> Collection:
        release.wait(60)
        raise RolloutFault("late")

    play.collect = hang
    with Rounds(play, Climb(play)) as rounds:
        rounds.begin(2)
    [left] = [thread for thread in threading.enumerate() if thread.name == "round"]
    assert left.daemon
    release.set()
    left.join(10)


def test_a_few_faults_among_replaced_groups_do_not_end_the_run(make_trajectory: MakeTrajectory) -> None:
    """One of two episodes is half of a collection, though next to nothing of the round."""
    play = Play(make_trajectory, lambda turn, group, i: i == 0 and group < 2, rl=rl(redraws=2))
    collect, play.last_stats = play.collect, CollectionStats(asked=2, dropped=Counter(env_error=1), seconds=4.0)

    def faulty(requests: Any, seed: int, path: Any, **settings: Any) -> Collection:
        if "redraw" in path:
            raise RolloutFault("half of them failed")
        return collect(requests, seed, path, **settings)

    play.collect = faulty
    with Rounds(play, Climb(play)) as rounds:
        played = rounds.take(1)
    assert len(played.groups) == 3
    assert played.replaced == []
    assert played.metrics["rollout/dropped"] == 1, "they are counted"
    assert played.metrics["time/collection"] == 5.0


# The ladder -------------------------------------------------------------------------------------------------------


def ladder(**settings: Any) -> dict[str, Any]:
    sections = {"env": {"tiers": (1, 2, 3)}, "rollout": {"max_turns": 100}}
    return {**sections, "ladder": LadderSection(enabled=True, evaluations=1, **settings)}


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


def test_groups_are_replaced_by_tasks_of_the_same_tiers(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, **ladder())
    climb = Climb(play)
    dull = [make_trajectory(tier=tier).task for tier in (3, 1, 3)]
    assert [task.tier for task in climb.redraw(dull, "rl", "tasks", 1, "redraw", 1)] == [3, 1, 3]


def test_the_schedule_opens_a_tier_for_the_round_itself(make_trajectory: MakeTrajectory) -> None:
    play = Play(
        make_trajectory, lambda *_: True, rl=RlSection(tasks_per_update=6, group_size=2), **ladder(schedule=(2, 90))
    )
    with Rounds(play, Climb(play)) as rounds:
        rungs = [rounds.take(update).metrics["ladder/rung"] for update in (1, 2, 3)]
    assert rungs == [0, 1, 1]
    assert play.tiers == [1] * 6 + [1, 1, 1, 2, 2, 2] * 2
    assert [step for step, _ in play.notes] == [2]


def test_what_the_ladder_said_of_a_round_that_was_begun_is_told_again(make_trajectory: MakeTrajectory) -> None:
    """The round of update 2 was begun before the checkpoint of update 1, and notes of later updates are dropped."""
    play = Play(make_trajectory, lambda *_: True, **ladder(schedule=(2, 90)))
    first = Climb(play)
    first.reach(2)
    told, play.notes[:] = list(play.notes), []
    Climb(play).load(first.state(), 1)
    assert play.notes == told
    play.notes.clear()
    Climb(play).load(first.state(), 2)
    assert play.notes == []


def test_it_is_judged_by_unseen_tasks_of_open_tiers_and_families(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, **ladder())
    climb = Climb(play)
    assert {task.tier for task in climb.unseen()} == {1}
    climb.judge(1, evaluation(t1=0.9))
    assert {task.tier for task in climb.unseen()} == {1, 2}
    play.pattern = lambda tiers, tools="": SimpleNamespace(tiers=tiers, open_families=())
    assert climb.unseen() == [], "none of its families can be done with these tools"


def test_a_round_under_an_older_cap_does_not_raise_the_new_one(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda *_: True, **ladder(turn_caps=(3, 9, 20)))
    climb, cut = Climb(play), make_trajectory(turns=3, success=False, stop=StopReason.MAX_TURNS)
    climb.hear([Group(cut.task, [cut, cut])], 3)
    climb.judge(1, evaluation(t1=0.0))
    climb.hear([Group(cut.task, [cut, cut])], 3)
    climb.judge(2, evaluation(t1=0.0))
    assert climb.turn_cap == 9, "nobody has played under 9 yet"


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
    second.load(msgspec.json.decode(msgspec.json.encode(first.state())), 1)
    assert (second.state(), second.tiers) == (first.state(), (1, 2))


# What is learnt from ----------------------------------------------------------------------------------------------


def test_older_rounds_have_their_share_and_are_marked(make_trajectory: MakeTrajectory) -> None:
    section = PoolSection(enabled=True, share=0.5, fresh_rounds=3, per_hash=99)
    play = Play(make_trajectory, lambda turn, group, i: i == 0, rl=rl(), pool=section)
    material, learner = Material(play), SimpleNamespace(scores=False, score=None, warming=False)
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
    material, learner = Material(play), SimpleNamespace(scores=False, score=None, warming=False)
    with Rounds(play, Climb(play)) as rounds:
        groups = rounds.take(1).groups
    for version, stale in ((4, False), (5, True)):
        play.version = version
        examples, _ = material.gather(1, groups, learner)
        assert {one.stale for one in examples} == {stale}


def test_the_pool_goes_on_where_it_was(make_trajectory: MakeTrajectory) -> None:
    section = PoolSection(enabled=True)
    play = Play(make_trajectory, lambda turn, group, i: i == 0, rl=rl(), pool=section)
    learner = SimpleNamespace(scores=False, score=None, warming=False)
    first, second = Material(play), Material(play)
    groups = play.collect([(make_trajectory().task, 2)], 0, ("x",), max_turns=0, pulse=dict).groups
    first.gather(1, groups, learner)
    second.load(msgspec.msgpack.decode(msgspec.msgpack.encode(first.state())))
    again = [material.gather(2, groups, learner) for material in (first, second)]
    assert again[0] == again[1]
    assert again[0][1]["pool/reused"] > 0


def test_a_demonstration_that_fails_leaves_the_pool_as_it_was(
    make_trajectory: MakeTrajectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update is made again by the resumed run, which would take its trajectories in twice."""
    play = Play(make_trajectory, lambda turn, group, i: i == 0, rl=rl(instructions=0.5), pool=PoolSection(enabled=True))
    play.demonstrated, play.policy = lambda: None, SimpleNamespace(chat=None, context=9)
    material, learner = Material(play), SimpleNamespace(scores=False, score=None, warming=False)
    groups = play.collect([(make_trajectory().task, 2)], 0, ("x",), max_turns=0, pulse=dict).groups

    def fail(*_: Any) -> None:
        raise TaskError("no script")

    monkeypatch.setattr("ferrata.training.material.demonstration", fail)
    with pytest.raises(TaskError):
        material.gather(1, groups, learner)
    assert material.state() == []


def test_advantages_from_before_the_value_head_has_learnt_stay_out_of_the_pool(make_trajectory: MakeTrajectory) -> None:
    play = Play(make_trajectory, lambda turn, group, i: i == 0, rl=rl(), pool=PoolSection(enabled=True))
    material = Material(play)
    groups = play.collect([(make_trajectory().task, 2)], 0, ("x",), max_turns=0, pulse=dict).groups
    for warming, size in ((True, 0), (False, 2)):
        examples, metrics = material.gather(1, groups, SimpleNamespace(scores=False, score=None, warming=warming))
        assert (len(examples), metrics["pool/size"]) == (2, size)
