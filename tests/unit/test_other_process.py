"""The check in other processes finds what depends on the order of a set, on the clock, and on earlier episodes."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ferrata.envs.checker import check_environment
from ferrata.rollout.worlds import make_env

DEPOT = """
import datetime, random, time
from ferrata import Environment, Script, Task, call, tool

COUNT = [0]

class Depot(Environment):
    name = "depot"
    families = {1: ("ask",)}

    def generate(self, family, tier, stream, split):
        names = [f"{split}{number}" for number in stream.sample(range(10**6), 2)]
        return Task("depot", family, tier, split, f"Ask for {names[0]}.", {"names": names}, ("asked",), 4)

    @tool("Ask.")
    def ask(self, name: str) -> str:
        COUNT[0] += 1
        self.reach("asked")
        return ANSWER

    @tool("Say yes or no.")
    def say(self, yes: bool) -> str:
        self.finish(yes)
        return "said"

    def scripts(self, task):
        asked = call("ask", name=task.world["names"][0])
        return [
            Script("yes", (asked, call("say", yes=True)), True),
            Script("no", (call("say", yes=False),), False),
        ]
"""


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sound", '" ".join(sorted(set(self.task.world["names"])))'),
        ("set_order", '" ".join(set(self.task.world["names"]))'),
        ("today", 'f"it is {datetime.date.today()}"'),
        ("hour", 'time.strftime("%H h")'),
        ("count", 'f"visit {COUNT[0] // 1000}" if COUNT[0] < 5 else "later"'),
    ],
)
def test_other_processes_see_the_same_or_say_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, answer: str
) -> None:
    (tmp_path / f"depot_{name}.py").write_text(DEPOT.replace("ANSWER", answer))
    monkeypatch.syspath_prepend(tmp_path)
    report = check_environment(make_env(f"depot_{name}:Depot"), 5, fuzzed=0)
    [row] = [check for check in report.checks if check.name == "other process"]
    if name == "sound":
        assert (row.ok, report.broken) == (True, ())
        assert "the same in 3 processes" in row.detail
    else:
        assert row.ok is False
        assert "family 'ask', script 'yes'" in row.detail


def test_a_shifted_clock_is_whole() -> None:
    code = """
import json, time, datetime
before = datetime.datetime(2026, 1, 5)
from ferrata.envs.contract.clock import shift_clock
shift_clock()
assert isinstance(before, datetime.datetime) and isinstance(before.date(), datetime.date)
assert datetime.date(2026, 1, 31) + datetime.timedelta(days=1) == datetime.date(2026, 2, 1)
zone = datetime.datetime.now(datetime.UTC).utcoffset().total_seconds()
print(json.dumps([
    time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), zone, str(datetime.date.today()),
    time.strftime("%Y-%m-%d"), time.strftime("%Y", time.gmtime(0)), datetime.datetime.utcnow().tzinfo is None,
]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    first, nanoseconds, now, zone, today, day, epoch, plain = json.loads(done.stdout)
    assert first - time.time() > 999 * 86_400
    assert abs(nanoseconds - first) < 60
    assert abs(now - first) < 60
    assert (zone, epoch, plain) == (0.0, "1970", True)
    assert today == day == str(datetime.date.fromtimestamp(first))
