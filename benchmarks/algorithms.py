"""Every algorithm on one recipe: success on unseen office tasks of tiers 1 and 2 after the same number of updates.

    python benchmarks/algorithms.py [--out runs/algorithms] [--seeds 0 1 2] [--updates 25] [--tasks 200] [--beside 2]
                                    [--threads 1] [SETTING ...]

For each seed the SFT stage of `office-quickstart` is run once, and its policy goes on with RL once for each algorithm.
Nothing but the algorithm differs; settings were chosen for GRPO.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import fmean

from arms import beside, percent, seconds, success, train

RECIPE = "office-quickstart"
ALGORITHMS = ("grpo", "rloo", "reinforce++", "gigpo", "ppo")


def begin(out: Path, common: list[str], seed: int) -> None:
    """What all algorithms share."""
    train(out / f"sft-{seed}", RECIPE, 'stages=["sft"]', f"seed={seed}", *common)


def go_on(out: Path, common: list[str], seed: int, algorithm: str, updates: int) -> None:
    """RL by one algorithm."""
    start = [f"policy.model={out / f'sft-{seed}'}", f"rl.updates={updates}", "rl.min_success=0"]
    chosen = f"rl.algorithm={algorithm}"
    train(out / f"{algorithm}-{seed}", RECIPE, 'stages=["rl"]', f"seed={seed}", *start, chosen, *common)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/algorithms"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--beside", type=int, default=2, help="runs at a time")
    parser.add_argument("--threads", type=int, default=1, help="of each run")
    parser.add_argument("settings", nargs="*", help="of all runs, as in `ferrata train`")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    common = [f"policy.threads={options.threads}", *options.settings]
    beside([partial(begin, options.out, common, seed) for seed in options.seeds], options.beside)
    runs = [(seed, algorithm) for seed in options.seeds for algorithm in ALGORITHMS]
    jobs = [partial(go_on, options.out, common, seed, algorithm, options.updates) for seed, algorithm in runs]
    beside(jobs, options.beside)
    print(f"| | {' | '.join(f'seed {seed}' for seed in options.seeds)} | mean | minutes |")
    print("|---" * (len(options.seeds) + 3) + "|")
    for name in ("sft", *ALGORITHMS):
        folders = [options.out / f"{name}-{seed}" for seed in options.seeds]
        rates = [success(folder, [1, 2], options.tasks) for folder in folders]
        mean = fmean(rate["count"] / rate["n"] for rate in rates)
        minutes = fmean(seconds(folder) for folder in folders) / 60
        print(f"| {name} | {' | '.join(map(percent, rates))} | {100 * mean:.1f} % | {minutes:.1f} |", flush=True)


if __name__ == "__main__":
    main()
