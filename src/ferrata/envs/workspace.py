"""A folder of real files that belongs to one environment; nothing outside it can be reached.

Every path is resolved first, links included, and must lie inside; then the task's permissions are asked about what it
resolved to. The content that the folder should have is known in memory as well: a snapshot reads no disk, and after
`reset` and `load` only what differs is written, when the folder is touched next.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ferrata.envs.permissions import Guard, look_alike
from ferrata.envs.tools import Refused, ToolError

MAX_FILE_CHARACTERS = 100_000
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A last link is not followed, and a pipe does not block."""
_NO_FILE = {
    errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP, errno.ENXIO, errno.EACCES,
    errno.ENAMETOOLONG,
}  # fmt: skip
"""What opening a file says when there is something else under that name."""


class _Stamp(NamedTuple):
    """Tells one writing of a file from all others."""

    inode: int
    modified: int
    size: int


class Workspace:
    """Real files under one private root folder. Paths are relative to it, with `/` between parts."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ferrata-")
        self._root = Path(os.path.realpath(self._folder.name))
        self._prefix = f"{self._root}{os.sep}"
        self._guard = Guard()
        self._files: dict[str, str] = {}
        self._changed: set[str] = set()
        self._on_disk: dict[str, tuple[str, _Stamp]] = {}
        self._settled = True

    @property
    def root(self) -> Path:
        """The folder, holding what it should."""
        self._settle()
        return self._root

    def reset(self, files: Mapping[str, str], guard: Guard | None = None) -> None:
        """Hold `files` (path -> content) and nothing else. `guard` says what the agent may touch."""
        self._guard = guard or Guard()
        self._files, self._changed = dict(files), set()
        self._settled = False

    def read(self, path: str) -> str:
        """Content of one file as text; undecodable bytes are shown as replacement characters."""
        target = self._resolve(path)
        self._guard.check("read", target)
        try:
            return _read(self._prefix + target)
        except OSError as error:
            raise self._explain(path, target, error) from None

    def write(self, path: str, content: str) -> None:
        """Create or replace one file, with the folders that it needs."""
        if len(content) > MAX_FILE_CHARACTERS:
            raise ToolError(f"the content has {len(content)} characters, at most {MAX_FILE_CHARACTERS} fit")
        target = self._resolve(path)
        self._guard.check("write", target)
        if look_alike(target):
            raise Refused("the name holds characters that look like others; use plain letters", f"name:{target}")
        try:
            self._put(target, content)
        except OSError as error:
            raise self._explain(path, target, error) from None

    def put(self, path: str, content: str) -> None:
        """Write one file for the world itself, whose permission nobody asks; it cannot leave the workspace either."""
        self._put(self._resolve(path), content)

    def paths(self) -> list[str]:
        """Sorted paths of the files that the task may read."""
        return [path for path in sorted(self._files) if self._guard.allows("read", path)]

    def listing(self) -> dict[str, str]:
        """All files, path -> content, sorted by path, whatever the task may read."""
        self._settle()
        return {path: _read(self._prefix + path) for path in sorted(self._files)}

    def save(self) -> dict[str, str]:
        """What was written since `reset`: path -> content."""
        return {path: self._files[path] for path in sorted(self._changed)}

    def load(self, state: Mapping[str, str]) -> None:
        """Bring back what `save` gave, after a `reset` with the same files."""
        for path in state:
            if os.path.isabs(path) or ".." in path.split("/"):
                raise Refused("the path leaves the workspace", f"escape:{path}")
        self._files |= state
        self._changed = set(state)
        self._settled = False

    def close(self) -> None:
        """Delete the folder."""
        self._folder.cleanup()

    # Inside -------------------------------------------------------------------------------------------------------

    def _put(self, target: str, content: str) -> None:
        self._on_disk[target] = content, _write(self._prefix + target, content)
        self._files[target] = content
        self._changed.add(target)

    def _resolve(self, path: str) -> str:
        """The real path below the root; `Refused` when it leaves the workspace, `ToolError` when it cannot be one."""
        if not path or "\0" in path or len(path) > 200 or any(len(part.encode()) > 200 for part in path.split("/")):
            raise ToolError("that is not a path")
        self._settle()
        target = os.path.realpath(os.path.join(self._root, path))
        if target + os.sep == self._prefix:
            raise ToolError(f"{path[:100]} is not a file")
        if not target.startswith(self._prefix):
            raise _escape(path)
        return target[len(self._prefix) :]

    def _settle(self) -> None:
        """Make the folder hold what it should; what it holds already, and nobody else has touched, is left alone."""
        if self._settled:
            return
        kept = {path for path, entry in _entries(self._prefix, self._prefix) if self._keep(path, entry)}
        self._on_disk = {path: self._on_disk[path] for path in kept}
        for path in self._files.keys() - kept:
            content = self._files[path]
            self._on_disk[path] = content, _write(self._prefix + path, content)
        self._settled = True

    def _keep(self, path: str, entry: os.DirEntry[str]) -> bool:
        """True for a file that is as it should be. What should not be there at all is deleted."""
        ours = path in self._on_disk and self._on_disk[path][1] == _stamp(entry.stat(follow_symlinks=False))
        if ours and self._on_disk[path][0] == self._files.get(path):
            return True
        if not ours or path not in self._files:
            os.unlink(entry.path)
        return False

    def _explain(self, path: str, target: str, error: OSError) -> Exception:
        """What the agent reads; what is no fault of the path, such as a full disk, stays the world's failure.

        A folder without files may be left over from another episode: it is as if it were not there.
        """
        leftover = error.errno == errno.EISDIR and not any(file.startswith(f"{target}/") for file in self._files)
        if error.errno == errno.ENOENT or leftover:
            return ToolError(f"no file {path[:100]}")
        return ToolError(f"{path[:100]} is not a file") if error.errno in _NO_FILE else error


def _entries(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder that is no folder; folders within folders are deleted when they are empty."""
    for entry in list(os.scandir(folder)):
        if not entry.is_dir(follow_symlinks=False):
            yield entry.path[len(prefix) :], entry
            continue
        yield from _entries(entry.path, prefix)
        if folder != prefix and not os.listdir(entry.path):
            # A top-level folder is kept: the next episode has the same, and making it anew takes longer than the rest.
            os.rmdir(entry.path)


def _stamp(found: os.stat_result) -> _Stamp:
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)


def _escape(path: str) -> Refused:
    return Refused("the path leaves the workspace", f"escape:{path}")


def _read(target: str) -> str:
    """The text of one regular file that has one name only: another name may lie outside."""
    descriptor = os.open(target, os.O_RDONLY | _SAFE)
    with open(descriptor, encoding="utf-8", errors="replace", newline="") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, target)
        if found.st_nlink > 1:
            raise _escape(target)
        return file.read(MAX_FILE_CHARACTERS)


def _write(target: str, content: str) -> _Stamp:
    """Create or replace a file; its folder is made when it is missed, which is rare."""
    try:
        descriptor = _create(target)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        descriptor = _create(target)
    except IsADirectoryError:
        os.rmdir(target)
        descriptor = _create(target)
    with open(descriptor, "wb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, target)
        if found.st_nlink > 1:
            raise _escape(target)
        file.write(content.encode())
        file.flush()
        if found.st_size:
            # After, and only where there was something: ext4 writes a file to disk at once that was cut to nothing.
            file.truncate()
        return _stamp(os.fstat(descriptor))


def _create(target: str) -> int:
    return os.open(target, os.O_WRONLY | os.O_CREAT | _SAFE, 0o644)
