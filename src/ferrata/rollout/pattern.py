"""One environment beside those of the workers, for what does not depend on an episode: the tools, the scorer.

Pattern    made, asked and closed in a thread of its own, so that code of others which hangs holds up nobody
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from ferrata.envs.base import Environment
from ferrata.envs.tools import Tool
from ferrata.errors import EnvironmentFault, FerrataError
from ferrata.records import StopReason, Task
from ferrata.rollout.hosts import Failed, MakeEnvironment, close_quietly, offered, one_more

MAKING_STEPS = 5.0
"""How long an environment may take to be made, in deadlines of a step."""

T = TypeVar("T")


class _Aside:
    """A thread that does one thing after the other. A thing that hangs is left behind with it; neither is heard of."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def do(self, work: Callable[[], T], seconds: float) -> T:
        """What `work` gives or raises. Raises TimeoutError when it takes longer."""
        outcome = _Outcome(work)
        self._work.put(outcome.settle)
        return outcome.wait(seconds)

    def end(self) -> None:
        """End the thread when everything before is done."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class _Outcome(Generic[T]):
    """What a piece of work gives, or raises among our own errors; anything else it has contained itself."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._settled: SimpleQueue[T | FerrataError] = SimpleQueue()

    def settle(self) -> None:
        try:
            self._settled.put(self._work())
        except FerrataError as error:
            self._settled.put(error)

    def wait(self, seconds: float) -> T:
        try:
            outcome = self._settled.get(timeout=seconds)
        except Empty:
            raise TimeoutError from None
        if isinstance(outcome, FerrataError):
            raise outcome
        return outcome


class Pattern:
    """Makes an environment and keeps it.

    Args:
        make_env: makes it.
        step_seconds: how long it may take to answer; to be made, `MAKING_STEPS` times as long.

    Raises:
        EnvironmentFault: it cannot be made, or not in time.
    """

    def __init__(self, make_env: MakeEnvironment, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._aside = _Aside()
        seconds = MAKING_STEPS * step_seconds
        try:
            self._env: Environment = self._aside.do(lambda: one_more(make_env), seconds)
        except TimeoutError:
            raise EnvironmentFault(
                f"An environment was not made within {seconds:g} seconds, {MAKING_STEPS:g} times "
                f"rollout.step_seconds = {step_seconds:g}."
            ) from None
        self.score = self._env.score

    def tools_for(self, task: Task) -> tuple[Tool, ...] | Failed:
        """The tools of a task; after a timeout the pattern answers nothing any more."""
        try:
            return self._aside.do(lambda: offered(self._env, task), self._step_seconds)
        except TimeoutError:
            return Failed(
                StopReason.TIMEOUT,
                f"The tools of a task of '{task.env}', family '{task.family}', took longer than "
                f"rollout.step_seconds = {self._step_seconds:g}.",
            )

    def close(self, seconds: float) -> None:
        """Close the environment, unless that takes longer."""
        try:
            self._aside.do(lambda: close_quietly(self._env), seconds)
        except TimeoutError:
            return
        self._aside.end()
