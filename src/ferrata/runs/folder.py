"""A run is one folder.

run.json        what makes the folder a run: layout version, when it was made
recipe.toml     the resolved recipe, every key with its meaning
versions.json   Python, libraries and platform that made it
store.sqlite    metrics, evaluations, trajectories, notes
audit/          every action of the policy, hash-chained, unless the recipe does without
checkpoints/    whole checkpoints, newest last
verdicts/       what a judging model said of each episode, where the recipe asks one
policy/         the policy when the run has finished, an ordinary transformers folder
report.html     the report
log.txt         what the run told the person, with times
lock            held by the process that trains, for as long as it lives
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from ferrata.errors import CheckpointError, RunFolderError
from ferrata.recipe import Recipe
from ferrata.recipe_loading import dump_recipe, load_recipe
from ferrata.runs.checkpoints import Checkpoints
from ferrata.runs.disk import is_full
from ferrata.runs.store import RunStore

_LAYOUT = 1
_FILES = ("run.json", "recipe.toml", "versions.json", "log.txt", "lock", "store.sqlite")
_FOLDERS = ("audit", "verdicts", "checkpoints")
"""What a run opens or makes before anything is trained."""
_LIBRARIES = ("ferrata", "torch", "transformers", "tokenizers", "safetensors", "numpy", "msgspec", "pydantic")


class RunFolder:
    """One run on disk. Make it with `create` or `open`; use it as a context manager, or call `close`."""

    def __init__(self, path: Path, recipe: Recipe, store: RunStore, lock: IO[str] | None) -> None:
        self.path = path
        self.recipe = recipe
        """The recipe the run was made with."""
        self.store = store
        self.checkpoints = Checkpoints(path / "checkpoints", keep=recipe.run.keep_checkpoints)
        self._lock = lock

    @classmethod
    def create(cls, recipe: Recipe, path: Path | None = None) -> RunFolder:
        """Make a new run folder, `runs/<recipe>-<time>` unless `path` says otherwise, and lock it for writing.

        Raises RunFolderError when `path` already holds anything, or cannot be made.
        """
        wanted = default_path(recipe) if path is None else path
        try:
            path = _make_default(recipe) if path is None else _make(path)
            with ExitStack() as undo:
                lock = undo.enter_context(_take_lock(path))
                if is_run(path):
                    raise RunFolderError(f"{path} has just been taken by another process: choose another --out.")
                undo.callback(_remove, path)
                (path / "recipe.toml").write_text(dump_recipe(recipe), encoding="utf-8")
                _write_json(path / "versions.json", versions())
                store = RunStore(path / "store.sqlite", create=True)
                # Last: a folder without it was not finished, and is no run.
                _write_json(path / "run.json", {"layout": _LAYOUT, "created": datetime.now(UTC).isoformat()})
                undo.pop_all()
        except OSError as error:
            if is_full(error, wanted):
                raise CheckpointError(f"The disk is full: no run folder could be made at {wanted}.") from error
            raise RunFolderError(f"No run folder can be made at {wanted}: {error.strerror or error}.") from error
        return cls(path, recipe, store, lock)

    @classmethod
    def open(cls, path: Path, *, writing: bool = False) -> RunFolder:
        """Open an existing run: to read it (also while it trains), or with `writing` to continue it.

        Raises RunFolderError when the folder is missing, is no run, or (`writing`) another process trains in it.
        """
        _refuse_foreign(path)
        recipe = load_recipe(str(path / "recipe.toml"))
        with ExitStack() as undo:
            lock = undo.enter_context(_take_lock(path)) if writing else None
            store = RunStore(path / "store.sqlite")
            undo.pop_all()
        return cls(path, recipe, store, lock)

    @property
    def policy(self) -> Path:
        """Where the final policy lies once the run has finished."""
        return self.path / "policy"

    @property
    def report(self) -> Path:
        """Where the report is written."""
        return self.path / "report.html"

    def log(self, text: str) -> None:
        """Add one line with the time to log.txt. A full disk is no reason to lose the run: nothing is raised."""
        try:
            with (self.path / "log.txt").open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {text}\n")
        except OSError:
            return

    @property
    def blank(self) -> bool:
        """True while nothing of the run is recorded, so that there is nothing to go on from."""
        return not self.store.stages() and self.checkpoints.latest() is None

    def discard(self) -> None:
        """Delete a run in which nothing was recorded yet, so that its path is free again. Else, only close it."""
        blank = self.blank
        self.close()
        if blank:
            _remove(self.path)

    def close(self) -> None:
        """Close the store and let go of the lock; calling it again does nothing."""
        self.store.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def default_path(recipe: Recipe) -> Path:
    """`runs/<recipe>-<date>-<time>` below the current directory."""
    return Path("runs") / f"{recipe.name}-{datetime.now():%Y%m%d-%H%M%S}"


def _make_default(recipe: Recipe) -> Path:
    """Make the default folder; another run that began in the same second has the plain name already."""
    first = default_path(recipe)
    for number in itertools.count(1):
        path = first if number == 1 else first.with_name(f"{first.name}-{number}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise AssertionError("itertools.count never ends")


def _make(path: Path) -> Path:
    refuse_occupied(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def is_run(path: Path) -> bool:
    """Say whether `path` is a run folder. Raises RunFolderError when it cannot be looked into."""
    with _reachable(path):
        return (path / "run.json").is_file() and (path / "recipe.toml").is_file()


@contextmanager
def _reachable(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror or error}.") from error


def versions() -> dict[str, str]:
    """What the run was made with: library versions from their metadata (nothing is imported), Python, platform."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "not installed"
    return found


def refuse_occupied(path: Path) -> None:
    """Raise RunFolderError when a new run cannot be made at `path` because something is there."""
    if is_run(path):
        raise RunFolderError(f"{path} already holds a run: continue it with --resume, or choose another --out.")
    with _reachable(path):
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"{path} is a file: choose another --out.")
        if path.exists() and any(path.iterdir()):
            raise RunFolderError(f"{path} is not empty and holds no run: choose another --out.")


def _refuse_foreign(path: Path) -> None:
    with _reachable(path):
        if not path.exists():
            raise RunFolderError(f"There is no run folder {path}.")
        if not is_run(path):
            raise RunFolderError(f"{path} is not a run folder: it has no run.json and recipe.toml.")
        text = (path / "run.json").read_text(encoding="utf-8", errors="replace")
    try:
        layout = json.loads(text)["layout"]
    except (ValueError, LookupError, TypeError) as error:
        raise RunFolderError(f"{path / 'run.json'} is damaged.") from error
    if layout != _LAYOUT:
        raise RunFolderError(f"{path} has layout {layout}; this version of Ferrata reads layout {_LAYOUT}.")


def _remove(path: Path) -> None:
    """Delete the files of a new run, and the folder when nothing else lies in it."""
    with suppress(OSError):
        for name in _FILES:
            (path / name).unlink(missing_ok=True)
        for name in _FOLDERS:
            shutil.rmtree(path / name, ignore_errors=True)
        path.rmdir()


def _take_lock(path: Path) -> IO[str]:
    """Lock the folder for this process. The system lets go of it when the process ends, however it ends."""
    with _reachable(path / "lock"):
        file = (path / "lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise RunFolderError(f"{path} is in use by process {owner}: wait for it, or stop it first.") from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
