"""A round ahead is played in a thread of its own, and many libraries serve only the thread that opened something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrata import load_recipe
from ferrata.runs import RunFolder, SilentView
from ferrata.runs.interrupt import Interrupts
from ferrata.training import pipeline

WORLD = """
import sqlite3, threading
from ferrata.envs import Environment, Task, tool

THREADS = set()

class Ledger(Environment):
    name = "ledger"
    families = {1: ("book",)}

    def __init__(self, *more, **settings):
        super().__init__(*more, **settings)
        self.database = sqlite3.connect(":memory:")

    def generate(self, family, tier, stream, split):
        THREADS.add(threading.current_thread().name)
        self.database.execute("SELECT 1")
        amount = stream.randrange(10**6)
        return Task(self.name, family, tier, split, f"Book {amount}.", {"amount": amount}, (), 3)

    def begin(self, task):
        self.database.execute("SELECT 1")

    @tool("Book an amount.")
    def book(self, amount: int) -> str:
        self.database.execute("SELECT 1")
        self.finish(amount == self.task.world["amount"])
        return "booked"

    def save_world(self):
        return {}

    def load_world(self, saved):
        pass

    def close(self):
        super().close()
        self.database.close()
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "ledger.py").write_text(WORLD)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("ledger", None)


def test_what_is_bound_to_a_thread_is_made_and_used_in_one(ledger: Path) -> None:
    """Rounds, replaced groups and evaluations: each with environments of the thread in which it is played."""
    shape = ["env.name=ledger:Ledger", "env.tiers=[1]", 'stages=["rl"]', "rl.updates=3", "rl.staleness=1", "rl.kl=0"]
    rare = ["rl.redraws=1", "rl.spread_floor=5", "rl.min_success=0", "rl.min_valid=0", "evaluation.every=1"]
    recipe = load_recipe("office-smoke", [*shape, *rare, "rollout.max_turns=2", "policy.threads=1"])
    with RunFolder.create(recipe, ledger / "run") as folder:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
        assert [step for step, _ in folder.store.metrics("groups/replaced", "rl")] == [1, 2, 3]
    assert {"MainThread", "round"} == sys.modules["ledger"].THREADS, "groups were replaced in both"
