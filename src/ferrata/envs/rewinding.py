"""Taking the state of an episode, and going back to it: the half of Environment that looks back.

snapshot   the whole state, as a record that nothing changes later
restore    go to the state of a snapshot, here or in another instance
fork       an independent copy in the same state
rollback   take back the last turns
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from random import Random
from typing import Any, ClassVar, Self

import msgspec

from ferrata.envs.audit import AuditLog
from ferrata.envs.faults import FaultRates, FaultState
from ferrata.envs.snapshot import Snapshot, encode_world
from ferrata.errors import UsageError
from ferrata.records import Task


class Rewinding(ABC):
    """What an environment does with snapshots. Environment sets the attributes and writes the methods named here."""

    name: ClassVar[str]
    version: ClassVar[str]
    undo_turns: int = 0
    """How many of the last turns `rollback` can take back; each costs one `save_world` a step."""
    task: Task
    seed: int
    turn: int
    reached: list[str]
    faults: FaultRates | None
    audit: AuditLog | None
    _paid: set[str]
    _history: list[tuple[str, str]]
    _fingerprint: str
    _random: Random | None
    _faults: FaultState | None
    _past: deque[Snapshot]
    _over: bool
    _chosen: list[tuple[int, str]]
    _stage: tuple[str, ...]

    def snapshot(self) -> Snapshot:
        """The whole state of the episode, also after its end. Raises TaskError when the world cannot be saved."""
        if not self._fingerprint:
            raise UsageError(f"There is no episode of '{self.name}' yet: call reset(task) before snapshot().")
        return Snapshot(
            env=self.name,
            version=self.version,
            task=self.task,
            seed=self.seed,
            turn=self.turn,
            reached=tuple(self.reached),
            paid=tuple(sorted(self._paid)),
            history=tuple(self._history),
            over=self._over,
            world=encode_world(self.name, self.save_world()),
            random=self._random.getstate() if self._random else None,
            faults=self._faults.copy() if self._faults else None,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go to the state of a snapshot, taken here or in another instance: the same future as when it was taken.

        Raises UsageError for a snapshot of another environment or of another version of this one.
        """
        if (snapshot.env, snapshot.version) != (self.name, self.version):
            raise UsageError(
                f"A snapshot of '{snapshot.env}' version {snapshot.version} cannot be restored in '{self.name}' "
                f"version {self.version}."
            )
        self._past = deque(maxlen=self.undo_turns)
        self._go_back(snapshot)
        self._log("", "restored")

    def fork(self) -> Self:
        """An independent copy of this environment in the same state; close it as well."""
        copy = self.another()
        copy.faults, copy.audit, copy.undo_turns = self.faults, self.audit, self.undo_turns
        copy._chosen, copy._stage = list(self._chosen), self._stage
        try:
            copy.restore(self.snapshot())
        except BaseException:
            copy.close()
            raise
        return copy

    def rollback(self, turns: int = 1) -> None:
        """Take back the last `turns` turns with all that they wrote; the audit log says so.

        Raises UsageError when fewer are kept: `undo_turns` says how many.
        """
        if not 0 < turns <= len(self._past):
            raise UsageError(
                f"{turns} turns cannot be rolled back in '{self.name}': {len(self._past)} are kept "
                f"(undo_turns = {self.undo_turns})."
            )
        paid = self._paid
        self._go_back([self._past.pop() for _ in range(turns)][-1])
        self._paid = paid
        self._log("", f"rolled back:{turns}")

    def _go_back(self, snapshot: Snapshot) -> None:
        self._set_up(snapshot.task, snapshot.seed)
        self.turn, self.reached, self._history = snapshot.turn, list(snapshot.reached), list(snapshot.history)
        self._paid = set(snapshot.paid)
        self.load_world(msgspec.json.decode(snapshot.world))
        self._random = None
        if snapshot.random:
            self.random.setstate(snapshot.random)
        self._faults = snapshot.faults.copy() if snapshot.faults else None
        self._over = snapshot.over

    # What Environment writes ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def random(self) -> Random:
        """Random numbers of the episode."""

    @abstractmethod
    def save_world(self) -> Any:
        """The state of the world."""

    @abstractmethod
    def load_world(self, state: Any) -> None:
        """Bring it back."""

    @abstractmethod
    def another(self) -> Self:
        """A new instance of the same make."""

    @abstractmethod
    def close(self) -> None:
        """Release what the instance holds."""

    @abstractmethod
    def _set_up(self, task: Task, seed: int) -> None:
        """A fresh world for `task`."""

    @abstractmethod
    def _log(self, text: str, outcome: str) -> None:
        """Write to the audit log."""
