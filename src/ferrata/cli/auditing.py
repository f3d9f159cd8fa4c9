"""`ferrata verify-audit`: does the audit log of a run hold together?"""

from __future__ import annotations

from pathlib import Path

import typer

from ferrata.envs.audit import verify
from ferrata.errors import RunFolderError


def check_audit(run: Path) -> bool:
    """Print one sentence about the log of a run, and say whether it holds. Raises RunFolderError without a log."""
    folder = run / "audit"
    if not folder.is_dir():
        raise RunFolderError(f"{run} has no audit log: it is no run, or was trained with run.audit = false.")
    report = verify(folder)
    typer.echo(report.sentence)
    return report.ok
