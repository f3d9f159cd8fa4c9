"""Intervals and paired tests against scipy and against cases worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ferrata.errors import TaskError
from ferrata.evaluation.statistics import compare_paired, mcnemar_p_value, mean_interval, wilson_interval


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (7, 20), (92, 100), (199, 200)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_equals_scipy(successes: int, n: int, confidence: float) -> None:
    ours = wilson_interval(successes, n, confidence)
    theirs = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert ours.low == pytest.approx(theirs.low, abs=1e-12)
    assert ours.high == pytest.approx(theirs.high, abs=1e-12)


@settings(deadline=None)
@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_stays_in_range(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0


def test_wilson_of_nothing_knows_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (1, 0)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson_interval(successes, n)


def test_mean_interval_equals_scipy() -> None:
    values = [0.3, -1.2, 4.9, 5.0, 5.1, -1.0]
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((theirs.low, theirs.high))


def test_mean_interval_of_one_value_knows_no_spread() -> None:
    assert mean_interval([3.0]) == (-math.inf, math.inf)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (0, 1), (3, 3), (2, 9), (40, 61), (500, 600), (0, 2000)])
def test_mcnemar_equals_a_binomial_test(lost: int, gained: int) -> None:
    expected = stats.binomtest(lost, lost + gained, 0.5).pvalue if lost + gained else 1.0
    assert mcnemar_p_value(lost, gained) == pytest.approx(expected)


def test_paired_comparison_counts_each_kind_of_task() -> None:
    first = {"a": True, "b": True, "c": False, "d": False, "e": False, "only here": True}
    second = {"a": True, "b": False, "c": True, "d": True, "e": False, "only there": False}
    found = compare_paired(first, second)
    assert (found.both, found.only_first, found.only_second, found.neither) == (1, 1, 2, 1)
    assert found.n == 5
    assert found.difference == pytest.approx(1 / 5)
    assert found.p_value == pytest.approx(1.0)


def test_paired_comparison_needs_a_shared_task() -> None:
    with pytest.raises(TaskError, match="share no task"):
        compare_paired({"a": True}, {"b": True})
