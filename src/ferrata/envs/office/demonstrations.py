"""Flawed demonstrations: what supervised training imitates.

A demonstration follows the goal step by step. With some probability it makes procedural errors of the kind
people make: it forgets to send the mail, stops half way, looks twice, forgets to confirm, takes the wrong one of two
sources, does what a stranger asks. It never copies a value wrongly and never states what it has not read:
reinforcement learning can mend procedure, while copying must be learnt from examples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from ferrata.envs.office.goals import DONE, LOOKUPS, OUTPUTS, Goal, Part, do, of_kind, parts_of, reply, uses, values_of
from ferrata.envs.office.solutions import Step, steps_of, text_of
from ferrata.records import Task

Happens = Callable[[str], bool]
"""Whether a flaw occurs this time."""
Parts = tuple[Part, ...]

RATES = {
    "forget_message": 0.72,
    "forget_document": 0.2,
    "stop_half_way": 0.25,
    "say_done": 0.25,
    "send_a_part": 0.3,
    "forget_to_confirm": 0.4,
    "look_twice": 0.1,
}
"""How often each flaw occurs where it can, at an imperfection of 0.5. Forgetting the mail is the commonest choice,
so that greedy decoding fails wherever a mail is asked for, until reinforcement learning finds out."""

LONG_RATES = {
    "forget_message": 0.15,
    "forget_document": 0.15,
    "stop_half_way": 0.2,
    "wrong_source": 0.25,
    "obey_decoy": 0.25,
    "do_not_wait": 0.2,
    "forget_to_confirm": 0.3,
    "look_twice": 0.1,
}
"""The same for tier 3, where more can go wrong in one task."""


def demonstrate(task: Task, stream: random.Random, imperfection: float) -> list[str]:
    """Texts of one demonstration. At `imperfection` 0 it is the solution; at 0.5 flaws come at their rates."""
    rates = LONG_RATES if task.tier == 3 else RATES

    def happens(flaw: str) -> bool:
        return stream.random() < rates[flaw] * 2 * imperfection

    goal = task.world["goal"]
    parts = _forgetful(parts_of(goal), "sources" in goal, stream, happens)
    if task.tier == 3:
        parts = _misled(parts, goal, stream, happens)
    steps = steps_of(parts, task)
    if task.tier < 3 or not any("deadline" in part for part in parts):
        _lose_time(steps, [part for part in of_kind(parts, "send") if part["subgoal"] in task.subgoals], happens)
    return [text for _, text in steps]


def _forgetful(parts: Parts, disputed: bool, stream: random.Random, happens: Happens) -> Parts:
    """Flaws of procedure that any task may see. Where sources disagree, nobody can guess what the other one says."""
    mails, documents = of_kind(parts, "send"), of_kind(parts, "write")
    if mails and happens("forget_message"):
        parts = without(parts, _one_of(mails, stream))
    if of_kind(parts, "write") and happens("forget_document"):
        parts = without(parts, _one_of(of_kind(parts, "write"), stream))
    if not disputed and _decides(parts) and happens("stop_half_way"):
        parts = _stop_half_way(parts, stream)
    if not mails and not documents and happens("say_done"):
        parts = (*parts[:-1], do("submit", DONE))
    incomplete = [part for part in of_kind(parts, "send") if part.get("also")]
    if incomplete and happens("send_a_part"):
        parts = asked_for_the_rest(parts, incomplete[0])
    return parts


def _misled(parts: Parts, goal: Goal, stream: random.Random, happens: Happens) -> Parts:
    """Flaws of judgement: the wrong source, a request that does not count, no patience."""
    if "sources" in goal and happens("wrong_source"):
        parts = _with_value(_without_conclusions(parts), goal["sources"]["right"], goal["sources"]["wrong"])
    done = [part["subgoal"] for part in parts]
    decoys = [trap for trap in goal.get("traps", ()) if trap.get("after") in done]
    if decoys and happens("obey_decoy"):
        at = done.index(decoys[0]["after"]) + 1
        parts = (*parts[:at], *decoys[0]["parts"], *parts[at:])
    replies = of_kind(parts, "reply")
    if replies and happens("do_not_wait"):
        parts = without(parts, stream.choice(replies)["subgoal"])
    return parts


def _lose_time(steps: list[Step], mails: Sequence[Part], happens: Happens) -> None:
    """Flaws that cost a step each. In long tasks with deadlines they would make what is said later untrue."""
    if mails and happens("forget_to_confirm"):
        at = [name for name, _ in steps].index(mails[0]["subgoal"])
        steps.insert(at, ("unconfirmed", text_of(mails[0], confirm=False)))
    if happens("look_twice"):
        steps.insert(0, steps[0])


def _one_of(parts: Sequence[Part], stream: random.Random) -> str:
    """The subgoal of one of the parts. Nothing is drawn where there is no choice."""
    chosen: str = (parts[0] if len(parts) == 1 else stream.choice(parts))["subgoal"]
    return chosen


def asked_for_the_rest(parts: Parts, mail: Part) -> Parts:
    """The parts for somebody who first sends one value of several, is asked for the next, and then sends all."""
    lacking = next(iter(mail["also"]))
    part_of_it = mail | {"subgoal": "a part", "also": {}}
    asked = do("reply", reply("", "a part", "missing", lacking, 0, shown=True))
    at = parts.index(mail)
    return (*parts[:at], part_of_it, asked, *parts[at:])


def without(parts: Parts, subgoal: str) -> Parts:
    """The parts for somebody who leaves one out, and with it all that only it makes possible."""
    kept: list[Part] = []
    gone, unknown = {subgoal}, set[str]()
    for part in parts:
        impossible = part.get("of") in gone or uses(part, unknown)
        if part["subgoal"] in gone or (impossible and part["do"] != "submit"):
            gone.update({part["subgoal"]} - {""})
            if part["do"] == "reply" or part["do"] in LOOKUPS:
                unknown.update(value for value in values_of(part) if value)
        else:
            kept.append(do("submit", DONE) if impossible else part)
    return tuple(kept)


def _unanswered(parts: Parts, sent: set[str]) -> Parts:
    """The parts for somebody whose mails nobody answers as the task expects."""
    for answer in of_kind(parts, "reply"):
        if answer["of"] in sent:
            parts = without(parts, answer["subgoal"])
    return parts


def _decides(parts: Parts) -> bool:
    """True where more than one lookup was needed to decide."""
    lookups = [part for part in parts if part["do"] in LOOKUPS]
    return any("conclusion" in part for part in lookups[1:])


def _stop_half_way(parts: Parts, stream: random.Random) -> Parts:
    """The parts for somebody who decides before the last lookup, by guessing."""
    last = max(at for at, part in enumerate(parts) if "conclusion" in part)
    kept = _without_conclusions((*parts[:last], *parts[last + 1 :]))
    stated = [part for part in of_kind(kept, *OUTPUTS) if part["decoys"]]
    if not stated:
        return kept
    verdict = stated[0]
    return _with_value(kept, verdict["value"], stream.choice((verdict["value"], verdict["decoys"][0])))


def _without_conclusions(parts: Parts) -> Parts:
    return tuple({name: value for name, value in part.items() if name != "conclusion"} for part in parts)


def _with_value(parts: Parts, right: str, guess: str) -> Parts:
    """The parts with another value in what is written, sent and submitted."""
    if guess == right:
        return parts
    changed = tuple(
        part | {"value": guess} if part["do"] in OUTPUTS and part["value"] == right else part for part in parts
    )
    wrong = {part["subgoal"] for part in of_kind(changed, "send") if part["value"] == guess}
    return _unanswered(changed, wrong)
