"""`ferrata check-env`: the contract of an environment, as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ferrata.envs.checker import Report, check_environment
from ferrata.rewards import RewardSpec
from ferrata.rollout.worlds import find_environment


def check(name: str) -> bool:
    """Check every tier of an environment, print the table, and say whether all checks passed."""
    kind = find_environment(name)
    spec = RewardSpec()
    env = kind(tiers=tuple(sorted(kind.families)), score=spec)
    try:
        report = check_environment(env, dominance=spec.check_dominance)
    finally:
        env.close()
    show(Console(), report)
    return report.ok


def show(console: Console, report: Report) -> None:
    """Print the checks, one a row, and the verdict."""
    table = Table(title=Text(f"Environment '{report.environment}'"), title_justify="left")
    table.add_column("check", no_wrap=True)
    table.add_column("")
    table.add_column("what was seen")
    for row in report.checks:
        table.add_row(row.name, Text("ok", "green") if row.ok else Text("BROKEN", "bold red"), Text(row.detail))
    console.print(table)
    broken = sum(not row.ok for row in report.checks)
    verdict = "Every check passed." if report.ok else f"{broken} of {len(report.checks)} checks failed."
    console.print(verdict, style="green" if report.ok else "bold red")
