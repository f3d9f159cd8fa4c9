"""Throughput with environments that take 300 ms a step, against environments that take none.

    python benchmarks/slow_environments.py [--rounds 3] [--workers 2] [--sampler timed|model]

Two samplers, each playing the office with worker processes, and without any for comparison:

    timed    takes a fixed time per token for the whole batch, as a real model of 135 million parameters does on a few
             cores: 64 turns of 24 tokens take 3.6 seconds. 64 episodes at once.
    model    the small base model that ships with the package; its turns are short beside 300 ms, so that many episodes
             wait at any time and batches are smaller. 64 and 128 at once.

Prints sampled tokens per second and the ratio slow to fast, medians of rounds that take turns.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from ferrata import Task, call
from ferrata.models.chat import Chat
from ferrata.models.policy import load_policy
from ferrata.recipe import RolloutSection
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collection import CollectionStats
from ferrata.rollout.collector import Collector
from ferrata.rollout.hosts import MakeEnvironment
from ferrata.rollout.worlds import EnvironmentSpec
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import Completion, Sampler, SamplerClock
from troubled_offices import SlowOffice

FAST, SLOW = EnvironmentSpec("office"), partial(SlowOffice, tiers=(1,), score=RewardSpec())
TOKEN_SECONDS = 0.15
TURN_TOKENS = 24
TURNS = 4
EPISODES = 128


class Timed:
    """Samples one token for every waiting episode in a fixed time; fulfils `sampling.protocol.Sampler`."""

    def __init__(self, chat: Chat, slots: int) -> None:
        self.max_length, self.version, self.clock = 4096, 0, SamplerClock()
        self._slots, self._live = slots, dict[int, int]()
        self._left: dict[int, int] = {}
        text = chat.saying(call("list_files", folder=""))
        # Turns end at different times, as a model's do.
        self._lengths = random.Random(0)
        self._ids = text

    @property
    def free(self) -> int:
        """Episodes that can be opened now."""
        return self._slots - len(self._live)

    def open(self, key: int, seed: int, temperature: float, only: object = None) -> None:
        """Begin an episode."""
        self._live[key] = seed

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        """Ask for a turn."""
        self._left[key] = TURN_TOKENS + self._lengths.randint(-8, 8)

    def advance(self) -> list[Completion]:
        """One token for all."""
        time.sleep(TOKEN_SECONDS)
        self._left = {key: left - 1 for key, left in self._left.items()}
        done = [key for key, left in self._left.items() if left == 0]
        for key in done:
            del self._left[key]
        return [Completion(key, self._ids, [-1.0] * len(self._ids), True) for key in done]

    def close(self, key: int) -> None:
        """Forget the episode."""
        del self._live[key]
        self._left.pop(key, None)

    def publish(self, version: int) -> None:
        """Nothing is learnt here."""

    def shutdown(self) -> None:
        """There is nothing to release."""


def collect(
    make: Callable[[], Sampler], chat: Chat, tasks: Sequence[Task], spec: MakeEnvironment, **budgets: int
) -> CollectionStats:
    """One collection, after a short one that starts the workers."""
    section = RolloutSection(max_turns=TURNS, max_tokens=1000, **budgets)
    with closing(Collector(make(), spec, chat, section)) as collector:
        collector.collect([(tasks[0], 2)], 0)
        return collector.collect([(task, 1) for task in tasks], 1).stats


def compare(name: str, make: Callable[[int], Sampler], chat: Chat, tasks: Sequence[Task], **budgets: int) -> None:
    """Print the ratio of tokens a second, slow to fast."""
    rounds, workers, slots = budgets["rounds"], budgets["workers"], budgets["slots"]
    cases = {"slow": (SLOW, workers), "fast": (FAST, workers), "fast, no workers": (FAST, 0)}
    rates: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case, (spec, processes) in cases.items():
            stats = collect(lambda: make(slots), chat, tasks, spec, episodes_at_once=slots, workers=processes)
            rates[case].append(stats.tokens_sampled / stats.seconds)
            print(f"    {case:17s} {line(stats)}", flush=True)
    medians = {case: statistics.median(values) for case, values in rates.items()}
    ratios = sorted(slow / fast for slow, fast in zip(rates["slow"], rates["fast"], strict=True))
    rest = ", ".join(f"{case} {median:,.0f}" for case, median in medians.items())
    print(f"{name}, {slots} at once: slow/fast {statistics.median(ratios):.2f} ", end="")
    print(f"({ratios[0]:.2f} to {ratios[-1]:.2f}); tokens/s {rest}")


def line(stats: CollectionStats) -> str:
    """Where the time went."""
    return (
        f"{stats.turns} turns in {stats.seconds:.1f} s: sampling {stats.sampling_seconds:.1f} s, idle "
        f"{stats.idle_seconds:.1f} s, environments {stats.environment_seconds:.1f} s"
    )


def main() -> None:
    """Measure both samplers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sampler", choices=("timed", "model", "both"), default="both")
    arguments = parser.parse_args()
    policy = load_policy("base")
    with closing(FAST()) as env:
        tasks = env.tasks("train", EPISODES)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, {EPISODES} episodes")
    chat, rest = policy.chat, {"rounds": arguments.rounds, "workers": arguments.workers}
    if arguments.sampler != "model":
        compare("timed", lambda slots: Timed(chat, slots), chat, tasks, slots=64, **rest)
    for slots in (64, 128) if arguments.sampler != "timed" else ():
        many = [tasks[place % EPISODES] for place in range(2 * slots)]
        compare("model", lambda slots: LocalSampler(policy, slots, 512), chat, many, slots=slots, **rest)


if __name__ == "__main__":
    main()
