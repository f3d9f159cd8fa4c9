"""Micro-batches hold every trained token once, at the place from which it is predicted; padding changes nothing."""

import random

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ferrata.errors import PolicyError
from ferrata.learning.batch import Example, microbatches, split, trained_tokens
from ferrata.learning.forward import check_model, logprobs_by_example, token_logprobs

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


def plain_logprobs(model: LlamaForCausalLM, one: Example) -> torch.Tensor:
    """The same by the model's own forward over the whole sequence, one example at a time."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([one.token_ids])).logits[0] / one.temperature
    logprobs = logits.log_softmax(dim=-1)
    return torch.stack([logprobs[target - 1, one.token_ids[target]] for target in one.targets])


@pytest.mark.parametrize("tokens", [1, 17, 40, 10_000])
def test_every_trained_token_stands_in_one_micro_batch_with_its_numbers(tokens: int) -> None:
    examples = some_examples()
    seen = []
    for batch in microbatches(examples, tokens):
        rows, width = batch.ids_BT.shape
        assert rows == 1 or rows * width <= tokens
        owners = [index for index, count in zip(batch.examples, batch.counts, strict=True) for _ in range(count)]
        for n, owner in enumerate(owners):
            row, place = divmod(int(batch.places_N[n]), width)
            one, target = examples[owner], place + 1
            assert batch.examples[row] == owner
            assert batch.ids_BT[row, : one.length].tolist() == list(one.token_ids[: one.length])
            assert batch.targets_N[n] == one.token_ids[target]
            assert batch.sampled_logprobs_N[n].item() == pytest.approx(one.logprobs[target])
            assert batch.advantages_N[n].item() == pytest.approx(one.advantages[0])
            seen.append((owner, target))
    assert sorted(seen) == [(i, target) for i, one in enumerate(examples) for target in one.targets]
    assert len(seen) == trained_tokens(examples)


def test_an_example_without_a_trained_token_has_no_row() -> None:
    silent = Example([1, 2, 3], [False, False, False], [0.0, 0.0, 0.0])
    assert microbatches([silent], 100) == []
    batches = microbatches([silent, *some_examples(2)], 100)
    assert all(0 not in batch.examples for batch in batches)


def test_rows_end_before_the_last_trained_token() -> None:
    one = Example([5, 6, 7, 8, 9], [False, True, True, False, False], [0.0, -1.0, -1.0, 0.0, 0.0])
    (batch,) = microbatches([one], 100)
    assert batch.ids_BT.tolist() == [[5, 6]]
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
