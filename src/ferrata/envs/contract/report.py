"""What a check says: `Check` is one row, `Report` all of them, `Broken` how a check says no.

A fault is told in two sentences: what was seen, naming the class, family, tool or subgoal, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


class Broken(Exception):
    """A check found a fault in the environment."""

    def __init__(self, detail: str, advice: str) -> None:
        super().__init__(f"{detail} {advice}")
        self.detail = detail
        self.advice = advice


class NotChecked(Exception):
    """A check does not apply, or cannot be made here; the message says why."""


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    name: str
    ok: bool | None
    """None: it was not checked."""
    detail: str
    """What was seen: the first fault, or how much was checked."""
    advice: str = ""
    """What to do about the fault; empty without one."""


@dataclass(frozen=True)
class Report:
    """All checks of one environment."""

    environment: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True when no check found a fault."""
        return not self.broken

    @property
    def broken(self) -> tuple[Check, ...]:
        """The checks that found a fault."""
        return tuple(check for check in self.checks if check.ok is False)
