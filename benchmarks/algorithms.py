"""Every algorithm on one recipe: success on unseen office tasks of tiers 1 and 2 after the same number of updates.

    python benchmarks/algorithms.py [--out runs/algorithms] [--seeds 0 1 2] [--updates 25] [--tasks 200] [--beside 2]
                                    [--threads 1] [SETTING ...]

For each seed the SFT stage of `office-quickstart` is run once, and its policy goes on with RL once for each algorithm.
Nothing but the algorithm differs; settings were chosen for GRPO.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import fmean

from arms import beside, parser, percent, seconds, success, train

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
    arguments = parser(__doc__.splitlines()[0], "runs/algorithms")
    arguments.add_argument("--updates", type=int, default=25)
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    common = [f"policy.threads={options.threads}", *options.settings]
    beside([partial(begin, options.out, common, seed) for seed in options.seeds], options.beside)
    runs = [(seed, algorithm) for seed in options.seeds for algorithm in ALGORITHMS]
    jobs = [partial(go_on, options.out, common, seed, algorithm, options.updates) for seed, algorithm in runs]
    beside(jobs, options.beside)
    folders = {name: [options.out / f"{name}-{seed}" for seed in options.seeds] for name in ("sft", *ALGORITHMS)}
    made = [folder for row in folders.values() for folder in row]
    beside([partial(success, folder, [1, 2], options.tasks) for folder in made], options.beside)
    print(f"| | {' | '.join(f'seed {seed}' for seed in options.seeds)} | mean | minutes |")
    print("|---" * (len(options.seeds) + 3) + "|")
    for name, row in folders.items():
        rates = [success(folder, [1, 2], options.tasks) for folder in row]
        mean = fmean(rate["count"] / rate["n"] for rate in rates)
        minutes = fmean(seconds(folder) for folder in row) / 60
        print(f"| {name} | {' | '.join(map(percent, rates))} | {100 * mean:.1f} % | {minutes:.1f} |", flush=True)


if __name__ == "__main__":
    main()
