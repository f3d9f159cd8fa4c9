"""One episode: every stop reason, every budget, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from ferrata.envs import Environment
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import EventKind, StopReason, Task, Trajectory
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.episode import Episode
from ferrata.rollout.hosts import Begin, Cut, Step, perform
from ferrata.sampling.protocol import Completion

Saying = Callable[..., list[int]]


@pytest.fixture
def world(errand: type[Environment]) -> Environment:
    return errand(score=RewardSpec(RewardSection()))


@pytest.fixture
def task(world: Environment) -> Task:
    return world.tasks("train", 1)[0]


def advance(episode: Episode, env: Environment, request: Begin | Step) -> list[int] | None:
    """Have the environment answer, and cut where a budget is spent; the ids that the model reads next."""
    move = episode.go_on(perform(env, request))
    return episode.go_on(perform(env, move)) if isinstance(move, Cut) else move


@pytest.fixture
def play(world: Environment, tiny_policy: Policy) -> Callable[..., Trajectory]:
    """Play a task with given turns."""

    def run(task: Task, turns: Sequence[list[int]], max_length: int = 4096, **budgets: Any) -> Trajectory:
        section = RolloutSection(**{"max_tokens": 2000, "max_tokens_per_turn": 100, **budgets})
        episode = Episode(
            task,
            world.tools_for(task),
            tiny_policy.chat,
            section,
            max_length,
            score=world.score,
            seed=8,
            temperature=0.5,
            version=2,
        )
        asked = advance(episode, world, episode.begin())
        waiting = list(turns)
        while asked is not None:
            turn = waiting.pop(0)
            ids = turn[: episode.max_new_tokens]
            completion = Completion(0, ids, [-1.0] * len(ids), stopped=ids == turn)
            asked = advance(episode, world, episode.receive(completion))
        return episode.trajectory()

    return run


def test_success(play: Callable[..., Trajectory], task: Task, saying: Saying, tiny_policy: Policy) -> None:
    turns = [saying("say", word="ka"), saying("submit", word=task.world["word"])]
    trajectory = play(task, turns)
    assert trajectory.stop is StopReason.COMPLETED
    assert trajectory.success is True
    assert trajectory.reward == pytest.approx(5.0 + 0.08 - 0.02)
    assert (trajectory.seed, trajectory.temperature, trajectory.policy_version) == (8, 0.5, 2)
    chat = tiny_policy.chat
    opening, answer = chat.opening(task.instruction, []), chat.following("said ka", closed=True)
    assert trajectory.token_ids == [*opening, *turns[0], *answer, *turns[1]]
    assert [turn.token_ids for turn in trajectory.turns] == turns
    assert [turn.observation for turn in trajectory.turns] == [task.instruction, "said ka"]
    assert trajectory.final_observation == "done"
    assert trajectory.loss_mask == [
        mine for mine, part in ((False, opening), (True, turns[0]), (False, answer), (True, turns[1])) for _ in part
    ]
    assert trajectory.logprobs == [-1.0 if sampled else 0.0 for sampled in trajectory.loss_mask]
    assert len({turn.state_hash for turn in trajectory.turns}) == 2


def test_submitting_the_wrong_thing(play: Callable[..., Trajectory], task: Task, saying: Saying) -> None:
    trajectory = play(task, [saying("submit", word="lo")])
    assert (trajectory.stop, trajectory.success) == (StopReason.SUBMITTED, False)
    assert trajectory.reward == pytest.approx(-1.01)


def test_forbidden(play: Callable[..., Trajectory], task: Task, saying: Saying) -> None:
    trajectory = play(task, [saying("say", word="curse")])
    assert (trajectory.stop, trajectory.success) == (StopReason.FORBIDDEN, False)
    assert trajectory.components["safety"] == -10.0


def test_the_tasks_own_cap_on_turns(play: Callable[..., Trajectory], task: Task, saying: Saying) -> None:
    trajectory = play(task, [saying("say", word=f"w{n}") for n in range(9)])
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.MAX_TURNS, task.max_turns)
    assert trajectory.count(EventKind.UNFINISHED) == 1


def test_the_rollouts_cap_on_turns(play: Callable[..., Trajectory], task: Task, saying: Saying) -> None:
    trajectory = play(task, [saying("say", word=f"w{n}") for n in range(9)], max_turns=2)
    assert (trajectory.stop, len(trajectory.turns), trajectory.success) == (StopReason.MAX_TURNS, 2, False)
    assert trajectory.count(EventKind.UNFINISHED) == 1
    assert trajectory.reward == pytest.approx(0.08 - 0.02 - 1.5)
    assert trajectory.final_observation == "said w1"


def test_success_on_the_last_allowed_turn_counts(play: Callable[..., Trajectory], task: Task, saying: Saying) -> None:
    trajectory = play(task, [saying("submit", word=task.world["word"])], max_turns=1)
    assert trajectory.stop is StopReason.COMPLETED


@pytest.mark.parametrize(
    ("max_tokens", "max_length", "stop"),
    [(70, 4096, StopReason.MAX_TOKENS), (2000, 70, StopReason.CONTEXT_OVERFLOW)],
)
def test_token_budgets_of_the_trajectory(
    play: Callable[..., Trajectory], task: Task, saying: Saying, max_tokens: int, max_length: int, stop: StopReason
) -> None:
    trajectory = play(task, [saying("say", word=f"w{n}") for n in range(9)], max_length, max_tokens=max_tokens)
    assert (trajectory.stop, trajectory.success) == (stop, False)
    assert len(trajectory.token_ids) <= 70
    assert trajectory.components["unfinished"] == -1.5
    assert trajectory.reward == pytest.approx(sum(turn.reward for turn in trajectory.turns))


def test_an_observation_that_just_leaves_room_for_one_token_is_read(
    play: Callable[..., Trajectory], task: Task, saying: Saying, tiny_policy: Policy
) -> None:
    turn, chat = saying("say", word="ka"), tiny_policy.chat
    read = len(chat.opening(task.instruction, [])) + len(turn) + len(chat.following("said ka", closed=True))
    assert len(play(task, [turn, saying("say", word="lo")], max_tokens=read + 1).turns) == 2
    assert len(play(task, [turn, saying("say", word="lo")], max_tokens=read).turns) == 1


def test_a_turn_cut_by_its_budget_is_an_invalid_action_and_is_closed_for_the_model(
    play: Callable[..., Trajectory], task: Task, saying: Saying, tiny_policy: Policy
) -> None:
    trajectory = play(task, [saying("say", word="ka"), saying("submit", word="ka")], max_tokens_per_turn=5, max_turns=2)
    first, second = trajectory.turns
    assert first.action is None
    assert EventKind.INVALID in {event.kind for event in first.events}
    assert second.observation.startswith("error: ")
    place = len(tiny_policy.chat.opening(task.instruction, [])) + 5
    assert trajectory.token_ids[place] == tiny_policy.chat.end_id
    assert trajectory.loss_mask[place] is False


@pytest.mark.parametrize("missing", [1, 3])
def test_a_turn_that_the_whole_budget_cuts_is_no_invalid_action(
    play: Callable[..., Trajectory], task: Task, saying: Saying, tiny_policy: Policy, missing: int
) -> None:
    turn, opening = saying("submit", word=task.world["word"]), tiny_policy.chat.opening(task.instruction, [])
    trajectory = play(task, [turn], max_tokens=len(opening) + len(turn) - missing)
    (cut,) = trajectory.turns
    assert (trajectory.stop, trajectory.success) == (StopReason.MAX_TOKENS, False)
    assert {event.kind for event in cut.events} == {EventKind.UNFINISHED}
    assert cut.token_ids == turn[:-missing]
    assert trajectory.loss_mask == [False] * len(opening) + [True] * len(cut.token_ids)


def test_an_environment_that_cannot_begin(play: Callable[..., Trajectory], task: Task) -> None:
    trajectory = play(msgspec.structs.replace(task, world={**task.world, "broken": True}), [])
    assert (trajectory.stop, trajectory.reward, trajectory.success) == (StopReason.ENV_ERROR, None, None)
    assert trajectory.token_ids == []


@pytest.mark.parametrize(("word", "stop"), [("crash", StopReason.ENV_ERROR), ("judge", StopReason.JUDGE_ERROR)])
def test_failures_that_are_not_the_agents(
    play: Callable[..., Trajectory], task: Task, saying: Saying, word: str, stop: StopReason
) -> None:
    trajectory = play(task, [saying("say", word="ka"), saying("say", word=word)])
    assert (trajectory.stop, trajectory.reward, trajectory.success) == (stop, None, None)
    assert len(trajectory.turns) == 2
    assert sum(trajectory.loss_mask) == sum(len(turn.token_ids) for turn in trajectory.turns)


def test_an_opening_that_does_not_fit_says_nothing_about_the_agent(play: Callable[..., Trajectory], task: Task) -> None:
    trajectory = play(task, [], max_tokens=3)
    assert (trajectory.stop, trajectory.reward, trajectory.success) == (StopReason.MAX_TOKENS, None, None)


def test_an_environment_without_rewards_gives_no_reward_but_a_verdict(
    errand: type[Environment], tiny_policy: Policy, saying: Saying
) -> None:
    world = errand()
    task = world.tasks("train", 1)[0]
    episode = Episode(task, world.tools_for(task), tiny_policy.chat, RolloutSection(), 500)
    advance(episode, world, episode.begin())
    ids = saying("submit", word=task.world["word"])
    assert advance(episode, world, episode.receive(Completion(0, ids, [0.0] * len(ids), True))) is None
    assert (episode.trajectory().reward, episode.trajectory().success) == (None, True)
