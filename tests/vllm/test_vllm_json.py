"""With `stop="json"` a turn under vLLM ends where its action is complete."""

from __future__ import annotations

import pytest

from ferrata.models.policy import Policy
from ferrata.sampling.closing import Closings
from ferrata.sampling.vllm import sampler as module
from ferrata.sampling.vllm.sampler import VllmSampler

KEYS, BUDGET, ACTION = range(4), 12, 4


class ClosesSoon(Closings):
    """An action is complete with its fourth token, whatever the model says."""

    def begin(self, key: int) -> None:
        super().begin(key)
        self.read = {**getattr(self, "read", {}), key: 0}

    def closes(self, key: int, token: int) -> bool:
        super().closes(key, token)
        self.read[key] += 1
        return self.read[key] == ACTION


def turns(policy: Policy, openings, finish, stop: str):
    """The first turn of each episode, a second one of three tokens, and one that goes on with it."""
    with VllmSampler(policy, len(KEYS), 300, stop) as sampler:
        for key in KEYS:
            sampler.open(key, key, 2.0)
            sampler.submit(key, openings[key], BUDGET)
        first = finish(sampler, len(KEYS))
        assert sampler.advance() == []
        for key in KEYS:
            sampler.submit(key, policy.chat.following("found", closed=True), 3)
        second = finish(sampler, len(KEYS))
        for key in KEYS:
            sampler.submit(key, [], 4)
        third = finish(sampler, len(KEYS))
        histories = {key: list(sampler._episodes[key].ids) for key in KEYS}
        for key in KEYS:
            sampler.close(key)
    return first, second, third, histories


def test_a_turn_ends_behind_its_action(base, openings, finish, monkeypatch) -> None:
    whole = turns(base, openings, finish, "turn")[0]
    monkeypatch.setattr(module, "Closings", ClosesSoon)
    first, second, third, histories = turns(base, openings, finish, "json")
    cut = [key for key in KEYS if len(whole[key].token_ids) > ACTION]
    assert cut, "there is something to cut"
    gone_on = 0
    for key in KEYS:
        assert first[key].token_ids == whole[key].token_ids[:ACTION], "the same draws, up to where it ends"
        assert first[key].logprobs == pytest.approx(whole[key].logprobs[:ACTION], abs=1e-5)
        assert first[key].stopped or key not in cut
        parts = (first[key].token_ids, second[key].token_ids, third[key].token_ids)
        following = base.chat.following("found", closed=True)
        assert histories[key] == [*openings[key], *parts[0], *following, *parts[1], *parts[2]]
        if not second[key].stopped:
            gone_on += 1
            assert (len(parts[1]), len(parts[2])) == (3, 1), "the turn goes on where it was, one token from its end"
            assert third[key].stopped
    assert gone_on, "some turn was cut by its budget"
