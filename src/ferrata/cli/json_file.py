"""The file that `--json` names: refused before the work when it cannot be written, written after it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ferrata.errors import UsageError


def refuse_unwritable(path: Path) -> None:
    """Raise UsageError now, and not after the work, when `path` cannot be written."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"The result cannot be written to {path}.")


def write(path: Path, result: object) -> None:
    """Write a record as indented JSON."""
    try:
        path.write_text(msgspec.json.format(msgspec.json.encode(result)).decode() + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The result cannot be written to {path}: {error.strerror or error}.") from error
