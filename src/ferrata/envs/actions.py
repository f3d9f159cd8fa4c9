"""From a model's raw text to one checked action, or to a fault that the model can act on.

Tolerant about where the JSON object stands (thinking may come before it, anything but a second action after
it); strict about its form: one object with exactly `action` and `arguments`, no duplicate keys, no NaN, and
arguments that fit the tool's schema. What stands inside a broken object is not executed.

    parse           one turn's text -> its action, or what is wrong with it
    begins_action   whether a text that is still growing has come to its action
    sayable         whether an action can hold a value
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
_KEYS = ("action", "arguments")
_FIRST_KEY = re.compile(r'\{\s*(?:"([^"]*)("?))?')
"""The beginning of an object: its first key as far as it goes, and the quote behind it."""
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
    CUT = "cut"
    """No fault of the text: the turn's budget of tokens ended it before its action was complete."""


_UNFINISHED = (Fault.NO_JSON, Fault.MALFORMED_JSON, Fault.NO_ACTION)
"""What is wrong with a text whose action was still to come."""


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


def parse(
    text: str, tools: Mapping[str, Tool], offered: Collection[str] | None = None, *, cut: bool = False
) -> Action | Malformed:
    """Find, read and check the action in `text`. Never raises, whatever the text.

    Args:
        text: what the model said.
        tools: every tool that the environment has.
        offered: names that an answer to an unknown one may suggest; all of `tools` when None.
        cut: the text is what a budget left of a turn. An action that is complete in it counts all the same.
    """
    if len(text) > MAX_CHARACTERS:
        return Malformed(Fault.TOO_LONG, f"the text has {len(text)} characters, at most {MAX_CHARACTERS} are read")
    found = _find(text)
    if isinstance(found, Malformed):
        if cut and found.fault in _UNFINISHED:
            return Malformed(Fault.CUT, "your turn was cut at its limit before its action was complete")
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


def begins_action(text: str) -> bool | None:
    """True when a text that is still growing holds an action, or an object that can still become one.

    Objects of other keys, and braces that begin no JSON, are thoughts. None where the last object has not said its
    first key yet.
    """
    start = text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            begun = goes_on(error, len(text)) and _is_action_so_far(text[start:])
            if begun is not False:
                return begun
            end = end_of_broken(text, start)
        else:
            if "action" in value:
                return True
        start = text.find("{", end)
    return False


def _is_action_so_far(text: str) -> bool | None:
    """Whether an object that is not closed yet can be an action, by its first key; None before that is said."""
    found = _FIRST_KEY.match(text)
    if found is None or found[2]:
        return found is not None and found[1] in _KEYS
    return None if any(key.startswith(found[1] or "") for key in _KEYS) else False


def goes_on(error: Exception, length: int) -> bool:
    """True when a text of this length is no JSON only because it has not come to its end yet."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= length or error.msg.startswith("Unterminated string")


def sayable(value: object) -> bool:
    """True when `parse` reads the value, written as JSON, as what it is."""
    try:
        return _encodable(value) and bool(_DECODER.decode(json.dumps(value)) == value)
    except (ValueError, RecursionError):
        return False


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
    surplus = set(found).difference(_KEYS)
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
        known = schema.get("properties", {})
        extra = min(set(instance) - set(known))
        return f"unknown argument {_quote(extra)}. {nearest(extra[:100], known)}"
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


def _encodable(found: object) -> bool:
    """False when a string holds a lone surrogate, which no file and no message can carry."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True
