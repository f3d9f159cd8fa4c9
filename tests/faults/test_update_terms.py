"""Every term of an update through the learner itself: old data, clips, entropy, divergence, values.

What the formulas say is tested where they are. Here it is whether the learner gives them the right numbers.
"""

from __future__ import annotations

import copy
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ferrata.learning.batch import Example
from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare
from ferrata.recipe import RlSection

from .small_learner import (
    EVERY,
    POLICY,
    REFERENCE,
    episode,
    gradient,
    group,
    learner_of,
    section,
)


def one_token(advantage: float, offset: float = 0.0, **more: Any) -> Example:
    """One sampled token that is `exp(offset)` times as probable now as it was when it was sampled."""
    made = Example.of(episode(1.0, sampled=1), [advantage])
    [now] = logprobs(POLICY, made)
    return replace(made, logprobs=[0.0, 0.0, 0.0, now - offset, 0.0, 0.0], **more)


def logprobs(model: Any, example: Example) -> list[float]:
    """Of the trained tokens, by a plain forward pass."""
    ids = torch.tensor(example.token_ids)
    with torch.no_grad():
        rows = model(input_ids=ids[None]).logits[0].log_softmax(dim=-1)
    return [float(rows[place - 1, ids[place]]) for place, trained in enumerate(example.loss_mask) if trained]


def policy_gradient(examples: list[Example], chosen: RlSection) -> Tensor:
    return gradient(examples, chosen)[0][: sum(p.numel() for p in POLICY.parameters())]


# Old data ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("advantage", [2.0, -1.0])
@pytest.mark.parametrize(("offset", "weight"), [(-0.7, math.exp(-0.7)), (0.3, math.exp(0.3)), (2.0, 1.5)])
def test_old_data_weighs_as_much_as_it_is_more_probable_now_up_to_the_limit(
    advantage: float, offset: float, weight: float
) -> None:
    """By hand: `-min(start / mu, limit) A grad log pi`, with the ratio that is clipped taken against `start`."""
    chosen = section(importance_limit=1.5, clip_low=0.01, clip_high=0.01)
    fresh = policy_gradient([one_token(advantage)], chosen)
    old, metrics = gradient([one_token(advantage, offset, stale=True)], chosen)
    torch.testing.assert_close(old, weight * fresh, atol=1e-6, rtol=1e-4)
    assert metrics["rl/ratio_mean"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["rl/importance_weight"] == pytest.approx(weight, rel=1e-5)


def test_importance_weights_are_measured_where_data_is_old() -> None:
    shown = Example.demonstration([1, 2, 9], [False, False, True])
    _, metrics = gradient([one_token(1.0), one_token(1.0, 0.3, stale=True), shown], section(importance_limit=9.0))
    assert metrics["rl/importance_weight"] == pytest.approx(math.exp(0.3), rel=1e-5)
    assert metrics["rl/stale_share"] == pytest.approx(1 / 3)


# Clips ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advantage", "offset", "clips", "acts"),
    [
        (1.0, math.log(1.25), {"clip_low": 0.1, "clip_high": 0.3}, False),
        (1.0, math.log(1.25), {"clip_low": 0.3, "clip_high": 0.1}, True),
        (-1.0, math.log(0.75), {"clip_low": 0.3, "clip_high": 0.1}, False),
        (-1.0, math.log(0.75), {"clip_low": 0.1, "clip_high": 0.3}, True),
    ],
)
def test_each_clip_acts_on_its_side(advantage: float, offset: float, clips: dict[str, float], acts: bool) -> None:
    found, metrics = gradient([one_token(advantage, offset)], section(**clips))
    assert (float(found.norm()) == 0.0) is acts
    assert metrics["rl/clip_fraction"] == float(acts)


# Entropy and divergence ----------------------------------------------------------------------------------------------


def test_the_bonus_has_the_gradient_of_the_entropy_upwards() -> None:
    example, model = one_token(0.0), copy.deepcopy(POLICY)
    row = model(input_ids=torch.tensor([example.token_ids])).logits[0, example.loss_mask.index(True) - 1].softmax(-1)
    (0.3 * (row * row.log()).sum()).backward()
    by_hand = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    found = policy_gradient([example], section(entropy=0.3))
    torch.testing.assert_close(found, by_hand, atol=1e-7, rtol=1e-4)
    assert by_hand.norm() > 1e-4


@pytest.mark.parametrize(("target", "rises"), [(5.0, True), (3.0, False)])
def test_the_weight_of_the_bonus_moves_towards_the_target(target: float, rises: bool) -> None:
    learner = learner_of(section(entropy=0.01, entropy_target=target), copy.deepcopy(POLICY))
    first, second = (learner.update([one_token(0.0)], random.Random(0))["rl/entropy_weight"] for _ in range(2))
    assert (second > first > 0.01) if rises else (second < first < 0.01)


@pytest.mark.parametrize("estimator", ["k1", "k2"])
def test_the_divergence_of_a_turn_is_the_sum_over_its_tokens(estimator: str) -> None:
    chosen = section("rloo", kl=0.1, kl_in="reward", kl_estimator=estimator)
    played = episode(1.0, 2.0, sampled=3)
    [scored] = learner_of(chosen).score([played])
    assert scored.divergences_T is not None
    held = logprobs(REFERENCE, Example.of(played, [0.0, 0.0]))
    sampled = [logprob for logprob, trained in zip(played.logprobs, played.loss_mask, strict=True) if trained]
    each = [a - b if estimator == "k1" else (a - b) ** 2 / 2 for a, b in zip(sampled, held, strict=True)]
    assert scored.divergences_T.tolist() == pytest.approx([sum(each[:3]), sum(each[3:])], rel=1e-4)


# Values --------------------------------------------------------------------------------------------------------------


def test_a_value_is_read_before_the_first_token_of_its_turn() -> None:
    learner, played = learner_of(section("ppo")), episode(0.0, 0.0, 1.0, sampled=3)
    assert learner.critic is not None
    torch.nn.init.normal_(learner.critic.head.map.weight)
    [scored] = learner.score([played])
    assert scored.values_CT is not None
    with torch.no_grad():
        states = POLICY.model(input_ids=torch.tensor([played.token_ids])).last_hidden_state[0]
        firsts = [place for place, on in enumerate(played.loss_mask) if on and not played.loss_mask[place - 1]]
        expected = learner.critic.head(states[[first - 1 for first in firsts]].float()).T
    torch.testing.assert_close(scored.values_CT, expected, atol=1e-5, rtol=1e-4)


def test_the_values_weight_scales_what_goes_on_into_the_policy_and_nothing_else() -> None:
    examples = [
        replace(one, values=[[0.0]], value_targets=[[target]])
        for one, target in ((one_token(1.0), 3.0), (one_token(-1.0), -2.0))
    ]
    size = sum(p.numel() for p in POLICY.parameters())
    found = {w: gradient_with_head(examples, section("ppo", value={"warmup": 0, "weight": w})) for w in (0.0, 0.5, 1.0)}
    bare = policy_gradient(examples, section())
    torch.testing.assert_close(found[0.0][:size], bare)
    torch.testing.assert_close(found[0.5][:size] - bare, 0.5 * (found[1.0][:size] - bare), atol=1e-7, rtol=1e-4)
    assert (found[1.0][:size] - bare).norm() > 1e-3
    torch.testing.assert_close(found[0.0][size:], found[1.0][size:])


def gradient_with_head(examples: list[Example], chosen: RlSection) -> Tensor:
    """As `gradient`, with a head that says something, so that its loss has a gradient in what it reads."""
    learner = learner_of(chosen, copy.deepcopy(POLICY))
    assert learner.critic is not None
    torch.manual_seed(0)
    torch.nn.init.normal_(learner.critic.head.map.weight)
    for optimizer in (learner._optimizer, learner.critic._optimizer):
        optimizer.step = optimizer.zero_grad = lambda: None
    learner.update(examples, random.Random(0))
    parameters = [*learner.model.parameters(), *learner.critic.head.parameters()]
    return torch.cat([p.grad.double().flatten() for p in parameters if p.grad is not None])


def test_a_value_that_has_moved_as_far_as_it_may_is_not_moved_further() -> None:
    learner = learner_of(section("ppo", value={"warmup": 0, "clip": 0.5}))
    values = torch.tensor([[0.4], [0.9]], requires_grad=True)
    loss = learner._objective.value(values, torch.zeros(2, 1), torch.full((2, 1), 9.0), 2, _Deaf())
    loss.backward()
    assert values.grad is not None
    assert values.grad.flatten().tolist() == pytest.approx([(0.4 - 9.0) / 2, 0.0])


class _Deaf:
    """Meters that nobody reads."""

    def add(self, name: str, values: Tensor) -> None: ...


def test_a_step_of_the_head_alone_is_no_step_of_the_policy() -> None:
    examples = [replace(one_token(1.0), values=[[0.0]], value_targets=[[1.0]])]
    _, warming = gradient(examples, section("ppo", value={"warmup": 1}))
    assert (warming["rl/steps"], warming["rl/steps_skipped"]) == (0, 0)
    assert "rl/grad_norm" not in warming


# What is trained -----------------------------------------------------------------------------------------------------


@EVERY
def test_who_compares_with_the_group_leaves_out_groups_without_spread_and_nobody_else(algorithm: str) -> None:
    chosen = section(algorithm)
    groups = [
        group(episode(1.0, seed=0), episode(1.0, seed=1)),
        group(episode(5.0, seed=2), episode(-1.0, seed=3)),
    ]
    learner = learner_of(chosen)
    examples, counts = prepare(groups, chosen, learner.score if learner.scores else None)
    whole = algorithm in ("ppo", "reinforce++")
    assert (len(examples), counts["dropped/no_spread"]) == ((4, 0) if whole else (2, 2))


# Going on ------------------------------------------------------------------------------------------------------------


def test_ppo_goes_on_in_the_middle_of_its_warm_up() -> None:
    """Its head, the count of its steps, and a weight of the entropy bonus that has moved."""
    chosen = section("ppo", value={"warmup": 2}, entropy=0.01, entropy_target=9.0, learning_rate=1e-2)
    first = learner_of(chosen, copy.deepcopy(POLICY))
    groups = [group(episode(1.0, seed=0), episode(-1.0, seed=1))]

    def go_on(learner: Learner, update: int) -> dict[str, float]:
        examples, _ = prepare(groups, chosen, learner.score)
        return learner.update(examples, random.Random(update))

    for stop in (1, 3):
        while first.updates < stop:
            go_on(first, first.updates)
        second = learner_of(chosen, copy.deepcopy(first.model))
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        third = copy.deepcopy(first.model)
        for update in (stop, stop + 1):
            assert go_on(first, update) == go_on(second, update)
        assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))
        moved = any(not torch.equal(a, b) for a, b in zip(first.model.parameters(), third.parameters(), strict=True))
        assert moved, "the policy learns again, with either"
