"""Workers that cannot import, load or make their environment, and makers that cannot be sent to one: told at once, by
name."""

from __future__ import annotations

import importlib
import pickle
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrata.envs import Environment
from ferrata.errors import EnvironmentFault, TaskError, UsageError
from ferrata.records import Task
from ferrata.rollout.hosts import Begin
from ferrata.rollout.workers import WorkerHost
from ferrata.rollout.worlds import EnvironmentSpec, make_env

from .lodges import LODGE, WORLD, Saying, is_gone, wait_until

pytestmark = pytest.mark.usefixtures("lodge")


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
