"""Checkpoints that are whole or ignored.

    save          write into a hidden sibling -> manifest (size and hash of every file) -> fsync -> rename
    latest        newest checkpoint whose files match their manifest; anything else is ignored, with a note
    refuse_loss   raises when there are checkpoints, and none is whole
    seal, broken  the manifest of any folder, and what does not match it

A checkpoint is a folder `000007-rl-40`: a running number, then what the caller calls it. The caller writes the
weights; this module knows nothing about tensors. Killed at any moment, either the old checkpoints are there,
or the old ones and the new one.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ferrata.errors import CheckpointError
from ferrata.files import sync, sync_tree
from ferrata.runs.disk import free_bytes, human_size, is_full

_MANIFEST = "manifest.json"
_STATE = "state.json"
_UNFINISHED = ".writing-"
_NAME = re.compile(r"^(\d{6,})-(.+)$")


class Checkpoint(msgspec.Struct, frozen=True):
    """A whole checkpoint."""

    path: Path
    """Its folder, with everything that `write` put there."""
    name: str
    """What the caller called it."""
    state: dict[str, Any]
    """The JSON state that was saved with it."""


def _ignore(text: str) -> None:
    """Tell nobody."""


class Checkpoints:
    """The checkpoints of one run, in `folder`; the newest `keep` are kept."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def save(self, name: str, write: Callable[[Path], None], state: dict[str, Any]) -> Path:
        """Save a checkpoint and return its folder.

        `write` receives an empty folder and puts its files there; `state` is JSON-ready. Raises CheckpointError when
        the disk is full or refuses; earlier checkpoints are then untouched and nothing half-written is left.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.sweep()
        numbered = self._numbered()
        number = numbered[-1][0] + 1 if numbered else 1
        target = self.folder / f"{number:06d}-{name}"
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.folder))
        try:
            write(unfinished)
            _write_json(unfinished / _STATE, state)
            seal(unfinished)
            sync_tree(unfinished)
            unfinished.rename(target)
            sync(self.folder)
        except BaseException as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            explained = self._explained(error, name)
            if explained is None:
                raise
            raise explained from error
        self._delete_old()
        return target

    def latest(self, note: Callable[[str], None] = _ignore) -> Checkpoint | None:
        """Return the newest whole checkpoint, or None. `note` hears one sentence about each one ignored."""
        for _, path in reversed(self._numbered()):
            fault = broken(path)
            if fault is None:
                return _load(path)
            note(f"Checkpoint {path.name} is ignored: {fault}.")
        return None

    def refuse_loss(self) -> None:
        """Raise CheckpointError when checkpoints are there, and none of them is whole."""
        faults = [(path, broken(path)) for _, path in reversed(self._numbered())]
        if faults and all(fault for _, fault in faults):
            told = "; ".join(f"{path.name}: {fault}" for path, fault in faults)
            raise CheckpointError(
                f"No checkpoint in {self.folder} is whole ({told}), so the run cannot go on, and nothing of it was "
                "changed. Put back a copy of one, or delete them to begin this run again from its start."
            )

    def sweep(self) -> None:
        """Delete what a killed process left half-written."""
        for path in self.folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _numbered(self) -> list[tuple[int, Path]]:
        """All checkpoint folders, oldest first."""
        if not self.folder.is_dir():
            return []
        matches = ((_NAME.match(path.name), path) for path in self.folder.iterdir() if path.is_dir())
        return sorted((int(match[1]), path) for match, path in matches if match)

    def _delete_old(self) -> None:
        for _, path in self._numbered()[: -self.keep]:
            # Without its manifest it is no checkpoint any more, even if we are killed half way through deleting.
            (path / _MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)

    def _explained(self, error: BaseException, name: str) -> CheckpointError | None:
        """A clear error for a disk that is full or refuses; None for anything else."""
        if isinstance(error, Exception) and is_full(error, self.folder):
            free = human_size(free_bytes(self.folder))
            return CheckpointError(
                f"The disk is full: checkpoint '{name}' could not be written in {self.folder} ({free} free); "
                "earlier checkpoints are untouched, so make room and continue with --resume."
            )
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            return CheckpointError(f"Checkpoint '{name}' could not be written in {self.folder}: {reason}.")
        return None


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _files(folder: Path) -> list[Path]:
    """Every file below `folder` but the manifest itself."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / _MANIFEST)


def _manifest(folder: Path) -> dict[str, dict[str, int | str]]:
    """Size (bytes) and blake2b hash of every file, by path within the folder."""
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "blake2b": _digest(path)}
        for path in _files(folder)
    }


def seal(folder: Path) -> None:
    """Write down size and hash of every file in a folder, for `broken`."""
    _write_json(folder / _MANIFEST, _manifest(folder))


def broken(folder: Path) -> str | None:
    """Why a folder is not as it was sealed; None when it is."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        found = _manifest(folder)
    except (OSError, ValueError):
        return "it was not finished"
    if not isinstance(manifest, dict) or not manifest:
        return "its manifest is damaged"
    for name in sorted(manifest.keys() | found.keys()):
        if name not in found:
            return f"{name} is missing"
        if manifest.get(name) != found[name]:
            return f"{name} was altered or torn"
    return None


def _load(path: Path) -> Checkpoint:
    match = _NAME.match(path.name)
    assert match is not None, path
    return Checkpoint(path, match[2], json.loads((path / _STATE).read_text(encoding="utf-8")))
