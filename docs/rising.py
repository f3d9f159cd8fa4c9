"""Draws the README's picture from run folders: greedy success on unseen tasks over GRPO updates, a line per run.

python docs/rising.py runs/seed-0 runs/seed-1 runs/seed-2 > docs/images/rising.svg
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ferrata.runs import RunFolder
from ferrata.viewer.plots import Look, Series, line_plot, series_class

STYLE = """
svg { background: #ffffff; font: 13px system-ui, "Segoe UI", Roboto, sans-serif; }
"""


def curve(path: Path) -> list[tuple[float, float]]:
    """(update, greedy success share) of one run; update 0 is the end of SFT."""
    with RunFolder.open(path) as folder:
        entries = [entry for entry in folder.store.evaluations() if entry.name == "greedy"]
    points = {}
    for entry in entries:
        success = entry.content["success"]
        points[0.0 if entry.stage == "sft" else float(entry.step)] = success["count"] / success["n"]
    return sorted(points.items())


def picture(paths: Sequence[Path]) -> str:
    """A complete SVG file."""
    series = [Series(path.name, curve(path), css=series_class(index)) for index, path in enumerate(paths)]
    title = "Success on unseen office tasks over GRPO updates"
    plot = str(line_plot(series, Look(title, title, 760, 300, percent=True, y_range=(0.0, 1.0), markers=True)))
    sheet = (files("ferrata") / "viewer" / "templates" / "report.css").read_text(encoding="utf-8")
    rules = [
        rule
        for rule in re.findall(r"[^{}]+\{[^{}]*\}", sheet)
        if re.search(r":root|\.s\d|svg|grid |line|band|dot|axis", rule)
    ]
    light = next(rule for rule in rules if ":root" in rule)
    kept = [light, *(rule for rule in rules if ":root" not in rule)]
    return plot.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        ">", f"><style>{''.join(kept)}{STYLE}</style>", 1
    )


if __name__ == "__main__":
    print(picture([Path(argument) for argument in sys.argv[1:]]))
