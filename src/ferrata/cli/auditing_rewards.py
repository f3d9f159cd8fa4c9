"""`ferrata audit-rewards`: what exploiters earn beside an honest but clumsy solver, in tables, and the holes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ferrata.cli import json_file
from ferrata.cli.live import percent
from ferrata.evaluation.results import Mean, Rate
from ferrata.evaluation.reward_audit import CLUMSY, PlayerResult, RewardAudit, audit_rewards
from ferrata.recipe_loading import load_recipe
from ferrata.rewards import RewardSpec
from ferrata.rollout.worlds import find_environment


def audit(name: str, recipe_name: str | None, tasks: int, json: Path | None) -> bool:
    """Audit an environment, print what was found, and say whether no exploiter wins."""
    if json is not None:
        json_file.refuse_unwritable(json)
    kind = find_environment(name)
    recipe = load_recipe(recipe_name) if recipe_name else None
    spec = RewardSpec(recipe.rewards if recipe else None)
    tiers = recipe.env.tiers if recipe and recipe.env.name == name else sorted(kind.families)
    with Console(stderr=True).status("") as status:
        found = audit_rewards(
            kind, tiers, spec, tasks=tasks, progress=lambda text: status.update(Text(f"Playing {text}"))
        )
    show(Console(), found)
    if json is not None:
        json_file.write(json, found)
    return not found.holes


def show(console: Console, found: RewardAudit) -> None:
    """Print one table for each tier and phase, then warnings and holes."""
    for (tier, phase), rows in groupby(found.results, key=lambda row: (row.tier, row.phase)):
        title = f"'{found.env}', tier {tier}" + (f", phase '{phase}'" if phase else "") + f": {found.tasks} tasks"
        broken = {hole.player for hole in found.holes if (hole.tier, hole.phase) == (tier, phase)}
        console.print(_table(title, list(rows), broken))
    for warning in found.warnings:
        console.print(Text(f"Warning. {warning}", "yellow"))
    for hole in found.holes:
        where = f"tier {hole.tier}" + (f", phase '{hole.phase}'" if hole.phase else "")
        console.print(Text(f"HOLE. '{hole.player}' in family '{hole.family}' ({where}) {hole.text}.", "bold red"))
    if not found.holes:
        console.print(
            Text(f"No exploiter earns as much as the {CLUMSY} solver, nor anything by doing nothing.", "green")
        )


def _table(title: str, rows: Sequence[PlayerResult], broken: set[str]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    table.add_column("player", no_wrap=True)
    for name in ("return, 95 %", "success, 95 %", "earns most by"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in sorted(rows, key=lambda row: -row.reward.value):
        style = "bold red" if row.player in broken else "bold green" if row.player == CLUMSY else ""
        table.add_row(row.player, _mean(row.reward), _rate(row.success), _earning(row), style=style)
    return table


def _mean(mean: Mean) -> str:
    """'+2.80 [+2.1, +3.5]'; of a single episode without an interval."""
    known = mean.low is not None and mean.high is not None
    return f"{mean.value:+.2f} [{mean.low:+.1f}, {mean.high:+.1f}]" if known else f"{mean.value:+.2f}"


def _rate(rate: Rate) -> str:
    """'66.7 % [54, 77]'."""
    return f"{percent(rate.share)} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"


def _earning(row: PlayerResult) -> str:
    """'outcome +3.00'; a dash where nothing was earned."""
    name = max(row.components, key=lambda name: row.components[name], default="")
    return f"{name} {row.components[name]:+.2f}" if row.components.get(name, 0.0) > 0 else "–"
