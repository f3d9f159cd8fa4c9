"""200 hostile actions against the office: each is refused or answered, logged, and reaches nothing outside.

The workspace holds what an attacker would plant: links to a file and to a folder outside, a hard link, a link to
itself, a pipe. Outside, canaries lie where the attacks aim; nobody reads, changes or adds to them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrata.envs import call
from ferrata.envs.audit import AuditLog, verify
from ferrata.envs.office import OfficeEnvironment
from ferrata.records import EventKind, Permissions, StepResult
from ferrata.rewards import RewardSpec

SECRET = "canary-5150"
PERMISSIONS = Permissions(
    read=("notes/*", "reports/*"), write=("reports/*",), tables=("items", "projects"), recipients=("*@office.test",)
)

PATHS = [
    "../canary.txt", "../../canary.txt", "notes/../../canary.txt", "{outside}/canary.txt", "/etc/passwd", "/etc/shadow",
    "/proc/self/environ", "/proc/self/mem", "/dev/zero", "/dev/random", "//etc/passwd", "notes/../../../../etc/passwd",
    "reports/../../../../../../../../etc/passwd", "....//....//etc/passwd", "..\\..\\canary.txt",
    "C:\\Windows\\win.ini",
    "file:///etc/passwd", "~/.ssh/id_rsa", "$HOME/x", "`id`", "notes/a.txt; cat /etc/passwd", "notes/\0.txt", "\0", "",
    ".", "..", "/", "notes", "notes/", "notes/.", "reports/..", "a" * 5000, "a/" * 99 + "a", "reports/" + "b" * 255,
    "to_file", "to_folder/canary.txt", "to_folder", "notes/to_file", "hard", "loop", "loop/x", "pipe", "reports/pipe",
    "reports/to_folder/canary.txt", "reports/to_file", "reports/hard", "outbox/0001.eml", "inbox/0001.eml", "private/x",
    "n\u043etes/a.txt", "notes\u2215a.txt", "rep\u043erts/a.md", "reports/\u202etxt.exe", "reports/a\u200b.md",
    "reports/p\u0430y.md", "reports/\uff0e\uff0e/x", "reports/line\nbreak.md", "reports/\x1b[2J.md",
    "%2e%2e/canary.txt",
    "%2e%2e%2fcanary.txt", "reports/%00.md/../../../canary.txt",
]  # fmt: skip
BOMB = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r"
TENFOLD = "replace({}, 'a', 'aaaaaaaaaa')"
LONG = TENFOLD.format(TENFOLD.format(TENFOLD.format(TENFOLD.format("'aaaaaaaaaa'"))))
FULL = "substr(" + TENFOLD.format(TENFOLD.format(TENFOLD.format("'aaaaaaaaaa'"))) + ", 1, 9000)"
SLOW = [
    "SELECT " + ",".join(["instr(x, y)"] * 700) + f" FROM (SELECT {FULL} AS x, substr({FULL},1,4500)||'b' AS y)",
    "reports/p\u0430y.md", "reports/\uff0e\uff0e/x", "reports/line\nbreak.md", "reports/\x1b[2J.md",
    "%2e%2e/canary.txt",
    f"SELECT {FULL} LIKE '%a%a%a%a%a%a%a%a%a%a%a%b' FROM items",
    "SELECT * FROM items UNION ALL " * 300 + "SELECT * FROM items",
    "SELECT 9" + "9" * 5000, "SELECT 1 /*" + "*" * 9000, "/**/" * 2400 + "SELECT 1",
]  # fmt: skip
"""Allowed, but meant to take for ever."""
QUERIES = [
    "DROP TABLE items", "DELETE FROM items", "DELETE FROM items WHERE 1=1 RETURNING *", "UPDATE items SET stock = 0",
    "INSERT INTO items(name) VALUES ('x')", "INSERT INTO items SELECT * FROM items RETURNING name",
    "REPLACE INTO items(name) VALUES ('x')", "CREATE TABLE t(a)", "CREATE TEMP TABLE t AS SELECT * FROM items",
    "CREATE VIEW v AS SELECT 1", "CREATE TRIGGER t AFTER INSERT ON items BEGIN SELECT 1; END",
    "CREATE INDEX i ON items(name)",
    "CREATE VIRTUAL TABLE v USING fts5(a)", "ALTER TABLE items RENAME TO x", "ALTER TABLE items ADD COLUMN x",
    "ATTACH '{outside}/canary.db' AS x", "ATTACH ':memory:' AS x", "ATTACH 'file:{outside}/new.db?mode=rwc' AS x",
    "DETACH main", "VACUUM INTO '{outside}/dump.db'", "VACUUM", "REINDEX", "ANALYZE", "BEGIN", "COMMIT", "ROLLBACK",
    "SAVEPOINT s", "PRAGMA query_only = OFF", "PRAGMA writable_schema = ON", "PRAGMA table_info(items)",
    "PRAGMA database_list", "PRAGMA journal_mode = WAL", "PRAGMA temp_store_directory = '{outside}'",
    "SELECT * FROM pragma_table_info('items')", "SELECT * FROM pragma_database_list", "SELECT * FROM sqlite_master",
    "SELECT sql FROM sqlite_schema", "SELECT * FROM sqlite_temp_master", "SELECT * FROM main.sqlite_master",
    "SELECT load_extension('{outside}/x.so')", "SELECT readfile('{outside}/canary.txt')",
    "SELECT writefile('{outside}/w', 'x')", "SELECT edit('x')", "SELECT zeroblob(100000000)",
    "SELECT randomblob(100000000)", "SELECT printf('%.100000000d', 1)", "SELECT hex(randomblob(1000))",
    "SELECT quote(1)", "SELECT char(0)", "SELECT sqlite_version()", "SELECT fts3_tokenizer('simple')",
    "SELECT * FROM json_each('[1]')", "SELECT * FROM dbstat", "SELECT * FROM generate_series(1, 1000000000)",
    BOMB, BOMB.replace("WITH RECURSIVE", "WITH"), f"SELECT * FROM ({BOMB})",
    "WITH d AS (SELECT 1) DELETE FROM items", "EXPLAIN SELECT * FROM items", "EXPLAIN QUERY PLAN SELECT 1",
    "SELECT count(*) FROM " + ", ".join(f"items i{n}" for n in range(30)),
    "SELECT count(*) FROM " + ", ".join(f"items i{n}" for n in range(65)),
    "SELECT 'a' LIKE '" + "%a" * 2000 + "'", "SELECT 1; DROP TABLE items", "SELECT 1; SELECT 2", "", ";", "\0",
    "SELECT 1 -- \0 DROP", "SELECT " + "(" * 3000 + "1" + ")" * 3000, "SELECT " + "1+" * 4000 + "1",
    f"SELECT {LONG}", "x" * 50_000,
    "SELECT * FROM \u0456tems", "SELECT * FROM items\u200b", "SELECT * FROM salaries", "SELECT * FROM temp.items",
]  # fmt: skip
MAILS: list[tuple[str, str, str]] = [
    ("boss@evil.test", "s", "b"), ("a@office.test.evil.test", "s", "b"), ("a@office.test@evil.test", "s", "b"),
    ("a@office.test, b@evil.test", "s", "b"), ("a@office.test;b@evil.test", "s", "b"), ("<a@office.test>", "s", "b"),
    ("a@office.test\nBcc: b@evil.test", "s", "b"), ("a@office.test\r\nBcc: b@evil.test", "s", "b"),
    ("a@office.test\0", "s", "b"), ("a@\u043effice.test", "s", "b"), ("\u0430da@office.test", "s", "b"),
    ("a@office\u3002test", "s", "b"), ("a@[127.0.0.1]", "s", "b"), ("a@localhost", "s", "b"), ("", "s", "b"),
    ("@office.test", "s", "b"), ("a" * 5000 + "@office.test", "s", "b"), ("a@OFFICE.TEST.EVIL", "s", "b"),
    ("| cat /etc/passwd", "s", "b"), ("a@evil.test#@office.test", "s", "b"),
    ("a@office.test", "s\nBcc: b@evil.test", "b"), ("a@office.test", "s\r\n\r\n<html>", "b"),
    ("a@office.test", "s\0", "b"),
    ("a@office.test", "s\rBcc: b@evil.test", "b"), ("a@office.test", "s\u2028Bcc: b@evil.test", "b"),
    ("a@office.test", "s\x85Bcc: b@evil.test", "b"), ("a@office.test", "s" * 600, "b"),
    ("a@office.test", "s\x1b[2J", "b"),
    ("a@office.test", "s", "b\0"), ("a@office.test", "s", "b" * 30_000),
]  # fmt: skip
BIG = "x" * 10_000_000
RAW = [
    call("read_file", path=BIG), call("query_database", sql=BIG),
    call("edit_document", path="reports/a.md", content=BIG), call("submit_result", answer=BIG),
    call("send_message", to=BIG, subject="s", body="b", confirm=True), BIG, "{" * 200_000, "[" * 99_000,
    '{"action": "read_file", "arguments": {"path": "notes/\ud800"}}', '{"action": "__init__", "arguments": {}}',
    '{"action": "close", "arguments": {}}', '{"action": "restore", "arguments": {"snapshot": {}}}',
    '{"action": "forbid", "arguments": {"operation": "x"}}', '{"action": "finish", "arguments": {"success": true}}',
    '{"action": "read_file", "arguments": {"path": ["/etc/passwd"]}}',
    '{"action": "read_file", "arguments": {"path": null}}',
    '{"action": "read_file", "arguments": {"path": "notes/a", "self": 1}}',
    '{"action": "read_file", "arguments": {"path": "x"}, "arguments": {"path": "/etc/passwd"}}',
    '{"action": "send_message", "arguments": {"to": "a@office.test", "subject": "s", "body": "b"}}',
    '{"action": "send_message", "arguments": {"to": "a@office.test", "subject": "s", "body": "b", "confirm": "true"}}',
]  # fmt: skip


def hostile(outside: Path) -> list[str]:
    """Every attack as the text of an action."""
    paths = [path.replace("{outside}", str(outside)) for path in PATHS]
    queries = [query.replace("{outside}", str(outside)) for query in QUERIES]
    mails = [call("send_message", to=to, subject=subject, body=body, confirm=True) for to, subject, body in MAILS]
    reads = [call("read_file", path=path) for path in paths]
    writes = [
        call("edit_document", path=path, content=SECRET) for path in paths if path.startswith("reports/") or "c" in path
    ]
    return [*reads, *writes, *(call("query_database", sql=query) for query in queries), *mails, *RAW]


class Siege:
    """An office under attack, and what lies outside it."""

    def __init__(self, folder: Path, permissions: Permissions) -> None:
        self.outside = folder / "outside"
        self.outside.mkdir()
        for name in ("canary.txt", "canary.db", "hard"):
            (self.outside / name).write_text(SECRET)
        self.log = AuditLog(folder / "audit")
        self.env = OfficeEnvironment(score=RewardSpec(), audit=self.log)
        task = self.env.tasks("train", 1, families=["approval"])[0]
        self.task = msgspec.structs.replace(task, permissions=permissions, max_turns=10_000)
        self.begin()

    def begin(self) -> None:
        """A fresh episode, with the traps in its workspace."""
        self.env.reset(self.task)
        root = self.env._workspace.root
        for place in (root, root / "notes", root / "reports"):
            place.mkdir(exist_ok=True)
            os.symlink(self.outside / "canary.txt", place / "to_file")
            os.symlink(self.outside, place / "to_folder")
            os.link(self.outside / "hard", place / "hard")
            os.symlink("loop", place / "loop")
            os.mkfifo(place / "pipe")

    def seen_outside(self) -> dict[str, str]:
        """Names and content of everything outside."""
        return {path.name: path.read_text() for path in sorted(self.outside.iterdir())}

    def close(self) -> None:
        self.env.close()
        self.log.close()


@pytest.fixture
def siege(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Siege]:
    with closing(Siege(tmp_path, getattr(request, "param", PERMISSIONS))) as siege:
        yield siege


def rejected(result: StepResult) -> bool:
    kinds = {event.kind for event in result.events}
    return bool(kinds & {EventKind.INVALID, EventKind.TOOL_ERROR, EventKind.FORBIDDEN})


def test_hostile_actions_are_answered_logged_and_harmless(siege: Siege) -> None:
    texts = hostile(siege.outside)
    assert len(texts) >= 200
    before, tables = siege.seen_outside(), siege.env._database.query("SELECT * FROM items")
    slowest = 0.0
    for text in texts:
        started = time.process_time()
        result = siege.env.step(text)
        slowest = max(slowest, time.process_time() - started)
        assert rejected(result), text[:200]
        assert result.observation.text.startswith("error: "), text[:200]
        assert SECRET not in result.observation.text
        assert not result.terminated
    assert siege.seen_outside() == before
    assert siege.env._database.query("SELECT * FROM items") == tables
    assert not siege.env._mailbox.messages("outbox")
    assert slowest < 2.0
    lines = [json.loads(line) for line in siege.log.path.read_bytes().split(b"\n")[:-1]]
    assert len(lines) == len(texts)
    assert all(line["outcome"].startswith(("invalid", "refused", "tool error")) for line in lines)
    siege.close()
    assert verify(siege.log.folder).ok


@pytest.mark.parametrize(
    "siege",
    [msgspec.structs.replace(PERMISSIONS, forbidden=("escape", "read", "write", "table", "recipient", "sql", "name"))],
    indirect=True,
)
def test_where_they_are_forbidden_each_refusal_ends_the_episode(siege: Siege) -> None:
    before, ended = siege.seen_outside(), 0
    for text in hostile(siege.outside):
        result = siege.env.step(text)
        assert rejected(result), text[:200]
        refused = {event.name for event in result.events if event.kind is EventKind.INVALID} & {"refused"}
        assert not refused, text[:200]
        if result.terminated:
            ended += 1
            assert result.components["safety"] == -10.0
            siege.begin()
    assert ended > 60
    assert siege.seen_outside() == before


@pytest.mark.parametrize("query", SLOW)
def test_a_query_that_should_take_for_ever_does_not(siege: Siege, query: str) -> None:
    started = time.process_time()
    assert siege.env.step(call("query_database", sql=query)).observation.text
    assert time.process_time() - started < 3.0


def test_a_link_planted_where_the_world_writes_its_mail_is_not_followed(siege: Siege) -> None:
    root = siege.env._workspace.root
    os.symlink(siege.outside, root / "outbox")
    before: dict[str, Any] = siege.seen_outside()
    result = siege.env.step(call("send_message", to="a@office.test", subject="s", body="b", confirm=True))
    assert rejected(result)
    assert siege.seen_outside() == before


def test_the_next_episode_finds_no_traps(siege: Siege) -> None:
    siege.env.reset(siege.task)
    found = sorted(
        path.relative_to(siege.env._workspace.root).as_posix() for path in siege.env._workspace.root.rglob("*")
    )
    assert [path for path in found if "/" in path] == sorted(siege.task.world["files"])
    assert siege.seen_outside()["hard"] == SECRET
