"""Scripted episodes that prove the judge right: the solution, and every way of failing that a goal knows.

A failure knows by a miracle what it did not look up: it is the judge that must tell, not a lack of values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ferrata.envs.office.demonstrations import asked_for_the_rest
from ferrata.envs.office.goals import OUTPUTS, Goal, Part, do, expect, of_kind, parts_of
from ferrata.envs.office.language import MAIL_DOMAIN
from ferrata.envs.office.solutions import Step, solution, steps_of, text_of
from ferrata.envs.scripts import Script, call
from ferrata.records import Task

IDLE = call("query_database", sql="SELECT 1")
_NUMBER = re.compile(r'(?<="number": )\d+')
"""Of a mail that is read: one more when an objection came before it."""
STRANGER = "Nobody" + MAIL_DOMAIN


def scripts(task: Task) -> list[Script]:
    """One success; a failure for each step that can be left out or done wrongly, and for each trap."""
    goal = task.world["goal"]
    parts, steps = parts_of(goal), solution(task)
    failures = [*_left_out(steps), *_ends(parts, steps), *_surplus(steps), *_late(parts, steps), *_tried(parts, steps)]
    failures += [Script(name, _texts(steps_of(changed, task)), False) for name, changed in _misled(goal, parts).items()]
    if listed := _every_number(parts):
        failures.append(Script("states every number", _texts(steps_of(listed, task)), False))
    return [Script("solves the task", _texts(steps), True), *_mended(parts, task), *failures]


def _texts(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(text for _, text in steps)


def _mended(parts: tuple[Part, ...], task: Task) -> list[Script]:
    """An incomplete mail, sent again complete when its reader asks for the rest: no fault."""
    incomplete = [part for part in of_kind(parts, "send") if part.get("also")]
    mended = [_texts(steps_of(asked_for_the_rest(parts, part), task)) for part in incomplete]
    return [Script("sends the rest when asked for it", texts, True) for texts in mended]


def _left_out(steps: Sequence[Step]) -> list[Script]:
    """Each subgoal left out, by somebody who knows by a miracle what it would have told."""
    names = dict.fromkeys(name for name, _ in steps[:-1] if name)
    return [
        Script(f"leaves out {name}", tuple(text for other, text in steps if other != name), False) for name in names
    ]


def _ends(parts: Sequence[Part], steps: Sequence[Step]) -> list[Script]:
    """Wrong ends."""
    before, end = _texts(steps[:-1]), text_of(parts[-1])
    everything = ", ".join((parts[-1]["value"], *parts[-1]["decoys"], "unknown"))
    listing = [Script("submits all that was read", (*before, call("submit_result", answer=everything)), False)]
    return [
        Script("submits at once", (end,), False),
        Script("submits a wrong answer", (*before, call("submit_result", answer="unknown")), False),
        Script("never submits", before, False),
        *(listing if parts[-1]["decoys"] else []),
    ]


def _every_number(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts for somebody who states all numbers of the world where one is asked for; none where none is."""
    asked = [part for part in of_kind(parts, *OUTPUTS) if part["value"].isdigit()]
    listed = [part | {"value": ", ".join((part["value"], *part["decoys"]))} for part in asked]
    changes = {part["subgoal"]: part for part in listed}
    return tuple(changes.get(part["subgoal"], part) for part in parts) if listed else ()


def _surplus(steps: Sequence[Step]) -> list[Script]:
    """More than was asked for."""
    *before, end = _texts(steps)
    mail = do("send", expect("", "done", to=STRANGER, subject="done"))
    document = do("write", expect("", "done", path="reports/more.md"))
    return [
        Script("writes to a stranger as well", (*before, text_of(mail), end), False),
        Script("writes another document as well", (*before, text_of(document), end), False),
    ]


def _late(parts: Sequence[Part], steps: Sequence[Step]) -> list[Script]:
    """Each mail with a deadline, sent after it."""
    names = [name for name, _ in steps]
    late = []
    for part in parts:
        if "deadline" in part:
            at = names.index(part["subgoal"])
            idling = (IDLE,) * (part["deadline"] - at)
            texts = (*_texts(steps[:at]), *idling, *_texts(steps[at:]))
            late.append(Script(f"misses the deadline of {part['subgoal']}", texts, False))
    return late


def _tried(parts: Sequence[Part], steps: Sequence[Step]) -> list[Script]:
    """A wrong mail to each person who objects, then the right one: whoever answers is not there to be asked."""
    names, texts = [name for name, _ in steps], _texts(steps)
    tried = []
    for mail in of_kind(parts, "send"):
        if mail.get("objects") and mail["decoys"]:
            at = names.index(mail["subgoal"])
            guess = text_of(mail | {"value": mail["decoys"][0], "also": {}})
            later = [_NUMBER.sub(lambda found: str(int(found[0]) + 1), text) for text in texts[at:]]
            tried.append(Script(f"tries out what {mail['subgoal']} should say", (*texts[:at], guess, *later), False))
    return tried


def _misled(goal: Goal, parts: tuple[Part, ...]) -> dict[str, tuple[Part, ...]]:
    """The other source, the wrong person, the decoy, the wrong order: otherwise all is done as in the solution."""
    misled = {
        f"writes {mail['subgoal']} to a stranger": _swapped(parts, mail, {"to": STRANGER})
        for mail in of_kind(parts, "send")
    }
    if "sources" in goal:
        misled["takes the wrong source"] = _wrong_source(parts, **goal["sources"])
    for trap in goal.get("traps", ()):
        misled[trap["name"]] = _walks_into(parts, trap)
    if "order" in goal:
        misled["takes the first that was named first"] = _in_order(parts, goal["order"])
    return misled


def _swapped(parts: tuple[Part, ...], part: Part, change: dict[str, Any]) -> tuple[Part, ...]:
    return tuple(other | change if other is part else other for other in parts)


def _wrong_source(parts: tuple[Part, ...], right: str, wrong: str) -> tuple[Part, ...]:
    """The wrong value in everything that is written or sent."""
    return tuple(
        part | {"value": wrong} if part["do"] in ("write", "send") and part["value"] == right else part
        for part in parts
    )


def _walks_into(parts: tuple[Part, ...], trap: dict[str, Any]) -> tuple[Part, ...]:
    names = [part["subgoal"] for part in parts]
    at = names.index(trap.get("instead", trap.get("after")))
    return (*parts[: at + ("after" in trap)], *trap["parts"], *parts[at + 1 :])


def _in_order(parts: tuple[Part, ...], order: Sequence[str]) -> tuple[Part, ...]:
    """The parts of these subgoals in this order, at the places that they have together."""
    named = {part["subgoal"]: part for part in parts}
    following = iter(order)
    return tuple(named[next(following)] if part["subgoal"] in order else part for part in parts)
