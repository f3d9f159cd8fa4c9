"""One worker process: holds many environments, each with a thread of its own, so that none holds up another.

    main(descriptor)    what the process runs, until it is told to close or its parent is gone
    Worker              reads orders, hands each to the seat of its episode
    Seat                one environment, and the one thread that ever touches it

One more thread beats even while the environments work, and looks at their deadlines (`watch`): a process that is
stopped, or stuck in a call that lets no other thread run, falls silent, and its parent replaces it.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue

import msgspec

from ferrata.envs.base import Environment
from ferrata.errors import AuditError, EnvironmentFault, FerrataError
from ferrata.records import StopReason
from ferrata.rollout.containment import contained
from ferrata.rollout.hosts import (
    Answer,
    Begin,
    Failed,
    MakeEnvironment,
    Request,
    another,
    close_quietly,
    one_more,
    perform,
)
from ferrata.rollout.messages import (
    HEARTBEAT,
    MAX_BYTES,
    NO_TICKET,
    Close,
    Overdue,
    Raised,
    Ready,
    Release,
    Report,
    Setup,
    decode_order,
    pack,
    pack_report,
)
from ferrata.rollout.pattern import MAKING_STEPS
from ferrata.rollout.watch import LOOK_SECONDS, Watch

CLOSING_SECONDS = 2.0
"""How long environments may take to close, all together; a thread that hangs is given up then."""
FIRST_TRIES = 5
"""How often the first environment is tried: it belongs to no episode that could be dropped for it."""

Tell = Callable[[int, Report], None]
"""Sends a report about a ticket."""


class Seat:
    """One environment and its thread: it is made, used and closed in that thread alone.

    Args:
        step_seconds: how long one step, or the beginning of an episode, may take.
    """

    def __init__(self, make_env: MakeEnvironment, step_seconds: float, watch: Watch, tell: Tell) -> None:
        self.env: Environment | None = None
        """None until it is made."""
        self._make_env, self._step_seconds, self._watch, self._tell = make_env, step_seconds, watch, tell
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._failed = NO_TICKET
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def make(self) -> FerrataError | None:
        """Make the environment now, and wait for it; why it cannot be made, if it cannot."""
        outcome: SimpleQueue[FerrataError | None] = SimpleQueue()
        self._orders.put(lambda: outcome.put(self._try_to_make()))
        return outcome.get()

    def order(self, ticket: int, request: Request) -> None:
        """Have a request performed after those before it."""
        self._orders.put(lambda: self._perform(ticket, request))

    def end(self) -> None:
        """Close the environment when everything before is done."""
        self._orders.put(None)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            order()
        if self.env is not None:
            close_quietly(self.env)

    def _try_to_make(self) -> FerrataError | None:
        for tries_left in reversed(range(FIRST_TRIES)):
            try:
                self.env = one_more(self._make_env)
                break
            except FerrataError as error:
                if not tries_left:
                    return error
        return None

    def _perform(self, ticket: int, request: Request) -> None:
        """Perform a request in time, and tell what came of it.

        After a failure nothing is performed for the episode any more, though it may have been asked already.
        """
        if ticket == self._failed:
            return
        try:
            with self._watch.timed(ticket, self._seconds(request)):
                answer = self._answer(request)
        except BaseException as error:
            # It is no matter of this episode alone: the parent raises it. Whatever it is must be heard of, or the
            # episode would wait for this thread in vain.
            self._failed = ticket
            self._tell(NO_TICKET, Raised.of(error))
            return
        if isinstance(answer, Failed):
            self._failed = ticket
        self._tell(ticket, answer)

    def _answer(self, request: Request) -> Answer:
        if self.env is None:
            made = another(self._make_env)
            if isinstance(made, Failed):
                return made
            self.env = made
        return perform(self.env, request)

    def _seconds(self, request: Request) -> float:
        """What a request may be charged: turns that are played again take their time as well, and so does making."""
        steps = 1.0 + (len(request.past) if isinstance(request, Begin) else 0)
        return self._step_seconds * (steps + (MAKING_STEPS if self.env is None else 0.0))


class Worker:
    """Serves the orders that come over a connection."""

    def __init__(self, connection: Connection, step_seconds: float) -> None:
        self._connection, self._step_seconds = connection, step_seconds
        self._watch = Watch(lambda tickets: self.tell(NO_TICKET, Overdue(tickets)))
        self._sending = threading.Lock()
        self._make_env: MakeEnvironment
        self._seats: list[Seat] = []
        self._idle: list[Seat] = []
        self._playing: dict[int, Seat] = {}

    def beat(self, seconds: float) -> None:
        """Send heartbeats, and look at the deadlines, for as long as there is somebody to hear of them."""
        beaten = -seconds
        with suppress(OSError):
            while True:
                self._watch.look()
                if time.monotonic() - beaten >= seconds:
                    beaten = time.monotonic()
                    self._send(HEARTBEAT)
                time.sleep(LOOK_SECONDS)

    def prepare(self, pickled: bytes) -> bool:
        """Make the first environment, so that what cannot be made is known at once; False when it cannot."""
        try:
            with contained(EnvironmentFault, "loading the maker of environments in a worker process"):
                self._make_env = pickle.loads(pickled)
        except FerrataError as fault:
            self.tell(NO_TICKET, Raised.of(fault))
            return False
        seat = self._new_seat()
        unmade = seat.make()
        self.tell(NO_TICKET, Raised.of(unmade) if unmade else Ready())
        self._idle.append(seat)
        return unmade is None

    def serve(self) -> None:
        """Hand orders to their seats; returns when the parent says so, or is gone."""
        with suppress(EOFError, OSError):
            while True:
                ticket, order = decode_order(self._connection.recv_bytes(MAX_BYTES))
                if isinstance(order, Close):
                    return
                if isinstance(order, Release):
                    self._release(ticket, order.broken)
                    continue
                if isinstance(order, Begin):
                    self._playing[ticket] = self._idle.pop() if self._idle else self._new_seat()
                self._playing[ticket].order(ticket, order)

    def close(self) -> None:
        """Close the environments, and the audit logs behind them."""
        until = time.monotonic() + CLOSING_SECONDS
        for seat in self._seats:
            seat.end()
        for seat in self._seats:
            seat.thread.join(max(0.0, until - time.monotonic()))
        for audit in {seat.env.audit for seat in self._seats if seat.env is not None}:
            if audit is not None:
                with suppress(AuditError):
                    audit.close()

    def tell(self, ticket: int, report: Report) -> None:
        """Send a report. What cannot travel is told as a failure; a parent that is gone needs none."""
        try:
            message = pack_report(ticket, report)
        except EnvironmentFault as fault:
            told = Raised.of(fault) if ticket == NO_TICKET else Failed(StopReason.ENV_ERROR, str(fault))
            message = pack(ticket, told)
        with suppress(OSError):
            self._send(message)

    def _send(self, message: bytes) -> None:
        with self._sending:
            self._connection.send_bytes(message)

    def _new_seat(self) -> Seat:
        self._seats.append(Seat(self._make_env, self._step_seconds, self._watch, self.tell))
        return self._seats[-1]

    def _release(self, ticket: int, broken: bool) -> None:
        seat = self._playing.pop(ticket)
        if broken:
            self._seats.remove(seat)
            seat.end()
        else:
            self._idle.append(seat)


def main(descriptor: int) -> None:
    """Serve over a socket, and end the process with everything that its tools have started."""
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    setup = msgspec.msgpack.decode(connection.recv_bytes(MAX_BYTES), type=Setup)
    tempfile.tempdir = os.environ["TMPDIR"] = setup.folder
    try:
        _serve(connection, setup)
    except Exception:
        # Nobody would see it otherwise: the process ends itself below.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        shutil.rmtree(setup.folder, ignore_errors=True)
        # Threads that hang, and processes that tools left behind, end as well: this process leads a group of its own.
        os.kill(-os.getpid(), signal.SIGKILL)


def _serve(connection: Connection, setup: Setup) -> None:
    worker = Worker(connection, setup.step_seconds)
    threading.Thread(target=worker.beat, args=(setup.heartbeat_seconds,), daemon=True).start()
    if worker.prepare(connection.recv_bytes(MAX_BYTES)):
        worker.serve()
    worker.close()
