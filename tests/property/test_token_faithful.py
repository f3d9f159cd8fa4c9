"""Invariant 1: the ids that are trained are the ids that were sampled, whatever they are."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ferrata.envs import Environment
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import Trajectory
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collector import Collector

VOCABULARY = 380
"""Every id of the test tokenizer, its control tokens and lone bytes included, and a few beyond it."""

turns = st.lists(st.lists(st.integers(0, VOCABULARY), min_size=1, max_size=40), min_size=1, max_size=6)


def sampled(trajectory: Trajectory) -> list[int]:
    return [token for token, mine in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if mine]


@given(episodes=st.lists(turns, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_trained_ids_are_the_sampled_ids(
    episodes: list[list[list[int]]], tiny_policy: Policy, errand: type[Environment], script: Any
) -> None:
    sampler = script(lambda key, turn: episodes[key][turn % len(episodes[key])], slots=2)
    section = RolloutSection(max_tokens=200, max_tokens_per_turn=30)
    collector = Collector(sampler, lambda: errand(score=RewardSpec(RewardSection())), tiny_policy.chat, section)
    task = errand().tasks("train", 1)[0]
    [group] = collector.collect([(task, len(episodes))], 0).groups
    # Episodes are opened in order, so the sampler's key is the member's number.
    for key, trajectory in enumerate(group.trajectories):
        assert sampled(trajectory) == [token for turn in sampler.sampled[key] for token in turn]
        assert [turn.token_ids for turn in trajectory.turns] == sampler.sampled[key]
        assert interleave(sampler.read[key], sampler.sampled[key]) == trajectory.token_ids
        assert len(trajectory.token_ids) == len(trajectory.loss_mask) == len(trajectory.logprobs) <= 200
        for turn in trajectory.turns:
            assert len(turn.logprobs) == len(turn.token_ids) <= 30
            assert turn.text == tiny_policy.chat.text(turn.token_ids)
        taken = [logprob for turn in trajectory.turns for logprob in turn.logprobs]
        assert [logprob for logprob in trajectory.logprobs if logprob] == taken


@given(
    episodes=st.lists(turns, min_size=1, max_size=3),
    thinking=st.integers(0, 20),
    observation=st.integers(0, 40),
    total=st.integers(60, 200),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_budget_changes_what_is_trained(
    episodes: list[list[list[int]]],
    thinking: int,
    observation: int,
    total: int,
    tiny_policy: Policy,
    errand: type[Environment],
    script: Any,
) -> None:
    """Thinking that is cut in the middle of a turn, observations that are cut, and an episode that ends anywhere."""
    sampler = script(lambda key, part: episodes[key][part % len(episodes[key])], slots=2)
    section = RolloutSection(
        max_tokens=total, max_tokens_per_turn=30, max_thinking_tokens=thinking, max_observation_tokens=observation
    )
    collector = Collector(sampler, lambda: errand(score=RewardSpec(RewardSection())), tiny_policy.chat, section)
    task = errand().tasks("train", 1)[0]
    [group] = collector.collect([(task, len(episodes))], 0).groups
    for key, trajectory in enumerate(group.trajectories):
        said = [token for part in sampler.sampled[key] for token in part]
        assert sampled(trajectory) == said
        assert [token for turn in trajectory.turns for token in turn.token_ids] == said
        assert interleave(sampler.read[key], sampler.sampled[key]) == trajectory.token_ids
        assert len(trajectory.token_ids) == len(trajectory.loss_mask) == len(trajectory.logprobs) <= total
        assert all(len(turn.logprobs) == len(turn.token_ids) <= 30 for turn in trajectory.turns)


def interleave(read: list[list[int]], said: list[list[int]]) -> list[int]:
    assert len(read) == len(said)
    return [token for heard, answer in zip(read, said, strict=True) for token in (*heard, *answer)]


@given(text=st.text(max_size=60))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_observations_carry_no_control_token_of_their_own(
    text: str, tiny_policy: Policy, tokenizer: PreTrainedTokenizerFast
) -> None:
    ids = tiny_policy.chat.following(text, closed=True)
    assert set(ids[1:-1]).isdisjoint(tokenizer.added_tokens_decoder)
    assert tokenizer.decode(ids[1:-1]) == text
