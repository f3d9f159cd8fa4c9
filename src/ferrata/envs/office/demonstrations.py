"""Scripted office episodes: the solution of a task, its scripted failures, and flawed demonstrations.

A demonstration follows the goal step by step. With some probability it makes procedural errors of the kind
people make: it forgets to send the mail, stops half way, looks twice, forgets to confirm. It never copies a
value wrongly and never states what it has not read: reinforcement learning can mend procedure, while copying
must be learnt from examples.
"""

from __future__ import annotations

import random
from typing import Any

from ferrata.envs.office.families import DONE, Goal
from ferrata.envs.scripts import Script, call
from ferrata.records import Task

Step = tuple[str, str]
"""(subgoal that the step reaches, text of the step)"""

RATES = {
    "forget_message": 0.72,
    "forget_document": 0.2,
    "stop_half_way": 0.25,
    "say_done": 0.25,
    "forget_to_confirm": 0.4,
    "look_twice": 0.1,
}
"""How often each flaw occurs where it can, at an imperfection of 0.5. Forgetting the mail is the commonest choice,
so that greedy decoding fails wherever a mail is asked for, until reinforcement learning finds out."""


def solution(goal: Goal) -> list[Step]:
    """The steps that reach a goal, in order. After each lookup the agent first says what it found."""
    steps = [(lookup["subgoal"], _lookup(lookup)) for lookup in goal["lookups"]]
    answer = call("submit_result", answer=goal["answer"]["value"])
    later = [(goal["answer"]["subgoal"], f"code: {goal['reply']['code']} {answer}" if "reply" in goal else answer)]
    if "message" in goal:
        later.insert(0, ("sent", _send(goal["message"])))
    if "document" in goal:
        written = call("edit_document", path=goal["document"]["path"], content=goal["document"]["value"])
        later.insert(1 if "reply" in goal else 0, ("written", written))
    thoughts = ["", *(_finding(lookup) for lookup in goal["lookups"])]
    thoughts[-1] += _comparison(goal)
    said = [f"{thought}{text}" for thought, (_, text) in zip(thoughts, [*steps, later[0]], strict=True)]
    return [(name, text) for (name, _), text in zip([*steps, later[0]], said, strict=True)] + later[1:]


def _lookup(lookup: dict[str, Any]) -> str:
    if "path" in lookup:
        return call("read_file", path=lookup["path"])
    field, table, name = lookup["field"], lookup["table"], lookup["name"]
    return call("query_database", sql=f"SELECT {field} FROM {table} WHERE name = '{name}'")


def _send(message: dict[str, Any], confirm: bool = True) -> str:
    arguments = {"to": message["to"], "subject": message["subject"], "body": message["value"]}
    return call("send_message", **arguments, **({"confirm": True} if confirm else {}))


def _finding(lookup: dict[str, Any]) -> str:
    """The asked field said aloud with its value: `price: 429 `. The value is then at hand, wherever it is needed."""
    return f"{lookup['field']}: {lookup['value']} "


def _comparison(goal: Goal) -> str:
    """The comparison said aloud before it decides: `310 < 429 `, or `310 Belvan < 429 Cortis lower 310 Belvan `.

    In the longer form each step is a small one: compare, pick the number that was asked for, say whose it is.
    """
    if "levels" in goal:
        left, right = goal["levels"]
        also = f"minimum: {right} " if len(goal["lookups"]) == 1 else ""
        return f"{also}{left} {_sign(left, right)} {right} "
    if "compare" not in goal:
        return ""
    owners = {lookup["value"]: lookup["name"] for lookup in goal["lookups"]}
    left, right = owners
    chosen = (min if goal["compare"] == "lower" else max)(owners, key=int)
    sides = f"{left} {owners[left]} {_sign(left, right)} {right} {owners[right]}"
    return f"{sides} {goal['compare']} {chosen} {owners[chosen]} "


def _sign(left: str, right: str) -> str:
    return "<" if int(left) < int(right) else ">"


# Scripted failures ----------------------------------------------------------------------------------------------


def scripts(task: Task) -> list[Script]:
    """One success, and a failure for each step that can be left out or done wrongly."""
    steps = solution(task.world["goal"])
    failures = [
        Script(f"leaves out {subgoal}", tuple(text for name, text in steps if name != subgoal), False)
        for subgoal, _ in steps[:-1]
    ]
    if listing := _listing(task.world["goal"]):
        failures.append(Script("states every number", tuple(text for _, text in solution(listing)), False))
    before = tuple(text for _, text in steps[:-1])
    failures += [
        Script("submits at once", (call("submit_result", answer=task.world["goal"]["answer"]["value"]),), False),
        Script("submits a wrong answer", (*before, call("submit_result", answer="unknown")), False),
        Script("never submits", before, False),
    ]
    return [Script("solves the task", tuple(text for _, text in steps), True), *failures]


def _listing(goal: Goal) -> Goal | None:
    """The same goal for somebody who states all numbers of the world where one is asked for; None where none is."""
    asked = {part: goal[part] for part in ("document", "message", "answer") if part in goal}
    numeric = {part: wanted for part, wanted in asked.items() if wanted["value"].isdigit()}
    listed = {p: wanted | {"value": " ".join((wanted["value"], *wanted["decoys"]))} for p, wanted in numeric.items()}
    return goal | listed if listed else None


# Flawed demonstrations ------------------------------------------------------------------------------------------


def demonstrate(task: Task, stream: random.Random, imperfection: float) -> list[str]:
    """Texts of one demonstration. At `imperfection` 0 it is the solution; at 0.5 flaws come at their `RATES`."""
    goal = task.world["goal"]

    def happens(flaw: str) -> bool:
        return stream.random() < RATES[flaw] * 2 * imperfection

    if "message" in goal and happens("forget_message"):
        goal = _without_message(goal)
    if "document" in goal and happens("forget_document"):
        goal = {part: value for part, value in goal.items() if part != "document"}
    if _decides(goal) and happens("stop_half_way"):
        goal = _stop_half_way(goal, stream)
    if not {"message", "document"} & set(task.world["goal"]) and happens("say_done"):
        goal = goal | {"answer": DONE}
    steps = solution(goal)
    if "message" in goal and happens("forget_to_confirm"):
        at = [name for name, _ in steps].index("sent")
        steps.insert(at, ("unconfirmed", _send(goal["message"], confirm=False)))
    if happens("look_twice"):
        steps.insert(0, steps[0])
    return [text for _, text in steps]


def _without_message(goal: Goal) -> Goal:
    """The same goal for somebody who forgets the mail; without it there is no reply and no code to submit."""
    answer = DONE if "reply" in goal else goal["answer"]
    return {part: value for part, value in goal.items() if part not in ("message", "reply")} | {"answer": answer}


def _decides(goal: Goal) -> bool:
    """True for goals that decide between two values from two lookups."""
    return len(goal["lookups"]) == 2 and ("levels" in goal or "compare" in goal)


def _stop_half_way(goal: Goal, stream: random.Random) -> Goal:
    """The same goal for somebody who decides after the first of two lookups, by guessing."""
    deciding = [part for part in ("document", "message", "answer") if part in goal and goal[part]["decoys"]]
    kept = {name: value for name, value in goal.items() if name not in ("levels", "compare")}
    kept["lookups"] = goal["lookups"][:1]
    if deciding:
        guess = stream.choice((goal[deciding[0]]["value"], goal[deciding[0]]["decoys"][0]))
        kept |= {part: goal[part] | {"value": guess} for part in deciding}
    return kept
