"""Does the ladder pay? Success on unseen tier-3 tasks of the office, three ways of spending the same updates.

    python benchmarks/ladder.py [--out runs/ladder] [--seeds 0 1 2] [--ways ladder "tier 3" "outcome only"]
                                [--tasks 200] [--beside 2] [--threads 1] [SETTING ...]

For each seed the SFT stage of `office-ladder` is run once, and its policy goes on with RL once for each of `--ways`:

    ladder          as the recipe says: tiers 1, 2 and 3, each when the one before is learnt
    tier 3          tier 3 from the start
    outcome only    the ladder, but paid for nothing except the outcome

Every way takes the same number of updates of the same number of episodes; episodes of tier 3 are longer, so `tier 3` is
given more tokens and more time. All are evaluated on the same tasks. A run takes between one and two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from arms import beside, parser, percent, seconds, success, train

RECIPE = "office-ladder"
TIERS = ([3], [1, 2])
"""What is evaluated, each on its own."""
UNPAID = ("process", "efficiency", "near_repeat", "repeat", "format", "invalid")
WAYS = {
    "ladder": [],
    "tier 3": ["env.tiers=[3]", "ladder.enabled=false"],
    "outcome only": [f"rewards.{name}=0" for name in UNPAID],
}


def begin(out: Path, common: list[str], seed: int) -> None:
    """What all ways share."""
    train(out / f"sft-{seed}", RECIPE, 'stages=["sft"]', f"seed={seed}", *common)


def go_on(out: Path, common: list[str], seed: int, way: str) -> None:
    """RL in one way."""
    start = [f"policy.model={out / f'sft-{seed}'}", "rl.min_success=0", "rl.min_valid=0"]
    train(_folder(out, way, seed), RECIPE, 'stages=["rl"]', f"seed={seed}", *start, *common, *WAYS[way])


def _folder(out: Path, way: str, seed: int) -> Path:
    return out / f"{way.replace(' ', '-')}-{seed}"


def _all(out: Path, seeds: Sequence[int], ways: Sequence[str]) -> list[Path]:
    """Of each seed the SFT stage, then these ways."""
    return [folder for seed in seeds for folder in (out / f"sft-{seed}", *(_folder(out, way, seed) for way in ways))]


def main() -> None:
    """Run what is missing, and print the table."""
    arguments = parser(__doc__.splitlines()[0], "runs/ladder")
    arguments.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = arguments.parse_args()
    ways = options.ways
    options.out.mkdir(parents=True, exist_ok=True)
    common = [f"policy.threads={options.threads}", *options.settings]
    beside([partial(begin, options.out, common, seed) for seed in options.seeds], options.beside)
    jobs = [partial(go_on, options.out, common, seed, way) for seed in options.seeds for way in ways]
    beside(jobs, options.beside)
    made = [(folder, tiers) for tiers in TIERS for folder in _all(options.out, options.seeds, ways)]
    beside([partial(success, folder, tiers, options.tasks) for folder, tiers in made], options.beside)
    print(f"| seed | tiers | after SFT | {' | '.join(ways)} | minutes: SFT, {', '.join(ways)} |")
    print("|---" * (len(ways) + 4) + "|")
    for seed in options.seeds:
        folders = _all(options.out, [seed], ways)
        minutes = ", ".join(f"{seconds(folder) / 60:.0f}" for folder in folders)
        for tiers in TIERS:
            rates = [percent(success(folder, tiers, options.tasks)) for folder in folders]
            print(f"| {seed} | {' and '.join(map(str, tiers))} | {' | '.join(rates)} | {minutes} |", flush=True)


if __name__ == "__main__":
    main()
