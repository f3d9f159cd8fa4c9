"""Tasks of customer support by family and title, and what was played in them."""

import random
from typing import Any

from ferrata.envs.support import SupportEnvironment, families, written
from ferrata.envs.support.families import TIERS
from ferrata.records import EventKind, StepResult, Task
from ferrata.rewards import RewardSpec

SPEC = RewardSpec()


def play(env: SupportEnvironment, task: Task, texts: Any) -> list[StepResult]:
    env.reset(task)
    results = []
    for text in texts:
        results.append(env.step(text))
        if results[-1].terminated:
            break
    return results


def task_of(env: SupportEnvironment, family: str, seed: int = 0) -> Task:
    return env.tasks("train", 1, seed=seed, families=[family])[0]


def written_task(env: SupportEnvironment, title: str) -> Task:
    titles = [entry["title"] for theme in written.THEMES for entry in written.entries(theme)]
    return env.written_tasks()[titles.index(title)]


def kinds(results: list[StepResult]) -> list[EventKind]:
    return [event.kind for event in results[-1].events]


def names(results: list[StepResult], kind: EventKind) -> list[str]:
    return [event.name for result in results for event in result.events if event.kind == kind]


def drawn(family: str) -> list[Task]:
    tier = next(tier for tier, found in TIERS.items() if family in found)
    return [
        families.generate(family, tier, random.Random(seed), split) for split in ("train", "eval") for seed in (1, 2)
    ]
