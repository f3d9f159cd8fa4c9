"""That a turn's budget cut it reaches the environment, also in a worker, and also when turns are played again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferrata.envs import Environment
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import Event, EventKind
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.episode import Episode
from ferrata.rollout.hosts import Begin, Past, Step, perform
from ferrata.rollout.messages import decode_order, pack
from ferrata.sampling.protocol import Completion

CUT = [Event(EventKind.STEP), Event(EventKind.INVALID, "cut")]


@pytest.fixture
def world(errand: type[Environment]) -> Environment:
    return errand(score=RewardSpec(RewardSection()))


def test_an_episode_says_which_of_its_turns_were_cut(
    world: Environment, tiny_policy: Policy, saying: Callable[..., list[int]]
) -> None:
    task, budgets = world.tasks("train", 1)[0], RolloutSection(max_tokens=2000, max_tokens_per_turn=5, max_turns=3)
    episode = Episode(task, world.tools_for(task), tiny_policy.chat, budgets, 4096, score=world.score)
    episode.go_on(perform(world, episode.begin()))
    said = saying("say", word="ka")
    step = episode.receive(Completion(0, said[:5], [-1.0] * 5, stopped=False))
    assert isinstance(step, Step)
    assert step.cut
    episode.go_on(perform(world, step))
    step = episode.receive(Completion(0, said, [-1.0] * len(said), stopped=True))
    assert isinstance(step, Step)
    assert not step.cut
    episode.go_on(perform(world, step))
    episode.cancel()
    first, second = episode.trajectory().turns
    assert list(first.events) == CUT
    assert first.components == {"efficiency": -0.01}
    assert second.action is not None
    assert second.observation.startswith("error: your turn was cut at its limit")


def test_the_cut_travels_to_a_worker() -> None:
    step = Step('{"action": "sa', cut=True)
    assert decode_order(pack(3, step)) == (3, step)


def test_a_turn_that_was_cut_is_cut_when_it_is_played_again(world: Environment) -> None:
    task = world.tasks("train", 1)[0]
    perform(world, Begin(task, 0))
    before, answer = world.state_hash(), world.step('{"action": "sa', cut=True)
    past = [Past('{"action": "sa', before, answer.observation.text, cut=True)]
    begun = perform(world, Begin(task, 0, None, past))
    assert getattr(begun, "fault", "") == ""
