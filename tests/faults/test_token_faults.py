"""Faults of peers in how tokens, budgets and templates are handled, by their number in the list of faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
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
from ferrata.runs import RunStore
from ferrata.sampling.local import LocalSampler

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


BROKEN = [
    '{"action": "say", "arguments": {"word": "ka"}',
    '{"action": "say", "arguments": {"word": ka}}',
    '{"action": "say", "arguments": "ka"}',
    '{"action": "say", "arguments": {"word": null}}',
    "{'action': 'say'}",
    '{"action": "say", "action": "submit", "arguments": {}}',
    '[{"action": "say"}]',
    "",
]
"""Calls as models write them; none is one."""


@pytest.mark.parametrize("text", BROKEN)
def test_fault_17_a_malformed_call_costs_neither_its_rollout_nor_the_others(
    play: Play, saying: Callable[..., list[int]], tiny_policy: Policy, errand: type[Environment], text: str
) -> None:
    """4 of 16 rollouts were lost, or the run: here the model is told, and goes on to do its task."""
    word = errand().tasks("train", 1)[0].world["word"]

    def say(key: int, number: int) -> list[int]:
        return tiny_policy.chat.saying(text) if key == 0 and number == 0 else saying("submit", word=word)

    broken, *others = play(say, count=4, max_tokens_per_turn=200)
    assert [trajectory.success for trajectory in (broken, *others)] == [True] * 4
    assert [trajectory.count(EventKind.INVALID) for trajectory in (broken, *others)] == [1, 0, 0, 0]
    assert broken.turns[0].action is None
    assert broken.turns[1].observation.startswith("error: ")
    assert broken.reward < others[0].reward
    assert all(trained(trajectory) for trajectory in (broken, *others))


@pytest.mark.parametrize("key", ["top_p", "top_k", "min_p", "repetition_penalty"])
def test_fault_18_settings_that_bend_the_sampled_distribution_are_refused(key: str) -> None:
    with pytest.raises(
        RecipeError, match=rf"'rollout\.{key}' is refused .* log-probabilities would not be the policy's"
    ):
        load_recipe("office-smoke", [f"rollout.{key}=0.9"])


def test_fault_18_a_recipe_file_with_them_is_refused_as_well(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[rollout]\ntop_k = 50\n")
    with pytest.raises(RecipeError, match=r"'rollout\.top_k' is refused .*rollout\.temperature"):
        load_recipe(str(path))


def test_fault_18_the_stored_log_probabilities_are_of_the_whole_vocabulary(tiny_policy: Policy) -> None:
    """Under any cut of the distribution, unlikely tokens would never come, and likely ones would look likelier."""
    sampler = LocalSampler(tiny_policy, 1, 128)
    prompt, sampled, logprobs = [5, 6, 7, 8], list[int](), list[float]()
    sampler.open(0, 3, 0.7)
    sampler.submit(0, prompt, 60)
    while not sampled:
        for done in sampler.advance():
            sampled, logprobs = done.token_ids, done.logprobs
    with torch.inference_mode():
        logits = tiny_policy.model(torch.tensor([prompt + sampled])).logits[0, len(prompt) - 1 : -1]
    whole = (logits / 0.7).log_softmax(-1)
    expected = whole[torch.arange(len(sampled)), torch.tensor(sampled)]
    assert torch.allclose(torch.tensor(logprobs), expected, atol=1e-4)


def test_fault_24_arguments_as_a_string_are_answered_and_not_fatal(errand: type[Environment]) -> None:
    tools = {tool.name: tool for tool in errand().tools}
    as_string = json.dumps({"action": "say", "arguments": json.dumps({"word": "ka"})})
    as_object = json.dumps({"action": "say", "arguments": {"word": "ka"}})
    assert isinstance(parse(as_string, tools), Malformed)
    assert parse(as_object, tools) == Action("say", {"word": "ka"})


@pytest.mark.parametrize("foreign", ['"path": null', '"recipient": ""', '"to": null, "confirm": null'])
def test_fault_24_arguments_padded_with_those_of_other_tools_are_answered(
    errand: type[Environment], foreign: str
) -> None:
    """Data sets in columns give every call the arguments of all tools; a policy trained on them says so."""
    tools = {tool.name: tool for tool in errand().tools}
    padded = parse(f'{{"action": "say", "arguments": {{"word": "ka", {foreign}}}}}', tools)
    assert isinstance(padded, Malformed)
    assert padded.message.startswith("say: unknown argument")


def test_fault_24_what_is_stored_keeps_each_call_its_own_arguments(
    play: Play, saying: Callable[..., list[int]], tmp_path: Path
) -> None:
    calls = [{"word": "ka"}, {"word": "lo", "path": "a.txt"}, {}]

    def say(key: int, number: int) -> list[int]:
        return saying("say", word=f"ka{key}")

    trajectories = [
        msgspec.structs.replace(
            trajectory,
            turns=[msgspec.structs.replace(trajectory.turns[0], action=Action(f"tool{place}", dict(call)))],
        )
        for place, (trajectory, call) in enumerate(zip(play(say, count=3, max_turns=1), calls, strict=True))
    ]
    with closing(RunStore(tmp_path / "store.sqlite", create=True)) as store:
        numbers = store.add_trajectories("rl", 1, "train", trajectories)
        actions = [store.trajectory(number).turns[0].action for number in numbers]
    assert actions == [Action(f"tool{place}", call) for place, call in enumerate(calls)]


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
