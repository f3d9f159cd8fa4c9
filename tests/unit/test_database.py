"""The read-only database: which columns a query looked at, what it may not do, and how long it may take."""

from __future__ import annotations

import contextlib
import time

import pytest

from ferrata.envs.database import MAX_SQL_CHARACTERS, Database
from ferrata.envs.permissions import Guard
from ferrata.envs.tools import Refused, ToolError
from ferrata.errors import TaskError
from ferrata.records import Permissions

TABLES = {
    "Items": {"columns": ["name", "Price", "stock"], "rows": [["pen", 3, 7], ["ink", 5, 2]]},
    "projects": {"columns": ["name", "owner"], "rows": [["dam", "Ada"], ["ink", "Ben"]]},
}
NAME, PRICE, STOCK = ("Items", "name"), ("Items", "Price"), ("Items", "stock")
PROJECT, OWNER = ("projects", "name"), ("projects", "owner")


@pytest.fixture
def database() -> Database:
    database = Database()
    database.reset(TABLES)
    return database


@pytest.fixture
def items_only() -> Database:
    database = Database()
    database.reset(TABLES, Guard(Permissions(tables=("Items",))))
    return database


# What a query looked at -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT * FROM items", {NAME, PRICE, STOCK}),
        ("SELECT I.PRICE FROM ITEMS AS i", {PRICE}),
        ('SELECT "Price" AS name FROM Items', {PRICE}),
        ("SELECT stock FROM items WHERE name = 'pen' ORDER BY price", {NAME, PRICE, STOCK}),
        ("SELECT (SELECT owner FROM projects p WHERE p.name = i.name) FROM items i", {NAME, OWNER, PROJECT}),
        ("WITH w AS (SELECT price AS p FROM items) SELECT p FROM w", {PRICE}),
        ("WITH w AS MATERIALIZED (SELECT price FROM items) SELECT count(*) FROM w", {PRICE}),
        ("SELECT name FROM items UNION SELECT owner FROM projects", {NAME, OWNER}),
        ("SELECT max(price) FROM items GROUP BY stock HAVING min(name) > 'a'", {NAME, PRICE, STOCK}),
        ("SELECT price FROM items JOIN projects USING (name)", {PRICE, NAME, PROJECT}),
        ("SELECT owner FROM items NATURAL JOIN projects", {OWNER, NAME, PROJECT}),
        ("SELECT count(*) FROM items", set()),
        ("SELECT count(price) FROM items", {PRICE}),
        ("SELECT 1 FROM items", set()),
        ("SELECT rowid FROM items", set()),
        ("SELECT 1, 'price'", set()),
    ],
)
def test_a_query_tells_which_columns_it_read(database: Database, sql: str, reads: set[tuple[str, str]]) -> None:
    for _ in range(2):  # the second time SQLite would serve a kept statement without asking again
        database.query(sql)
        assert database.reads == reads


def test_only_the_latest_query_counts(database: Database) -> None:
    assert database.reads == frozenset()
    database.query("SELECT price FROM items")
    database.query("SELECT owner FROM projects")
    assert database.reads == {OWNER}
    database.query("SELECT price FROM items")
    assert database.reads == {PRICE}


def test_a_refused_or_broken_query_has_read_nothing(database: Database) -> None:
    for sql in ("SELECT price, load_extension('x') FROM items", "SELECT price, nothing FROM items", "EXPLAIN SELECT 1"):
        database.query("SELECT price FROM items")
        with pytest.raises((Refused, ToolError)):
            database.query(sql)
        assert database.reads == frozenset(), sql


def test_a_query_that_is_too_long_has_read_nothing(database: Database) -> None:
    for sql in (f"SELECT price FROM items -- {'x' * MAX_SQL_CHARACTERS}", "SELECT price FROM " + "(SELECT " * 4000):
        database.query("SELECT price FROM items")
        with pytest.raises(ToolError):
            database.query(sql)
        assert database.reads == frozenset()


def test_reads_hold_after_new_rows_and_after_other_tables(database: Database) -> None:
    database.query("SELECT name FROM items")
    database.reset(TABLES)
    assert database.reads == frozenset()
    database.query("SELECT name FROM items")
    assert database.reads == {NAME}
    database.reset({"items": {"columns": ["NAME"], "rows": [["pen"]]}})
    database.query("SELECT name FROM items")
    assert database.reads == {("items", "NAME")}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT price FROM items JOIN projects USING (name)",
        "SELECT price FROM items NATURAL JOIN projects",
        "SELECT price FROM items NATURAL LEFT JOIN projects",
    ],
)
def test_a_merged_column_gives_no_way_into_a_forbidden_table(items_only: Database, sql: str) -> None:
    with pytest.raises(Refused) as refusal:
        items_only.query(sql)
    assert refusal.value.operation == "table:projects"


@pytest.mark.parametrize("table", ["sqlite_master", "sqlite_schema", "pragma_module_list", "json_each('[1]')"])
def test_counting_rows_gives_no_way_into_other_tables(database: Database, table: str) -> None:
    with pytest.raises(Refused):
        database.query(f"SELECT count(*) FROM {table}")


# What it may cost -------------------------------------------------------------------------------------------

LONG = "replace(replace('aaaaaaaaa','a','aaaaaaaaaa'),'a','aaaaaaaaaa')"
OTHERS = f"replace(substr({LONG}, 820), 'a', 'b') || 'a'"
SETS = f"(SELECT {LONG} AS x FROM items LIMIT 1), (SELECT {OTHERS} AS y FROM items LIMIT 1)"
LONGER = SETS.replace(LONG, f"replace({LONG},'a','aaaaaaaaaa')").replace("820", "8250")
CROSS = ", ".join(f"items i{n}" for n in range(16))


def nested(width: int, depth: int) -> str:
    """A chain of subqueries, each of which uses the one before it `width` times."""
    steps = [f"s{n + 1} AS (SELECT {'||'.join(['a'] * width)} AS a FROM s{n})" for n in range(depth)]
    return f"WITH s0 AS (SELECT name AS a FROM items), {', '.join(steps)} SELECT a FROM s{depth}"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT max(length(rtrim(x, y))) FROM {SETS}, {CROSS}",
        f"SELECT {'+'.join(['rtrim(x,y)'] * 150)} AS z FROM {SETS}, {CROSS}",
        f"SELECT max({'+'.join(['rtrim(x,y)'] * 100)}) AS z FROM {SETS}, items a, items b, items c, items d",
        f"SELECT {'+'.join(['rtrim(x,y)'] * 800)} AS z FROM {SETS}",
        f"SELECT max(length(rtrim(x, y))) FROM {LONGER}, {CROSS}",
        f"SELECT {'+'.join(['instr(x,y)'] * 100)} AS z FROM {SETS}, {CROSS}",
        f"SELECT {LONG} || i0.rowid || i1.rowid AS z FROM {CROSS} ORDER BY z",
        f"SELECT count(DISTINCT {LONG} || i0.rowid) FROM {CROSS}",
        nested(1500, 1),
        nested(300, 2),
        nested(40, 4),
        nested(2, 40),
        nested(2, 40).replace(" a ", ' "" ').replace("a||a", '""||""'),
        f"SELECT count(*) FROM {CROSS} WHERE " + " OR ".join(["i0.name = 'x'"] * 500),
    ],
)
def test_no_query_holds_its_worker_for_longer_than_the_limit(database: Database, sql: str) -> None:
    started = time.thread_time()
    with contextlib.suppress(ToolError):
        database.query(sql)
    assert time.thread_time() - started < 1.2


def test_ordinary_queries_are_not_too_complex(database: Database) -> None:
    arms = [f"SELECT name, price, stock FROM items WHERE price > {n} AND stock < 9" for n in range(12)]
    assert database.query(" UNION ALL ".join(arms))[1]
    inner = "SELECT name, price FROM items WHERE price = (SELECT max(price) FROM items WHERE stock > 1)"
    assert database.query(f"WITH w AS ({inner}) SELECT name FROM projects WHERE name IN (SELECT name FROM w)")[1]
    assert database.query("SELECT name FROM items WHERE name LIKE '%n%' AND trim(name, ' .') = 'pen'")[1] == [("pen",)]


def test_a_row_that_is_too_long_is_the_task_s_fault(database: Database) -> None:
    with pytest.raises(TaskError, match=r"Table 'Items' has a row of more than 1,000 bytes"):
        database.reset({**TABLES, "Items": {"columns": ["name", "Price", "stock"], "rows": [["x" * 1001, 1, 1]]}})
    database.reset(TABLES)
    assert len(database.query("SELECT name FROM items")[1]) == 2


# What it may not do -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before", ["", "\ufeff", "\ufeff \ufeff;", "/* x */", "-- x\n", "\x0b", "\xa0", "/* select */\ufeff", ";;"]
)
@pytest.mark.parametrize("statement", ["EXPLAIN SELECT name FROM items", "explain query plan SELECT 1"])
def test_explain_is_refused_however_it_begins(database: Database, before: str, statement: str) -> None:
    with pytest.raises((Refused, ToolError)):
        database.query(before + statement)


def test_a_text_may_say_explain(database: Database) -> None:
    assert database.query("SELECT 'explain' -- explain")[1] == [("explain",)]
    assert database.query("/* explain */ WITH w AS (SELECT 1) SELECT 'explain' FROM w")[1] == [("explain",)]
