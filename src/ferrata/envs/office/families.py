"""The task families of the office: what is asked, in which world, and what must come of it.

Each family is one function from a `WorldDraw` to a `Draft`: `tier1`, `tier2` and `tier3` hold them, `drafting` what
they share. The draft's `goal` is declarative (see `goals`). The judge reads nothing else, the outside roles answer by
it, and the demonstrations follow it step by step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from ferrata.envs.office import tier1, tier2, tier3
from ferrata.envs.office.drafting import Draft, Family
from ferrata.envs.office.goals import OUTPUTS, Goal, Part, of_kind, parts_of, subgoals_of, values_of
from ferrata.envs.office.language import MAIL_DOMAIN
from ferrata.envs.office.phrases import INSTRUCTIONS
from ferrata.envs.office.world import WorldDraw
from ferrata.records import Permissions, Task

_BASIC = ("read_file", "query_database", "submit_result")
_STANDARD = ("read_file", "query_database", "edit_document", "send_message", "submit_result")
TOOL_SETS: dict[str, tuple[str, ...]] = {
    "basic": _BASIC,
    "standard": _STANDARD,
    "full": (*_STANDARD, "list_files", "search_files", "read_messages", "calendar"),
}
"""Stage of the curriculum -> its tools."""

_TABLES: dict[int, Mapping[str, tuple[str, Family]]] = {1: tier1.FAMILIES, 2: tier2.FAMILIES, 3: tier3.FAMILIES}
TIERS: dict[int, tuple[str, ...]] = {tier: tuple(table) for tier, table in _TABLES.items()}
"""Tier -> names of its families. New ones are added behind: the order decides which tasks a seed draws."""
NEEDS: dict[str, tuple[str, ...]] = {
    name: TOOL_SETS[stage] for table in _TABLES.values() for name, (stage, _) in table.items()
}
"""Family -> the tools without which it cannot be done."""

SPARE_TURNS = {1: (8, 12), 2: (16, 24), 3: (32, 48)}
"""How many turns a task may take beyond its number of subgoals: caps of 10-15, 20-30 and 40-60 turns."""


def generate(family: str, tier: int, stream: random.Random, split: str) -> Task:
    """One office task of a family."""
    stage, drawn = _TABLES[tier][family]
    draw = WorldDraw(stream, split)
    draft = drawn(draw)
    template = stream.choice(INSTRUCTIONS[family])
    world = draw.content()
    goal = _with_every_number_a_decoy(draft.goal, draw.used)
    subgoals = subgoals_of(goal)
    return Task(
        env="office",
        family=family,
        tier=tier,
        split=split,
        instruction=template.format(**draft.slots),
        world={**world, "goal": goal},
        subgoals=subgoals,
        max_turns=len(subgoals) + stream.randint(*SPARE_TURNS[tier]),
        tools=NEEDS[family] if stage == "full" else _STANDARD,
        permissions=_permissions(draft, tier),
    )


def _with_every_number_a_decoy(goal: Goal, used: set[str]) -> Goal:
    """The goal, with all other numbers of the world as decoys where a number is asked for: a column is no answer."""
    numbers = {value for value in used if value.isdigit()}

    def strict(part: Part) -> Part:
        values = values_of(part)
        return part | {"decoys": sorted(numbers.difference(values))} if values[0].isdigit() else part

    if "parts" in goal:
        return goal | {"parts": [strict(part) if part["do"] in OUTPUTS else part for part in goal["parts"]]}
    return goal | {name: strict(goal[name]) for name in ("document", "message", "answer") if name in goal}


def _permissions(draft: Draft, tier: int) -> Permissions:
    """Least privilege: colleagues alone get mail; a long task reads notes, reports and the tables it asks about."""
    recipients = (f"*{MAIL_DOMAIN}",)
    if tier < 3:
        return Permissions(recipients=recipients)
    asked = of_kind(parts_of(draft.goal), "query")
    return Permissions(
        read=("notes/*", "reports/*"),
        write=("reports/*",),
        tables=tuple(sorted({part["table"] for part in asked})),
        recipients=recipients,
        forbidden=draft.forbidden,
    )
