"""Texts that a model should never say but may: malformed, half, doubled, huge, and valid calls with wild arguments.

`wild_texts` draws them from a stream, for one task. Arguments fit the tool's schema often enough to reach its code,
and are made of the task's own content, so that the calls also hit what is there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ferrata.envs.tools import Effect, Tool
from ferrata.records import Task

STRINGS = (
    "", " ", "\0", "a\0b", "\n", "\r\nBcc: x@evil.test", "\ud800", "\u202egnp.exe", "аdmin", "é" * 300, "🙂",
    "\x1b[31m", "../../etc/passwd", "/etc/passwd", "~", ".", "*", "%s%n", "{}", "${x}", "'; DROP TABLE items; --",
    "SELECT 1", "null", "true", "-1", "1e999", "0x10", "NaN", '{"action": "x"}', '"', "\\", "x" * 5_000, "<script>",
    "a@b.test", "2026-02-30",
)  # fmt: skip
INTEGERS = (0, 1, -1, 2, 3, 7, 100, 2**31, -(2**31), 2**63, 2**64, 10**30, -(10**300), 10**4000)
NUMBERS = (0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, -1e308, 1.0, 3.0, 10.0**18)
LITTER = (
    "", "I do not know.", "{", "}", "{}", "[]", "null", '{"action": ', '{"action": null}', '{"a": ' * 3_000,
    '{"action": 7, "arguments": []}', '{"action": {}, "arguments": {}}', '{"arguments": {}}', "[" * 3_000, "{" * 3_000,
    '{"action": "no_such_tool", "arguments": {}}', '{"action": "x", "action": "x"}', '{"action": "' + "x" * 5_000,
    '{"action": "\\ud800", "arguments": {"\\u0000": NaN}}', "9" * 5_000, "\x00\x1b[31m\u202e{}{}{}", "\ufeff{}",
    "```json\n{}\n```", "x" * 100_001, '{"action": "x", "arguments": ' + "[" * 900 + "]" * 900 + "}", "<tool_call>",
    "'action': 'x'",
)  # fmt: skip


@dataclass(frozen=True)
class Material:
    """What wild texts are made of."""

    tools: Sequence[Tool]
    """Tools that the task may use."""
    words: Sequence[str]
    """Content of the task."""
    calls: Sequence[str]
    """Sensible texts for the task, which are also used out of order and bent."""


def wild_texts(material: Material, stream: random.Random) -> Iterator[str]:
    """Endless texts; the same ones for the same material and stream."""
    makers = (_valid, _valid, _borrowed, _bent, _mistyped, _damaged, _surplus, _doubled, _litter)
    while True:
        yield stream.choice(makers)(material, stream)


def words_of(task: Task) -> list[str]:
    """Texts and numbers that stand in a task's world and instruction, as texts."""
    found = [word.strip(".,:;") for word in task.instruction.split()]
    _collect(task.world, found)
    return sorted(set(found) - {""}) or ["x"]


def value_for(schema: Any, words: Sequence[str], stream: random.Random, depth: int = 0) -> Any:
    """A wild value that fits a schema."""
    if "enum" in schema:
        return stream.choice(schema["enum"])
    kind = schema.get("type", "string")
    if kind == "array":
        length = stream.choice((0, 1, 2, 5, 200)) if depth == 0 else stream.choice((0, 1, 2))
        return [value_for(schema.get("items", {}), words, stream, depth + 1) for _ in range(length)]
    if kind == "object":
        return {_string(words, stream): _anything(words, stream, depth) for _ in range(stream.choice((0, 1, 4)))}
    return _scalar(kind, words, stream)


def _scalar(kind: str, words: Sequence[str], stream: random.Random) -> Any:
    if kind == "boolean":
        return stream.random() < 0.5
    if kind in ("integer", "number"):
        numbers = [int(word) for word in words if word.isdecimal() and len(word) < 12]
        pool = (*INTEGERS, 1.0) if kind == "integer" else (*INTEGERS, *NUMBERS)
        return (
            stream.choice(numbers) + stream.choice((0, 0, 1))
            if numbers and stream.random() < 0.4
            else stream.choice(pool)
        )
    return _string(words, stream)


def _string(words: Sequence[str], stream: random.Random) -> str:
    way = stream.random()
    if way < 0.4:
        return stream.choice(words)
    if way < 0.8:
        return stream.choice(STRINGS)
    if way < 0.9:
        return stream.choice(words) + stream.choice(STRINGS)
    return "".join(
        chr(stream.choice((stream.randrange(128), stream.randrange(0x3000)))) for _ in range(stream.randrange(40))
    )


def _anything(words: Sequence[str], stream: random.Random, depth: int = 0) -> Any:
    kinds = ("string", "integer", "number", "boolean", "null") + (("array", "object") if depth < 3 else ())
    kind = stream.choice(kinds)
    return None if kind == "null" else value_for({"type": kind}, words, stream, depth + 1)


def _arguments(tool: Tool, words: Sequence[str], stream: random.Random) -> dict[str, Any]:
    schema = tool.input_schema
    names = [name for name in schema["properties"] if name in schema["required"] or stream.random() < 0.5]
    arguments = {name: value_for(schema["properties"][name], words, stream) for name in names}
    if tool.effect is Effect.IRREVERSIBLE:
        arguments["confirm"] = stream.random() < 0.8
    return arguments


def _say(action: object, arguments: object) -> str:
    return json.dumps({"action": action, "arguments": arguments})


def _valid(material: Material, stream: random.Random) -> str:
    """A call that fits the schema, at times with thoughts around it."""
    tool = stream.choice(material.tools)
    thought = stream.choice(("", "", "First this. ", "\n\n", "Is {x} there? "))
    return thought + _say(tool.name, _arguments(tool, material.words, stream)) + stream.choice(("", "", " Done.", "\0"))


def _borrowed(material: Material, stream: random.Random) -> str:
    """A sensible call at any time."""
    return stream.choice(material.calls) if material.calls else _valid(material, stream)


def _bent(material: Material, stream: random.Random) -> str:
    """A sensible call with one wild argument that fits its schema."""
    tool = stream.choice(material.tools)
    calls = [call for call in map(_read, material.calls) if call and call["action"] == tool.name and call["arguments"]]
    if not calls:
        return _valid(material, stream)
    arguments = stream.choice(calls)["arguments"]
    name = stream.choice(sorted(arguments))
    schema = tool.input_schema["properties"].get(name, {})
    return _say(tool.name, {**arguments, name: value_for(schema, material.words, stream)})


def _read(text: str) -> dict[str, Any] | None:
    """The call that is the whole of a text."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"action", "arguments"} <= set(found) else None


def _mistyped(material: Material, stream: random.Random) -> str:
    """A call in which one argument is missing or is anything at all."""
    tool = stream.choice(material.tools)
    arguments = _arguments(tool, material.words, stream)
    name = stream.choice([*arguments, "arguments"])
    if name == "arguments":
        return _say(tool.name, _anything(material.words, stream))
    if stream.random() < 0.3:
        del arguments[name]
    else:
        arguments[name] = _anything(material.words, stream)
    return _say(tool.name, arguments)


def _damaged(material: Material, stream: random.Random) -> str:
    """A call of which a piece is gone or replaced."""
    text = _valid(material, stream)
    start = stream.randrange(len(text))
    return (
        text[:start]
        + stream.choice(("", "", '"', "{", "\\", "\0", "é"))
        + text[start + stream.choice((0, 1, 3, len(text))) :]
    )


def _surplus(material: Material, stream: random.Random) -> str:
    """A call with a key too many, or with a name that is almost right."""
    tool = stream.choice(material.tools)
    arguments = _arguments(tool, material.words, stream)
    if stream.random() < 0.5:
        return _say(
            stream.choice((tool.name.upper(), tool.name[:-1], f" {tool.name}", "reset", "__init__", "close")), arguments
        )
    return _say(tool.name, {**arguments, _string(material.words, stream): _anything(material.words, stream)})


def _doubled(material: Material, stream: random.Random) -> str:
    """Two calls, or one key twice."""
    text = _valid(material, stream)
    if stream.random() < 0.5:
        return text + _valid(material, stream)
    return text.replace('"arguments": {', '"arguments": {"confirm": true, "confirm": true, ', 1)


def _litter(material: Material, stream: random.Random) -> str:
    return stream.choice(LITTER)


def _collect(value: Any, found: list[str]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            found.append(str(key))
            _collect(inner, found)
    elif isinstance(value, list | tuple):
        for inner in value:
            _collect(inner, found)
    elif isinstance(value, str | int | float) and len(str(value)) < 500:
        found.append(str(value))
