"""The continuous-batching sampler against plain forward passes of the same model, and against itself."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ferrata.errors import PolicyError, UsageError
from ferrata.models.policy import Policy
from ferrata.sampling import local
from ferrata.sampling.draw import draw
from ferrata.sampling.local import LocalSampler

History = list[tuple[int, float | None]]
"""An episode as (id, log-probability); None for ids that were read."""


def play(
    policy: Policy,
    keys: list[int],
    slots: int,
    temperature: Callable[[int], float],
    opening: Callable[[int], list[int]],
) -> dict[int, History]:
    """Episodes that read and act over several turns; each one's texts and budgets depend on its key alone."""
    sampler = LocalSampler(policy, slots, 150)
    waiting, streams = list(keys), {key: random.Random(key) for key in keys}
    histories: dict[int, History] = {}

    def ask(key: int, ids: list[int]) -> None:
        histories[key].extend((token, None) for token in ids)
        sampler.submit(key, ids, streams[key].randint(1, 9))

    while waiting or sampler.free < slots:
        while waiting and sampler.free:
            key = waiting.pop(0)
            histories[key] = []
            sampler.open(key, 100 + key, temperature(key))
            ask(key, opening(key))
        for done in sampler.advance():
            histories[done.key].extend(zip(done.token_ids, done.logprobs, strict=True))
            stream = streams[done.key]
            if stream.random() < 0.2 or len(histories[done.key]) > 120:
                sampler.close(done.key)
            else:
                ask(done.key, [stream.randrange(5, 300) for _ in range(stream.randint(1, 15))])
    return histories


def own_opening(key: int) -> list[int]:
    stream = random.Random(-key)
    return [stream.randrange(5, 300) for _ in range(stream.randint(2, 20))]


def check_against_plain_passes(policy: Policy, histories: dict[int, History], greedy: set[int]) -> int:
    """Compare every sampled token with a forward pass over its whole episode; return how many there were."""
    compared = 0
    for key, history in histories.items():
        with torch.inference_mode():
            logits = policy.model(input_ids=torch.tensor([[token for token, _ in history]])).logits[0]
        expected = logits.log_softmax(-1)
        for place, (token, logprob) in enumerate(history):
            if logprob is None:
                continue
            compared += 1
            assert logprob == pytest.approx(expected[place - 1, token].item(), abs=1e-4)
            if key in greedy:
                assert token == int(expected[place - 1].argmax())
    return compared


@pytest.mark.parametrize("fixture", ["tiny_policy", "policy_with_all_heads"])
def test_every_token_agrees_with_a_plain_forward_pass(fixture: str, request: pytest.FixtureRequest) -> None:
    policy = request.getfixturevalue(fixture)
    keys = list(range(14))
    histories = play(policy, keys, 5, lambda key: float(key % 2), own_opening)
    assert check_against_plain_passes(policy, histories, {key for key in keys if key % 2 == 0}) > 200


def test_members_of_a_group_share_the_reading_of_their_opening(
    tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    forward = LocalSampler._forward

    def spy(self: LocalSampler, step: local._Step) -> torch.Tensor:
        read.append(len(step.tokens))
        return forward(self, step)

    monkeypatch.setattr(LocalSampler, "_forward", spy)
    histories = play(tiny_policy, list(range(6)), 6, lambda key: 1.0, lambda key: own_opening(key // 3))
    assert read[0] == len(own_opening(0)) + len(own_opening(1))
    assert check_against_plain_passes(tiny_policy, histories, set()) > 50


def test_tokens_do_not_depend_on_the_neighbours(tiny_policy: Policy) -> None:
    crowd = play(tiny_policy, list(range(9)), 4, lambda key: 1.0, own_opening)
    for key in range(9):
        alone = play(tiny_policy, [key], 1, lambda key: 1.0, own_opening)
        assert [token for token, _ in alone[key]] == [token for token, _ in crowd[key]]


def test_members_with_their_own_seeds_differ(tiny_policy: Policy) -> None:
    histories = play(tiny_policy, list(range(4)), 4, lambda key: 1.0, lambda key: own_opening(0))
    assert len({tuple(token for token, _ in history) for history in histories.values()}) == 4


def test_reading_is_spread_over_steps_when_it_is_much(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MAX_READING_TOKENS", 10)
    histories = play(tiny_policy, list(range(6)), 6, lambda key: 0.0, own_opening)
    assert check_against_plain_passes(tiny_policy, histories, set(range(6))) > 50


def test_a_turn_ends_at_a_stop_id_or_at_its_budget(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 1, 100)
    sampler.open(0, 0, 0.0)
    sampler.submit(0, [5, 6, 7], 3)
    first = finish(sampler)
    assert len(first.token_ids) == 3
    assert not first.stopped
    sampler.close(0)
    sampler._stops = np.array([first.token_ids[1]])
    sampler.open(0, 0, 0.0)
    sampler.submit(0, [5, 6, 7], 3)
    second = finish(sampler)
    assert second.token_ids == first.token_ids[:2]
    assert second.stopped


def finish(sampler: LocalSampler) -> local.Completion:
    while True:
        if completions := sampler.advance():
            return completions[0]


def test_nothing_to_do_gives_nothing(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 2, 100)
    assert sampler.advance() == []
    sampler.open(3, 0, 1.0)
    assert sampler.advance() == []
    assert sampler.free == 1


def test_new_weights_need_all_episodes_closed_and_are_then_used(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 1, 100)
    sampler.open(0, 0, 0.0)
    with pytest.raises(AssertionError, match="while episodes are open"):
        sampler.publish(1)
    sampler.submit(0, [5, 6, 7], 1)
    before = finish(sampler).logprobs[0]
    sampler.close(0)
    weights = tiny_policy.model.get_output_embeddings().weight
    with torch.no_grad():
        weights.mul_(0.5)
        try:
            sampler.publish(1)
            sampler.open(0, 0, 0.0)
            sampler.submit(0, [5, 6, 7], 1)
            assert finish(sampler).logprobs[0] < before
        finally:
            weights.mul_(2.0)
    assert sampler.version == 1


def test_the_model_is_left_as_it_was(tiny_policy: Policy) -> None:
    tiny_policy.model.train()
    try:
        sampler = LocalSampler(tiny_policy, 1, 100)
        sampler.open(0, 0, 0.0)
        sampler.submit(0, [5], 1)
        finish(sampler)
        assert tiny_policy.model.training
    finally:
        tiny_policy.model.eval()
    assert tiny_policy.model.config._attn_implementation == "sdpa"


def test_the_models_context_bounds_an_episode(tiny_policy: Policy) -> None:
    assert LocalSampler(tiny_policy, 1, 10**6).max_length == tiny_policy.model.config.max_position_embeddings


def test_sliding_attention_is_refused(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_policy.model.config, "layer_types", ["sliding_attention"] * 3, raising=False)
    with pytest.raises(PolicyError, match="sliding_attention"):
        LocalSampler(tiny_policy, 1, 100)


def test_draws_follow_the_distribution_at_their_temperature() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0, -torch.inf]]).expand(4000, 4)
    uniform = torch.from_numpy(np.random.default_rng(0).random(4000))
    tokens, logprobs = draw(logits, torch.full((4000,), 0.5), uniform)
    expected = (logits[0] / 0.5).softmax(-1)
    share = torch.bincount(tokens, minlength=4) / 4000
    assert torch.allclose(share, expected, atol=0.02)
    assert torch.allclose(logprobs, expected[tokens].log(), atol=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-53])
def test_draws_never_take_an_impossible_token(uniform: float) -> None:
    torch.manual_seed(0)
    # Rounding brings the sum of the probabilities of some rows below the largest uniform number.
    logits = torch.randn(200, 50)
    logits[:, [0, 49]] = -torch.inf
    tokens, logprobs = draw(logits, torch.ones(200), torch.full((200,), uniform, dtype=torch.float64))
    assert set(tokens.tolist()) <= set(range(1, 49))
    assert logprobs.isfinite().all()


def test_greedy_takes_the_best_and_reports_its_plain_probability() -> None:
    token, logprob = draw(torch.tensor([[0.0, 2.0]]), torch.zeros(1), torch.tensor([0.01], dtype=torch.float64))
    assert int(token) == 1
    assert float(logprob) == pytest.approx(-np.log1p(np.exp(-2.0)), abs=1e-6)


def test_a_store_that_no_memory_holds_is_refused(tiny_policy: Policy) -> None:
    with pytest.raises(PolicyError, match=r"need \d+\.\d GB, which cannot be had: lower rollout.episodes_at_once"):
        LocalSampler(tiny_policy, 10**9, 120)


@pytest.mark.parametrize("temperature", [1e-46, 1e-40, 0.009, 101.0, 1e39, float("nan"), -1.0])
def test_a_temperature_that_no_draw_can_be_made_at_is_refused(tiny_policy: Policy, temperature: float) -> None:
    sampler = LocalSampler(tiny_policy, 1, 20)
    with pytest.raises(UsageError, match=r"Nothing can be sampled at temperature .*: use 0\.0, or 0\.01 to 100\.0\."):
        sampler.open(0, 0, temperature)
    for allowed in (0.0, 0.01, 100.0):
        sampler.open(0, 0, allowed)
        sampler.submit(0, [1, 2], 1)
        [turn] = sampler.advance()
        assert turn.logprobs[0] <= 0.0
        sampler.close(0)
