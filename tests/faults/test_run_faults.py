"""Full disks, killed processes, two processes in one run, Ctrl-C once and twice: nothing that was computed is lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ferrata.errors import CheckpointError, RunFolderError
from ferrata.recipe_loading import load_recipe
from ferrata.runs import Checkpoints, RunFolder, RunStore, SilentView, disk, graceful_interrupts
from ferrata.runs.interrupt import FIRST

RECIPE = load_recipe("office-smoke")


@contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `code`; its first line of output was read when the block begins. Killed at the end."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n", process.communicate()
            yield process
        finally:
            process.kill()
            process.communicate()


# Checkpoints ------------------------------------------------------------------------------------------------


def write_weights(folder: Path) -> None:
    (folder / "model.bin").write_text("weights")


def write_to_a_full_disk(folder: Path) -> None:
    write_weights(folder)
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"weights")


def fail_like_safetensors(folder: Path) -> None:
    write_weights(folder)
    raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("write", [write_to_a_full_disk, fail_like_safetensors])
def test_a_full_disk_costs_no_earlier_checkpoint(tmp_path: Path, write) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    kept = checkpoints.save("rl-1", write_weights, {"step": 1})
    with pytest.raises(CheckpointError) as caught:
        checkpoints.save("rl-2", write, {"step": 2})
    sentence = str(caught.value)
    assert "The disk is full: checkpoint 'rl-2'" in sentence
    assert str(tmp_path) in sentence
    assert "B free" in sentence
    assert "--resume" in sentence
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.state == {"step": 1}


def test_a_writer_that_does_not_say_why_is_understood_when_nothing_is_left(tmp_path: Path, monkeypatch) -> None:
    usage = namedtuple("usage", "total used free")(10, 10, 0)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: usage)

    def fail_like_torch(folder: Path) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")

    with pytest.raises(CheckpointError, match="The disk is full"):
        Checkpoints(tmp_path).save("rl-1", fail_like_torch, {})


def test_a_disk_that_refuses_is_named_with_its_reason(tmp_path: Path) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with pytest.raises(CheckpointError, match=r"'rl-1' could not be written in .*: Read-only file system\."):
        Checkpoints(tmp_path).save("rl-1", refuse, {})


def test_a_bug_while_writing_stays_what_it_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        Checkpoints(tmp_path).save("rl-1", fail, {})
    assert list(tmp_path.iterdir()) == []


def test_a_process_killed_while_writing_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from ferrata.runs import Checkpoints

        def write(folder):
            (folder / "model.bin").write_text("half")
            print("ready", flush=True)
            time.sleep(60)

        checkpoints = Checkpoints(Path(sys.argv[1]))
        checkpoints.save("rl-1", lambda folder: (folder / "model.bin").write_text("whole"), {"step": 1})
        checkpoints.save("rl-2", write, {"step": 2})
    """
    with python(code, str(tmp_path)) as process:
        process.kill()
        process.wait()
    checkpoints = Checkpoints(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.name == "rl-1"
    checkpoints.save("rl-2", write_weights, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001-rl-1", "000002-rl-2"]


# The store --------------------------------------------------------------------------------------------------


def test_a_full_disk_under_the_store_keeps_what_was_stored(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store.sqlite", create=True)
    store.add_metrics("rl", 1, {"loss": 1.0})
    pages = store._one("PRAGMA page_count")
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(CheckpointError, match=r"The disk is full: .*store\.sqlite"):
        store.add_evaluation("rl", 2, "greedy", "unseen", {"text": "x" * 1_000_000})
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.add_metrics("rl", 2, {"loss": 0.5})
    assert store.metrics("loss") == [(1, 1.0), (2, 0.5)]
    assert store.evaluations() == []
    store.close()


def test_a_killed_process_loses_nothing_that_it_stored(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from ferrata.runs import RunStore

        store = RunStore(Path(sys.argv[1]), create=True)
        for step in range(50):
            store.add_metrics("rl", step, {"loss": 1.0})
        print("ready", flush=True)
        time.sleep(60)
    """
    with python(code, str(tmp_path / "store.sqlite")) as process:
        process.kill()
        process.wait()
    store = RunStore(tmp_path / "store.sqlite")
    assert len(store.metrics("loss")) == 50
    store.close()


# The folder -------------------------------------------------------------------------------------------------


def test_a_run_folder_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run"
    with RunFolder.create(RECIPE, path) as folder:
        folder.log("hello\nworld")
    with RunFolder.open(path, writing=True) as folder:
        assert folder.recipe == RECIPE
        assert (path / "log.txt").read_text().endswith("hello\nworld\n")
    assert {"run.json", "recipe.toml", "versions.json", "store.sqlite"} <= {file.name for file in path.iterdir()}


def test_the_default_folder_is_named_after_recipe_and_time(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RunFolder.create(RECIPE) as folder:
        assert folder.path.parent == Path("runs")
        assert folder.path.name.startswith("office-smoke-2")


def foreign(path: Path) -> None:
    path.mkdir()
    (path / "thesis.doc").write_text("mine")


def a_file(path: Path) -> None:
    path.write_text("mine")


def a_run(path: Path) -> None:
    RunFolder.create(RECIPE, path).close()


@pytest.mark.parametrize(
    ("occupy", "sentence"), [(foreign, "is not empty"), (a_file, "is a file"), (a_run, "already holds a run")]
)
def test_a_new_run_never_overwrites(tmp_path: Path, occupy, sentence: str) -> None:
    occupy(tmp_path / "run")
    with pytest.raises(RunFolderError, match=sentence):
        RunFolder.create(RECIPE, tmp_path / "run")


def damage_layout(path: Path) -> None:
    a_run(path)
    (path / "run.json").write_text('{"layout": 99}')


def damage_json(path: Path) -> None:
    a_run(path)
    (path / "run.json").write_text("[]")


def remove_store(path: Path) -> None:
    a_run(path)
    (path / "store.sqlite").unlink()


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda path: None, "There is no run folder"),
        (foreign, "is not a run folder"),
        (a_file, "is not a run folder"),
        (damage_layout, "layout 99"),
        (damage_json, "is damaged"),
        (remove_store, "store.sqlite is missing"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, prepare, sentence: str) -> None:
    prepare(tmp_path / "run")
    for writing in (False, True):
        with pytest.raises(RunFolderError, match=sentence):
            RunFolder.open(tmp_path / "run", writing=writing)


def test_one_process_at_a_time_trains_in_a_run_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    a_run(tmp_path / "run")
    code = """
        import sys, time
        from pathlib import Path
        from ferrata.runs import RunFolder

        folder = RunFolder.open(Path(sys.argv[1]), writing=True)
        print("ready", flush=True)
        time.sleep(60)
    """
    with python(code, str(tmp_path / "run")) as process:
        with pytest.raises(RunFolderError, match=f"in use by process {process.pid}"):
            RunFolder.open(tmp_path / "run", writing=True)
        RunFolder.open(tmp_path / "run").close()
        process.kill()
        process.wait()
        RunFolder.open(tmp_path / "run", writing=True).close()


def test_of_many_processes_that_want_one_folder_one_gets_it_whole(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from ferrata import load_recipe
        from ferrata.errors import RunFolderError
        from ferrata.runs import RunFolder

        recipe = load_recipe("office-smoke")
        print("ready", flush=True)
        while not Path(sys.argv[2]).exists():
            pass
        try:
            RunFolder.create(recipe, Path(sys.argv[1]))
            print("won")
            time.sleep(0.5)
        except RunFolderError as error:
            print(error)
    """
    go = tmp_path / "go"
    with ExitStack() as all_of_them:
        racing = [all_of_them.enter_context(python(code, str(tmp_path / "run"), str(go))) for _ in range(4)]
        go.touch()
        said = [process.stdout.read() for process in racing if process.stdout]
    assert sum(text == "won\n" for text in said) == 1, said
    RunFolder.open(tmp_path / "run").close()


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ferrata.runs.folder.default_path", lambda recipe: Path("runs/same"))
    for name in ("same", "same-2", "same-3"):
        with RunFolder.create(load_recipe("office-smoke")) as folder:
            assert folder.path == Path("runs") / name


def test_a_folder_that_could_not_be_finished_is_removed(tmp_path: Path, monkeypatch) -> None:
    def full(*arguments: object, **settings: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ferrata.runs.folder.RunStore", full)
    with pytest.raises(CheckpointError, match="The disk is full"):
        RunFolder.create(RECIPE, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_only_a_run_without_results_is_discarded(tmp_path: Path) -> None:
    RunFolder.create(RECIPE, tmp_path / "empty").discard()
    folder = RunFolder.create(RECIPE, tmp_path / "full")
    folder.store.add_metrics("sft", 1, {"loss": 1.0})
    folder.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_log_that_cannot_be_written_does_not_stop_the_run(tmp_path: Path) -> None:
    with RunFolder.create(RECIPE, tmp_path / "run") as folder:
        (folder.path / "log.txt").mkdir()
        folder.log("lost")


# Interrupts -------------------------------------------------------------------------------------------------


def test_the_first_signal_asks_and_the_second_stops() -> None:
    said: list[str] = []
    with graceful_interrupts(said.append) as interrupts:
        assert not interrupts.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.requested
        assert said == [FIRST]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_what_handled_signals_before_does_so_again() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with graceful_interrupts(SilentView().message):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_announcement_in_the_middle_of_printing_does_not_hurt() -> None:
    def reentrant(text: str) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    with graceful_interrupts(reentrant) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.requested
