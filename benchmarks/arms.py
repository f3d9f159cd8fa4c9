"""Whole runs beside one another, made by the commands that a person would type. What is there is not made again.

train(folder, recipe, settings)   `ferrata train`, with `--resume` where it was interrupted
success(folder, tiers, tasks)     `ferrata eval`: on unseen tasks, greedily
beside(jobs, most)                several at a time, each with its share of the cores
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ferrata.runs import RunFolder


def parser(description: str, out: str) -> argparse.ArgumentParser:
    """Where runs are written, which seeds, how they are evaluated, how many run at a time, and settings of all runs."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--out", type=Path, default=Path(out))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--tasks", type=int, default=200)
    options.add_argument("--beside", type=int, default=2, help="runs at a time")
    options.add_argument("--threads", type=int, default=1, help="of each run")
    options.add_argument("settings", nargs="*", help="of all runs, as in `ferrata train`")
    return options


def train(folder: Path, recipe: str, *settings: str) -> None:
    """Train a run to its end. Raises CalledProcessError; what the command said stands beside the folder."""
    if not (folder / "report.html").exists():
        resume = ["--resume"] if (folder / "run.json").exists() else []
        _ferrata(folder.with_suffix(".log"), "train", recipe, *settings, "--out", str(folder), *resume)


def seconds(folder: Path) -> float:
    """How long a run computed, interruptions left out."""
    with RunFolder.open(folder) as run:
        return max(seconds for _, seconds in run.store.seconds())


def success(folder: Path, tiers: Sequence[int], tasks: int, env: str = "office") -> dict[str, Any]:
    """Greedy success on unseen tasks of these tiers, on one thread: `count`, `n`, `low` and `high` (95 %, Wilson)."""
    found = folder.with_suffix(f".tier-{''.join(map(str, tiers))}.json")
    if not found.exists():
        chosen = [word for tier in tiers for word in ("--tier", str(tier))]
        where = ["--env", env, *chosen, "--tasks", str(tasks), "--json", str(found)]
        _ferrata(found.with_suffix(".log"), "eval", str(folder), *where)
    rate: dict[str, Any] = json.loads(found.read_text(encoding="utf-8"))["success"]
    return rate


def percent(rate: dict[str, Any]) -> str:
    """Such as '61.5 % [55, 68]'."""
    return f"{100 * rate['count'] / rate['n']:.1f} % [{100 * rate['low']:.0f}, {100 * rate['high']:.0f}]"


def beside(jobs: Sequence[Callable[[], object]], most: int) -> None:
    """Do all of them, so many at a time; the first failure is raised when the others are done."""
    with ThreadPoolExecutor(most) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def _ferrata(log: Path, *arguments: str) -> None:
    # A run takes its threads from `policy.threads`; an evaluation has no such setting, and others run beside it.
    single = {"OMP_NUM_THREADS": "1"} if arguments[0] == "eval" else {}
    command = [sys.executable, "-m", "ferrata", *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **single}
    with log.open("a", encoding="utf-8") as sink:
        subprocess.run(command, check=True, stdout=sink, stderr=sink, env=environment)
