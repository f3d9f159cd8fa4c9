"""Code of others, kept from ending the run: environments, and judges.

contained    whatever it raises becomes a fault that names what was being done
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from ferrata.envs.deadlines import place
from ferrata.errors import FerrataError, named


@contextmanager
def contained(fault: type[FerrataError], doing: str) -> Iterator[None]:
    """Turn whatever is raised inside the block into `fault`, naming what was being done, and the line of that code.

    So are `sys.exit()`, a cancellation and a KeyboardInterrupt that nobody's Ctrl-C has caused: they would end the run,
    or the one thread of a worker, as if all were well. Our own errors pass through unchanged. So does a real Ctrl-C,
    also where the code inside has swallowed it.
    """
    interruption = _Interruption()
    try:
        with interruption:
            yield
    except BaseException as error:
        if interruption.raised is not None:
            raise interruption.raised from error
        if isinstance(error, FerrataError):
            raise
        where = place(error)
        raise fault(f"While {doing}: {named(error)}{f' ({where})' if where else ''}") from error
    if interruption.raised is not None:
        raise interruption.raised


class _Interruption:
    """Notes whether a signal has interrupted the block; only in the main thread can that happen."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        """What the handler of SIGINT has raised."""
        self._before = signal.getsignal(signal.SIGINT)
        self._handler = self._handle
        self._listens = callable(self._before) and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._listens:
            signal.signal(signal.SIGINT, self._handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Whoever has set another handler meanwhile wants it to stay.
        if self._listens and signal.getsignal(signal.SIGINT) is self._handler:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        assert callable(self._before), "nothing else was replaced"
        try:
            self._before(number, frame)
        except BaseException as error:
            self.raised = error
            raise
