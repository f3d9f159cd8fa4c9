"""Invariant 2: the learner's log-probabilities of sampled tokens are those that the sampler stored (fp32: 1e-4)."""

from __future__ import annotations

import copy
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrata.learning.batch import Example
from ferrata.learning.learner import Learner
from ferrata.models.policy import Policy
from ferrata.recipe import RlSection
from ferrata.sampling.local import LocalSampler

BOUND = 1e-4


def sample(policy: Policy, lengths: list[int], temperature: float, seed: int) -> list[Example]:
    """One turn of each episode, all sampled together after openings of these lengths."""
    sampler, stream = LocalSampler(policy, len(lengths), 120), random.Random(seed)
    openings = [[stream.randrange(5, 300) for _ in range(length)] for length in lengths]
    for key, opening in enumerate(openings):
        sampler.open(key, seed + key, temperature)
        sampler.submit(key, opening, 12)
    examples = []
    while len(examples) < len(lengths):
        for turn in sampler.advance():
            opening = openings[turn.key]
            mask = [False] * len(opening) + [True] * len(turn.token_ids)
            logprobs = [0.0] * len(opening) + turn.logprobs
            examples.append(Example([*opening, *turn.token_ids], mask, logprobs, [1.0] * sum(mask), temperature))
    return examples


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.6]),
    seed=st.integers(0, 2**31),
)
def test_sampler_and_learner_agree(tiny_policy: Policy, lengths: list[int], temperature: float, seed: int) -> None:
    examples = sample(tiny_policy, lengths, temperature, seed)
    learner = Learner(copy.deepcopy(tiny_policy.model), RlSection(kl=0.0, minibatches=1))
    assert learner.update(examples, random.Random(0))["rl/logprob_gap_max"] < BOUND


def test_a_learner_at_another_temperature_is_noticed(tiny_policy: Policy) -> None:
    example = sample(tiny_policy, [20], 0.5, 1)[0]
    wrong = Example(example.token_ids, example.loss_mask, example.logprobs, example.advantages, 1.0)
    learner = Learner(copy.deepcopy(tiny_policy.model), RlSection(kl=0.0, minibatches=1))
    assert learner.update([wrong], random.Random(0))["rl/logprob_gap_max"] > 10 * BOUND
