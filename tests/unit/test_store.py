"""The run store gives back what was put in, and forgets exactly what is newer than a checkpoint."""

from __future__ import annotations

import math
import sqlite3
import threading
from pathlib import Path

import pytest

from ferrata.errors import RunFolderError
from ferrata.records import Action, Event, EventKind, StopReason, Task, Trajectory, Turn
from ferrata.runs import RunStore


@pytest.fixture
def store(tmp_path: Path):
    with_store = RunStore(tmp_path / "store.sqlite", create=True)
    yield with_store
    with_store.close()


def trajectory(name: str, success: bool | None = True, family: str = "report") -> Trajectory:
    task = Task("office", family, 1, "train", f"do {name}", {"name": name}, ("read", "send"), 10)
    turn = Turn(
        observation="do é",
        text='{"action": "read"}',
        token_ids=[5, 6],
        logprobs=[-0.25, -1.5],
        action=Action("read", {"path": [1, None, {"a": 2.5}]}),
        events=(Event(EventKind.STEP), Event(EventKind.SUBGOAL, "read")),
        components={"process": 0.08},
        state_hash="ab",
    )
    reward = None if success is None else 5.0 if success else -1.0
    return Trajectory(
        task, [turn], [1, 5, 6], [False, True, True], [0.0, -0.25, -1.5], StopReason.COMPLETED, success, reward
    )


def test_metrics_come_back_as_curves_in_the_order_of_the_stages(store: RunStore) -> None:
    store.add_metrics("sft", 2, {"loss": 1.5})
    store.add_metrics("sft", 1, {"loss": 2.0})
    store.add_metrics("rl", 1, {"loss": 0.5, "kl": 0.01})
    assert store.metrics("loss") == [(1, 2.0), (2, 1.5), (1, 0.5)]
    assert store.metrics("loss", "sft") == [(1, 2.0), (2, 1.5)]
    assert store.latest("loss") == 0.5
    assert store.latest("loss", "sft") == 1.5
    assert store.latest("unknown") is None
    assert store.metric_names("rl") == ["kl", "loss"]
    assert store.stages() == ["sft", "rl"]


def test_the_same_step_again_replaces(store: RunStore) -> None:
    store.add_metrics("rl", 1, {"loss": 1.0})
    store.add_metrics("rl", 1, {"loss": 2.0})
    store.add_evaluation("rl", 1, "greedy", "unseen", {"success": 0.1})
    store.add_evaluation("rl", 1, "greedy", "unseen", {"success": 0.2})
    assert store.metrics("loss") == [(1, 2.0)]
    assert [found.content for found in store.evaluations()] == [{"success": 0.2}]


def test_what_is_not_a_number_stays_so(store: RunStore) -> None:
    store.add_metrics("rl", 1, {"loss": math.nan, "ratio": math.inf})
    assert math.isnan(store.metrics("loss")[0][1])
    assert store.latest("ratio") == math.inf


def test_trajectories_come_back_whole(store: RunStore) -> None:
    first, second = trajectory("a"), trajectory("b", success=None)
    ids = store.add_trajectories("rl", 3, "train", [first, second, first])
    assert [store.trajectory(identifier) for identifier in ids] == [first, second, first]
    assert [row.group_index for row in store.list_trajectories()] == [0, 1, 0]
    row = store.list_trajectories()[1]
    assert (row.success, row.reward, row.stop, row.turns, row.split) == (None, None, "completed", 1, "train")


def test_trajectories_are_filtered(store: RunStore) -> None:
    store.add_trajectories("rl", 1, "train", [trajectory("a"), trajectory("b", False), trajectory("c", None)])
    store.add_trajectories("rl", 2, "eval", [trajectory("d", family="mail")])
    assert [row.id for row in store.list_trajectories(success=False)] == [2]
    assert [row.id for row in store.list_trajectories(split="eval")] == [4]
    assert [row.id for row in store.list_trajectories(family="mail", success=True)] == [4]
    assert [row.id for row in store.list_trajectories(step=1, limit=2)] == [1, 2]
    assert store.list_trajectories(stage="sft") == []


def test_an_unknown_trajectory_is_refused_with_the_known_range(store: RunStore) -> None:
    with pytest.raises(RunFolderError, match="none is stored"):
        store.trajectory(1)
    store.add_trajectories("rl", 1, "train", [trajectory("a"), trajectory("b")])
    with pytest.raises(RunFolderError, match="from 1 to 2"):
        store.trajectory(3)


def fill(store: RunStore, stage: str, steps: range) -> None:
    for step in steps:
        store.add_metrics(stage, step, {"loss": step / 10})
        store.add_evaluation(stage, step, "greedy", "unseen", {"step": step})
        store.add_trajectories(stage, step, "train", [trajectory(f"{stage}{step}")])
        store.add_note(stage, step, "alarm", f"{stage} {step}")


def contents(store: RunStore) -> tuple[object, ...]:
    rows = [(row.stage, row.step, row.group_index) for row in store.list_trajectories()]
    notes = [(note.stage, note.step, note.text) for note in store.notes()]
    return store.stages(), store.metrics("loss"), store.evaluations(), rows, notes


def test_truncating_and_going_on_equals_never_having_stopped(tmp_path: Path) -> None:
    left_alone, interrupted = (RunStore(tmp_path / name, create=True) for name in ("a", "b"))
    for store in (left_alone, interrupted):
        fill(store, "sft", range(1, 4))
        fill(store, "rl", range(1, 6))
    interrupted.truncate_after("rl", 2)
    assert [step for step, _ in interrupted.metrics("loss", "rl")] == [1, 2]
    fill(interrupted, "rl", range(3, 6))
    assert contents(interrupted) == contents(left_alone)
    left_alone.close()
    interrupted.close()


def test_truncating_in_an_earlier_stage_drops_the_later_ones(store: RunStore) -> None:
    fill(store, "sft", range(1, 4))
    fill(store, "rl", range(3))
    store.truncate_after("sft", 2)
    assert contents(store)[0:2] == (["sft"], [(1, 0.1), (2, 0.2)])
    assert {row.stage for row in store.list_trajectories()} == {"sft"}


def test_any_thread_may_write(store: RunStore) -> None:
    threads = [threading.Thread(target=fill, args=(store, f"stage{n}", range(10))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.list_trajectories()) == 40


def test_a_reader_sees_a_run_under_way(store: RunStore) -> None:
    fill(store, "sft", range(1, 3))
    reader = RunStore(store.path)
    fill(store, "sft", range(3, 4))
    assert len(reader.metrics("loss")) == 3
    reader.close()


def test_running_time_goes_on_after_reopening(store: RunStore) -> None:
    store.add_metrics("rl", 1, {"loss": 1.0})
    store._connection.execute("UPDATE metrics SET seconds = 100.0")
    again = RunStore(store.path)
    again.add_metrics("rl", 2, {"loss": 1.0})
    assert 100.0 <= again.seconds()[1][1] < 160.0
    again.close()


def test_a_failure_inside_a_write_stores_nothing(store: RunStore) -> None:
    with pytest.raises(AttributeError):
        store.add_trajectories("rl", 1, "train", [trajectory("a"), None])
    assert store.list_trajectories() == []
    assert store.stages() == []


def test_files_that_are_no_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is missing"):
        RunStore(tmp_path / "none.sqlite")
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    with pytest.raises(RunFolderError, match="cannot be used"):
        RunStore(tmp_path / "text.sqlite")
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE people (name TEXT)")
    other.close()
    with pytest.raises(RunFolderError, match="was not written by this version"):
        RunStore(tmp_path / "other.sqlite")


def test_a_damaged_record_is_one_sentence(store: RunStore) -> None:
    [identifier] = store.add_trajectories("rl", 1, "train", [trajectory("a")])
    store._connection.execute("UPDATE trajectories SET record = x'00'")
    with pytest.raises(RunFolderError, match=f"Trajectory {identifier} .* is damaged"):
        store.trajectory(identifier)


def test_clearing_forgets_everything(store: RunStore) -> None:
    store.add_metrics("sft", 1, {"loss": 1.0})
    store.add_trajectories("rl", 1, "train", [trajectory("a")])
    store.clear()
    assert (store.stages(), store.metric_names(), store.list_trajectories()) == ([], [], [])
