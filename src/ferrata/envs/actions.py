"""From a model's raw text to one checked action, or to a fault that the model can act on.

Tolerant about where the JSON object stands (thinking may come before it, anything but a second action after
it); strict about its form: one object with exactly `action` and `arguments`, no duplicate keys, no NaN, and
arguments that fit the tool's schema. What stands inside a broken object is not executed.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from jsonschema import ValidationError
from jsonschema.exceptions import best_match

from ferrata.envs.tools import Effect, Tool
from ferrata.errors import nearest
from ferrata.records import Action

MAX_CHARACTERS = 100_000
"""Longer texts are refused unread."""
MAX_OBJECTS = 64
"""How many opening braces are tried before giving up."""


_OBJECT = re.compile(r"""\{\s*["'{]""")
_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')
"""A brace, or a string, in which braces do not count."""


class Fault(enum.StrEnum):
    """What is wrong with a model's text; the name of the INVALID event."""

    NO_JSON = "no_json"
    MALFORMED_JSON = "malformed_json"
    NO_ACTION = "no_action"
    TWO_ACTIONS = "two_actions"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    UNCONFIRMED = "unconfirmed"
    REFUSED = "refused"
    TOO_LONG = "too_long"


@dataclass(frozen=True)
class Malformed:
    """Why a text is not a valid action."""

    fault: Fault
    message: str
    """What the model reads."""


class _DuplicateKey(ValueError):
    """An object names a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _DuplicateKey("a key stands twice in one object")
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(text: str) -> int:
    value = int(text)
    if abs(value) >= 2**63:
        raise ValueError("a number is too large")
    return value


def _number(text: str) -> float:
    """JSON does not tell 3.0 from 3: a tool that asks for an integer gets one."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer, parse_float=_number
)


def parse(text: str, tools: Mapping[str, Tool], offered: Collection[str] | None = None) -> Action | Malformed:
    """Find, read and check the action in `text`. Never raises, whatever the text.

    Args:
        text: what the model said.
        tools: every tool that the environment has.
        offered: names that an answer to an unknown one may suggest; all of `tools` when None.
    """
    if len(text) > MAX_CHARACTERS:
        return Malformed(Fault.TOO_LONG, f"the text has {len(text)} characters, at most {MAX_CHARACTERS} are read")
    found = _find(text)
    if isinstance(found, Malformed):
        return found
    if not _plain(text) and not _encodable(found):
        return Malformed(Fault.BAD_ARGUMENTS, "the action holds characters that are not valid Unicode")
    return _check(found, tools, tools if offered is None else offered)


def _find(text: str) -> dict[str, Any] | Malformed:
    """The one JSON object that names an action."""
    actions: list[dict[str, Any]] = []
    objects = 0
    fault: Malformed | None = None
    start = text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            fault = fault or Malformed(Fault.MALFORMED_JSON, f"malformed JSON: {_reason(error)}")
            end = end_of_broken(text, start)
        else:
            objects += 1
            if "action" in value:
                actions.append(value)
        start = text.find("{", end)
    if len(actions) == 1:
        return actions[0]
    if actions:
        return Malformed(Fault.TWO_ACTIONS, "one action a turn, please")
    if fault:
        return fault
    if objects:
        return Malformed(Fault.NO_ACTION, "the JSON object has no 'action'")
    return Malformed(Fault.NO_JSON, "no JSON action found")


def end_of_broken(text: str, start: int) -> int:
    """Where to look for an action after the broken object at `start`: behind it, never inside.

    A brace without a quote or another brace behind it begins no object, so that thoughts may hold braces.
    """
    if not _OBJECT.match(text, start):
        return start + 1
    depth = 0
    for found in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return len(text)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]


def _check(found: dict[str, Any], tools: Mapping[str, Tool], offered: Collection[str]) -> Action | Malformed:
    """Check the object's form, the tool's name, the arguments and the confirmation."""
    name, arguments = found.get("action"), found.get("arguments", {})
    surplus = set(found) - {"action", "arguments"}
    if surplus:
        return Malformed(Fault.BAD_ARGUMENTS, f"unknown key {_quote(min(surplus))} beside 'action' and 'arguments'")
    if not isinstance(name, str) or name not in tools:
        hint = nearest(name, offered) if isinstance(name, str) and len(name) < 100 else nearest("", offered)
        return Malformed(Fault.UNKNOWN_TOOL, f"unknown action {_quote(name)}. {hint}")
    if not isinstance(arguments, dict):
        return Malformed(Fault.BAD_ARGUMENTS, "'arguments' must be an object")
    return _check_arguments(tools[name], arguments)


def _check_arguments(tool: Tool, arguments: dict[str, Any]) -> Action | Malformed:
    try:
        wrong = None if tool.fits(arguments) else best_match(tool.validator.iter_errors(arguments))
    except RecursionError:
        return Malformed(Fault.BAD_ARGUMENTS, f"{tool.name}: the arguments are nested too deeply")
    if wrong:
        return Malformed(Fault.BAD_ARGUMENTS, f"{tool.name}: {_explain(wrong)}")
    if tool.effect is Effect.IRREVERSIBLE and arguments.get("confirm") is not True:
        return Malformed(Fault.UNCONFIRMED, f'{tool.name} needs "confirm": true')
    if tool.effect is Effect.IRREVERSIBLE:
        arguments = {key: value for key, value in arguments.items() if key != "confirm"}
    return Action(tool.name, arguments)


def _explain(error: ValidationError) -> str:
    """One short phrase that names the fault and the argument."""
    where = "".join(f"[{part}]" if isinstance(part, int) else f"'{part}'" for part in error.absolute_path)[:100]
    schema: dict[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    instance: Any = error.instance
    if error.validator == "required":
        missing = [key for key in schema["required"] if key not in instance]
        return f"missing argument '{missing[0]}'"
    if error.validator == "additionalProperties":
        extra = min(set(instance) - set(schema["properties"]))
        return f"unknown argument {_quote(extra)}. {nearest(extra[:100], schema['properties'])}"
    if error.validator == "type":
        return f"argument {where} must be of type {error.validator_value}"
    if error.validator == "enum":
        return f"argument {where} must be one of {error.validator_value}"
    return f"argument {where}: {error.message[:100]}"


def _quote(value: object) -> str:
    text = value if isinstance(value, str) else type(value).__name__
    return f"'{text[:40]}'"


def _plain(text: str) -> bool:
    """True when no string in `text` can hold a lone surrogate; most texts are so."""
    return text.isascii() and "\\u" not in text


def _encodable(found: dict[str, Any]) -> bool:
    """False when a string holds a lone surrogate, which no file and no message can carry."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True
