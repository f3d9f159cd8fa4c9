"""Worker processes that are killed, stopped or interrupted, or end themselves: every episode is accounted for, those
that nothing happened to come out as if nothing had happened, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ferrata.envs import call
from ferrata.errors import RolloutFault
from ferrata.records import StopReason, Task
from ferrata.rollout.hosts import Begin, Begun, Failed, Step, Stepped
from ferrata.rollout.workers import MOST_LOSSES, WorkerHost
from ferrata.rollout.worlds import EnvironmentSpec

from .lodges import Saying, drawing, essences, host_of, is_gone, sleepers, wait_until

pytestmark = pytest.mark.usefixtures("lodge")


# Lost workers ---------------------------------------------------------------------------------------------------


def struck(collector: Any, tasks: list[Task], saying: Saying, number: int, **budgets: Any) -> tuple[Any, Any, set[int]]:
    """A collection without trouble, one in which both workers get a signal in the middle, and the processes seen."""
    calm = collector(drawing(saying), workers=0).collect([(task, 4) for task in tasks], 7)
    turns, seen = [0], set()

    def decide(seed: int, turn: int) -> Sequence[int]:
        turns[0] += 1
        seen.update(host_of(under_test).pids)
        if turns[0] in (20, 45):
            os.kill(host_of(under_test).pids[turns[0] % 2], number)
        return drawing(saying)(seed, turn)

    under_test = collector(decide, **budgets)
    return calm, under_test.collect([(task, 4) for task in tasks], 7), seen


def test_killed_workers_are_replaced_and_nothing_is_lost(collector: Any, tasks: list[Task], saying: Saying) -> None:
    calm, collection, seen = struck(collector, tasks, saying, signal.SIGKILL)
    assert len(seen) > 2
    assert essences(collection) == essences(calm)
    assert (collection.stats.played, collection.stats.retried) == (24, 0)


def test_fault_22_a_stopped_worker_is_noticed_by_its_silence(collector: Any, tasks: list[Task], saying: Saying) -> None:
    """A hang with no message (fault 22)."""
    calm, collection, seen = struck(collector, tasks, saying, signal.SIGSTOP, step_seconds=1.0)
    assert essences(collection) == essences(calm)
    assert (collection.stats.played, collection.stats.retried) == (24, 0)
    assert len(seen) > 2


def test_fault_20_a_tool_that_ends_its_process_costs_its_episode_alone(
    collector: Any, tasks: list[Task], saying: Saying
) -> None:
    """A dead environment must not become empty observations for ever (fault 20)."""
    culprit: list[int] = []

    def decide(seed: int, turn: int) -> list[int]:
        culprit.extend([seed] * (not culprit))
        return (
            saying("fail", how="die") if (seed, turn) == (culprit[0], 2) else saying("leave" if turn == 4 else "draw")
        )

    under_test = collector(decide)
    collection = under_test.collect([(task, 1) for task in tasks], 7)
    assert collection.stats.dropped == {"env_error": 1}
    assert (collection.stats.played, collection.stats.retried) == (5, 1)
    [dropped] = [trajectory for trajectory in collection.trajectories if trajectory.success is None]
    assert (dropped.stop, dropped.reward, dropped.seed) == (StopReason.ENV_ERROR, None, culprit[0])
    assert [turn.action is None for turn in dropped.turns] == [False, False, True]


def test_a_worker_that_starts_slowly_has_time_to_bring_an_episode_back(tasks: list[Task], tmp_path: Path) -> None:
    """It died while the turn was sampled; then the next request came, while its successor was still starting."""
    with closing(WorkerHost(EnvironmentSpec("lodge:Slow"), 1, step_seconds=1.0)) as host:
        host.ask(0, Begin(tasks[0], 5))
        assert [type(answer) for _, answer in host.take(60.0)] == [Begun]
        host.ask(0, Step(call("draw")))
        [(_, first)] = host.take(60.0)
        [lost] = host.pids
        os.kill(lost, signal.SIGKILL)
        wait_until(lambda: is_gone(lost))
        wait_until(lambda: host.take(0.1) == [] and host.pids not in ([], [lost]))
        host.ask(0, Step(call("draw")))
        [(_, second)] = host.take(60.0)
        assert isinstance(first, Stepped)
        assert isinstance(second, Stepped), second
        assert first.result.observation != second.result.observation
        # From here on the deadline is that of one step again, counted from its request.
        time.sleep(1.2)
        gate = tmp_path / "gate"
        opening = threading.Timer(0.8, gate.touch)
        opening.start()
        host.ask(0, Step(call("fail", how=f"wait {gate}")))
        [(_, waited)] = host.take(60.0)
        opening.join()
        assert isinstance(waited, Stepped), waited
        started = time.monotonic()
        host.ask(0, Step(call("fail", how="hang")))
        [(_, third)] = host.take(60.0)
        assert isinstance(third, Failed)
        assert third.stop is StopReason.TIMEOUT
        assert time.monotonic() - started < 10.0


def test_the_reason_of_a_lost_episode_names_how_the_process_ended(
    collector: Any, tasks: list[Task], saying: Saying
) -> None:
    under_test = collector(lambda seed, turn: saying("fail", how="die"), max_fault_share=0.0, workers=1)
    with pytest.raises(
        RolloutFault, match=rf"lost its worker process {MOST_LOSSES + 1} times .*ended with exit code 3"
    ):
        under_test.collect([(tasks[0], 1)], 0)


def test_what_a_lost_worker_had_started_goes_with_it(collector: Any, tasks: list[Task], saying: Saying) -> None:
    before, started = sleepers(), set()

    def decide(seed: int, turn: int) -> list[int]:
        if turn == 1 and not started:
            wait_until(lambda: bool(sleepers() - before))
            started.update(sleepers() - before)
            os.kill(host_of(under_test).pids[0], signal.SIGKILL)
        return saying("leave" if turn == 3 else "draw") if turn else saying("fail", how="child")

    under_test = collector(decide, workers=1)
    assert under_test.collect([(tasks[0], 1)], 0).stats.played == 1
    assert len(started) == 1
    assert all(is_gone(pid) for pid in started)


def test_an_episode_that_cannot_be_played_again_is_begun_anew(
    collector: Any, tasks: list[Task], saying: Saying
) -> None:
    killed: list[int] = []

    def decide(seed: int, turn: int) -> list[int]:
        if turn == 2 and not killed:
            killed.extend(host_of(under_test).pids)
            os.kill(killed[0], signal.SIGKILL)
            wait_until(lambda: is_gone(killed[0]))
        return saying("leave") if turn == 3 else saying("fail", how="chance")

    under_test = collector(decide, workers=1)
    collection = under_test.collect([(tasks[0], 1)], 0)
    assert (collection.stats.played, collection.stats.retried) == (1, 1)


# Interruptions ----------------------------------------------------------------------------------------------------


def test_an_interruption_counts_what_was_given_up_and_ends_all_processes(
    collector: Any, tasks: list[Task], saying: Saying
) -> None:
    seen: list[int] = []

    def decide(seed: int, turn: int) -> list[int]:
        if turn == 3 and not seen:
            seen.extend(host_of(under_test).pids)
            raise KeyboardInterrupt
        return saying("draw")

    under_test = collector(decide)
    with pytest.raises(KeyboardInterrupt):
        under_test.collect([(task, 2) for task in tasks], 0)
    stats = under_test.last_stats
    assert stats.asked == 12 == stats.played + stats.dropped["cancelled"]
    assert stats.seconds > 0
    assert len(seen) == 2
    assert all(is_gone(pid) for pid in seen)
    assert under_test.collect([(task, 1) for task in tasks], 0).stats.played == 6, "it can be used again"


RUN = """
import signal, sys, time
# The background of a shell ignores Ctrl-C, and so would what it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
from ferrata.envs import call
from ferrata.models.policy import load_policy
from ferrata.recipe import RolloutSection
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import EnvironmentSpec, make_env
from ferrata.sampling.local import LocalSampler
from ferrata.seeds import derive
from ferrata.sampling.protocol import Completion, SamplerClock

class Sampler:
    max_length, version, clock, free = 4096, 0, SamplerClock(), 8
    def __init__(self, chat): self.chat, self.asked, self.turns = chat, [], {}
    def open(self, key, seed, temperature, only=None): self.turns[key] = 0
    def close(self, key): pass
    def submit(self, key, ids, budget): self.asked.append(key)
    def advance(self):
        key = self.asked.pop()
        self.turns[key] += 1
        if list(self.turns.values()) == [2] * 8:
            print("ready", *collector.host.pids, flush=True)
        ids = self.chat.saying(call("fail", how="hang" if self.turns[key] == 2 else "child"))
        return [Completion(key, ids, [-1.0] * len(ids), True)]

spec, chat = EnvironmentSpec("lodge:Lodge"), load_policy("base").chat
collector = Collector(Sampler(chat), spec, chat, RolloutSection(workers=2, max_tokens_per_turn=200))
collector.collect([(task, 1) for task in make_env("lodge:Lodge").tasks("train", 8)], 0)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_the_run_ends_no_process_and_no_file_is_left(tmp_path: Path, number: int) -> None:
    before = sleepers()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path)), "TMPDIR": str(tmp_path / "scratch")}
    command = [sys.executable, "-c", textwrap.dedent(RUN)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as run:
        try:
            assert run.stdout is not None
            word, *pids = run.stdout.readline().split() or [""]
            assert word == "ready", run.communicate()
            workers = [int(pid) for pid in pids]
            assert len(sleepers() - before) == 8
            os.kill(run.pid, number)
            _, errors = run.communicate(timeout=90)
        finally:
            run.kill()
    assert run.returncode == -number
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert len(workers) == 2
    wait_until(lambda: all(is_gone(pid) for pid in workers))
    wait_until(lambda: sleepers() <= before)
    wait_until(lambda: not list((tmp_path / "scratch").glob("ferrata-worker-*")))
