"""The replay pool: trajectories that may be trained again for a few rounds.

    ReplayPool.add(round, entries) -> Admission   what came in, what was kept out, what had to go; it adds up
    ReplayPool.entries                            what may be trained, oldest first
    action_hash(trajectory)                       equal for trajectories that did the same things in the same order

Successes and failures enter alike. A trajectory stays for the last `fresh_rounds` rounds; one that was cut before its
end but had reached its key subgoals stays one round longer. Of trajectories that did the same, the newest `per_hash`
stay. Nothing here is drawn at random, so the state of the pool follows from what was added.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ferrata.records import Event, EventKind, StopReason, Trajectory

GONE = ("expired", "rescored", "duplicate", "capacity")
"""Why a trajectory leaves the pool."""

_CUT = (StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW)

_MATTERING = (EventKind.SUBGOAL, EventKind.SUCCESS, EventKind.FAILURE, EventKind.FORBIDDEN)


class PoolEntry(msgspec.Struct, frozen=True):
    """One trajectory with what training needs to know about it."""

    trajectory: Trajectory
    advantages: tuple[float, ...]
    """Advantage of each turn, computed within its group when it was collected: a group is never split afterwards."""
    round: int
    """When it was collected."""
    last_round: int
    """The last round in which it may be trained."""
    hash: str
    """Of its actions, see `action_hash`."""


@dataclass
class Admission:
    """What one `add` did. `offered == admitted + sum(refused)`; `removed` counts those that had been in the pool."""

    offered: int = 0
    admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Kept out, by reason: 'unscored'."""
    removed: Counter[str] = field(default_factory=Counter)
    """Gone, by reason: 'expired', 'rescored', 'duplicate', 'capacity'."""
    extended: int = 0
    """Of the admitted, those that stay one round longer."""

    def metrics(self) -> dict[str, float]:
        """All counts, named `pool/...`."""
        counts = {"pool/offered": self.offered, "pool/admitted": self.admitted, "pool/extended": self.extended}
        counts |= {f"pool/refused/{reason}": self.refused[reason] for reason in ("unscored",)}
        counts |= {f"pool/removed/{reason}": self.removed[reason] for reason in GONE}
        return {name: float(count) for name, count in counts.items()}


class ReplayPool:
    """Trajectories of the last rounds.

    Args:
        capacity: most trajectories; the oldest go first.
        fresh_rounds: rounds in which a trajectory is trained, its own included, at least 1.
        per_hash: most trajectories with the same actions on the same task.
        sensible_turns: share of a task's turn cap under which a cut trajectory that reached its key subgoals stays one
            round longer.
    """

    def __init__(
        self, capacity: int = 1024, fresh_rounds: int = 3, per_hash: int = 3, sensible_turns: float = 0.75
    ) -> None:
        self._capacity, self._fresh, self._per_hash = capacity, fresh_rounds, per_hash
        self._sensible = sensible_turns
        self._entries: deque[PoolEntry] = deque()

    def copy(self) -> ReplayPool:
        """The same trajectories; what is added there is not added here."""
        other = copy.copy(self)
        other._entries = deque(self._entries)
        return other

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[PoolEntry, ...]:
        """What may be trained now, oldest first."""
        return tuple(self._entries)

    def add(self, round_number: int, played: Iterable[tuple[Trajectory, tuple[float, ...]]]) -> Admission:
        """Begin a round: let go what is too old or was scored by other weights, then take in these trajectories.

        Args:
            round_number: counts up.
            played: each with the advantage of each of its turns.
        """
        admission, played = Admission(), list(played)
        self._expire(round_number, admission)
        self._drop_rescored({trajectory.reward_version for trajectory, _ in played}, admission)
        for trajectory, advantages in played:
            admission.offered += 1
            if trajectory.reward is None or trajectory.stop.faulty:
                admission.refused["unscored"] += 1
                continue
            longer = deserves_a_round_more(trajectory, self._sensible)
            last = round_number + self._fresh - 1 + longer
            self._entries.append(PoolEntry(trajectory, advantages, round_number, last, action_hash(trajectory)))
            admission.admitted += 1
            admission.extended += longer
        self._drop_duplicates(admission)
        while len(self._entries) > self._capacity:
            self._entries.popleft()
            admission.removed["capacity"] += 1
        return admission

    def state(self) -> list[Any]:
        """Everything in the pool, JSON-ready, for a checkpoint."""
        content: list[Any] = msgspec.to_builtins(list(self._entries))
        return content

    def load(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Bring back what `state` gave."""
        self._entries = deque(msgspec.convert(list(state), list[PoolEntry]))

    def _drop_duplicates(self, admission: Admission) -> None:
        """Of trajectories that did the same, keep the newest."""
        seen: Counter[str] = Counter()
        kept: deque[PoolEntry] = deque()
        for entry in reversed(self._entries):
            seen[entry.hash] += 1
            if seen[entry.hash] <= self._per_hash:
                kept.appendleft(entry)
            else:
                admission.removed["duplicate"] += 1
        self._entries = kept

    def _drop_rescored(self, versions: set[str], admission: Admission) -> None:
        """When the weights of rewards have changed, advantages by the old ones are worth nothing."""
        kept = deque(entry for entry in self._entries if not versions or entry.trajectory.reward_version in versions)
        admission.removed["rescored"] += len(self._entries) - len(kept)
        self._entries = kept

    def _expire(self, round_number: int, admission: Admission) -> None:
        kept = deque(entry for entry in self._entries if entry.last_round >= round_number)
        admission.removed["expired"] += len(self._entries) - len(kept)
        self._entries = kept


def action_hash(trajectory: Trajectory) -> str:
    """Hash of the task and of what was done that mattered: its key actions in their canonical form, in order.

    A key action reached a subgoal or ended the episode; where there is none, all actions are key actions. So two
    trajectories that differ in detours alone are the same way of doing the task.
    """
    key = [turn.action for turn in trajectory.turns if turn.action and _matters(turn.events)]
    actions = key or [turn.action for turn in trajectory.turns if turn.action]
    content = [trajectory.task.fingerprint, str(trajectory.success), *(action.canonical for action in actions)]
    return hashlib.blake2b("\n".join(content).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def deserves_a_round_more(trajectory: Trajectory, sensible_turns: float) -> bool:
    """True for a trajectory that was cut, but had reached its key subgoals within a sensible length."""
    task = trajectory.task
    wanted = set(task.key_steps or task.subgoals[:-1])
    reached = {event.name for turn in trajectory.turns for event in turn.events if event.kind is EventKind.SUBGOAL}
    short = len(trajectory.turns) <= sensible_turns * task.max_turns
    return trajectory.stop in _CUT and bool(wanted) and wanted <= reached and short


def _matters(events: Iterable[Event]) -> bool:
    return any(event.kind in _MATTERING for event in events)
