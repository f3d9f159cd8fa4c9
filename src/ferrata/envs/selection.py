"""Which families of tasks are drawn, and with which tools: chosen by a recipe, stage by stage.

select(...)        the (tier, family) pairs that are left, or one sentence that says why none is
draw_tasks(...)    different tasks, spread evenly over such pairs
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

import msgspec

from ferrata.errors import TaskError, UnknownNameError, UsageError
from ferrata.records import Task
from ferrata.seeds import stream

Pair = tuple[int, str]
"""(tier, family)"""
_SIZES = {
    "train": "sft.demonstrations and rl.tasks_per_update",
    "eval": "evaluation.tasks and evaluation.tasks_small",
}
"""Split -> the keys of a recipe that say how many of its tasks are drawn."""


def select(
    env: str,
    offered: Mapping[int, Sequence[str]],
    tiers: Sequence[int],
    families: Sequence[str] = (),
    tools: Collection[str] = (),
    needs: Mapping[str, Collection[str]] | None = None,
) -> list[Pair]:
    """The pairs of these tiers that are among `families` and can be done with `tools`, in the order of `offered`.

    Args:
        env: name of the environment, for the message.
        offered: tier -> all of its families.
        tiers: which of them.
        families: the names to keep; all when empty. Names of other tiers are no mistake.
        tools: the tools that there are; any when empty.
        needs: family -> the tools without which it cannot be done.

    Raises:
        UnknownNameError: no tier offers a family of this name.
        UsageError: nothing is left.
    """
    known = {family for names in offered.values() for family in names}
    for family in families:
        if family not in known:
            raise UnknownNameError.of(f"family of environment '{env}'", family, known)
    named = [(tier, name) for tier in tiers for name in offered[tier] if not families or name in families]
    able = [(tier, name) for tier, name in named if not tools or set((needs or {}).get(name, ())) <= set(tools)]
    if named and not able:
        raise UsageError(f"No such family of '{env}' in tiers {list(tiers)} can be done with {', '.join(tools)} alone.")
    if not named:
        raise UsageError(f"No family of '{env}' in tiers {list(tiers)} is among {list(families)}.")
    return able


def draw_tasks(
    env: str,
    generate: Callable[[str, int, Random, str], Task],
    pairs: Sequence[Pair],
    split: str,
    n: int,
    seed: int,
    *,
    tools: tuple[str, ...] = (),
) -> list[Task]:
    """`n` different tasks of a split, the pairs in turn; the same seed gives the same tasks.

    Args:
        env: name of the environment; a part of the streams' names.
        generate: (family, tier, stream, split) -> task.
        pairs: which families of which tiers.
        split: 'train' or 'eval'.
        n: how many.
        seed: of the tasks.
        tools: what each task may use; its own where empty.

    Raises:
        UsageError: there is no such split.
        TaskError: the families give fewer different tasks.
    """
    if split not in _SIZES:
        raise UsageError(f"Unknown split '{split}'. Known: eval, train.")
    chosen = list(pairs)
    stream(seed, env, split).shuffle(chosen)
    drawn: dict[str, Task] = {}
    for attempt in range(20 * n):
        tier, family = chosen[attempt % len(chosen)]
        task = generate(family, tier, stream(seed, env, split, attempt), split)
        task = msgspec.structs.replace(task, tools=tools) if tools else task
        drawn.setdefault(task.fingerprint, task)
        if len(drawn) == n:
            return list(drawn.values())
    raise TaskError(
        f"Environment '{env}' has only {len(drawn)} different tasks of {n} in split '{split}'. Ask for fewer "
        f"({_SIZES[split]} in a recipe, --tasks of a command), let generate() draw from more content, or hand a fixed "
        "list out by written_tasks(), for evaluation alone (ferrata eval --written)."
    )
