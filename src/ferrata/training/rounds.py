"""The rounds of RL: draw tasks, play groups, replace groups that say nothing; one round ahead where the recipe asks.

    Rounds.take      the round of an update: played now, or what was begun before
    Rounds.begin     play the next round in a thread while the learner works
    Rounds.settle    wait for it and keep it, before anything else may use the sampler
    Rounds.restore   go on with the round that a checkpoint holds

A round that is played ahead is sampled by the weights that were published when it began; nothing of it depends on how
long it takes. A checkpoint waits for it and holds it, so a resumed run goes on with the very same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from types import TracebackType
from typing import Self

import msgspec

from ferrata.errors import RolloutFault
from ferrata.learning.preparation import has_spread
from ferrata.records import Group, Task
from ferrata.rollout.collection import Collection
from ferrata.training.climbing import Climb
from ferrata.training.measures import measure_groups, measure_work
from ferrata.training.session import Session

GIVING_UP_SECONDS = 10.0
"""How long a round that nobody wants any more may take to notice, for instance because a tool hangs."""


class Round(msgspec.Struct):
    """What one round of play brought."""

    groups: list[Group]
    """To learn from."""
    replaced: list[Group]
    """Played as well, but without spread, and replaced by others."""
    metrics: dict[str, float]
    """What all of its episodes say, what they cost, and where the ladder stood."""
    turn_cap: int
    """Under which it was played; 0 for none beyond the recipe's."""

    @property
    def played(self) -> list[Group]:
        """All groups."""
        return [*self.groups, *self.replaced]


class _GivenUpError(Exception):
    """Nobody waits for this round any more."""


class Rounds:
    """Plays the rounds of one run. A context manager: what is still being played in the end is given up.

    Args:
        session: the run.
        climb: says which tasks are drawn.
    """

    def __init__(self, session: Session, climb: Climb) -> None:
        self._session, self._climb = session, climb
        self._thread: Thread | None = None
        self._ahead: Future[Round] | None = None
        self._given_up = False

    def take(self, update: int) -> Round:
        """The round of an update. Raises what went wrong while it was played, also where it was played before."""
        ahead, self._ahead = self._ahead, None
        return ahead.result() if ahead else self._prepared(update)()

    def begin(self, update: int) -> None:
        """Begin the round of an update with the policy as it is now."""
        assert self._ahead is None, "one round ahead is enough"
        self._session.publish()
        play = self._prepared(update)
        self._session.leave_thread()
        self._ahead = Future()
        self._thread = Thread(target=self._fulfil, args=(self._ahead, play), name="round", daemon=True)
        self._thread.start()

    def settle(self) -> Round | None:
        """Wait until nothing is being played. Returns the round that was played ahead; `take` gives it again.

        One that failed is None here, so that everything else can be saved; `take` raises why.
        """
        if self._ahead is None:
            return None
        wait([self._ahead])
        return None if self._ahead.exception() else self._ahead.result()

    def restore(self, update: int, ahead: Round | None) -> None:
        """Go on with the round of an update that a checkpoint holds."""
        if ahead is not None:
            self._session.score_for("rl", update)
            self._ahead = Future()
            self._ahead.set_result(ahead)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._given_up = True
        if self._thread is not None:
            self._thread.join(GIVING_UP_SECONDS)

    def _prepared(self, update: int) -> Callable[[], Round]:
        """Everything that this thread must do for a round, and the rest as a call."""
        self._session.score_for("rl", update)
        self._climb.reach(update)
        tasks = self._climb.draw(self._session.recipe.rl.tasks_per_update, "rl", "tasks", update)
        cap, stands = self._climb.turn_cap, self._climb.metrics()
        return lambda: self._play(update, tasks, cap, stands)

    def _play(self, update: int, tasks: Sequence[Task], cap: int, stands: dict[str, float]) -> Round:
        """Play groups of these tasks, then as many fresh ones as had no spread, as often as the recipe allows."""
        section = self._session.recipe.rl
        collection, replaced = self._collect(tasks, cap, "rl", "sampling", update), list[Group]()
        groups, stats = collection.groups, collection.stats
        for attempt in range(1, section.redraws + 1):
            dull = [index for index, group in enumerate(groups) if not has_spread(group, section)]
            if not dull:
                break
            fresh = self._climb.redraw([groups[index].task for index in dull], "rl", "tasks", update, "redraw", attempt)
            try:
                more = self._collect(fresh, cap, "rl", "sampling", update, "redraw", attempt)
            except RolloutFault:
                # Of so few episodes a handful is too many. The round as it was played is good enough to learn from.
                stats.add(self._session.collector.last_stats)
                break
            stats.add(more.stats)
            for index, group in zip(dull, more.groups, strict=True):
                replaced.append(groups[index])
                groups[index] = group
        metrics = {**measure_groups([*groups, *replaced]), **measure_work(stats), **stands}
        if section.redraws:
            metrics["groups/replaced"] = float(len(replaced))
        return Round(groups, replaced, metrics, cap)

    def _collect(self, tasks: Sequence[Task], cap: int, *path: str | int) -> Collection:
        session = self._session
        requests = [(task, session.recipe.rl.group_size) for task in tasks]
        return session.collector.collect(
            requests, session.recipe.seed, path, faults=session.faults, max_turns=cap, pulse=self._go_on
        )

    def _go_on(self) -> None:
        """See whether anybody still wants the round."""
        if self._given_up:
            raise _GivenUpError

    def _fulfil(self, promise: Future[Round], play: Callable[[], Round]) -> None:
        """In a thread: play, and hand over what came of it; whatever went wrong is for the thread that asks."""
        try:
            try:
                played = play()
            finally:
                self._session.leave_thread()
        except BaseException as error:
            promise.set_exception(error)
        else:
            promise.set_result(played)
