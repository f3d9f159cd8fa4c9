"""One worker process: holds many environments, each with a thread of its own, so that none holds up another.

    main(descriptor)    what the process runs, until it is told to close or its parent is gone
    Worker              reads orders, hands each to the seat of its episode
    Seat                one environment, and the one thread that ever touches it

A thread beats even while the environments work: a process that is stopped, or stuck in a call that lets no other
thread run, falls silent, and its parent replaces it.
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
from ferrata.errors import AuditError, EnvironmentFault, boundary
from ferrata.records import StopReason
from ferrata.rollout.hosts import Begin, Failed, MakeEnvironment, Request, close_quietly, one_more, perform
from ferrata.rollout.messages import (
    HEARTBEAT,
    MAX_BYTES,
    NO_TICKET,
    Close,
    Raised,
    Ready,
    Release,
    Report,
    Setup,
    decode_order,
    pack,
)

CLOSING_SECONDS = 2.0
"""How long environments may take to close, all together; a thread that hangs is given up then."""

Tell = Callable[[int, Report], None]
"""Sends a report about a ticket."""


class Seat:
    """One environment and its thread: it is made, used and closed in that thread alone."""

    def __init__(self, make_env: MakeEnvironment, tell: Tell) -> None:
        self.env: Environment | None = None
        """None until it is made, and for ever when it cannot be."""
        self.settled = threading.Event()
        """Set when the environment was made, or could not be."""
        self._make_env, self._tell = make_env, tell
        self._orders: SimpleQueue[tuple[int, Request] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def order(self, ticket: int, request: Request) -> None:
        """Have a request performed after those before it."""
        self._orders.put((ticket, request))

    def end(self) -> None:
        """Close the environment when everything before is done."""
        self._orders.put(None)

    def _run(self) -> None:
        try:
            self.env = one_more(self._make_env)
        except BaseException as error:
            self._tell(NO_TICKET, Raised.of(error))
            return
        finally:
            self.settled.set()
        failed = NO_TICKET
        while (order := self._orders.get()) is not None:
            ticket, request = order
            # After a failure nothing is performed for the episode any more, though it may have been asked already.
            if ticket != failed and self._fails(self.env, ticket, request):
                failed = ticket
        close_quietly(self.env)

    def _fails(self, env: Environment, ticket: int, request: Request) -> bool:
        """Perform a request and tell what came of it; True when the episode is over by a failure."""
        try:
            answer = perform(env, request)
        except BaseException as error:
            # Whatever ends this thread must be heard of: the episode would wait for it in vain.
            self._tell(NO_TICKET, Raised.of(error))
            return True
        self._tell(ticket, answer)
        return isinstance(answer, Failed)


class Worker:
    """Serves the orders that come over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._make_env: MakeEnvironment
        self._seats: list[Seat] = []
        self._idle: list[Seat] = []
        self._playing: dict[int, Seat] = {}

    def beat(self, seconds: float) -> None:
        """Send heartbeats for as long as there is somebody to hear them."""
        with suppress(OSError):
            while True:
                self._send(HEARTBEAT)
                time.sleep(seconds)

    def prepare(self, pickled: bytes) -> bool:
        """Make the first environment, so that what cannot be made is known at once; False when it cannot."""
        try:
            with boundary(EnvironmentFault, "loading the maker of environments in a worker process"):
                self._make_env = pickle.loads(pickled)
        except EnvironmentFault as fault:
            self.tell(NO_TICKET, Raised.of(fault))
            return False
        seat = self._new_seat()
        seat.settled.wait()
        self._idle.append(seat)
        if seat.env is None:
            return False
        self.tell(NO_TICKET, Ready())
        return True

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
            message = pack(ticket, report)
        except EnvironmentFault as fault:
            told = Raised.of(fault) if ticket == NO_TICKET else Failed(StopReason.ENV_ERROR, str(fault))
            message = pack(ticket, told)
        with suppress(OSError):
            self._send(message)

    def _send(self, message: bytes) -> None:
        with self._sending:
            self._connection.send_bytes(message)

    def _new_seat(self) -> Seat:
        self._seats.append(Seat(self._make_env, self.tell))
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
    worker = Worker(connection)
    threading.Thread(target=worker.beat, args=(setup.heartbeat_seconds,), daemon=True).start()
    if worker.prepare(connection.recv_bytes(MAX_BYTES)):
        worker.serve()
    worker.close()
