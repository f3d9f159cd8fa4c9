"""Steps per second of an environment on one core: generation, reset, parsing, tools, rewards, audit and state hashes.

    python benchmarks/environment.py [--env office] [--tier 1 --tier 2] [--audit] [--episodes 500] [--rounds 5]

Plays flawless demonstrations of fresh training tasks; prints the median of the rounds and the share of each part, then
how long a snapshot and going back to it take in the middle of an episode of the highest tier. Time is that of the
processor, so that a busy machine does not count; the clock on the wall is printed beside it.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ferrata import make_env
from ferrata.envs.audit import AuditLog

PARTS = ("tasks", "reset", "step", "hash")


def measure(env_name: str, tiers: Sequence[int], episodes: int, seed: int, audit: AuditLog | None) -> dict[str, float]:
    """Play `episodes` episodes; processor seconds spent by part, seconds on the wall, and the number of steps."""
    clock, wall, steps = time.process_time, time.perf_counter(), 0
    spent = dict.fromkeys(PARTS, 0.0)
    with closing(make_env(env_name, tiers=tiers, audit=audit)) as env:
        started = clock()
        tasks = env.tasks("train", episodes, seed=seed)
        spent["tasks"] = clock() - started
        for task in tasks:
            texts = env.demonstrate(task, random.Random(seed), 0.0)
            started = clock()
            env.reset(task)
            spent["reset"] += clock() - started
            for text in texts:
                started = clock()
                env.step(text)
                between = clock()
                env.state_hash()
                spent["hash"] += clock() - between
                spent["step"] += between - started
                steps += 1
    wall = time.perf_counter() - wall
    return {**spent, "steps": steps, "rate": steps / sum(spent.values()), "wall_rate": steps / wall}


def measure_snapshots(env_name: str, tier: int, times: int) -> list[float]:
    """Milliseconds for a snapshot and going back to it, half way through solutions of a tier."""
    spent = []
    with closing(make_env(env_name, tier=tier)) as env:
        for task in env.tasks("train", times):
            texts = env.demonstrate(task, random.Random(0), 0.0)
            env.reset(task)
            for text in texts[: len(texts) // 2]:
                env.step(text)
            started = time.perf_counter()
            snapshot = env.snapshot()
            env.restore(snapshot)
            spent.append(1e3 * (time.perf_counter() - started))
    return spent


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="office")
    parser.add_argument("--tier", type=int, action="append", help="may repeat [default: 1 and 2]")
    parser.add_argument("--audit", action="store_true", help="write the audit log as well")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tiers = tuple(arguments.tier or (1, 2))
    rounds = []
    for seed in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            log = AuditLog(Path(folder)) if arguments.audit else None
            rounds.append(measure(arguments.env, tiers, arguments.episodes, seed, log))
            if log is not None:
                log.close()
    show(arguments.env, tiers, arguments.audit, rounds)
    spent = measure_snapshots(arguments.env, max(tiers), 60)
    print(f"  snapshot and back, tier {max(tiers)}: {statistics.median(spent):.2f} ms", end=" ")
    print(f"(median of 60; worst {max(spent):.2f})")


def show(env_name: str, tiers: Sequence[int], audit: bool, rounds: Sequence[dict[str, float]]) -> None:
    """Print one environment's rates."""
    rates = sorted(result["rate"] for result in rounds)
    on_the_wall = statistics.median(result["wall_rate"] for result in rounds)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, one core")
    print(f"{env_name}, tiers {list(tiers)}, {'with' if audit else 'without'} audit:", end=" ")
    print(f"{statistics.median(rates):,.0f} steps a processor second", end=" ")
    print(f"(median of {len(rates)} rounds, {rates[0]:,.0f} to {rates[-1]:,.0f}; {on_the_wall:,.0f} on the wall)")
    for part in PARTS:
        each = statistics.median(1e6 * result[part] / result["steps"] for result in rounds)
        print(f"  {part:6s} {each:6.0f} microseconds a step")


if __name__ == "__main__":
    main()
