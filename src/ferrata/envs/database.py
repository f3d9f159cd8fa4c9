"""A real SQLite database that the agent may only read, held by SQLite itself.

Its authorizer is asked about every table and function of a statement, the connection is read-only while the agent
asks, and a limit on instructions and wall time ends what runs for ever.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ferrata.envs.permissions import Guard
from ferrata.envs.tools import Refused, ToolError

MAX_ROWS = 1000
MAX_INSTRUCTIONS = 200_000
"""Virtual-machine instructions that one query may take, so that no query runs for ever."""
MAX_SECONDS = 1.0
"""Wall time of one query: a backstop for single instructions that take long, such as LIKE on long texts."""
MAX_SQL_CHARACTERS = 10_000
MAX_VALUE_BYTES = 10_000
"""Of one value or row: what a single instruction can cost grows with its square."""
MAX_PATTERN_CHARACTERS = 100
_CHECK_EVERY = 1000
"""Instructions between two looks at the limits."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
_FUNCTIONS = {
    "abs", "avg", "coalesce", "count", "ifnull", "instr", "length", "lower", "ltrim", "max", "min", "nullif",
    "replace", "round", "rtrim", "substr", "sum", "total", "trim", "typeof", "upper", "like", "glob",
}  # fmt: skip

_EXPLAIN = re.compile(r"(?>\s+|;|--[^\n]*|/\*.*?\*/)*+explain\b", re.IGNORECASE | re.DOTALL)
"""The one statement that SQLite does not ask about."""
_OPERATIONS = {
    sqlite3.SQLITE_ATTACH: "attach", sqlite3.SQLITE_DETACH: "detach", sqlite3.SQLITE_PRAGMA: "pragma",
    sqlite3.SQLITE_INSERT: "insert", sqlite3.SQLITE_UPDATE: "update", sqlite3.SQLITE_DELETE: "delete",
    sqlite3.SQLITE_TRANSACTION: "transaction",
}  # fmt: skip
"""Names of what is refused; everything else changes the schema."""

Table = Mapping[str, Any]
"""{"columns": [name, ...], "rows": [[value, ...], ...]}"""


class Database:
    """One in-memory database; `reset` gives it an episode's tables, `query` is the agent's read-only view."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._layout: dict[str, tuple[str, ...]] = {}
        self._tables: dict[str, str] = {}
        self._guard = Guard()
        self._denied: Refused | None = None
        self._looks = 0
        self._deadline = 0.0

    def reset(self, tables: Mapping[str, Table], guard: Guard | None = None) -> None:
        """Replace everything by `tables`; `guard` says which of them the agent may read.

        Where names and columns stay the same, only the rows are exchanged.
        """
        self._guard = guard or Guard()
        layout = {name: tuple(table["columns"]) for name, table in tables.items()}
        if self._connection is None or layout != self._layout:
            self._connection = self._create(layout)
        connection = self._connection
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        connection.execute("PRAGMA query_only = OFF")
        connection.execute("BEGIN")
        for name, table in tables.items():
            connection.execute(f'DELETE FROM "{name}"')
            marks = ", ".join("?" * len(table["columns"]))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', table["rows"])
        connection.execute("COMMIT")
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._out_of_time, _CHECK_EVERY)

    def query(self, sql: str) -> tuple[list[str], list[Sequence[Any]]]:
        """Column names and at most 1,000 rows. `Refused` for anything but reading, `ToolError` for bad SQL."""
        assert self._connection is not None, "reset comes first"
        if len(sql) > MAX_SQL_CHARACTERS:
            raise ToolError(f"the query has {len(sql)} characters, at most {MAX_SQL_CHARACTERS} are read")
        if _EXPLAIN.match(sql):
            raise Refused("only SELECT on the tables is allowed", "sql:explain")
        self._denied, self._looks, self._deadline = None, 0, time.monotonic() + MAX_SECONDS
        try:
            cursor = self._connection.execute(sql)
            rows = cursor.fetchmany(MAX_ROWS)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            raise self._denied or _translate(error) from None
        if cursor.description is None:
            raise Refused("only SELECT is allowed", "sql:no result")
        return [column[0] for column in cursor.description], rows

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _create(self, layout: dict[str, tuple[str, ...]]) -> sqlite3.Connection:
        self.close()
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_CHARACTERS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for name, columns in layout.items():
            quoted = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{name}" ({quoted})')
        self._layout, self._tables = layout, {name.lower(): name for name in layout}
        return connection

    def _authorize(self, operation: int, first: str | None, second: str | None, *_: str | None) -> int:
        """SQLite asks before every operation of a statement; what was denied is kept for the answer."""
        try:
            self._check(operation, first or "", second or "")
        except Refused as refusal:
            self._denied = self._denied or refusal
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _check(self, operation: int, first: str, second: str) -> None:
        """Reading and harmless functions only, and of the tables only those that the task may read."""
        if operation == sqlite3.SQLITE_READ:
            # Names come as the query writes them, capitals included.
            table = self._tables.get(first.lower())
            if table is None:
                raise Refused(f"'{first[:100]}' is not a table of this database", f"table:{first}")
            self._guard.check("table", table)
        elif operation == sqlite3.SQLITE_FUNCTION and second.lower() not in _FUNCTIONS:
            raise Refused(f"the function {second[:100]} is not allowed", f"sql:{second}")
        elif operation == sqlite3.SQLITE_RECURSIVE:
            raise Refused("recursive queries are not allowed", "sql:recursive")
        elif operation not in _ALLOWED:
            raise Refused("only SELECT on the office tables is allowed", f"sql:{_OPERATIONS.get(operation, 'schema')}")

    def _out_of_time(self) -> bool:
        """SQLite asks every 1,000 instructions whether to stop."""
        self._looks += 1
        return self._looks * _CHECK_EVERY > MAX_INSTRUCTIONS or time.monotonic() > self._deadline


def _translate(error: Exception) -> Exception:
    text = str(error)
    if "not authorized" in text or "prohibited" in text or "readonly" in text:
        return Refused("only SELECT on the office tables is allowed", "sql:not authorized")
    if "interrupted" in text:
        return ToolError("the query takes too long")
    return ToolError(f"SQL: {text[:200] or type(error).__name__}")
