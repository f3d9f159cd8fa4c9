"""The rungs of a ladder, looked at before anything is trained.

    climbs          whether there is a ladder at all
    rungs           number, tiers and tool set of each
    judged_by       the unseen tasks by which a rung is judged
    check_rungs     refuses a ladder on which some tier would have no tasks

`climbing` is the ladder of a run under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ferrata.envs.base import Environment
from ferrata.errors import UsageError
from ferrata.recipe import Recipe
from ferrata.records import Task
from ferrata.tasks.ladder import Ladder

Pattern = Callable[[Sequence[int], str], Environment]
"""Tiers and a tool set -> an environment that draws such tasks; raises UsageError where there are none."""


def climbs(recipe: Recipe) -> bool:
    """True when a run of this recipe goes up a ladder."""
    return recipe.ladder.enabled and "rl" in recipe.stages and recipe.rl.updates > 0


def rungs(recipe: Recipe) -> Iterator[tuple[int, list[int], str]]:
    """Number from 1, tiers and tool set of every rung."""
    tools, tiers = recipe.ladder.tools or ("",), sorted(recipe.env.tiers)
    for rung in range(len(tiers)):
        yield rung + 1, tiers[: rung + 1], tools[min(rung, len(tools) - 1)]


def judged_by(recipe: Recipe, unseen: Sequence[Task], pattern: Pattern, tiers: Sequence[int], tools: str) -> list[Task]:
    """The first unseen tasks of these tiers that can be done with these tools, offering the tools that training offers.

    Args:
        recipe: `evaluation.tasks_small` says how many at most.
        unseen: the tasks of the full evaluation.
        pattern: see `Pattern`.
        tiers: those of a rung.
        tools: its tool set; empty leaves each task its own.
    """
    drawn = {tier: pattern((tier,), tools) for tier in tiers}
    tasks = [task for task in unseen if task.tier in drawn and task.family in drawn[task.tier].open_families]
    return [
        msgspec.structs.replace(task, tools=drawn[task.tier].stage_tools) if tools else task
        for task in tasks[: recipe.evaluation.tasks_small]
    ]


def check_rungs(recipe: Recipe, unseen: Sequence[Task], pattern: Pattern) -> None:
    """Find out now, not after the climb, whether every rung has tasks to train and tasks to be judged by.

    Raises:
        UsageError: a tier would have none; which, on which rung, and what to change.
    """
    if not climbs(recipe):
        return
    for rung, tiers, tools in rungs(recipe):
        for tier in tiers:
            try:
                pattern((tier,), tools)
            except UsageError as error:
                raise UsageError(f"Rung {rung} of the ladder has no tasks of tier {tier}. {error}") from error
        missing = sorted(set(tiers) - {task.tier for task in judged_by(recipe, unseen, pattern, tiers, tools)})
        if missing:
            raise UsageError(
                f"Rung {rung} of the ladder could not be judged: among its evaluation.tasks_small = "
                f"{recipe.evaluation.tasks_small} unseen tasks there is none of tier {missing[0]}. Raise that, and "
                "evaluation.tasks."
            )
        _refuse_starved(recipe, rung, tiers)


def _refuse_starved(recipe: Recipe, rung: int, tiers: Sequence[int]) -> None:
    """So few tasks in an update that an open tier would never be among them."""
    count = recipe.rl.tasks_per_update
    counts = Ladder(recipe.ladder, recipe.env.tiers).counts(count, rung - 1)
    starved = [tier for tier, part in counts.items() if not part]
    if starved:
        raise UsageError(
            f"On rung {rung} of the ladder, with tiers {list(tiers)}, an update of rl.tasks_per_update = {count} would "
            f"never hold a task of tier {starved[0]}: raise that, or change ladder.newest."
        )
