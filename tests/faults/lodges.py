"""An environment that hangs, crashes and draws numbers, as text that workers import, and what is looked at in rollouts
with it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ferrata.recipe import RewardSection
from ferrata.records import Trajectory
from ferrata.rollout.collection import Collection
from ferrata.rollout.collector import Collector
from ferrata.rollout.workers import WorkerHost
from ferrata.rollout.worlds import EnvironmentSpec

Saying = Callable[..., list[int]]
LODGE = EnvironmentSpec("lodge:Lodge", rewards=RewardSection())
Decide = Callable[[int, int], Sequence[int]]


WORLD = """
import os, random, socket, subprocess, sys, time
import msgspec
from ferrata.envs import Effect, Environment, Task, tool
from ferrata.records import Action, Observation

class Lodge(Environment):
    name = "lodge"
    families = {1: ("stay",)}

    def generate(self, family, tier, stream, split):
        number = stream.randrange(10**6)
        return Task(self.name, family, tier, split, f"Stay in {number}.", {"number": number}, (), 6)

    @tool("Draw a number.")
    def draw(self) -> str:
        return str(self.random.randrange(10**9))

    @tool("Do something that goes wrong.")
    def fail(self, how: str) -> str:
        if how == "hang":
            time.sleep(3600)
        if how == "raise":
            raise RuntimeError("the roof is gone")
        if how == "die":
            os._exit(3)
        if how == "exit":
            sys.exit("enough")
        if how == "child":
            subprocess.Popen(["sleep", "86397"])
        if how.startswith("wait "):
            while not os.path.exists(how[5:]):
                time.sleep(0.01)
        if how == "nap":
            time.sleep(0.3)
        if how == "chance":
            return "".join(chr(97 + byte % 26) for byte in os.urandom(12))
        return how

    @tool("Leave.", effect=Effect.WRITE)
    def leave(self) -> str:
        self.finish(True)
        return "bye"

class Remote(Lodge):
    def begin(self, task):
        super().begin(task)
        if self.port:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()

    @tool("Ask the server.")
    def ask(self) -> str:
        socket.create_connection(("127.0.0.1", self.port or 1), timeout=5).close()
        return "it is there"

class Gone(Remote):
    port = 1

class GoingDown(Remote):
    port = 0

class Mute(Lodge):
    @tool("Ask.")
    def ask(self) -> str:
        return ""

class Slow(Lodge):
    def __init__(self, **settings):
        time.sleep(2.0)
        super().__init__(**settings)

class Leaving(Lodge):
    def __init__(self, **settings):
        sys.exit("no vacancies")

class Keeping(Lodge):
    def begin(self, task):
        self.key = object()

class Odd(Lodge):
    def step(self, text):
        result = super().step(text)
        return msgspec.structs.replace(result, action=Action("draw", {"odd": object()}))

class Long(Lodge):
    def step(self, text):
        result = super().step(text)
        return msgspec.structs.replace(result, observation=Observation("x" * (2**23 + 1)))
"""


def host_of(collector: Collector) -> WorkerHost:
    assert isinstance(collector.host, WorkerHost)
    return collector.host


def pids_of(collector: Collector) -> list[int]:
    return collector.host.pids if isinstance(collector.host, WorkerHost) else []


def essence(trajectory: Trajectory) -> Trajectory:
    """Everything but the time that it took."""
    turns = [msgspec.structs.replace(turn, sampling_seconds=0.0, environment_seconds=0.0) for turn in trajectory.turns]
    return msgspec.structs.replace(trajectory, turns=turns)


def essences(collection: Collection) -> list[Trajectory]:
    return [essence(trajectory) for trajectory in collection.trajectories]


def adds_up(collection: Collection) -> bool:
    stats = collection.stats
    return stats.asked == len(collection.trajectories) == stats.played + sum(stats.dropped.values())


def adds_up_after_a_failure(collector: Collector) -> bool:
    stats = collector.last_stats
    return stats.asked == stats.played + sum(stats.dropped.values())


def is_gone(pid: int) -> bool:
    """True when nothing of this number runs; a zombie that nobody has waited for is gone as well."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def sleepers() -> set[int]:
    """What `fail("child")` has started and is still there."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == b"sleep\x0086397\x00" and not is_gone(int(entry.parent.name)):
                found.add(int(entry.parent.name))
        except OSError:
            continue
    return found


def drawing(saying: Saying) -> Decide:
    """Draws numbers, and leaves some time; all of it follows from the seed."""

    def decide(seed: int, turn: int) -> list[int]:
        leaves = random.Random(f"{seed}/{turn}").random() < 0.25
        return saying("leave") if leaves else saying("draw")

    return decide
