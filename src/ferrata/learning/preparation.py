"""From groups of trajectories to examples with advantages; whatever is left out is counted with its reason.

    prepare           groups -> examples and metrics
    assess            groups -> trajectories with the credit of each of their turns, and metrics
    example           trajectory and credit -> example
    has_spread        whether a group has something to say
    untrained_reason  why a trajectory cannot be trained, or None

Every trajectory ends as an example or under one `dropped/*` reason, and every group as trained or under one
`groups/*` kind: the counts add up to `rl/trajectories` and `groups/total`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from ferrata.algorithms.advantages import GroupSpread, classify_group
from ferrata.errors import UsageError
from ferrata.learning.batch import Example
from ferrata.learning.courses import Credit, Scored, turn_estimates
from ferrata.recipe import RlSection
from ferrata.records import Group, Trajectory

REASONS = ("faulty", "unscored", "not_finite", "greedy", "no_sampled_tokens", "no_spread")
"""Why a trajectory is not trained, in the order in which it is checked."""


Score = Callable[[Sequence[Trajectory]], list[Scored]]
"""What the learner knows of trajectories before the update."""
Credited = tuple[Trajectory, Credit]
"""A trajectory with what each of its turns is worth."""


def prepare(
    groups: Sequence[Group], section: RlSection, score: Score | None = None
) -> tuple[list[Example], dict[str, float]]:
    """`assess`, and each trajectory with its credit as an example: what an update on these groups alone learns from."""
    credited, metrics = assess(groups, section, score)
    return [example(trajectory, credit) for trajectory, credit in credited], metrics


def assess(
    groups: Sequence[Group], section: RlSection, score: Score | None = None
) -> tuple[list[Credited], dict[str, float]]:
    """Give every turn of the trajectories that can be trained its credit.

    Args:
        groups: trajectories of the same task from the same initial state; sizes may differ.
        section: the algorithm and its settings.
        score: asked once, for all usable trajectories, where the algorithm needs values or divergences.

    Returns:
        The trajectories of the groups that have something to say, and counts of everything: `rl/trajectories`,
        `rl/trajectories_trained`, `groups/*`, `dropped/*`.

    Raises:
        UsageError: a trajectory was sampled under a constraint.
    """
    _refuse_constrained(groups)
    dropped: Counter[str] = Counter()
    kinds: Counter[GroupSpread] = Counter()
    trained: list[list[Trajectory]] = []
    for group in groups:
        reasons = [untrained_reason(trajectory) for trajectory in group.trajectories]
        dropped.update(reason for reason in reasons if reason is not None)
        usable = [t for t, reason in zip(group.trajectories, reasons, strict=True) if reason is None]
        kind = _kind(usable, section)
        kinds[kind] += 1
        if kind is GroupSpread.MIXED or not section.by_group:
            trained.append(usable)
        else:
            dropped["no_spread"] += len(usable)
    credited = _credited(trained, section, score)
    return credited, _metrics(groups, len(credited), dropped, kinds)


def example(trajectory: Trajectory, credit: Credit, stale: bool = False) -> Example:
    """What the learner sees of a trajectory; `stale` when older weights played it."""
    return Example.of(
        trajectory,
        credit.advantages_T.tolist(),
        values=[] if credit.values_CT is None else credit.values_CT.tolist(),
        value_targets=[] if credit.targets_CT is None else credit.targets_CT.tolist(),
        stale=stale,
    )


def has_spread(group: Group, section: RlSection) -> bool:
    """True when the members of a group that can be trained differ in reward."""
    usable = [trajectory for trajectory in group.trajectories if untrained_reason(trajectory) is None]
    return _kind(usable, section) is GroupSpread.MIXED


def _refuse_constrained(groups: Sequence[Group]) -> None:
    """Never leave them out silently: whoever constrains what is trained has misunderstood something."""
    count = sum(trajectory.constrained for group in groups for trajectory in group.trajectories)
    if count:
        raise UsageError(
            f"{count} trajectories were sampled under a constraint and cannot be trained: their log-probabilities are "
            "those of what the constraint admitted, not the policy's, so the gradient would be biased. Collect for "
            "training without it; constrained decoding is for evaluation and serving."
        )


def untrained_reason(trajectory: Trajectory) -> str | None:
    """Why this trajectory cannot be trained whatever its group, or None when it can."""
    if trajectory.stop.faulty:
        return "faulty"
    if trajectory.reward is None:
        return "unscored"
    if not math.isfinite(trajectory.reward):
        return "not_finite"
    if trajectory.temperature <= 0.0:
        return "greedy"
    return None if any(trajectory.loss_mask) else "no_sampled_tokens"


def _rewards(trajectories: list[Trajectory]) -> torch.Tensor:
    """Rewards (G,) in double precision: equal rewards stay equal."""
    return torch.tensor([t.reward for t in trajectories], dtype=torch.float64)


def _kind(trajectories: list[Trajectory], section: RlSection) -> GroupSpread:
    return classify_group(_rewards(trajectories), [t.success for t in trajectories], section.spread_floor)


def _credited(groups: list[list[Trajectory]], section: RlSection, score: Score | None) -> list[Credited]:
    flat = [trajectory for group in groups for trajectory in group]
    known = iter(score(flat) if score else [Scored()] * len(flat))
    scored = [[next(known) for _ in group] for group in groups]
    credits = [credit for group in turn_estimates(groups, scored, section) for credit in group]
    return list(zip(flat, credits, strict=True))


def _metrics(
    groups: Sequence[Group], trained: int, dropped: Counter[str], kinds: Counter[GroupSpread]
) -> dict[str, float]:
    metrics = {
        "groups/total": float(len(groups)),
        "rl/trajectories": float(sum(len(group.trajectories) for group in groups)),
        "rl/trajectories_trained": float(trained),
    }
    metrics |= {f"groups/{kind}": float(kinds[kind]) for kind in GroupSpread}
    return metrics | {f"dropped/{reason}": float(dropped[reason]) for reason in REASONS}
