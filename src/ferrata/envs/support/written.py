"""The hand-written tasks: `written/*.toml`, one theme a file, read into tasks.

A task is one `[[task]]` table:

    title, situation     for people
    persona, customer    who writes; `stranger = true` when it is somebody else under that name
    says                 the first request; `answers` key -> sentence when asked; `insist` against a first refusal;
                         `leaves_on` the question at which the customer goes on to the next request
    tell                 what must be told, as `judge.stated` reads it; NO stands for any word of refusal
    then                 further requests: tables with says, answers, insist, leaves_on, tell
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

from ferrata.envs.support.families import INSTRUCTIONS
from ferrata.envs.support.people import ShopRows
from ferrata.envs.support.refusals import NO
from ferrata.envs.support.scripts import CLOSE, splice
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
    topics, facts = _topics([entry, *entry.get("then", [])])
    changes = entry.get("end", [])
    marks: dict[str, Any] = {f"done_{at}": ["changes", [change]] for at, change in enumerate(changes, 1)}
    marks |= {f"told_{at + 1}": ["told", [at]] for at in range(len(facts))}
    steps = [*entry["solution"], CLOSE]
    tier = next((tier for tier, longest in _LONGEST.items() if len(steps) <= longest), 3)
    promises = [{"kind": kind, "about": about, "topic": topic} for kind, about, topic in entry.get("promises", [])]
    world = {
        "shop": shop.rows,
        "customer": _customer(entry, topics),
        "tickets": entry.get("tickets", [731, 842]),
        "goal": {"changes": changes, "facts": facts, "marks": marks, "promises": promises},
        "proof": {
            "solution": steps,
            "failures": [[name, *splice(steps, old, new)] for name, old, *new in entry["wrong"]],
        },
    }
    instruction = INSTRUCTIONS[0].format(name=entry["customer"], say=entry["says"])
    family = f"written_{theme}"
    return Task("support", family, tier, "eval", instruction, world, tuple(marks), _CAPS[tier])


def _topics(requests: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The customer's topics, and all facts in their order."""
    topics: list[dict[str, Any]] = []
    facts: list[str] = []
    for request in requests:
        tell = [fact.replace("NO", NO) for fact in request.get("tell", [])]
        told = list(range(len(facts), len(facts) + len(tell)))
        manners: dict[str, Any] = {key: request[key] for key in ("insist", "leaves_on") if key in request}
        topic = {"say": request["says"], "answers": request.get("answers", {}), "facts": told}
        topics.append(topic | manners)
        facts += tell
    return topics, facts


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
