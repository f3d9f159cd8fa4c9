"""A judge's verdict takes the place of the environment's; a judge that fails leaves the episode unscored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ferrata.envs import Environment
from ferrata.errors import JudgeFault, RolloutFault
from ferrata.evaluation.evaluate import evaluate
from ferrata.evaluation.results import is_scored
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import EventKind, StopReason, Task
from ferrata.rewards import RewardSpec
from ferrata.rewards.judges import Line, Verdict
from ferrata.rewards.rescoring import rescore
from ferrata.rollout.collection import Collection
from ferrata.rollout.collector import Collector

Saying = Callable[..., list[int]]


class Says:
    """A judge that says what it is told; fulfils `Judge`."""

    version = "judge-1"
    at_once = 2

    def __init__(self, verdict: Callable[[Task, Sequence[Line]], Verdict]) -> None:
        self.verdict = verdict
        self.asked: list[tuple[Task, list[Line]]] = []

    def judge(self, task: Task, transcript: Sequence[Line]) -> Verdict:
        self.asked.append((task, list(transcript)))
        return self.verdict(task, transcript)

    def close(self) -> None:
        pass


def says(success: bool) -> Says:
    return Says(lambda task, transcript: Verdict(success, 0.5, "because " * 100))


def fails(task: Task, transcript: Sequence[Line]) -> Verdict:
    raise JudgeFault("The judge sleeps.")


def breaks(task: Task, transcript: Sequence[Line]) -> Verdict:
    raise ZeroDivisionError


def answers_nothing(task: Task, transcript: Sequence[Line]) -> Verdict:
    return None


def answers_text(task: Task, transcript: Sequence[Line]) -> Verdict:
    return Verdict("yes", 1.0, "done")


def gives_no_reason(task: Task, transcript: Sequence[Line]) -> Verdict:
    return Verdict(True, 1.0, None)


def is_cancelled(task: Task, transcript: Sequence[Line]) -> Verdict:
    raise asyncio.CancelledError


@pytest.fixture
def collect(
    errand: type[Environment], script: Any, tiny_policy: Policy, saying: Saying
) -> Callable[..., tuple[Collection, list[Task]]]:
    """Every episode says a word, then submits a wrong one."""

    def run(judge: Says, n: int = 3, share: float = 1.0) -> Any:
        def make() -> Environment:
            return errand(score=RewardSpec(RewardSection()))

        def turn(key: int, number: int) -> list[int]:
            return saying("submit", word="wrong") if number else saying("say", word="ka")

        section = RolloutSection(max_tokens=2000, max_tokens_per_turn=200, max_fault_share=share)
        collector = Collector(script(turn), make, tiny_policy.chat, section, judge)
        env = make()
        return collector.collect([(task, 1) for task in env.tasks("train", n)], 0), collector, env

    return run


def test_the_verdict_takes_the_environments_place(collect: Callable[..., Any]) -> None:
    judge = says(True)
    collection, _, env = collect(judge)
    assert collection.stats.played == 3
    for trajectory in collection.trajectories:
        assert trajectory.success is True
        assert trajectory.stop is StopReason.COMPLETED
        assert trajectory.components["outcome"] == 5.0
        assert trajectory.reward == pytest.approx(5.0 + 0.08 - 0.02)
        assert trajectory.count(EventKind.FAILURE) == 0
        (verdict,) = [event for event in trajectory.turns[-1].events if event.kind is EventKind.SUCCESS]
        assert verdict.name.startswith("because because")
        assert len(verdict.name) <= 200
        assert trajectory.reward_version == f"{env.score.version}+judge-1"
        assert rescore(trajectory, env.score) == trajectory
    assert {task.fingerprint for task, _ in judge.asked} == {task.fingerprint for task in env.tasks("train", 3)}


def test_a_judge_may_say_no_where_the_environment_said_yes(
    errand: type[Environment], script: Any, tiny_policy: Policy, saying: Saying
) -> None:
    task = errand().tasks("train", 1)[0]
    sampler = script(lambda key, number: saying("submit", word=task.world["word"]))
    section = RolloutSection(max_tokens=2000, max_tokens_per_turn=200)
    collector = Collector(sampler, lambda: errand(score=RewardSpec()), tiny_policy.chat, section, says(False))
    (trajectory,) = collector.collect([(task, 1)], 0).trajectories
    assert trajectory.success is False
    assert trajectory.stop is StopReason.SUBMITTED
    assert trajectory.reward == pytest.approx(-1.01)


def test_the_judge_reads_what_was_said_and_answered(collect: Callable[..., Any]) -> None:
    judge = says(True)
    collect(judge, n=1)
    ((_, transcript),) = judge.asked
    assert [(line.speaker, line.text) for line in transcript] == [
        ("agent", '{"action": "say", "arguments": {"word": "ka"}}'),
        ("environment", "said ka"),
        ("agent", '{"action": "submit", "arguments": {"word": "wrong"}}'),
        ("environment", "done"),
    ]


@pytest.mark.parametrize("failing", [fails, breaks, is_cancelled, answers_nothing, answers_text, gives_no_reason])
def test_a_judge_that_fails_leaves_the_episode_unscored(collect: Callable[..., Any], failing: Any) -> None:
    judged = iter([False, True, True, True])

    def verdict(task: Task, transcript: Sequence[Line]) -> Verdict:
        return failing(task, transcript) if next(judged) else Verdict(True, 0.5, "")

    collection, _, _ = collect(Says(verdict), n=4)
    assert collection.stats.played == 1
    assert collection.stats.dropped == {"judge_error": 3}
    unscored = [trajectory for trajectory in collection.trajectories if trajectory.stop.faulty]
    assert len(unscored) == 3
    for trajectory in unscored:
        assert trajectory.stop is StopReason.JUDGE_ERROR
        assert trajectory.success is None
        assert trajectory.reward is None, "unscored is not zero"
        assert not is_scored(trajectory)


def test_a_judge_that_fails_too_often_stops_the_run_with_its_reason(collect: Callable[..., Any]) -> None:
    with pytest.raises(RolloutFault, match=r"judge_error 1.*The last of them: The judge sleeps\."):
        collect(Says(fails), share=0.2)


@pytest.mark.parametrize(("word", "stop"), [("curse", StopReason.FORBIDDEN), ("ka", StopReason.MAX_TURNS)])
def test_what_was_forbidden_or_cut_is_not_judged(
    errand: type[Environment], script: Any, tiny_policy: Policy, saying: Saying, word: str, stop: StopReason
) -> None:
    judge, sampler = says(True), script(lambda key, number: saying("say", word=word))
    section = RolloutSection(max_tokens=2000, max_tokens_per_turn=200)
    collector = Collector(sampler, lambda: errand(score=RewardSpec()), tiny_policy.chat, section, judge)
    (trajectory,) = collector.collect([(errand().tasks("train", 1)[0], 1)], 0).trajectories
    assert (trajectory.stop, trajectory.success, judge.asked) == (stop, False, [])
    assert trajectory.reward_version == RewardSpec().version


def test_only_so_many_are_judged_at_the_same_time(collect: Callable[..., Any]) -> None:
    pair, most, now, lock = threading.Barrier(2, timeout=20), [0], [0], threading.Lock()

    def slow(task: Task, transcript: Sequence[Line]) -> Verdict:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        pair.wait()
        with lock:
            now[0] -= 1
        return Verdict(True, 1.0, "")

    collection, _, _ = collect(Says(slow), n=4)
    assert collection.stats.played == 4
    assert most[0] == 2


def test_results_say_which_judge_it_was(collect: Callable[..., Any]) -> None:
    _, collector, env = collect(says(True))
    result, _ = evaluate(collector, env, tasks=3)
    assert result.versions["rewards"] == f"{env.score.version}+judge-1"
    assert result.success.share == 1.0
