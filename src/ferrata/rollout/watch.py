"""The deadlines of one worker process, kept by the process itself: only there is it known who had to wait for whom.

    Watch.timed(ticket, seconds)    around each request that is being performed
    Watch.look()                    the tickets whose time is up

All environments of a worker share one interpreter, and one that computes keeps the others waiting. So a request is not
charged the time on the clock: where others were computing, or one would let no other thread run, it is charged the
processor time of its own thread. That way a request which is in time alone is in time among others, however many.

It is charged at least its share, the time divided by the most requests that were under way together: then even a step
that hangs among others which never rest comes to its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOOK_SECONDS = 0.1
"""Between two looks."""
_LATE_SECONDS = 3 * LOOK_SECONDS
"""A look that comes later than this was kept from coming: no other thread could run."""
_BUSY_SHARE = 0.25
"""Share of the time for which others must have computed to have been in the way."""


@dataclass(eq=False)
class _Timed:
    """One request that is being performed."""

    ticket: int
    seconds: float
    """What it may be charged."""
    clock: int
    """Of its thread's processor time."""
    began: float
    looked: float
    """When it was charged last."""
    own: float
    """Processor time of its thread then."""
    all: float
    """Processor time of the process then."""
    most: int = 1
    """Most requests under way at once since it began."""
    own_time: float = 0.0
    """What it took itself of the time until now."""

    @property
    def charged(self) -> float:
        """Its own time, or its share of all time since it began."""
        return max(self.own_time, (self.looked - self.began) / self.most)

    def charge(self, late: bool) -> None:
        """Charge it what has passed since the last time."""
        now, own, everything = time.monotonic(), time.clock_gettime(self.clock), time.process_time()
        passed, computed = now - self.looked, own - self.own
        others = everything - self.all - computed
        contended = late or others > _BUSY_SHARE * passed
        self.own_time += computed if contended else passed
        self.looked, self.own, self.all = now, own, everything


class Watch:
    """What is being performed in this process, and what each request has been charged.

    Args:
        overdue: told the tickets of requests whose time is up, before any of them can be answered after all.
    """

    def __init__(self, overdue: Callable[[list[int]], None]) -> None:
        self._overdue = overdue
        self._lock = threading.Lock()
        self._under_way: set[_Timed] = set()
        self._looked = time.monotonic()

    @contextmanager
    def timed(self, ticket: int, seconds: float) -> Iterator[None]:
        """Watch the request that this thread performs inside the block."""
        clock = time.pthread_getcpuclockid(threading.get_ident())
        now = time.monotonic()
        timed = _Timed(ticket, seconds, clock, now, now, time.clock_gettime(clock), time.process_time())
        with self._lock:
            self._under_way.add(timed)
            for other in self._under_way:
                other.most = max(other.most, len(self._under_way))
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(timed)

    def look(self) -> None:
        """Charge every request, and tell those whose time is up; each is told once."""
        with self._lock:
            now = time.monotonic()
            late, self._looked = now - self._looked > _LATE_SECONDS, now
            for timed in self._under_way:
                timed.charge(late)
            spent = [timed for timed in self._under_way if timed.charged > timed.seconds]
            self._under_way.difference_update(spent)
            if spent:
                self._overdue([timed.ticket for timed in spent])
