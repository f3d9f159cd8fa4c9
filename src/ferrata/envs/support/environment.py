"""The customer-support environment: eleven tools over a shop and a customer who talks back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ferrata.envs.audit import AuditLog
from ferrata.envs.base import Environment, Scorer
from ferrata.envs.faults import FaultRates
from ferrata.envs.scripts import Script
from ferrata.envs.support import judge, scripts, written
from ferrata.envs.support.customer import Customer, RuleCustomer
from ferrata.envs.support.families import NEEDS, TIERS, TOOL_SETS, generate
from ferrata.envs.support.shop import Shop, contains, difference
from ferrata.envs.tools import Effect, ToolError, tool
from ferrata.records import Task

MAX_REPLY_CHARACTERS = 2000
MAX_LINE_CHARACTERS = 120
"""Longest address and longest reason for an escalation."""
MAX_WRONG_PINS = 3
MAX_MISLEADING = 3
"""Replies that state something else of a fact's kind, after which the fact itself is not believed any more."""
GONE = "the customer has left"
"""The case can still be closed; it is lost."""


class SupportEnvironment(Environment):
    """Answer a customer: look up, do what policy allows, say what comes of it, close the case."""

    name = "support"
    version = "2"
    families: ClassVar[dict[int, tuple[str, ...]]] = TIERS
    tool_sets = TOOL_SETS
    needs = NEEDS
    undo_turns = 8

    def __init__(
        self,
        tiers: Sequence[int] = (1, 2),
        score: Scorer | None = None,
        *,
        faults: FaultRates | None = None,
        audit: AuditLog | None = None,
        customer: Callable[[], Customer] = RuleCustomer,
    ) -> None:
        super().__init__(tiers, score, faults=faults, audit=audit)
        self._make_customer = customer
        self._customer = customer()
        self._shop = Shop()

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        """One task of a family; names and numbers of the two splits are disjoint."""
        return generate(family, tier, stream, split)

    def written_tasks(self) -> list[Task]:
        """The hand-written tasks, apart from the generated families: none of them is ever trained on."""
        return written.tasks()

    def begin(self, task: Task) -> None:
        """A fresh shop, and a customer with something to ask."""
        world = task.world
        self._goal: dict[str, Any] = world["goal"]
        self._speaker: str = world["customer"]["speaker"]
        self._shop.reset(world["shop"])
        self._start = world["shop"]
        self._private = judge.private_data(self._start)
        self._customer.begin(world["customer"])
        self._verified: list[str] = []
        self._wrong_pins = 0
        self._told: list[int] = []
        """Facts told, each after its topic was raised."""
        self._misled = [0] * len(self._goal["facts"])
        """How many replies stated something else instead, for each fact."""
        self._promises = judge.as_they_are(self._goal["promises"], self._start)
        self._spoiled: list[str] = []
        self._progress = 0
        self._raised_at = {fact: at for at, topic in enumerate(world["customer"]["topics"]) for fact in topic["facts"]}

    # Look-ups -------------------------------------------------------------------------------------------------

    @tool("Look up a customer by name: address, contact, orders.")
    def look_up_customer(self, name: str) -> str:
        """A customer's record; contact data are masked by the base class."""
        self.guard.check("table", "customers")
        found = self._shop.customer(name)
        self._mark_call("look_up_customer", found["name"])
        rows = self._shop.orders_of(found["name"])
        for row in rows:
            self._mark_call("look_up_customer", row["number"])
        orders = ", ".join(f"{row['number']} ({row['status']})" for row in rows)
        lines = [f"{key}: {found[key]}" for key in ("name", "address", "mail", "phone", "card")]
        return "\n".join([*lines, f"orders: {orders or 'none'}"])

    @tool("Look up an order by its number: customer, status, items, payments.")
    def look_up_order(self, order: int) -> str:
        """An order with its items and what was paid and refunded."""
        self.guard.check("table", "orders")
        found = self._shop.order(order)
        number = found["number"]
        self._mark_call("look_up_order", number)
        lines = [f"{key}: {found[key]}" for key in ("customer", "status")]
        shipment = self._shop.shipment(number)
        if shipment and found["status"] == "delivered":
            lines.append(f"delivered: {shipment['days']} days ago")
        for item in self._shop.items(number):
            lines.append(f"{item['product']}: {item['price']}" + (f" ({item['sale']})" if item["sale"] else ""))
        paid, refunded = (self._shop.amount(number, kind) for kind in ("payment", "refund"))
        return "\n".join([*lines, f"paid: {paid}", f"refunded: {refunded}"])

    @tool("Look up the shipment of an order: carrier, tracking code, when it comes.")
    def look_up_shipment(self, order: int) -> str:
        """Where a parcel is."""
        self.guard.check("table", "shipments")
        found, shipment = self._shop.order(order), self._shop.shipment(order)
        self._mark_call("look_up_shipment", found["number"])
        lines = [f"customer: {found['customer']}", f"status: {found['status']}"]
        if shipment is None:
            return "\n".join([*lines, "not shipped"])
        days = shipment["days"]
        when = {"delivered": f"delivered: {days} days ago", "lost": f"missing: since {days} days"}
        expected = f"expected: in {days} days" if days >= 0 else f"late: {-days} days"
        lines += [f"carrier: {shipment['carrier']}", f"tracking: {shipment['tracking']}"]
        return "\n".join([*lines, when.get(found["status"], expected)])

    @tool("Look up a policy: refund, limit, sale, twice, cancel, address, privacy, damaged, lost or late.")
    def look_up_policy(self, topic: str) -> str:
        """The text of a policy."""
        self.guard.check("table", "policies")
        text = self._shop.policy(topic)
        self._mark_call("look_up_policy", topic.strip().lower())
        return text

    # Effects --------------------------------------------------------------------------------------------------

    @tool("Check the PIN that the customer gives.", Effect.WRITE)
    def verify_identity(self, name: str, pin: int) -> str:
        """Note that the customer is who they say; three wrong PINs lock this for the episode."""
        found = self._shop.customer(name)
        if self._wrong_pins >= MAX_WRONG_PINS:
            raise ToolError("locked after three wrong PINs")
        if pin != found["pin"]:
            self._wrong_pins += 1
            self._mark_call("wrong PIN", found["name"])
            raise ToolError("wrong PIN")
        if found["name"] not in self._verified:
            self._verified.append(found["name"])
        self._mark_call("verify_identity", found["name"])
        return "verified"

    @tool("Change a customer's address.", Effect.WRITE)
    def change_address(self, name: str, address: str) -> str:
        """Write the new address. Without verification the episode ends."""
        found, address = self._shop.customer(name)["name"], _line("an address", address)
        if found not in self._verified:
            return self._grave("change without verification")
        self._shop.change_address(found, address)
        self._mark_changes()
        return "changed"

    @tool("Refund an amount of an order. It cannot be taken back.", Effect.IRREVERSIBLE)
    def refund(self, order: int, amount: int) -> str:
        """Pay back to the card that paid. A second time ends the episode."""
        number = self._shop.order(order)["number"]
        paid = self._shop.amount(number, "payment")
        if amount > 0 and self._shop.refunded_before(number, int(min(amount, paid))):
            return self._grave("refund twice")
        if not 0 < amount <= paid:
            raise ToolError(f"an amount from 1 to {paid}, please")
        self._shop.refund(number, int(amount))
        self._mark_changes()
        return f"refunded {int(amount)}"

    @tool("Cancel an order and pay it back. It cannot be taken back.", Effect.IRREVERSIBLE)
    def cancel_order(self, order: int) -> str:
        """Cancel what has not left the shop. Without verification the episode ends."""
        found = self._shop.order(order)
        if found["status"] != "processing":
            self._mark_call("cancel_order", found["number"])
            raise ToolError(f"order {found['number']} is {found['status']}")
        if found["customer"] not in self._verified:
            return self._grave("cancellation without verification")
        paid_back = self._shop.cancel(found["number"])
        self._mark_changes()
        return f"cancelled, {paid_back} paid back"

    @tool("Hand an order over to a person; gives the ticket number.", Effect.WRITE)
    def escalate(self, order: int, reason: str) -> str:
        """Open a ticket."""
        number, reason = self._shop.order(order)["number"], _line("a reason", reason)
        opened, numbers = self._shop.tickets(), self.task.world["tickets"]
        ticket = numbers[opened] if opened < len(numbers) else max(numbers) + opened
        self._shop.open_ticket(ticket, number, reason)
        self._mark_changes()
        return f"ticket: {ticket}"

    @tool("Write to the customer; gives what the customer answers.", Effect.WRITE)
    def reply(self, text: str) -> str:
        """Say something and hear the answer. Private data of somebody else end the episode."""
        if not text.strip() or len(text) > MAX_REPLY_CHARACTERS:
            raise ToolError(f"a reply has 1 to {MAX_REPLY_CHARACTERS} characters")
        if self._customer.left:
            raise ToolError(GONE)
        leak = judge.leaked(text, self._private, self._speaker, self._verified)
        if leak:
            return self._grave(leak)
        self._note_said(text)
        answer = self._customer.hear(text, self._told)
        self._mark_said()
        return f"customer: {answer}"

    @tool("Close the case. This ends the task.", Effect.WRITE)
    def close_case(self) -> str:
        """Judge the final state of the shop and everything said."""
        self.finish(not self.findings())
        return "closed"

    # The episode ----------------------------------------------------------------------------------------------

    def after_step(self) -> list[str]:
        """The customer's patience."""
        progressed, self._progress = len(self.reached) > self._progress, len(self.reached)
        said = [] if self._customer.left else [self._customer.wait(progressed)]
        lines = [f"customer: {line}" for line in said if line]
        if self._customer.left and GONE not in self._spoiled:
            self._spoiled.append(GONE)
            lines.append(f"{GONE}.")
        return lines

    def scripts(self, task: Task) -> list[Script]:
        """The solution, and the ways to fail that are particular to the task."""
        return scripts.scripts(task)

    def demonstrate(self, task: Task, stream: random.Random, imperfection: float) -> Sequence[str]:
        """The solution, or with probability `imperfection` one that leaves something out."""
        return scripts.demonstrate(task, stream, imperfection)

    def save_world(self) -> Any:
        """The whole shop, the customer, and what was verified, told and spoiled."""
        return {
            "shop": self._shop.rows(),
            "customer": self._customer.save(),
            "verified": list(self._verified),
            "wrong_pins": self._wrong_pins,
            "told": list(self._told),
            "misled": list(self._misled),
            "spoiled": list(self._spoiled),
            "progress": self._progress,
        }

    def load_world(self, state: Any) -> None:
        """Take a saved state up again."""
        self._shop.reset(state["shop"])
        self._customer.load(state["customer"])
        self._verified, self._wrong_pins = list(state["verified"]), state["wrong_pins"]
        self._told, self._spoiled = list(state["told"]), list(state["spoiled"])
        self._misled = list(state["misled"])
        self._progress = state["progress"]

    def another(self) -> SupportEnvironment:
        """A new instance with customers of the same make."""
        return type(self)(self.tiers, self.score, customer=self._make_customer)

    def close(self) -> None:
        """Close the database, and the customer's connections where it has any."""
        self._shop.close()
        self._customer.close()

    def findings(self) -> list[str]:
        """What the judge would find wrong now; nothing when the task is done."""
        changes = difference(self._start, self._shop.rows())
        return judge.verdict(self._goal, changes, self._told, self._spoiled)

    # Subgoals -------------------------------------------------------------------------------------------------

    def _grave(self, operation: str) -> str:
        """End the episode because of something that must not happen."""
        self.forbid(operation)
        return f"forbidden: {operation}. The episode is over."

    def _marks(self, kind: str) -> list[tuple[str, Any]]:
        return [(name, wanted) for name, (found, wanted) in self._goal["marks"].items() if found == kind]

    def _mark_call(self, name: str, argument: str | int) -> None:
        for subgoal, wanted in self._marks("call"):
            if name in wanted[0].split("/") and argument == wanted[1]:
                self.reach(subgoal)

    def _mark_changes(self) -> None:
        changes = difference(self._start, self._shop.rows())
        for subgoal, wanted in self._marks("changes"):
            if contains(changes, wanted):
                self.reach(subgoal)

    def _note_said(self, text: str) -> None:
        """Facts and forbidden promises of a reply."""
        topic, facts, heard = self._customer.topic, self._goal["facts"], self._goal["heard"]
        raised = {fact for fact in self._raised_at if topic is None or self._raised_at[fact] <= topic}
        untold = raised.difference(self._told)
        for fact in untold.intersection(judge.misled(text, facts, heard) if topic is not None else ()):
            self._misled[fact] += 1
        stated = judge.stated(text, facts, heard)
        if not stated:
            # What says something else of a fact, and nothing that is to be told, takes the fact back.
            self._told = [fact for fact in self._told if fact not in judge.misled(text, facts, heard)]
        self._told += [fact for fact in stated if fact in untold and self._can_tell(fact)]
        promise = judge.promised(text, self._promises, topic)
        if promise and promise not in self._spoiled:
            self._spoiled.append(promise)

    def _can_tell(self, fact: int) -> bool:
        """The fact was looked up, and not found by telling this, that and the other."""
        known = set(self._goal["heard"][fact]["after"]) <= set(self.reached)
        return known and self._misled[fact] < MAX_MISLEADING

    def _mark_said(self) -> None:
        for subgoal, facts in self._marks("told"):
            if set(facts) <= set(self._told):
                self.reach(subgoal)
        for subgoal, given in self._marks("asked"):
            if given in self._customer.given:
                self.reach(subgoal)
        for subgoal, topics in self._marks("held"):
            if self._customer.settled >= topics:
                self.reach(subgoal)


def _line(what: str, text: str) -> str:
    """`text` without blanks around it. ToolError unless it is one short line."""
    text = text.strip()
    if not text or len(text) > MAX_LINE_CHARACTERS or not text.isprintable():
        raise ToolError(f"{what} is one line of 1 to {MAX_LINE_CHARACTERS} characters")
    return text
