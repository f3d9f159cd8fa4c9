"""Ctrl-C once: finish this update, save, stop. Ctrl-C twice: stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

FIRST = "Saving after this update; press Ctrl-C again to stop at once."
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """`requested` turns True at the first signal; the second raises KeyboardInterrupt wherever the program is."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.requested = False
        self._announce = announce

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Receive one signal."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        # The signal may have come in the middle of printing, and printing cannot be entered twice.
        with suppress(RuntimeError):
            self._announce(FIRST)


def _ignore(text: str) -> None:
    """Announce nothing."""


@contextmanager
def graceful_interrupts(announce: Callable[[str], None] = _ignore) -> Iterator[Interrupts]:
    """Catch SIGINT and SIGTERM inside the block; what was set before is put back after it.

    Signals reach the main thread alone; in any other thread `requested` simply stays False.
    """
    interrupts = Interrupts(announce)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    previous = {number: signal.signal(number, interrupts.handle) for number in _SIGNALS}
    try:
        yield interrupts
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
