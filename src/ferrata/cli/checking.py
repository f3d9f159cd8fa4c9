"""`ferrata check-env`: the contract of an environment, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ferrata.cli import json_file
from ferrata.cli.live import Terminal
from ferrata.envs.checker import Check, Report, check_environment
from ferrata.rewards import RewardSpec
from ferrata.rollout.worlds import find_environment, make_env

_SIGNS = {True: Text("ok", "green"), False: Text("BROKEN", "bold red"), None: Text("-", "dim")}


def check(name: str, tiers: Sequence[int], tasks: int, fuzzed: int, seconds: float, json: Path | None) -> bool:
    """Check an environment, print the table, and say whether no check found a fault. No `tiers` means all."""
    if json is not None:
        json_file.refuse_unwritable(json)
    env = make_env(name, tiers=tiers or tuple(find_environment(name).families))
    with closing(env), _progress() as progress:
        report = check_environment(
            env, tasks, RewardSpec().check_dominance, fuzzed=fuzzed, seconds_each=seconds, progress=progress
        )
    show(Console(), report)
    if json is not None:
        json_file.write(json, {"environment": report.environment, "ok": report.ok, "checks": report.checks})
    return report.ok


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that names the check under way, and goes away in the end; nothing where nobody watches."""
    with Terminal(stderr=True).status("Checking") as line:
        yield lambda check: line.update(f"Checking: {check}")


def show(console: Console, report: Report) -> None:
    """Print the checks, one a row, what to do about each fault, and the verdict."""
    table = Table(title=Text(f"Environment '{report.environment}'"), title_justify="left")
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what was seen")
    for row in report.checks:
        table.add_row(row.name, _SIGNS[row.ok], _told(row))
    console.print(table)
    broken, made = len(report.broken), sum(row.ok is not None for row in report.checks)
    if report.ok:
        console.print(f"Every check passed ({made} of {len(report.checks)} made).", style="green", highlight=False)
    else:
        console.print(f"{broken} of {made} checks failed.", style="bold red", highlight=False)


def _told(row: Check) -> Text:
    told = Text(row.detail, "dim" if row.ok is None else "")
    return told.append(f"\n{row.advice}", "bold") if row.advice else told
