"""A real SQLite database that the agent may only read, held by SQLite itself.

Its authorizer is asked about every table, column and function of a statement, the connection is read-only while the
agent asks, and limits on compiling, instructions and wall time end what runs for ever. `Database.reads` tells which
columns the latest query looked at.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ferrata.envs.permissions import Guard
from ferrata.envs.tools import Refused, ToolError
from ferrata.errors import TaskError

MAX_ROWS = 1000
MAX_INSTRUCTIONS = 200_000
"""Virtual-machine instructions that one query may take, so that no query runs for ever."""
MAX_SECONDS = 1.0
"""Wall time of one query: a backstop for single instructions that take long, such as TRIM of long texts."""
MAX_SQL_CHARACTERS = 10_000
MAX_VALUE_BYTES = 1_000
"""Of one value or row: what a single instruction can cost grows with its square."""
MAX_PATTERN_CHARACTERS = 100
MAX_PROGRAM = 1_000
"""Instructions of a compiled query: SQLite looks at the limits only where it jumps, not in between."""
MAX_COLUMNS = 100
MAX_COPIES = 20_000
"""Copies of one expression that compiling may make; SQLite cannot be interrupted while it compiles."""
_CHECK_EVERY = 50
"""Instructions between two looks at the limits."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
_FUNCTIONS = {
    "abs", "avg", "coalesce", "count", "ifnull", "instr", "length", "lower", "ltrim", "max", "min", "nullif",
    "replace", "round", "rtrim", "substr", "sum", "total", "trim", "typeof", "upper", "like", "glob",
}  # fmt: skip

_MERGED = re.compile(r"\b(?:using|natural)\b", re.IGNORECASE)
"""Words of joins that merge columns."""
_READS = re.compile(r"(?>[\s;(]+|--[^\n]*|/\*.*?\*/)*+(?:select|with|values)\b", re.IGNORECASE | re.DOTALL)
"""What surely is no EXPLAIN, the one statement that SQLite does not ask about."""
_EXPLAIN = re.compile("explain", re.IGNORECASE)
_SELECT = re.compile(r"\b(union(?:\s+all)?\s+|except\s+|intersect\s+)?select\b", re.IGNORECASE)
_KEYWORDS = re.sub(
    " ",
    "|",
    "all and as asc between by case count cross desc distinct else end except exists from group having in inner "
    "intersect is join left like limit max min not null offset on or order sum then union using when where with",
)
_TERMS = re.compile(rf"""(?!(?:{_KEYWORDS})\b)\w+|"[^"]*"|\[[^\]]*\]|`[^`]*`|[^\x00-\x7f]+|\*""", re.IGNORECASE)
"""What may name a column."""
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
        self._names: dict[str, str] = {}
        self._columns: dict[str, dict[str, str]] = {}
        self._roots: dict[int, str] = {}
        self._modules: frozenset[str] = frozenset()
        self._guard = Guard()
        self._reads: set[tuple[str, str]] = set()
        self._denied: Refused | None = None
        self._looks = 0
        self._deadline = 0.0

    def reset(self, tables: Mapping[str, Table], guard: Guard | None = None) -> None:
        """Replace everything by `tables`; `guard` says which of them the agent may read.

        Where names and columns stay the same, only the rows are exchanged. Raises TaskError for a row of more than
        1,000 bytes.
        """
        self._guard = guard or Guard()
        self._reads.clear()
        layout = {name: tuple(table["columns"]) for name, table in tables.items()}
        if self._connection is None or layout != self._layout:
            self._connection = self._create(layout)
        connection = self._connection
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        connection.execute("PRAGMA query_only = OFF")
        self._fill(connection, tables)
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._out_of_time, _CHECK_EVERY)

    @property
    def reads(self) -> frozenset[tuple[str, str]]:
        """(table, column) of every column that the latest query looked at, conditions included, as `reset` named them.

        Empty before the first query and after one that was refused. SQLite's row numbers are no columns.
        """
        return frozenset(self._reads)

    def query(self, sql: str) -> tuple[list[str], list[Sequence[Any]]]:
        """Column names and at most 1,000 rows. `Refused` for anything but reading, `ToolError` for bad SQL."""
        assert self._connection is not None, "reset comes first"
        self._reads.clear()
        if len(sql) > MAX_SQL_CHARACTERS:
            raise ToolError(f"the query has {len(sql)} characters, at most {MAX_SQL_CHARACTERS} are read")
        if _copies(sql) > MAX_COPIES:
            raise ToolError("the query nests too many long subqueries")
        try:
            return self._ask(sql)
        except (Refused, ToolError):
            self._reads.clear()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, sql: str) -> tuple[list[str], list[Sequence[Any]]]:
        assert self._connection is not None
        if not _READS.match(sql) and _EXPLAIN.search(sql):
            raise Refused("only SELECT on the tables is allowed", "sql:explain")
        self._denied, self._looks, self._deadline = None, 0, time.monotonic() + MAX_SECONDS
        try:
            if _MERGED.search(sql):
                self._find_merged(sql)
            cursor = self._connection.execute(sql)
            rows = cursor.fetchmany(MAX_ROWS)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
            raise self._denied or _translate(error) from None
        if cursor.description is None:
            raise Refused("only SELECT is allowed", "sql:no result")
        return [column[0] for column in cursor.description], rows

    def _find_merged(self, sql: str) -> None:
        """Check and note what NATURAL and USING read: SQLite's authorizer is not asked about merged columns.

        The compiled program tells: it opens a table by the number of its first page, and reads columns by position.
        """
        assert self._connection is not None
        opened: dict[int, str] = {}
        for _, operation, first, second, *_ in self._connection.execute(f"EXPLAIN {sql}").fetchall():
            if operation == "OpenRead" and second in self._roots:
                opened[first] = self._roots[second]
                self._guard.check("table", opened[first])
            elif operation == "Column" and first in opened:
                table = opened[first]
                self._reads.add((table, self._layout[table][second]))

    def _create(self, layout: dict[str, tuple[str, ...]]) -> sqlite3.Connection:
        self.close()
        # Without kept statements: the authorizer is asked when a statement is compiled, and `reads` comes from it.
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_CHARACTERS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, MAX_PROGRAM)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MAX_COLUMNS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for name, columns in layout.items():
            quoted = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{name}" ({quoted})')
        self._layout, self._names = layout, {name.lower(): name for name in layout}
        self._columns = {name: {column.lower(): column for column in columns} for name, columns in layout.items()}
        self._roots = dict(connection.execute("SELECT rootpage, name FROM sqlite_schema").fetchall())
        modules = connection.execute("SELECT name FROM pragma_module_list").fetchall()
        self._modules = frozenset(name for (name,) in modules)
        return connection

    def _fill(self, connection: sqlite3.Connection, tables: Mapping[str, Table]) -> None:
        connection.execute("BEGIN")
        try:
            for name, table in tables.items():
                connection.execute(f'DELETE FROM "{name}"')
                marks = ", ".join("?" * len(table["columns"]))
                connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', table["rows"])
        except sqlite3.DataError as error:
            connection.execute("ROLLBACK")
            raise TaskError(f"Table '{name}' has a row of more than {MAX_VALUE_BYTES:,} bytes.") from error
        connection.execute("COMMIT")

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
            self._check_read(first, second)
        elif operation == sqlite3.SQLITE_FUNCTION and second.lower() not in _FUNCTIONS:
            raise Refused(f"the function {second[:100]} is not allowed", f"sql:{second}")
        elif operation == sqlite3.SQLITE_RECURSIVE:
            raise Refused("recursive queries are not allowed", "sql:recursive")
        elif operation not in _ALLOWED:
            raise Refused("only SELECT on the office tables is allowed", f"sql:{_OPERATIONS.get(operation, 'schema')}")

    def _check_read(self, first: str, column: str) -> None:
        """A table of the layout that the task may read; no column when only its rows are counted."""
        table = self._names.get(first.lower())  # names come as the query writes them, capitals included
        if table is None:
            if not column and not first.startswith(("sqlite_", "pragma_")) and first not in self._modules:
                return  # rows of a subquery that the query itself names
            raise Refused(f"'{first[:100]}' is not a table of this database", f"table:{first}")
        self._guard.check("table", table)
        if column.lower() in self._columns[table]:
            self._reads.add((table, self._columns[table][column.lower()]))

    def _out_of_time(self) -> bool:
        """SQLite asks every 50 instructions whether to stop."""
        self._looks += 1
        return self._looks * _CHECK_EVERY > MAX_INSTRUCTIONS or time.monotonic() > self._deadline


def _copies(sql: str) -> int:
    """At most so many copies of one expression can compiling make.

    SQLite puts a subquery's expressions in the place of every use: so many copies as a SELECT has terms, times those of
    the SELECT inside it. The parts of a UNION stand side by side and are not inside one another.
    """
    start, sides = 0, 0
    copies = 1
    for select in [*_SELECT.finditer(sql), None]:
        sides += len(_TERMS.findall(sql, start, select.start() if select else len(sql)))
        start = select.end() if select else len(sql)
        if select is None or not select[1]:
            copies *= max(1, sides)
            sides = 0
    return copies


def _translate(error: Exception) -> Exception:
    text = str(error)
    if "not authorized" in text or "prohibited" in text or "readonly" in text:
        return Refused("only SELECT on the office tables is allowed", "sql:not authorized")
    if "interrupted" in text:
        return ToolError("the query takes too long")
    if isinstance(error, MemoryError):
        return ToolError("the query is too complex")
    return ToolError(f"SQL: {text[:200] or type(error).__name__}")
