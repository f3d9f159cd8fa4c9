"""Files of chained lines: what the audit log is made of.

    Chain           appends lines to one file, locked for as long as it is open
    walk            reads a file and finds the first line that does not follow
    record_head     notes how a file ended, in a chain of its own
    heads           what was noted

A line is `{"n": 1, ..., "previous": ..., "hash": ...}`; its hash is BLAKE2b over the same bytes without `hash`, and
`previous` is the hash of the line before. The first line also has `chain`, a random id: two files with the same one are
copies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import msgspec

HEADS = "heads.jsonl"
START = "0" * 32
"""What the first line of a file has as `previous`."""
_OPENING = b',"hash":"'
_TAIL = len(_OPENING) + 32 + len(b'"}\n')


class Chain:
    """One file under an exclusive lock. The lock tells others that its writer lives."""

    def __init__(self, path: Path, descriptor: int, count: int = 0, head: str = START) -> None:
        self.path = path
        self.count = count
        """Lines written so far."""
        self.head = head
        """Hash of the last line."""
        self._descriptor: int | None = descriptor

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new file of its own, named by time, process and chance: containers may count processes alike.

        It is locked before it has its name. Between the two, another process could take it for one that a killed
        writer left, and record how it ended.
        """
        stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{os.getpid()}-{secrets.token_hex(4)}"
        path, unnamed = folder / f"{stem}.jsonl", folder / f".{stem}.part"
        descriptor = os.open(unnamed, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            unnamed.rename(path)
        except OSError:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @property
    def closed(self) -> bool:
        """True when nothing can be appended any more."""
        return self._descriptor is None

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line at once. Raises OSError when it could not be written whole; the chain is closed then."""
        if self._descriptor is None:
            raise OSError(f"{self.path.name} is closed")
        born = {} if self.count else {"chain": secrets.token_hex(8)}
        body = msgspec.json.encode({"n": self.count + 1, **born, **entry, "previous": self.head})
        head = _hash(body)
        line = body[:-1] + _OPENING + head.encode() + b'"}\n'
        try:
            whole = os.write(self._descriptor, line) == len(line)
        except OSError:
            self.close()
            raise
        if not whole:
            self.close()
            raise OSError("the disk took a part of the line only")
        self.count, self.head = self.count + 1, head

    def flush(self) -> None:
        """Have the disk hold every line. Raises OSError."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of the file; calling it again does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Walk(msgspec.Struct, frozen=True):
    """What reading a file from its start found."""

    count: int
    """Whole lines that follow one another."""
    head: str
    """Hash of the last of them."""
    size: int
    """Bytes of them."""
    torn: bool = False
    """The file ends within a line: its writer was killed while it wrote."""
    fault: str = ""
    """What is wrong with the next line; empty when nothing is."""
    chain: str = ""
    """The random id in the first line; empty without one."""
    marks: dict[int, str] = {}
    """Hashes of the lines that were asked for."""


def walk(path: Path, wanted: Container[int] = ()) -> Walk:
    """Follow the chain up to its end or to the first line that does not follow; keep the hashes of `wanted` lines."""
    found = Walk(0, START, 0)
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return msgspec.structs.replace(found, torn=True)
            found = _follow(found, line, wanted)
            if found.fault:
                return msgspec.structs.replace(found, fault=f"{path.name}, line {found.count + 1}: {found.fault}")
    return found


def _follow(found: Walk, line: bytes, wanted: Container[int]) -> Walk:
    """One line further, or the fault of the line that should come next."""
    body, claimed = line[:-_TAIL] + b"}", line[-_TAIL:]
    head, number = _hash(body), found.count + 1
    if claimed != _OPENING + head.encode() + b'"}\n':
        return msgspec.structs.replace(found, fault="the line was changed")
    try:
        entry = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return msgspec.structs.replace(found, fault="the line is not JSON")
    if entry.get("previous") != found.head or entry.get("n") != number:
        why = "the line does not follow the one before it: lines were removed, added or moved"
        return msgspec.structs.replace(found, fault=why)
    marks = {**found.marks, number: head} if number in wanted else found.marks
    chain = str(entry.get("chain", "")) if number == 1 else found.chain
    return Walk(number, head, found.size + len(line), chain=chain, marks=marks)


def _hash(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


# Heads: how each file ended ---------------------------------------------------------------------------------


class Head(msgspec.Struct, frozen=True):
    """How a file ended."""

    file: str
    lines: int
    head: str
    """Hash of its last line."""
    torn: bool
    """A part of a line stands after the last whole one."""


def heads(folder: Path) -> dict[str, Head]:
    """File name -> how it ended, for the files that were closed. Reads whole lines only and checks nothing."""
    try:
        lines = (folder / HEADS).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    found: dict[str, Head] = {}
    for line in lines:
        try:
            head = msgspec.json.decode(line, type=Head)
        except msgspec.MsgspecError:
            continue
        found.setdefault(head.file, head)
    return found


def record_head(folder: Path, head: Head) -> None:
    """Append one head to the chain of heads; writers take turns."""
    path = folder / HEADS
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    found = walk(path)
    if found.torn:
        os.ftruncate(descriptor, found.size)
    chain = Chain(path, descriptor, found.count, found.head)
    try:
        chain.append(msgspec.to_builtins(head))
    finally:
        chain.close()


def record_abandoned(folder: Path) -> None:
    """Record the heads of files whose writers were killed. A file that does not hold together is left as it is."""
    recorded = heads(folder)
    for path in files(folder):
        if path.name in recorded:
            continue
        with _unlocked(path) as free:
            # Another process may have recorded it since.
            found = walk(path) if free and path.name not in heads(folder) else None
            if found is not None and not found.fault:
                record_head(folder, Head(path.name, found.count, found.head, found.torn))


def files(folder: Path) -> list[Path]:
    """The files of a folder that hold actions."""
    return sorted(path for path in folder.glob("*.jsonl") if path.name != HEADS)


@contextmanager
def _unlocked(path: Path) -> Iterator[bool]:
    """Take a file's lock, and say whether it could be had: nobody writes the file then."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
