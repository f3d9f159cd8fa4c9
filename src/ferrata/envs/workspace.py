"""A folder of real files that belongs to one environment; nothing outside it can be reached."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ferrata.envs.tools import Refused, ToolError

MAX_FILE_CHARACTERS = 100_000


class Workspace:
    """Real files under one private root folder. Paths are relative to it, with `/` between parts."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ferrata-")
        self.root = Path(os.path.realpath(self._folder.name))
        self._prefix = f"{self.root}{os.sep}"

    def reset(self, files: Mapping[str, str]) -> None:
        """Empty the workspace, then write `files` (path -> content)."""
        for entry in os.scandir(self.root):
            if entry.is_dir(follow_symlinks=False):
                _empty(entry.path)
            else:
                os.unlink(entry.path)
        for path, content in files.items():
            _write(self._prefix + path, content)

    def read(self, path: str) -> str:
        """Content of one file as text; undecodable bytes are shown as replacement characters."""
        target = self._resolve(path)
        try:
            with open(target, encoding="utf-8", errors="replace", newline="") as file:
                return file.read(MAX_FILE_CHARACTERS)
        except FileNotFoundError:
            raise ToolError(f"no file {path[:100]}") from None
        except (IsADirectoryError, NotADirectoryError):
            raise ToolError(f"{path[:100]} is not a file") from None

    def write(self, path: str, content: str) -> None:
        """Create or replace one file, with the folders that it needs."""
        if len(content) > MAX_FILE_CHARACTERS:
            raise ToolError(f"the content has {len(content)} characters, at most {MAX_FILE_CHARACTERS} fit")
        target = self._resolve(path)
        try:
            _write(target, content)
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            raise ToolError(f"{path[:100]} is not a file") from None

    def listing(self) -> dict[str, str]:
        """All files, path -> content, sorted by path."""
        found = {}
        for folder, _, files in os.walk(self.root):
            for file in files:
                path = os.path.relpath(os.path.join(folder, file), self.root)
                found[path.replace(os.sep, "/")] = self.read(path)
        return dict(sorted(found.items()))

    def close(self) -> None:
        """Delete the folder."""
        self._folder.cleanup()

    def _resolve(self, path: str) -> str:
        """The real path; `Refused` when it leaves the workspace, `ToolError` when it cannot be a path."""
        if not path or "\0" in path or len(path) > 200 or any(len(part.encode()) > 200 for part in path.split("/")):
            raise ToolError("that is not a path")
        target = os.path.realpath(os.path.join(self.root, path))
        if not target.startswith(self._prefix):
            raise Refused("the path leaves the workspace")
        return target


def _write(target: str, content: str) -> None:
    """Create or replace a file; its folder is made when it is missed, which is rare."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        descriptor = os.open(target, flags, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        descriptor = os.open(target, flags, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode())


def _empty(folder: str) -> None:
    """Delete what is in a top-level folder, but not the folder: making it anew takes longer than all the rest."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
