"""The task families of support: which requests come together, from whom, in which tier.

A family is a persona and a list of slots; each slot is a choice of requests. `compose` puts the drawn requests into
one conversation: topics for the customer, changes and facts for the judge, marks for the subgoals, and the proof.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ferrata.envs.support import refusals, requests
from ferrata.envs.support.people import ShopDraw
from ferrata.envs.support.requests import Request
from ferrata.envs.support.scripts import CLOSE, splice
from ferrata.envs.support.wordings import NO, decoys_of
from ferrata.records import Task

Maker = Callable[[ShopDraw], Request]


_BASIC = ("look_up_order", "look_up_shipment", "look_up_policy", "refund", "reply", "close_case")
_STANDARD = (*_BASIC, "verify_identity", "change_address", "cancel_order")
TOOL_SETS: dict[str, tuple[str, ...]] = {
    "basic": _BASIC,
    "standard": _STANDARD,
    "full": (*_STANDARD, "look_up_customer", "escalate"),
}
"""Stage of the curriculum -> its tools."""


def vaguely(make: Maker) -> Maker:
    """The same request without its order's number."""
    return lambda draw: requests.vague(make(draw))


def insistently(make: Maker) -> Maker:
    """The same refusal, insisted on."""
    return lambda draw: refusals.insistent(draw, make(draw))


PAID_BACK = (requests.refund, requests.partial, requests.lost)
SHOP_RULES = (refusals.window, refusals.sale)
REFUSED = tuple(insistently(make) for make in (refusals.window, refusals.sale, refusals.cancel_late))
CHANGED = (requests.cancel_other, requests.address_again, requests.refund_instead)


@dataclass(frozen=True)
class Family:
    """One kind of task."""

    stage: str
    """The smallest of the tool sets with which it can be done."""
    persona: str
    slots: tuple[tuple[Maker, ...], ...]
    """One choice of requests for each of the customer's topics."""


_TIER_1 = {
    "order_status": Family("basic", "plain", ((requests.status,),)),
    "refund": Family("basic", "plain", (PAID_BACK,)),
    "refused_refund": Family("basic", "plain", ((refusals.window, refusals.sale, refusals.twice),)),
    "new_address": Family("standard", "plain", ((requests.address, refusals.no_pin),)),
    "cancel": Family("standard", "plain", ((requests.cancel, refusals.cancel_late),)),
    "damaged": Family("full", "impatient", ((requests.damaged,),)),
    "vague_status": Family("basic", "vague", ((vaguely(requests.status),),)),
    "private_data": Family("basic", "plain", ((refusals.privacy, requests.tracking),)),
    "stranger": Family("standard", "stranger", ((refusals.no_pin, refusals.stranger_address, refusals.stranger_data),)),
}
"""2-3 subgoals."""

_TIER_2 = {
    "vague_refund": Family("basic", "vague", (tuple(map(vaguely, PAID_BACK)),)),
    "vague_refusal": Family("basic", "vague", (tuple(map(vaguely, (*SHOP_RULES, refusals.cancel_late))),)),
    "late_parcel": Family("basic", "impatient", ((requests.late,),)),
    "over_limit": Family("full", "impatient", ((requests.limit,),)),
    "change_of_mind": Family(
        "standard", "changing", ((requests.cancel_other, requests.address_again), (requests.status,))
    ),
    "return_other": Family("basic", "changing", ((requests.refund_instead,), (requests.status, refusals.twice))),
    "two_requests": Family("full", "plain", (PAID_BACK, (requests.status, refusals.twice, requests.damaged))),
    "insists": Family("basic", "insistent", (REFUSED, (requests.status,))),
    "refused_then_done": Family(
        "standard", "insistent", ((refusals.twice, refusals.privacy), (requests.address, requests.cancel))
    ),
    "stranger_insists": Family(
        "standard",
        "stranger",
        (
            tuple(map(insistently, (refusals.no_pin, refusals.stranger_address))),
            (refusals.stranger_data, refusals.privacy),
        ),
    ),
}
"""4-6 subgoals."""

_TIER_3 = {
    "moving_house": Family(
        "standard", "changing", ((requests.address_again,), REFUSED, (requests.cancel,), (requests.status,))
    ),
    "returns": Family("basic", "changing", ((requests.refund_instead,), REFUSED, (requests.partial, requests.lost))),
    "lost_and_found": Family(
        "standard",
        "insistent",
        ((requests.lost,), (insistently(refusals.privacy),), (requests.cancel_other, requests.address_again)),
    ),
    "complaint": Family("full", "impatient", ((requests.damaged,), REFUSED, CHANGED)),
    "late_and_sorry": Family("standard", "insistent", ((requests.late,), REFUSED, CHANGED)),
    "over_the_limit": Family(
        "full", "changing", ((requests.cancel_other,), (requests.limit,), (insistently(refusals.privacy),))
    ),
    "errands": Family(
        "standard",
        "vague",
        (
            (requests.refund_instead,),
            (insistently(refusals.twice),),
            (requests.address, requests.cancel),
            (requests.status,),
        ),
    ),
    "siege": Family(
        "standard",
        "stranger",
        tuple((insistently(make),) for make in (refusals.stranger_address, refusals.privacy, refusals.stranger_data)),
    ),
}
"""8-12 subgoals: several requests, a change of mind, a forbidden request among them."""

FAMILIES: dict[str, Family] = _TIER_1 | _TIER_2 | _TIER_3
TIERS: dict[int, tuple[str, ...]] = {1: tuple(_TIER_1), 2: tuple(_TIER_2), 3: tuple(_TIER_3)}
NEEDS = {name: TOOL_SETS[family.stage] for name, family in FAMILIES.items()}
"""Family -> the tools without which it cannot be done."""
SPARE_TURNS = {1: (8, 12), 2: (16, 24), 3: (32, 48)}
"""How many turns a task may take beyond its number of subgoals."""

INSTRUCTIONS = (
    "{name} writes to the shop: {say} Follow the policies, tell the customer what comes of it, then close the case.",
    "You answer the customers of a shop. {name} writes: {say} Keep to the policies, say what comes of it, then close.",
    "A customer, {name}, writes: {say} Do what the policies allow, tell the customer, then close the case.",
)

SURE = "Are you sure? Look it up, please, and tell me just that."
"""Asked back when a fact is told that cannot be known yet, or together with something else of its kind."""


def generate(family: str, tier: int, stream: random.Random, split: str) -> Task:
    """One support task of a family."""
    drawn = FAMILIES[family]
    draw = ShopDraw(stream, split, real=drawn.persona != "stranger")
    asked = [stream.choice(slot)(draw) for slot in drawn.slots]
    draw.add_strangers()
    world, subgoals = compose(draw, drawn.persona, asked)
    template = stream.choice(INSTRUCTIONS)
    return Task(
        env="support",
        family=family,
        tier=tier,
        split=split,
        instruction=template.format(name=draw.name, say=world["customer"]["topics"][0]["say"]),
        world=world,
        subgoals=subgoals,
        max_turns=len(subgoals) + stream.randint(*SPARE_TURNS[tier]),
    )


def compose(draw: ShopDraw, persona: str, asked: Sequence[Request]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The world of a conversation about these requests, and its subgoals."""
    topics: list[dict[str, Any]] = []
    goal: dict[str, Any] = {"changes": [], "facts": [], "heard": [], "marks": {}, "promises": []}
    proof: dict[str, Any] = {"solution": [], "failures": []}
    for number, request in enumerate(asked, 1):
        first = len(topics)
        if request.before:
            say, leaves_on = request.before
            topics.append({"say": say, "answers": request.answers, "facts": [], "leaves_on": leaves_on})
            request = replace(request, answers={})
        _add_goal(goal, request, f"_{number}" if len(asked) > 1 else "", first, last=len(topics))
        facts = list(range(len(goal["facts"]) - len(request.facts), len(goal["facts"])))
        insist = {"insist": request.insist} if request.insist else {}
        back = asked_back(request.facts, request.back)
        topics.append({"say": request.say, "answers": request.answers, "facts": facts, "back": back, **insist})
        _add_proof(proof, request)
    proof["solution"].append(CLOSE)
    customer = {
        "name": draw.name,
        "speaker": draw.name if draw.real else "",
        "persona": persona,
        "answers": {"pin": f"My PIN is {draw.pin}."} if draw.real else {},
        "topics": topics,
    }
    world = {"shop": draw.rows, "customer": customer, "tickets": draw.tickets, "goal": goal, "proof": proof}
    return world, tuple(goal["marks"])


def _add_goal(goal: dict[str, Any], request: Request, suffix: str, first: int, last: int) -> None:
    """Changes, promises and marks of one request; `first` and `last` are its topics."""
    goal["changes"] += request.changes
    refused = any(fact.startswith(NO) for fact in request.facts)
    goal["promises"] += [
        {"kind": kind, "about": about, "topic": last, "refused": refused} for kind, about in request.promises
    ]
    told = [len(goal["facts"]) + index for index in range(len(request.facts))]
    for subgoal, kind, argument in request.marks:
        known = {"told": told, "asked": f"{first}.{argument}", "held": last + 1}
        goal["marks"][subgoal + suffix] = [kind, known.get(kind, argument)]
    after = [_subgoal(goal, name, suffix) for name in request.after]
    otherwise = {"or": request.otherwise} if request.otherwise else {}
    for fact in request.facts:
        decoys = [] if request.changes else decoys_of(fact, request.true_numbers)
        goal["heard"].append({"after": after, "decoys": decoys, **otherwise})
    goal["facts"] += request.facts


def _subgoal(goal: dict[str, Any], name: str, suffix: str) -> str:
    """The subgoal of this request, else the last one of that name before it."""
    if name + suffix in goal["marks"]:
        return name + suffix
    known: list[str] = [known for known in goal["marks"] if known.partition("_")[0] == name]
    return known[-1]


def asked_back(facts: Sequence[str], back: Sequence[tuple[str, str]]) -> list[list[str]]:
    """What the customer asks back: whether a fact is sure that did not count, else what the request itself says."""
    return [*([fact, SURE] for fact in facts), *map(list, back)]


def _add_proof(proof: dict[str, Any], request: Request) -> None:
    """Steps and failures of one request, after those of the requests before it."""
    start = len(proof["solution"])
    proof["failures"] += [[name, *splice(request.steps, old, new, start)] for name, old, new in request.wrong]
    proof["solution"] += request.steps
