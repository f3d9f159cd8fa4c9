"""Faults of peers in how tokens, budgets and templates are handled, by their number in the list of faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ferrata import load_recipe
from ferrata.envs import Environment
from ferrata.envs.actions import Malformed, parse
from ferrata.errors import RecipeError
from ferrata.models.chat import tool_listing
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import Action, EventKind, StopReason, Trajectory
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collector import Collector

Play = Callable[..., list[Trajectory]]


@pytest.fixture
def play(tiny_policy: Policy, errand: type[Environment], script: Any) -> Play:
    """Episodes of one task in which turn t of episode k says what `say(k, t)` returns."""

    def run(say: Callable[[int, int], Sequence[int]], count: int = 1, max_length: int = 4096, **budgets: Any) -> Any:
        sampler = script(say, slots=count, max_length=max_length)
        score = RewardSpec(RewardSection())
        collector = Collector(sampler, lambda: errand(score=score), tiny_policy.chat, RolloutSection(**budgets))
        [group] = collector.collect([(errand().tasks("train", 1)[0], count)], 0).groups
        collector.close()
        return group.trajectories

    return run


def trained(trajectory: Trajectory) -> list[int]:
    return [token for token, mine in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if mine]


def test_fault_3_a_forced_end_token_is_read_and_not_trained(
    play: Play, saying: Callable[..., list[int]], tiny_policy: Policy
) -> None:
    turn = saying("say", word="ka", closed=False)
    [trajectory] = play(lambda key, number: turn, max_turns=2)
    end = tiny_policy.chat.end_id
    place = trajectory.token_ids.index(end)
    assert trajectory.token_ids[place - len(turn) : place] == turn
    assert not trajectory.loss_mask[place]
    assert end not in trained(trajectory)


def test_fault_3_the_trained_ids_are_sampled_ids_that_no_encoder_would_write(play: Play, tiny_policy: Policy) -> None:
    spelt = [tiny_policy.tokenizer.convert_tokens_to_ids(letter) for letter in "ka"]
    assert tiny_policy.tokenizer.encode("ka", add_special_tokens=False) != spelt
    [trajectory] = play(lambda key, number: [*spelt, tiny_policy.chat.end_id], max_turns=2)
    assert trained(trajectory) == [*spelt, tiny_policy.chat.end_id] * 2


def test_fault_10_what_was_said_is_trained_and_what_was_observed_is_not(
    play: Play, saying: Callable[..., list[int]], tokenizer: PreTrainedTokenizerFast
) -> None:
    [trajectory] = play(lambda key, number: saying("say", word="lo"), max_turns=2)
    read = [token for token, mine in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if not mine]
    assert '"action": "say"' in tokenizer.decode(trained(trajectory))
    assert "said lo" in tokenizer.decode(read)
    assert "said lo" not in tokenizer.decode(trained(trajectory))
    assert '"action": "say"' not in tokenizer.decode(read)


def test_fault_15_the_first_turn_cannot_eat_the_budget_of_the_episode(
    play: Play, tokenizer: PreTrainedTokenizerFast
) -> None:
    babble = tokenizer.encode("ka" * 200, add_special_tokens=False)
    [trajectory] = play(lambda key, number: babble, max_tokens=300, max_tokens_per_turn=25, max_turns=3)
    assert [len(turn.token_ids) for turn in trajectory.turns] == [25, 25, 25]
    assert trajectory.stop is StopReason.MAX_TURNS


def test_fault_16_an_episode_that_outgrows_the_context_ends_alone(
    play: Play, saying: Callable[..., list[int]], tokenizer: PreTrainedTokenizerFast
) -> None:
    def say(key: int, number: int) -> list[int]:
        return saying("say", word="ka" * 60 if key == 0 else "ka")

    long, short = play(say, count=2, max_length=130, max_turns=3, max_tokens=4000, max_tokens_per_turn=100)
    assert long.stop is StopReason.CONTEXT_OVERFLOW
    assert short.stop is StopReason.MAX_TURNS
    # It was cut by its length, after an action that was well-formed.
    assert long.count(EventKind.UNFINISHED) == 1
    assert long.count(EventKind.INVALID) == 0
    assert long.reward is not None


@pytest.mark.parametrize("key", ["top_p", "top_k", "min_p", "repetition_penalty"])
def test_fault_18_settings_that_bend_the_sampled_distribution_are_refused(key: str) -> None:
    with pytest.raises(RecipeError, match=key):
        load_recipe("office-smoke", [f"rollout.{key}=0.9"])


def test_fault_24_arguments_as_a_string_are_answered_and_not_fatal(errand: type[Environment]) -> None:
    tools = {tool.name: tool for tool in errand().tools}
    as_string = json.dumps({"action": "say", "arguments": json.dumps({"word": "ka"})})
    as_object = json.dumps({"action": "say", "arguments": {"word": "ka"}})
    assert isinstance(parse(as_string, tools), Malformed)
    assert parse(as_object, tools) == Action("say", {"word": "ka"})


def test_fault_24_no_tool_is_shown_with_the_arguments_of_another() -> None:
    class Card:
        description = "Does it."

        def __init__(self, name: str, *arguments: str) -> None:
            self.name = name
            self.input_schema = {"properties": {argument: {"type": "string"} for argument in arguments}}

    listing = tool_listing([Card("read", "path"), Card("send", "recipient", "text"), Card("stop")])
    lines = {line.split(":")[0].removeprefix("- "): line for line in listing.splitlines() if line.startswith("- ")}
    assert '{"path": "string"}' in lines["read"]
    assert '{"recipient": "string", "text": "string"}' in lines["send"]
    assert lines["stop"].endswith("Arguments: {}")
    assert "null" not in listing.lower()
