"""The audit log: one JSON line per action, each bound to the one before it by a hash.

    log = AuditLog(folder)      one writer, one file: folder/TIME-PROCESS-RANDOM.jsonl
    log.write(...)              appended, and handed to the operating system at once
    log.close()                 notes in folder/heads.jsonl how the file ended, so that a cut is found too
    log.seal()                  where the log stands now, as a text to keep elsewhere
    verify(folder, seals)       follows every chain, and compares it with the seals

A killed process loses at most the line of the action under way: a last line without its line feed is torn, and no
tampering. A power failure loses what the operating system had not written yet. Until a file is closed, cutting lines
off its end leaves no trace in the folder, and whoever may write the folder may also remove or write anew what was
closed: against that there are seals. A run keeps them in its store; `verify` gives one to keep in another place. A seal
stays true as the log grows.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ferrata.envs.audit_chain import HEADS, START, Chain, Head, Walk, files, heads, record_abandoned, record_head, walk
from ferrata.errors import AuditError, UsageError
from ferrata.records import Event, EventKind

MAX_ACTION_CHARACTERS = 2000
"""Longer actions are logged by digest and length."""

SEAL = "audit seal"
"""Kind of the notes in which a run keeps the seals of its log."""
_SHORT = 16
"""Hexadecimal digits of a hash in a seal."""
_SEAL = re.compile(rf"\d{{1,12}}\.[0-9a-f]{{{_SHORT}}}(\+\d{{1,12}}\.[0-9a-f]{{{_SHORT}}})*")
_OUTCOMES = {
    EventKind.FORBIDDEN: "forbidden",
    EventKind.TOOL_FAULT: "fault",
    EventKind.TOOL_ERROR: "tool error",
    EventKind.INVALID: "invalid",
}
"""What an event says about the outcome of an action, the gravest first."""


def digest(text: str) -> str:
    """BLAKE2b of a text, 32 hexadecimal digits. Every text has one, also with unpaired surrogates."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def outcome_of(events: Sequence[Event]) -> str:
    """'ok', 'refused', or what happened and to what: 'forbidden:NAME', 'fault:...', 'tool error:...', 'invalid:...'."""
    for kind, word in _OUTCOMES.items():
        for event in events:
            if event.kind is kind:
                return "refused" if (word, event.name) == ("invalid", "refused") else f"{word}:{event.name}"
    return "ok"


class AuditLog:
    """One writer of one file. The environments of one process share it; each process has a file of its own.

    Raises AuditError when a line cannot be written: what nobody can account for must not go on.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            record_abandoned(folder)
            self._open()
        except OSError as error:
            raise _unwritable(folder, error) from error

    def __reduce__(self) -> tuple[type[AuditLog], tuple[Path]]:
        """Another process writes a file of its own in the same folder."""
        return type(self), (self.folder,)

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._chain.path

    def write(self, episode: str, turn: int, action: str, outcome: str) -> None:
        """Append one line.

        Args:
            episode: which episode: fingerprint of the task and seed.
            turn: counts from 1.
            action: what the agent said; of more than 2,000 characters the digest is kept.
            outcome: see `outcome_of`; 'restored' and 'rolled back:N' are no actions of the agent.
        """
        entry: dict[str, Any] = {"time": round(time.time(), 3), "episode": episode, "turn": turn}
        if len(action) <= MAX_ACTION_CHARACTERS and _is_text(action):
            entry["action"] = action
        else:
            entry |= {"digest": digest(action), "characters": len(action)}
        with self._lock:
            try:
                if os.getpid() != self._process:
                    self._open()
                self._chain.append({**entry, "outcome": outcome})
            except OSError as error:
                raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """Note how the file ended, and let go of it; calling it again does nothing."""
        with self._lock:
            if self._chain.closed or os.getpid() != self._process:
                return
            chain = self._chain
            try:
                record_head(self.folder, Head(chain.path.name, chain.count, chain.head, torn=False))
            except OSError as error:
                raise _unwritable(self.folder / HEADS, error) from error
            finally:
                chain.close()

    def seal(self) -> str:
        """Where the log stands: it holds that no line before this moment is lost, changed or removed.

        The disk has these lines when it returns. Raises AuditError.
        """
        with self._lock:
            try:
                self._chain.flush()
                closed = _walk_heads(self.folder)
            except OSError as error:
                raise _unwritable(self.path, error) from error
            own = [] if self._chain.closed else [self._chain]
            return _seal(closed, [(chain.count, chain.head) for chain in own])

    def _open(self) -> None:
        """Begin a file of this process: a child must not write into its parent's chain."""
        self._process = os.getpid()
        self._chain = Chain.create(self.folder)


def _is_text(action: str) -> bool:
    """False with unpaired surrogates, which JSON in UTF-8 cannot hold."""
    try:
        action.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unwritable(path: Path, error: OSError) -> AuditError:
    return AuditError(f"The audit log {path} cannot be written: {error.strerror or error}.")


# Checking ---------------------------------------------------------------------------------------------------


class AuditReport(msgspec.Struct, frozen=True):
    """What checking a folder found."""

    files: int
    lines: int
    torn: int
    """Files that end within a line, as a kill leaves them."""
    unfinished: int
    """Files that no head was recorded for: still written, or their writer was killed."""
    seal: str
    """Where the log stands. Kept elsewhere, it shows later that nothing of this was removed, cut or written anew."""
    fault: str = ""
    """The first broken link, with file and line; empty when every chain holds."""

    @property
    def ok(self) -> bool:
        """True when every chain holds."""
        return not self.fault

    @property
    def sentence(self) -> str:
        """The report for a person."""
        if self.fault:
            return f"The audit log was tampered with: {self.fault}."
        notes = [
            f"{self.unfinished} not closed (a run under way, or killed)" * bool(self.unfinished),
            f"{self.torn} torn at the last line by a kill" * bool(self.torn),
        ]
        noted = "".join(f", {note}" for note in notes if note)
        return f"The audit log holds: {self.lines:,} lines in {self.files:,} files{noted}; seal {self.seal}."


def verify(folder: Path, seals: Sequence[str] = ()) -> AuditReport:
    """Check every link of every file of an audit folder, and that all that `seals` hold is still there.

    Raises UsageError when there is no log, or for what is no seal.
    """
    if not folder.is_dir():
        raise UsageError(f"There is no audit log at {folder}.")
    marks = [_marks(seal) for seal in seals]
    wanted = {count for seal in marks for count, _ in seal}
    try:
        # First, for a run may end meanwhile: what is recorded then counts as not closed yet.
        recorded = heads(folder)
        closed = _walk_heads(folder, wanted)
        walks = {path.name: walk(path, wanted) for path in files(folder)}
    except OSError as error:
        raise UsageError(f"The audit log {folder} cannot be read: {error.strerror or error}.") from error
    faults = [
        closed.fault,
        *(_fault(name, walks.get(name), recorded.get(name)) for name in sorted({*walks, *recorded})),
    ]
    faults += [_copy(walks), *(_broken_seal(seal, closed, walks) for seal in marks)]
    open_files = [walks[name] for name in sorted(walks.keys() - recorded.keys())]
    return AuditReport(
        files=len(walks),
        lines=sum(found.count for found in walks.values()),
        torn=sum(found.torn for found in walks.values()),
        unfinished=len(open_files),
        seal=_seal(closed, [(found.count, found.head) for found in open_files]),
        fault=next((fault for fault in faults if fault), ""),
    )


def _walk_heads(folder: Path, wanted: Container[int] = ()) -> Walk:
    """The chain of the files that were closed."""
    path = folder / HEADS
    return walk(path, wanted) if path.exists() else Walk(0, START, 0)


def _copy(walks: Mapping[str, Walk]) -> str:
    """A file that has the random id of another."""
    first: dict[str, str] = {}
    for name, found in walks.items():
        if found.chain and first.setdefault(found.chain, name) != name:
            return f"{name} is a copy of {first[found.chain]}"
    return ""


# Seals ------------------------------------------------------------------------------------------------------


def _seal(closed: Walk, open_files: Sequence[tuple[int, str]]) -> str:
    """`3.1f0a...+40.77b2...`: how many files were closed and the hash of the last head; then lines of open files."""
    marks = [(closed.count, closed.head), *(mark for mark in open_files if mark[0])]
    return "+".join(f"{count}.{head[:_SHORT]}" for count, head in marks)


def _marks(seal: str) -> list[tuple[int, str]]:
    seal = seal.strip().removesuffix(".")  # as it stands at the end of the sentence
    if not _SEAL.fullmatch(seal):
        raise UsageError(f"'{seal[:80]}' is no seal of an audit log: it looks like 1.{'0' * _SHORT}.")
    return [(int(count), head) for count, _, head in (mark.partition(".") for mark in seal.split("+"))]


def _broken_seal(seal: Sequence[tuple[int, str]], closed: Walk, walks: Mapping[str, Walk]) -> str:
    """What a seal holds and the log has no more."""
    count, head = seal[0]
    if count and not closed.marks.get(count, "").startswith(head):
        return f"{HEADS} is not what was sealed: of {count} closed files some were removed, cut or written anew"
    for lines, head in seal[1:]:
        if not any(found.marks.get(lines, "").startswith(head) for found in walks.values()):
            return f"a file of {lines:,} lines that was sealed was removed, cut or written anew"
    return ""


def _fault(name: str, found: Walk | None, head: Head | None) -> str:
    """What is wrong with one file, given how it was recorded to end."""
    if found is None:
        return f"{name} was removed"
    if found.fault or head is None:
        return found.fault
    if found.count < head.lines:
        return f"{name}, line {found.count + 1}: {head.lines - found.count} lines were cut off the end"
    if (found.count, found.head, found.torn) != (head.lines, head.head, head.torn):
        return f"{name}, line {head.lines + 1}: something was added after the file was closed"
    return ""
