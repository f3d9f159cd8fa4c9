"""The ladder: from easy tasks to hard ones, by measured success.

    Ladder.shares          which tiers the next training tasks come from
    Ladder.turn_cap        how many turns an episode may have now
    Ladder.tools           which tools the tasks may need now
    Ladder.reach           an update is about to begin -> what the schedule changes
    Ladder.judge           an evaluation -> what changed, if anything
    Ladder.state, load     for the checkpoint

A rung adds a tier to the mix. The agent climbs when its success on the newest tier was over the gate in some
evaluations running, and goes back down when its success on the tiers below has collapsed since it climbed. The turn
cap rises by itself, when many episodes are cut by it. Nothing here is drawn at random: the same evaluations give the
same ladder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ferrata.recipe import LadderSection


class Move(msgspec.Struct, frozen=True):
    """One change of the ladder, and why."""

    update: int
    """After which RL update."""
    kind: str
    """'promoted', 'fell back' or 'turn cap'."""
    rung: int
    """Where the ladder stands then, from 0."""
    turn_cap: int
    why: str
    """One sentence with the numbers."""


class _State(msgspec.Struct):
    """Everything that changes."""

    rung: int = 0
    cap: int = 0
    """Which of the turn caps holds."""
    over: int = 0
    """Evaluations running in which the newest tier was over the gate."""
    under: int = 0
    """Evaluations running in which a tier below had collapsed."""
    best: dict[str, float] = {}
    """Success of each tier when another one was added above it; the highest, where that was more than once."""
    moves: list[Move] = []


def _running(evaluations: int) -> str:
    """'the last evaluation', or '2 evaluations running'."""
    return "the last evaluation" if evaluations == 1 else f"{evaluations} evaluations running"


class Ladder:
    """Where a run stands on its way from tier to tier.

    Args:
        section: the recipe's `ladder`.
        tiers: all tiers of the recipe, easiest first.
    """

    def __init__(self, section: LadderSection, tiers: tuple[int, ...]) -> None:
        self._section, self._tiers = section, tuple(sorted(tiers))
        self._state = _State() if section.enabled else _State(rung=len(tiers) - 1, cap=len(section.turn_caps) - 1)

    @property
    def rung(self) -> int:
        """How many tiers have been added to the first."""
        return self._state.rung

    @property
    def turn_cap(self) -> int:
        """Most turns of an episode now; a task's own cap applies as well. 0 leaves it to the rollout."""
        return self._section.turn_caps[self._state.cap] if self._section.enabled else 0

    @property
    def tools(self) -> str:
        """The tool set that tasks may need now; empty for no limit."""
        tools = self._section.tools
        return tools[min(self._state.rung, len(tools) - 1)] if self._section.enabled and tools else ""

    @property
    def moves(self) -> tuple[Move, ...]:
        """The whole story so far."""
        return tuple(self._state.moves)

    def shares(self, rung: int | None = None) -> dict[int, float]:
        """Tier -> share of the next training tasks: the newest tier has its share, the others divide the rest.

        Args:
            rung: of this rung instead of where the ladder stands.
        """
        open_tiers = self._tiers[: (self._state.rung if rung is None else rung) + 1]
        if not self._section.enabled or len(open_tiers) == 1:
            return {tier: 1.0 / len(open_tiers) for tier in open_tiers}
        *older, newest = open_tiers
        rest = (1.0 - self._section.newest) / len(older)
        return {**dict.fromkeys(older, rest), newest: self._section.newest}

    def counts(self, tasks: int, rung: int | None = None) -> dict[int, int]:
        """Tier -> how many of the next tasks; they sum to `tasks`, the largest remainders first, newer tiers first."""
        shares = self.shares(rung)
        counts = {tier: int(share * tasks) for tier, share in shares.items()}
        order = sorted(shares, key=lambda tier: (counts[tier] - shares[tier] * tasks, -tier))
        for tier in order[: tasks - sum(counts.values())]:
            counts[tier] += 1
        return counts

    def reach(self, update: int) -> list[Move]:
        """The schedule's next rung, where it is due at this update; then also those after it, one update each."""
        section, rung = self._section, self._state.rung
        if not section.enabled or rung + 1 >= len(self._tiers) or rung >= len(section.schedule):
            return []
        due = section.schedule[rung]
        if update < due:
            return []
        moves = [self._to(rung + 1, update, "promoted", f"the schedule says so from update {due}")]
        self._state.moves += moves
        return moves

    def judge(self, update: int, success: Mapping[int, float], cut: float) -> list[Move]:
        """Take note of an evaluation.

        Args:
            update: after which RL update it was made.
            success: share of successes on unseen tasks, by tier.
            cut: share of training episodes since the last evaluation that the turn cap ended.

        Returns:
            What changed, in order; empty when nothing did, or when the ladder is not enabled.
        """
        if not self._section.enabled:
            return []
        moves = [] if self._section.schedule else self._climb_or_fall(update, success)
        moves += self._raise_cap(update, cut)
        self._state.moves += moves
        return moves

    def state(self) -> dict[str, Any]:
        """Everything, JSON-ready."""
        content: dict[str, Any] = msgspec.to_builtins(self._state)
        return content

    def load(self, state: Mapping[str, Any]) -> None:
        """Stand again where `state` was taken."""
        self._state = msgspec.convert(state, _State)

    def _climb_or_fall(self, update: int, success: Mapping[int, float]) -> list[Move]:
        section, state = self._section, self._state
        newest = self._tiers[state.rung]
        state.over = state.over + 1 if success.get(newest, 0.0) > section.gate else 0
        sunk = self._sunk(success, self._tiers[: state.rung])
        state.under = state.under + 1 if sunk else 0
        if sunk and state.under >= section.evaluations:
            return [self._to(state.rung - 1, update, "fell back", f"{sunk}; the mix returns to what worked")]
        if state.over < section.evaluations or state.rung + 1 == len(self._tiers):
            return []
        if self._sunk(success, self._tiers[: state.rung + 1]):
            return []
        why = f"success on tier {newest} was over {section.gate:.0%} in {_running(state.over)}"
        for tier in self._tiers[: state.rung + 1]:
            if tier in success:
                state.best[str(tier)] = max(success[tier], state.best.get(str(tier), 0.0))
        return [self._to(state.rung + 1, update, "promoted", why)]

    def _sunk(self, success: Mapping[int, float], tiers: tuple[int, ...]) -> str:
        """Which of these tiers has collapsed, in words; empty when none has."""
        for tier in tiers:
            best = self._state.best.get(str(tier), 0.0)
            if success.get(tier, best) < self._section.collapse * best:
                return f"success on tier {tier} fell from {best:.0%} to {success[tier]:.0%}"
        return ""

    def _to(self, rung: int, update: int, kind: str, why: str) -> Move:
        state = self._state
        state.rung, state.over, state.under = rung, 0, 0
        return Move(update, kind, rung, self.turn_cap, why[0].upper() + why[1:] + ".")

    def _raise_cap(self, update: int, cut: float) -> list[Move]:
        """Give episodes more turns when many end for want of them."""
        section, state = self._section, self._state
        if cut <= section.cut_share or state.cap + 1 >= len(section.turn_caps):
            return []
        before, state.cap = self.turn_cap, state.cap + 1
        why = f"The cap of {before} turns ended {cut:.0%} of the episodes, more than {section.cut_share:.0%}."
        return [Move(update, "turn cap", state.rung, self.turn_cap, why)]
