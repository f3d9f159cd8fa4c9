"""What vLLM samples, against plain forward passes and against the local sampler."""

from __future__ import annotations

import pytest
import torch

from ferrata.errors import UsageError
from ferrata.sampling.vllm import sampler
from ferrata.sampling.vllm.engine import turn_settings

KEYS = [1, 2, 3, 4, 5]


def scaled(key: int) -> float:
    return (0.0, 1.0, 0.6)[key % 3]


def test_logprobs_are_those_of_a_plain_forward_pass_at_the_temperature(vllm, base, play) -> None:
    compared = 0
    for key, history in play(vllm, KEYS, scaled).items():
        with torch.inference_mode():
            logits = base.model(input_ids=torch.tensor([[token for token, _ in history]])).logits[0]
        expected = (logits / (scaled(key) or 1.0)).log_softmax(-1)
        for place, (token, logprob) in enumerate(history):
            if logprob is not None:
                compared += 1
                assert logprob == pytest.approx(expected[place - 1, token].item(), abs=1e-4)
                assert scaled(key) or token == int(expected[place - 1].argmax())
    assert compared > 50


def test_an_episode_does_not_change_with_its_neighbours(vllm, play) -> None:
    together = play(vllm, KEYS, scaled)
    for key in KEYS:
        alone = play(vllm, [key], scaled)[key]
        assert [token for token, _ in alone] == [token for token, _ in together[key]]
        for (_, one), (_, other) in zip(alone, together[key], strict=True):
            assert (one is None) == (other is None)
            assert one is None or one == pytest.approx(other, abs=1e-5)


def test_draws_depend_on_the_seed_and_the_turn(vllm, openings, finish, monkeypatch) -> None:
    seeds = []

    def spy(**settings):
        seeds.append(settings["seed"])
        return turn_settings(**settings)

    monkeypatch.setattr(sampler, "turn_settings", spy)
    for key, seed in enumerate((7, 7, 8)):
        vllm.open(key, seed, 2.0)
        vllm.submit(key, openings[0], 12)
    first = finish(vllm, 3)
    assert first[0].token_ids == first[1].token_ids != first[2].token_ids
    vllm.submit(0, openings[0], 12)
    finish(vllm, 1)
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3


def test_a_stop_id_ends_a_turn_and_is_the_last_id(vllm, base, openings, finish) -> None:
    vllm.open(0, 0, 0.0)
    vllm.submit(0, openings[0], 200)
    whole = finish(vllm, 1)[0]
    assert whole.stopped
    assert whole.token_ids[-1] in base.chat.stop_ids
    assert base.chat.stop_ids.isdisjoint(whole.token_ids[:-1])
    assert len(whole.logprobs) == len(whole.token_ids)


def test_a_budget_ends_a_turn(vllm, openings, finish) -> None:
    for key, budget in enumerate((1, 3, 5)):
        vllm.open(key, 0, 0.0)
        vllm.submit(key, openings[0], budget)
    done = finish(vllm, 3)
    assert [(len(done[key].token_ids), done[key].stopped) for key in range(3)] == [(1, False), (3, False), (5, False)]


def test_a_turn_cut_by_its_budget_goes_on_without_new_ids(vllm, openings, finish) -> None:
    for key, budget in enumerate((9, 4)):
        vllm.open(key, 0, 0.0)
        vllm.submit(key, openings[0], budget)
    first = finish(vllm, 2)
    vllm.submit(1, [], 5)
    assert first[1].token_ids + finish(vllm, 1)[1].token_ids == first[0].token_ids


def test_an_episode_may_fill_its_length_exactly(vllm, finish) -> None:
    vllm.open(0, 0, 1.0)
    vllm.submit(0, [300] * (vllm.max_length - 2), 2)
    assert 1 <= len(finish(vllm, 1)[0].token_ids) <= 2
    vllm.open(1, 0, 1.0)
    with pytest.raises(AssertionError, match="do not fit"):
        vllm.submit(1, [300] * (vllm.max_length - 1), 2)


def test_any_ids_go_in_unchanged(vllm, base, finish) -> None:
    """Halves of characters and control tokens: nothing is ever decoded and encoded again."""
    ids = [200, 201, base.chat.end_id, base.chat.end_id, 0, 195, base.model.config.vocab_size - 1]
    vllm.open(0, 0, 1.0)
    vllm.submit(0, ids, 4)
    done = finish(vllm, 1)[0]
    with torch.inference_mode():
        logits = base.model(input_ids=torch.tensor([[*ids, *done.token_ids]])).logits[0]
    for place, (token, logprob) in enumerate(zip(done.token_ids, done.logprobs, strict=True)):
        assert logprob == pytest.approx(logits[len(ids) + place - 1].log_softmax(-1)[token].item(), abs=1e-4)


def test_what_was_read_is_not_read_again(vllm, play) -> None:
    before = vllm.prefilled
    histories = play(vllm, KEYS, scaled)
    read = vllm.prefilled - before
    tokens = sum(len(history) for history in histories.values())
    assert read < tokens + 3 * 32 * len(KEYS)  # three turns, each reading less than a block again
    clock = vllm.clock
    assert min(clock.prefill, clock.decode) > 0.0


@pytest.mark.parametrize("temperature", [0.005, 2.5])
def test_a_temperature_that_vllm_would_change_or_refuse_is_refused(vllm, temperature) -> None:
    with pytest.raises(UsageError, match=r"0\.01 to 2\.0"):
        vllm.open(0, 0, temperature)
    assert vllm.free == 6
