"""One worker process as its parent sees it.

    WorkerHandle   starts the process, talks to it, and ends it with everything that it left behind
    Patience       a deadline that survives a pause of this process

Two threads move the bytes, so that the sampler is never held up: a worker that reads nothing any more cannot block
its parent.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Queue, SimpleQueue

import msgspec

from ferrata.rollout.messages import HEARTBEAT, MAX_BYTES, NO_TICKET, Close, Report, Setup, decode_report, pack

START_SECONDS = 120.0
"""How long a process may take until its first environment is made."""
GRACE_SECONDS = 0.5
"""How long a deadline must have been past, seen twice, before anybody acts on it."""
SILENT_STEPS = 2.0
"""Steps, one after the other, that may let no other thread of their process run, not even the one that beats."""
SILENT_SECONDS = 2.0
"""Time for the beating thread to have its turn among others that compute."""
_EXIT_SECONDS = 5.0
"""How long a killed process may take to vanish."""
_CODE = """
import sys
sys.path[:] = sys.argv[2:]
from ferrata.rollout.worker_process import main
main(int(sys.argv[1]))
"""


def silence_seconds(step_seconds: float) -> float:
    """How long a worker may be silent. Steps that are in time must not be cut, whatever they do to the interpreter."""
    return SILENT_STEPS * step_seconds + SILENT_SECONDS


class Patience:
    """A deadline. Whoever was stopped (Ctrl-Z, a suspended machine) finds it past, but finds the answers there as well.

    So one look is not enough: it must still be past a moment later, when what had come meanwhile was read.
    """

    def __init__(self, seconds: float) -> None:
        self.renew(seconds)

    def renew(self, seconds: float) -> None:
        """Wait this long from now on."""
        self._until = time.monotonic() + seconds
        self._doubted: float | None = None

    def spent(self) -> bool:
        """True when there is nothing to wait for any more."""
        now = time.monotonic()
        if now < self._until:
            return False
        if self._doubted is None:
            self._doubted = now
        return now - self._doubted > GRACE_SECONDS


class WorkerHandle:
    """A process that runs environments, and all that belongs to it.

    Args:
        make_env: pickled maker of environments.
        step_seconds: how long one step may take. Two steps may each keep the interpreter to themselves for that long,
            one after the other; after more seconds without a heartbeat the process counts as stopped.
        inbox: gets (handle, ticket, report) for every report, and (handle, -1, None) when the process is gone.
    """

    def __init__(
        self, make_env: bytes, step_seconds: float, inbox: Queue[tuple[WorkerHandle, int, Report | None]]
    ) -> None:
        self.ready = False
        """True once it has made its first environment."""
        self.episodes = 0
        """Episodes that it plays."""
        self.patience = Patience(START_SECONDS)
        """Until it must have been heard again."""
        self._silence, self._inbox = silence_seconds(step_seconds), inbox
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._folder = tempfile.mkdtemp(prefix="ferrata-worker-")
        self._socket, theirs = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        with theirs:
            self._process = _start(theirs.fileno())
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._write)]
        self._outbox.put(msgspec.msgpack.encode(Setup(self._folder, min(1.0, self._silence / 5), step_seconds)))
        self._outbox.put(make_env)
        for thread in self._threads:
            thread.start()

    def note_ready(self) -> None:
        """It has made its first environment; from now on its heartbeats count."""
        self.ready = True
        self.patience.renew(self._silence)

    @property
    def pid(self) -> int:
        """Of the process; it leads a group of its own."""
        return self._process.pid

    @property
    def ending(self) -> str:
        """How the process ended, as words."""
        code = self._process.poll()
        if code is None:
            return "did not end"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def send(self, message: bytes) -> None:
        """Hand a message to the writing thread."""
        self._outbox.put(message)

    def finish(self, seconds: float) -> None:
        """Let it close its environments, told before by `Close`, then `kill` what is left."""
        self._threads[0].join(max(0.0, seconds))
        self.kill()

    def ask_to_close(self) -> None:
        """Tell it to close its environments and end."""
        self.send(pack(NO_TICKET, Close()))

    def kill(self) -> None:
        """End the process and all that it has started, and delete its temporary files. Doing it again does nothing."""
        if self._connection.closed:
            return
        # The group is killed before its leader is waited for: until then nobody else can have its number.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        self._outbox.put(None)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_EXIT_SECONDS)
        self._socket.close()
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> None:
        """Pass reports on, and note every sign of life."""
        with suppress(EOFError, OSError, msgspec.MsgspecError):
            while True:
                message = self._connection.recv_bytes(MAX_BYTES)
                if self.ready:
                    self.patience.renew(self._silence)
                if message != HEARTBEAT:
                    self._inbox.put((self, *decode_report(message)))
        self._inbox.put((self, NO_TICKET, None))

    def _write(self) -> None:
        with suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send_bytes(message)


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """A fresh interpreter, in a group of its own: Ctrl-C in the terminal reaches the parent alone."""
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, str(descriptor), *sys.path],
        stdin=subprocess.DEVNULL,
        pass_fds=[descriptor],
        process_group=0,
    )
