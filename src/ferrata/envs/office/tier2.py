"""Families of tier 2: four to six subgoals. Some add one tool each to those that tier 1 uses."""

from __future__ import annotations

from ferrata.envs.office import drafting
from ferrata.envs.office.drafting import Draft, Family, asked_cell, levels, note, pair, pointer, report_and_mail, row
from ferrata.envs.office.goals import DONE, do, expect, message, query, read
from ferrata.envs.office.phrases import TABLES
from ferrata.envs.office.world import WorldDraw


def report(draw: WorldDraw) -> Draft:
    """Look up, write the report, send it."""
    slots, lookup, decoys = row(draw)
    more, goal = report_and_mail(draw, slots["field"], lookup["value"], decoys)
    return Draft(slots | more, {"lookups": [lookup], **goal})


def compare_report(draw: WorldDraw) -> Draft:
    """Look up, compare, write the report, send the mail."""
    slots, lookups, wanted, other = pair(draw)
    more, goal = report_and_mail(draw, slots["field"], wanted, [other])
    return Draft(slots | more, {"lookups": lookups, "compare": slots["order"], **goal})


def pointer_report(draw: WorldDraw) -> Draft:
    """Read whom to look up, look up, write, send."""
    slots, lookups, value, decoys = pointer(draw)
    more, goal = report_and_mail(draw, slots["field"], value, decoys)
    return Draft(slots | more, {"lookups": lookups, **goal})


def approval(draw: WorldDraw) -> Draft:
    """Ask for approval by mail, write the document meanwhile, submit the code that comes back."""
    slots, lookup, decoys = note(draw)
    more, goal = report_and_mail(draw, slots["field"], lookup["value"], decoys)
    code = draw.number(1000, 10000)
    reply = {"subgoal": "answered", "code": code, "delay": 1}
    goal |= {"reply": reply, "answer": expect("submitted", code, [lookup["value"], *decoys])}
    return Draft(slots | more, {"lookups": [lookup], **goal})


def reorder(draw: WorldDraw) -> Draft:
    """Compare the table with the note, decide, write, send."""
    x = draw.name()
    stock, minimum, verdict, other = levels(draw)
    draw.add_row("items", x, stock=stock)
    draw.add_note(x, minimum=minimum)
    lookups = [query("found", "items", x, "stock", stock), read("read", x, "minimum", minimum)]
    more, goal = report_and_mail(draw, "stock", verdict, [other])
    return Draft({"x": x, "table": "items"} | more, {"lookups": lookups, "levels": [stock, minimum], **goal})


def send_to_owner(draw: WorldDraw) -> Draft:
    """Find out who must be told, read what, tell them before a deadline."""
    slots, lookup, decoys = note(draw)
    x, table, asked, person = slots["x"], draw.table(), draw.name_field(), draw.name()
    draw.add_row(table, x, **{asked: person})
    deadline = draw.stream.randint(4, 9)
    goal = {
        "lookups": [query("found", table, x, asked, person), lookup],
        "message": message(person, slots["field"], lookup["value"], decoys, deadline=deadline),
        "answer": DONE,
    }
    return Draft(slots | {"table": table, "pointer": asked, "deadline": str(deadline)}, goal)


def two_numbers(draw: WorldDraw) -> Draft:
    """Look two columns up, send both; somebody who gets one of them asks for the other."""
    slots, first, _ = asked_cell(draw)
    x, table, p = slots["x"], slots["table"], draw.name()
    other = draw.stream.choice([column for column in TABLES[table] if column != slots["field"]])
    second = do("query", query("found_2", table, x, other, draw.rows[table][x][other]))
    values = (first["value"], second["value"])
    decoys = [cell for cell in draw.rows[table][x].values() if cell not in values]
    asking = drafting.asking(p, slots["field"], values[0], decoys, also={other: values[1]}, shown=True)
    parts = [first | {"subgoal": "found_1"}, second, asking, drafting.submitted()]
    return Draft(slots | {"other": other, "p": p}, {"parts": parts})


def read_reply(draw: WorldDraw) -> Draft:
    """Ask for approval, wait for the reply, read it, write down the code."""
    slots, lookup, decoys = note(draw)
    r, p, code = draw.name(), draw.name(), draw.number(1000, 10000)
    value = lookup["value"]
    parts = [
        do("read", lookup),
        drafting.asking(p, slots["field"], value, decoys),
        drafting.answered("code", code, draw.stream.randint(0, 2)),
        drafting.written(r, code, [value, *decoys]),
        drafting.submitted(),
    ]
    return Draft(slots | {"r": r, "p": p, "key": "code"}, {"parts": parts})


def find_note(draw: WorldDraw) -> Draft:
    """Search for the note that names somebody, read it, write, send."""
    slots, lookup, decoys = note(draw)
    y, r, p = draw.name(), draw.name(), draw.name()
    draw.sign_note(slots["x"], y)
    value = lookup["value"]
    parts = [
        do("search", {"subgoal": "searched", "text": y, "paths": [lookup["path"]]}),
        do("read", lookup),
        drafting.written(r, value, [y, *decoys]),
        drafting.sent(p, slots["field"], value, [y, *decoys]),
        drafting.submitted(),
    ]
    return Draft({"field": slots["field"], "y": y, "r": r, "p": p}, {"parts": parts})


def renew_report(draw: WorldDraw) -> Draft:
    """Look up, find the report that is there already, replace what it says, send."""
    slots, lookup, decoys = asked_cell(draw)
    r, p, value = draw.add_report(), draw.name(), lookup["value"]
    parts = [
        lookup,
        do("listing", {"subgoal": "listed", "folder": "reports", "paths": [f"reports/{r}.md"]}),
        drafting.written(r, value, decoys),
        drafting.sent(p, slots["field"], value, decoys),
        drafting.submitted(),
    ]
    return Draft(slots | {"p": p}, {"parts": parts})


def calendar_mail(draw: WorldDraw) -> Draft:
    """Look up, see in the calendar until when, send in time."""
    slots, lookup, decoys = asked_cell(draw)
    p, deadline = draw.name(), draw.stream.randint(6, 9)
    parts = [
        do("deadlines", {"subgoal": "checked"}),
        lookup,
        drafting.sent(p, slots["field"], lookup["value"], decoys, deadline=deadline),
        drafting.submitted(),
    ]
    return Draft(slots | {"p": p}, {"parts": parts})


FAMILIES: dict[str, tuple[str, Family]] = {
    "report": ("standard", report),
    "compare_report": ("standard", compare_report),
    "pointer_report": ("standard", pointer_report),
    "approval": ("standard", approval),
    "reorder": ("standard", reorder),
    "send_to_owner": ("standard", send_to_owner),
    "two_numbers": ("standard", two_numbers),
    "read_reply": ("full", read_reply),
    "find_note": ("full", find_note),
    "renew_report": ("full", renew_report),
    "calendar_mail": ("full", calendar_mail),
}
"""Name -> the tool set that the family needs, and the family."""
