"""Nothing that code of others raises ends the run, but a Ctrl-C that somebody pressed does."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from ferrata.errors import EnvironmentFault, JudgeFault, TaskError
from ferrata.rollout.containment import contained


class Mutiny(BaseException):
    """Of no kind that anybody expects."""


@pytest.mark.parametrize(
    "error", [OSError("x"), asyncio.CancelledError("x"), Mutiny("x"), SystemExit("x"), GeneratorExit("x")]
)
def test_whatever_is_raised_becomes_the_fault(error: BaseException) -> None:
    told = rf"While judging: {type(error).__name__}: x"
    with pytest.raises(JudgeFault, match=told) as raised, contained(JudgeFault, "judging"):
        raise error
    assert raised.value.__cause__ is error


def test_our_own_errors_pass() -> None:
    with pytest.raises(TaskError, match=r"^Wrong$"), contained(EnvironmentFault, "stepping"):
        raise TaskError("Wrong")


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where these tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def press_and_swallow() -> None:
    try:
        press()
    except KeyboardInterrupt:
        return


def press_and_rename() -> None:
    try:
        press()
    except KeyboardInterrupt:
        raise OSError("interrupted") from None


def press_and_claim() -> None:
    press()
    raise KeyboardInterrupt


@pytest.mark.parametrize("inside", [press, press_and_swallow, press_and_rename])
def test_a_real_interruption_passes_whatever_the_code_inside_makes_of_it(inside: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), contained(EnvironmentFault, "stepping"):
        inside()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interruption_that_nobody_caused_is_a_fault() -> None:
    told = "stepping: KeyboardInterrupt"
    with pytest.raises(EnvironmentFault, match=told), contained(EnvironmentFault, "stepping"):
        raise KeyboardInterrupt


def test_a_signal_that_is_noted_and_no_more_lets_the_block_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run notes the first Ctrl-C and goes on to the end of the update."""
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        with contained(EnvironmentFault, "stepping"):
            press()
        with pytest.raises(EnvironmentFault), contained(EnvironmentFault, "stepping"):
            press_and_claim()
    finally:
        signal.signal(signal.SIGINT, before)
    assert noted == [signal.SIGINT] * 2


def test_a_handler_that_is_set_inside_stays() -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        """Do nothing."""

    before = signal.getsignal(signal.SIGINT)
    try:
        with contained(EnvironmentFault, "stepping"):
            signal.signal(signal.SIGINT, handler)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_contains_as_well() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            with contained(EnvironmentFault, "stepping"):
                raise KeyboardInterrupt
        except EnvironmentFault as fault:
            caught.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1
