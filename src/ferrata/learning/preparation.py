"""From groups of trajectories to examples with advantages; whatever is left out is counted with its reason.

    prepare_grpo      groups -> examples and metrics
    untrained_reason  why a trajectory cannot be trained, or None

Every trajectory ends as an example or under one `dropped/*` reason, and every group as trained or under one
`groups/*` kind: the counts add up to `rl/trajectories` and `groups/total`.
"""

from __future__ import annotations

import math
from collections import Counter

import torch

from ferrata.algorithms.advantages import GroupSpread, classify_group
from ferrata.algorithms.table import advantage
from ferrata.errors import UsageError
from ferrata.learning.batch import Example
from ferrata.recipe import RlSection
from ferrata.records import Group, Trajectory

REASONS = ("faulty", "unscored", "not_finite", "greedy", "no_sampled_tokens", "no_spread")
"""Why a trajectory is not trained, in the order in which it is checked."""


def prepare_grpo(groups: list[Group], section: RlSection) -> tuple[list[Example], dict[str, float]]:
    """Give every sampled token of a trajectory the advantage of the trajectory within its group.

    Args:
        groups: trajectories of the same task from the same initial state; sizes may differ.
        section: which advantage, `normalise`, `spread_floor`.

    Returns:
        The examples of the groups whose rewards differ, and counts of everything: `rl/trajectories`,
        `rl/trajectories_trained`, `groups/*`, `dropped/*`.

    Raises:
        UsageError: a trajectory was sampled under a constraint.
    """
    _refuse_constrained(groups)
    examples: list[Example] = []
    dropped: Counter[str] = Counter()
    kinds: Counter[GroupSpread] = Counter()
    for group in groups:
        reasons = [untrained_reason(trajectory) for trajectory in group.trajectories]
        dropped.update(reason for reason in reasons if reason is not None)
        usable = [t for t, reason in zip(group.trajectories, reasons, strict=True) if reason is None]
        kind = _kind(usable, section)
        kinds[kind] += 1
        if kind is GroupSpread.MIXED:
            examples += _examples(usable, section)
        else:
            dropped["no_spread"] += len(usable)
    return examples, _metrics(groups, examples, dropped, kinds)


def _refuse_constrained(groups: list[Group]) -> None:
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


def _examples(trajectories: list[Trajectory], section: RlSection) -> list[Example]:
    advantages_G = advantage(section.algorithm)(_rewards(trajectories), section.normalise, section.spread_floor)
    return [Example.of(t, float(value)) for t, value in zip(trajectories, advantages_G, strict=True)]


def _metrics(
    groups: list[Group], examples: list[Example], dropped: Counter[str], kinds: Counter[GroupSpread]
) -> dict[str, float]:
    metrics = {
        "groups/total": float(len(groups)),
        "rl/trajectories": float(sum(len(group.trajectories) for group in groups)),
        "rl/trajectories_trained": float(len(examples)),
    }
    metrics |= {f"groups/{kind}": float(kinds[kind]) for kind in GroupSpread}
    return metrics | {f"dropped/{reason}": float(dropped[reason]) for reason in REASONS}
