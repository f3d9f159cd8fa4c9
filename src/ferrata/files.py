"""Forcing files and folders to the disk, so that a rename never outruns its content."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have the disk hold one file, or the names in one folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Have the disk hold every file below a folder, then every folder, the outer ones last. Raises OSError."""
    inside = sorted(folder.rglob("*"), reverse=True)
    for path in (*(path for path in inside if path.is_file()), *(path for path in inside if path.is_dir()), folder):
        sync(path)
