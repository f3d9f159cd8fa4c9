"""What one collection says about the policy, as named numbers for the store and the views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from ferrata.records import EventKind, Group, StopReason, Trajectory
from ferrata.rewards.spec import COMPONENTS
from ferrata.rollout.collection import CollectionStats


def measure_groups(groups: Sequence[Group]) -> dict[str, float]:
    """Means over the scored trajectories of a collection; shares of stop reasons over all of them.

    `rollout/success` is sampled success on training tasks, by tier as well; rewards are means per episode, by
    component; `rollout/invalid_share` counts turns.
    """
    every = [trajectory for group in groups for trajectory in group.trajectories]
    scored = [trajectory for trajectory in every if trajectory.reward is not None]
    if not scored:
        return {}
    return {
        "rollout/success": success_share(scored),
        "rollout/reward": fmean(trajectory.reward or 0.0 for trajectory in scored),
        "rollout/turns": fmean(len(trajectory.turns) for trajectory in scored),
        "rollout/tokens": fmean(len(trajectory.token_ids) for trajectory in scored),
        "rollout/invalid_share": invalid_share(scored),
        **_by_tier(scored),
        **_components(scored),
        **_stops(every),
    }


def measure_work(stats: CollectionStats) -> dict[str, float]:
    """Where the time of a collection went (seconds), how fast it sampled (tokens a second), what was dropped."""
    return {
        "time/sampling": stats.sampling_seconds,
        "time/prefill": stats.prefill_seconds,
        "time/decode": stats.decode_seconds,
        "time/environment": stats.environment_seconds,
        "time/idle": stats.idle_seconds,
        "time/collection": stats.seconds,
        "rollout/tokens_per_second": stats.tokens_sampled / max(stats.seconds, 1e-9),
        "rollout/tokens_sampled": stats.tokens_sampled,
        "rollout/tokens_read": stats.tokens_read,
        "rollout/retried": stats.retried,
        "rollout/dropped": sum(stats.dropped.values()),
        "rollout/overdue": stats.overdue,
    }


def success_share(trajectories: Sequence[Trajectory]) -> float:
    """Share of trajectories that the judge called a success."""
    return fmean(bool(trajectory.success) for trajectory in trajectories)


def invalid_share(trajectories: Sequence[Trajectory]) -> float:
    """Share of turns whose action was malformed or refused."""
    turns = sum(len(trajectory.turns) for trajectory in trajectories)
    return sum(trajectory.count(EventKind.INVALID) for trajectory in trajectories) / max(1, turns)


def _by_tier(scored: Sequence[Trajectory]) -> dict[str, float]:
    tiers = sorted({trajectory.task.tier for trajectory in scored})
    return {f"rollout/success_tier_{tier}": success_share([t for t in scored if t.task.tier == tier]) for tier in tiers}


def _components(scored: Sequence[Trajectory]) -> dict[str, float]:
    sums = [trajectory.components for trajectory in scored]
    return {f"reward/{name}": fmean(total.get(name, 0.0) for total in sums) for name in COMPONENTS}


def _stops(every: Sequence[Trajectory]) -> dict[str, float]:
    counts = Counter(trajectory.stop for trajectory in every)
    return {f"stop/{reason.value}": counts[reason] / len(every) for reason in StopReason}
