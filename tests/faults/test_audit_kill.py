"""A writer that is killed in the middle of its work leaves a log that holds, and loses at most one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ferrata.envs.audit import AuditLog, verify

WRITER = """
import sys
from pathlib import Path
from ferrata.envs.audit import AuditLog
log = AuditLog(Path(sys.argv[1]))
turn = 0
while True:
    turn += 1
    log.write("episode", turn, "x" * 1500, "ok")
    print(turn, flush=True)
"""


def test_killed_while_it_writes(tmp_path: Path) -> None:
    lines = 0
    for round_ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 50:
            pass
        time.sleep(0.01 * round_)
        os.kill(writer.pid, signal.SIGKILL)
        told = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        writer.wait()
        writer.stdout.close()
        report = verify(tmp_path)
        assert report.ok
        assert report.files == round_ + 1
        assert report.unfinished == 1
        assert report.lines - lines >= max(told, default=50)
        lines = report.lines
    AuditLog(tmp_path).close()
    assert (verify(tmp_path).ok, verify(tmp_path).unfinished, verify(tmp_path).lines) == (True, 0, lines)
