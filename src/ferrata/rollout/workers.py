"""Environments in worker processes: an `EnvironmentHost` for environments that are slow, or that may hang or crash.

    WorkerHost    spreads episodes over the workers, replaces those that are lost, and brings their episodes back

What can go wrong, and what follows:

    a step takes longer than it may    its worker says so; the episode ends as a timeout, the worker is replaced
    a worker dies                      replaced
    a worker falls silent              replaced
    no worker starts                   EnvironmentFault: there is nothing to go on with

A worker that is lost takes other episodes with it. They go on in another worker, where the turns so far are played
again from the same seed. That is exact by the environments' contract, each turn's state and answer are compared,
and it costs nothing as long as no worker is lost; a snapshot after every step would cost time and traffic always.
An episode that was being worked on when its worker died may be the cause: it is tried apart from other suspects, and
fails when workers go on dying of it.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Sequence
from itertools import count
from queue import Empty, Queue
from types import FunctionType
from typing import Any

from ferrata.envs.base import Scorer
from ferrata.envs.tools import Tool
from ferrata.errors import EnvironmentFault, FerrataError, UsageError, boundary, safe_text
from ferrata.records import StopReason, Task
from ferrata.rollout.hosts import (
    Answer,
    Begin,
    Begun,
    Failed,
    MakeEnvironment,
    Past,
    Request,
    Step,
    Stepped,
)
from ferrata.rollout.messages import MAX_BYTES, Overdue, Raised, Ready, Release, Report, pack
from ferrata.rollout.pattern import Pattern
from ferrata.rollout.playing import Playing, Trials
from ferrata.rollout.worker_handle import WorkerHandle

MOST_LOSSES = 2
"""How often a request is tried again after its worker died."""
MOST_FAILED_STARTS = 5
"""Workers in a row that may die before they are ready."""
CLOSING_SECONDS = 4.0
"""How long workers may take to close, all together."""
_LOOK_SECONDS = 0.1
"""Between two looks at the workers."""


class WorkerHost:
    """Runs environments in worker processes. Fulfils `hosts.EnvironmentHost`.

    Args:
        make_env: makes one environment; it must be picklable, as functions and classes of modules are.
        workers: how many processes.
        step_seconds: how long one step, or the beginning of an episode, may take.

    Raises:
        UsageError: `make_env` cannot be sent to another process.
    """

    def __init__(self, make_env: MakeEnvironment, workers: int, step_seconds: float) -> None:
        self._make_env, self._most, self._step_seconds = make_env, workers, step_seconds
        self._pickled = _pickled(make_env)
        self._pattern: Pattern | None = None
        self._score: Scorer | None = None
        self._made = False
        self._inbox: Queue[tuple[WorkerHandle, int, Report | None]] = Queue()
        self._workers: list[WorkerHandle] = []
        self._episodes: dict[int, Playing] = {}
        self._by_ticket: dict[int, Playing] = {}
        self._trials = Trials()
        self._answers: list[tuple[int, Answer]] = []
        self._tickets = count()
        self._failed_starts = 0
        self._looked = 0.0

    @property
    def score(self) -> Scorer | None:
        """The scorer of an environment in this process."""
        return self._score

    def tools_for(self, task: Task) -> tuple[Tool, ...] | Failed:
        """The tools that an environment in this process offers. Raises EnvironmentFault when none could ever be made.

        It is asked with a deadline; one that does not answer in time is left behind, and another takes its place.
        """
        try:
            self._pattern = self._pattern or Pattern(self._make_env, self._step_seconds)
        except FerrataError as error:
            if not self._made:
                raise
            return Failed(StopReason.ENV_ERROR, safe_text(error))
        self._made, self._score = True, self._pattern.score
        tools = self._pattern.tools_for(task)
        if isinstance(tools, Failed) and tools.stop is StopReason.TIMEOUT:
            self._pattern = None
        return tools

    @property
    def pids(self) -> list[int]:
        """The processes that are there now."""
        return [worker.pid for worker in self._workers]

    def ask(self, key: int, request: Request) -> None:
        """Hand a request to the worker of its episode; `Begin` goes to the one with the fewest."""
        if isinstance(request, Begin):
            # A worker that died since the last collection is found before an episode is given to it.
            self._read_inbox()
            self._episodes[key] = playing = Playing(key, request, request)
            self._place(playing)
            return
        playing = self._episodes[key]
        playing.pending = request
        if playing.failure is not None:
            self._fail(playing, playing.failure)
        elif playing.worker is not None:
            self._post(playing, request)

    def take(self, seconds: float) -> list[tuple[int, Answer]]:
        """The answers that are there; without any, wait for the first one, but no longer than this.

        Raises what a person got wrong, and EnvironmentFault when workers end before they are ready.
        """
        until = time.monotonic() + seconds
        while True:
            self._read_inbox()
            self._look_at_workers()
            left = until - time.monotonic()
            if self._answers or left <= 0:
                taken, self._answers = self._answers, []
                return taken
            try:
                self._receive(*self._inbox.get(timeout=min(left, _LOOK_SECONDS)))
            except Empty:
                continue

    def release(self, key: int, broken: bool) -> None:
        """The episode is over. A broken environment plays no other."""
        playing = self._episodes.pop(key, None)
        if playing is None:
            return
        self._trials.end(playing)
        if playing.worker is not None:
            playing.worker.send(pack(playing.ticket, Release(broken)))
            self._leave(playing)

    def leave_thread(self) -> None:
        """Nothing: environments live in processes of their own."""

    def close(self) -> None:
        """End all workers: those that do not close in time are killed. They are started afresh when needed."""
        workers, self._workers = self._workers, []
        until = time.monotonic() + CLOSING_SECONDS
        try:
            for worker in workers:
                worker.ask_to_close()
            for worker in workers:
                worker.finish(until - time.monotonic())
        finally:
            for worker in workers:
                worker.kill()
            self._episodes, self._by_ticket, self._answers = {}, {}, []
            self._trials, self._inbox = Trials(), Queue()
            if self._pattern is not None:
                self._pattern.close(max(0.0, until - time.monotonic()))
                self._pattern = None

    # Where an episode is played -------------------------------------------------------------------------------------

    def _place(self, playing: Playing) -> None:
        """Begin an episode in a worker; one that was accused waits for its trial."""
        workers = self._all_workers()
        if not playing.losses:
            self._send(playing, min(workers, key=lambda worker: worker.episodes))
        else:
            self._trials.add(playing)
            self._begin_trials()

    def _begin_trials(self) -> None:
        for playing, worker in self._trials.begin(self._workers):
            self._send(playing, worker)

    def _send(self, playing: Playing, worker: WorkerHandle) -> None:
        """Hand an episode to a worker; one that comes from a lost worker goes on where it was."""
        playing.worker, playing.ticket = worker, next(self._tickets)
        self._by_ticket[playing.ticket] = playing
        worker.episodes += 1
        begin, past, pending = playing.begin, list(playing.past), playing.pending
        playing.returning = not isinstance(pending, Begin)
        if not self._post(playing, Begin(begin.task, begin.seed, begin.faults, past)):
            self._leave(playing)
        elif pending is not None and playing.returning:
            self._post(playing, pending)

    def _post(self, playing: Playing, request: Request) -> bool:
        """Send a request to the worker of its episode; False when it cannot travel, which ends the episode."""
        assert playing.worker is not None, "the episode is in no worker"
        try:
            playing.worker.send(pack(playing.ticket, request))
        except EnvironmentFault as fault:
            self._fail(playing, Failed(StopReason.ENV_ERROR, str(fault)))
            return False
        return True

    def _all_workers(self) -> list[WorkerHandle]:
        """The workers, those that are missing started."""
        while len(self._workers) < self._most:
            with boundary(EnvironmentFault, "starting a worker process"):
                self._workers.append(WorkerHandle(self._pickled, self._step_seconds, self._inbox))
        return self._workers

    def _leave(self, playing: Playing) -> None:
        """The episode is no longer played in its worker."""
        assert playing.worker is not None, "the episode is in no worker"
        playing.worker.episodes -= 1
        playing.worker = None
        del self._by_ticket[playing.ticket]

    # What workers report --------------------------------------------------------------------------------------------

    def _read_inbox(self) -> None:
        for _ in range(self._inbox.qsize()):
            self._receive(*self._inbox.get())

    def _receive(self, worker: WorkerHandle, ticket: int, report: Report | None) -> None:
        """Note one report; what a lost worker had still to say is ignored."""
        if worker not in self._workers:
            return
        if report is None:
            self._replace(worker, "died")
        elif isinstance(report, Raised):
            raise report.error()
        elif isinstance(report, Ready):
            self._failed_starts = 0
            worker.note_ready()
        elif isinstance(report, Overdue):
            self._give_up(worker, [self._by_ticket[ticket] for ticket in report.tickets if ticket in self._by_ticket])
        elif ticket in self._by_ticket:
            self._note_answer(self._by_ticket[ticket], report)

    def _note_answer(self, playing: Playing, answer: Answer) -> None:
        if isinstance(answer, Failed):
            self._fail(playing, answer)
            return
        if isinstance(answer, Begun) and playing.returning:
            # The episode was brought back: its caller has read this beginning before.
            playing.returning = False
            return
        if isinstance(answer, Stepped) and isinstance(playing.pending, Step):
            step, observation = playing.pending, answer.result.observation.text
            playing.past.append(Past(step.text, answer.state_hash, observation, step.cut))
        self._answer(playing, answer)

    def _answer(self, playing: Playing, answer: Answer) -> None:
        """Hand an answer on; whatever the request was suspected of, it did not do it."""
        playing.pending = None
        self._answers.append((playing.key, answer))
        if playing.losses:
            self._trials.end(playing)
            self._begin_trials()

    def _fail(self, playing: Playing, failure: Failed) -> None:
        """Answer with a failure now, or when something is asked next."""
        playing.failure = failure
        if playing.pending is not None:
            self._answer(playing, failure)

    # What goes wrong ------------------------------------------------------------------------------------------------

    def _look_at_workers(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for worker in list(self._workers):
            if worker.patience.spent():
                self._replace(worker, "fell silent")

    def _give_up(self, worker: WorkerHandle, overdue: Sequence[Playing]) -> None:
        """End episodes whose steps hang. Their threads cannot be ended, so the whole worker goes."""
        for playing in overdue:
            task, asked = playing.begin.task, playing.begin if playing.returning else playing.pending
            self._leave(playing)
            fault = (
                f"{type(asked).__name__} of an episode of '{task.env}', family '{task.family}', took longer than "
                f"rollout.step_seconds = {self._step_seconds:g}."
            )
            self._fail(playing, Failed(StopReason.TIMEOUT, fault))
        self._replace(worker, "")

    def _replace(self, worker: WorkerHandle, blame: str) -> None:
        """End a worker, and bring its episodes back elsewhere. With `blame`, one being worked on may be the cause."""
        self._workers.remove(worker)
        worker.kill()
        lost = self._played_by(worker)
        if not worker.ready:
            self._count_failed_start(worker)
        elif blame:
            self._trials.accuse(worker, [playing for playing in lost if playing.pending is not None])
        self._trials.forget(worker)
        for playing in lost:
            self._leave(playing)
            if playing.losses > MOST_LOSSES:
                self._fail(playing, Failed(StopReason.ENV_ERROR, _loss(playing, worker, blame)))
            else:
                self._place(playing)
        self._begin_trials()

    def _played_by(self, worker: WorkerHandle) -> list[Playing]:
        return [playing for playing in self._episodes.values() if playing.worker is worker]

    def _count_failed_start(self, worker: WorkerHandle) -> None:
        self._failed_starts += 1
        if self._failed_starts >= MOST_FAILED_STARTS:
            raise EnvironmentFault(
                f"{self._failed_starts} worker processes in a row ended before they had made an environment; the last "
                f"one {worker.ending}. With rollout.workers = 0 environments run in this process."
            )


def _loss(playing: Playing, worker: WorkerHandle, blame: str) -> str:
    task = playing.begin.task
    how = f"{blame} and {worker.ending}" if blame != "died" else worker.ending
    return (
        f"An episode of '{task.env}', family '{task.family}', lost its worker process {playing.losses} times while it "
        f"was being worked on; the last one {how}."
    )


class _Pickler(pickle.Pickler):
    """Refuses what stands in the script that is run: it can be pickled, but no worker process could find it."""

    def reducer_override(self, value: Any) -> Any:
        """Called for every function and class. Raises PicklingError for those of the script."""
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} stands in the script that is run, not in a module")
        return NotImplemented


def _pickled(make_env: MakeEnvironment) -> bytes:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(make_env)
        if buffer.tell() > MAX_BYTES:
            raise pickle.PicklingError(f"it has {buffer.tell()} bytes, and {MAX_BYTES} are the most")
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"With rollout.workers, what makes the environments must be picklable, and {make_env!r} is not: {error}. "
            "Use ferrata.rollout.worlds.EnvironmentSpec, or functools.partial of a function or class of a module."
        ) from error
    return buffer.getvalue()
