"""Faults of peers in which turns and episodes are paid, by their number in the list of faults: where the reward lies (1
and 5), and what counts as success (8 and 14)."""

import copy
import random
from types import SimpleNamespace

import msgspec
import pytest
import torch

from ferrata.learning.batch import Example
from ferrata.learning.courses import next_read
from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare
from ferrata.recipe import RewardSection
from ferrata.records import Event, EventKind, StopReason, Trajectory
from ferrata.rewards.spec import RewardSpec

from .small_learner import EVERY, POLICY, advantages, episode, gradient, group, prepared, section

# Where the reward lies ---------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("apart", [False, True], ids=["added", "apart"])
def test_fault_1_a_reward_that_comes_with_an_observation_reaches_what_was_said(algorithm: str, apart: bool) -> None:
    """The episode ends with an observation, whose ids carry no loss: each sampled id has its advantage all the same."""
    chosen = section(algorithm, channels={"apart": apart})
    groups = [group(episode(0.0, 5.0, success=True), episode(0.0, -1.0, success=False, seed=1))]
    for example in prepared(groups, chosen):
        assert not example.loss_mask[-1]
        assert len(example.advantages) == 4
        assert all(advantage != 0.0 for advantage in example.advantages)
    found, _ = gradient(prepared(groups, chosen), chosen)
    assert found.norm() > 1e-2


@EVERY
def test_fault_1_how_much_is_observed_after_the_last_turn_changes_nothing(algorithm: str) -> None:
    chosen = section(algorithm)
    whole = [episode(0.0, 5.0), episode(0.0, -1.0, seed=1)]
    short = [
        Trajectory(
            **{name: getattr(t, name) for name in t.__struct_fields__}
            | {name: getattr(t, name)[:-2] for name in ("token_ids", "loss_mask", "logprobs")}
        )
        for t in whole
    ]
    assert not whole[0].loss_mask[-1]
    assert short[0].loss_mask[-1]
    found, _ = gradient(prepared([group(*whole)], chosen), chosen)
    other, _ = gradient(prepared([group(*short)], chosen), chosen)
    torch.testing.assert_close(found, other)


@EVERY
def test_fault_5_what_an_early_turn_earned_is_not_lost(algorithm: str) -> None:
    """Two episodes end alike; only the first turn of one has reached a subgoal."""
    reached, missed = {"process": 1.0}, {"process": 0.0}
    groups = [group(episode(reached, 1.0, success=True), episode(missed, 1.0, success=True, seed=1))]
    better, worse = advantages(groups, section(algorithm))
    assert better[0] > 0.0 > worse[0]


@EVERY
def test_fault_5_with_channels_apart_both_survive(algorithm: str) -> None:
    """One has reached the subgoal and failed, the other succeeded without it: each channel says its own."""
    failed = episode({"process": 1.0}, {"outcome": -1.0}, success=False)
    passed = episode({"process": 0.0}, {"outcome": 5.0}, success=True, seed=1)

    def first_of(process: float, outcome: float) -> tuple[float, float]:
        chosen = section(algorithm, channels={"apart": True, "process": process, "outcome": outcome})
        of_failed, of_passed = advantages([group(failed, passed)], chosen)
        return of_failed[0], of_passed[0]

    by_process, by_outcome = first_of(1.0, 0.0), first_of(0.0, 1.0)
    assert by_process[0] > by_process[1]
    assert by_outcome[0] < by_outcome[1]


def test_fault_5_an_episode_that_a_budget_cut_does_not_look_finished() -> None:
    """What would have followed a cap that is not the task's own has a value; after the end of a task, nothing does."""
    chosen = section("ppo", gamma=0.5, lam=1.0, normalise=False)
    learner = Learner(POLICY, chosen, next_read=lambda trajectory: read_on(trajectory))
    assert learner.critic is not None
    with torch.no_grad():
        learner.critic.head.map.bias.fill_(8.0)
    cut = episode(0.0, {"outcome": 0.0, "unfinished": -1.5}, stop=StopReason.MAX_TURNS)
    own = msgspec.structs.replace(cut, task=msgspec.structs.replace(cut.task, max_turns=2))
    unknown = [
        episode(0.0, {"outcome": 0.0, "unfinished": -1.5}, stop=stop)
        for stop in (StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW)
    ]
    ended = [episode(0.0, 1.0, stop=stop) for stop in (StopReason.COMPLETED, StopReason.FORBIDDEN)]
    examples, _ = prepare([group(cut, own, *unknown, *ended)], chosen, learner.score)
    targets = [example.value_targets for example in examples]
    assert targets == [[[2.0, 4.0]], *[[[-0.75, -1.5]]] * 3, *[[[0.5, 1.0]]] * 2]


def read_on(trajectory: Trajectory) -> list[int]:
    chat = SimpleNamespace(end_id=-1, following=lambda observation, closed, most: [4, 5, 6])
    return next_read(trajectory, chat, 0, 99)


def test_fault_5_the_value_of_a_cut_is_that_of_the_state_in_which_the_next_turn_would_begin() -> None:
    """As if the episode had gone on there: the head knows the states before turns, and no others."""
    chosen = section("ppo")
    whole = episode(0.0, 0.0, 1.0)
    cut = replace_trajectory(whole, turns=2)
    following = whole.token_ids[len(cut.token_ids) : len(cut.token_ids) + 2]
    learner = Learner(POLICY, chosen, next_read=lambda trajectory: following if trajectory is cut else [])
    assert learner.critic is not None
    torch.nn.init.normal_(learner.critic.head.map.weight)
    [gone_on], [stopped] = learner.score([whole]), learner.score([cut])
    assert gone_on.values_CT is not None
    assert stopped.last_values_C is not None
    assert gone_on.last_values_C is None, "its task was over"
    torch.testing.assert_close(stopped.last_values_C, gone_on.values_CT[:, 2])
    assert (gone_on.values_CT[:, 2] - gone_on.values_CT[:, 1]).abs().min() > 1e-3, "the states would all look alike"


def replace_trajectory(whole: Trajectory, turns: int) -> Trajectory:
    """The first turns of it, as a turn cap would have left it: nothing read after the last of them."""
    last = 0
    for _ in range(turns):
        first = whole.loss_mask.index(True, last)
        last = first + 2
    return msgspec.structs.replace(
        whole, turns=whole.turns[:turns], token_ids=whole.token_ids[:last], loss_mask=whole.loss_mask[:last],
        logprobs=whole.logprobs[:last], stop=StopReason.MAX_TURNS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stop", "closed", "room", "reads"),
    [
        (StopReason.MAX_TURNS, True, 99, True),
        (StopReason.MAX_TURNS, False, 99, True),
        (StopReason.MAX_TURNS, True, 14, False),
        (StopReason.MAX_TOKENS, True, 99, False),
        (StopReason.CONTEXT_OVERFLOW, True, 99, False),
        (StopReason.COMPLETED, True, 99, False),
    ],
)
def test_what_a_cut_episode_would_have_read(stop: StopReason, closed: bool, room: int, reads: bool) -> None:
    cut = episode(0.0, 1.0, stop=stop, observed=2)
    chat = SimpleNamespace(
        end_id=cut.turns[-1].token_ids[-1] if closed else -1,
        following=lambda observation, closed, most: [50, 51, 52] if closed else [49, 50, 51, 52],
    )
    expected = ([50, 51, 52] if closed else [49, 50, 51, 52]) if reads else []
    assert next_read(cut, chat, 0, room) == expected


# What counts as success ----------------------------------------------------------------------------------------------


def test_fault_8_partial_credit_is_no_pass() -> None:
    """The verdict says what succeeded, not the sign of the reward."""
    partial = [episode(0.8, success=False, seed=seed) for seed in range(3)]
    _, counts = prepare([group(*partial)], section())
    assert (counts["groups/all_bad"], counts["groups/all_good"]) == (1.0, 0.0)
    _, counts = prepare([group(*(episode(-0.2, success=True, seed=seed) for seed in range(3)))], section())
    assert (counts["groups/all_bad"], counts["groups/all_good"]) == (0.0, 1.0)


@EVERY
def test_fault_8_partial_credit_is_pushed_down_beside_a_success(algorithm: str) -> None:
    partial, whole = episode(0.8, success=False), episode(5.0, success=True, seed=1)
    of_partial, of_whole = advantages([group(partial, whole)], section(algorithm))
    assert max(of_partial) < 0.0 < min(of_whole)


@EVERY
def test_fault_14_what_nobody_judged_is_not_a_zero_that_beats_an_honest_failure(algorithm: str) -> None:
    honest, good = episode(-1.0, success=False), episode(5.0, success=True, seed=1)
    unjudged = episode(0.0, success=None, seed=2, stop=StopReason.JUDGE_ERROR, reward=None)
    unscored = episode(0.0, success=None, seed=3, reward=None)
    with_them = advantages([group(honest, unjudged, good, unscored)], section(algorithm))
    assert with_them == advantages([group(honest, good)], section(algorithm))
    assert len(with_them) == 2


@EVERY
def test_fault_14_doing_nothing_is_unlearnt_beside_an_honest_failure(algorithm: str) -> None:
    """With the default weights; and the learner's own step makes it less likely than before."""
    spec = RewardSpec(RewardSection())
    step, failure, cut = (spec([Event(kind)]) for kind in (EventKind.STEP, EventKind.FAILURE, EventKind.UNFINISHED))
    honest = episode(step, failure, success=False)
    idle = episode(step, {**step, **cut}, stop=StopReason.MAX_TURNS, success=False, seed=1)
    idle = msgspec.structs.replace(idle, task=msgspec.structs.replace(idle.task, max_turns=2))
    chosen, model = section(algorithm, learning_rate=1e-3), copy.deepcopy(POLICY)
    learner = Learner(model, chosen, next_read=read_on)
    if learner.critic:  # Where much is expected of every state, waiting must not look like earning it.
        torch.nn.init.constant_(learner.critic.head.map.bias, 4.0)
    examples, _ = prepare([group(honest, idle)], chosen, learner.score if learner.scores else None)
    assert max(examples[1].advantages) < min(examples[0].advantages)
    before = _log_odds(learner, examples)
    for number in range(3):
        learner.update(examples, random.Random(number))
    assert _log_odds(learner, examples) > before


def _log_odds(learner: Learner, examples: list[Example]) -> float:
    """How much likelier the first example is than the second (nats)."""
    first, second = learner._logprobs(learner.model, examples)
    return float(first.sum() - second.sum())
