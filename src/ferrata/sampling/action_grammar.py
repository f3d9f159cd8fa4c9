"""The grammar of the actions that a task's tools admit, in the words of llguidance. Nothing is compiled here.

    grammar_of(tools, ...)   a text: optional thinking, then one JSON object that names a tool and fits its schema
    narrowed(schema)         the same schema without what `envs.actions.parse` refuses in any case

The grammar admits less than the parser: keys stand in the order of the schema, and at most one space stands between
two parts of the object. Schemas with keywords that llguidance does not know are refused when they are compiled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ferrata.models.chat import ToolCard

LARGEST_INTEGER = 10**18 - 1
"""Of those that no schema bounds; the parser refuses numbers that need more than 64 bits."""
LARGEST_NUMBER = 1e15
"""The same for numbers with a fraction: bounded ones are written without an exponent."""
DEPTH = 6
"""How deep values are nested of which the schema says nothing."""

_SAYS_WHAT = frozenset(("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"))
"""Keys by which a schema says what its values are."""


def grammar_of(tools: Sequence[ToolCard], thinking_ids: Sequence[int] | None) -> str:
    """The grammar of one turn.

    Args:
        tools: of which one is called.
        thinking_ids: control tokens that may stand in the thinking; None admits no thinking.
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
    return {
        "type": "object",
        "properties": {"action": {"const": tool.name}, "arguments": narrowed(tool.input_schema)},
        "required": ["action", "arguments"],
        "additionalProperties": False,
    }


def narrowed(schema: Any, depth: int = DEPTH) -> Any:
    """The schema with bounds for numbers and for nesting, wherever it has none of its own. Refers to `_anything`."""
    if isinstance(schema, bool):
        return _refer(depth) if schema else False
    if not _SAYS_WHAT & schema.keys():
        return {**_refer(depth), **schema}
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    made = {key: _narrowed_part(key, value, depth - 1) for key, value in schema.items()}
    if "object" in kinds:
        made.setdefault("additionalProperties", _refer(depth - 1))
    if "array" in kinds:
        made.setdefault("items", _refer(depth - 1))
    if "integer" in kinds or "number" in kinds:
        _bound(made, LARGEST_NUMBER if "number" in kinds else LARGEST_INTEGER)
    return made


def _narrowed_part(key: str, value: Any, depth: int) -> Any:
    """One keyword of a schema, with the schemas inside it narrowed."""
    if key in ("properties", "patternProperties"):
        return {name: narrowed(inner, depth) for name, inner in value.items()}
    if key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        return [narrowed(inner, depth) for inner in value]
    return narrowed(value, depth) if key in ("items", "additionalProperties") else value


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
