"""Micro-batches hold every trained token once, at the place from which it is predicted; padding changes nothing."""

import random
from itertools import accumulate

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ferrata.errors import PolicyError
from ferrata.learning import forward
from ferrata.learning.batch import Example, split, trained_tokens
from ferrata.learning.forward import (
    check_model,
    logprobs_by_example,
    token_logprobs,
    token_scores,
    trained_hidden,
)
from ferrata.learning.packing import MicroBatch, microbatches
from ferrata.models.variants import refuse_variants

VOCABULARY = 23


def tiny_policy() -> LlamaForCausalLM:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def example(stream: random.Random, length: int, temperature: float = 1.0) -> Example:
    ids = [stream.randrange(VOCABULARY) for _ in range(length)]
    mask = [False, *(stream.random() < 0.5 for _ in ids[1:])]
    logprobs = [-stream.random() if trained else 0.0 for trained in mask]
    return Example(ids, mask, logprobs, [stream.uniform(-1, 1)] * sum(mask), temperature)


def some_examples(count: int = 9) -> list[Example]:
    stream = random.Random(5)
    return [example(stream, stream.randrange(2, 20)) for _ in range(count)]


def plain_logprobs(model: LlamaForCausalLM, one: Example, graph: bool = False) -> torch.Tensor:
    """The same by the model's own forward over the whole sequence, one example at a time."""
    with torch.set_grad_enabled(graph):
        logits = model(input_ids=torch.tensor([one.token_ids])).logits[0] / one.temperature
    logprobs = logits.log_softmax(dim=-1)
    return torch.stack([logprobs[target - 1, one.token_ids[target]] for target in one.targets])


def group(stream: random.Random, opening: int, members: int) -> list[Example]:
    """Examples that begin alike; some consist of one trained token behind that."""
    shared = [stream.randrange(VOCABULARY) for _ in range(opening)]
    examples = []
    for _ in range(members):
        own = [stream.randrange(VOCABULARY) for _ in range(stream.choice([1, 2, 7, 12]))]
        mask = [False] * opening + [True] + [stream.random() < 0.5 for _ in own[1:]]
        numbers = [stream.uniform(-1, 1) for _ in range(sum(mask))]
        logprobs = [-stream.random() if trained else 0.0 for trained in mask]
        examples.append(Example([*shared, *own], mask, logprobs, numbers))
    return examples


def some_groups() -> list[Example]:
    """Ragged groups, openings too short to share, and examples by themselves, in no order."""
    stream = random.Random(8)
    groups = [group(stream, opening, members) for opening, members in ((20, 4), (16, 2), (31, 3), (3, 3), (25, 1))]
    examples = [*some_examples(), *(one for members in groups for one in members)]
    stream.shuffle(examples)
    return examples


def read_back(batch: MicroBatch, n: int) -> list[int]:
    """What the n-th trained token is predicted from: ids up to its place, through the root where there is one."""
    layout, place = batch.layout, int(batch.places_N[n])
    ends = list(accumulate([*layout.roots, *layout.branches]))
    row = next(row for row, end in enumerate(ends) if place < end)
    begin = ends[row] - [*layout.roots, *layout.branches][row]
    before: list[int] = []
    if row >= len(layout.roots):
        parent = layout.parents[row - len(layout.roots)]
        before = batch.ids_T[ends[parent] - layout.roots[parent] : ends[parent]].tolist()
    return [*before, *batch.ids_T[begin : place + 1].tolist()]


@pytest.mark.parametrize("tokens", [1, 17, 40, 10_000])
def test_every_trained_token_stands_in_one_micro_batch_with_its_numbers(tokens: int) -> None:
    examples = some_groups()
    seen = []
    for batch in microbatches(examples, tokens):
        assert len(batch.ids_T) == sum(batch.layout.roots) + sum(batch.layout.branches) == len(batch.layout.positions)
        assert len(batch.examples) == 1 or len(batch.ids_T) <= tokens
        owners = [index for index, count in zip(batch.examples, batch.counts, strict=True) for _ in range(count)]
        targets = [target for index in batch.examples for target in examples[index].targets]
        numbers = [number for index in batch.examples for number in examples[index].advantages]
        for n, (owner, target) in enumerate(zip(owners, targets, strict=True)):
            one = examples[owner]
            assert read_back(batch, n) == list(one.token_ids[:target])
            assert int(batch.layout.positions[batch.places_N[n]]) == target - 1
            assert batch.targets_N[n] == one.token_ids[target]
            assert batch.sampled_logprobs_N[n].item() == pytest.approx(one.logprobs[target])
            assert batch.advantages_N[n].item() == pytest.approx(numbers[n])
            seen.append((owner, target))
    assert sorted(seen) == [(i, target) for i, one in enumerate(examples) for target in one.targets]
    assert len(seen) == trained_tokens(examples)


def test_a_shared_opening_is_read_once() -> None:
    members = group(random.Random(2), 20, 5)
    (batch,) = microbatches(members, 10_000)
    assert batch.layout.roots == [20]
    assert len(batch.ids_T) == 20 + sum(one.length - 20 for one in members)


@pytest.mark.parametrize("tokens", [1, 60, 10_000])
def test_the_gradient_through_a_shared_opening_is_that_of_all_its_members(tokens: int) -> None:
    examples, model = some_groups(), tiny_policy()
    weights = [torch.linspace(-1, 1, len(one.targets)) + 0.1 for one in examples]
    for one, weights_N in zip(examples, weights, strict=True):
        if one.targets:
            (plain_logprobs(model, one, graph=True) * weights_N).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for batch in microbatches(examples, tokens):
        weights_N = torch.cat([weights[index] for index in batch.examples])
        (token_logprobs(model, batch) * weights_N).sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("entropy", [False, True])
def test_chunks_of_logits_change_neither_numbers_nor_gradients(entropy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = tiny_policy(), []
    (batch,) = microbatches([example(random.Random(4), 40, temperature=0.7), *some_examples(3)], 10_000)
    for numbers in (2**24, 3 * VOCABULARY):
        monkeypatch.setattr(forward, "CHUNK_NUMBERS", numbers)
        scores = token_scores(model, trained_hidden(model, batch), batch, entropy=entropy, likeliest=True)
        assert scores.entropy_N.requires_grad is entropy
        (scores.logprobs_N.sum() + scores.entropy_N.square().sum()).backward()
        seen.append([*scores, *(parameter.grad.clone() for parameter in model.parameters())])
        model.zero_grad()
    for whole, chunked in zip(*seen, strict=True):
        torch.testing.assert_close(whole, chunked, atol=1e-5, rtol=1e-4)


def test_never_more_logits_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = tiny_policy(), []
    (batch,) = microbatches(some_examples(), 10_000)
    monkeypatch.setattr(forward, "CHUNK_NUMBERS", 5 * VOCABULARY)
    model.get_output_embeddings().register_forward_hook(lambda _, __, logits: sizes.append(len(logits)))
    token_logprobs(model, batch).sum().backward()
    assert max(sizes) == 5
    assert sum(sizes) == 2 * len(batch.targets_N), "each once forward, and once again backward"


def test_a_sliding_window_is_refused_by_name_where_it_would_matter() -> None:
    with pytest.raises(PolicyError, match="sliding_window, which the learner does not support"):
        refuse_variants({"sliding_window": 4}, 5, "the learner")
    refuse_variants({"sliding_window": 5}, 5, "the learner")


def test_an_example_without_a_trained_token_has_no_row() -> None:
    silent = Example([1, 2, 3], [False, False, False], [0.0, 0.0, 0.0])
    assert microbatches([silent], 100) == []
    batches = microbatches([silent, *some_examples(2)], 100)
    assert all(0 not in batch.examples for batch in batches)


def test_rows_end_before_the_last_trained_token() -> None:
    one = Example([5, 6, 7, 8, 9], [False, True, True, False, False], [0.0, -1.0, -1.0, 0.0, 0.0])
    (batch,) = microbatches([one], 100)
    assert batch.ids_T.tolist() == [5, 6]
    assert batch.places_N.tolist() == [0, 1]
    assert batch.targets_N.tolist() == [6, 7]


def test_padding_does_not_change_log_probabilities() -> None:
    model, examples = tiny_policy(), some_examples()
    together = logprobs_by_example(model, microbatches(examples, 10_000), len(examples))
    for one, logprobs in zip(examples, together, strict=True):
        alone = logprobs_by_example(model, microbatches([one], 10_000), 1)[0]
        torch.testing.assert_close(logprobs, alone, atol=1e-5, rtol=0)


def test_log_probabilities_agree_with_the_models_own_forward_at_any_temperature() -> None:
    model, stream = tiny_policy(), random.Random(11)
    examples = [example(stream, 12, temperature) for temperature in (1.0, 0.7, 1.3)]
    scored = logprobs_by_example(model, microbatches(examples, 10_000), len(examples))
    for one, logprobs in zip(examples, scored, strict=True):
        torch.testing.assert_close(logprobs, plain_logprobs(model, one), atol=1e-5, rtol=0)


def test_trained_logits_are_the_only_logits() -> None:
    model, seen = tiny_policy(), []
    model.get_output_embeddings().register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    (batch,) = microbatches(some_examples(), 10_000)
    token_logprobs(model, batch)
    assert seen == [(sum(batch.counts), VOCABULARY)]


def test_split_deals_every_index_once_and_never_an_empty_part() -> None:
    parts = split(7, 3, random.Random(1))
    assert sorted(len(part) for part in parts) == [2, 2, 3]
    assert sorted(i for part in parts for i in part) == list(range(7))
    assert split(2, 5, random.Random(1)) in ([[0], [1]], [[1], [0]])
    assert split(7, 3, random.Random(2)) != parts


@pytest.mark.parametrize(
    ("ids", "mask", "logprobs", "temperature"),
    [
        ([1, 2], [True, True], [0.0, 0.0], 1.0),
        ([1, 2], [False], [0.0, 0.0], 1.0),
        ([1, 2], [False, True], [0.0], 1.0),
        ([1, 2], [False, True], [0.0, 0.0], 0.0),
    ],
)
def test_impossible_examples_are_refused(
    ids: list[int], mask: list[bool], logprobs: list[float], temperature: float
) -> None:
    with pytest.raises(AssertionError):
        Example(ids, mask, logprobs, [1.0] * sum(mask), temperature)


def test_models_that_transform_their_logits_are_refused() -> None:
    model = tiny_policy()
    check_model(model)
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(PolicyError, match="final_logit_softcapping"):
        check_model(model)
