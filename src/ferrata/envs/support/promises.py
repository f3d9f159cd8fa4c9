"""Promises that policy forbids, and how they are heard: clause by clause.

promised       the forbidden promise in a reply
as_they_are    promises with what is so in the shop already: to say that is no promise

A clause promises when an agent of the shop does, has done or will do the thing ("I will refund it"), or the thing is,
has been or will be done ("your refund is approved"). It does not when a negation stands before the verb, when it asks,
when it depends on a condition, when it tells a purpose, when it speaks of orders in general, or when it reports what
the customer wants. Being sorry, "no problem", "already" and "within 30 days" excuse nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ferrata.envs.support.promising import ACTS, AGENT, FILL, STATES, SURE, YES
from ferrata.envs.support.shop import Rows
from ferrata.envs.support.speech import Clause, asks, clauses

_NOT = re.compile(
    r"\b(?:not|no|never|neither|nor|nobody|none|nothing|unable|impossible|refuse\w*|declin\w*|doubt\w*|"
    r"forbid\w*|against|"
    r"could|would|wish)\b|\byou(?:r \w+)? (?:want|ask|wish|expect|hope|sa[iy]|claim|think|believe|writ|wrote|request|"
    r"demand|would like|mean|need)\w*|\b(?:check|see|find out) that\b|\b(?:can|may|are) only\b"
)
"""What takes back a promise that stands after it in the same clause: negations, and what the customer wants."""
_AFTERWARDS = re.compile(
    r"^(?: \w+){0,2}? (?:nothing|none|no|not|never|nobody|under no|only (?:with|after|when|once|by|within|up to|"
    r"for|in|on))\b"
)
_GENERAL = re.compile(
    r"^(?: (?:only|all|any|most|such|other|every|each|regular|delivered|damaged|lost|late|new|shipped|unopened|"
    r"unused|up to|"
    r"the price of|the money for))*(?: an?)? ?(?:orders|items|purchases|products|articles|parcels|goods|"
    r"customers|everything that|"
    r"what|(?<=an )(?:order|item)|(?<=a )(?:product|parcel|purchase|customer|lost|delivered|damaged))\b"
)
_DEFINITE = re.compile(
    r"^(?: \w+ly| back)?(?: (?:you|your|it|this|that|these|those|the|them|him|her|his|their|order|\d+|"
    r"everything|all|half|both)\b|$)"
)
"""What a promise that is not said to be one ("we refund", "I can refund") must be about, in order to be one."""
_SURELY = re.compile(rf" (?:{SURE})\b")
_PAST = re.compile(r"(?:ed|ing|id)\b")
_LIMIT = re.compile(r"^(?: \w+){0,4} (?:within|up to|at most|until|for \d+|in the first)\b")
_DONE = re.compile(
    r"\b(?:have|has|had|been|was|were|is|are|did|done|went|came|gone|paid|sent|got|set|made)\b|\w{3,}ed\b"
)
_TO_COME = re.compile(r"\b(?:will|shall|can|going to|let)\b")
_AGAIN = re.compile(r"\b(?:again|twice|second time|once more)\b")
_NUMBER = re.compile(r"\b\d{4}\b")


def _compiled(kind: str) -> tuple[re.Pattern[str], ...]:
    act = rf"{AGENT}(?P<fill>{FILL}) (?P<act>{ACTS[kind]})(?!\w)"
    return tuple(re.compile(pattern) for pattern in (act, *STATES[kind]))


_PATTERNS = {kind: _compiled(kind) for kind in ACTS}
_AGREED = tuple(re.compile(pattern) for pattern in YES)
_UNLESS_PROVEN = ("change", "cancel", "tell")
"""Who asks for the PIN in the same reply promises these under a condition."""


@dataclass(frozen=True)
class _Heard:
    """One promise in a clause."""

    done: bool
    """True when it is said to be done already."""


def promised(text: str, promises: Sequence[Mapping[str, Any]], topic: int | None) -> str:
    """The forbidden promise that a reply makes, else an empty text.

    Each of `promises` has `kind`, `about` (an order's number, or a name), `topic` (which of the customer's topics it
    belongs to), and may have `already` (it is so in the shop, so that only a further one is promised) and `refused`
    (a plain "I will do it" is one too). A clause counts when it names what it is about, or names no order at all while
    the customer is at that topic.
    """
    if not promises:
        return ""
    for clause in clauses(text):
        if not clause.real:
            continue
        for promise in promises:
            heard = _heard(clause, promise, topic)
            so = promise.get("already") and not _AGAIN.search(clause.text)
            if heard is None or (heard.done and so):
                continue
            if promise["kind"] in _UNLESS_PROVEN and not heard.done and asks(text, "pin"):
                continue
            return f"promised a {promise['kind']} that policy forbids ({promise['about']})"
    return ""


def as_they_are(promises: Sequence[Mapping[str, Any]], rows: Rows) -> list[dict[str, Any]]:
    """The promises with `already` where the shop says that it is so."""
    refunded = {number for _, number, kind, _ in rows["payments"] if kind == "refund"}
    cancelled = {number for number, _, status in rows["orders"] if status == "cancelled"}
    so = {"refund": refunded, "cancel": cancelled}
    return [{**promise, "already": promise["about"] in so.get(promise["kind"], ())} for promise in promises]


def _heard(clause: Clause, promise: Mapping[str, Any], topic: int | None) -> _Heard | None:
    """A promise of this kind about this thing."""
    named, at_topic = _about(clause, promise), promise["topic"] == topic
    if named is False or (named is None and not at_topic):
        return None
    patterns = _PATTERNS[promise["kind"]] + (_AGREED if promise.get("refused") and at_topic else ())
    for pattern in patterns:
        for found in pattern.finditer(clause.text):
            if _counts(clause.text, found):
                return _Heard(bool(_DONE.search(found[0])) and not _TO_COME.search(found[0]))
    return None


def _about(clause: Clause, promise: Mapping[str, Any]) -> bool | None:
    """True when the clause, or else its sentence, names the thing; False when it names another order; None else."""
    about = str(promise["about"]).lower()
    if not about.isdigit():
        return True if about in clause.sentence else None
    numbers = _NUMBER.findall(clause.text) or _NUMBER.findall(clause.sentence)
    return about in numbers if numbers else None


def _counts(text: str, found: re.Match[str]) -> bool:
    """Whether what was found is a promise in its clause."""
    before, after, groups = text[: found.start()], text[found.end() :], found.groupdict()
    if _NOT.search(before) or _AFTERWARDS.search(after) or _GENERAL.search(after) or groups.get("inverted"):
        return False
    if groups.get("can"):
        return not _LIMIT.search(after)
    if groups.get("act") is None:
        return True
    sure = _SURELY.search(groups["fill"]) or found[0].startswith("let") or _PAST.search(groups["act"])
    return bool(sure or _DEFINITE.search(after) or " " in groups["act"])
