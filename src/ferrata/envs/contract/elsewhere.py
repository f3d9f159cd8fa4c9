"""What one process sees of an environment, as hashes that another process can compare with its own.

python -c "from ferrata.envs.contract.elsewhere import main; main()" package.module:Class 1,2 30
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from ferrata.envs.base import Environment

SEED = 11
"""Seed of the episodes that are compared."""


def findings(kind: type[Environment], tiers: Sequence[int], tasks_each: int) -> dict[str, list[tuple[str, str]]]:
    """(family, fingerprint) of every task, and (family, hash of what is seen) of one solution a family."""
    env = kind(tiers=tiers)
    try:
        tasks = [task for split in ("train", "eval") for task in env.tasks(split, tasks_each)]
        first = {(task.tier, task.family): task for task in reversed(tasks)}
        return {
            "tasks": [(task.family, task.fingerprint) for task in tasks],
            "traces": [(task.family, _digest(env, task)) for task in first.values()],
        }
    finally:
        env.close()


def main() -> None:
    """Print the findings on the environment that the arguments name, as JSON."""
    where, tiers, tasks_each = sys.argv[1:]
    module, _, name = where.partition(":")
    kind: Any = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    print(json.dumps(findings(kind, [int(tier) for tier in tiers.split(",")], int(tasks_each))))


def _digest(env: Environment, task: Any) -> str:
    env.reset(task, SEED)
    seen: list[Any] = []
    for text in env.scripts(task)[0].texts:
        before = env.state_hash()
        result = env.step(text)
        seen.append((before, result.observation.text, result.events))
        if result.terminated or result.truncated:
            break
    return hashlib.blake2b(msgspec.json.encode(seen), digest_size=8).hexdigest()
