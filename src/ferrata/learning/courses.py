"""From trajectories to advantages of turns: rewards by channel, the divergence taken off them, an algorithm on each.

    Scored              what the learner knows of a trajectory before the update
    turn_estimates      groups of trajectories -> advantages and value targets of every turn
    next_read           what a trajectory that was cut would have read next

Shape legend: T = turns of an episode; C = channels; N = turns of a whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ferrata.algorithms.credit import Course, Estimate, Settings, by_turn
from ferrata.algorithms.returns import combine_channels
from ferrata.algorithms.table import estimator
from ferrata.models.chat import Chat
from ferrata.recipe import RlSection
from ferrata.records import StopReason, Trajectory, Turn

UNFINISHED = "unfinished"
"""What stands for all that a cut episode did not get."""
OUTCOME = ("outcome", UNFINISHED)
"""Components of the outcome channel; all others are rewards along the way."""


@dataclass(frozen=True)
class Scored:
    """What the policy, its reference and its value head say about a trajectory before the update."""

    divergences_T: Tensor | None = None
    """Estimated divergence from the reference of each turn (nats, summed over its tokens); None where not asked for."""
    values_CT: Tensor | None = None
    """Value of the state before each turn, by channel; None without a value head."""
    last_values_C: Tensor | None = None
    """Value of the state in which a further turn would have begun, by channel; None where there is none: the task was
    over, or nobody knows what would have been read."""


@dataclass(frozen=True)
class Credit:
    """What every turn of one trajectory is worth."""

    advantages_T: Tensor
    values_CT: Tensor | None = None
    """As `Scored.values_CT`."""
    targets_CT: Tensor | None = None
    """What the value head should have said."""


def next_read(trajectory: Trajectory, chat: Chat, most: int, context: int) -> list[int]:
    """Ids that the policy would have read after a trajectory that a cap other than its task's own cut.

    Where the task's own cap ends an episode, the task is over, and there is nothing to be gained by waiting for it.

    Args:
        trajectory: any.
        chat: how conversations become ids.
        most: tokens of an observation, as `rollout.max_observation_tokens`.
        context: tokens that the policy can read.

    Returns:
        Nothing for a trajectory that ended by itself or in the middle of a turn, and where the ids would not fit.
    """
    if trajectory.stop is not StopReason.MAX_TURNS or not 0 < len(trajectory.turns) < trajectory.task.max_turns:
        return []
    closed = trajectory.turns[-1].token_ids[-1] == chat.end_id
    ids = chat.following(trajectory.final_observation, closed, most)
    return ids if len(trajectory.token_ids) + len(ids) < context else []


def channels(section: RlSection) -> tuple[str, ...]:
    """Names of the channels of reward, in the order of the value head's outputs."""
    return ("process", "outcome") if section.channels.apart else ("reward",)


def turn_estimates(
    groups: Sequence[Sequence[Trajectory]], scored: Sequence[Sequence[Scored]], section: RlSection
) -> list[list[Credit]]:
    """Credit of every trajectory, turn by turn.

    Args:
        groups: usable trajectories by group; empty groups are allowed.
        scored: one for each trajectory.
        section: the algorithm and its settings.
    """
    by_channel = [_channel(name, index, groups, scored, section) for index, name in enumerate(channels(section))]
    advantages = _combined(by_channel, section)
    credits: list[list[Credit]] = []
    for g, group in enumerate(groups):
        credits.append([])
        for i, _ in enumerate(group):
            targets = [part for estimates in by_channel if (part := estimates[g][i].targets_T) is not None]
            credits[-1].append(
                Credit(advantages[g][i], scored[g][i].values_CT, torch.stack(targets) if targets else None)
            )
    return credits


def _channel(
    name: str,
    index: int,
    groups: Sequence[Sequence[Trajectory]],
    scored: Sequence[Sequence[Scored]],
    section: RlSection,
) -> list[list[Estimate]]:
    """One channel's estimates of all trajectories."""
    courses = [
        [_course(trajectory, known, name, index, section) for trajectory, known in zip(group, others, strict=True)]
        for group, others in zip(groups, scored, strict=True)
    ]
    give, settings = estimator(section.algorithm, process=name == "process"), _settings(name, section)
    return by_turn(give, courses, settings) if section.view == "turn" else give(courses, settings)


def _course(trajectory: Trajectory, known: Scored, name: str, index: int, section: RlSection) -> Course:
    """The trajectory as one channel sees it. The divergence is taken off the rewards along the way.

    Where the value of what would have followed a cut is known, it takes the place of the penalty for the cut: with
    both, never submitting could pay more than an honest failure.
    """
    after = known.last_values_C if trajectory.stop is StopReason.MAX_TURNS and section.view == "episode" else None
    rewards = [_reward(turn, name, after is not None) for turn in trajectory.turns]
    if known.divergences_T is not None and name != "outcome":
        spent = known.divergences_T.tolist()
        rewards = [reward - section.kl * nats for reward, nats in zip(rewards, spent, strict=True)]
    return Course(
        torch.tensor(rewards, dtype=torch.float64),
        [turn.state_hash for turn in trajectory.turns],
        None if known.values_CT is None else known.values_CT[index],
        0.0 if after is None else float(after[index]),
    )


def _reward(turn: Turn, channel: str, goes_on: bool) -> float:
    """What a turn brought in a channel; of an episode that goes on, without the penalty for the cut."""
    if channel == "reward":
        return turn.reward - (turn.components.get(UNFINISHED, 0.0) if goes_on else 0.0)
    wanted = [name for name in turn.components if (name in OUTCOME) is (channel == "outcome")]
    return sum(turn.components[name] for name in wanted if not (goes_on and name == UNFINISHED))


def _settings(channel: str, section: RlSection) -> Settings:
    lam = section.lam
    if section.channels.apart:
        lam = section.channels.process_lam if channel == "process" else section.channels.outcome_lam
    return Settings(section.gamma, lam, section.normalise, section.spread_floor, section.step_weight)


def _combined(by_channel: list[list[list[Estimate]]], section: RlSection) -> list[list[Tensor]]:
    """The advantages of all channels in one."""
    if not section.channels.apart:
        return [[estimate.advantages_T for estimate in group] for group in by_channel[0]]
    flat = [[estimate.advantages_T for group in estimates for estimate in group] for estimates in by_channel]
    sizes = [[len(estimate.advantages_T) for estimate in group] for group in by_channel[0]]
    if not flat[0]:
        return [[] for _ in sizes]
    parts = {name: torch.cat(advantages) for name, advantages in zip(channels(section), flat, strict=True)}
    weights = {"process": section.channels.process, "outcome": section.channels.outcome}
    made_N = combine_channels(parts, weights, section.spread_floor)
    dealt = iter(made_N.split_with_sizes([size for group in sizes for size in group]))
    return [[next(dealt) for _ in group] for group in sizes]
