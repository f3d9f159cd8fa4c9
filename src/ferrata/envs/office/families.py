"""The task families of the office: what is asked, in which world, and what must come of it.

Each family is one function from a `WorldDraw` to a `Draft`. The draft's `goal` is declarative: which
lookups must be made, which document written, which message sent, which answer submitted. The judge reads
nothing else, and the demonstrations follow the same goal step by step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ferrata.envs.office.language import MAIL_DOMAIN
from ferrata.envs.office.phrases import INSTRUCTIONS
from ferrata.envs.office.world import WorldDraw
from ferrata.records import Task

Goal = dict[str, Any]
"""{"lookups": [...], "document": {...}?, "message": {...}?, "answer": {...}}, each with its subgoal's name."""


@dataclass(frozen=True)
class Draft:
    """What a family decides about one task."""

    slots: dict[str, str]
    """Values for the placeholders of the instruction."""
    goal: Goal


def read(subgoal: str, subject: str, field: str, value: str) -> dict[str, Any]:
    """A note that must be read."""
    return {"subgoal": subgoal, "path": f"notes/{subject}.txt", "field": field, "value": value}


def query(subgoal: str, table: str, name: str, field: str, value: str) -> dict[str, Any]:
    """A cell that must be looked up in a table."""
    return {"subgoal": subgoal, "table": table, "name": name, "field": field, "value": value}


def expect(subgoal: str, value: str, decoys: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Text that must state `value` and none of `decoys`."""
    return {"subgoal": subgoal, "value": value, "decoys": decoys or [], **more}


def document(report: str, value: str, decoys: list[str]) -> dict[str, Any]:
    """A report that must be written."""
    return expect("written", value, decoys, path=f"reports/{report}.md")


def message(person: str, subject: str, value: str, decoys: list[str], **more: Any) -> dict[str, Any]:
    """A message that must be sent; `subject` is what the demonstrations put there."""
    return expect("sent", value, decoys, to=person + MAIL_DOMAIN, subject=subject, **more)


DONE = expect("submitted", "done")


# Tier 1: two or three subgoals ----------------------------------------------------------------------------------


def _note(draw: WorldDraw, lookups: str = "read") -> tuple[dict[str, str], dict[str, Any], list[str]]:
    """A note with one asked field: slots, lookup and decoys."""
    x, field, value = draw.name(), draw.number_field(), draw.number()
    draw.add_note(x, **{field: value})
    decoys = [other for other in draw.notes[x].values() if other != value]
    return {"x": x, "field": field}, read(lookups, x, field, value), decoys


def _row(draw: WorldDraw) -> tuple[dict[str, str], dict[str, Any], list[str]]:
    """A row with one asked column: slots, lookup and decoys."""
    x, table = draw.name(), draw.table()
    field, value = draw.column(table), draw.number()
    draw.add_row(table, x, **{field: value})
    decoys = [other for other in draw.rows[table][x].values() if other != value]
    return {"x": x, "table": table, "field": field}, query("found", table, x, field, value), decoys


def _submit(slots: dict[str, str], lookup: dict[str, Any], decoys: list[str], draw: WorldDraw) -> Draft:
    return Draft(slots, {"lookups": [lookup], "answer": expect("submitted", lookup["value"], decoys)})


def _mail(slots: dict[str, str], lookup: dict[str, Any], decoys: list[str], draw: WorldDraw) -> Draft:
    p = draw.name()
    sent = message(p, slots["field"], lookup["value"], decoys)
    return Draft(slots | {"p": p}, {"lookups": [lookup], "message": sent, "answer": DONE})


def _write(slots: dict[str, str], lookup: dict[str, Any], decoys: list[str], draw: WorldDraw) -> Draft:
    r = draw.name()
    written = document(r, lookup["value"], decoys)
    return Draft(slots | {"r": r}, {"lookups": [lookup], "document": written, "answer": DONE})


def _pointer(draw: WorldDraw) -> tuple[dict[str, str], list[dict[str, Any]], str, list[str]]:
    """A note that names whom to look up: slots, both lookups, the value, decoys."""
    x, y, pointer, table = draw.name(), draw.name(), draw.name_field(), draw.table()
    field, value = draw.column(table), draw.number()
    draw.add_note(x, **{pointer: y})
    draw.add_row(table, y, **{field: value})
    lookups = [read("read", x, pointer, y), query("found", table, y, field, value)]
    decoys = [*draw.notes[x].values(), *(v for v in draw.rows[table][y].values() if v != value)]
    return {"x": x, "pointer": pointer, "field": field, "table": table}, lookups, value, decoys


def follow_pointer(draw: WorldDraw) -> Draft:
    """Read a name in a note, look that name up."""
    slots, lookups, value, decoys = _pointer(draw)
    return Draft(slots, {"lookups": lookups, "answer": expect("submitted", value, decoys)})


def _comparison(draw: WorldDraw) -> tuple[dict[str, str], list[dict[str, Any]], str, str]:
    """Two rows whose column is compared: slots, lookups, the name asked for, the other one."""
    low, high = draw.apart()
    table, order = draw.table(), draw.stream.choice(("lower", "higher"))
    field, values = draw.column(table), [low, high]
    draw.stream.shuffle(values)
    x, y = draw.name(), draw.name()
    for name, value in zip((x, y), values, strict=True):
        draw.add_row(table, name, **{field: value})
    lookups = [query(f"found_{i}", table, n, field, v) for i, (n, v) in enumerate(zip((x, y), values, strict=True), 1)]
    wanted = x if (values[0] == low) == (order == "lower") else y
    other = y if wanted == x else x
    return {"x": x, "y": y, "table": table, "field": field, "order": order}, lookups, wanted, other


def compare_rows(draw: WorldDraw) -> Draft:
    """Look two names up, submit the one with the lower or higher value."""
    slots, lookups, wanted, other = _comparison(draw)
    return Draft(slots, {"lookups": lookups, "compare": slots["order"], "answer": expect("submitted", wanted, [other])})


def check_level(draw: WorldDraw) -> Draft:
    """Decide from one note whether stock is under minimum."""
    x = draw.name()
    stock, minimum, verdict, other = _levels(draw)
    draw.add_note(x, stock=stock, minimum=minimum)
    lookups = [read("read", x, "stock", stock)]
    goal = {"lookups": lookups, "levels": [stock, minimum], "answer": expect("submitted", verdict, [other])}
    return Draft({"x": x}, goal)


def _levels(draw: WorldDraw) -> tuple[str, str, str, str]:
    """Stock, minimum, the right verdict, the wrong one."""
    low, high = draw.apart()
    if draw.stream.random() < 0.5:
        return low, high, "order", "wait"
    return high, low, "wait", "order"


# Tier 2: four to six subgoals -----------------------------------------------------------------------------------


def _report(draw: WorldDraw, subject: str, value: str, decoys: list[str]) -> tuple[dict[str, str], Goal]:
    """Write, send, submit done: the end of most longer tasks."""
    r, p = draw.name(), draw.name()
    goal = {"document": document(r, value, decoys), "message": message(p, subject, value, decoys), "answer": DONE}
    return {"r": r, "p": p}, goal


def report(draw: WorldDraw) -> Draft:
    """Look up, write the report, send it."""
    slots, lookup, decoys = _row(draw)
    more, goal = _report(draw, slots["field"], lookup["value"], decoys)
    return Draft(slots | more, {"lookups": [lookup], **goal})


def compare_report(draw: WorldDraw) -> Draft:
    """Look up, compare, write the report, send the mail."""
    slots, lookups, wanted, other = _comparison(draw)
    more, goal = _report(draw, slots["field"], wanted, [other])
    return Draft(slots | more, {"lookups": lookups, "compare": slots["order"], **goal})


def pointer_report(draw: WorldDraw) -> Draft:
    """Read whom to look up, look up, write, send."""
    slots, lookups, value, decoys = _pointer(draw)
    more, goal = _report(draw, slots["field"], value, decoys)
    return Draft(slots | more, {"lookups": lookups, **goal})


def approval(draw: WorldDraw) -> Draft:
    """Ask for approval by mail, write the document meanwhile, submit the code that comes back."""
    slots, lookup, decoys = _note(draw)
    more, goal = _report(draw, slots["field"], lookup["value"], decoys)
    code = draw.number(1000, 10000)
    reply = {"subgoal": "answered", "code": code, "delay": 1}
    goal |= {"reply": reply, "answer": expect("submitted", code, [lookup["value"], *decoys])}
    return Draft(slots | more, {"lookups": [lookup], **goal})


def reorder(draw: WorldDraw) -> Draft:
    """Compare the table with the note, decide, write, send."""
    x = draw.name()
    stock, minimum, verdict, other = _levels(draw)
    draw.add_row("items", x, stock=stock)
    draw.add_note(x, minimum=minimum)
    lookups = [query("found", "items", x, "stock", stock), read("read", x, "minimum", minimum)]
    more, goal = _report(draw, "stock", verdict, [other])
    return Draft({"x": x, "table": "items"} | more, {"lookups": lookups, "levels": [stock, minimum], **goal})


def send_to_owner(draw: WorldDraw) -> Draft:
    """Find out who must be told, read what, tell them before a deadline."""
    slots, lookup, decoys = _note(draw)
    x, table, pointer, person = slots["x"], draw.table(), draw.name_field(), draw.name()
    draw.add_row(table, x, **{pointer: person})
    deadline = draw.stream.randint(4, 9)
    goal = {
        "lookups": [query("found", table, x, pointer, person), lookup],
        "message": message(person, slots["field"], lookup["value"], decoys, deadline=deadline),
        "answer": DONE,
    }
    return Draft(slots | {"table": table, "pointer": pointer, "deadline": str(deadline)}, goal)


Family = Callable[[WorldDraw], Draft]

FAMILIES: dict[str, Family] = {
    "read_value": lambda draw: _submit(*_note(draw), draw),
    "query_value": lambda draw: _submit(*_row(draw), draw),
    "mail_note": lambda draw: _mail(*_note(draw), draw),
    "mail_query": lambda draw: _mail(*_row(draw), draw),
    "write_note": lambda draw: _write(*_note(draw), draw),
    "write_query": lambda draw: _write(*_row(draw), draw),
    "follow_pointer": follow_pointer,
    "compare_rows": compare_rows,
    "check_level": check_level,
    "report": report,
    "compare_report": compare_report,
    "pointer_report": pointer_report,
    "approval": approval,
    "reorder": reorder,
    "send_to_owner": send_to_owner,
}

TIERS: dict[int, tuple[str, ...]] = {1: tuple(FAMILIES)[:9], 2: tuple(FAMILIES)[9:]}

SPARE_TURNS = {1: (8, 12), 2: (16, 24)}
"""How many turns a task may take beyond its number of subgoals: caps of 10-15 and 20-30 turns."""


def generate(family: str, tier: int, stream: random.Random, split: str) -> Task:
    """One office task of a family."""
    draw = WorldDraw(stream, split)
    draft = FAMILIES[family](draw)
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
    )


def _with_every_number_a_decoy(goal: Goal, used: set[str]) -> Goal:
    """The goal, with all other numbers of the world as decoys where a number is asked for: a column is no answer."""
    numbers = {value for value in used if value.isdigit()}
    asked = {part: goal[part] for part in ("document", "message", "answer") if part in goal}
    return goal | {
        part: wanted | {"decoys": sorted(numbers - {wanted["value"]})}
        for part, wanted in asked.items()
        if wanted["value"].isdigit()
    }


def subgoals_of(goal: Goal) -> tuple[str, ...]:
    """Names of the subgoals of a goal, in their usual order."""
    order = ("message", "document", "reply", "answer") if "reply" in goal else ("document", "message", "answer")
    parts = [*goal["lookups"], *(goal[part] for part in order if part in goal)]
    return tuple(part["subgoal"] for part in parts)
