"""Faults of peers in what is learnt from an episode, by their number in the list of faults.

All go the public way: groups of trajectories -> `prepare` -> `Learner.update`. Where a gradient is looked at, the
optimizer does nothing, so that the gradient and the weights stay as they are.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import LlamaConfig, LlamaForCausalLM

from ferrata.learning.batch import Example
from ferrata.learning.courses import next_read
from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare
from ferrata.recipe import RewardSection, RlSection
from ferrata.records import Event, EventKind, Group, StopReason, Task, Trajectory, Turn
from ferrata.rewards.spec import RewardSpec

TASK = Task("test", "family", 1, "train", "Do it.", {}, ("done",), 9)
VOCABULARY = 61
ALGORITHMS = ("grpo", "rloo", "reinforce++", "gigpo", "ppo")
EVERY = pytest.mark.parametrize("algorithm", ALGORITHMS)
Components = dict[str, float]


def tiny(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


POLICY, REFERENCE = tiny(0), tiny(1)


def episode(
    *rewards: Components | float,
    states: str = "",
    success: bool | None = None,
    stop: StopReason = StopReason.COMPLETED,
    observed: int = 2,
    seed: int = 0,
    sampled: int = 2,
    **more: Any,
) -> Trajectory:
    """An episode of one turn for each reward, with `observed` ids read before each turn and after the last.

    A reward that is a number is the outcome's. Its turns stand in the states named by single letters.
    """
    stream = random.Random(seed)
    turns, ids, mask = [], [1, 2, 3], [False] * 3
    for number, reward in enumerate(rewards):
        said = [stream.randrange(4, VOCABULARY) for _ in range(sampled)]
        components = reward if isinstance(reward, dict) else {"outcome": reward}
        state = states[number] if states else f"{seed} {number}"
        turns.append(Turn("", "", said, [-4.0] * sampled, None, (), components, state))
        ids, mask = [*ids, *said, *[4] * observed], [*mask, *[True] * sampled, *[False] * observed]
    fields: dict[str, Any] = {"reward": sum(turn.reward for turn in turns), "loss_mask": mask, **more}
    logprobs = [-4.0 if trained else 0.0 for trained in mask]
    return Trajectory(task=TASK, turns=turns, token_ids=ids, logprobs=logprobs, stop=stop, success=success, **fields)


def group(*episodes: Trajectory) -> Group:
    return Group(TASK, list(episodes))


def section(algorithm: str = "grpo", **more: Any) -> RlSection:
    quiet = {"kl": 0.0, "entropy": 0.0, "minibatches": 1, "max_grad_norm": 1e9, "value": {"warmup": 0}}
    return RlSection(algorithm=algorithm, **{**quiet, **more})


def learner_of(chosen: RlSection, model: LlamaForCausalLM = POLICY) -> Learner:
    return Learner(model, chosen, REFERENCE if chosen.kl else None)


def prepared(groups: Sequence[Group], chosen: RlSection) -> list[Example]:
    learner = learner_of(chosen)
    return prepare(groups, chosen, learner.score if learner.scores else None)[0]


def advantages(groups: Sequence[Group], chosen: RlSection) -> list[list[float]]:
    """Of every trained token of every example."""
    return [list(example.advantages) for example in prepared(groups, chosen)]


def freeze(learner: Learner) -> None:
    for optimizer in [learner._optimizer, *([learner.critic._optimizer] if learner.critic else [])]:
        optimizer.step = optimizer.zero_grad = lambda: None
    learner.model.zero_grad()


def gradient(examples: Sequence[Example], chosen: RlSection) -> tuple[Tensor, dict[str, float]]:
    """Of one step on these examples, the value head's included, and what was measured."""
    learner = learner_of(chosen)
    freeze(learner)
    metrics = learner.update(examples, random.Random(0))
    heads = list(learner.critic.head.parameters()) if learner.critic else []
    parameters = [*POLICY.parameters(), *heads]
    flat = [torch.zeros(0) if p.grad is None else p.grad.double().flatten() for p in parameters]
    POLICY.zero_grad()
    return torch.cat(flat), metrics


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
    """What would have followed a cut has a value; after the end of a task, nothing does."""
    chosen = section("ppo", gamma=0.5, lam=1.0, normalise=False)
    learner = learner_of(chosen)
    assert learner.critic is not None
    with torch.no_grad():
        learner.critic.head.map.bias.fill_(8.0)
    stops = [StopReason.COMPLETED, StopReason.SUBMITTED, StopReason.FORBIDDEN]
    cuts = [StopReason.MAX_TURNS, StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW]
    groups = [group(*(episode(0.0, 1.0, stop=stop) for stop in [*stops, *cuts]))]
    examples, _ = prepare(groups, chosen, learner.score)
    targets = [example.value_targets for example in examples]
    assert targets == [[[0.5, 1.0]]] * 3 + [[[2.5, 5.0]]] * 3


def test_fault_5_the_value_of_a_cut_is_that_of_the_state_in_which_the_next_turn_would_begin() -> None:
    """As if the episode had gone on there: the head knows the states before turns, and no others."""
    chosen = section("ppo")
    whole = episode(0.0, 0.0, 1.0)
    cut = replace_trajectory(whole, turns=2)
    following = whole.token_ids[len(cut.token_ids) : len(cut.token_ids) + 2]
    learner = Learner(POLICY, chosen, next_read=lambda trajectory: following)
    [gone_on], [stopped] = learner.score([whole]), learner.score([cut])
    assert gone_on.values_CT is not None
    assert stopped.last_values_C is not None
    torch.testing.assert_close(stopped.last_values_C, gone_on.values_CT[:, 2])
    [unknown] = learner_with_head_of(learner).score([cut])
    assert unknown.values_CT is not None
    assert unknown.last_values_C is not None
    assert unknown.last_values_C.equal(unknown.values_CT[:, -1]), "where nobody knows what would be read"


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


def learner_with_head_of(other: Learner) -> Learner:
    learner = Learner(other.model, other.section)
    assert learner.critic is not None
    assert other.critic is not None
    learner.critic.load_state_dict(other.critic.state_dict())
    return learner


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


# While the head warms up ---------------------------------------------------------------------------------------------


def test_while_the_value_head_warms_up_nothing_moves_the_policy() -> None:
    """Not even demonstrations, episodes of the pool, weight decay or the optimizer's count of steps."""
    chosen = section("ppo", value={"warmup": 1}, weight_decay=0.5, learning_rate=0.1)
    model = copy.deepcopy(POLICY)
    learner = learner_of(chosen, model)
    examples = prepared([group(episode(1.0), episode(0.0, seed=1))], chosen)
    others = [
        Example.demonstration([1, 2, 9, 8, 7], [False, False, True, False, True]),
        Example.of(episode(1.0, seed=7), [0.7], stale=True, for_values=False),
    ]
    before = copy.deepcopy(list(model.parameters()))
    learner.update([*examples, *others], random.Random(0))
    assert all(now.equal(then) for now, then in zip(model.parameters(), before, strict=True))
    assert not any(member.state for member in learner._optimizer._members)
    learner.update([*examples, *others], random.Random(0))
    assert not all(now.equal(then) for now, then in zip(model.parameters(), before, strict=True))


# Demonstrations ------------------------------------------------------------------------------------------------------


def test_a_demonstration_is_learnt_by_its_likelihood_alone_and_measured_nowhere() -> None:
    """Neither bonus nor divergence: they are estimated from what the policy samples, and nobody sampled this."""
    shown = Example.demonstration([1, 2, 9, 8, 7], [False, False, True, False, True])
    plain, _ = gradient([shown], section())
    with_terms, metrics = gradient([shown], section(kl=0.5, entropy=0.5))
    torch.testing.assert_close(with_terms, plain)
    assert "rl/kl" not in metrics
    assert "rl/entropy" not in metrics
    beside = prepared([group(episode(1.0), episode(0.0, seed=1))], section())
    _, alone = gradient(beside, section(kl=0.5))
    _, mixed = gradient([*beside, shown], section(kl=0.5))
    assert mixed["rl/entropy"] == pytest.approx(alone["rl/entropy"], rel=1e-5)
    assert mixed["rl/kl"] == pytest.approx(alone["rl/kl"], rel=1e-5)


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
    chosen, model = section(algorithm, learning_rate=1e-3), copy.deepcopy(POLICY)
    learner = learner_of(chosen, model)
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


# Groups --------------------------------------------------------------------------------------------------------------

RAGGED = some.lists(some.lists(some.floats(-5, 5), min_size=1, max_size=5), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(RAGGED, some.sampled_from(["grpo", "rloo", "gigpo"]), some.booleans())
def test_fault_11_groups_of_any_size_are_compared_within_and_with_nobody_else(
    rewards: list[list[float]], algorithm: str, normalise: bool
) -> None:
    """One after the other or all together: the same advantages, of mean zero, and none for a member without others."""
    chosen = section(algorithm, normalise=normalise)
    groups = [
        group(*(episode(reward, seed=10 * g + i) for i, reward in enumerate(members)))
        for g, members in enumerate(rewards)
    ]
    together = advantages(groups, chosen)
    apart = [found for one in groups for found in advantages([one], chosen)]
    assert together == apart
    for one in groups:
        found = advantages([one], chosen)
        assert len(found) in (0, len(one.trajectories))
        assert len(one.trajectories) > 1 or not found
        assert sum(each[0] for each in found) == pytest.approx(0.0, abs=1e-5)


@EVERY
def test_fault_11_a_member_without_others_is_counted_and_harms_nothing(algorithm: str) -> None:
    chosen = section(algorithm)
    examples, counts = prepare([group(episode(3.0))], chosen, learner_of(chosen).score)
    assert counts["groups/too_small"] == 1.0
    assert all(math.isfinite(a) for example in examples for a in example.advantages)
    metrics = learner_of(chosen, copy.deepcopy(POLICY)).update(examples, random.Random(0))
    assert metrics["rl/steps_skipped"] == 0.0


@pytest.mark.parametrize("algorithm", ["grpo", "rloo"])
@given(some.lists(some.tuples(some.floats(-5, 5), some.integers(1, 6), some.integers(1, 3)), min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_fault_12_long_episodes_weigh_no_more_in_the_mean_of_their_group(
    algorithm: str, members: list[tuple[float, int, int]]
) -> None:
    """Neither more turns nor more ids change what the group says of its members."""
    chosen = section(algorithm)
    long = group(
        *(
            episode(*[0.0] * (turns - 1), reward, sampled=sampled, seed=i)
            for i, (reward, turns, sampled) in enumerate(members)
        )
    )
    short = group(*(episode(reward, seed=i) for i, (reward, _, _) in enumerate(members)))
    assert [found[0] for found in advantages([long], chosen)] == [found[0] for found in advantages([short], chosen)]


def test_fault_12_channels_that_are_added_up_take_nothing_from_the_length_of_episodes() -> None:
    """A success of one turn counts as a failure of nine does, and an outcome that is the same for all as nothing."""
    chosen = section("grpo", channels={"apart": True, "process": 0.0})
    mixed = group(episode(5.0, seed=0), episode(*[0.0] * 8, -1.0, seed=1))
    equal = group(episode({"outcome": -1.0, "process": 0.4}, seed=2), episode(*[0.0] * 3, -1.0, seed=3))
    won, lost, *others = advantages([mixed, equal], chosen)
    assert won[0] == pytest.approx(-lost[0])
    assert len(others) == 2
    assert not any(a for found in others for a in found)


def test_fault_12_each_episode_weighs_the_same_in_the_loss_where_that_is_asked_for() -> None:
    """The gradient of a long episode and a short one is the mean of what each gives alone, as the mean of its ids."""
    short = Example.of(episode(1.0, sampled=1), [1.0])
    long = Example.of(episode(*[0.0] * 5, sampled=4, seed=1), [1.0] * 5)
    both, _ = gradient([short, long], section(aggregation="sequence"))
    alone = [gradient([one], section(aggregation="token"))[0] for one in (short, long)]
    torch.testing.assert_close(both, (alone[0] + alone[1]) / 2, atol=1e-6, rtol=1e-5)


# Degenerate numbers --------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-4])
def test_fault_13_rewards_equal_but_for_a_residue_say_nothing(algorithm: str, noise: float) -> None:
    """A spread of 1e-4 is no advantage of 4,000. Values that say nothing yet are no difference either."""
    chosen = section(algorithm)
    groups = [group(*(episode(0.1 + 0.2 + noise * i, states="s", seed=i) for i in range(4)))]
    assert all(a == 0.0 for found in advantages(groups, chosen) for a in found) or algorithm == "ppo"
    if algorithm == "ppo":  # Compares with a value, which is zero at the beginning: equal for all, and small.
        assert all(abs(a) < 1.0 for found in advantages(groups, chosen) for a in found)


@EVERY
@settings(max_examples=25, deadline=None)
@given(some.lists(some.floats(-1e4, 1e4), min_size=2, max_size=8), some.floats(0, 1e-3))
def test_fault_13_no_advantage_is_larger_than_the_group_can_say(
    algorithm: str, rewards: list[float], noise: float
) -> None:
    """Whatever the rewards: at most the root of one less than are compared, once for each comparison."""
    chosen = section(algorithm)
    groups = [group(*(episode(r, noise * i, states=f"s{i}", seed=i) for i, r in enumerate(rewards)))]
    compared = len(rewards) * (2 if algorithm in ("ppo", "reinforce++") else 1)
    bound = {"gigpo": 2.0, "rloo": len(rewards) / (len(rewards) - 1)}.get(algorithm, 1.0) * math.sqrt(compared - 1)
    for found in advantages(groups, chosen):
        assert all(abs(a) <= bound + 1e-4 for a in found)


@EVERY
def test_fault_13_a_batch_without_a_trained_token_changes_nothing(algorithm: str) -> None:
    chosen, model = section(algorithm), copy.deepcopy(POLICY)
    learner, before = learner_of(chosen, model), copy.deepcopy(model.state_dict())
    masked = [episode(r, loss_mask=[False] * 7, seed=i) for i, r in enumerate((5.0, -1.0))]
    examples, counts = prepare([group(*masked)], chosen, learner.score if learner.scores else None)
    assert counts["dropped/no_sampled_tokens"] == 2.0
    assert examples == []
    silent = Example([1, 2, 3], [False] * 3, [0.0] * 3)
    for batch in (examples, [silent]):
        assert learner.update(batch, random.Random(0))["rl/steps"] == 0.0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
def test_fault_13_masked_rows_among_others_weigh_nothing(aggregation: str) -> None:
    chosen = section(aggregation=aggregation)
    examples = prepared([group(episode(5.0), episode(-1.0, seed=1))], chosen)
    found, metrics = gradient(examples, chosen)
    silent = Example([1, 2, 3], [False] * 3, [0.0] * 3)
    other, beside = gradient([silent, *examples, silent], chosen)
    torch.testing.assert_close(found, other)
    assert {**metrics, "rl/stale_share": 0.0} == {**beside, "rl/stale_share": 0.0}


def test_fault_13_a_number_that_is_none_spoils_neither_policy_nor_value_head() -> None:
    chosen, model = section("ppo"), copy.deepcopy(POLICY)
    learner = learner_of(chosen, model)
    assert learner.critic is not None
    examples, _ = prepare([group(episode(5.0), episode(-1.0, seed=1))], chosen, learner.score)
    poisoned = replace(examples[0], value_targets=[[math.nan]])
    before = copy.deepcopy([*model.parameters(), *learner.critic.head.parameters()])
    metrics = learner.update([poisoned, examples[1]], random.Random(0))
    assert (metrics["rl/steps"], metrics["rl/steps_skipped"]) == (0.0, 1.0)
    now = [*model.parameters(), *learner.critic.head.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))


# Memory --------------------------------------------------------------------------------------------------------------


class Logits(TorchFunctionMode):
    """Remembers the most rows of anything that has an entry for each word."""

    rows = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.ndim > 1 and made.shape[-1] == VOCABULARY:
            self.rows = max(self.rows, made.numel() // VOCABULARY)
        return made


@EVERY
def test_fault_21_no_logits_of_what_was_only_read(algorithm: str) -> None:
    """Two episodes of a thousand ids, of which eight are trained: there are never more rows of logits than those."""
    more = {"kl": 0.1, "entropy": 0.01, "microbatch_tokens": 10_000}
    for kl_in in ("loss", "reward"):
        chosen = section(algorithm, kl_in=kl_in, **more)
        learner = learner_of(chosen, copy.deepcopy(POLICY))
        groups = [group(episode(0.0, 5.0, observed=500), episode(0.0, -1.0, observed=500, seed=1))]
        with Logits() as seen:
            examples, _ = prepare(groups, chosen, learner.score if learner.scores else None)
            learner.update(examples, random.Random(0))
        assert len(examples[0].token_ids) > 1000
        assert 1 <= seen.rows <= 8


# States --------------------------------------------------------------------------------------------------------------


def test_fault_26_turns_of_one_number_in_different_states_are_not_compared() -> None:
    """In states that nobody else was in, GiGPO says of a turn what GRPO says of its episode."""
    groups = [group(episode(0.0, 3.0, states="ab"), episode(0.0, 0.0, states="cd", seed=1))]
    assert advantages(groups, section("gigpo")) == advantages(groups, section("grpo"))


def test_fault_26_turns_in_one_state_are_compared_whatever_their_number() -> None:
    """One comes to state x a turn later than the other, and does better there."""
    late = episode(0.0, 0.0, 4.0, states="axy")
    early = episode(0.0, 2.0, states="xz", seed=1)
    chosen = section("gigpo", gamma=1.0, normalise=False)
    found = advantages([group(late, early)], chosen)
    episodes = advantages([group(late, early)], section("grpo", normalise=False))
    beyond = [[a - e for a, e in zip(*pair, strict=True)][::2] for pair in zip(found, episodes, strict=True)]
    assert beyond == [[0.0, 1.0, 0.0], [-1.0, 0.0]]


@EVERY
def test_fault_26_a_baseline_is_not_of_the_turns_of_one_number(algorithm: str) -> None:
    """Rewards along the way: where everybody's second turn earns the same, it still counts against the others."""
    rewards = [{"process": 0.0}, {"process": 2.0}]
    chosen = section(algorithm, gamma=0.0, lam=0.0, channels={"apart": True, "process": 1.0, "outcome": 0.0})
    groups = [group(episode(*rewards, {"outcome": 1.0}), episode(*rewards, {"outcome": 2.0}, seed=1))]
    if algorithm == "ppo":
        chosen = chosen.model_copy(update={"channels": chosen.channels.model_copy(update={"process_lam": 0.0})})
    for found in advantages(groups, chosen):
        assert found[0] < 0.0 < found[2]


# Micro-batches -------------------------------------------------------------------------------------------------------

SETTINGS = some.fixed_dictionaries(
    {
        "algorithm": some.sampled_from(ALGORITHMS),
        "aggregation": some.sampled_from(["token", "sequence", "constant"]),
        "ratio": some.sampled_from(["token", "sequence"]),
        "kl": some.sampled_from([0.0, 0.1]),
        "kl_in": some.sampled_from(["loss", "reward"]),
        "kl_estimator": some.sampled_from(["k2", "k3"]),
        "entropy": some.sampled_from([0.0, 0.05]),
        "channels": some.fixed_dictionaries({"apart": some.booleans()}),
        "view": some.sampled_from(["episode", "turn"]),
        "value": some.sampled_from([{"warmup": 0}, {"warmup": 9}]),
    }
)


@some.composite
def mixtures(draw: some.DrawFn) -> tuple[RlSection, list[Example]]:
    """Settings, and examples of ragged groups: also of old weights, at another temperature, and demonstrations."""
    chosen = section(**draw(SETTINGS))
    stream = random.Random(draw(some.integers(0, 2**32)))
    temperature = stream.choice([1.0, 0.7])
    groups = [
        group(
            *(
                episode(
                    *[{"process": stream.uniform(-1, 1), "outcome": stream.uniform(-1, 1)} for _ in range(turns)],
                    states="abab",
                    observed=stream.randint(1, 5),
                    sampled=stream.randint(1, 3),
                    seed=stream.randrange(99),
                    temperature=temperature,
                    stop=stream.choice([StopReason.COMPLETED, StopReason.MAX_TURNS]),
                )
                for turns in stream.choices((1, 2, 3, 4), k=stream.randint(2, 4))
            )
        )
        for _ in range(stream.randint(1, 3))
    ]
    old = draw(some.booleans())
    examples = [replace(e, stale=old and stream.random() < 0.5) for e in prepared(groups, chosen)]
    if draw(some.booleans()):
        examples.append(Example.demonstration([1, 2, 9, 8, 7], [False, False, True, False, True]))
    if draw(some.booleans()):  # As from the pool: old, and nothing for the value head.
        examples.append(Example.of(episode(1.0, seed=7), [0.7], stale=True, for_values=False))
    return chosen, examples


@settings(max_examples=60, deadline=None)
@given(mixtures(), some.integers(1, 60))
def test_fault_13_neither_padding_nor_the_split_into_micro_batches_changes_the_step(
    mixture: tuple[RlSection, list[Example]], tokens: int
) -> None:
    """With every setting: gradient of policy and value head, and what is measured."""
    chosen, examples = mixture
    whole, metrics = gradient(examples, chosen.model_copy(update={"microbatch_tokens": 10_000}))
    parts, others = gradient(examples, chosen.model_copy(update={"microbatch_tokens": tokens}))
    assert (whole - parts).norm() <= 2e-6 * max(1e-3, float(whole.norm()))
    assert metrics.keys() == others.keys()
    for name, value in metrics.items():
        assert others[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name
