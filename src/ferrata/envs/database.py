"""A real SQLite database that the agent may only read, held by SQLite's own authorizer and a step limit."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from ferrata.envs.tools import Refused, ToolError

MAX_ROWS = 1000
MAX_INSTRUCTIONS = 200_000
"""Virtual-machine instructions that one query may take, so that no query runs for ever."""
MAX_SQL_CHARACTERS = 10_000

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
_FUNCTIONS = {
    "abs", "avg", "coalesce", "count", "ifnull", "instr", "length", "lower", "ltrim", "max", "min", "nullif",
    "replace", "round", "rtrim", "substr", "sum", "total", "trim", "typeof", "upper", "like", "glob",
}  # fmt: skip

Table = Mapping[str, Any]
"""{"columns": [name, ...], "rows": [[value, ...], ...]}"""


class Database:
    """One in-memory database; `reset` gives it an episode's tables, `query` is the agent's read-only view."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._layout: dict[str, tuple[str, ...]] = {}

    def reset(self, tables: Mapping[str, Table]) -> None:
        """Replace everything by `tables`. Where names and columns stay the same, only the rows are exchanged."""
        layout = {name: tuple(table["columns"]) for name, table in tables.items()}
        if self._connection is None or layout != self._layout:
            self._connection = self._create(layout)
        connection = self._connection
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        connection.execute("BEGIN")
        for name, table in tables.items():
            connection.execute(f'DELETE FROM "{name}"')
            marks = ", ".join("?" * len(table["columns"]))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', table["rows"])
        connection.execute("COMMIT")
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: 1, MAX_INSTRUCTIONS)

    def _create(self, layout: dict[str, tuple[str, ...]]) -> sqlite3.Connection:
        self.close()
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        for name, columns in layout.items():
            quoted = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{name}" ({quoted})')
        self._layout = layout
        return connection

    def query(self, sql: str) -> tuple[list[str], list[Sequence[Any]]]:
        """Column names and at most 1,000 rows. `Refused` for anything but reading, `ToolError` for bad SQL."""
        assert self._connection is not None, "reset comes first"
        if len(sql) > MAX_SQL_CHARACTERS:
            raise ToolError(f"the query has {len(sql)} characters, at most {MAX_SQL_CHARACTERS} are read")
        try:
            cursor = self._connection.execute(sql)
            rows = cursor.fetchmany(MAX_ROWS)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            raise _translate(error) from None
        if cursor.description is None:
            raise Refused("only SELECT is allowed")
        return [column[0] for column in cursor.description], rows

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """SQLite asks before every operation of a statement: reading and harmless functions only."""
    if action not in _ALLOWED or (first or "").lower().startswith("sqlite_"):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _translate(error: Exception) -> Exception:
    text = str(error)
    if "not authorized" in text or "prohibited" in text:
        return Refused("only SELECT on the office tables is allowed")
    if "interrupted" in text:
        return ToolError("the query takes too long")
    return ToolError(f"SQL: {text[:200] or type(error).__name__}")
