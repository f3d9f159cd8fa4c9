"""Invariant 5: a batch split in micro-batches gives the same gradient as the whole batch."""

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from ferrata.learning.batch import Example
from ferrata.learning.learner import Learner
from ferrata.learning.supervised import SupervisedLearner
from ferrata.recipe import RlSection, SftSection

VOCABULARY = 17


def tiny_policy(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


POLICY, REFERENCE = tiny_policy(0), tiny_policy(1)


@st.composite
def batches(draw: st.DrawFn) -> list[Example]:
    """Examples of ragged length, some without any trained token, one at least with some."""
    stream = random.Random(draw(st.integers(0, 2**32)))
    examples = []
    for length in draw(st.lists(st.integers(2, 24), min_size=1, max_size=7)):
        mask = [False, *(stream.random() < 0.6 for _ in range(length - 1))]
        ids = [stream.randrange(VOCABULARY) for _ in range(length)]
        logprobs = [stream.uniform(-4, -2) if trained else 0.0 for trained in mask]
        examples.append(Example(ids, mask, logprobs, [stream.uniform(-2, 2)] * sum(mask)))
    return [*examples, Example([1, 2, 3], [False, True, True], [0.0, -3.0, -2.5], [1.0, 1.0])]


def gradient(model: LlamaForCausalLM) -> torch.Tensor:
    """All gradients end to end, and none left behind."""
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    model.zero_grad()
    return flat


def freeze_step(monkeyed: Learner | SupervisedLearner) -> None:
    """Keep the gradient and the weights: the optimizer does nothing."""
    monkeyed._optimizer.step = lambda: None
    monkeyed._optimizer.zero_grad = lambda: None


def rl_gradient(examples: list[Example], tokens: int) -> tuple[torch.Tensor, dict[str, float]]:
    section = RlSection(minibatches=1, microbatch_tokens=tokens, kl=0.1, entropy=0.05, max_grad_norm=1e9)
    learner = Learner(POLICY, section, REFERENCE)
    freeze_step(learner)
    metrics = learner.update(examples, random.Random(0))
    return gradient(POLICY), metrics


def sft_gradient(examples: list[Example], tokens: int) -> tuple[torch.Tensor, dict[str, float]]:
    learner = SupervisedLearner(POLICY, SftSection(max_grad_norm=1e9), microbatch_tokens=tokens)
    freeze_step(learner)
    metrics = learner.update(examples)
    return gradient(POLICY), metrics


def assert_equal(one: tuple[torch.Tensor, dict[str, float]], other: tuple[torch.Tensor, dict[str, float]]) -> None:
    distance = (one[0] - other[0]).norm() / one[0].norm()
    assert distance < 1e-6
    assert one[1].keys() == other[1].keys()
    for name, value in one[1].items():
        assert abs(value - other[1][name]) <= 1e-6 * max(1.0, abs(value)), name


@settings(max_examples=25, deadline=None)
@given(batches(), st.integers(1, 90))
def test_reinforcement_gradient_and_metrics_do_not_depend_on_the_split(examples: list[Example], tokens: int) -> None:
    assert_equal(rl_gradient(examples, 10_000), rl_gradient(examples, tokens))


@settings(max_examples=25, deadline=None)
@given(batches(), st.integers(1, 90))
def test_supervised_gradient_and_metrics_do_not_depend_on_the_split(examples: list[Example], tokens: int) -> None:
    assert_equal(sft_gradient(examples, 10_000), sft_gradient(examples, tokens))
