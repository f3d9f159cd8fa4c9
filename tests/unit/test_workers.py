"""Parts of the environment workers that need no process: messages, deadlines, trials, and one request at a time."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ferrata.envs import Environment, call
from ferrata.envs.audit import AuditLog, verify
from ferrata.envs.faults import FaultRates
from ferrata.envs.snapshot import UnsavableWorld
from ferrata.errors import EnvironmentFault, TaskError, UsageError
from ferrata.recipe import RewardSection
from ferrata.records import StopReason, Task
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout import messages, worker_handle
from ferrata.rollout.hosts import Begin, Begun, Cut, CutShort, Failed, LocalHost, Past, Step, Stepped, perform
from ferrata.rollout.messages import (
    NO_TICKET,
    Close,
    Overdue,
    Raised,
    Ready,
    Release,
    decode_order,
    decode_report,
    encode,
    pack,
)
from ferrata.rollout.playing import Playing, Trials
from ferrata.rollout.worker_handle import Patience, WorkerHandle
from ferrata.rollout.worker_process import Worker
from ferrata.rollout.worlds import EnvironmentSpec


@pytest.fixture
def world(errand: type[Environment]) -> Environment:
    return errand(score=RewardSpec(RewardSection()))


@pytest.fixture
def task(world: Environment) -> Task:
    return world.tasks("train", 1)[0]


# Messages -------------------------------------------------------------------------------------------------------


def test_orders_arrive_as_they_were_sent(task: Task) -> None:
    past = [Past("said", "hash", "heard")]
    orders = [
        Begin(task, 2**62, FaultRates(timeout=0.5, missing={"*": 0.1}), past),
        Step('{"action": "say", "arguments": {"word": "ä"}}'),
        Cut(StopReason.MAX_TOKENS),
        Release(True),
        Close(),
    ]
    assert [decode_order(encode((3, order))) for order in orders] == [(3, order) for order in orders]


def test_reports_arrive_as_they_were_sent(world: Environment, task: Task) -> None:
    world.reset(task)
    reports = [
        Begun("Hello.", 0.1),
        Stepped("hash", world.step(call("say", word="ka")), 0.2),
        CutShort(world.cut(StopReason.MAX_TURNS), 0.3),
        Failed(StopReason.JUDGE_ERROR, "The judge sleeps.", "hash", 0.4),
        Ready(),
        Overdue([3, 4]),
        Raised("TaskError", "No such thing."),
    ]
    assert [decode_report(encode((3, report))) for report in reports] == [(3, report) for report in reports]


def test_errors_keep_their_kind_on_the_way() -> None:
    assert isinstance(Raised.of(TaskError("no")).error(), TaskError)
    assert str(Raised.of(UsageError("Wrong.")).error()) == "Wrong."
    unsavable = UnsavableWorld("A world", "keep it as JSON")
    told = Raised.of(unsavable).error()
    assert (type(told), str(told)) == (TaskError, str(unsavable)), "the nearest class that every process knows"
    foreign = Raised.of(ZeroDivisionError("by zero")).error()
    assert isinstance(foreign, EnvironmentFault)
    assert "ZeroDivisionError: by zero" in str(foreign)
    assert type(Raised("Exception", "x").error()) is EnvironmentFault, "no name of another module is looked up"


def test_a_message_that_cannot_travel_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFault, match=r"\(Step\) cannot travel .*UnicodeEncodeError"):
        pack(1, Step("\ud800"))
    step = Step("x" * 100)
    monkeypatch.setattr(messages, "MAX_BYTES", len(pack(1, step)))
    assert decode_order(pack(1, step)) == (1, step)
    with pytest.raises(EnvironmentFault, match=r"\(Step\) cannot travel .* are the most"):
        pack(1, Step(step.text + "x"))


@pytest.mark.parametrize(("ticket", "told"), [(7, Failed), (NO_TICKET, Raised)])
def test_a_worker_tells_what_cannot_travel_where_it_is_read(ticket: int, told: type) -> None:
    """A failure that belongs to no episode would be read by nobody."""
    sent: list[bytes] = []
    wire = SimpleNamespace(send_bytes=sent.append)
    Worker(cast(Any, wire), 60.0).tell(ticket, Raised("TaskError", "\ud800"))
    [(arrived, report)] = map(decode_report, sent)
    assert (arrived, type(report)) == (ticket, told)
    assert "cannot travel" in str(report)


@pytest.mark.parametrize(
    "report", [Begun(cast(Any, 7)), Begun(cast(Any, b"abc")), Stepped("", cast(Any, None)), Failed(cast(Any, "x"), "")]
)
def test_a_worker_tells_what_could_be_sent_but_not_read(report: Any) -> None:
    """The parent would take a worker that it cannot understand for dead."""
    sent: list[bytes] = []
    Worker(cast(Any, SimpleNamespace(send_bytes=sent.append)), 60.0).tell(7, report)
    [(arrived, told)] = map(decode_report, sent)
    assert arrived == 7
    assert isinstance(told, Failed)
    assert f"({type(report).__name__}) cannot travel between processes: ValidationError" in told.fault


def test_what_makes_environments_travels_and_its_audit_log_becomes_another_file(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    spec = EnvironmentSpec("office", (1, 2), RewardSection(success=7.0), ("report",), audit=log)
    arrived = pickle.loads(pickle.dumps(spec))
    assert arrived.audit.folder == log.folder
    assert arrived.audit.path != log.path
    assert msgspec.to_builtins(arrived.rewards.model_dump()) == spec.rewards.model_dump()
    with_log = arrived()
    assert (with_log.tiers, with_log.audit) == ((1, 2), arrived.audit)
    with_log.close()
    arrived.audit.close()
    log.close()
    assert (verify(tmp_path).ok, verify(tmp_path).files) == (True, 2)


# One request ------------------------------------------------------------------------------------------------------


def test_turns_that_are_played_again_lead_to_the_same_state(errand: type[Environment], task: Task) -> None:
    first, second = errand(), errand()
    first.reset(task, 5)
    past = []
    for word in ("ka", "lo"):
        before = first.state_hash()
        past.append(Past(call("say", word=word), before, first.step(call("say", word=word)).observation.text))
    answer = perform(second, Begin(task, 5, None, past))
    assert isinstance(answer, Begun)
    assert answer.observation == task.instruction
    assert (second.state_hash(), second.turn) == (first.state_hash(), 2)


@pytest.mark.parametrize("change", [{"state_hash": "another"}, {"observation": "said mi"}])
def test_a_world_that_answers_otherwise_than_before_is_not_brought_back(
    errand: type[Environment], task: Task, change: dict[str, str]
) -> None:
    env = errand()
    env.reset(task)
    past = Past(call("say", word="ka"), env.state_hash(), "said ka")
    assert isinstance(perform(errand(), Begin(task, 0, None, [past])), Begun)
    answer = perform(errand(), Begin(task, 0, None, [msgspec.structs.replace(past, **cast(Any, change))]))
    assert isinstance(answer, Failed)
    assert answer.stop is StopReason.ENV_ERROR
    assert "turn 1 went another way" in answer.fault


def test_the_audit_log_does_not_count_a_turn_twice(errand: type[Environment], task: Task, tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    env = errand(audit=log)
    env.reset(task)
    past = Past(call("say", word="ka"), env.state_hash(), "said ka")
    perform(env, Begin(task, 9, None, [past]))
    perform(env, Step(call("say", word="lo")))
    log.close()
    entries = [msgspec.json.decode(line) for line in log.path.read_bytes().splitlines()]
    assert [(entry["turn"], entry["outcome"]) for entry in entries] == [(1, "restored"), (2, "ok")]
    assert {entry["episode"] for entry in entries} == {f"{task.fingerprint}-9"}


def test_a_host_in_this_process_answers_at_once_and_in_order(errand: type[Environment], task: Task) -> None:
    host = LocalHost(errand)
    for key in (4, 2):
        host.ask(key, Begin(task, key))
    assert [(key, type(answer)) for key, answer in host.take(60.0)] == [(4, Begun), (2, Begun)]
    assert host.take(60.0) == []
    host.release(4, broken=False)
    host.release(2, broken=True)
    assert len(host._idle) == 1
    host.close()


def test_a_host_in_this_process_plays_on_when_another_environment_cannot_be_made(
    errand: type[Environment], task: Task
) -> None:
    made: list[Environment] = []

    def make() -> Environment:
        if made:
            raise ConnectionError("the server is full")
        made.append(errand())
        return made[0]

    host = LocalHost(make)
    assert [tool.name for tool in cast(Any, host.tools_for(task))] == ["say", "submit"]
    for key in range(2):
        host.ask(key, Begin(task, key))
    [(_, first), (_, second)] = host.take(0.0)
    assert isinstance(first, Begun)
    assert isinstance(second, Failed)
    assert "ConnectionError: the server is full" in second.fault
    host.release(1, broken=True)
    host.close()


def test_a_world_without_a_task_fails_as_any_other(errand: type[Environment]) -> None:
    """Its own `reset` never called ours."""

    def gone() -> str:
        raise OSError("gone")

    env = errand()
    env.state_hash = gone
    answer = perform(env, Step(call("say", word="ka")))
    assert isinstance(answer, Failed)
    assert answer.fault.startswith("While stepping an episode: OSError: gone")


# Deadlines --------------------------------------------------------------------------------------------------------


def test_a_deadline_is_believed_when_it_is_still_past_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(worker_handle.time, "monotonic", lambda: now[0])
    patience = Patience(5.0)
    now[0] += 4.9
    assert not patience.spent()
    now[0] += 3600.0
    assert not patience.spent(), "this process may have been stopped itself"
    now[0] += 0.4
    assert not patience.spent()
    now[0] += 0.2
    assert patience.spent()
    patience.renew(5.0)
    assert not patience.spent()


def test_an_answer_that_came_while_this_process_was_stopped_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(worker_handle.time, "monotonic", lambda: now[0])
    patience = Patience(5.0)
    now[0] += 3600.0
    assert not patience.spent()
    patience.renew(5.0)
    now[0] += 1.0
    assert not patience.spent()


# Trials -----------------------------------------------------------------------------------------------------------


class Process:
    """Stands for a worker."""

    def __init__(self) -> None:
        self.episodes = 0


def playing(key: int, task: Task) -> Playing:
    begin = Begin(task, key)
    return Playing(key, begin, begin)


def test_one_suspect_at_a_time_in_each_worker(task: Task) -> None:
    workers = cast(list[WorkerHandle], [Process(), Process()])
    suspects, trials = [playing(key, task) for key in range(3)], Trials()
    trials.accuse(workers[0], suspects)
    assert [suspect.losses for suspect in suspects] == [1, 1, 1]
    for suspect in suspects:
        trials.add(suspect)
    begun = list(trials.begin(workers))
    assert [suspect.key for suspect, _ in begun] == [0, 1]
    assert {id(worker) for _, worker in begun} == {id(worker) for worker in workers}
    bystander = playing(9, task)
    trials.accuse(begun[0][1], [bystander, suspects[0]])
    assert (suspects[0].losses, bystander.losses) == (2, 0), "the one on trial alone"
    trials.end(suspects[1])
    assert suspects[1].losses == 0
    assert [(suspect.key, worker is begun[1][1]) for suspect, worker in trials.begin(workers)] == [(2, True)]
    trials.forget(begun[0][1])
    trials.add(suspects[0])
    trials.end(suspects[0])
    assert list(trials.begin(workers)) == []


def test_patience_of_a_real_clock() -> None:
    patience = Patience(0.0)
    assert not patience.spent()
    time.sleep(worker_handle.GRACE_SECONDS + 0.05)
    assert patience.spent()
