"""A run on its ladder: the rung says which tasks are drawn, evaluations say when the rung changes.

    Climb.reach         a round is about to begin: is another tier due?
    Climb.draw          training tasks of the open tiers
    Climb.redraw        others in their place, of the same tiers
    Climb.hear          a round was played: how many episodes did the turn cap end?
    Climb.unseen        the tasks by which it is judged now
    Climb.judge         an evaluation was made: where does the ladder stand now?

`tasks.ladder` decides; this module asks it at the right moments, and tells the store and the person what it said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ferrata.evaluation.results import EvaluationResult
from ferrata.records import Group, StopReason, Task
from ferrata.tasks.ladder import Ladder, Move
from ferrata.training.rungs import judged_by
from ferrata.training.session import Session

NOTE = "ladder"
"""Kind of the notes that tell the story."""


class Climb:
    """The ladder of one run; without a ladder, all tiers from the start."""

    def __init__(self, session: Session) -> None:
        self._session, self._section = session, session.recipe.ladder
        self.ladder = Ladder(self._section, session.recipe.env.tiers)
        self._played = self._cut = 0
        """Since the last evaluation: training episodes, and those that the turn cap ended."""

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

    def redraw(self, tasks: Sequence[Task], *path: str | int) -> list[Task]:
        """As many training tasks, in their order of the same tiers where there is a ladder."""
        if not self.enabled:
            return self._session.draw_tasks(len(tasks), *path)
        fresh: dict[int, Iterator[Task]] = {}
        for tier, count in sorted(Counter(task.tier for task in tasks).items()):
            env = self._session.pattern((tier,), self.ladder.tools)
            fresh[tier] = iter(self._session.draw_tasks(count, *path, tier, env=env))
        return [next(fresh[task.tier]) for task in tasks]

    def hear(self, groups: Sequence[Group], cap: int) -> None:
        """Count the episodes of a round that was played under a turn cap. Under an older one they say nothing now."""
        if cap != self.turn_cap:
            return
        episodes = [trajectory for group in groups for trajectory in group.trajectories]
        self._played += len(episodes)
        self._cut += sum(
            trajectory.stop is StopReason.MAX_TURNS and len(trajectory.turns) == cap < trajectory.task.max_turns
            for trajectory in episodes
        )

    def reach(self, update: int) -> None:
        """Open the tiers that the schedule has for this update, and tell it."""
        self._tell(update, self.ladder.reach(update))

    def unseen(self) -> list[Task]:
        """Unseen tasks of the open tiers, of families that can be trained on this rung: a small evaluation."""
        session = self._session
        if not self.enabled:
            return session.unseen[: session.recipe.evaluation.tasks_small]
        return judged_by(session.recipe, session.unseen, session.pattern, self.tiers, self.ladder.tools)

    def judge(self, update: int, result: EvaluationResult) -> None:
        """Hand an evaluation to the ladder, and tell what changed."""
        success = {tier: rate.share for tier, rate in result.by_tier.items()}
        self._tell(update, self.ladder.judge(update, success, self._cut / max(1, self._played)))
        self._played = self._cut = 0

    def metrics(self) -> dict[str, float]:
        """Where the ladder stands; empty without one."""
        if not self.enabled:
            return {}
        return {"ladder/rung": float(self.ladder.rung), "ladder/turn_cap": float(self.turn_cap)}

    def state(self) -> dict[str, Any]:
        """Everything, JSON-ready."""
        return {"ladder": self.ladder.state(), "played": self._played, "cut": self._cut}

    def load(self, state: dict[str, Any], step: int) -> None:
        """Stand again where `state` was taken, after update `step`. What it says of later updates is told again."""
        self.ladder.load(state["ladder"])
        self._played, self._cut = state["played"], state["cut"]
        for move in self.ladder.moves:
            if move.update > step:
                self._tell(move.update, [move])

    def _tell(self, update: int, moves: Sequence[Move]) -> None:
        """Note what changed, and say it."""
        for move in moves:
            tiers = ", ".join(map(str, self.tiers))
            text = f"{move.kind.capitalize()}: {move.why} Tiers now: {tiers}; turn cap {move.turn_cap}."
            # An evaluation that a resumed run makes again says the same again.
            if all((note.step, note.text) != (update, text) for note in self._session.folder.store.notes(NOTE)):
                self._session.folder.store.add_note("rl", update, NOTE, text)
                self._session.view.message(f"Ladder, update {update}: {text}")
