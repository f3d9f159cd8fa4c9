"""The replay pool, whatever is added: capacity, freshness, the extra round, a few per hash, counts that add up."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from ferrata.records import Action, Event, EventKind, StopReason, Task, Trajectory, Turn
from ferrata.replay.pool import ReplayPool, action_hash, deserves_a_round_more


def episode(task: int, actions: list[int], stop: StopReason, reward: float | None, reached: int = 0) -> Trajectory:
    turns = [
        Turn(
            "", "", [1], [-1.0], Action("do", {"what": action}),
            (Event(EventKind.SUBGOAL, f"s{at}"),) if at < reached else (), {}, "",
        )
        for at, action in enumerate(actions)
    ]  # fmt: skip
    job = Task("t", "f", 1, "train", f"task {task}", {}, ("s0", "s1", "end"), 5)
    known = reward is not None and not stop.faulty
    success = stop is StopReason.COMPLETED if known else None
    return Trajectory(job, turns, [0, 1], [False, True], [0.0, -1.0], stop, success, reward)


EPISODES = some.builds(
    episode,
    some.integers(0, 2),
    some.lists(some.integers(0, 1), min_size=1, max_size=5),
    some.sampled_from(StopReason),
    some.none() | some.floats(-1, 1),
    some.integers(0, 3),
)
ROUNDS = some.lists(some.lists(EPISODES, max_size=12), min_size=1, max_size=7)


@given(ROUNDS, some.integers(1, 20), some.integers(1, 4), some.integers(1, 3))
def test_the_pool_keeps_its_promises(
    rounds: list[list[Trajectory]], capacity: int, fresh_rounds: int, per_hash: int
) -> None:
    pool = ReplayPool(capacity, fresh_rounds, per_hash)
    before = 0
    for number, played in enumerate(rounds, 1):
        admission = pool.add(number, [(trajectory, (0.5,) * len(trajectory.turns)) for trajectory in played])
        assert admission.offered == len(played) == admission.admitted + sum(admission.refused.values())
        assert len(pool) == before + admission.admitted - sum(admission.removed.values())
        assert len(pool) <= capacity
        assert max(Counter(entry.hash for entry in pool.entries).values(), default=0) <= per_hash
        for entry in pool.entries:
            longer = deserves_a_round_more(entry.trajectory, 0.75)
            assert number - entry.round < fresh_rounds + longer
            assert entry.trajectory.reward is not None
        assert [entry.round for entry in pool.entries] == sorted(entry.round for entry in pool.entries)
        before = len(pool)


@given(ROUNDS)
def test_a_pool_that_was_saved_goes_on_as_the_one_that_was_not(rounds: list[list[Trajectory]]) -> None:
    whole, resumed = ReplayPool(20), ReplayPool(20)
    for number, played in enumerate(rounds, 1):
        pairs = [(trajectory, (0.5,) * len(trajectory.turns)) for trajectory in played]
        saved = msgspec.json.decode(msgspec.json.encode(resumed.state()))
        resumed = ReplayPool(20)
        resumed.load(saved)
        assert whole.add(number, pairs).metrics() == resumed.add(number, pairs).metrics()
        assert whole.entries == resumed.entries


def test_detours_do_not_make_another_way_of_doing_it() -> None:
    direct = episode(0, [0, 1], StopReason.COMPLETED, 1.0, reached=2)
    detour = msgspec.structs.replace(direct, turns=[*direct.turns, *episode(0, [1], StopReason.COMPLETED, 1.0).turns])
    assert action_hash(direct) == action_hash(detour)
    assert action_hash(direct) != action_hash(episode(1, [0, 1], StopReason.COMPLETED, 1.0, reached=2))
    assert action_hash(direct) != action_hash(episode(0, [1, 0], StopReason.COMPLETED, 1.0, reached=2))


def test_what_stays_a_round_longer() -> None:
    cut = episode(0, [0, 1, 1], StopReason.MAX_TURNS, -0.1, reached=2)
    assert deserves_a_round_more(cut, 1.0)
    assert not deserves_a_round_more(cut, 0.5), "three turns of five are too many"
    assert not deserves_a_round_more(episode(0, [0, 1], StopReason.MAX_TURNS, -0.1, reached=1), 1.0)
    assert not deserves_a_round_more(episode(0, [0, 1], StopReason.COMPLETED, 1.0, reached=2), 1.0)
    pool = ReplayPool(fresh_rounds=1)
    pool.add(1, [(cut, (0.0,) * 3), (episode(0, [0], StopReason.COMPLETED, 1.0), (0.0,))])
    pool.add(2, [])
    assert [entry.trajectory for entry in pool.entries] == [cut]
    pool.add(3, [])
    assert not pool.entries


def test_when_the_weights_of_rewards_change_older_trajectories_go() -> None:
    """Their advantages are those of the old weights."""
    pool = ReplayPool()
    first = msgspec.structs.replace(episode(0, [0], StopReason.COMPLETED, 1.0), reward_version="a")
    second = msgspec.structs.replace(episode(1, [0], StopReason.COMPLETED, 1.0), reward_version="b")
    pool.add(1, [(first, (0.5,))])
    assert pool.add(2, []).removed["rescored"] == 0, "a round without a usable episode says nothing"
    admission = pool.add(3, [(second, (0.5,))])
    assert admission.removed["rescored"] == 1
    assert [entry.trajectory.reward_version for entry in pool.entries] == ["b"]
