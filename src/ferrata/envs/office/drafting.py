"""What the families share: a draft of a task, and the draws that most of them begin or end with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ferrata.envs.office.goals import DONE, Goal, Part, do, document, message, query, read, reply
from ferrata.envs.office.world import WorldDraw

Slots = dict[str, str]


@dataclass(frozen=True)
class Draft:
    """What a family decides about one task."""

    slots: Slots
    """Values for the placeholders of the instruction."""
    goal: Goal
    forbidden: tuple[str, ...] = field(default=())
    """Attempts that end the episode, as `Permissions.forbidden` writes them."""


Family = Callable[[WorldDraw], Draft]


# Beginnings -----------------------------------------------------------------------------------------------------


def note(draw: WorldDraw, subgoal: str = "read") -> tuple[Slots, Part, list[str]]:
    """A note with one asked field: slots, lookup and decoys."""
    x, asked, value = draw.name(), draw.number_field(), draw.number()
    draw.add_note(x, **{asked: value})
    decoys = [other for other in draw.notes[x].values() if other != value]
    return {"x": x, "field": asked}, read(subgoal, x, asked, value), decoys


def row(draw: WorldDraw) -> tuple[Slots, Part, list[str]]:
    """A row with one asked column: slots, lookup and decoys."""
    x, table = draw.name(), draw.table()
    column, value = draw.column(table), draw.number()
    draw.add_row(table, x, **{column: value})
    decoys = [other for other in draw.rows[table][x].values() if other != value]
    return {"x": x, "table": table, "field": column}, query("found", table, x, column, value), decoys


def pointer(draw: WorldDraw) -> tuple[Slots, list[Part], str, list[str]]:
    """A note that names whom to look up: slots, both lookups, the value, decoys."""
    x, y, asked, table = draw.name(), draw.name(), draw.name_field(), draw.table()
    column, value = draw.column(table), draw.number()
    draw.add_note(x, **{asked: y})
    draw.add_row(table, y, **{column: value})
    lookups = [read("read", x, asked, y), query("found", table, y, column, value)]
    decoys = [*draw.notes[x].values(), *(v for v in draw.rows[table][y].values() if v != value)]
    return {"x": x, "pointer": asked, "field": column, "table": table}, lookups, value, decoys


def pair(draw: WorldDraw) -> tuple[Slots, list[Part], str, str]:
    """Two rows whose column is compared: slots, lookups, the name asked for, the other one."""
    low, high = draw.apart()
    table, order = draw.table(), draw.stream.choice(("lower", "higher"))
    column, values = draw.column(table), [low, high]
    draw.stream.shuffle(values)
    x, y = draw.name(), draw.name()
    for name, value in zip((x, y), values, strict=True):
        draw.add_row(table, name, **{column: value})
    lookups = [query(f"found_{i}", table, n, column, v) for i, (n, v) in enumerate(zip((x, y), values, strict=True), 1)]
    wanted = x if (values[0] == low) == (order == "lower") else y
    other = y if wanted == x else x
    return {"x": x, "y": y, "table": table, "field": column, "order": order}, lookups, wanted, other


def levels(draw: WorldDraw) -> tuple[str, str, str, str]:
    """Stock, minimum, the right verdict, the wrong one."""
    low, high = draw.apart()
    if draw.stream.random() < 0.5:
        return low, high, "order", "wait"
    return high, low, "wait", "order"


def asked_cell(draw: WorldDraw) -> tuple[Slots, Part, list[str]]:
    """As `row`, with the kind of the lookup in it."""
    slots, lookup, decoys = row(draw)
    return slots, do("query", lookup), decoys


# Ends -----------------------------------------------------------------------------------------------------------


def report_and_mail(draw: WorldDraw, subject: str, value: str, decoys: list[str]) -> tuple[Slots, Goal]:
    """Write, send, submit done: the end of most shorter tasks."""
    r, p = draw.name(), draw.name()
    goal = {"document": document(r, value, decoys), "message": message(p, subject, value, decoys), "answer": DONE}
    return {"r": r, "p": p}, goal


def written(report: str, value: str, decoys: list[str], subgoal: str = "written") -> Part:
    """The part that writes a report."""
    return do("write", document(report, value, decoys, subgoal))


def sent(person: str, subject: str, value: str, decoys: list[str], subgoal: str = "sent", **more: object) -> Part:
    """The part that sends a mail to somebody who does not answer."""
    return do("send", message(person, subject, value, decoys, subgoal, **more))


def asking(person: str, subject: str, value: str, decoys: list[str], subgoal: str = "sent", **more: object) -> Part:
    """The part that sends a mail to somebody who answers, and who objects to a mail that is wrong or incomplete."""
    return sent(person, subject, value, decoys, subgoal, tries=2, objects=True, **more)


def answered(subject: str, value: str, delay: int, of: str = "sent", subgoal: str = "answered", **more: object) -> Part:
    """The part that reads what came back."""
    return do("reply", reply(subgoal, of, subject, value, delay, **more))


def submitted(part: Part = DONE) -> Part:
    """The part that ends the task."""
    return do("submit", part)
