"""Thinking has a budget of its own, and the action still fits behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ferrata import load_recipe
from ferrata.envs import Environment
from ferrata.envs.actions import begins_action
from ferrata.errors import RecipeError
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import EventKind, StopReason, Trajectory
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collector import Collector
from ferrata.rollout.episode import Episode
from ferrata.rollout.hosts import Step, Stepped, perform
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import Completion

THINKING = 6
BUDGETS = {"max_turns": 1, "max_tokens_per_turn": 60, "max_thinking_tokens": THINKING}


@pytest.fixture
def play(tiny_policy: Policy, errand: type[Environment], script: Any) -> Callable[..., tuple[Trajectory, Any]]:
    def run(*parts: list[int], **budgets: Any) -> tuple[Trajectory, Any]:
        sampler = script(lambda key, number: parts[number], slots=1)
        collector = Collector(
            sampler,
            lambda: errand(score=RewardSpec(RewardSection())),
            tiny_policy.chat,
            RolloutSection(**{**BUDGETS, **budgets}),
        )
        [group] = collector.collect([(errand().tasks("train", 1)[0], 1)], 0).groups
        collector.close()
        return group.trajectories[0], sampler

    return run


def test_endless_thinking_is_cut_and_the_action_follows(
    play: Callable[..., Any], saying: Callable[..., list[int]], tokenizer: PreTrainedTokenizerFast, tiny_policy: Policy
) -> None:
    thinking = tokenizer.encode("ka" * 20, add_special_tokens=False)
    action = saying("say", word="lo")
    trajectory, sampler = play(thinking, action)
    [turn] = trajectory.turns
    assert turn.token_ids == [*thinking[:THINKING], *action]
    assert turn.action is not None
    assert turn.text.startswith("ka" * THINKING + '\nAction: {"action": "say"')
    hand_over = tiny_policy.chat.hand_over
    assert sampler.read[0][1] == hand_over
    place = len(sampler.read[0][0]) + THINKING
    assert trajectory.token_ids[place : place + len(hand_over)] == hand_over
    assert not any(trajectory.loss_mask[place : place + len(hand_over)])
    mine = [token for token, trained in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if trained]
    assert mine == turn.token_ids
    assert len(turn.logprobs) == len(turn.token_ids)


THOUGHTS = ["ka {x} ", "ka { ", '{"plan": 3} ', '{"plan": "ka ', '{"plan": {"action": "ka ', '{"x" y ', '{"a": 1, "b']


@pytest.mark.parametrize("thought", THOUGHTS)
@pytest.mark.parametrize("budget", [4, 5, 6, 7, 8, 9, 20, 33])
def test_braces_in_a_thought_do_not_save_it_from_the_cut(
    errand: type[Environment],
    tiny_policy: Policy,
    tokenizer: PreTrainedTokenizerFast,
    saying: Callable[..., list[int]],
    thought: str,
    budget: int,
) -> None:
    world, thinking = errand(score=RewardSpec(RewardSection())), tokenizer.encode(thought * 40)
    budgets = RolloutSection(**{**BUDGETS, "max_tokens_per_turn": 80, "max_thinking_tokens": budget})
    task = world.tasks("train", 1)[0]
    episode = Episode(task, world.tools_for(task), tiny_policy.chat, budgets, 4096)
    assert isinstance(episode.go_on(perform(world, episode.begin())), list)
    said, read = 0, list[int]()
    while not read:
        ids = thinking[said : said + episode.max_new_tokens]
        said += len(ids)
        move = episode.receive(Completion(0, ids, [0.0] * len(ids), stopped=False))
        assert isinstance(move, list), "the thought goes on to the end of the turn"
        read = move
    assert read == tiny_policy.chat.hand_over
    assert said <= budget + len(tokenizer.encode('{"argument')), "only until the first key is known"
    action = saying("say", word="lo")
    step = episode.receive(Completion(0, action, [0.0] * len(action), stopped=True))
    assert isinstance(step, Step)
    answer = perform(world, step)
    assert isinstance(answer, Stepped)
    assert answer.result.action is not None, step.text
    episode.go_on(answer)
    episode.cancel()
    assert episode.trajectory().turns[0].text.startswith(tiny_policy.chat.text(thinking[:said]))


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("ka", False),
        ("ka {", None),
        ('{x} { "arg', None),
        ('{ "action"', True),
        ('{"arguments": {"word": "ka {x} ', True),
        ('{"action": "say", "arguments": {}} and {x', True),
        ('{"actions": ', False),
        ('{"plan": {"action": "say"', False),
        ('{"plan": 3} {"action', None),
        ('{"action": say', False),
    ],
)
def test_what_can_still_become_an_action(text: str, begun: bool | None) -> None:
    assert begins_action(text) is begun


def test_an_action_that_has_begun_goes_on_undisturbed(
    play: Callable[..., Any], saying: Callable[..., list[int]]
) -> None:
    action = saying("say", word="lokamilo")
    assert len(action) > THINKING
    trajectory, sampler = play(action, action[THINKING:])
    assert sampler.read[0][1:] == [[]]
    assert trajectory.turns[0].token_ids == action
    assert trajectory.turns[0].action is not None


def test_an_action_within_the_budget_is_not_asked_twice(
    play: Callable[..., Any], saying: Callable[..., list[int]]
) -> None:
    _, sampler = play(saying("say", word="lo"), max_thinking_tokens=40)
    assert len(sampler.read[0]) == 1


def test_the_rest_of_the_turn_is_what_the_budget_left(
    play: Callable[..., Any], tokenizer: PreTrainedTokenizerFast
) -> None:
    babble = tokenizer.encode("ka" * 100, add_special_tokens=False)
    trajectory, _ = play(babble, babble)
    assert len(trajectory.turns[0].token_ids) == 60


@pytest.mark.parametrize("room", [0, 2])
@pytest.mark.parametrize("begun", [False, True])
def test_no_room_for_an_action_ends_the_episode_and_blames_nobody(
    play: Callable[..., Any],
    saying: Callable[..., list[int]],
    tokenizer: PreTrainedTokenizerFast,
    room: int,
    begun: bool,
) -> None:
    babble = tokenizer.encode("ka" * 100, add_special_tokens=False)
    said = saying("say", word="lokamilo") if begun else babble
    opening = len(play(babble, babble)[1].read[0][0])
    trajectory, sampler = play(said, max_tokens=opening + THINKING + (0 if begun else room))
    assert len(sampler.read[0]) == 1
    assert len(trajectory.token_ids) == opening + THINKING
    (turn,) = trajectory.turns
    assert [event.kind for event in turn.events] == [EventKind.UNFINISHED]
    assert trajectory.stop is StopReason.MAX_TOKENS


def test_a_budget_that_leaves_no_action_is_refused() -> None:
    with pytest.raises(RecipeError, match="leaves no room for an action"):
        load_recipe("office-smoke", ["rollout.max_thinking_tokens=64"])


def test_a_turn_that_goes_on_is_the_turn_that_was_never_interrupted(tiny_policy: Policy) -> None:
    turns = []
    for parts in ((9,), (4, 5)):
        sampler = LocalSampler(tiny_policy, 1, 100)
        sampler.open(0, 3, 1.0)
        ids: list[int] = []
        for number, budget in enumerate(parts):
            sampler.submit(0, [] if number else [5, 6, 7], budget)
            while not (done := sampler.advance()):
                pass
            ids += done[0].token_ids
        turns.append(ids)
    assert turns[0] == turns[1]
