"""How much better each turn went than expected: one function for each algorithm, on the rewards of its turns.

    Course          one episode as these functions see it: rewards, states and values of its turns
    Settings        discount, trace, normalisation
    Estimate        advantage of every turn, and what its value should have been

    grpo            the episode against the others of its group (Shao et al. 2024)
    rloo            the same against the others alone (Ahmadian et al. 2024)
    reinforce_pp    return of each turn against the whole batch (Hu 2025, "REINFORCE++")
    gigpo           the episode against its group, and each turn against turns from the same state (Feng et al. 2025)
    ppo             generalised advantage estimation with a value head (Schulman et al. 2016, 2017)
    to_go           return of each turn against all turns of the group: for rewards along the way
    by_turn         any of them, with every turn as an episode of its own: a bandit, for comparison

Every function takes the courses of all groups of a collection and gives an estimate for each. All tokens of a turn get
the turn's advantage. An advantage that an algorithm takes from the whole episode is the same in all its turns.

Shape legend: T = turns of one episode; G = members of a group; N = turns of the whole collection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ferrata.algorithms.advantages import group_advantages, has_spread, leave_one_out, step_groups
from ferrata.algorithms.returns import discounted_returns, gae, standardise


@dataclass(frozen=True)
class Course:
    """One episode, turn by turn."""

    rewards_T: Tensor
    """What each turn brought."""
    states: Sequence[str]
    """The environment's state hash before each turn. Equal hashes have equal futures."""
    values_T: Tensor | None = None
    """Estimated return from each turn on; None without a value head."""
    last_value: float = 0.0
    """Estimated return after the last turn, where the episode could have gone on and that is known; else 0.0."""


@dataclass(frozen=True)
class Settings:
    """What the functions of this module may be told."""

    gamma: float = 1.0
    """Discount per turn, 0 to 1."""
    lam: float = 1.0
    """Trace of the generalised advantage estimation, 0 to 1."""
    normalise: bool = True
    """Divide by a standard deviation: that of the group, or of the batch where there is no group."""
    spread_floor: float = 0.05
    """Smallest standard deviation that counts as a difference, in units of reward."""
    step_weight: float = 1.0
    """Weight of GiGPO's comparison of turns, beside that of episodes."""


@dataclass(frozen=True)
class Estimate:
    """What an algorithm makes of one episode."""

    advantages_T: Tensor
    """(T,) in float32."""
    targets_T: Tensor | None = None
    """(T,) what the value head should have said; None where there is none."""


Groups = Sequence[Sequence[Course]]
Estimator = Callable[[Groups, Settings], list[list[Estimate]]]
"""(groups of courses, settings) -> one estimate for each course, in the same order."""


def grpo(groups: Groups, settings: Settings) -> list[list[Estimate]]:
    """`A_i = (R_i - mean(R)) / std(R)` over the group, `R_i` the sum of the episode's rewards; in all its turns."""

    def against_group(sums_G: Tensor) -> Tensor:
        return group_advantages(sums_G, settings.normalise, settings.spread_floor)

    return [_of_episodes(group, against_group(_sums(group))) for group in groups]


def rloo(groups: Groups, settings: Settings) -> list[list[Estimate]]:
    """`A_i = R_i - mean of the other members' R`, over the group's spread when `normalise`; in all turns."""
    return [
        _of_episodes(group, leave_one_out(_sums(group), settings.normalise, settings.spread_floor)) for group in groups
    ]


def reinforce_pp(groups: Groups, settings: Settings) -> list[list[Estimate]]:
    """`A_t = (G_t - mean(G)) / std(G)` over all turns of the batch, `G_t` the discounted return from the turn on."""
    returns = [[discounted_returns(course.rewards_T, settings.gamma) for course in group] for group in groups]
    return _estimates(groups, _over_batch(returns, settings))


def gigpo(groups: Groups, settings: Settings) -> list[list[Estimate]]:
    """`A_t = A_episode + w A_step`: GRPO's advantage, and the turn's among the group's turns in the same state."""
    episodes = grpo(groups, settings)
    return [
        [
            replace(estimate, advantages_T=estimate.advantages_T + settings.step_weight * step_T)
            for estimate, step_T in zip(estimates, _of_steps(group, settings), strict=True)
        ]
        for group, estimates in zip(groups, episodes, strict=True)
    ]


def ppo(groups: Groups, settings: Settings) -> list[list[Estimate]]:
    """Generalised advantage estimation over turns, standardised over the batch when `normalise`."""
    advantages: list[list[Tensor]] = []
    targets: list[list[Tensor]] = []
    for group in groups:
        pairs = [_gae(course, settings) for course in group]
        advantages.append([advantage_T for advantage_T, _ in pairs])
        targets.append([target_T for _, target_T in pairs])
    if settings.normalise:
        advantages = _over_batch(advantages, settings)
    return _estimates(groups, advantages, targets)


def to_go(groups: Groups, settings: Settings) -> list[list[Estimate]]:
    """`A_t = (G_t - mean(G)) / std(G)` over all turns of the group, `G_t` the discounted return from the turn on.

    What a turn brought to those after it, for a channel of rewards along the way. The mean is one number for the whole
    group, not one for each number of turns: at the same turn number two episodes are in different states. A group whose
    episodes brought the same in all says nothing: that returns shrink towards the end is no difference between them.
    """
    estimates = []
    for group in groups:
        returns = [discounted_returns(course.rewards_T, settings.gamma) for course in group]
        if not has_spread(_sums(group), settings.spread_floor):
            estimates.append([Estimate(torch.zeros_like(part)) for part in returns])
            continue
        made_N = group_advantages(_end_to_end(returns), settings.normalise, settings.spread_floor)
        estimates.append([Estimate(part) for part in made_N.split_with_sizes([len(part) for part in returns])])
    return estimates


def by_turn(estimator: Estimator, groups: Groups, settings: Settings) -> list[list[Estimate]]:
    """Each turn as an episode of one turn: what comes after it does not count."""
    single = [[turn for course in group for turn in _turns(course)] for group in groups]
    found = estimator(single, replace(settings, gamma=0.0, lam=0.0))
    return [_joined(group, estimates) for group, estimates in zip(groups, found, strict=True)]


def _sums(group: Sequence[Course]) -> Tensor:
    """(G,) reward of each episode, in double precision and added in order: equal rewards stay equal."""
    return torch.tensor([sum(course.rewards_T.tolist()) for course in group], dtype=torch.float64)


def _of_episodes(group: Sequence[Course], advantages_G: Tensor) -> list[Estimate]:
    return [
        Estimate(advantage.expand(len(course.rewards_T))) for course, advantage in zip(group, advantages_G, strict=True)
    ]


def _of_steps(group: Sequence[Course], settings: Settings) -> list[Tensor]:
    """Advantage of each turn of a group among its turns in the same state."""
    returns_S = _end_to_end([discounted_returns(course.rewards_T, settings.gamma) for course in group])
    states = [state for course in group for state in course.states]
    episodes = [number for number, course in enumerate(group) for _ in course.states]
    advantages_S = step_groups(returns_S, states, episodes, settings.normalise, settings.spread_floor)
    return list(advantages_S.split_with_sizes([len(course.rewards_T) for course in group]))


def _gae(course: Course, settings: Settings) -> tuple[Tensor, Tensor]:
    assert course.values_T is not None, "PPO needs a value for every turn"
    return gae(course.rewards_T, course.values_T, settings.gamma, settings.lam, course.last_value)


def _end_to_end(parts: Sequence[Tensor]) -> Tensor:
    """All parts in one; also none."""
    return torch.cat(list(parts)) if parts else torch.zeros(0)


def _over_batch(parts: list[list[Tensor]], settings: Settings) -> list[list[Tensor]]:
    """Centre the numbers of all turns of the batch, and divide by their spread when `normalise`."""
    flat = [part for group in parts for part in group]
    all_N = _end_to_end(flat)
    made_N = standardise(all_N, settings.spread_floor) if settings.normalise else all_N - all_N.mean()
    dealt = iter(made_N.split_with_sizes([len(part) for part in flat]))
    return [[next(dealt) for _ in group] for group in parts]


def _estimates(
    groups: Groups, advantages: list[list[Tensor]], targets: list[list[Tensor]] | None = None
) -> list[list[Estimate]]:
    return [
        [Estimate(advantages[g][i], targets[g][i] if targets else None) for i in range(len(group))]
        for g, group in enumerate(groups)
    ]


def _turns(course: Course) -> list[Course]:
    """The course cut into courses of one turn; after each, the task is over."""
    values = [None] * len(course.states) if course.values_T is None else list(course.values_T.chunk(len(course.states)))
    parts = zip(course.rewards_T.chunk(len(course.states)), course.states, values, strict=True)
    return [Course(reward, [state], value) for reward, state, value in parts]


def _joined(group: Sequence[Course], estimates: Sequence[Estimate]) -> list[Estimate]:
    """Estimates of single turns, put together again by course."""
    single, joined = iter(estimates), []
    for course in group:
        parts = [next(single) for _ in course.states]
        targets = [part.targets_T for part in parts if part.targets_T is not None]
        joined.append(
            Estimate(torch.cat([part.advantages_T for part in parts]), torch.cat(targets) if targets else None)
        )
    return joined
