"""What must come of a task: an ordered list of parts, each with the subgoal that it reaches.

    read, query, listing, search, deadlines, mail    something to find out
    write, send                                       something to leave behind; the last word on a path counts
    reply                                             the answer of the person who got a mail
    submit                                            the end

A goal is JSON-ready and says everything that the judge, the outside roles, the solution and the scripted failures
need. `parts_of` reads it, also where it is written short, as the first families do it: lookups, then at most one
document, one message with its reply, and the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ferrata.envs.office.language import MAIL_DOMAIN

Goal = dict[str, Any]
"""{"parts": [...]}, or short: {"lookups": [...], "document"?: {...}, "message"?, "reply"?, "answer": {...}}.

For the scripted failures it may also say which value is `right` and which `wrong` where `sources` disagree, which
`traps` there are (wrong parts `after` or `instead` of one), and which `order` of parts is too slow.
"""
Part = dict[str, Any]
"""{"do": kind, "subgoal": name, ...}; the functions below name the rest. The name is empty for a step that may help,
but that no success needs."""

LOOKUPS = frozenset(("read", "query", "listing", "search", "deadlines", "mail"))
"""Kinds of parts that find something out."""
OUTPUTS = frozenset(("write", "send", "submit"))
"""Kinds of parts that state something."""


# Parts ----------------------------------------------------------------------------------------------------------


def read(subgoal: str, subject: str, field: str, value: str, **more: Any) -> Part:
    """A note that must be read."""
    return {"subgoal": subgoal, "path": f"notes/{subject}.txt", "field": field, "value": value, **more}


def query(subgoal: str, table: str, name: str, field: str, value: str) -> Part:
    """A cell that must be looked up in a table."""
    return {"subgoal": subgoal, "table": table, "name": name, "field": field, "value": value}


def expect(subgoal: str, value: str, decoys: list[str] | None = None, **more: Any) -> Part:
    """Text that must state `value`, the values of `also`, and none of `decoys`."""
    return {"subgoal": subgoal, "value": value, "decoys": decoys or [], **more}


def document(report: str, value: str, decoys: list[str], subgoal: str = "written", **more: Any) -> Part:
    """A report that must be written."""
    return expect(subgoal, value, decoys, path=f"reports/{report}.md", **more)


def message(person: str, subject: str, value: str, decoys: list[str], subgoal: str = "sent", **more: Any) -> Part:
    """A message that must be sent; `subject` is what the demonstrations put there.

    `deadline` is the last step in which it counts; `tries` is how many mails to the person are no fault, one unless
    the person objects to a mail that misses something (`objects`). `needs` names the look-ups that it rests on, where
    those are not all that come before.
    """
    return expect(subgoal, value, decoys, to=person + MAIL_DOMAIN, subject=subject, **more)


def reply(subgoal: str, sent: str, field: str, value: str, delay: int, **more: Any) -> Part:
    """The answer to the message of subgoal `sent`, `delay` steps after it: `field: value`, and the fields of `also`.

    It is reached when it is read. With `shown` it is read as soon as it comes.
    """
    return {"subgoal": subgoal, "of": sent, "field": field, "value": value, "delay": delay, **more}


DONE = expect("submitted", "done")


def do(kind: str, part: Part) -> Part:
    """The part, told what kind it is."""
    return {"do": kind, **part}


# Reading goals --------------------------------------------------------------------------------------------------


def parts_of(goal: Goal) -> tuple[Part, ...]:
    """The parts of a goal in their usual order."""
    return tuple(goal["parts"]) if "parts" in goal else tuple(_spelled_out(goal))


def subgoals_of(goal: Goal) -> tuple[str, ...]:
    """Names of the subgoals of a goal, in their usual order."""
    return tuple(part["subgoal"] for part in parts_of(goal) if part["subgoal"])


def fields_of(part: Part) -> dict[str, str]:
    """What a part finds out or states: field -> value."""
    return {part.get("field", part.get("subject", "")): part["value"], **part.get("also", {})}


def values_of(part: Part) -> tuple[str, ...]:
    """All values that a text must state."""
    return (part.get("value", ""), *part.get("also", {}).values())


def uses(part: Part, values: Collection[str]) -> bool:
    """True when a part cannot be done without knowing one of the values."""
    known = (*values_of(part), part.get("name", ""), part.get("text", ""))
    places = f"{part.get('path', '')} {part.get('to', '')}"
    return not set(known).isdisjoint(values) or any(value in places for value in values)


def of_kind(parts: Iterable[Part], *kinds: str) -> list[Part]:
    """The parts of these kinds."""
    return [part for part in parts if part["do"] in kinds]


def _spelled_out(goal: Goal) -> list[Part]:
    """The parts of a goal that is written short."""
    lookups = [do("read" if "path" in lookup else "query", lookup) for lookup in goal["lookups"]]
    lookups[-1] = lookups[-1] | _conclusion(goal)
    written = [do("write", goal["document"])] if "document" in goal else []
    sent = [do("send", goal["message"])] if "message" in goal else []
    answer = do("submit", goal["answer"])
    if "reply" not in goal:
        return [*lookups, *written, *sent, answer]
    answered = reply(
        goal["reply"]["subgoal"], "sent", "code", goal["reply"]["code"], goal["reply"]["delay"], shown=True
    )
    return [*lookups, *sent, *written, do("reply", answered), answer]


def _conclusion(goal: Goal) -> dict[str, str]:
    """The comparison of a goal that is written short, as the conclusion of its last lookup."""
    if "levels" in goal:
        left, right = goal["levels"]
        also = f"minimum: {right} " if len(goal["lookups"]) == 1 else ""
        return {"conclusion": also + comparison(left, right)}
    if "compare" not in goal:
        return {}
    owners = {lookup["value"]: lookup["name"] for lookup in goal["lookups"]}
    return {"conclusion": choice(owners, goal["compare"])}


def comparison(left: str, right: str) -> str:
    """Two numbers compared aloud: `310 < 429`."""
    return f"{left} {_sign(left, right)} {right}"


def choice(owners: Mapping[str, str], order: str) -> str:
    """The one of two with the lower or higher number, found aloud: `310 Belvan < 429 Cortis lower 310 Belvan`.

    Each step is a small one: compare, pick the number that was asked for, say whose it is.

    Args:
        owners: number -> whose it is; two of them.
        order: 'lower' or 'higher'.
    """
    left, right = owners
    chosen = (min if order == "lower" else max)(owners, key=int)
    return f"{left} {owners[left]} {_sign(left, right)} {right} {owners[right]} {order} {chosen} {owners[chosen]}"


def _sign(left: str, right: str) -> str:
    return "<" if int(left) < int(right) else ">"
