"""The task families of the office: what is asked, in which world, and what must come of it.

Each family is one function from a `WorldDraw` to a `Draft`: `tier1`, `tier2` and `tier3` hold them, `drafting` what
they share. The draft's `goal` is declarative (see `goals`). The judge reads nothing else, the outside roles answer by
it, and the demonstrations follow it step by step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ferrata.envs.office import tier1, tier2, tier3
from ferrata.envs.office.drafting import Draft, Family
from ferrata.envs.office.goals import of_kind, parts_of, subgoals_of
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
"""Stage of the curriculum -> its tools (SPEC ENV-10)."""

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
    subgoals = subgoals_of(draft.goal)
    return Task(
        env="office",
        family=family,
        tier=tier,
        split=split,
        instruction=template.format(**draft.slots),
        world={**draw.content(), "goal": draft.goal},
        subgoals=subgoals,
        max_turns=len(subgoals) + stream.randint(*SPARE_TURNS[tier]),
        tools=NEEDS[family] if stage == "full" else _STANDARD,
        permissions=_permissions(draft) if tier == 3 else None,
    )


def _permissions(draft: Draft) -> Permissions:
    """Least privilege of a long task: the tables that it asks about, notes, reports, colleagues."""
    parts: list[dict[str, Any]] = of_kind(parts_of(draft.goal), "query")
    return Permissions(
        read=("notes/*", "reports/*"),
        write=("reports/*",),
        tables=tuple(sorted({part["table"] for part in parts})),
        recipients=(f"*{MAIL_DOMAIN}",),
        forbidden=draft.forbidden,
    )
