"""`ferrata verify-audit`: does the audit log of a run hold together, and is all of it there?"""

from __future__ import annotations

from pathlib import Path

import typer

from ferrata.envs.audit import SEAL, verify
from ferrata.errors import RunFolderError
from ferrata.runs import RunFolder
from ferrata.runs.folder import is_run


def check_audit(run: Path, seal: str | None) -> bool:
    """Print one sentence about the log of a run, and say whether it holds.

    Args:
        run: a run folder, or any folder with a log in `audit`.
        seal: what the log must still hold, beside the seals that the run kept in its own store.

    Raises:
        RunFolderError: there is no log, and none was to be expected.
        UsageError: `seal` is none.
    """
    folder = run / "audit"
    seals, expected = _kept(run)
    if expected and not any(folder.glob("*.jsonl")):
        typer.echo("The audit log was tampered with: all of it was removed.")
        return False
    if not folder.is_dir():
        raise RunFolderError(f"{run} has no audit log: it is no run, or was trained with run.audit = false.")
    report = verify(folder, [*seals, *([seal] if seal else [])])
    typer.echo(report.sentence)
    return report.ok


def _kept(run: Path) -> tuple[list[str], bool]:
    """The seals in the store of a run, and whether the run must have a log: what was trained was audited."""
    if not is_run(run):
        return [], False
    with RunFolder.open(run) as opened:
        return [note.text for note in opened.store.notes(SEAL)], opened.recipe.run.audit and bool(opened.store.stages())
