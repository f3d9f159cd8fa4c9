"""Tools that hang, raise and exit, servers that are gone, and answers that say nothing or cannot travel: the episode
ends alone, and too many of them end the run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgspec
import pytest

from ferrata.envs import call
from ferrata.errors import RolloutFault
from ferrata.recipe import RewardSection
from ferrata.records import StopReason, Task
from ferrata.rollout import messages
from ferrata.rollout.hosts import Answer, Begin, Begun, Failed, Step, Stepped
from ferrata.rollout.workers import WorkerHost
from ferrata.rollout.worlds import EnvironmentSpec

from .lodges import LODGE, Saying, adds_up, adds_up_after_a_failure, drawing, essences, is_gone, pids_of, wait_until

pytestmark = pytest.mark.usefixtures("lodge")


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


# A dead environment ---------------------------------------------------------------------------------------------


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
