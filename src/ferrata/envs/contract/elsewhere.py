"""What one process sees of an environment, as hashes that another process can compare with its own.

python -c "from ferrata.envs.contract.elsewhere import main; main()" package.module:Class 1,2 30

The other process has another order of sets, another `hash`, another clock, and plays everything in the opposite order,
each task in an instance of its own: whatever an episode leaves behind for the next one shows.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from ferrata.envs.base import Environment
from ferrata.envs.contract.clock import shift_clock
from ferrata.envs.scripts import Script
from ferrata.records import Task

SEED = 11
"""Seed of the episodes that are compared."""

Findings = dict[str, list[tuple[str, str]]]


def findings(make: Callable[[], Environment], tasks_each: int, *, backwards: bool = False) -> Findings:
    """(family, fingerprint) of every task, and (family and script, hash of what is seen) of every script of each."""
    env = make()
    try:
        tasks = [task for split in ("train", "eval") for task in env.tasks(split, tasks_each)]
        traces = [_traces(make, task, backwards) for task in (reversed(tasks) if backwards else tasks)]
    finally:
        env.close()
    if backwards:
        traces.reverse()
    return {
        "tasks": [(task.family, task.fingerprint) for task in tasks],
        "traces": [trace for of_task in traces for trace in of_task],
    }


def main() -> None:
    """Print the findings on the environment that the arguments name, as JSON."""
    where, tiers, tasks_each = sys.argv[1:]
    shift_clock()
    module, _, name = where.partition(":")
    kind: Any = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    chosen = [int(tier) for tier in tiers.split(",")]
    print(json.dumps(findings(lambda: kind(tiers=chosen), int(tasks_each), backwards=True)))


def _traces(make: Callable[[], Environment], task: Task, backwards: bool) -> list[tuple[str, str]]:
    env = make()
    try:
        scripts = env.scripts(task)
        played = [
            (f"family '{task.family}', script '{script.name}'", _digest(env, task, script))
            for script in (reversed(scripts) if backwards else scripts)
        ]
    finally:
        env.close()
    return played[::-1] if backwards else played


def _digest(env: Environment, task: Task, script: Script) -> str:
    env.reset(task, SEED)
    seen: list[Any] = []
    for text in script.texts:
        before = env.state_hash()
        result = env.step(text)
        seen.append((before, result.observation.text, result.events))
        if result.terminated or result.truncated:
            break
    return hashlib.blake2b(msgspec.json.encode(seen), digest_size=8).hexdigest()
