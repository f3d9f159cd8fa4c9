"""Faults of peers in the step of the learner, by their number in the list of faults: what moves the policy, what has no
loss and numbers that are none (13), memory (21), and the split into micro-batches (13)."""

import copy
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ferrata.learning.batch import Example
from ferrata.learning.preparation import prepare
from ferrata.recipe import RlSection
from ferrata.records import StopReason

from .small_learner import (
    ALGORITHMS,
    EVERY,
    POLICY,
    VOCABULARY,
    episode,
    gradient,
    group,
    learner_of,
    prepared,
    section,
)

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


# Degenerate numbers --------------------------------------------------------------------------------------------------


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
        "value": some.sampled_from([{"warmup": 0}, {"warmup": 9}, {"warmup": 0, "weight": 0.5}]),
    }
)


@some.composite
def mixtures(draw: some.DrawFn) -> tuple[RlSection, list[Example]]:
    """Settings, and examples of ragged groups: also of old weights, at another temperature, and demonstrations."""
    picked = draw(
        SETTINGS.filter(lambda one: not (one["kl"] and one["kl_in"] == "reward" and one["channels"]["apart"]))
    )
    chosen = section(**picked)
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
