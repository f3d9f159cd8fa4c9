"""Environments that raise what nobody expects, answer what is no answer, compute for long, or cannot be made or closed:
each costs its own episodes, in this process as in workers, and the others come out as if nothing had happened."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ferrata.errors import EnvironmentFault, RolloutFault
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import StopReason, Task
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import EnvironmentSpec, make_env

Saying = Callable[..., list[int]]
Collect = Callable[..., tuple[Collector, list[Task]]]

WORLD = """
import asyncio, ctypes, msgspec, sys, time
from ferrata.envs import Effect, Environment, Task, tool
from ferrata.errors import EnvironmentFault
from ferrata.records import Observation

class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")

class Mutiny(BaseException):
    pass

class Inn(Environment):
    name = "inn"
    families = {1: ("stay",)}

    def generate(self, family, tier, stream, split):
        number = stream.randrange(10**6)
        return Task(self.name, family, tier, split, f"Stay in {number}.", {"number": number}, (), 6)

    @tool("Rest.")
    def rest(self) -> str:
        return "rested"

    @tool("Do something.")
    def do(self, how: str) -> str:
        if how == "cancelled":
            raise asyncio.CancelledError("the connection was closed")
        if how == "mutiny":
            raise Mutiny("no more")
        if how == "keyboard":
            raise KeyboardInterrupt
        if how == "generator":
            raise GeneratorExit
        if how == "mute":
            raise Mute
        if how == "long":
            raise RuntimeError("x" * 10_000_000)
        if how == "half":
            raise RuntimeError("no file caf\\udce9")
        if how == "empty":
            raise EnvironmentFault("")
        if how == "compute":
            until = time.thread_time() + 0.15
            while time.thread_time() < until:
                pass
        if how == "hog":
            ctypes.PyDLL(None).usleep(900_000)
        if how == "hang":
            time.sleep(3600)
        return how

    @tool("Leave.", effect=Effect.WRITE)
    def leave(self) -> str:
        self.finish(True)
        return "bye"

class NoText(Inn):
    def reset(self, task, seed=0):
        super().reset(task, seed)
        return Observation(7)

class HalfText(Inn):
    def reset(self, task, seed=0):
        super().reset(task, seed)
        return Observation("caf\\udce9")

class Answers(Inn):
    def step(self, text):
        return msgspec.structs.replace(super().step(text), **self.CHANGE)

class HalfAnswer(Answers):
    CHANGE = {"observation": Observation("caf\\udce9")}

class BytesAnswer(Answers):
    CHANGE = {"observation": Observation(b"abc")}

class TextReward(Answers):
    CHANGE = {"components": {"a": "0.5"}}

class NoReward(Answers):
    CHANGE = {"components": {"a": None}, "reward": None}

class NumberedInfo(Answers):
    CHANGE = {"info": {3: "x", "deep": object()}}

class BadCut(Inn):
    def cut(self, stop):
        return msgspec.structs.replace(super().cut(stop), components={"a": "0.5"})

class NoTools(Inn):
    def tools_for(self, task):
        raise KeyError("tools")

class OddTools(Inn):
    def tools_for(self, task):
        return ["rest"]

class HangingTools(Inn):
    def tools_for(self, task):
        time.sleep(3600)

class HangsInMaking(Inn):
    def __init__(self, **settings):
        time.sleep(3600)

class HangsInClosing(Inn):
    def close(self):
        time.sleep(3600)

class Crowded(Inn):
    made = 0
    def __init__(self, **settings):
        Crowded.made += 1
        if Crowded.made == 2:  # Of more, a busy machine could give two to one episode.
            raise ConnectionError("the server has no room now")
        super().__init__(**settings)

class FirstFails(Inn):
    made = 0
    def __init__(self, **settings):
        FirstFails.made += 1
        if FirstFails.made == 1 and "pytest" not in sys.modules:
            raise ConnectionError("the server has no room now")
        super().__init__(**settings)

class Full(Inn):
    made = 0
    def __init__(self, **settings):
        Full.made += 1
        if Full.made > 1:
            raise ConnectionError("the server has no room any more")
        super().__init__(**settings)
"""


@pytest.fixture(autouse=True)
def inn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that the workers can import."""
    (tmp_path / "inn.py").write_text(WORLD)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("inn", None)


@pytest.fixture
def collector(tiny_policy: Policy, script: Any) -> Iterator[Collect]:
    """Makes collectors, and tasks for them; `say(seed, turn)` decides the turns."""
    with ExitStack() as stack:

        def make(
            say: Callable[[int, int], list[int]], kind: str = "Inn", tasks: int = 4, slots: int = 16, **budgets: Any
        ) -> tuple[Collector, list[Task]]:
            sampler = script(lambda key, turn: say(sampler.opened[key][0], turn), slots=slots)
            section = RolloutSection(
                **{"max_tokens": 3000, "max_tokens_per_turn": 200, "max_fault_share": 1.0, "max_turns": 3, **budgets}
            )
            spec = EnvironmentSpec(f"inn:{kind}", rewards=RewardSection())
            made = Collector(sampler, spec, tiny_policy.chat, section)
            stack.callback(made.close)
            return made, make_env("inn:Inn").tasks("train", tasks)

        yield make


def one_does(saying: Saying, how: str) -> Callable[[int, int], list[int]]:
    """The first episode does something, the others stay and leave."""
    first: list[int] = []

    def say(seed: int, turn: int) -> list[int]:
        first.extend([seed] * (not first))
        if seed == first[0]:
            return saying("do", how=how)
        return saying("leave") if turn else saying("rest")

    return say


def once_each(tasks: list[Task]) -> list[tuple[Task, int]]:
    return [(task, 1) for task in tasks]


# What is raised -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", ["cancelled", "mutiny", "keyboard", "generator", "mute", "long", "half", "empty"])
def test_whatever_an_environment_raises_ends_its_own_episode_alone(
    collector: Collect, saying: Saying, how: str, workers: int
) -> None:
    """What is no Exception, an error whose text cannot be read or printed, and a fault that says nothing."""
    under_test, tasks = collector(one_does(saying, how), workers=workers)
    stats = under_test.collect(once_each(tasks), 0).stats
    assert (stats.played, stats.dropped, stats.retried) == (3, {"env_error": 1}, 1)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("cancelled", "CancelledError: the connection was closed"),
        ("mute", r"Mute: \(its text cannot be read: ValueError\)"),
        ("long", r"RuntimeError: x{2000}\.\.\. \(10000000 characters\)"),
        ("half", r"RuntimeError: no file caf\\udce9"),
        ("empty", "While stepping an episode of 'inn', family 'stay': EnvironmentFault"),
    ],
)
def test_what_was_raised_is_told_in_a_text_that_can_be_printed(
    collector: Collect, saying: Saying, how: str, told: str, workers: int
) -> None:
    under_test, tasks = collector(lambda seed, turn: saying("do", how=how), workers=workers, tasks=1)
    with pytest.raises(RolloutFault, match=told) as raised:
        under_test.collect(once_each(tasks), 0)
    assert len(str(raised.value).encode()) < 3000


# What is answered -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("NoText", "The observation of reset is int, not a text"),
        ("HalfText", "The observation of reset is no valid Unicode"),
        ("HalfAnswer", "The observation of step is no valid Unicode"),
        ("BytesAnswer", "The observation of step is bytes, not a text"),
        ("TextReward", "Component 'a' of step is str, not a number"),
        ("NoReward", "Component 'a' of step is NoneType, not a number"),
        ("BadCut", "Component 'a' of cut is str, not a number"),
        ("NoTools", "asking for the tools .* KeyError: 'tools'"),
        ("OddTools", "tools_for answered with list, not with a list of tools"),
    ],
)
def test_an_answer_that_is_none_is_the_environments_failure_everywhere(
    collector: Collect, saying: Saying, kind: str, told: str, workers: int
) -> None:
    """The same verdict in this process and in a worker, where it could not be sent, or not be read."""
    under_test, tasks = collector(lambda seed, turn: saying("rest"), kind, workers=workers, max_turns=2)
    with pytest.raises(RolloutFault, match=rf"4 of 4 episodes .*env_error 4.*{told}"):
        under_test.collect(once_each(tasks), 0)
    assert under_test.last_stats.retried == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_what_nobody_reads_of_an_answer_may_hold_anything(collector: Collect, saying: Saying, workers: int) -> None:
    under_test, tasks = collector(lambda seed, turn: saying("leave"), "NumberedInfo", workers=workers)
    assert under_test.collect(once_each(tasks), 0).stats.played == 4


# What takes its time --------------------------------------------------------------------------------------------


def test_environments_that_compute_are_in_time_however_many_there_are(collector: Collect, saying: Saying) -> None:
    """Each step computes 0.15 seconds and may take 1; 24 of them share one interpreter, and all begin at once."""
    under_test, tasks = collector(
        lambda seed, turn: saying("leave") if turn == 2 else saying("do", how="compute"),
        tasks=24,
        slots=24,
        workers=1,
        step_seconds=1.0,
    )
    stats = under_test.collect(once_each(tasks), 0).stats
    assert (stats.played, stats.retried) == (24, 0)


def test_a_step_that_hangs_among_others_that_compute_is_cut_and_they_are_not(
    collector: Collect, saying: Saying
) -> None:
    def say(seed: int, turn: int) -> list[int]:
        if seed == first[0]:
            return saying("do", how="hang")
        return saying("leave") if turn == 2 else saying("do", how="compute")

    first: list[int] = []
    under_test, tasks = collector(
        lambda seed, turn: first.extend([seed] * (not first)) or say(seed, turn),
        tasks=8,
        workers=1,
        step_seconds=1.0,
    )
    collection = under_test.collect(once_each(tasks), 0)
    assert (collection.stats.played, collection.stats.dropped) == (7, {"timeout": 1})
    assert collection.stats.retried == 1
    [dropped] = [trajectory for trajectory in collection.trajectories if trajectory.success is None]
    assert (dropped.stop, dropped.seed) == (StopReason.TIMEOUT, first[0])


def test_a_step_that_lets_no_other_thread_run_is_not_cut_while_it_is_in_time(
    collector: Collect, saying: Saying
) -> None:
    """The thread that beats is one of those that cannot run: two such steps are silent for almost two deadlines."""
    under_test, tasks = collector(
        lambda seed, turn: saying("leave") if turn == 2 else saying("do", how="hog" if seed % 2 else "rest"),
        tasks=4,
        workers=1,
        step_seconds=1.0,
    )
    collection = under_test.collect(once_each(tasks), 0)
    assert {trajectory.seed % 2 for trajectory in collection.trajectories} == {0, 1}
    assert (collection.stats.played, collection.stats.retried) == (4, 0)


def test_steps_that_hang_together_are_cut_together(collector: Collect, saying: Saying) -> None:
    under_test, tasks = collector(
        lambda seed, turn: saying("do", how="hang"), tasks=6, workers=1, step_seconds=1.0, max_fault_share=1.0
    )
    started = time.monotonic()
    with pytest.raises(RolloutFault, match=r"6 of 6 .*timeout 6.*Step of an episode .*step_seconds = 1\."):
        under_test.collect(once_each(tasks), 0)
    assert time.monotonic() - started < 12, "two deadlines and two starts, not twelve"


# What cannot be made, asked or closed ---------------------------------------------------------------------------


def test_an_environment_that_hangs_while_it_is_made_ends_the_run(collector: Collect, saying: Saying) -> None:
    under_test, tasks = collector(lambda seed, turn: saying("leave"), "HangsInMaking", workers=1, step_seconds=0.2)
    with pytest.raises(EnvironmentFault, match=r"not made within 1 seconds.*step_seconds = 0\.2"):
        under_test.collect(once_each(tasks), 0)


def test_an_environment_that_hangs_while_it_is_asked_for_its_tools_is_cut(collector: Collect, saying: Saying) -> None:
    under_test, tasks = collector(
        lambda seed, turn: saying("leave"), "HangingTools", tasks=2, workers=1, step_seconds=0.2
    )
    with pytest.raises(RolloutFault, match=r"timeout 2.*The tools of a task .*step_seconds = 0\.2"):
        under_test.collect(once_each(tasks), 0)


def test_an_environment_that_hangs_while_it_is_closed_is_left_behind(collector: Collect, saying: Saying) -> None:
    under_test, tasks = collector(lambda seed, turn: saying("leave"), "HangsInClosing", workers=1)
    assert under_test.collect(once_each(tasks), 0).stats.played == 4
    started = time.monotonic()
    under_test.close()
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_cannot_be_made_after_others_fails_its_own_episode(
    collector: Collect, saying: Saying, workers: int
) -> None:
    """It is tried once more, as whatever fails."""
    under_test, tasks = collector(lambda seed, turn: saying("leave" if turn else "rest"), "Crowded", workers=workers)
    stats = under_test.collect(once_each(tasks), 0).stats
    assert (stats.played, stats.dropped, stats.retried) == (4, {}, 1)


def test_when_no_further_environment_can_be_made_its_episodes_are_dropped(collector: Collect, saying: Saying) -> None:
    under_test, tasks = collector(lambda seed, turn: saying("do", how="mute"), "Full", workers=0, max_fault_share=0.5)
    with pytest.raises(RolloutFault, match=r"3 of 4 .*env_error 3.*the server has no room any more"):
        under_test.collect(once_each(tasks), 0)


def test_a_worker_tries_its_first_environment_again(collector: Collect, saying: Saying) -> None:
    """There is no episode yet that could fail for it."""
    under_test, tasks = collector(lambda seed, turn: saying("leave"), "FirstFails", workers=1)
    assert under_test.collect(once_each(tasks), 0).stats.played == 4
