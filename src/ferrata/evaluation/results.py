"""What an evaluation says: one record, computed from trajectories alone, stored as JSON, read back by the viewer.

    summarise(trajectories) -> EvaluationResult
    encode / decode            JSON-ready content, as the run's store keeps it

Unscored episodes (the environment or the judge failed) are counted apart and enter no share and no mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

import msgspec

from ferrata.evaluation.statistics import mean_interval, wilson_interval
from ferrata.records import EventKind, Trajectory
from ferrata.tasks.splits import task_set_version

Key = TypeVar("Key")


class Rate(msgspec.Struct, frozen=True):
    """How often something happened, with its Wilson interval at 95 %."""

    count: int
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, count: int, n: int) -> Rate:
        """The rate of `count` in `n`."""
        low, high = wilson_interval(count, n)
        return cls(count, n, low, high)

    @property
    def share(self) -> float:
        """The share count / n; not a number when n is 0, for then nobody knows."""
        return self.count / self.n if self.n else math.nan


class Mean(msgspec.Struct, frozen=True):
    """A mean over episodes, with its t interval at 95 %."""

    value: float
    low: float | None
    """None when fewer than two episodes were scored."""
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """The mean of the values; 0.0 of none."""
        low, high = mean_interval(values)
        known = math.isfinite(low)
        return cls(_mean(values), low if known else None, high if known else None)


class FamilyResult(msgspec.Struct, frozen=True):
    """Success on one family of tasks."""

    family: str
    tier: int
    success: Rate


class EvaluationResult(msgspec.Struct, frozen=True):
    """One evaluation. Shares and means are over scored episodes."""

    env: str
    tiers: tuple[int, ...]
    split: str
    n: int
    """Episodes asked for: scored + unscored."""
    scored: int
    unscored: int
    """Episodes that nobody could judge; never counted as failures."""
    seed: int
    """Seed of the tasks."""
    decoding: str
    """'greedy' or 'sampled'."""
    temperature: float
    success: Rate
    by_tier: dict[int, Rate]
    by_family: tuple[FamilyResult, ...]
    """Sorted by tier, then by name."""
    invalid: Rate
    """Turns whose action was malformed or refused, among all turns."""
    recovery: Rate
    """Successes among the episodes that had at least one invalid action."""
    turns: float
    """Mean turns of an episode."""
    tokens: float
    """Mean length of a trajectory: tokens read and written."""
    reward: Mean
    """Mean return of an episode."""
    components: dict[str, float]
    """Mean reward of an episode by component; they sum to `reward.value`."""
    stops: dict[str, int]
    """Episodes by stop reason, the unscored ones included."""
    outcomes: dict[str, bool]
    """Verdict by task fingerprint, for paired comparison (the last one where a task was asked twice)."""
    seconds: float
    """Wall time of the evaluation."""
    versions: dict[str, str]
    """Content hashes: 'tasks' of the task set; the caller adds others, e.g. 'rewards'."""
    invalid_kinds: dict[str, int] = {}
    """Invalid actions by what was wrong with them (`envs.actions.Fault`), the most frequent first."""
    constrained: bool = False
    """True when only well-formed actions could be sampled."""


def summarise(
    trajectories: Sequence[Trajectory],
    *,
    seed: int = 0,
    asked: int | None = None,
    seconds: float = 0.0,
    versions: dict[str, str] | None = None,
) -> EvaluationResult:
    """Summarise the episodes of one evaluation. Pure: the same trajectories give the same result.

    There must be at least one trajectory, and all of one environment, split, temperature and constraint. `seed` is
    that of the tasks. `asked` is how many episodes were asked for, where some were dropped before they became
    trajectories: those are unscored. `seconds` is wall time, and `versions` are content hashes to keep with the result.
    """
    if not trajectories:
        raise ValueError("an evaluation needs at least one trajectory")
    first = trajectories[0]
    scored = [trajectory for trajectory in trajectories if is_scored(trajectory)]
    n = max(asked or 0, len(trajectories))
    return EvaluationResult(
        env=first.task.env,
        tiers=tuple(sorted({trajectory.task.tier for trajectory in trajectories})),
        split=first.task.split,
        n=n,
        scored=len(scored),
        unscored=n - len(scored),
        seed=seed,
        decoding="greedy" if first.temperature == 0.0 else "sampled",
        temperature=first.temperature,
        success=success_rate(scored),
        by_tier=_by_tier(scored),
        by_family=_by_family(scored),
        invalid=_invalid_rate(scored),
        recovery=success_rate([t for t in scored if t.count(EventKind.INVALID)]),
        turns=_mean([len(t.turns) for t in scored]),
        tokens=_mean([len(t.token_ids) for t in scored]),
        reward=Mean.of([t.reward for t in scored if t.reward is not None]),
        components=_mean_components(scored),
        stops=dict(sorted(Counter(str(t.stop) for t in trajectories).items())),
        outcomes={t.task.fingerprint: bool(t.success) for t in scored},
        seconds=seconds,
        versions={"tasks": task_set_version(t.task for t in trajectories), **(versions or {})},
        invalid_kinds=_invalid_kinds(scored),
        constrained=first.constrained,
    )


def is_scored(trajectory: Trajectory) -> bool:
    """True when the episode says something about the agent: there is a verdict, and nothing of ours failed."""
    return trajectory.success is not None and not trajectory.stop.faulty


def success_rate(scored: Sequence[Trajectory]) -> Rate:
    """Successes among scored episodes. Success is the judge's verdict, never a positive reward."""
    return Rate.of(sum(bool(trajectory.success) for trajectory in scored), len(scored))


def encode(result: EvaluationResult) -> dict[str, Any]:
    """The result as JSON-ready content, as the run's store keeps it."""
    content: dict[str, Any] = msgspec.to_builtins(result, str_keys=True)
    return content


def decode(content: Mapping[str, Any]) -> EvaluationResult:
    """The result whose content `encode` made."""
    return msgspec.convert(content, EvaluationResult, str_keys=True)


def _partition(scored: Iterable[Trajectory], key: Callable[[Trajectory], Key]) -> dict[Key, list[Trajectory]]:
    parts: dict[Key, list[Trajectory]] = {}
    for trajectory in scored:
        parts.setdefault(key(trajectory), []).append(trajectory)
    return parts


def _by_tier(scored: Sequence[Trajectory]) -> dict[int, Rate]:
    parts = _partition(scored, lambda trajectory: trajectory.task.tier)
    return {tier: success_rate(parts[tier]) for tier in sorted(parts)}


def _by_family(scored: Sequence[Trajectory]) -> tuple[FamilyResult, ...]:
    parts = _partition(scored, lambda trajectory: (trajectory.task.tier, trajectory.task.family))
    return tuple(FamilyResult(family, tier, success_rate(parts[tier, family])) for tier, family in sorted(parts))


def _invalid_rate(scored: Sequence[Trajectory]) -> Rate:
    turns = [turn for trajectory in scored for turn in trajectory.turns]
    invalid = sum(any(event.kind == EventKind.INVALID for event in turn.events) for turn in turns)
    return Rate.of(invalid, len(turns))


def _invalid_kinds(scored: Sequence[Trajectory]) -> dict[str, int]:
    events = (event for trajectory in scored for turn in trajectory.turns for event in turn.events)
    return dict(Counter(event.name for event in events if event.kind == EventKind.INVALID).most_common())


def _mean_components(scored: Sequence[Trajectory]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for trajectory in scored:
        for name, value in trajectory.components.items():
            totals[name] = totals.get(name, 0.0) + value
    return {name: total / len(scored) for name, total in sorted(totals.items())}


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
