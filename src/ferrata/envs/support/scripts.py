"""Scripted conversations: the proof that the judge is right, and the demonstrations that a policy starts from.

A step is written `tool: argument | argument`, as in `refund: 4127 | 49`; `text_of` makes the model's text of it. A
task carries its solution and its failures in `world["proof"]`: a failure says which steps of the solution are
replaced, and by what.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ferrata.envs.scripts import Script, call
from ferrata.errors import TaskError
from ferrata.records import Task

CLOSE = "close_case"

ARGUMENTS: Mapping[str, Mapping[str, type]] = {
    "look_up_customer": {"name": str},
    "look_up_order": {"order": int},
    "look_up_shipment": {"order": int},
    "look_up_policy": {"topic": str},
    "verify_identity": {"name": str, "pin": int},
    "change_address": {"name": str, "address": str},
    "refund": {"order": int, "amount": int},
    "cancel_order": {"order": int},
    "escalate": {"order": int, "reason": str},
    "reply": {"text": str},
    CLOSE: {},
}
"""Tool -> its arguments in the order in which a step gives them; `confirm` is added where it is needed."""
CONFIRMED = ("refund", "cancel_order")

EVERY_REASON = (
    "reply: No, sorry, I cannot: it is private, there is no verified PIN, it is shipped, it is final sale, it "
    "is already "
    "refunded, past 14, 21, 28, 30 or 45 days."
)
EVERY_DAY = (
    "reply: It comes in 2, 3, 4, 5, 6, 7, 8 or 9 days.",
    "reply: It comes in 10, 11, 12, 13, 14, 15, 16 or 17 days.",
    "reply: It comes in 18 or 19 days.",
)
ASKS_EVERYTHING = "reply: Which order and which PIN, please?"
"""Replies that fit every task and answer none."""

FORGETTING = ("tells nothing", "tells something else", "says that", "closes at once", "names a ticket", "goes without")
"""Beginnings of the failures that flawed demonstrations show: omissions. No demonstration shows a grave mistake
but one, going without verification, which reinforcement learning has to unlearn."""


def text_of(step: str) -> str:
    """The model's text of one step. Raises TaskError for a step that is none."""
    tool, _, rest = step.partition(":")
    values = [part.strip() for part in rest.split(" | ")] if rest.strip() else []
    names = ARGUMENTS.get(tool)
    if names is None or len(values) != len(names):
        raise TaskError(f"The step '{step}' is no call of a tool with its arguments.")
    try:
        arguments = {name: kind(value) for (name, kind), value in zip(names.items(), values, strict=True)}
    except ValueError:
        raise TaskError(f"The step '{step}' has a text where a number belongs.") from None
    return call(tool, **arguments, **({"confirm": True} if tool in CONFIRMED else {}))


def splice(steps: Sequence[str], old: str, new: Sequence[str], start: int = 0) -> list[Any]:
    """How `new` takes the place of the step `old`: [at, dropped, new]. Raises TaskError when `old` is no step."""
    if old not in steps:
        raise TaskError(f"The step '{old}' is not in the solution.")
    return [start + list(steps).index(old), 1, list(new)]


def scripts(task: Task) -> list[Script]:
    """The solution, its particular failures, and the failures that every task has."""
    proof = task.world["proof"]
    steps: list[str] = proof["solution"]
    failing = [(name, [*steps[:at], *new, *steps[at + dropped :]]) for name, at, dropped, new in proof["failures"]]
    failing += [("tells everything at once", blind(task)), ("closes at once", [CLOSE]), ("never closes", steps[:-1])]
    return [_script("solves the task", steps, True), *(_script(name, wrong, False) for name, wrong in failing)]


def blind(task: Task) -> list[str]:
    """Asks for everything and answers everything, without one look-up, as often as the turns allow."""
    rounds = max(1, min(4, (task.max_turns - 2) // (1 + len(EVERY_DAY))))
    return [ASKS_EVERYTHING, *rounds * (EVERY_REASON, *EVERY_DAY), CLOSE]


def demonstrate(task: Task, stream: random.Random, imperfection: float) -> Sequence[str]:
    """The solution, or with probability `imperfection` one that leaves something out."""
    solution, *failing = scripts(task)
    omissions = [script for script in failing if script.name.startswith(FORGETTING)]
    return stream.choice(omissions).texts if stream.random() < imperfection else solution.texts


def _script(name: str, steps: Sequence[str], success: bool) -> Script:
    return Script(name, tuple(_texts(steps)), success)


def _texts(steps: Sequence[str]) -> Iterator[str]:
    return (text_of(step) for step in steps)
