"""Expected gradients of every algorithm, by enumerating all episodes, against the exact policy gradient.

The policy is a table of logits. `J = sum_paths p(path) R(path)` is differentiated as it stands; the expectation of what
an algorithm would do is the sum over every batch that can be sampled, weighted by its probability. Nothing is sampled,
so what is said to be exact is exact, and what is biased is shown to be so, by how much.

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

import pytest
import torch
from torch import Tensor

from ferrata.algorithms.aggregation import Weights, constant, sequence_mean, token_mean
from ferrata.algorithms.divergence import k1, k2, k3
from ferrata.algorithms.policy_gradient import clipped_surrogate, token_log_ratio, truncated_weight
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


def test_the_exact_gradient_of_the_bandit_by_hand() -> None:
    # J = p r0 + (1 - p) r1: dJ/dl0 = p (1 - p) (r0 - r1) = -dJ/dl1
    p = table().detach()[0].softmax(dim=0)[0].item()
    expected = torch.zeros(6, 2, dtype=torch.float64)
    expected[0] = torch.tensor([2.0, -2.0]) * p * (1 - p)
    assert_close(exact_gradient(BANDIT), expected)
    assert len(paths(SKIP)) == 13
    assert len(paths(WALK)) == 8
    assert {len(path.steps) for path in paths(SKIP)} == {2, 3, 4, 5, 6}


WORLDS = pytest.mark.parametrize("world", [BANDIT, SKIP, WALK], ids=["bandit", "skip", "walk"])


@WORLDS
@pytest.mark.parametrize("size", [2, 3])
def test_rloo_is_unbiased(world: World, size: int) -> None:
    """The baseline of a member does not contain its own reward."""
    assert_close(expected_gradient(world, section("rloo"), size), exact_gradient(world))


@WORLDS
@pytest.mark.parametrize("size", [2, 3])
def test_grpo_without_a_divisor_has_the_right_direction_and_a_known_length(world: World, size: int) -> None:
    """Each member is a part of its own baseline: the gradient is shorter by `(G - 1) / G`, and nothing else."""
    assert_close(expected_gradient(world, section("grpo"), size), exact_gradient(world) * (size - 1) / size)


def test_grpo_with_a_divisor_has_another_direction() -> None:
    """Dividing by the spread of each group weighs the groups: rare differences count as much as large ones (Dr. GRPO).

    So for groups of three; for two, an advantage is 1 or -1 whatever the difference.
    """
    found, exact = expected_gradient(SKIP, section("grpo", normalise=True), 3), exact_gradient(SKIP)
    assert _bend(found, exact) > BENT


def test_only_the_constant_divisor_keeps_the_direction_where_episodes_differ_in_length() -> None:
    exact, chosen = exact_gradient(SKIP), section("rloo")
    assert _bend(expected_gradient(SKIP, chosen, 2, weigh=constant), exact) < STRAIGHT
    for weigh in (sequence_mean, token_mean):
        assert _bend(expected_gradient(SKIP, chosen, 2, weigh=weigh), exact) > BENT
    for weigh in (sequence_mean, token_mean):  # Where all are of one length, all three are the same but for a factor.
        assert _bend(expected_gradient(WALK, chosen, 2, weigh=weigh), exact_gradient(WALK)) < STRAIGHT


STRAIGHT, BENT = 1e-9, 1e-4


def _bend(found: Tensor, exact: Tensor) -> float:
    """One minus the cosine of the angle between two gradients."""
    return 1.0 - float((found * exact).sum() / (found.norm() * exact.norm()))


@pytest.mark.parametrize("size", [2, 3])
def test_reinforce_on_the_bandit_is_shorter_by_its_own_part_in_the_mean(size: int) -> None:
    found = expected_gradient(BANDIT, section("reinforce++"), size)
    assert_close(found, exact_gradient(BANDIT) * (size - 1) / size)


def test_the_bias_of_reinforce_falls_with_the_size_of_the_batch() -> None:
    """The mean over B episodes of one length holds the episode's own returns: what it does is `g - c / B` exactly."""
    exact = exact_gradient(WALK)
    of_two, of_three = (expected_gradient(WALK, section("reinforce++"), size) for size in (2, 3))
    assert _bend(of_two, exact) > BENT
    assert_close(3 * of_three - 2 * of_two, exact)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_ppo_with_true_values_is_unbiased_for_every_trace(lam: float, size: int) -> None:
    true = values(SKIP)

    def know(path: Path) -> Scored:
        return Scored(values_CT=torch.tensor([[true[step.state] for step in path.steps]]), last_values_C=torch.ones(1))

    assert_close(expected_gradient(SKIP, section("ppo", lam=lam), size, know), exact_gradient(SKIP))


def test_ppo_with_wrong_values_is_unbiased_with_the_full_trace_alone() -> None:
    wrong = [1.0, -2.0, 0.5, 3.0, 0.0, -1.0]

    def know(path: Path) -> Scored:
        return Scored(values_CT=torch.tensor([[wrong[step.state] for step in path.steps]]), last_values_C=torch.ones(1))

    assert_close(expected_gradient(SKIP, section("ppo", lam=1.0), 1, know), exact_gradient(SKIP))
    assert _bend(expected_gradient(SKIP, section("ppo", lam=0.5), 1, know), exact_gradient(SKIP)) > BENT


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_ppo_goes_on_beyond_a_cut_with_the_value_of_the_state_after_it(lam: float) -> None:
    """Cut after two turns, the gradient is that of what would have followed: `sum_t grad log pi Q(s_t, a_t)`."""
    gamma = 0.9
    true, cut = values(SKIP, gamma), World(skip, turns=2)

    def know(path: Path) -> Scored:
        met = torch.tensor([[true[step.state] for step in path.steps]])
        after = 99.0 if path.following is None else true[path.following]  # What follows the end of a task is nothing.
        return Scored(values_CT=met, last_values_C=torch.tensor([after]))

    def improvement(logprobs: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for path in paths(cut):
            for step in path.steps:
                following, reward = skip(step.state, step.action)
                quality = reward + gamma * (0.0 if following is None else true[following])
                chance = log_probability(path, logprobs.detach()).exp()
                total = total + chance * logprobs[step.state, step.action] * quality
        return total

    assert_close(expected_gradient(cut, section("ppo", lam=lam, gamma=gamma), 1, know), gradient_of(improvement))


@pytest.mark.parametrize("size", [2, 3])
def test_gigpo_adds_the_gradient_of_each_state_by_how_many_meet_there(size: int) -> None:
    """Its comparison of turns from one state is the exact gradient of that state's row, times what is left of it.

    A member is a part of its own baseline here too: of n members that meet in a state, `(n - 1) / n` is left, on
    average over the others, who come there with the state's probability.
    """
    chance = _visits(SKIP)
    left = torch.zeros(6, 1, dtype=torch.float64)
    for state in range(6):
        for others in itertools.product((0, 1), repeat=size - 1):
            weight = torch.tensor([chance[state] if comes else 1 - chance[state] for comes in others]).prod()
            left[state] += weight * sum(others) / (1 + sum(others))
    exact = exact_gradient(SKIP)
    of_episodes = exact * (size - 1) / size
    assert_close(expected_gradient(SKIP, section("gigpo", step_weight=0.0), size), of_episodes)
    assert_close(expected_gradient(SKIP, section("gigpo", step_weight=0.5), size), of_episodes + 0.5 * left * exact)


def _visits(world: World) -> list[float]:
    """Probability that an episode comes to each state; it comes at most once."""
    logprobs = table().detach().log_softmax(dim=1)
    return [
        sum(
            float(log_probability(path, logprobs).exp())
            for path in paths(world)
            if state in [step.state for step in path.steps]
        )
        for state in range(6)
    ]


# The divergence --------------------------------------------------------------------------------------------------


def reference() -> Tensor:
    made = torch.randn((6, 2), generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    return made.log_softmax(dim=1)


def test_the_divergence_taken_off_the_reward_gives_the_gradient_of_both() -> None:
    """RLOO on rewards less k1 follows `J - kl KL(pi || reference)` of whole episodes, without a bias."""
    kl, held, now = 0.7, reference(), table().detach().log_softmax(dim=1)

    def know(path: Path) -> Scored:
        return Scored(torch.stack([(now - held)[step.state, step.action] for step in path.steps]))

    def objective(logprobs: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for path in paths(SKIP):
            nats = log_probability(path, logprobs) - log_probability(path, held)
            chance = log_probability(path, logprobs).exp()
            total = total + chance * (sum(step.reward for step in path.steps) - kl * nats)
        return total

    found = expected_gradient(SKIP, section("rloo", kl=kl, kl_in="reward", kl_estimator="k1"), 2, know)
    assert_close(found, gradient_of(objective))


def _row(formula: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient of a function of the log-probabilities of one state with four actions."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    formula(logits.log_softmax(dim=0)).backward()
    assert logits.grad is not None
    return logits.grad


def test_what_the_estimators_pull_towards_as_a_term_of_the_loss() -> None:
    """On average over the policy's own tokens: k1 nothing, k2 down KL(pi || reference), k3 down KL(reference || pi)."""
    held = torch.tensor([-0.5, 0.4, 0.2, 0.9], dtype=torch.float64).log_softmax(dim=0)

    def pull(estimator: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return _row(lambda logprobs: (logprobs.detach().exp() * estimator(logprobs, held)).sum())

    assert_close(pull(k1), torch.zeros(4, dtype=torch.float64))
    assert_close(pull(k2), _row(lambda logprobs: (logprobs.exp() * (logprobs - held)).sum()))
    assert_close(pull(k3), _row(lambda logprobs: (held.exp() * (held - logprobs)).sum()))


# Old data --------------------------------------------------------------------------------------------------------

OLD = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
GOOD = torch.tensor([2.0, -1.0], dtype=torch.float64)
"""Advantages of the two arms."""


def _bandit_gradient(formula: Callable[[Tensor], Tensor]) -> Tensor:
    logits = torch.tensor([0.2, -0.1], dtype=torch.float64, requires_grad=True)
    formula(logits.log_softmax(dim=0)).backward()
    assert logits.grad is not None
    return logits.grad


def _wanted() -> Tensor:
    return _bandit_gradient(lambda logprobs: -(logprobs.exp() * GOOD).sum())


def test_the_ratio_makes_up_for_the_policy_that_sampled_as_long_as_nothing_is_clipped() -> None:
    def loss(logprobs: Tensor) -> Tensor:
        return (OLD.exp() * clipped_surrogate(token_log_ratio(logprobs, OLD), GOOD, 0.9, 9.0)).sum()

    assert_close(_bandit_gradient(loss), _wanted())

    def clipped(logprobs: Tensor) -> Tensor:
        return (OLD.exp() * clipped_surrogate(token_log_ratio(logprobs, OLD), GOOD, 0.05, 0.01)).sum()

    assert (_bandit_gradient(clipped) - _wanted()).norm() > 0.1


def test_the_truncated_weight_makes_up_for_an_older_policy_as_long_as_nothing_is_truncated() -> None:
    def loss(logprobs: Tensor, limit: float) -> Tensor:
        start = logprobs.detach()
        weight = truncated_weight(token_log_ratio(start, OLD), limit)
        return (OLD.exp() * weight * clipped_surrogate(token_log_ratio(logprobs, start), GOOD, 0.2, 0.2)).sum()

    assert_close(_bandit_gradient(lambda logprobs: loss(logprobs, 9.0)), _wanted())
    assert (_bandit_gradient(lambda logprobs: loss(logprobs, 1.0)) - _wanted()).norm() > 0.01


# Two channels -----------------------------------------------------------------------------------------------------


def _two_channels(*turns: tuple[float, float]) -> Trajectory:
    """An episode of turns with (process, outcome)."""
    made = [
        Turn("", "", [1], [-1.0], None, (), {"process": process, "efficiency": 0.0, "outcome": outcome}, f"state {n}")
        for n, (process, outcome) in enumerate(turns)
    ]
    count, reward = len(turns), sum(turn.reward for turn in made)
    zeros = [0.0] * (count + 1)
    return Trajectory(
        TASK, made, [1] * (count + 1), [False] + [True] * count, zeros, StopReason.COMPLETED, None, reward
    )


def test_two_channels_of_ppo_each_with_its_own_trace() -> None:
    """By hand, gamma 1/2. Process, lam 1: returns less values. Outcome, lam 0: one step ahead."""
    traces = {"process_lam": 1.0, "outcome_lam": 0.0}
    chosen = section("ppo", gamma=0.5, channels={"apart": True, "process": 0.5, "outcome": 2.0, **traces})
    episode = _two_channels((1.0, 0.0), (2.0, 4.0))
    known = Scored(values_CT=torch.tensor([[0.0, 1.0], [1.0, 3.0]]), last_values_C=torch.tensor([7.0, 7.0]))
    ((credit,),) = turn_estimates([[episode]], [[known]], chosen)
    # process: returns 2, 2, less values: 2, 1, over their size sqrt(5/2).
    # outcome: 0 + 3/2 - 1 = 1/2, 4 - 3 = 1, over their size sqrt(5/8).
    process, outcome = torch.tensor([2.0, 1.0]) / 2.5**0.5, torch.tensor([0.5, 1.0]) / 0.625**0.5
    assert credit.advantages_T.tolist() == pytest.approx((0.5 * process + 2.0 * outcome).tolist())
    assert credit.targets_CT is not None
    assert credit.targets_CT.tolist() == [[2.0, 2.0], [1.5, 4.0]]


def test_two_channels_of_grpo_process_by_what_follows_and_outcome_by_episode() -> None:
    """By hand, gamma 1: process to go (3, 2) and (0, 0), outcome 4 and 0 in all turns of the episodes."""
    chosen = section("grpo", channels={"apart": True, "process": 0.5, "outcome": 2.0})
    group = [_two_channels((1.0, 0.0), (2.0, 4.0)), _two_channels((0.0, 0.0), (0.0, 0.0))]
    ((first, second),) = turn_estimates([group], [[Scored(), Scored()]], chosen)
    centred = torch.tensor([3.0, 2.0, 0.0, 0.0]) - 1.25
    process = centred / centred.square().mean().sqrt()
    assert first.advantages_T.tolist() == pytest.approx((0.5 * process[:2] + 2.0).tolist())
    assert second.advantages_T.tolist() == pytest.approx((0.5 * process[2:] - 2.0).tolist())
