"""Environments in worker processes that hang, crash, stop and are killed: every episode is accounted for, and those
that nothing happened to come out as if nothing had happened."""

from __future__ import annotations

import importlib
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrata.envs import Environment, call
from ferrata.envs.audit import AuditLog, verify
from ferrata.errors import EnvironmentFault, RolloutFault, TaskError, UsageError
from ferrata.models.policy import Policy
from ferrata.recipe import RewardSection, RolloutSection
from ferrata.records import StopReason, Task, Trajectory
from ferrata.rollout import messages
from ferrata.rollout.collection import Collection
from ferrata.rollout.collector import Collector
from ferrata.rollout.hosts import Answer, Begin, Begun, Failed, Step, Stepped
from ferrata.rollout.workers import MOST_LOSSES, WorkerHost
from ferrata.rollout.worlds import EnvironmentSpec, make_env
from ferrata.sampling.local import LocalSampler
from ferrata.seeds import derive

Saying = Callable[..., list[int]]
LODGE = EnvironmentSpec("lodge:Lodge", rewards=RewardSection())
Decide = Callable[[int, int], Sequence[int]]

WORLD = """
import os, random, socket, subprocess, sys, time
import msgspec
from ferrata.envs import Effect, Environment, Task, tool
from ferrata.records import Action, Observation

class Lodge(Environment):
    name = "lodge"
    families = {1: ("stay",)}

    def generate(self, family, tier, stream, split):
        number = stream.randrange(10**6)
        return Task(self.name, family, tier, split, f"Stay in {number}.", {"number": number}, (), 6)

    @tool("Draw a number.")
    def draw(self) -> str:
        return str(self.random.randrange(10**9))

    @tool("Do something that goes wrong.")
    def fail(self, how: str) -> str:
        if how == "hang":
            time.sleep(3600)
        if how == "raise":
            raise RuntimeError("the roof is gone")
        if how == "die":
            os._exit(3)
        if how == "exit":
            sys.exit("enough")
        if how == "child":
            subprocess.Popen(["sleep", "86397"])
        if how.startswith("wait "):
            while not os.path.exists(how[5:]):
                time.sleep(0.01)
        if how == "nap":
            time.sleep(0.3)
        if how == "chance":
            return "".join(chr(97 + byte % 26) for byte in os.urandom(12))
        return how

    @tool("Leave.", effect=Effect.WRITE)
    def leave(self) -> str:
        self.finish(True)
        return "bye"

class Remote(Lodge):
    def begin(self, task):
        super().begin(task)
        if self.port:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()

    @tool("Ask the server.")
    def ask(self) -> str:
        socket.create_connection(("127.0.0.1", self.port or 1), timeout=5).close()
        return "it is there"

class Gone(Remote):
    port = 1

class GoingDown(Remote):
    port = 0

class Mute(Lodge):
    @tool("Ask.")
    def ask(self) -> str:
        return ""

class Slow(Lodge):
    def __init__(self, **settings):
        time.sleep(2.0)
        super().__init__(**settings)

class Leaving(Lodge):
    def __init__(self, **settings):
        sys.exit("no vacancies")

class Keeping(Lodge):
    def begin(self, task):
        self.key = object()

class Odd(Lodge):
    def step(self, text):
        result = super().step(text)
        return msgspec.structs.replace(result, action=Action("draw", {"odd": object()}))

class Long(Lodge):
    def step(self, text):
        result = super().step(text)
        return msgspec.structs.replace(result, observation=Observation("x" * (2**23 + 1)))
"""


@pytest.fixture(autouse=True)
def lodge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that the workers can import, and a place of its own for all temporary files."""
    path, scratch = tmp_path / "lodge.py", tmp_path / "scratch"
    path.write_text(WORLD)
    scratch.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    yield path
    sys.modules.pop("lodge", None)
    assert [found.name for found in scratch.iterdir()] == [], "temporary files were left behind"


@pytest.fixture
def collector(tiny_policy: Policy, script: Any) -> Iterator[Callable[..., Collector]]:
    """Makes collectors whose turns are decided by the episode's seed and the turn."""
    with ExitStack() as stack:

        def make(decide: Decide, make_env: Any = LODGE, **budgets: Any) -> Collector:
            sampler = script(lambda key, turn: decide(sampler.opened[key][0], turn), slots=16)
            section = RolloutSection(
                **{"max_tokens": 3000, "max_tokens_per_turn": 200, "workers": 2, "max_fault_share": 1.0, **budgets}
            )
            made = Collector(sampler, make_env, tiny_policy.chat, section)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def tasks() -> list[Task]:
    return make_env("lodge:Lodge").tasks("train", 6)


def host_of(collector: Collector) -> WorkerHost:
    assert isinstance(collector.host, WorkerHost)
    return collector.host


def pids_of(collector: Collector) -> list[int]:
    return collector.host.pids if isinstance(collector.host, WorkerHost) else []


def essence(trajectory: Trajectory) -> Trajectory:
    """Everything but the time that it took."""
    turns = [msgspec.structs.replace(turn, sampling_seconds=0.0, environment_seconds=0.0) for turn in trajectory.turns]
    return msgspec.structs.replace(trajectory, turns=turns)


def essences(collection: Collection) -> list[Trajectory]:
    return [essence(trajectory) for trajectory in collection.trajectories]


def adds_up(collection: Collection) -> bool:
    stats = collection.stats
    return stats.asked == len(collection.trajectories) == stats.played + sum(stats.dropped.values())


def adds_up_after_a_failure(collector: Collector) -> bool:
    stats = collector.last_stats
    return stats.asked == stats.played + sum(stats.dropped.values())


def is_gone(pid: int) -> bool:
    """True when nothing of this number runs; a zombie that nobody has waited for is gone as well."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def sleepers() -> set[int]:
    """What `fail("child")` has started and is still there."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == b"sleep\x0086397\x00" and not is_gone(int(entry.parent.name)):
                found.add(int(entry.parent.name))
        except OSError:
            continue
    return found


def drawing(saying: Saying) -> Decide:
    """Draws numbers, and leaves some time; all of it follows from the seed."""

    def decide(seed: int, turn: int) -> list[int]:
        leaves = random.Random(f"{seed}/{turn}").random() < 0.25
        return saying("leave") if leaves else saying("draw")

    return decide


# Nothing goes wrong ---------------------------------------------------------------------------------------------


def test_workers_give_the_trajectories_of_this_process(collector: Any, tasks: list[Task], saying: Saying) -> None:
    here = collector(drawing(saying), workers=0).collect([(task, 4) for task in tasks], 7)
    under_test = collector(drawing(saying))
    there = under_test.collect([(task, 4) for task in tasks], 7)
    assert essences(there) == essences(here)
    assert adds_up(there)
    assert len({trajectory.stop for trajectory in there.trajectories}) == 2
    again = under_test.collect([(task, 4) for task in tasks], 7)
    assert essences(again) == essences(here), "a second collection in the same processes"


def test_fault_23_no_two_workers_draw_the_same(collector: Any, tasks: list[Task], saying: Saying) -> None:
    """The same seed gives duplicate rollouts across workers (fault 23)."""
    under_test = collector(lambda seed, turn: saying("draw" if turn == 0 else "leave"))
    drawn = [t.turns[1].observation for t in under_test.collect([(task, 8) for task in tasks], 1).trajectories]
    assert len(host_of(under_test).pids) == 2
    assert len(set(drawn)) == len(drawn) == 48


@pytest.mark.parametrize("workers", [0, 2])
def test_fault_23_members_of_a_group_are_no_copies_of_one_another(
    tiny_policy: Policy, tasks: list[Task], workers: int
) -> None:
    """Nor are those of other groups, nor of the next collection: what a real sampler draws."""
    sampler = LocalSampler(tiny_policy, 8, 160)
    budgets = RolloutSection(workers=workers, max_turns=1, max_tokens=160, max_tokens_per_turn=30, max_fault_share=0.0)
    with closing(Collector(sampler, LODGE, tiny_policy.chat, budgets)) as under_test:
        said = [
            tuple(trajectory.turns[0].token_ids)
            for update in (1, 2)
            for trajectory in under_test.collect([(tasks[0], 8), (tasks[0], 8)], 0, ("sampling", update)).trajectories
        ]
    assert len(said) == 32
    long = [ids for ids in said if len(ids) > 5]
    assert len(long) > 16
    assert len(set(long)) == len(long), "two rollouts are the same"


def test_fault_6_a_slow_environment_holds_up_nobody(
    collector: Any, tasks: list[Task], saying: Saying, tmp_path: Path
) -> None:
    """All episodes wait for the slowest in every round (fault 6): here it waits until all others are over."""
    gate, slow = tmp_path / "gate", derive(0, "sampling", 0, 0)

    def decide(seed: int, turn: int) -> list[int]:
        waits = seed == slow and turn == 0
        return saying("fail", how=f"wait {gate}") if waits else saying("leave" if turn == 5 else "draw")

    def open_gate(over: int, asked: int) -> None:
        if over == asked - 1:
            time.sleep(0.2)
            gate.touch()

    under_test = collector(decide, workers=1, step_seconds=30.0)
    collection = under_test.collect([(task, 2) for task in tasks], 0, progress=open_gate)
    assert (collection.stats.played, collection.stats.retried) == (12, 0)
    assert collection.stats.idle_seconds > 0


def test_naps_of_one_worker_overlap(collector: Any, tasks: list[Task], saying: Saying) -> None:
    under_test = collector(lambda seed, turn: saying("leave") if turn else saying("fail", how="nap"), workers=1)
    under_test.collect([(tasks[0], 1)], 0)
    collection = under_test.collect([(tasks[0], 16)], 0)
    assert collection.stats.environment_seconds >= 16 * 0.3
    assert collection.stats.seconds < 0.5 * collection.stats.environment_seconds


def test_every_worker_logs_what_it_did(collector: Any, tasks: list[Task], saying: Saying, tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit")
    under_test = collector(drawing(saying), EnvironmentSpec("lodge:Lodge", audit=audit))
    collection = under_test.collect([(task, 2) for task in tasks], 7)
    under_test.close()
    audit.close()
    report = verify(tmp_path / "audit")
    assert (report.ok, report.unfinished, report.lines) == (True, 0, collection.stats.turns)
    assert report.files == 3, "one of this process and one of each worker"


def test_other_weights_reach_the_workers(collector: Any, tasks: list[Task], saying: Saying) -> None:
    under_test = collector(lambda seed, turn: saying("leave"), workers=1)
    [before] = under_test.collect([(tasks[0], 1)], 0).trajectories
    under_test.remake(EnvironmentSpec("lodge:Lodge", rewards=RewardSection(success=9.0)))
    [after] = under_test.collect([(tasks[0], 1)], 0).trajectories
    assert after.reward - before.reward == pytest.approx(4.0)
    assert after.reward_version != before.reward_version


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


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("kind", "doing"), [("Gone", "beginning"), ("GoingDown", "stepping")])
def test_fault_20_a_server_that_is_gone_ends_the_run_and_is_named(
    collector: Any, saying: Saying, kind: str, doing: str, workers: int
) -> None:
    """A dead environment server gave empty observations, and training went on."""
    spec = EnvironmentSpec(f"lodge:{kind}", rewards=RewardSection())
    tasks = spec().tasks("train", 5)
    under_test = collector(lambda seed, turn: saying("ask"), spec, workers=workers, max_fault_share=0.2)
    with pytest.raises(
        RolloutFault, match=rf"2 of 5 episodes .*env_error 2.*{doing} .*ConnectionRefusedError"
    ) as raised:
        under_test.collect([(task, 1) for task in tasks], 0)
    assert raised.value.exit_code == 1
    assert adds_up_after_a_failure(under_test)


@pytest.mark.parametrize("workers", [0, 1])
def test_fault_20_empty_answers_are_no_observations(collector: Any, saying: Saying, workers: int) -> None:
    spec = EnvironmentSpec("lodge:Mute", rewards=RewardSection())
    tasks = spec().tasks("train", 5)
    under_test = collector(lambda seed, turn: saying("ask"), spec, workers=workers, max_fault_share=0.2)
    with pytest.raises(RolloutFault, match=r"2 of 5 episodes .*env_error 2.*answered by nothing"):
        under_test.collect([(task, 1) for task in tasks], 0)


@pytest.mark.parametrize("share", [0.99, 1.0])
def test_fault_20_a_collection_of_nothing_ends_the_run(
    collector: Any, tasks: list[Task], saying: Saying, share: float
) -> None:
    """Empty batches for ever, exit code 0: here every opening is too long to be answered."""
    under_test = collector(lambda seed, turn: saying("leave"), workers=0, max_tokens=4, max_fault_share=share)
    with pytest.raises(RolloutFault, match=r"6 of 6 episodes had to be dropped .*raise rollout\.max_tokens"):
        under_test.collect([(task, 1) for task in tasks], 0)


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


# Steps that go wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "stop", "workers"),
    [
        ("hang", StopReason.TIMEOUT, 2),
        ("raise", StopReason.ENV_ERROR, 0),
        ("raise", StopReason.ENV_ERROR, 2),
        ("exit", StopReason.ENV_ERROR, 0),
        ("exit", StopReason.ENV_ERROR, 2),
    ],
)
def test_faults_4_and_20_what_goes_wrong_in_a_tool_ends_its_own_episode(
    collector: Any, tasks: list[Task], saying: Saying, how: str, stop: StopReason, workers: int
) -> None:
    """Nothing in a tool ends the run, least of all with exit code 0 (faults 4 and 20)."""
    calm = collector(drawing(saying), workers=0).collect([(task, 1) for task in tasks], 7)
    unlucky = calm.trajectories[2].seed

    first: list[int] = []

    def decide(seed: int, turn: int) -> Sequence[int]:
        first.extend(pids_of(under_test) if not first else [])
        return saying("fail", how=how) if seed == unlucky else drawing(saying)(seed, turn)

    under_test = collector(decide, step_seconds=4.0, workers=workers)
    started = time.monotonic()
    collection = under_test.collect([(task, 1) for task in tasks], 7)
    assert time.monotonic() - started < 40
    assert collection.stats.dropped == {stop.value: 1}
    assert collection.stats.retried == 1
    assert adds_up(collection)
    found, wanted = essences(collection), essences(calm)
    assert (found[2].stop, found[2].reward, found[2].success) == (stop, None, None)
    assert found[:2] + found[3:] == wanted[:2] + wanted[3:]
    kept = [pid for pid in first if pid in pids_of(under_test)]
    assert len(first) == workers
    assert (len(kept) < workers) == (how == "hang"), "a thread that hangs can only be ended with its process"
    assert all(is_gone(pid) for pid in first if pid not in kept)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("Odd", r"The action of step is no plain Action: TypeError"),
        ("Long", r"The observation of step has 8388609 characters, and 8388608 are the most"),
    ],
)
def test_an_answer_that_cannot_travel_is_the_environments_failure_everywhere(
    collector: Any, tasks: list[Task], saying: Saying, kind: str, fault: str, workers: int
) -> None:
    under_test = collector(lambda seed, turn: saying("draw"), EnvironmentSpec(f"lodge:{kind}"), workers=workers)
    with pytest.raises(RolloutFault, match=f"env_error 1.*{fault}"):
        under_test.collect([(tasks[0], 1)], 0)
    assert under_test.last_stats.retried == 1


def test_a_request_that_is_too_long_ends_its_episode_alone(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(WorkerHost(LODGE, 1, step_seconds=10.0)) as host:
        monkeypatch.setattr(messages, "MAX_BYTES", 4000)
        crowded = msgspec.structs.replace(tasks[0], world={"number": 1, "guests": "x" * 4000})
        answers = dict[int, Answer]()
        for key, task in enumerate((crowded, tasks[0], tasks[1])):
            host.ask(key, Begin(task, key))
        wait_until(lambda: answers.update(host.take(1.0)) or len(answers) == 3)
        assert [type(answers[key]) for key in range(3)] == [Failed, Begun, Begun]
        answers.clear()
        before = host.pids
        host.release(0, broken=True)
        host.ask(1, Step("x" * 4000))
        host.ask(2, Step(call("leave")))
        wait_until(lambda: answers.update(host.take(1.0)) or len(answers) == 2)
        assert [type(answers[key]) for key in (1, 2)] == [Failed, Stepped]
        failed = answers[1]
        assert isinstance(failed, Failed)
        assert "(Step) cannot travel" in failed.fault
        host.release(1, broken=True)
        host.ask(3, Begin(tasks[0], 3))
        assert [(key, type(answer)) for key, answer in host.take(60.0)] == [(3, Begun)]
        assert host.pids == before, "no worker died of an order that it never got"


def test_in_this_process_a_slow_step_is_counted(collector: Any, tasks: list[Task], saying: Saying) -> None:
    under_test = collector(
        lambda seed, turn: saying("leave") if turn else saying("fail", how="nap"), workers=0, step_seconds=0.1
    )
    stats = under_test.collect([(tasks[0], 2)], 0).stats
    assert (stats.played, stats.overdue) == (2, 2)


# Workers that cannot work -----------------------------------------------------------------------------------------


def test_a_worker_that_cannot_import_the_environment_says_so(
    collector: Any, tasks: list[Task], saying: Saying, lodge: Path
) -> None:
    lodge.write_text("raise OSError('no such lodge')")
    with pytest.raises(TaskError, match=r"importing 'lodge' raised OSError: no such lodge \(.*lodge\.py:1\)"):
        collector(lambda seed, turn: saying("leave")).collect([(tasks[0], 1)], 0)


def test_workers_that_die_while_they_start_end_the_run(
    collector: Any, tasks: list[Task], saying: Saying, lodge: Path
) -> None:
    lodge.write_text("import os; os._exit(5)")
    with pytest.raises(EnvironmentFault, match=r"5 worker processes in a row .* ended with exit code 5"):
        collector(lambda seed, turn: saying("leave"), workers=1).collect([(tasks[0], 1)], 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_exits_while_it_is_made_is_named(
    collector: Any, tasks: list[Task], saying: Saying, workers: int
) -> None:
    under_test = collector(lambda seed, turn: saying("leave"), EnvironmentSpec("lodge:Leaving"), workers=workers)
    with pytest.raises(EnvironmentFault, match="SystemExit: no vacancies"):
        under_test.collect([(tasks[0], 1)], 0)


def test_a_maker_that_a_worker_cannot_find_is_named_and_nothing_else(
    tasks: list[Task], lodge: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lodge.write_text(WORLD + "\ndef maker():\n    return Lodge()\n")
    host = WorkerHost(importlib.reload(sys.modules["lodge"]).maker, 1, step_seconds=5.0)
    lodge.write_text(WORLD)
    with closing(host):
        host.ask(0, Begin(tasks[0], 0))
        with pytest.raises(EnvironmentFault, match=r"loading the maker of environments .*maker"):
            host.take(60.0)
        [pid] = host.pids
        wait_until(lambda: is_gone(pid))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_world_that_cannot_be_saved_is_the_same_mistake_everywhere(
    collector: Any, tasks: list[Task], saying: Saying, workers: int
) -> None:
    under_test = collector(lambda seed, turn: saying("leave"), EnvironmentSpec("lodge:Keeping"), workers=workers)
    with pytest.raises(TaskError, match="key") as raised:
        under_test.collect([(tasks[0], 1)], 0)
    assert raised.value.exit_code == 2


def test_a_users_mistake_is_raised_as_what_it_is(collector: Any, tasks: list[Task], saying: Saying) -> None:
    foreign = msgspec.structs.replace(tasks[0], env="elsewhere")
    with pytest.raises(UsageError, match="cannot be played in 'lodge'"):
        collector(lambda seed, turn: saying("leave"), workers=1).collect([(foreign, 1)], 0)


def test_a_maker_that_cannot_be_sent_is_refused_at_once(collector: Any, saying: Saying) -> None:
    with pytest.raises(UsageError, match=r"must be picklable.*EnvironmentSpec"):
        collector(lambda seed, turn: saying("leave"), lambda: make_env("lodge:Lodge"))
    collector(lambda seed, turn: saying("leave"), partial(make_env, "lodge:Lodge"))


def test_a_maker_of_the_script_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be pickled, but a worker process has another script."""

    def make() -> Environment:
        return make_env("lodge:Lodge")

    make.__module__, make.__qualname__ = "__main__", "make"
    monkeypatch.setattr(sys.modules["__main__"], "make", make, raising=False)
    assert pickle.loads(pickle.dumps(make)) is make
    for maker in (make, partial(make)):
        with pytest.raises(UsageError, match=r"make stands in the script that is run.*EnvironmentSpec"):
            WorkerHost(maker, 1, 5.0)


def test_a_maker_that_is_too_long_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrata.rollout.workers.MAX_BYTES", 1000)
    WorkerHost(LODGE, 1, 5.0)
    with pytest.raises(UsageError, match="1000 are the most"):
        WorkerHost(partial(make_env, "lodge:Lodge", families=("x" * 1000,)), 1, 5.0)


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
