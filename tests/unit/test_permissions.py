"""Least privilege: what a task does not permit is refused with its reason, or ends the episode."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

from ferrata.envs import Environment, Refused, Task, call, tool
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.permissions import Guard, look_alike, matches
from ferrata.records import EventKind, Permissions, StepResult
from ferrata.rewards import RewardSpec

ENV = OfficeEnvironment(score=RewardSpec())
TASK = ENV.tasks("train", 1, families=["approval"])[0]
NARROW = Permissions(read=("notes/*",), write=("reports/*.md",), tables=("items",), recipients=("*@office.test",))


@pytest.mark.parametrize(
    ("glob", "thing", "expected"),
    [
        ("notes/*", "notes/a.txt", True),
        ("notes/*", "notes/deep/a.txt", False),
        ("notes/**", "notes/deep/a.txt", True),
        ("notes/*", "notes/", True),
        ("*.md", "a.md", True),
        ("*.md", "axmd", False),
        ("?.md", "ab.md", False),
        ("*@office.test", "a@office.test", True),
        ("*@office.test", "a@office.test.evil", False),
        ("*@office.test", "a@officeXtest", False),
        ("notes/[a]", "notes/a", False),
        ("notes/[a]", "notes/[a]", True),
        ("a*", "a\nb", True),
        ("Items", "items", False),
    ],
)
def test_globs(glob: str, thing: str, expected: bool) -> None:
    assert matches(thing, (glob,)) == expected


def test_none_permits_everything_and_an_empty_tuple_nothing() -> None:
    Guard().check("read", "anything")
    Guard(Permissions()).check("table", "anything")
    with pytest.raises(Refused, match=r"'anything' is not among what this task may read: none"):
        Guard(Permissions(read=())).check("read", "anything")


@pytest.mark.parametrize(
    ("kind", "thing", "message"),
    [
        ("read", "private/a", "'private/a' is not among what this task may read: notes/*"),
        ("write", "notes/a", r"'notes/a' is not among what this task may write: reports/\*.md"),
        ("table", "salaries", "'salaries' is not among the tables this task may use: items"),
        ("recipient", "x@evil.test", r"'x@evil.test' is not among the recipients this task may use: \*@office.test"),
    ],
)
def test_a_refusal_says_what_is_permitted(kind: str, thing: str, message: str) -> None:
    with pytest.raises(Refused, match=message) as refused:
        Guard(NARROW).check(kind, thing)
    assert refused.value.operation == f"{kind}:{thing}"


def test_forbidden_kinds_and_patterns() -> None:
    guard = Guard(Permissions(write=("reports/*",), forbidden=("write", "read:private/**", "escape")))
    assert guard.forbids("write:notes/a")
    assert guard.forbids("read:private/deep/a")
    assert guard.forbids("escape:../../etc/passwd")
    assert not guard.forbids("read:notes/a")
    assert not guard.forbids("")
    assert not Guard().forbids("escape:../x")
    guard.check("write", "reports/a")
    with pytest.raises(Refused, match="'private/a' is forbidden in this task"):
        guard.check("read", "private/a")


@pytest.mark.parametrize("name", ["notes/a.txt", "Ümläut", "файл", "社内A", "ab1"])
def test_honest_names(name: str) -> None:
    assert not look_alike(name)


@pytest.mark.parametrize(
    "name",
    ["n\u043etes", "n\u03bftes", "note\u200bs", "\u202etxt.a", "\uff0e\uff0e", "a\nb", "\u2024\u2024/", "\ufb01le"],
)
def test_names_that_look_like_others(name: str) -> None:
    assert look_alike(name)


def step(permissions: Permissions, action: str, tools: tuple[str, ...] = (), **arguments: Any) -> StepResult:
    """One step in an office task that holds more than it may touch."""
    world = {**TASK.world, "files": {**TASK.world["files"], "private/pay.txt": "pay: 1"}}
    ENV.reset(msgspec.structs.replace(TASK, world=world, permissions=permissions, tools=tools or TASK.tools))
    return ENV.step(call(action, **arguments))


REFUSED = [
    ("read_file", {"path": "private/pay.txt"}, "read:private/pay.txt"),
    ("read_file", {"path": "notes/../private/pay.txt"}, "read:private/pay.txt"),
    ("read_file", {"path": "../x"}, "escape:../x"),
    ("edit_document", {"path": "reports/a.txt", "content": "x"}, "write:reports/a.txt"),
    ("query_database", {"sql": "SELECT * FROM projects"}, "table:projects"),
    ("query_database", {"sql": "SELECT count(*) FROM Projects"}, "table:projects"),
    ("query_database", {"sql": "SELECT name FROM items UNION SELECT name FROM projects"}, "table:projects"),
    ("query_database", {"sql": "SELECT (SELECT max(rowid) FROM projects) FROM items"}, "table:projects"),
    ("query_database", {"sql": "DELETE FROM items"}, "sql:delete"),
    ("send_message", {"to": "x@evil.test", "subject": "s", "body": "b", "confirm": True}, "recipient:x@evil.test"),
]


@pytest.mark.parametrize(("action", "arguments", "operation"), REFUSED)
def test_what_a_task_does_not_permit_is_an_invalid_action(
    action: str, arguments: dict[str, Any], operation: str
) -> None:
    result = step(NARROW, action, **arguments)
    invalid = [event.name for event in result.events if event.kind is EventKind.INVALID]
    assert invalid == ["refused"]
    assert result.observation.text.startswith("error: ")
    assert not result.terminated


@pytest.mark.parametrize(("action", "arguments", "operation"), REFUSED)
def test_where_it_is_forbidden_the_episode_ends(action: str, arguments: dict[str, Any], operation: str) -> None:
    for pattern in (operation, operation.partition(":")[0]):
        result = step(msgspec.structs.replace(NARROW, forbidden=(pattern,)), action, **arguments)
        assert [event.name for event in result.events if event.kind is EventKind.FORBIDDEN] == [operation]
        assert result.terminated
        assert result.components["safety"] == -10.0
        assert result.observation.text.startswith("forbidden: ")


def test_what_is_permitted_works() -> None:
    for action, arguments in (
        ("query_database", {"sql": "SELECT * FROM items"}),
        ("edit_document", {"path": "reports/a.md", "content": "x"}),
        ("send_message", {"to": "x@office.test", "subject": "s", "body": "b", "confirm": True}),
    ):
        assert {event.kind for event in step(NARROW, action, **arguments).events} == {EventKind.STEP}


def test_a_tool_that_the_task_does_not_show_is_refused() -> None:
    shown = ("read_file", "submit_result")
    result = step(Permissions(), "send_message", shown, to="a@office.test", subject="s", body="b", confirm=True)
    assert (
        "'send_message' is not among the tools this task may use: read_file, submit_result" in result.observation.text
    )
    assert [event.name for event in result.events if event.kind is EventKind.INVALID] == ["refused"]
    result = step(
        Permissions(forbidden=("tool:send_*",)), "send_message", to="a@b.test", subject="", body="", confirm=True
    )
    assert result.terminated
    result = step(Permissions(tools=("read_*",)), "submit_result", answer="x")
    assert "'submit_result' is not among the tools this task may use: read_*" in result.observation.text


def test_the_hint_for_an_unknown_tool_names_no_hidden_one() -> None:
    text = step(Permissions(), "send_messag", ("read_file", "submit_result")).observation.text
    assert "send_message'" not in text


def test_recipients_are_the_same_in_any_case_of_letters() -> None:
    guard = Guard(Permissions(recipients=("Rosgol@office.test", "*@press.test")))
    for address in ("rosgol@office.test", "ROSGOL@OFFICE.TEST", "A@Press.test"):
        guard.check("recipient", address)
    guard = Guard(Permissions(forbidden=("recipient:Rosgol@Office.test",)))
    with pytest.raises(Refused) as refusal:
        guard.check("recipient", "rOSGOL@OFFICE.TEST")
    assert guard.forbids(refusal.value.operation)


def test_writing_out_of_the_workspace_is_an_escape_as_reading_is() -> None:
    for path in ("../../etc/passwd", "/etc/passwd"):
        for action, more in (("read_file", {}), ("edit_document", {"content": "x"})):
            result = step(Permissions(forbidden=("escape",)), action, path=path, **more)
            assert EventKind.FORBIDDEN in {event.kind for event in result.events}, (action, path)


class Post(Environment):
    """A post office without domains of its own."""

    name = "post"
    families: ClassVar = {1: ("send",)}

    def generate(self, family: str, tier: int, stream: Random, split: str) -> Task:
        allowed = Permissions(recipients=("Ann@desk.test", "*@press.test"))
        return Task("post", family, tier, split, "Send it.", {"n": stream.random()}, (), 9, permissions=allowed)

    @tool("Send it.")
    def send(self, to: str, note: str = "") -> str:
        self.guard.check("recipient", to)
        return f"sent to {to}; also known: bob@home.test"


def test_a_refusal_says_which_address_is_refused_and_which_are_not() -> None:
    env = Post()
    env.reset(env.tasks("train", 1)[0])
    text = env.step(call("send", to="Eve@evil.test", note="bob@home.test")).observation.text
    assert text == ("error: 'eve@evil.test' is not among the recipients this task may use: Ann@desk.test, *@press.test")
    assert env.step(call("send", to="ann@desk.test")).observation.text == "sent to [mail]; also known: [mail]"
