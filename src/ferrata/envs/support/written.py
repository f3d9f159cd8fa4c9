"""The hand-written tasks: `written/*.toml`, one theme a file, read into tasks.

A task is one `[[task]]` table:

    title, situation     for people
    persona, customer    who writes; `stranger = true` when it is somebody else under that name
    says                 the first request; `answers` key -> sentence when asked; `insist` against a first refusal;
                         `leaves_on` the question at which the customer goes on to the next request
    tell                 what must be told, as `wordings.states` reads it
    after                from what it can be known, earlier nothing is told: look-ups (`tool/another tool: argument`),
                         `wrong PIN: name`, or `asked: pin` where the customer's own answer says it
    then                 further requests: tables with says, answers, insist, leaves_on, tell, after
    customers, orders    the shop: [name, address, PIN] each, and the arguments of `ShopRows.add_order`
    tickets              numbers of the tickets that are opened
    promises             [kind, order or name, request counted from 0]: what must not be promised
    end                  what must have changed at the end, and nothing else, as `shop.difference` says it
    solution             the steps that do it, up to closing the case
    wrong                [name, step, what stands in its place...]: scripts that must fail, and why
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from ferrata.envs.support.families import INSTRUCTIONS, asked_back
from ferrata.envs.support.people import ShopRows
from ferrata.envs.support.refusals import WHY_NOT
from ferrata.envs.support.requests import HOW_MANY_DAYS, HOW_MUCH, IS_IT_CANCELLED, IS_IT_CHANGED, WHICH_TICKET, Back
from ferrata.envs.support.scripts import CLOSE, splice
from ferrata.envs.support.speech import asks
from ferrata.envs.support.speech import read as read_reply
from ferrata.envs.support.wordings import NO, decoys_of, states
from ferrata.errors import TaskError
from ferrata.records import Task

THEMES = ("refunds", "changes", "parcels", "privacy", "conversations")
_CAPS = {1: 15, 2: 30, 3: 60}
_LONGEST = {1: 5, 2: 9}
"""Tier -> the longest solution, in steps, that still belongs to it."""


def tasks() -> list[Task]:
    """All hand-written tasks, theme by theme. Raises TaskError that names the task which cannot be read."""
    return [_task(theme, entry) for theme in THEMES for entry in entries(theme)]


@cache
def entries(theme: str) -> tuple[dict[str, Any], ...]:
    """The tables of one theme as they are written."""
    text = (files("ferrata.envs.support") / "written" / f"{theme}.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["task"])


def _task(theme: str, entry: dict[str, Any]) -> Task:
    try:
        return read(theme, entry)
    except (KeyError, TypeError, ValueError, TaskError) as error:
        raise TaskError(f"The written task '{entry.get('title')}' cannot be read: {error}.") from error


def read(theme: str, entry: dict[str, Any]) -> Task:
    """One task of its table. Raises KeyError, TypeError, ValueError or TaskError for a table that is none."""
    shop = ShopRows()
    for name, address, pin in entry["customers"]:
        shop.add_customer(name, address, pin)
    for order in entry["orders"]:
        shop.add_order(**order)
    told = [entry, *entry.get("then", [])]
    facts = [fact for request in told for fact in request.get("tell", [])]
    changes = entry.get("end", [])
    marks: dict[str, Any] = {f"done_{at}": ["changes", [change]] for at, change in enumerate(changes, 1)}
    heard = _heard(told, entry, marks, shop)
    marks |= {f"told_{at + 1}": ["told", [at]] for at in range(len(facts))}
    steps = [*entry["solution"], CLOSE]
    marks = _in_order(marks, facts, heard, steps)
    tier = next((tier for tier, longest in _LONGEST.items() if len(steps) <= longest), 3)
    world = {
        "shop": shop.rows,
        "customer": _customer(entry, _topics(told, entry)),
        "tickets": entry.get("tickets", [731, 842]),
        "goal": {
            "changes": changes, "facts": facts, "heard": heard, "marks": marks, "promises": _promises(entry, told),
        },
        "proof": {
            "solution": steps,
            "failures": [[name, *splice(steps, old, new)] for name, old, *new in entry["wrong"]],
        },
    }  # fmt: skip
    instruction = INSTRUCTIONS[0].format(name=entry["customer"], say=entry["says"])
    family = f"written_{theme}"
    return Task("support", family, tier, "eval", instruction, world, tuple(marks), _CAPS[tier])


def _topics(requests: list[dict[str, Any]], entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The customer's topics."""
    topics: list[dict[str, Any]] = []
    first = 0
    for request in requests:
        tell = request.get("tell", [])
        manners: dict[str, Any] = {key: request[key] for key in ("insist", "leaves_on") if key in request}
        back = asked_back(tell, [_back(fact, entry) for fact in tell])
        told = list(range(first, first + len(tell)))
        topics.append({"say": request["says"], "answers": request.get("answers", {}), "facts": told, "back": back})
        topics[-1] |= manners
        first += len(tell)
    return topics


def _heard(
    requests: list[dict[str, Any]], entry: dict[str, Any], marks: dict[str, Any], shop: ShopRows
) -> list[dict[str, Any]]:
    """How each fact is heard; adds the look-ups from which it can be known to the marks."""
    heard: list[dict[str, Any]] = []
    days = [row[3] for row in shop.rows["shipments"]]
    for topic, request in enumerate(requests):
        after = []
        for step in request.get("after", []):
            after.append(f"known_{sum(name.startswith('known') for name in marks) + 1}")
            marks[after[-1]] = _source(step, topic)
        for fact in request.get("tell", []):
            done = [name for name, (_, lines) in marks.items() if lines[0] in _deeds(fact, entry)]
            moved = {"or": "changed"} if done and not fact.startswith("cancelled") else {}
            decoys = [] if _back(fact, entry) in (HOW_MUCH, WHICH_TICKET) else decoys_of(fact, [abs(n) for n in days])
            heard.append({"after": [*after, *done], "decoys": decoys, **moved})
    return heard


def _source(step: str, topic: int) -> list[Any]:
    """`look_up_order: 4127`, `wrong PIN: Anna Berg` or `asked: pin` as a mark."""
    tool, _, argument = step.partition(": ")
    if tool == "asked":
        return ["asked", f"{topic}.{argument}"]
    return ["call", [tool, int(argument) if argument.isdigit() else argument]]


def _in_order(marks: dict[str, Any], facts: list[str], heard: list[dict[str, Any]], steps: list[str]) -> dict[str, Any]:
    """The marks in the order in which the solution reaches them."""
    at: dict[str, int] = {}
    for name, (kind, wanted) in marks.items():
        known = max((at[other] for other in heard[wanted[0]]["after"]), default=0) if kind == "told" else 0
        reaching = [number for number, step in enumerate(steps) if _reaches(step, kind, wanted, facts)]
        at[name] = next((number for number in reaching if number >= known), len(steps))
    return {name: marks[name] for name in sorted(marks, key=at.__getitem__)}


def _reaches(step: str, kind: str, wanted: Any, facts: list[str]) -> bool:
    """Whether a step of a solution is of the kind that reaches a mark."""
    tool, _, rest = step.partition(": ")
    first = rest.partition(" | ")[0]
    if kind == "call":
        right = "verify_identity" if wanted[0] == "wrong PIN" else wanted[0]
        return tool in right.split("/") and first == str(wanted[1])
    if kind == "changes":
        return tool in ("change_address", "cancel_order", "refund", "escalate") and first in wanted[0]
    if kind == "asked":
        return tool == "reply" and asks(rest, wanted.partition(".")[2])
    return tool == "reply" and states(read_reply(rest), facts[wanted[0]])


def _deeds(fact: str, entry: dict[str, Any]) -> list[str]:
    """The changes that a fact reports: an address that is changed, an order that is cancelled."""
    ending = "status = cancelled" if fact.startswith("cancelled") else f"address = {fact}"
    return [change for change in entry.get("end", []) if change.endswith(ending)]


def _back(fact: str, entry: dict[str, Any]) -> Back:
    """What the customer asks back when this fact is missing in a reply."""
    deeds = _deeds(fact, entry)
    if fact.startswith(NO):
        return WHY_NOT
    if deeds:
        return IS_IT_CANCELLED if fact.startswith("cancelled") else IS_IT_CHANGED
    if fact.isdigit() and int(fact) in entry.get("tickets", ()):
        return WHICH_TICKET
    if any(change.endswith(f"refund {fact}") for change in entry.get("end", [])):
        return HOW_MUCH
    return HOW_MANY_DAYS


def _promises(entry: dict[str, Any], requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What must not be promised."""
    refused = [any(fact.startswith(NO) for fact in request.get("tell", [])) for request in requests]
    return [
        {"kind": kind, "about": about, "topic": topic, "refused": refused[topic]}
        for kind, about, topic in entry.get("promises", [])
    ]


def _customer(entry: dict[str, Any], topics: list[dict[str, Any]]) -> dict[str, Any]:
    """The customer's profile. Who is no stranger knows the PIN, unless `answers` says otherwise."""
    name, stranger = entry["customer"], entry.get("stranger", False)
    pins = {customer: pin for customer, _, pin in entry["customers"]}
    answers = {} if stranger else {"pin": f"My PIN is {pins[name]}."}
    return {
        "name": name,
        "speaker": "" if stranger else name,
        "persona": entry["persona"],
        "answers": answers,
        "topics": topics,
    }
