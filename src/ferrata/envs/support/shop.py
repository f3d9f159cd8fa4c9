"""The shop: a real SQLite database in memory, one set of rows an episode.

Shop         look-ups and effects; `rows` and `reset` carry the whole state out and in
difference   what has changed between two states, as short readable lines
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ferrata.envs.tools import ToolError

Rows = Mapping[str, Sequence[Sequence[Any]]]
"""Table -> its rows, in the order of the columns in `COLUMNS`."""

_SCHEMA = """
CREATE TABLE customers (name TEXT PRIMARY KEY COLLATE NOCASE, address TEXT NOT NULL, mail TEXT NOT NULL,
    phone TEXT NOT NULL, card TEXT NOT NULL, pin INTEGER NOT NULL);
CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL COLLATE NOCASE REFERENCES customers,
    status TEXT NOT NULL CHECK (status IN ('processing', 'shipped', 'delivered', 'lost', 'cancelled')));
CREATE TABLE items (number INTEGER NOT NULL REFERENCES orders, product TEXT NOT NULL,
    price INTEGER NOT NULL CHECK (price > 0), sale TEXT NOT NULL, PRIMARY KEY (number, product));
CREATE TABLE shipments (number INTEGER PRIMARY KEY REFERENCES orders, carrier TEXT NOT NULL,
    tracking TEXT NOT NULL, days INTEGER NOT NULL);
CREATE TABLE payments (id INTEGER PRIMARY KEY, number INTEGER NOT NULL REFERENCES orders,
    kind TEXT NOT NULL CHECK (kind IN ('payment', 'refund')), amount INTEGER NOT NULL CHECK (amount > 0));
CREATE TABLE policies (topic TEXT PRIMARY KEY COLLATE NOCASE, text TEXT NOT NULL);
CREATE TABLE tickets (ticket INTEGER PRIMARY KEY, number INTEGER NOT NULL REFERENCES orders, reason TEXT NOT NULL);
"""

COLUMNS = {
    "customers": ("name", "address", "mail", "phone", "card", "pin"),
    "orders": ("number", "customer", "status"),
    "items": ("number", "product", "price", "sale"),
    "shipments": ("number", "carrier", "tracking", "days"),
    "payments": ("id", "number", "kind", "amount"),
    "policies": ("topic", "text"),
    "tickets": ("ticket", "number", "reason"),
}
"""Table -> its columns, parents before children. Prices and amounts are whole units of one currency.

`shipments.days`: days since delivery for a delivered order, days until delivery for a shipped one (negative: so many
days late), days of delay for a lost one.
"""

_INSERT = {table: f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})" for table, columns in COLUMNS.items()}
_SELECT = {table: f"SELECT * FROM {table} ORDER BY 1, 2" for table in COLUMNS}
_SHOWN = {"payments": slice(1, None), "tickets": slice(1, 2)}
"""Which cells of a new row name it in `difference`: numbers that the shop itself gives out do not."""
_MOST = 10**9
"""Larger numbers are neither orders nor amounts."""


class Shop:
    """One in-memory database. Look-ups raise ToolError for what is not there."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.executescript(_SCHEMA)
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._rows: dict[str, list[list[Any]]] = {}
        self._read_at = -1

    def reset(self, rows: Rows) -> None:
        """Replace everything by `rows`."""
        with self._connection as run:
            run.execute("BEGIN")
            for table in reversed(COLUMNS):
                run.execute(f"DELETE FROM {table}")
            for table, insert in _INSERT.items():
                run.executemany(insert, rows.get(table, ()))

    def rows(self) -> dict[str, list[list[Any]]]:
        """The whole state, JSON-ready, in an order that depends on the content alone; not to be changed.

        Most steps change nothing: the rows are read again only when the connection has written since.
        """
        written = self._connection.total_changes
        if written != self._read_at:
            run = self._connection.execute
            self._rows = {table: [list(row) for row in run(sql)] for table, sql in _SELECT.items()}
            self._read_at = written
        return self._rows

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # Look-ups -------------------------------------------------------------------------------------------------

    def customer(self, name: str) -> dict[str, Any]:
        """One customer's row, by name in any case."""
        return self._one("customers", "name", name.strip(), f"no customer {name[:40]!r}")

    def order(self, number: float) -> dict[str, Any]:
        """One order's row."""
        return self._one("orders", "number", self._whole(number), f"no order {str(number)[:20]}")

    def shipment(self, number: float) -> dict[str, Any] | None:
        """An order's shipment; None when it has not left the shop."""
        order = self.order(number)
        found = self._all("shipments", "number", order["number"])
        return found[0] if found else None

    def policy(self, topic: str) -> str:
        """The text of a policy. ToolError lists the topics."""
        topics = ", ".join(row[0] for row in self._connection.execute("SELECT topic FROM policies ORDER BY 1"))
        text: str = self._one("policies", "topic", topic.strip(), f"no policy {topic[:40]!r}. Topics: {topics}")["text"]
        return text

    def orders_of(self, name: str) -> list[dict[str, Any]]:
        """A customer's orders."""
        return self._all("orders", "customer", name)

    def items(self, number: int) -> list[dict[str, Any]]:
        """The items of an order."""
        return self._all("items", "number", number)

    def amount(self, number: int, kind: str) -> int:
        """What was paid for an order, or refunded."""
        return sum(row["amount"] for row in self._all("payments", "number", number) if row["kind"] == kind)

    def refunded_before(self, number: int, amount: int) -> bool:
        """True when this refund, or a part of it, would be paid a second time."""
        refunds = [row["amount"] for row in self._all("payments", "number", number) if row["kind"] == "refund"]
        return bool(refunds) and (amount in refunds or sum(refunds) + amount > self.amount(number, "payment"))

    # Effects --------------------------------------------------------------------------------------------------

    def change_address(self, name: str, address: str) -> None:
        """Write a customer's new address."""
        self._connection.execute("UPDATE customers SET address = ? WHERE name = ?", (address, name))

    def refund(self, number: int, amount: int) -> None:
        """Pay back a part or the whole of an order."""
        self._connection.execute(
            "INSERT INTO payments (number, kind, amount) VALUES (?, 'refund', ?)", (number, amount)
        )

    def cancel(self, number: int) -> int:
        """Cancel an order and pay back what is still paid; returns that amount."""
        left = self.amount(number, "payment") - self.amount(number, "refund")
        self._connection.execute("UPDATE orders SET status = 'cancelled' WHERE number = ?", (number,))
        if left > 0:
            self.refund(number, left)
        return left

    def open_ticket(self, ticket: int, number: int, reason: str) -> None:
        """Hand an order to a person."""
        self._connection.execute("INSERT INTO tickets VALUES (?, ?, ?)", (ticket, number, reason))

    def tickets(self) -> int:
        """How many tickets are open."""
        return int(self._connection.execute("SELECT count(*) FROM tickets").fetchone()[0])

    def _all(self, table: str, column: str, value: object) -> list[dict[str, Any]]:
        rows = self._connection.execute(f"SELECT * FROM {table} WHERE {column} = ? ORDER BY 1, 2", (value,))
        return [dict(zip(COLUMNS[table], row, strict=True)) for row in rows]

    def _one(self, table: str, column: str, value: object, missing: str) -> dict[str, Any]:
        found = self._all(table, column, value)
        if not found:
            raise ToolError(missing)
        return found[0]

    @staticmethod
    def _whole(number: float) -> int:
        """JSON's 4127.0 is the whole number 4127; what no order can be is -1."""
        return int(number) if 0 <= number <= _MOST else -1


def difference(before: Rows, after: Rows) -> list[str]:
    """What has changed, sorted: `customers Belvan address = 7 Holfay Road`, `payments + 4127 refund 120`,
    `orders 4127 status = cancelled`, `tickets + 4127`, `policies - refund`.
    """
    lines: list[str] = []
    for table, columns in COLUMNS.items():
        old, new = (_keyed(table, rows.get(table, ())) for rows in (before, after))
        for key, row in new.items():
            if key not in old:
                shown = row[_SHOWN.get(table, slice(None))]
                lines.append(f"{table} + {' '.join(map(str, shown))}")
            elif list(row) != list(old[key]):
                changed = zip(columns, old[key], row, strict=True)
                lines += [f"{table} {key} {column} = {now}" for column, was, now in changed if was != now]
        lines += [f"{table} - {key}" for key in old if key not in new]
    return sorted(lines)


def contains(lines: Sequence[str], wanted: Sequence[str]) -> bool:
    """True when every wanted change is among the lines, as often as it is wanted."""
    return not Counter(wanted) - Counter(lines)


def _keyed(table: str, rows: Sequence[Sequence[Any]]) -> dict[Any, Sequence[Any]]:
    """Rows by their key; an item's key is its order and product."""
    if table == "items":
        return {f"{row[0]} {row[1]}": row for row in rows}
    return {row[0]: row for row in rows}
