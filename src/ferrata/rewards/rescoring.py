"""Scoring a stored trajectory again, from its events alone: no model, no environment."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ferrata.records import Event, EventKind, Trajectory, Turn
from ferrata.rewards.spec import RewardSpec


def rescore(trajectory: Trajectory, spec: RewardSpec) -> Trajectory:
    """The trajectory as `spec` scores it. Pure: the one that was given is left as it is.

    A subgoal pays the first time it stands in the trajectory, whatever was rolled back in between. What nobody could
    judge stays unscored: `reward` is None where `success` is None or the episode says nothing about the agent.
    """
    paid: set[str] = set()
    turns = [_rescored(turn, spec, paid) for turn in trajectory.turns]
    known = trajectory.success is not None and not trajectory.stop.faulty
    reward = sum(turn.reward for turn in turns) if known else None
    # The verdict is kept as it was given, and so is the judge's own part of the version.
    _, plus, judge = trajectory.reward_version.partition("+")
    version = f"{spec.version}{plus}{judge}"
    return msgspec.structs.replace(trajectory, turns=turns, reward=reward, reward_version=version)


def _rescored(turn: Turn, spec: RewardSpec, paid: set[str]) -> Turn:
    return msgspec.structs.replace(turn, components=spec(_first_times(turn.events, paid)))


def _first_times(events: Sequence[Event], paid: set[str]) -> list[Event]:
    """The events without the subgoals that were paid for; notes the new ones in `paid`."""
    kept = []
    for event in events:
        if event.kind is EventKind.SUBGOAL:
            if event.name in paid:
                continue
            paid.add(event.name)
        kept.append(event)
    return kept
