"""Many episodes while workers are killed at random, tools hang, tools raise and tools end their process.

    python benchmarks/rollout_faults.py [--episodes 10000] [--workers 2] [--kill-every 400]

The environment is the office, made clumsy; a scripted sampler plays it. Prints how every episode ended, and the
high-water mark of the memory of this process and of the workers. Ends with 1 when the counts do not add up, or when
a process or a temporary file is left.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from ferrata import Task, call
from ferrata.models.policy import load_policy
from ferrata.recipe import RolloutSection
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collection import CollectionStats
from ferrata.rollout.collector import Collector
from ferrata.rollout.workers import WorkerHost
from ferrata.sampling.protocol import Completion, SamplerClock
from troubled_offices import ClumsyOffice

BATCH = 500
"""Episodes of one collection."""
TEXTS = (
    call("list_files", folder=""),
    call("edit_document", path="notes.txt", content="seen"),
    "nothing to do",
    call("submit_result", answer="done"),
)


class Scripted:
    """A sampler that says one of a few texts, decided by seed and turn; fulfils `sampling.protocol.Sampler`."""

    def __init__(self, texts: Sequence[list[int]], slots: int) -> None:
        self.max_length, self.version, self.clock = 4096, 0, SamplerClock()
        self._texts, self._slots = texts, slots
        self._open: dict[int, list[int]] = {}
        self._asked: dict[int, None] = {}

    @property
    def free(self) -> int:
        """Episodes that can be opened now."""
        return self._slots - len(self._open)

    def open(self, key: int, seed: int, temperature: float, only: object = None) -> None:
        """Begin an episode."""
        self._open[key] = [seed, 0]

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        """Ask for a turn."""
        self._asked[key] = None

    def advance(self) -> list[Completion]:
        """Every turn that was asked for, whole."""
        asked, self._asked = self._asked, {}
        return [self._say(key) for key in asked]

    def close(self, key: int) -> None:
        """Forget the episode."""
        del self._open[key]
        self._asked.pop(key, None)

    def publish(self, version: int) -> None:
        """Nothing is learnt here."""
        self.version = version

    def shutdown(self) -> None:
        """There is nothing to release."""

    def _say(self, key: int) -> Completion:
        seed, turn = self._open[key]
        self._open[key][1] += 1
        ids = random.Random(f"{seed}/{turn}").choice(self._texts)
        return Completion(key, ids, [-1.0] * len(ids), True)


class Killer(threading.Thread):
    """Kills a random worker every so many turns, also one that is still starting, and watches the memory of all."""

    def __init__(self, collector: Collector, every: int) -> None:
        super().__init__(daemon=True)
        assert isinstance(collector.host, WorkerHost)
        self.collector, self.host, self.every = collector, collector.host, every
        self.kills, self.over = 0, threading.Event()
        self.seen: set[int] = set()
        self.largest = 0.0
        """High-water mark of one worker (MB)."""
        self.together = 0.0
        """Most memory of all workers at one time (MB)."""

    def run(self) -> None:
        """Kill and watch until it is over."""
        rng, before, turns = random.Random(0), self.collector.last_stats, 0
        while not self.over.wait(0.1):
            pids, now = self.host.pids, self.collector.last_stats
            self.seen.update(pids)
            self.largest = max([self.largest, *(megabytes(pid, "VmHWM") for pid in pids)])
            self.together = max(self.together, sum(megabytes(pid, "VmRSS") for pid in pids))
            turns = 0 if now is not before else turns
            if pids and now.turns - turns >= self.every:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    self.kills += 1
                turns = now.turns
            before = now


def megabytes(pid: int, field: str) -> float:
    """A field of the process's memory status; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def play(collector: Collector, tasks: Sequence[Task], episodes: int) -> tuple[Counter[str], Counter[str]]:
    """Play the episodes, a batch at a time; how they stopped, and the sums of the counts."""
    stops: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for batch in range(0, episodes, BATCH):
        many = min(BATCH, episodes - batch)
        requests = [(tasks[(batch + place) % len(tasks)], 1) for place in range(many)]
        collection = collector.collect(requests, batch)
        stops.update(trajectory.stop.value for trajectory in collection.trajectories)
        stats: CollectionStats = collection.stats
        sums.update(asked=stats.asked, played=stats.played, dropped=sum(stats.dropped.values()), retried=stats.retried)
        sums.update(turns=stats.turns)
        print(f"  {sums['asked']:6d} episodes, this process {megabytes(os.getpid(), 'VmRSS'):5.0f} MB", flush=True)
    return stops, sums


def main() -> None:
    """Play, print, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill-every", type=int, default=400)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        measure(arguments.episodes, arguments.workers, arguments.kill_every, Path(scratch))


def measure(episodes: int, workers: int, kill_every: int, scratch: Path) -> None:
    """Play and report."""
    chat, spec = load_policy("base").chat, partial(ClumsyOffice, tiers=(1,), score=RewardSpec())
    with closing(spec()) as env:
        tasks = env.tasks("train", 200)
    budgets = RolloutSection(
        workers=workers, step_seconds=4.0, episodes_at_once=64, max_turns=6, max_tokens=2000, max_tokens_per_turn=200
    )
    collector = Collector(Scripted([chat.saying(text) for text in TEXTS], 64), spec, chat, budgets)
    killer = Killer(collector, kill_every)
    killer.start()
    started = time.monotonic()
    stops, sums = play(collector, tasks, episodes)
    seconds = time.monotonic() - started
    killer.over.set()
    killer.join()
    collector.close()
    print(f"{sums['asked']} episodes, {sums['turns']} turns in {seconds:.0f} s; they stopped by: {dict(stops)}")
    print(f"played {sums['played']}, dropped {sums['dropped']}, begun again {sums['retried']}")
    print(f"{len(killer.seen)} worker processes were there, {killer.kills} were killed at random")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"high-water marks: this process {own:.0f} MB, largest worker {killer.largest:.0f} MB, ", end="")
    print(f"all workers together {killer.together:.0f} MB")
    left = [pid for pid in killer.seen if megabytes(pid, "VmRSS")]
    files = [path.name for path in scratch.iterdir()]
    whole = sums["asked"] == episodes == sums["played"] + sums["dropped"] == sum(stops.values())
    print(f"every episode accounted for: {whole}; processes left: {len(left)}; files left: {len(files)}")
    sys.exit(0 if whole and not left and not files else 1)


if __name__ == "__main__":
    main()
