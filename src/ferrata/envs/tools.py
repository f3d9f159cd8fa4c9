"""A method becomes a tool: its type hints give the JSON schema, a decorator gives description and effect.

    @tool("Read one file.")
    def read_file(self, path: str) -> str: ...

A tool returns what the model reads. It raises `ToolError` when it cannot do what was asked (no such file),
and `Refused` when it must not (a write through a read-only connection).
"""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

from jsonschema import Draft202012Validator

from ferrata.errors import TaskError

Method = TypeVar("Method", bound=Callable[..., str])

MARK = "__ferrata_tool__"
"""Attribute of a method that is a tool: (description, effect, cost)."""
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}

_EXHAUSTED_BY_ARGUMENTS = frozenset({"type", "properties", "required", "additionalProperties", "title", "description"})
"""What a schema may say of an object without saying more than which arguments there are, and of what type."""
_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
}  # fmt: skip


class ToolError(Exception):
    """The tool could not do what was asked; the message is what the model reads."""


class Refused(Exception):
    """The operation is not allowed; the message is what the model reads. Counts as an invalid action.

    `operation`, written `kind:thing` as in `write:notes/a.txt`, says what was attempted: a task that lists it as
    forbidden ends there (`Permissions.forbidden`).
    """

    def __init__(self, message: str, operation: str = "") -> None:
        super().__init__(message)
        self.operation = operation


class Effect(enum.StrEnum):
    """What a call does to the world."""

    READ = "read"
    WRITE = "write"
    """A change that can be undone."""
    IRREVERSIBLE = "irreversible"
    """A change that cannot be undone: the call must carry `"confirm": true`."""


@dataclass(frozen=True)
class Tool:
    """One tool as the model sees it."""

    name: str
    description: str
    effect: Effect
    input_schema: dict[str, Any]
    """JSON schema of the arguments, `confirm` included for irreversible tools."""
    output_schema: dict[str, Any]
    """JSON schema of the result."""
    cost: float = 0.0
    """Cost of one call, in the unit of the reward component `tool_cost`."""

    @cached_property
    def validator(self) -> Draft202012Validator:
        """Compiled validator of the arguments."""
        return Draft202012Validator(self.input_schema)

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """True when the arguments surely fit the schema. False says nothing: then ask `validator`, which is slow."""
        plain = self._plain
        return (
            self._simple
            and self._required <= arguments.keys()
            and all(type(value) in plain.get(name, ()) for name, value in arguments.items())
        )

    @cached_property
    def _simple(self) -> bool:
        """The schema says no more than which arguments there are, and of what type."""
        schema = self.input_schema
        return schema.keys() <= _EXHAUSTED_BY_ARGUMENTS and schema.get("type", "object") == "object"

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(self.input_schema.get("required", ()))

    @cached_property
    def _plain(self) -> dict[str, tuple[type, ...]]:
        """Arguments of which the schema says nothing but the type -> what Python reads from such JSON."""
        properties: dict[str, Any] = self.input_schema.get("properties", {})
        return {
            name: _PLAIN_TYPES.get(schema["type"], ())
            for name, schema in properties.items()
            # A schema may also be true or false, and a type a list of types: that is for the validator.
            if isinstance(schema, dict) and len(schema) == 1 and isinstance(schema.get("type"), str)
        }


def tool(description: str, effect: Effect | str = Effect.READ, cost: float = 0.0) -> Callable[[Method], Method]:
    """Mark a method of an Environment as a tool."""

    def mark(method: Method) -> Method:
        vars(method)[MARK] = (description, Effect(effect), cost)
        return method

    return mark


def tools_of(cls: type) -> tuple[Tool, ...]:
    """The tools of an environment class, in the order of their definition, base classes first."""
    methods: dict[str, Callable[..., str]] = {}
    for base in reversed(cls.__mro__):
        methods.update({name: value for name, value in vars(base).items() if hasattr(value, MARK)})
    return tuple(_describe(name, method) for name, method in methods.items())


def _describe(name: str, method: Callable[..., str]) -> Tool:
    description, effect, cost = vars(method)[MARK]
    return Tool(name, description, effect, _input_schema(name, method, effect), {"type": "string"}, cost)


def _input_schema(name: str, method: Callable[..., str], effect: Effect) -> dict[str, Any]:
    hints = typing.get_type_hints(method)
    parameters = [parameter for parameter in inspect.signature(method).parameters.values() if parameter.name != "self"]
    for parameter in parameters:
        if parameter.name not in hints:
            raise TaskError(f"Tool '{name}': parameter '{parameter.name}' needs a type hint; its schema comes from it.")
    properties = {parameter.name: _schema(name, hints[parameter.name]) for parameter in parameters}
    required = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if effect is Effect.IRREVERSIBLE:
        properties["confirm"] = {"type": "boolean"}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(name: str, hint: Any) -> dict[str, Any]:
    """JSON schema of one type hint; lists, dictionaries, literals and plain types are known."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return {"enum": list(typing.get_args(hint))}
    if origin is list:
        return {"type": "array", "items": _schema(name, typing.get_args(hint)[0])}
    plain = origin or hint
    if plain not in _JSON_TYPES:
        raise TaskError(f"Tool '{name}': no JSON schema for the type hint {hint!r}; use str, int, float, bool, list.")
    return {"type": _JSON_TYPES[plain]}
