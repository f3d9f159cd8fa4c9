"""Reading an action out of a model's text: tolerant about place, strict about form, precise about faults."""

import json

import pytest

from ferrata.envs.actions import MAX_CHARACTERS, Fault, Malformed, parse
from ferrata.envs.scripts import call
from ferrata.envs.tools import Effect, Tool, tool, tools_of
from ferrata.records import Action


class Desk:
    @tool("Open a drawer.")
    def open_drawer(self, number: int, note: str = "") -> str:
        return ""

    @tool("Burn a letter.", effect=Effect.IRREVERSIBLE)
    def burn(self, name: str) -> str:
        return ""


TOOLS = {tool.name: tool for tool in tools_of(Desk)}


@pytest.mark.parametrize(
    "text",
    [
        call("open_drawer", number=3),
        call("open_drawer", number=3.0),
        "I think so. " + call("open_drawer", number=3),
        "First {curly} thoughts, then " + call("open_drawer", number=3) + " and a word after it",
        'It says {"number": 4 and no more}; now ' + call("open_drawer", number=3),
        "Braces { alone { are thoughts: " + call("open_drawer", number=3),
        "```json\n" + json.dumps({"arguments": {"number": 3}, "action": "open_drawer"}, indent=2) + "\n```",
    ],
)
def test_the_action_is_found_wherever_it_stands(text: str) -> None:
    found = parse(text, TOOLS)
    assert found == Action("open_drawer", {"number": 3})
    assert type(found.arguments["number"]) is int, "a tool that asks for an integer gets one"


@pytest.mark.parametrize(
    ("text", "fault", "says"),
    [
        ("", Fault.NO_JSON, "no JSON"),
        ("just words", Fault.NO_JSON, "no JSON"),
        ('{"action": "open_drawer", "arguments": {"number": 3}', Fault.MALFORMED_JSON, "at character"),
        ('{"plan": ' + call("open_drawer", number=3), Fault.MALFORMED_JSON, "at character"),
        ('{"plan": [' + call("open_drawer", number=3) + "}", Fault.MALFORMED_JSON, "at character"),
        ("{" + call("open_drawer", number=3) + "}", Fault.MALFORMED_JSON, "at character"),
        ('{"note": "}", oops ' + call("open_drawer", number=3) + "}", Fault.MALFORMED_JSON, "at character"),
        ('{"number": 3}', Fault.NO_ACTION, "no 'action'"),
        (call("open_drawer", number=3) + call("burn", name="x"), Fault.TWO_ACTIONS, "one action"),
        (call("open_draw", number=3), Fault.UNKNOWN_TOOL, "Did you mean 'open_drawer'?"),
        ('{"action": ["open_drawer"], "arguments": {}}', Fault.UNKNOWN_TOOL, "unknown action"),
        ('{"action": "open_drawer", "arguments": [3]}', Fault.BAD_ARGUMENTS, "must be an object"),
        (call("open_drawer"), Fault.BAD_ARGUMENTS, "missing argument 'number'"),
        (call("open_drawer", number="3"), Fault.BAD_ARGUMENTS, "argument 'number' must be of type integer"),
        (call("open_drawer", number=3, notes="x"), Fault.BAD_ARGUMENTS, "Did you mean 'note'?"),
        ('{"action": "open_drawer", "arguments": {"number": 3}, "why": "x"}', Fault.BAD_ARGUMENTS, "unknown key 'why'"),
        ('{"action": "open_drawer", "arguments": {"number": 3, "number": 4}}', Fault.MALFORMED_JSON, "twice"),
        ('{"action": "open_drawer", "arguments": {"number": NaN}}', Fault.MALFORMED_JSON, "NaN"),
        ('{"a":' * 100_00, Fault.MALFORMED_JSON, "deeply"),
        ('{"action": "open_drawer", "arguments": {"number": ' + "9" * 5000 + "}}", Fault.MALFORMED_JSON, "digits"),
        ('{"action": "open_drawer", "arguments": {"number": 1e999}}', Fault.MALFORMED_JSON, "too large"),
        (call("open_drawer", number=2**63), Fault.MALFORMED_JSON, "too large"),
        (call("open_drawer", number=3.5), Fault.BAD_ARGUMENTS, "must be of type integer"),
        ('{"action": "open_drawer", "arguments": {"number": 3, "note": "\\ud800"}}', Fault.BAD_ARGUMENTS, "Unicode"),
        ("{" * (MAX_CHARACTERS + 1), Fault.TOO_LONG, "characters"),
        (call("burn", name="will"), Fault.UNCONFIRMED, '"confirm": true'),
        (call("burn", name="will", confirm=False), Fault.UNCONFIRMED, '"confirm": true'),
    ],
)
def test_each_fault_is_named(text: str, fault: Fault, says: str) -> None:
    found = parse(text, TOOLS)
    assert isinstance(found, Malformed)
    assert found.fault is fault
    assert says in found.message
    assert len(found.message) < 300


def test_confirmation_admits_an_irreversible_call_and_is_no_argument_of_it() -> None:
    assert parse(call("burn", name="will", confirm=True), TOOLS) == Action("burn", {"name": "will"})


def test_schemas_come_from_type_hints() -> None:
    assert TOOLS["open_drawer"].input_schema == {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["number"],
        "additionalProperties": False,
    }
    assert TOOLS["burn"].input_schema["properties"]["confirm"] == {"type": "boolean"}
    assert TOOLS["burn"].output_schema == {"type": "string"}


def test_a_schema_may_name_several_types() -> None:
    schema = {"type": "object", "properties": {"note": {"type": ["string", "null"]}}, "required": ["note"]}
    tools = {"jot": Tool("jot", "Note it.", Effect.READ, schema, {})}
    assert parse(call("jot", note=None), tools) == Action("jot", {"note": None})
    refused = parse(call("jot", note=3), tools)
    assert isinstance(refused, Malformed)
    assert refused.fault is Fault.BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object", "properties": {"note": True}}, {"note": [1]}, None),
        ({"type": "object", "properties": {"note": False}}, {}, {"note": 1}),
        ({"type": "object", "additionalProperties": False}, {}, {"note": 1}),
        ({"type": "object", "minProperties": 1}, {"note": 1}, {}),
        ({"properties": {"a": {"type": "string"}}, "dependentRequired": {"a": ["b"]}}, {"a": "x", "b": 1}, {"a": "x"}),
        ({}, {"note": 1}, None),
    ],
)
def test_no_schema_makes_reading_raise_or_lets_anything_pass(
    schema: dict[str, object], good: dict[str, object], bad: dict[str, object] | None
) -> None:
    tools = {"jot": Tool("jot", "Note it.", Effect.READ, schema, {})}
    assert parse(call("jot", **good), tools) == Action("jot", good)
    if bad is not None:
        refused = parse(call("jot", **bad), tools)
        assert isinstance(refused, Malformed)
        assert refused.fault is Fault.BAD_ARGUMENTS
