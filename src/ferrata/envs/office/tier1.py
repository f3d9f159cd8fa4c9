"""Families of tier 1: two or three subgoals."""

from __future__ import annotations

from ferrata.envs.office.drafting import Draft, Family, Slots, levels, note, pair, pointer, row
from ferrata.envs.office.goals import DONE, Part, document, expect, message, read
from ferrata.envs.office.world import WorldDraw


def _submit(slots: Slots, lookup: Part, decoys: list[str], draw: WorldDraw) -> Draft:
    return Draft(slots, {"lookups": [lookup], "answer": expect("submitted", lookup["value"], decoys)})


def _mail(slots: Slots, lookup: Part, decoys: list[str], draw: WorldDraw) -> Draft:
    p = draw.name()
    sent = message(p, slots["field"], lookup["value"], decoys)
    return Draft(slots | {"p": p}, {"lookups": [lookup], "message": sent, "answer": DONE})


def _write(slots: Slots, lookup: Part, decoys: list[str], draw: WorldDraw) -> Draft:
    r = draw.name()
    written = document(r, lookup["value"], decoys)
    return Draft(slots | {"r": r}, {"lookups": [lookup], "document": written, "answer": DONE})


def follow_pointer(draw: WorldDraw) -> Draft:
    """Read a name in a note, look that name up."""
    slots, lookups, value, decoys = pointer(draw)
    return Draft(slots, {"lookups": lookups, "answer": expect("submitted", value, decoys)})


def compare_rows(draw: WorldDraw) -> Draft:
    """Look two names up, submit the one with the lower or higher value."""
    slots, lookups, wanted, other = pair(draw)
    return Draft(slots, {"lookups": lookups, "compare": slots["order"], "answer": expect("submitted", wanted, [other])})


def check_level(draw: WorldDraw) -> Draft:
    """Decide from one note whether stock is under minimum."""
    x = draw.name()
    stock, minimum, verdict, other = levels(draw)
    draw.add_note(x, stock=stock, minimum=minimum)
    lookups = [read("read", x, "stock", stock)]
    goal = {"lookups": lookups, "levels": [stock, minimum], "answer": expect("submitted", verdict, [other])}
    return Draft({"x": x}, goal)


FAMILIES: dict[str, tuple[str, Family]] = {
    "read_value": ("basic", lambda draw: _submit(*note(draw), draw)),
    "query_value": ("basic", lambda draw: _submit(*row(draw), draw)),
    "mail_note": ("standard", lambda draw: _mail(*note(draw), draw)),
    "mail_query": ("standard", lambda draw: _mail(*row(draw), draw)),
    "write_note": ("standard", lambda draw: _write(*note(draw), draw)),
    "write_query": ("standard", lambda draw: _write(*row(draw), draw)),
    "follow_pointer": ("basic", follow_pointer),
    "compare_rows": ("basic", compare_rows),
    "check_level": ("basic", check_level),
}
"""Name -> the tool set that the family needs, and the family."""
