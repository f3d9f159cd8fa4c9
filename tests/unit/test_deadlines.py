"""A deadline cuts what computes in Python and what sleeps, and leaves timers and handlers as they were."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from ferrata.envs.deadlines import Overdue, deadline, place, short_path


def sleep() -> None:
    time.sleep(30)


def compute() -> None:
    while True:
        pass


def catch_every_error() -> None:
    try:
        time.sleep(30)
    except Exception:
        time.sleep(30)


def swallow_once() -> None:
    try:
        time.sleep(30)
    except BaseException:
        time.sleep(30)


@pytest.mark.parametrize("hang", [sleep, compute, catch_every_error, swallow_once], ids=lambda hang: hang.__name__)
def test_what_hangs_is_cut_where_it_hangs(hang: Callable[[], None]) -> None:
    began = time.monotonic()
    with pytest.raises(Overdue, match=r"longer than 0\.1 s") as caught, deadline(0.1):
        hang()
    assert time.monotonic() - began < 10
    assert place(caught.value).startswith("tests/unit/test_deadlines.py:")
    assert place(caught.value).endswith(f" in {hang.__name__}")


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """The alarms of somebody else's timer."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGALRM, note)
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def test_what_was_set_is_put_back(alarms: list[int]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with deadline(5):
        pass
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    signal.setitimer(signal.ITIMER_REAL, 100.0)
    with deadline(5):
        assert signal.getitimer(signal.ITIMER_REAL)[0] <= 5
    assert 90 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100


def test_an_older_timer_that_is_due_meanwhile_strikes_afterwards(alarms: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with deadline(5):
        time.sleep(0.2)
        assert alarms == []
    time.sleep(0.2)
    assert alarms == [signal.SIGALRM]


def test_nothing_strikes_after_the_block(alarms: list[int]) -> None:
    with pytest.raises(Overdue), deadline(0.05):
        sleep()
    time.sleep(1.2)
    assert alarms == []


def test_another_thread_is_left_alone() -> None:
    over: list[bool] = []

    def work() -> None:
        with deadline(0.05):
            time.sleep(0.2)
            over.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert over == [True]


def test_our_own_lines_are_no_place() -> None:
    with pytest.raises(TypeError) as caught:
        short_path(7)
    assert " in test_our_own_lines_are_no_place" in place(caught.value)
    assert place(ValueError("raised nowhere")) == ""
