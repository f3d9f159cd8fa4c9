"""The grammar of the actions that a task's tools admit, in the words of llguidance. Nothing is compiled here.

    grammar_of(tools, ...)   a text: optional thinking, then one JSON object that names a tool and fits its schema
    narrowed(schema)         the same schema without what `envs.actions.parse` refuses in any case
    longest_rest(schema)     how much there may still be to say of a value that has begun

The grammar admits less than the parser: keys stand in the order of the schema, and at most one space stands between
two parts of the object. `format` is left out: the parser does not look at it either. Refused is what llguidance does
not know, when it is compiled; and here a `pattern` that does not bound the text, for then there is no telling how a
text that has begun comes to an end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ferrata.envs.actions import sayable
from ferrata.errors import TaskError
from ferrata.models.chat import ToolCard

LARGEST_INTEGER = 10**18 - 1
"""Of those that no schema bounds; the parser refuses numbers that need more than 64 bits."""
LARGEST_NUMBER = 1e15
"""The same for numbers with a fraction: bounded ones are written without an exponent."""
SMALLEST_NUMBER = 1e-6
"""Of those that must be greater than 0, and the same below it: with 0 itself as the bound, llguidance admits 0."""
DEPTH = 6
"""How deep values are nested of which the schema says nothing."""

_PART = r"(\\d|\\[.+*?()/\\-]|\[[^\]\\^]+\]|[\w :/@#,;=-])(?:\{(?:\d+,)?(\d+)\}|\??)"
_BOUNDED = re.compile(rf"\^(?:{_PART})*\$", re.ASCII)
"""Regular expressions that match whole texts of a bounded length: characters and classes, counted at most."""

_SAYS_WHAT = frozenset(("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"))
"""Keys by which a schema says what its values are."""


def grammar_of(tools: Sequence[ToolCard], thinking_ids: Sequence[int] | None) -> str:
    """The grammar of one turn.

    Args:
        tools: of which one is called.
        thinking_ids: control tokens that may stand in the thinking; None admits no thinking.

    Raises:
        TaskError: a tool's schema says something that cannot be held to.
    """
    schema = {
        "anyOf": [_action(tool) for tool in tools],
        "$defs": {f"anything-{depth}": _anything(depth) for depth in range(DEPTH + 1)},
        "x-guidance": {"whitespace_pattern": " "},
    }
    if thinking_ids is None:
        rules = "start: action"
    else:
        marks = f" (<[{','.join(map(str, thinking_ids))}]> THINKING)*" if thinking_ids else ""
        rules = f"start: THINKING{marks} action\nTHINKING: /[^{{]*/"
    return f"%llguidance {{}}\n{rules}\naction: %json {json.dumps(schema)}\n"


def _action(tool: ToolCard) -> dict[str, Any]:
    try:
        # The parser wants an object, whatever else the schema would admit.
        arguments = narrowed({**tool.input_schema, "type": _object(tool.input_schema)})
    except ValueError as error:
        raise TaskError(f"The arguments of tool '{tool.name}' cannot be constrained: {error}.") from error
    return {
        "type": "object",
        "properties": {"action": {"const": tool.name}, "arguments": arguments},
        "required": ["action", "arguments"],
        "additionalProperties": False,
    }


def _object(schema: dict[str, Any]) -> str:
    kinds = schema.get("type", "object")
    if "object" not in ((kinds,) if isinstance(kinds, str) else kinds):
        raise ValueError(f"they are of type {kinds}, and an action needs an object")
    return "object"


def narrowed(schema: Any, depth: int = DEPTH) -> Any:
    """The schema with bounds for numbers and for nesting, wherever it has none of its own. Refers to `_anything`.

    Raises ValueError for a schema that cannot be held to.
    """
    if isinstance(schema, bool):
        return _refer(depth) if schema else False
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    _refuse_endless(schema)
    made = {key: _narrowed_part(key, value, depth - 1) for key, value in schema.items() if key != "format"}
    if "const" in made:
        made["enum"] = _narrowed_part("enum", [made.pop("const")], depth)
    _keep_off_zero(made, 1 if "integer" in kinds and "number" not in kinds else SMALLEST_NUMBER)
    if not _SAYS_WHAT & schema.keys():
        return {**_refer(depth), **made}
    if "object" in kinds:
        made.setdefault("additionalProperties", _refer(depth - 1))
    if "array" in kinds:
        made.setdefault("items", _refer(depth - 1))
    if "integer" in kinds or "number" in kinds:
        _bound(made, LARGEST_NUMBER if "number" in kinds else LARGEST_INTEGER)
    return made


def _narrowed_part(key: str, value: Any, depth: int) -> Any:
    """One keyword of a schema, with the schemas inside it narrowed."""
    if key == "enum":
        members = [member for member in value if sayable(member)]
        if not members:
            raise ValueError("none of the values of an 'enum' or 'const' can be said")
        return members
    if key == "pattern":
        return value.replace(r"\d", "[0-9]")
    if key == "properties":
        return {name: narrowed(inner, depth) for name, inner in value.items()}
    if key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        return [narrowed(inner, depth) for inner in value]
    return narrowed(value, depth) if key in ("items", "additionalProperties") else value


def _refuse_endless(schema: dict[str, Any]) -> None:
    """Refuse what cannot be brought to its end from wherever it has got to, and what is checked by rounded numbers."""
    pattern, step = schema.get("pattern"), schema.get("multipleOf", 1)
    if "patternProperties" in schema:
        raise ValueError("'patternProperties' does not name its keys")
    if pattern is not None and not _BOUNDED.fullmatch(pattern):
        raise ValueError(
            f"the pattern '{pattern[:60]}' does not bound the text: write ^...$ around characters and classes, each "
            "alone or with {n}, {n,m} or ?"
        )
    if not float(step).is_integer():
        raise ValueError(f"'multipleOf' {step} is no whole number")


def _keep_off_zero(schema: dict[str, Any], least: float) -> None:
    """Write a bound that excludes 0 as one that includes the number next to it."""
    if schema.get("exclusiveMinimum") == 0:
        schema["minimum"] = max(schema.get("minimum", least), least)
        del schema["exclusiveMinimum"]
    if schema.get("exclusiveMaximum") == 0:
        schema["maximum"] = min(schema.get("maximum", -least), -least)
        del schema["exclusiveMaximum"]


def _bound(schema: dict[str, Any], most: float) -> None:
    """Give numbers the bounds that they lack."""
    if "exclusiveMinimum" not in schema:
        schema.setdefault("minimum", -most)
    if "exclusiveMaximum" not in schema:
        schema.setdefault("maximum", most)


def _refer(depth: int) -> dict[str, Any]:
    """Any JSON value nested at most `depth` deep."""
    return {"$ref": f"#/$defs/anything-{max(depth, 0)}"}


def _anything(depth: int) -> dict[str, Any]:
    """What `_refer` refers to."""
    number = {"type": "number", "minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER}
    values: list[dict[str, Any]] = [{"type": "string"}, number, {"type": "boolean"}, {"type": "null"}]
    if depth:
        inner = _refer(depth - 1)
        values += [{"type": "array", "items": inner}, {"type": "object", "additionalProperties": inner}]
    return {"anyOf": values}


def longest_rest(schema: Any) -> int:
    """Characters that a value of this schema which has begun may still need, at most; roughly, and never too few.

    What a text, a list or an object may leave out does not count, for it is left out.
    """
    if not isinstance(schema, dict):
        return 0
    values = [*schema.get("enum", ()), schema.get("const")]
    choices = [len(json.dumps(value)) for value in values]
    choices += [longest_rest(inner) for inner in schema.get("anyOf", ())]
    text = max(schema.get("minLength", 0), _length(schema.get("pattern", "")))
    listed = max(schema.get("minItems", 0), 1) * longest_rest(schema.get("items"))
    together = sum(longest_rest(inner) for key in ("prefixItems", "allOf") for inner in schema.get(key, ()))
    return int(4 + max(choices) + text + listed + together + _keys(schema))


def _keys(schema: dict[str, Any]) -> int:
    """What an object has to say, and one more thing that it has begun to say."""
    rests = {name: len(name) + 6 + longest_rest(inner) for name, inner in schema.get("properties", {}).items()}
    required: int = sum(rests.get(name, 0) for name in schema.get("required", ()))
    return required + max(rests.values(), default=0)


def _length(pattern: str) -> int:
    """Longest text that a pattern of a bounded length matches."""
    return sum(int(found[2] or 1) for found in re.finditer(_PART, pattern[1:-1], re.ASCII))
