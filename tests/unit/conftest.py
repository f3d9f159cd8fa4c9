"""Hand-made trajectories for the tests of evaluation and viewer, and the two environments that ship."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.support import SupportEnvironment
from ferrata.records import Action, Event, EventKind, StopReason, Task, Trajectory, Turn
from ferrata.rewards import RewardSpec

MakeTrajectory = Callable[..., Trajectory]


def make_task(key: int = 0, family: str = "lookup", tier: int = 1, split: str = "eval") -> Task:
    return Task("office", family, tier, split, f"Find price {key}.", {"key": key}, ("found",), 12)


def make_turn(number: int, last: bool, success: bool, invalid: bool, text: str) -> Turn:
    events = [Event(EventKind.STEP)]
    components = {"efficiency": -0.01}
    if invalid:
        events.append(Event(EventKind.INVALID, "malformed_json"))
        components["invalid"] = -0.2
    if last:
        events.append(Event(EventKind.SUCCESS if success else EventKind.FAILURE))
        components["outcome"] = 5.0 if success else -1.0
    action = None if invalid else Action("read_file", {"path": "a.txt"})
    return Turn(f"seen {number}", text, [1, 2, 3], [-0.1] * 3, action, tuple(events), components, "state", 0.5, 0.001)


@pytest.fixture
def make_trajectory() -> MakeTrajectory:
    """One episode: `turns` turns, of which the first `invalid` are invalid; a verdict in the last."""

    def make(
        key: int = 0,
        success: bool | None = True,
        *,
        family: str = "lookup",
        tier: int = 1,
        split: str = "eval",
        turns: int = 3,
        invalid: int = 0,
        temperature: float = 0.0,
        stop: StopReason | None = None,
        text: str = 'Thinking. {"action": "read_file", "arguments": {"path": "a.txt"}}',
    ) -> Trajectory:
        played = [make_turn(i, i == turns - 1, bool(success), i < invalid, text) for i in range(turns)]
        length = 10 * turns
        if stop is None:
            stop = StopReason.COMPLETED if success else StopReason.SUBMITTED
        return Trajectory(
            make_task(key, family, tier, split),
            played,
            list(range(length)),
            [i % 2 == 0 for i in range(length)],
            [0.0] * length,
            stop,
            success,
            None if success is None else sum(turn.reward for turn in played),
            final_observation="the end",
            policy_version=4,
            seed=9,
            temperature=temperature,
        )

    return make


@pytest.fixture(scope="module")
def office() -> Iterator[OfficeEnvironment]:
    env = OfficeEnvironment(tiers=(1, 2, 3), score=RewardSpec())
    yield env
    env.close()


@pytest.fixture
def support() -> Iterator[SupportEnvironment]:
    env = SupportEnvironment((1, 2, 3), score=RewardSpec())
    yield env
    env.close()
