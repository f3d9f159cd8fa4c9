"""Recognising a full disk, whoever reports it.

Python raises OSError, SQLite its own error, and the writers of weights (Rust, C++) wrap the system's words
in theirs. All of them mean the same to a person: nothing more fits.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = ("no space left on device", "disk quota exceeded", "disk is full")
_NOTHING_LEFT = 64 * 1024
"""Bytes: with less than this free, a failed write failed for lack of room (torch does not say why)."""


def is_full(error: BaseException, path: Path) -> bool:
    """Say whether `error`, raised while writing below `path`, means that the disk is full."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL_ERRNOS
    if isinstance(error, sqlite3.Error):
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL if hasattr(error, "sqlite_errorcode") else False
    text = str(error).lower()
    return any(words in text for words in _FULL_WORDS) or free_bytes(path) < _NOTHING_LEFT


def free_bytes(path: Path) -> int:
    """Free room on the disk that holds `path`, or its nearest existing parent (bytes)."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def human_size(size: float) -> str:
    """Bytes as a person reads them: '12.3 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
