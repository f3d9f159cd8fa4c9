"""Uncertainty of what an evaluation measured: one pure function per formula.

    wilson_interval      a share, e.g. success on n tasks
    mean_interval        a mean, e.g. return per episode
    compare_paired       two evaluations of the same tasks: is the difference more than noise?

Nothing here knows about tasks, policies or runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

import msgspec

from ferrata.errors import TaskError


class Interval(NamedTuple):
    """A confidence interval, ends included."""

    low: float
    high: float


class PairedComparison(msgspec.Struct, frozen=True):
    """Two evaluations of the same tasks, task by task."""

    both: int
    """Tasks that succeeded in both."""
    only_first: int
    """Tasks that succeeded in the first alone (lost)."""
    only_second: int
    """Tasks that succeeded in the second alone (gained)."""
    neither: int
    """Tasks that failed in both."""
    p_value: float
    """Exact two-sided McNemar test: how likely so lopsided a split of the changed tasks is by chance."""

    @property
    def n(self) -> int:
        """Tasks compared."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Success share of the second minus that of the first."""
        return (self.only_second - self.only_first) / self.n if self.n else math.nan


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a share, without continuity correction.

    With p = successes / n and z the normal quantile at (1 + confidence) / 2:

        centre = (p + z² / 2n) / (1 + z² / n)
        half   = z / (1 + z² / n) · sqrt(p (1 - p) / n + z² / 4n²)

    It stays inside [0, 1] and keeps its coverage near 0 and 1, where evaluations of agents live.
    Without observations nothing is known: n = 0 gives (0, 1).

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, got {successes} of {n}")
    if n == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = z / (1.0 + spread) * math.sqrt(share * (1.0 - share) / n + spread / (4.0 * n))
    # At 0 and n the end is exact in theory; rounding must not push it across.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval of a mean: x̄ ± t · s / sqrt(n), t with n - 1 degrees of freedom.

    Returns (-inf, inf) for a single value, from which no spread can be estimated, and for none.

    Source: Student, "The probable error of a mean", Biometrika 6 (1908).
    """
    if len(values) < 2:
        return Interval(-math.inf, math.inf)
    from scipy.stats import t  # imported here: it takes longer than the whole command line

    centre = fmean(values)
    half = float(t.ppf((1.0 + confidence) / 2.0, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(centre - half, centre + half)


def mcnemar_p_value(lost: int, gained: int) -> float:
    """Exact two-sided McNemar test over the tasks whose verdict changed.

    Under the null hypothesis each changed task was as likely lost as gained, so with d = lost + gained:

        p = min(1, 2 · Σ_{k ≤ min(lost, gained)} C(d, k) / 2^d)

    Source: Q. McNemar, Psychometrika 12 (1947), in its exact binomial form.
    """
    changed = lost + gained
    tail = sum(math.comb(changed, k) for k in range(min(lost, gained) + 1))
    return min(1.0, 2 * tail / (1 << changed))


def compare_paired(first: Mapping[str, bool], second: Mapping[str, bool]) -> PairedComparison:
    """Compare two evaluations over the tasks that both scored.

    Each maps task fingerprints to success. Raises TaskError when they share no task.
    """
    shared = first.keys() & second.keys()
    if not shared:
        raise TaskError("The two evaluations share no task, so they cannot be compared task by task.")
    verdicts = [(first[task], second[task]) for task in shared]
    lost, gained = verdicts.count((True, False)), verdicts.count((False, True))
    return PairedComparison(
        both=verdicts.count((True, True)),
        only_first=lost,
        only_second=gained,
        neither=verdicts.count((False, False)),
        p_value=mcnemar_p_value(lost, gained),
    )
