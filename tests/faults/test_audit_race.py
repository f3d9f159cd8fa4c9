"""Several processes open, write and close logs in one folder at once: each file is recorded once, as it ended."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrata.envs import audit_chain
from ferrata.envs.audit import AuditLog, verify
from ferrata.envs.audit_chain import HEADS, Chain, record_abandoned

WRITER = """
import sys
from pathlib import Path
from ferrata.envs.audit import AuditLog
folder = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    log = AuditLog(folder)
    log.write("episode", number, "said", "ok")
    if number % 5:
        log.close()
"""


def recorded(folder: Path) -> list[str]:
    return [line.split(b'"file":"')[1].split(b'"')[0].decode() for line in (folder / HEADS).read_bytes().splitlines()]


def test_many_processes_at_once(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=60)
        assert writer.returncode == 0
    AuditLog(tmp_path).close()
    report = verify(tmp_path)
    assert report.ok, report.sentence
    assert (report.files, report.lines, report.unfinished) == (101, 100, 0)
    names = recorded(tmp_path)
    assert len(names) == len(set(names)) == 101


def test_a_file_has_no_name_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process looks for abandoned files at the worst moment: right before the new one is locked."""
    lock = fcntl.flock

    def late(file: Any, operation: int) -> None:
        monkeypatch.setattr(audit_chain.fcntl, "flock", lock)
        record_abandoned(tmp_path)
        lock(file, operation)

    monkeypatch.setattr(audit_chain.fcntl, "flock", late)
    chain = Chain.create(tmp_path)
    chain.append({"action": "said"})
    assert not (tmp_path / HEADS).exists()
    assert verify(tmp_path).ok
    chain.close()


def test_a_file_that_another_process_has_just_recorded_is_not_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes read the heads before either of them recorded an abandoned file."""
    chain = Chain.create(tmp_path)
    chain.append({"action": "said"})
    chain.close()
    files = audit_chain.files

    def late(folder: Path) -> list[Path]:
        monkeypatch.setattr(audit_chain, "files", files)
        record_abandoned(folder)
        return files(folder)

    monkeypatch.setattr(audit_chain, "files", late)
    record_abandoned(tmp_path)
    assert recorded(tmp_path) == [chain.path.name]
