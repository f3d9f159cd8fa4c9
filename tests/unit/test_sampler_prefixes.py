"""Openings that begin as a text in the store does are read from there on only, and no stale text is ever used."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from ferrata.models.policy import Policy
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import Completion
from ferrata.sampling.slots import MIN_SHARED_TOKENS, Slots, common


def ids(count: int, seed: int = 0) -> list[int]:
    stream = random.Random(seed)
    return [stream.randrange(5, 300) for _ in range(count)]


COMMON = ids(40)
"""What all openings of a test begin with."""


def turn(sampler: LocalSampler, key: int, text: list[int], budget: int = 3) -> Completion:
    """Begin an episode, and sample its first turn; it stays open."""
    sampler.open(key, key, 1.0)
    sampler.submit(key, text, budget)
    return next_of(sampler, key)


def next_of(sampler: LocalSampler, key: int) -> Completion:
    while True:
        for done in sampler.advance():
            if done.key == key:
                return done


def agrees(policy: Policy, text: list[int], done: Completion) -> None:
    """Every log-probability is that of a plain pass over the whole text."""
    with torch.inference_mode():
        logits = policy.model(input_ids=torch.tensor([[*text, *done.token_ids]])).logits[0]
    expected = logits.log_softmax(-1)[len(text) - 1 : -1]
    picked = expected[torch.arange(len(done.token_ids)), torch.tensor(done.token_ids)]
    assert done.logprobs == pytest.approx(picked.tolist(), abs=1e-4)


@contextmanager
def other_weights(policy: Policy) -> Iterator[None]:
    """The policy after an update that changes what every layer computes."""
    changed = [weight for name, weight in policy.model.named_parameters() if "proj" in name]
    with torch.no_grad():
        for weight in changed:
            weight.mul_(0.5)
        try:
            yield
        finally:
            for weight in changed:
                weight.mul_(2.0)


def test_a_member_that_begins_later_reads_one_token(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 3, 150)
    turn(sampler, 0, COMMON)
    assert (sampler.counts.read, sampler.counts.shared) == (40, 0)
    done = turn(sampler, 1, COMMON)
    assert (sampler.counts.read, sampler.counts.shared) == (41, 39)
    agrees(tiny_policy, COMMON, done)


def test_the_leader_may_have_gone_on_before_others_join(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 3, 150)
    first = turn(sampler, 0, COMMON)
    sampler.submit(0, [7, 8, 9], 4)
    later = next_of(sampler, 0)
    done = turn(sampler, 1, COMMON)
    agrees(tiny_policy, COMMON, done)
    sampler.submit(0, [9], 2)
    read = [*COMMON, *first.token_ids, 7, 8, 9, *later.token_ids, 9]
    agrees(tiny_policy, read, next_of(sampler, 0))


def test_different_tasks_share_their_common_beginning(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 4, 150)
    openings = [[*COMMON, *ids(5 + key, key + 1)] for key in range(4)]
    for key, opening in enumerate(openings):
        sampler.open(key, key, 1.0)
        sampler.submit(key, opening, 2)
    done = {}
    while len(done) < 4:
        done |= {completion.key: completion for completion in sampler.advance()}
    # They began at the same time: all but one waited a step, so that the common part was read once.
    assert sampler.counts.read == 40 + sum(5 + key for key in range(4))
    assert sampler.counts.shared == 3 * 40
    for key, opening in enumerate(openings):
        agrees(tiny_policy, opening, done[key])


def test_a_short_common_beginning_is_read_again(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 2, 150)
    short = COMMON[: MIN_SHARED_TOKENS - 1]
    turn(sampler, 0, [*short, 5, 6])
    turn(sampler, 1, [*short, 6, 5])
    assert sampler.counts.shared == 0


def test_what_a_closed_episode_read_is_used_while_others_play(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 3, 150)
    turn(sampler, 0, ids(20, 3))
    turn(sampler, 1, COMMON)
    sampler.close(1)
    for key in (2, 3):
        agrees(tiny_policy, [*COMMON, key + 5], turn(sampler, key, [*COMMON, key + 5]))
    assert sampler.counts.shared == 80


def test_a_slot_that_was_moved_holds_only_what_its_episode_read(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 3, 150)
    for key in range(3):
        turn(sampler, key, [*COMMON, *ids(4, key + 5)])
    sampler.close(0)
    agrees(tiny_policy, [*COMMON, 5, 6], turn(sampler, 3, [*COMMON, 5, 6]))
    sampler.submit(2, [9], 3)
    next_of(sampler, 2)
    agrees(tiny_policy, [*COMMON, *ids(4, 6), 5], turn_after_closing(sampler, [*COMMON, *ids(4, 6), 5]))


def test_a_slot_that_is_moved_before_it_has_read_holds_nothing(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 3, 150)
    for key, text in enumerate((ids(20, 3), ids(20, 4), COMMON)):
        turn(sampler, key, text)
    sampler.close(2)
    # Its slot still holds the common text, but the slot that it moves to does not.
    sampler.open(3, 3, 1.0)
    sampler.close(0)
    sampler.submit(3, COMMON, 3)
    agrees(tiny_policy, COMMON, next_of(sampler, 3))
    assert sampler.counts.shared == 39


def turn_after_closing(sampler: LocalSampler, text: list[int]) -> Completion:
    sampler.close(3)
    return turn(sampler, 4, text)


def test_fault_19_a_stale_prefix_is_not_used_after_a_weight_update(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 2, 150)
    turn(sampler, 0, COMMON)
    sampler.close(0)
    with other_weights(tiny_policy):
        sampler.publish(1)
        done = turn(sampler, 1, COMMON)
        agrees(tiny_policy, COMMON, done)
    assert sampler.counts.shared == 0
    assert sampler.version == 1


def test_fault_19_publishing_alone_forgets(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 2, 150)
    sampler._state.take(1, COMMON)
    sampler.publish(1)
    assert sampler._state.beginning(COMMON) == (0, 0)


def test_an_empty_sampler_remembers_nothing(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 2, 150)
    turn(sampler, 0, COMMON)
    sampler.close(0)
    turn(sampler, 1, COMMON)
    assert (sampler.counts.read, sampler.counts.shared) == (80, 0)


def test_a_pass_that_fails_leaves_no_text_that_was_written_over(
    tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = LocalSampler(tiny_policy, 3, 150)
    turn(sampler, 0, ids(20, 3))
    turn(sampler, 1, COMMON)
    sampler.close(1)

    def broken(*_: object) -> torch.Tensor:
        sampler._cache.store[:, :, 1] = 0.0
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(sampler, "forward", broken)
        sampler.open(2, 2, 1.0)
        sampler.submit(2, ids(10, 9), 2)
        with pytest.raises(RuntimeError):
            sampler.advance()
    sampler.close(2)
    agrees(tiny_policy, COMMON, turn(sampler, 3, COMMON))


def test_tokens_read_in_an_episode_are_the_tokens_in_it(tiny_policy: Policy) -> None:
    sampler = LocalSampler(tiny_policy, 1, 150)
    turn(sampler, 0, COMMON)
    for number in range(5):
        sampler.submit(0, ids(6, number), 4)
        next_of(sampler, 0)
    assert sampler.counts.read == 40 + 5 * 6 + 5  # and the last token of each turn, which nobody had read yet
    assert sampler.counts.sampled == 3 + 5 * 4


def test_common_and_beginning_stop_where_texts_differ() -> None:
    assert common([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common([1, 2], [1, 2, 3]) == 2
    assert common([], [1]) == 0
    slots = Slots.make(2, 100)
    slots.take(1, list(range(50)))
    assert slots.beginning(list(range(50))) == (1, 49)
    assert slots.beginning([*range(45), 7, 7, 7]) == (1, 45)
    assert slots.beginning([*range(31), 99, *range(60)]) == (0, 0)
