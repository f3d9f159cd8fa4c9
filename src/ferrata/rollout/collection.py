"""What a collection of episodes gives, and what it cost.

CollectionStats    counts and times
Collection         the trajectories, in groups
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from ferrata.records import Group, Trajectory


@dataclass
class CollectionStats:
    """What one collection did. `asked == played + sum(dropped.values())`."""

    asked: int = 0
    """Episodes asked for."""
    played: int = 0
    """Episodes that say something about the agent."""
    dropped: Counter[str] = field(default_factory=Counter)
    """The others, by stop reason; their trajectories have `success` None and `reward` None. What an interruption or a
    failure of the collection left unfinished counts as 'cancelled'."""
    retried: int = 0
    """Episodes that were begun again after a failure; they are counted once above."""
    turns: int = 0
    """Turns that were sampled, those that a budget cut and those of episodes that were played again included; so are
    the tokens below."""
    tokens_sampled: int = 0
    tokens_read: int = 0
    """Tokens of openings and observations."""
    sampling_seconds: float = 0.0
    """Wall time inside the sampler."""
    prefill_seconds: float = 0.0
    """Share of it for reading openings and observations (prefill)."""
    decode_seconds: float = 0.0
    """Share of it for sampling tokens (decode)."""
    environment_seconds: float = 0.0
    """Wall time inside environments, added up: with workers, many work at the same time."""
    idle_seconds: float = 0.0
    """Wall time in which nothing could be sampled, because every episode waited for its environment in a worker."""
    overdue: int = 0
    """Answers that took longer than `rollout.step_seconds` and came all the same: in this process nothing cuts them."""
    seconds: float = 0.0
    """Wall time of the whole collection."""

    def add(self, other: CollectionStats) -> None:
        """Count another collection in."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass
class Collection:
    """Groups in the order they were asked for, and what they cost."""

    groups: list[Group]
    stats: CollectionStats

    @property
    def trajectories(self) -> list[Trajectory]:
        """All trajectories, group after group."""
        return [trajectory for group in self.groups for trajectory in group.trajectories]


Progress = Callable[[int, int], None]
"""Told (episodes over, episodes asked for)."""
