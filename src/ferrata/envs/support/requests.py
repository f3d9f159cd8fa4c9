"""What a customer can ask for and get: one function a request, from a shop under construction to a `Request`.

Everything that follows from a request stands in one place: what the customer says, what must have changed in the
end, what must have been told, which steps do it, and how it goes wrong. `refusals` holds the requests that policy
forbids, `families` puts requests together to tasks.

    status  refund  partial  lost  late  damaged  limit  address  cancel        as asked
    cancel_other  address_again  refund_instead                                 asked, then asked otherwise
    vague                                                                       any of them without its order's number
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ferrata.envs.support.people import ShopDraw
from ferrata.envs.support.scripts import EVERY_DAY

Mark = tuple[str, str, Any]
"""(subgoal, kind, argument).

`call` [tool/another tool, first argument] or [`wrong PIN`, name], `changes` [line, ...], `asked` key, `told`, `held`.
"""
Wrong = tuple[str, str, list[str]]
"""(name, step of the solution, what stands in its place): a script that must fail."""
Back = tuple[str, str]
"""(what a reply says, as `judge.stated` reads it; what the customer asks then)."""
HOW_MUCH: Back = ("refund/refunded/money/back/paid/card/done", "How much is it?")
HOW_MANY_DAYS: Back = (
    "way/come/comes/coming/arrive/arrives/soon/shipped/sent/transit/delivered/days/expected",
    "In how many days does it come?",
)
WHICH_TICKET: Back = ("ticket/colleague/escalated/forwarded/person/somebody/someone/done", "What is the ticket number?")
IS_IT_CANCELLED: Back = ("cancel/cancelled/canceled/order/done", "So is it cancelled now?")
IS_IT_CHANGED: Back = ("address/change/changed/update/updated/done", "Is my new address in your books now?")


@dataclass(frozen=True)
class Request:
    """One request, from what is said to what must come of it."""

    say: str
    """How the customer asks."""
    marks: list[Mark]
    """Subgoals in their usual order."""
    steps: list[str]
    """The solution, as `scripts.text_of` reads it."""
    facts: list[str]
    """What must be told, as `judge.stated` reads it."""
    wrong: list[Wrong]
    """Ways to fail that are particular to this request."""
    changes: list[str] = field(default_factory=list)
    """What must have changed in the shop, as `shop.difference` says it."""
    answers: dict[str, str] = field(default_factory=dict)
    """Key -> what the customer answers when it is asked for this."""
    vague: str = ""
    """How the customer asks without a number; empty where the request cannot be vague."""
    promises: list[tuple[str, Any]] = field(default_factory=list)
    """(kind, order or name): what must not be promised."""
    insist: str = ""
    """What the customer says to the first refusal."""
    after: Sequence[str] = ()
    """Subgoals, of this request or of one before it, from which the facts can be known: earlier, nothing is told."""
    otherwise: str = ""
    """What does as well as the fact, as `judge.stated` reads it."""
    true_numbers: Sequence[int] = ()
    """Numbers of days that may be said beside the fact, because they are true as well."""
    back: Sequence[Back] = ()
    """What the customer asks back when a reply says this and not the fact."""
    before: tuple[str, str] | None = None
    """(what the customer asks for at first, question at which it changes its mind)."""


Maker = Callable[[ShopDraw], Request]


def order_answers(number: int) -> dict[str, str]:
    """The answer to the question for the order."""
    return {"order": f"It is order {number}."}


def verification(draw: ShopDraw) -> tuple[list[Mark], list[str], list[Wrong]]:
    """Marks and steps of verifying the customer, and the failure of going without; nothing when that is done."""
    if draw.verified:
        return [], [], []
    draw.verified = True
    check = f"verify_identity: {draw.name} | {draw.pin}"
    mark = ("verified", "call", ["verify_identity", draw.name])
    return [mark], ["reply: Your PIN, please?", check], [("goes without verification", check, [])]


def told_wrong(reply: str, otherwise: str) -> list[Wrong]:
    """Two ways not to tell what must be told."""
    return [("tells nothing", reply, []), ("tells something else", reply, [f"reply: {otherwise}"])]


def status(draw: ShopDraw) -> Request:
    """When does my parcel come?"""
    days = draw.stream.randint(2, 19)
    number, _, _ = draw.new_order("shipped", days)
    look, reply = f"look_up_shipment: {number}", f"reply: It comes in {days} days."
    return Request(
        say=draw.stream.choice((f"Where is my order {number}?", f"When does order {number} come?")),
        vague=draw.stream.choice(("Where is my parcel?", "When does my parcel come?")),
        answers=order_answers(number),
        marks=[("found", "call", ["look_up_shipment", number]), ("told", "told", None)],
        steps=[look, reply],
        facts=[str(days)],
        wrong=[*told_wrong(reply, f"It comes in {days + 1} days."), ("tells every day", reply, list(EVERY_DAY))],
        after=["found"],
        back=[HOW_MANY_DAYS],
    )


def tracking(draw: ShopDraw) -> Request:
    """What is the tracking code of my own parcel? It may be told, unlike that of somebody else's."""
    number, _, _ = draw.new_order("shipped", draw.stream.randint(2, 9))
    code = draw.rows["shipments"][-1][2]
    look, reply = f"look_up_shipment: {number}", f"reply: The tracking code is {code}."
    return Request(
        say=f"I wait for my parcel. What is the tracking code of order {number}?",
        answers=order_answers(number),
        marks=[("found", "call", ["look_up_shipment", number]), ("told", "told", None)],
        steps=[look, reply],
        facts=[code],
        wrong=[
            *told_wrong(reply, f"The tracking code is {code}0."),
            ("refuses it", reply, ["reply: No, it is private."]),
        ],
        after=["found"],
    )


def refund(draw: ShopDraw) -> Request:
    """Take it back, in time."""
    number, product, price = draw.new_order("delivered", draw.stream.randint(1, draw.window))
    say = draw.stream.choice(
        (
            f"I want my money back for order {number}.",
            f"The {product} of order {number} is not for me. Please refund it.",
            f"Please take back order {number}.",
        )
    )
    return _paid_back(draw, number, price, say, f"I want my money back for the {product}.")


def partial(draw: ShopDraw) -> Request:
    """Take back one item of two."""
    number, products = int(draw.number()), draw.products(2)
    items = {product: draw.price(draw.limit // 2) for product in products}
    draw.add_order(
        number, draw.name, items, "delivered", draw.stream.randint(1, draw.window), tracking=f"T{draw.number()}"
    )
    product, price = products[0], items[products[0]]
    say = draw.stream.choice(
        (
            f"I send back only the {product} of order {number}. What do I get?",
            f"Please refund the {product} of order {number}. I keep the {products[1]}.",
        )
    )
    request = _paid_back(draw, number, price, say, f"I send back the {product}, but not the {products[1]}.")
    whole: Wrong = (
        "refunds the whole order",
        f"refund: {number} | {price}",
        [f"refund: {number} | {sum(items.values())}"],
    )
    return replace(request, wrong=[*request.wrong, whole])


def lost(draw: ShopDraw) -> Request:
    """A lost parcel is paid back whatever it cost."""
    number, product, price = draw.new_order("lost", draw.stream.randint(8, 30), price=draw.price(1000))
    say = draw.stream.choice((f"Order {number} never came.", f"I still wait for order {number}. I want my money back."))
    request = _paid_back(draw, number, price, say, f"My {product} never came.")
    found: Mark = ("found", "call", ["look_up_shipment", number])
    wrong: Wrong = ("escalates instead", f"refund: {number} | {price}", [f"escalate: {number} | lost"])
    return replace(
        request,
        marks=[found, *request.marks[1:]],
        steps=[f"look_up_shipment: {number}", *request.steps],
        wrong=[*request.wrong, wrong],
    )


def late(draw: ShopDraw) -> Request:
    """A parcel that is very late earns a fixed refund."""
    number, _, price = draw.new_order("shipped", -draw.stream.randint(draw.late + 1, draw.late + 9))
    say = draw.stream.choice((f"Order {number} is late. I want something for it.", f"Why is order {number} so late?"))
    request = _paid_back(draw, number, draw.fee, say, "My parcel is late. I want something for it.")
    marks: list[Mark] = [
        ("found", "call", ["look_up_shipment", number]),
        ("read", "call", ["look_up_policy", "late"]),
    ]
    whole: Wrong = ("refunds the whole price", f"refund: {number} | {draw.fee}", [f"refund: {number} | {price}"])
    return replace(
        request,
        marks=[*marks, *request.marks[1:]],
        steps=[f"look_up_shipment: {number}", "look_up_policy: late", *request.steps[1:]],
        wrong=[*request.wrong, whole],
    )


def _paid_back(draw: ShopDraw, number: int, amount: int, say: str, vague: str) -> Request:
    """A request that a refund settles."""
    pay, reply = f"refund: {number} | {amount}", f"reply: I refunded {amount}."
    changes = [f"payments + {number} refund {amount}"]
    return Request(
        say=say,
        vague=vague,
        answers=order_answers(number),
        marks=[
            ("found", "call", ["look_up_order", number]),
            ("refunded", "changes", changes),
            ("told", "told", None),
        ],
        steps=[f"look_up_order: {number}", pay, reply],
        facts=[str(amount)],
        after=["found"],
        back=[HOW_MUCH],
        changes=changes,
        wrong=[
            ("refunds twice", pay, [pay, pay]),
            ("refunds too little", pay, [f"refund: {number} | {amount - 1}"]),
            ("says that it refunded and does not", pay, []),
            *told_wrong(reply, "It is done."),
        ],
    )


def damaged(draw: ShopDraw) -> Request:
    """A damaged order goes to a person."""
    number, product, price = draw.new_order("delivered", draw.stream.randint(1, draw.window))
    say = draw.stream.choice((f"The {product} of order {number} is broken.", f"Order {number} came damaged."))
    read: Mark = ("read", "call", ["look_up_policy", "damaged"])
    instead = [f"refund: {number} | {price}", f"reply: I refunded {price}."]
    return _handed_on(draw, number, "damaged", say, f"The {product} you sent is broken.", [read], instead)


def limit(draw: ShopDraw) -> Request:
    """A refund over the limit goes to a person."""
    price = int(draw.number(draw.limit + 1, 1100))
    number, product, _ = draw.new_order("delivered", draw.stream.randint(1, draw.window), price=price)
    say = draw.stream.choice((f"I want my money back for order {number}.", f"Please take back order {number}."))
    marks: list[Mark] = [("found", "call", ["look_up_order", number]), ("read", "call", ["look_up_policy", "limit"])]
    instead = [f"refund: {number} | {price}", f"reply: I refunded {price}."]
    return _handed_on(draw, number, "limit", say, f"I want my money back for the {product}.", marks, instead)


def _handed_on(
    draw: ShopDraw, number: int, topic: str, say: str, vague: str, marks: list[Mark], instead: list[str]
) -> Request:
    """A request that a ticket settles; `instead` is the refund that would be wrong."""
    ticket, changes = draw.ticket(), [f"tickets + {number}"]
    hand_on, reply = f"escalate: {number} | {topic}", f"reply: Your ticket is {ticket}."
    looks = [f"{mark[2][0]}: {mark[2][1]}" for mark in marks]
    return Request(
        say=say,
        vague=vague,
        answers=order_answers(number),
        marks=[*marks, ("escalated", "changes", changes), ("told", "told", None)],
        steps=[*looks, hand_on, reply],
        facts=[str(ticket)],
        after=["escalated"],
        back=[WHICH_TICKET],
        changes=changes,
        wrong=[
            ("refunds instead", hand_on, instead),
            ("names a ticket that is none", hand_on, []),
            *told_wrong(reply, "Somebody will see to it."),
        ],
    )


def address(draw: ShopDraw) -> Request:
    """A new address, after verification."""
    new, other = draw.address(), draw.address()
    marks, checks, unverified = verification(draw)
    change, reply = f"change_address: {draw.name} | {new}", f"reply: Your address is {new}."
    changes = [f"customers {draw.name} address = {new}"]
    return Request(
        say=draw.stream.choice((f"I have moved to {new}. Please note it.", f"My new address is {new}.")),
        vague="I have moved. Please change my address.",
        answers={"address": f"My new address is {new}."},
        marks=[*marks, ("changed", "changes", changes), ("told", "told", None)],
        steps=[*checks, change, reply],
        facts=[new],
        after=["changed"],
        otherwise="changed",
        back=[IS_IT_CHANGED],
        changes=changes,
        wrong=[
            *unverified,
            ("writes another address", change, [f"change_address: {draw.name} | {other}"]),
            ("says that it changed it and does not", change, []),
            *told_wrong(reply, "One moment."),
        ],
    )


def cancel(draw: ShopDraw) -> Request:
    """Cancel what has not left the shop, after verification."""
    number, product, price = draw.new_order("processing")
    other, _, _ = draw.new_order("processing")
    marks, checks, unverified = verification(draw)
    do, reply = f"cancel_order: {number}", f"reply: Order {number} is cancelled."
    changes = [f"orders {number} status = cancelled", f"payments + {number} refund {price}"]
    return Request(
        say=draw.stream.choice(
            (f"Please cancel order {number}.", f"I do not need order {number} any more. Cancel it.")
        ),
        vague=f"Please cancel the {product} that I ordered.",
        answers=order_answers(number),
        marks=[*marks, ("cancelled", "changes", changes), ("told", "told", None)],
        steps=[*checks, do, reply],
        facts=["cancelled"],
        after=["cancelled"],
        back=[IS_IT_CANCELLED],
        changes=changes,
        wrong=[
            *unverified,
            ("cancels another order", do, [f"cancel_order: {other}"]),
            ("pays back twice", do, [do, f"refund: {number} | {price}"]),
            ("says that it cancelled and does not", do, []),
            *told_wrong(reply, "One moment."),
        ],
    )


# A change of mind -----------------------------------------------------------------------------------------------


def _rather(request: Request, before: str, say: str, mistake: tuple[str, str, list[str]]) -> Request:
    """A request that is said after another one of its kind; the mistake is to do what was said before."""
    return replace(request, say=say, vague="", before=(before, "pin"), wrong=[*request.wrong, mistake])


def cancel_other(draw: ShopDraw) -> Request:
    """Cancel this; no, rather that."""
    kept, _, _ = draw.new_order("processing")
    request = cancel(draw)
    number = int(request.changes[0].split()[1])
    said = f"No, wait: I keep order {kept}. Cancel order {number}."
    mistake = ("cancels what was asked first", f"cancel_order: {number}", [f"cancel_order: {kept}"])
    return _rather(request, f"Please cancel order {kept}.", said, mistake)


def address_again(draw: ShopDraw) -> Request:
    """Send it there; no, rather there."""
    first = draw.address()
    request = address(draw)
    new = request.facts[0]
    said = f"Oh, I mixed it up: the new address is {new}."
    change = f"change_address: {draw.name} | "
    mistake = ("writes what was asked first", f"{change}{new}", [f"{change}{first}"])
    return _rather(request, f"I have moved to {first}. Please change my address.", said, mistake)


def refund_instead(draw: ShopDraw) -> Request:
    """Take this back; no, rather that."""
    kept, _, paid = draw.new_order("delivered", draw.stream.randint(1, draw.window))
    request = vague(refund(draw))
    number, amount = request.changes[0].split()[2], request.facts[0]
    pay = f"refund: {number} | {amount}"
    return replace(
        request,
        say=f"Or no, I keep that. Take back order {number} instead.",
        before=("I want to send something back.", "order"),
        answers=order_answers(kept),
        wrong=[*request.wrong, ("refunds what was asked first", pay, [f"refund: {kept} | {paid}"])],
    )


def vague(request: Request) -> Request:
    """The same request without its number: the agent has to ask for it."""
    assert request.vague
    return replace(
        request,
        say=request.vague,
        marks=[("asked", "asked", "order"), *request.marks],
        steps=["reply: Which order, please?", *request.steps],
    )
