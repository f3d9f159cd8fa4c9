"""Worlds so small that every episode can be written down, and exact gradients in them.

The policy is a table of logits, one for each state and action.

    Bandit   two arms, one turn
    Skip     six states in a row; a turn moves on by one or by three, so episodes have two to six turns
    Walk     six states in a row; three turns, each to the left or to the right, so that a state may come twice
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ferrata.algorithms.aggregation import Weights, constant
from ferrata.algorithms.policy_gradient import clipped_surrogate, token_log_ratio
from ferrata.learning.courses import Scored, turn_estimates
from ferrata.recipe import RlSection
from ferrata.records import StopReason, Task, Trajectory, Turn

TASK = Task("chain", "walk", 1, "train", "Go.", {}, (), 9)
PRECISION = 3e-6
"""Advantages are kept in single precision."""


class Step(NamedTuple):
    state: int
    action: int
    reward: float


class World(NamedTuple):
    """A world of six states and two actions."""

    move: Callable[[int, int], tuple[int | None, float]]
    """(state, action) -> (the next state, None when the task is over; reward)"""
    start: int = 0
    turns: int = 99
    """A budget cuts the episode after so many."""


def skip(state: int, action: int) -> tuple[int | None, float]:
    """Rewards on the way, and the largest at the end for those who come by state 5: decided turns before it is paid."""
    following = state + (3 if action else 1)
    paid = {(0, 1): -1.0, (2, 0): 2.0, (5, 0): 4.0}.get((state, action), 0.5 * state * action)
    return (following if following < 6 else None), paid


def walk(state: int, action: int) -> tuple[int | None, float]:
    """Right pays the further right it begins; left pays a little."""
    following = min(max(state + (1 if action else -1), 0), 5)
    return following, 0.3 if action == 0 else float(state)


def bandit(state: int, action: int) -> tuple[int | None, float]:
    return None, (3.0, 1.0)[action]


BANDIT, SKIP, WALK = World(bandit), World(skip), World(walk, start=2, turns=3)


def table() -> Tensor:
    """Logits (states, actions) of a policy that is neither certain nor uniform."""
    made = torch.randn((6, 2), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return made.requires_grad_()


@dataclass(frozen=True)
class Path:
    """One whole episode."""

    steps: tuple[Step, ...]
    following: int | None
    """The state after the last step; None when the task is over."""


def paths(world: World, state: int | None = None, done: tuple[Step, ...] = ()) -> list[Path]:
    """Every episode that can happen."""
    state = world.start if not done else state
    if state is None or len(done) == world.turns:
        return [Path(done, state)]
    found = []
    for action in (0, 1):
        following, reward = world.move(state, action)
        found += paths(world, following, (*done, Step(state, action, reward)))
    return found


def log_probability(path: Path, logprobs: Tensor) -> Tensor:
    return torch.stack([logprobs[step.state, step.action] for step in path.steps]).sum()


def gradient_of(objective: Callable[[Tensor], Tensor]) -> Tensor:
    """Of a function of the log-probabilities (states, actions), by the logits."""
    logits = table()
    objective(logits.log_softmax(dim=1)).backward()
    assert logits.grad is not None
    return logits.grad


def exact_gradient(world: World) -> Tensor:
    """Of the expected sum of rewards."""

    def value(logprobs: Tensor) -> Tensor:
        each = [log_probability(path, logprobs).exp() * sum(s.reward for s in path.steps) for path in paths(world)]
        return torch.stack(each).sum()

    return gradient_of(value)


def values(world: World, gamma: float = 1.0, sweeps: int = 200) -> list[float]:
    """The true value of every state when nothing cuts the episode."""
    chances = table().detach().softmax(dim=1).tolist()
    found = [0.0] * 6
    for _ in range(sweeps):
        for state, action_chances in enumerate(chances):
            total = 0.0
            for action, chance in enumerate(action_chances):
                following, reward = world.move(state, action)
                total += chance * (reward + gamma * (0.0 if following is None else found[following]))
            found[state] = total
    return found


@cache
def trajectory(path: Path) -> Trajectory:
    """The episode as the learner gets it: a turn is one token, and the environment's hash names its state."""
    turns = [Turn("", "", [s.action], [-1.0], None, (), {"outcome": s.reward}, f"state {s.state}") for s in path.steps]
    return _trajectory(turns, StopReason.COMPLETED if path.following is None else StopReason.MAX_TURNS)


def _trajectory(turns: list[Turn], stop: StopReason) -> Trajectory:
    count, reward = len(turns), sum(turn.reward for turn in turns)
    return Trajectory(TASK, turns, [1] * (count + 1), [False] + [True] * count, [0.0] * (count + 1), stop, None, reward)


def section(algorithm: str, **more: Any) -> RlSection:
    plain = {"normalise": False, "spread_floor": 1e-12, "gamma": 1.0, "kl": 0.0}
    return RlSection(algorithm=algorithm, **{**plain, **more})


def expected_gradient(
    world: World,
    chosen: RlSection,
    size: int,
    know: Callable[[Path], Scored] = lambda path: Scored(),
    weigh: Callable[[Sequence[int], int], Weights] = constant,
) -> Tensor:
    """What the algorithm does on average with batches of one group of `size` episodes: up the gradient, not down.

    A batch is counted once for all the orders in which it can be sampled.
    """
    batches = list(itertools.combinations_with_replacement(paths(world), size))
    orders = torch.tensor([len(set(itertools.permutations(batch))) for batch in batches], dtype=torch.float64)
    if chosen.algorithm == "reinforce++":  # Compares with the whole batch.
        credits = [turn_estimates([_played(batch)], [_known(batch, know)], chosen)[0] for batch in batches]
    else:
        credits = turn_estimates([_played(b) for b in batches], [_known(b, know) for b in batches], chosen)
    advantages_N = torch.cat([credit.advantages_T for group in credits for credit in group]).double()
    steps = [step for batch in batches for path in batch for step in path.steps]
    places = torch.tensor([[step.state, step.action] for step in steps]).T
    sizes = [sum(len(path.steps) for path in batch) for batch in batches]
    weights_N = torch.cat([_token_weights(batch, weigh) for batch in batches])

    def improvement(logprobs: Tensor) -> Tensor:
        now = logprobs.detach()
        chances = orders * torch.stack([sum(log_probability(path, now) for path in batch).exp() for batch in batches])
        logprobs_N = logprobs[places[0], places[1]]
        loss_N = clipped_surrogate(token_log_ratio(logprobs_N, logprobs_N.detach()), advantages_N, 0.2, 0.2)
        return -(chances.repeat_interleave(torch.tensor(sizes)) * weights_N * loss_N).sum()

    return gradient_of(improvement)


def _played(batch: Iterable[Path]) -> list[Trajectory]:
    return [trajectory(path) for path in batch]


def _known(batch: Iterable[Path], know: Callable[[Path], Scored]) -> list[Scored]:
    return [know(path) for path in batch]


def _token_weights(batch: Sequence[Path], weigh: Callable[[Sequence[int], int], Weights]) -> Tensor:
    """Weight of every turn of a batch in its loss."""
    counts = [len(path.steps) for path in batch]
    weights, divisor = weigh(counts, 1)
    each = torch.tensor(weights or [1.0] * len(counts), dtype=torch.float64)
    return each.repeat_interleave(torch.tensor(counts)) / divisor


def assert_close(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found, exact, atol=PRECISION, rtol=PRECISION)
