"""Deadlines inside a worker: a request is charged its own time, and not that of the others in its process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ferrata.rollout import watch
from ferrata.rollout.watch import LOOK_SECONDS, Watch


class Clock:
    """Takes the place of the clocks. `own` is what the thread under watch computed, `all` what the process did."""

    def __init__(self) -> None:
        self.now = self.own = self.all = 0.0

    def passes(self, seconds: float, own: float = 0.0, others: float = 0.0) -> None:
        self.now += seconds
        self.own += own
        self.all += own + others


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    fake = SimpleNamespace(
        monotonic=lambda: clock.now,
        process_time=lambda: clock.all,
        clock_gettime=lambda _: clock.own,
        pthread_getcpuclockid=lambda _: 0,
    )
    monkeypatch.setattr(watch, "time", fake)
    return clock


@pytest.mark.parametrize(
    ("own", "others", "charged"),
    [(0.0, 0.0, 10.0), (0.1, 0.0, 10.0), (0.0, 0.02, 10.0), (0.0, 0.1, 5.0), (0.02, 0.05, 5.0), (0.07, 0.03, 7.0)],
)
def test_time_in_which_others_computed_is_charged_by_what_the_request_computed_itself(
    clock: Clock, own: float, others: float, charged: float
) -> None:
    """But no less than its share: here half, for one other request is under way. 100 looks at 0.1 seconds each."""
    for seconds, spent in ((charged - 0.2, True), (charged + 0.2, False)):
        told: list[list[int]] = []
        under_test = Watch(told.append)
        with under_test.timed(7, seconds), under_test.timed(8, 1000.0):
            for _ in range(100):
                clock.passes(0.1, own, others)
                under_test.look()
        assert bool(told) == spent
        assert all(tickets == [7] for tickets in told)


def test_a_look_that_was_kept_from_coming_charges_shares(clock: Clock) -> None:
    """Nothing could run for 9 seconds, and nobody computed: one of three let no other run."""
    told: list[list[int]] = []
    under_test = Watch(told.append)
    with under_test.timed(1, 4.0), under_test.timed(2, 4.0), under_test.timed(3, 2.0):
        clock.passes(9.0)
        under_test.look()
    assert told == [[3]]


def test_the_share_counts_those_that_were_there_together_before(clock: Clock) -> None:
    told: list[list[int]] = []
    under_test = Watch(told.append)
    with under_test.timed(1, 4.0):
        for other in range(2, 5):
            with under_test.timed(other, 100.0):
                clock.passes(0.0)
        with under_test.timed(5, 100.0), under_test.timed(6, 100.0), under_test.timed(7, 100.0):
            clock.passes(0.0)
        clock.passes(15.0)
        under_test.look()
        assert told == []
        clock.passes(5.0)
        under_test.look()
    assert told == [[1]]


def test_a_request_that_has_used_its_time_is_not_charged_for_who_comes_after_it(clock: Clock) -> None:
    """It kept all others from running for 3 seconds of 4; then another did so, before it could come to its end."""
    told: list[list[int]] = []
    under_test = Watch(told.append)
    with under_test.timed(1, 4.0):
        clock.passes(3.0)
        under_test.look()
        with under_test.timed(2, 4.0):
            clock.passes(3.0)
            under_test.look()
    assert told == []


def test_what_is_over_is_told_no_more_and_what_is_overdue_once(clock: Clock) -> None:
    told: list[list[int]] = []
    under_test = Watch(told.append)
    with under_test.timed(1, 1.0):
        clock.passes(0.1)
    with under_test.timed(2, 1.0), under_test.timed(3, 1.0):
        clock.passes(0.2)
        for _ in range(20):
            clock.passes(0.1)
            under_test.look()
    assert [sorted(tickets) for tickets in told] == [[2, 3]]


def run_together(works: list[Callable[[], object]], seconds: float) -> set[int]:
    """Which of the works, each in a thread of its own, are overdue by real clocks."""
    told: set[int] = set()
    under_test = Watch(told.update)

    def perform(ticket: int) -> None:
        with under_test.timed(ticket, seconds):
            works[ticket]()

    threads = [threading.Thread(target=perform, args=(ticket,)) for ticket in range(len(works))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        under_test.look()
        time.sleep(LOOK_SECONDS)
    return told


def compute() -> None:
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        pass


def test_real_threads_that_compute_together_are_in_time() -> None:
    assert run_together([compute] * 12, 0.8) == set()


def test_real_threads_that_sleep_longer_than_they_may_are_overdue() -> None:
    sleep = threading.Event().wait
    assert run_together([lambda: sleep(0.2), lambda: sleep(1.5), lambda: sleep(0.2)], 0.8) == {1}
