"""A deadline for code of others that runs in this process, and where such code was when it failed.

    deadline(seconds)    raises Overdue inside the block when it takes longer
    place(error)         "world.py:31 in weigh": the innermost line that is neither ours nor a library's

A timer of the system interrupts the main thread. So what computes in Python and what sleeps or waits is cut; a library
that does not come back to Python is not, nor is anything in another thread: only another process could end it.
"""

from __future__ import annotations

import os
import signal
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_AGAIN = 1.0
"""Seconds until the next interruption of code that has swallowed one."""
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_LIBRARIES = tuple(f"{folder}{os.sep}" for folder in {sysconfig.get_path(name) for name in ("stdlib", "purelib")})


class Overdue(BaseException):
    """A deadline has passed. No `Exception`, so that a tool which catches every error of its own lets it pass."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise Overdue in the block once it has taken `seconds`. What was set before is put back, timer and handler.

    Does nothing outside the main thread, which alone can be interrupted, and where the system has no such timer.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    guarded = True

    def interrupt(number: int, frame: FrameType | None) -> None:
        if guarded:
            raise Overdue(f"it took longer than {seconds:g} s")

    began, handler = time.monotonic(), signal.signal(signal.SIGALRM, interrupt)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        try:
            guarded = False
        finally:
            # An older timer goes on as if nothing had been in its way; one that is due by now strikes at once.
            remaining = max(left - (time.monotonic() - began), 1e-6) if left else 0.0
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
            signal.setitimer(signal.ITIMER_REAL, remaining, interval)


def place(error: BaseException) -> str:
    """Where code of others raised `error`, as "file.py:31 in function"; empty where only ours ran."""
    for left_out in ((_PACKAGE, "<", *_LIBRARIES), (_PACKAGE, "<")):
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(left_out)]
        if own:
            return f"{short_path(own[-1].filename)}:{own[-1].lineno} in {own[-1].name}"
    return ""


def short_path(filename: str) -> str:
    """A path as seen from the current folder, where it lies below it."""
    relative = os.path.relpath(filename)
    return filename if relative.startswith("..") else relative
