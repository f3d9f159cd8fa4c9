"""A run logs every action of its policy; tampering is found from the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def ferrata(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ferrata", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_a_run_is_audited_and_tampering_is_found(tmp_path: Path) -> None:
    small = ["stages=['sft']", "sft.updates=2", "sft.demonstrations=20", "evaluation.tasks=9", "env.tiers=[1]"]
    done = ferrata("train", "office-smoke", *small, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [log] = (tmp_path / "run" / "audit").glob("2*.jsonl")
    lines = [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]
    # Twice nine episodes, greedy and sampled; the same seeds, so nine names. Demonstrations are not among them.
    assert len({line["episode"] for line in lines}) == 9
    holds = ferrata("verify-audit", "run", cwd=tmp_path)
    assert holds.returncode == 0, holds.stderr
    assert holds.stdout.startswith(f"The audit log holds: {len(lines)} lines in 1 files; seal ")
    content, heads = log.read_bytes(), (tmp_path / "run" / "audit" / "heads.jsonl")
    head = heads.read_bytes()
    log.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    heads.unlink()
    cut = ferrata("verify-audit", "run", cwd=tmp_path)
    assert cut.returncode == 1
    assert "removed, cut or written anew" in cut.stdout
    heads.write_bytes(head)
    log.write_bytes(content.replace(b'"turn":1,', b'"turn":2,', 1))
    broken = ferrata("verify-audit", "run", cwd=tmp_path)
    assert broken.returncode == 1
    assert broken.stdout == f"The audit log was tampered with: {log.name}, line 1: the line was changed.\n"


@pytest.mark.slow
def test_a_run_without_an_audit_says_so(tmp_path: Path) -> None:
    missing = ferrata("verify-audit", "nowhere", cwd=tmp_path)
    assert missing.returncode == 2
    assert "has no audit log" in missing.stderr
    assert "Traceback" not in missing.stderr
