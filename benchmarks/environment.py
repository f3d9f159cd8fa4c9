"""Steps per second of an environment on one core: generation, reset, parsing, tools, rewards and state hashes.

    python benchmarks/environment.py [--env office] [--episodes 500] [--rounds 5]

Plays flawless demonstrations of fresh training tasks, prints the median of the rounds, and the share of each part.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time

from ferrata import make_env


def measure(env_name: str, episodes: int, seed: int) -> dict[str, float]:
    """Play `episodes` episodes; seconds spent by part, and the number of steps."""
    env = make_env(env_name, tiers=(1, 2))
    spent = {"tasks": 0.0, "reset": 0.0, "step": 0.0, "hash": 0.0}
    clock, steps = time.perf_counter, 0
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
    env.close()
    return {**spent, "steps": steps, "rate": steps / sum(spent.values())}


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="office")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rounds = [measure(arguments.env, arguments.episodes, seed) for seed in range(arguments.rounds)]
    rates = sorted(result["rate"] for result in rounds)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, one core")
    print(f"{arguments.env}: {statistics.median(rates):,.0f} steps a second", end=" ")
    print(f"(median of {len(rates)} rounds, {rates[0]:,.0f} to {rates[-1]:,.0f}; at least 2,000 asked for)")
    for part in ("tasks", "reset", "step", "hash"):
        each = statistics.median(1e6 * result[part] / result["steps"] for result in rounds)
        print(f"  {part:6s} {each:6.0f} microseconds a step")


if __name__ == "__main__":
    main()
