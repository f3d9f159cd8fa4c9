"""Seeded faults of tools: practice for a world in which things fail for a while.

    timeout     the call is lost; the next attempt may work
    missing     what is read is not there for one to three turns
    repeated    a call that was made before is answered by an error

Whether a call fails depends on the episode's seed, the task and the turn alone, so an episode replays exactly. A
fault strikes before the tool does anything: a mail that timed out was not sent.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ferrata.envs.tools import Effect, Tool
from ferrata.errors import UnknownNameError
from ferrata.recipe import FaultSection
from ferrata.seeds import stream

LONGEST_ABSENCE = 3
"""Turns for which something is missing at most."""


class FaultRates(msgspec.Struct, frozen=True):
    """Probability of each fault for one call: one number for every tool, or tool -> number with '*' for the rest."""

    timeout: float | dict[str, float] = 0.0
    """A call is lost."""
    missing: float | dict[str, float] = 0.0
    """What a reading tool looks for is not there for a while."""
    repeated: float | dict[str, float] = 0.0
    """A call that was made before fails."""

    @classmethod
    def of(cls, section: FaultSection) -> FaultRates | None:
        """The rates of a recipe; None when it has no faults."""
        rates = cls(section.timeout, section.missing, section.repeated)
        return rates if section.timeout or section.missing or section.repeated else None

    def refuse_unknown(self, tools: Iterable[str]) -> None:
        """Raise UnknownNameError for a rate of a tool that is not among `tools`: it would never strike."""
        known = list(tools)
        for fault in (self.timeout, self.missing, self.repeated):
            for name in fault if isinstance(fault, dict) else ():
                if name != "*" and name not in known:
                    raise UnknownNameError.of("tool in the rates of faults", name, known)


class ToolFault(msgspec.Struct, frozen=True):
    """One fault that strikes a call."""

    kind: str
    """'timeout', 'missing' or 'repeated'."""
    message: str
    """What the model reads."""


class FaultState(msgspec.Struct):
    """Rates of one episode, and what is failing in it: part of every snapshot."""

    rates: FaultRates
    missing: dict[str, int] = {}
    """Call -> the turn from which it works again."""
    excused: list[str] = []
    """Calls that a fault struck: making them again is no repetition."""
    struck: int = 0
    """Turns that faults have taken from the agent."""

    def copy(self) -> FaultState:
        """An independent copy."""
        return FaultState(self.rates, dict(self.missing), list(self.excused), self.struck)

    def excuse(self, call: str) -> bool:
        """True, once, for a call that a fault struck the last time."""
        if call not in self.excused:
            return False
        self.excused.remove(call)
        return True

    def draw(self, tool: Tool, call: str, *, repeated: bool, turn: int, seed: int, episode: str) -> ToolFault | None:
        """The fault that strikes this call, or None.

        Args:
            tool: the tool that is called.
            call: identifies tool and arguments.
            repeated: the same call worked before.
            turn: of the episode.
            seed: of the episode.
            episode: fingerprint of its task; with turn and seed it names the draw.
        """
        fault = self._strike(tool, call, repeated, turn, (seed, episode))
        if fault is not None:
            self.excused.append(call)
            self.struck += 1
        return fault

    def _strike(self, tool: Tool, call: str, repeated: bool, turn: int, path: tuple[int, str]) -> ToolFault | None:
        draws = stream(path[0], "faults", path[1], turn)
        lost, absent, again = (draws.random() for _ in range(3))
        if turn < self.missing.get(call, 0):
            return _missing(tool)
        if lost < _rate(self.rates.timeout, tool):
            return ToolFault("timeout", f"{tool.name} is temporarily unavailable, nothing was done; try again")
        if tool.effect is Effect.READ and absent < _rate(self.rates.missing, tool) and call not in self.missing:
            self.missing[call] = turn + draws.randint(1, LONGEST_ABSENCE)
            return _missing(tool)
        if repeated and again < _rate(self.rates.repeated, tool):
            return ToolFault("repeated", f"{tool.name} answered this call before and does not answer it again now")
        return None


def _missing(tool: Tool) -> ToolFault:
    return ToolFault("missing", f"{tool.name} cannot find it at the moment; try again in a few turns")


def _rate(rates: float | dict[str, float], tool: Tool) -> float:
    return rates.get(tool.name, rates.get("*", 0.0)) if isinstance(rates, dict) else rates
