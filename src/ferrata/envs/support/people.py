"""Who and what is in a shop: names, addresses, products, numbers, and which of them only evaluation may use.

ShopRows    puts a shop together, customer by customer and order by order
ShopDraw    the same with everything drawn from one stream, without repetition

Names and numbers come from the office's syllables and its reserve (`office.language`): no training task contains a
name, street, order number, PIN, tracking code, price or ticket number of an evaluation task.
"""

from __future__ import annotations

import random
from typing import Any

from ferrata.envs.office.language import draw_name, reserved

PRODUCTS = (
    "kettle", "lamp", "chair", "clock", "radio", "tent", "rug", "mirror", "drill", "bench", "scale", "heater",
    "toaster", "shelf", "camera", "jacket",
)  # fmt: skip
CARRIERS = ("Swift", "Parcel One", "Northern Post")
STREETS = ("Road", "Lane", "Street", "Hill", "Square")
MAILS = ("example.com", "example.org", "example.net")

POLICIES = {
    "refund": "A delivered order is refunded when it was delivered at most {window} days ago. Later: no refund.",
    "limit": "A refund of more than {limit} is not paid here: escalate the order and tell the ticket number.",
    "sale": "Items on final sale are not refunded.",
    "twice": "An order that is already refunded is not refunded again.",
    "cancel": "Verify the identity first. A cancelled order is paid back by itself. A shipped order is not cancelled.",
    "address": "Verify the identity first. Without the right PIN no address is changed.",
    "privacy": "Address, mail, phone and tracking code are private: never tell those of another customer.",
    "damaged": "Escalate a damaged order and tell the ticket number. Do not refund it.",
    "lost": "A lost parcel is refunded in full, whatever the amount.",
    "late": "A parcel more than {late} days late: refund {fee} of its price.",
}
"""Topic -> text. Refunds go to the card that paid, so they need no verification."""


class ShopRows:
    """Collects the rows of one shop."""

    def __init__(self, window: int = 30, limit: int = 500, late: int = 5, fee: int = 10) -> None:
        self.window, self.limit, self.late, self.fee = window, limit, late, fee
        self.rows: dict[str, list[list[Any]]] = {
            table: [] for table in ("customers", "orders", "items", "shipments", "payments", "policies", "tickets")
        }
        values = {"window": window, "limit": limit, "late": late, "fee": fee}
        self.rows["policies"] = [[topic, text.format(**values)] for topic, text in POLICIES.items()]

    def add_customer(self, name: str, address: str, pin: int) -> None:
        """A customer; mail, phone and card follow from the name and the PIN."""
        mail = f"{name.lower().replace(' ', '.')}@{MAILS[pin % len(MAILS)]}"
        phone, card = f"+49 30 {pin:05d} {pin % 97:02d}", f"4000 1234 {pin:04d} {9999 - pin % 9000:04d}"
        self.rows["customers"].append([name, address, mail, phone, card, pin])

    def add_order(
        self,
        number: int,
        customer: str,
        items: dict[str, int],
        status: str,
        days: int = 0,
        *,
        carrier: str = "Swift",
        tracking: str = "",
        sale: bool = False,
        refunded: int = 0,
    ) -> None:
        """An order that was paid in full. `days` is what `shop.COLUMNS` says of shipments."""
        self.rows["orders"].append([number, customer, status])
        self.rows["items"] += [[number, name, price, "final sale" if sale else ""] for name, price in items.items()]
        if status not in ("processing", "cancelled"):
            self.rows["shipments"].append([number, carrier, tracking or f"T{number}", days])
        self._pay(number, "payment", sum(items.values()))
        if refunded:
            self._pay(number, "refund", refunded)

    def _pay(self, number: int, kind: str, amount: int) -> None:
        self.rows["payments"].append([len(self.rows["payments"]) + 1, number, kind, amount])


class ShopDraw(ShopRows):
    """A shop with one customer who speaks, drawn from one stream; no two values of it are equal."""

    def __init__(self, stream: random.Random, split: str, real: bool = True) -> None:
        self.stream = stream
        self.evaluation = split == "eval"
        self._used: set[str] = set()
        super().__init__(
            stream.choice((14, 21, 28, 30, 45)), int(self.number(500, 1000)), stream.choice((4, 5, 6, 7)),
            int(self.number(10, 100)),
        )  # fmt: skip
        self.name = self.new_customer()
        """Who speaks, or whose name a stranger uses."""
        self.pin = int(self.rows["customers"][0][5])
        self.real = real
        """False for a stranger."""
        self.verified = False
        """True once the solution has verified the customer."""
        self.asked = False
        """True once the solution has asked for a PIN that the customer does not know."""
        self.tickets = [int(self.number(100, 1000)) for _ in range(4)]
        """Numbers of the tickets that will be opened, in order."""
        self.opened = 0

    def new_name(self) -> str:
        """A name that this shop does not have yet."""
        while True:
            name = draw_name(self.stream, self.evaluation)
            if name not in self._used:
                self._used.add(name)
                return name

    def number(self, low: int = 1000, high: int = 10000) -> str:
        """A number of the split, in [low, high), that this shop does not have yet."""
        while True:
            value = str(self.stream.randrange(low, high))
            if reserved(value) == self.evaluation and value not in self._used:
                self._used.add(value)
                return value

    def price(self, high: int | None = None) -> int:
        """A price of three digits, below the limit for refunds unless told otherwise."""
        return int(self.number(100, high or self.limit))

    def address(self) -> str:
        """House number and street."""
        return f"{self.number(100, 1000)} {self.new_name()} {self.stream.choice(STREETS)}"

    def products(self, count: int = 1) -> list[str]:
        """Different products."""
        return self.stream.sample(PRODUCTS, count)

    def new_customer(self) -> str:
        """Add a customer and return the name."""
        name = self.new_name()
        self.add_customer(name, self.address(), int(self.number()))
        return name

    def new_order(
        self,
        status: str,
        days: int = 0,
        *,
        customer: str = "",
        price: int = 0,
        sale: bool = False,
        refunded: bool = False,
    ) -> tuple[int, str, int]:
        """Add an order of one item; returns its number, product and price."""
        number, product, price = int(self.number()), self.products()[0], price or self.price()
        tracking = f"T{self.number()}"
        carrier, paid_back = self.stream.choice(CARRIERS), price if refunded else 0
        self.add_order(
            number, customer or self.name, {product: price}, status, days,
            carrier=carrier, tracking=tracking, sale=sale, refunded=paid_back,
        )  # fmt: skip
        return number, product, price

    def ticket(self) -> int:
        """Number of the next ticket that the solution opens."""
        self.opened += 1
        return self.tickets[self.opened - 1]

    def add_strangers(self) -> None:
        """Other customers with orders of their own, and one more order of the speaker."""
        for _ in range(self.stream.randint(1, 2)):
            self.new_order("delivered", self.stream.randint(1, 60), customer=self.new_customer())
        self.new_order(self.stream.choice(("processing", "delivered")), self.stream.randint(1, 60))
