"""A run on its ladder: the rung says which tasks are drawn, evaluations say when the rung changes.

    Climb.draw          training tasks of the open tiers
    Climb.hear          a round was played: how many episodes did the turn cap end?
    Climb.judge         an evaluation was made: where does the ladder stand now?

`tasks.ladder` decides; this module asks it at the right moments, and tells the store and the person what it said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ferrata.errors import UsageError
from ferrata.evaluation.results import EvaluationResult
from ferrata.records import Group, StopReason, Task
from ferrata.tasks.ladder import Ladder
from ferrata.training.session import Session

NOTE = "ladder"
"""Kind of the notes that tell the story."""


class Climb:
    """The ladder of one run; without a ladder, all tiers from the start.

    Raises:
        UsageError: a rung of the recipe leaves no task to draw.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._section = session, session.recipe.ladder
        self.ladder = Ladder(self._section, session.recipe.env.tiers)
        self._played = self._cut = 0
        """Since the last evaluation: training episodes, and those that the turn cap ended."""
        if self._section.enabled:
            self._refuse_empty_rungs()

    @property
    def enabled(self) -> bool:
        """True when the recipe asks for a ladder."""
        return self._section.enabled

    @property
    def tiers(self) -> tuple[int, ...]:
        """The tiers that are open now."""
        return tuple(self.ladder.shares())

    @property
    def turn_cap(self) -> int:
        """Most turns of a training episode now; 0 leaves it to the rollout."""
        return self.ladder.turn_cap

    def draw(self, count: int, *path: str | int) -> list[Task]:
        """Training tasks of the stream named by `path`: from every open tier its share."""
        if not self.enabled:
            return self._session.draw_tasks(count, *path)
        tasks: list[Task] = []
        for tier, part in self.ladder.counts(count).items():
            env = self._session.pattern((tier,), self.ladder.tools)
            tasks += self._session.draw_tasks(part, *path, tier, env=env) if part else []
        return tasks

    def hear(self, groups: Sequence[Group], cap: int) -> None:
        """Count the episodes of a round that was played under a turn cap."""
        episodes = [trajectory for group in groups for trajectory in group.trajectories]
        self._played += len(episodes)
        self._cut += sum(
            trajectory.stop is StopReason.MAX_TURNS and len(trajectory.turns) == cap < trajectory.task.max_turns
            for trajectory in episodes
        )

    def judge(self, update: int, result: EvaluationResult) -> None:
        """Hand an evaluation to the ladder, and tell what changed."""
        success = {tier: rate.share for tier, rate in result.by_tier.items()}
        for move in self.ladder.judge(update, success, self._cut / max(1, self._played)):
            tiers = ", ".join(map(str, self.tiers))
            text = f"{move.kind.capitalize()}: {move.why} Tiers now: {tiers}; turn cap {move.turn_cap}."
            self._session.folder.store.add_note("rl", update, NOTE, text)
            self._session.view.message(f"Ladder, update {update}: {text}")
        self._played = self._cut = 0

    def metrics(self) -> dict[str, float]:
        """Where the ladder stands; empty without one."""
        if not self.enabled:
            return {}
        return {"ladder/rung": float(self.ladder.rung), "ladder/turn_cap": float(self.turn_cap)}

    def state(self) -> dict[str, Any]:
        """Everything, JSON-ready."""
        return {"ladder": self.ladder.state(), "played": self._played, "cut": self._cut}

    def load(self, state: dict[str, Any]) -> None:
        """Stand again where `state` was taken."""
        self.ladder.load(state["ladder"])
        self._played, self._cut = state["played"], state["cut"]

    def _refuse_empty_rungs(self) -> None:
        """Find out now, not after the climb, whether every rung has tasks."""
        tools = self._section.tools or ("",)
        for rung, newest in enumerate(sorted(self._session.recipe.env.tiers)):
            name = tools[min(rung, len(tools) - 1)]
            for tier in (tier for tier in self._session.recipe.env.tiers if tier <= newest):
                try:
                    self._session.pattern((tier,), name)
                except UsageError as error:
                    raise UsageError(f"Rung {rung + 1} of the ladder has no tasks of tier {tier}. {error}") from error
