"""Forcing a tree to the disk: files before the folders that name them, and nothing is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ferrata.files import sync, sync_tree


def test_every_file_comes_before_the_folders_and_inner_folders_before_outer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("top.txt", "a/one.txt", "a/b/two.txt", ".hidden"):
        (tmp_path / name).write_text(name)
    synced: list[str] = []
    monkeypatch.setattr(
        "ferrata.files.os.fsync",
        lambda descriptor: synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path)),
    )
    sync_tree(tmp_path)
    assert set(synced[:4]) == {"top.txt", "a/one.txt", "a/b/two.txt", ".hidden"}
    assert synced[4:] == ["a/b", "a", "."]


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "no")
