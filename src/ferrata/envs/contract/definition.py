"""What can be seen in an environment's class before it plays: its name, families, methods and tools.

`refuse_mistakes` is called when a class is loaded by name, so that training never begins with one of these;
`check_definition` also wants the scripts that training can do without. `refuse_unmade` looks at a made instance.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from typing import Any

from ferrata.envs.base import Environment
from ferrata.envs.contract.report import Broken
from ferrata.envs.tools import MARK, Effect, tools_of
from ferrata.errors import TaskError

TIERS = (1, 2, 3)
_MUTABLE = (MutableMapping, MutableSequence, MutableSet)


def refuse_mistakes(kind: type[Environment]) -> None:
    """Raise TaskError for the first mistake in the definition of `kind`."""
    try:
        _check_class(kind)
    except Broken as fault:
        raise TaskError(str(fault)) from fault.__cause__


def refuse_unmade(env: Environment) -> None:
    """Raise TaskError for an instance whose constructor has left the base class out."""
    if not hasattr(env, "_own"):
        name = type(env).__name__
        raise TaskError(
            f"{name}.__init__() leaves the base class out: its first line must call super().__init__(tiers, score)."
        )


def check_definition(kind: type[Environment]) -> str:
    """Look at names, families, methods and tools of the class; say how many tools and families it has."""
    tools = _check_class(kind)
    _check_written(kind, "scripts", "(self, task): return [Script(..., success=True), Script(..., success=False)]")
    families = sum(len(names) for names in kind.families.values())
    return f"{tools} tools, {families} families in {len(kind.families)} tiers"


def _check_class(kind: type[Environment]) -> int:
    """Everything that playing needs; the number of tools."""
    _check_name(kind)
    _check_families(kind)
    _check_written(kind, "generate", "(self, family, tier, stream, split): return Task(...)")
    _check_world_methods(kind)
    _check_constructor(kind)
    _check_shared(kind)
    methods = dict(_tool_methods(kind))
    if not methods:
        raise Broken(f"{kind.__name__} has no tools.", 'Mark the methods that an agent may call with @tool("...").')
    for name, method in methods.items():
        _check_tool(kind, name, method)
    _check_schemas(kind)
    return len(methods)


def _check_name(kind: type[Environment]) -> None:
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name.strip():
        raise Broken(f"{kind.__name__} has no name.", f'Write name = "{kind.__name__.lower()}" in the class.')


def _check_families(kind: type[Environment]) -> None:
    families = getattr(kind, "families", None)
    if not isinstance(families, Mapping) or not families:
        raise Broken(f"{kind.__name__} has no families of tasks.", 'Write families = {1: ("open",)} in the class.')
    for tier, names in families.items():
        if tier not in TIERS:
            raise Broken(f"{kind.__name__}.families has a tier {tier!r}.", "Tiers are 1, 2 and 3.")
        if isinstance(names, str):
            raise Broken(
                f"{kind.__name__}.families[{tier}] is the text {names!r}.",
                f"A tuple of one name needs a comma: ({names!r},).",
            )
        if not names or not all(isinstance(name, str) and name for name in names):
            raise Broken(f"{kind.__name__}.families[{tier}] names no family.", 'Write e.g. ("open",), or leave it out.')


def _check_written(kind: type[Environment], name: str, example: str) -> None:
    if getattr(kind, name) is getattr(Environment, name):
        raise Broken(f"{kind.__name__} has no {name}().", f"Write def {name}{example}.")


def _check_world_methods(kind: type[Environment]) -> None:
    """Both of save_world and load_world are written, or none."""
    pair = ("save_world", "load_world")
    written = [name for name in pair if getattr(kind, name) is not getattr(Environment, name)]
    if len(written) == 1:
        missing = next(name for name in pair if name not in written)
        example = (
            "def load_world(self, state): put it back" if missing == "load_world" else "def save_world(self): return it"
        )
        raise Broken(f"{kind.__name__} has {written[0]}() but no {missing}().", f"Write {example}.")


def shared_state(kind: type[Environment]) -> dict[str, Any]:
    """What can change and stands in the class, so that all instances and episodes share it. Name -> value."""
    own = [cls for cls in kind.__mro__ if issubclass(cls, Environment) and cls is not Environment]
    known = vars(Environment).keys() | Environment.__annotations__.keys()
    return {
        name: value
        for cls in reversed(own)
        for name, value in vars(cls).items()
        if isinstance(value, _MUTABLE) and not name.startswith("__") and name not in known
    }


def _check_shared(kind: type[Environment]) -> None:
    """A list or a dictionary in the class is a constant by its name or its annotation, or a mistake."""
    hints = {
        name: str(hint) for cls in reversed(kind.__mro__) for name, hint in vars(cls).get("__annotations__", {}).items()
    }
    for name, value in shared_state(kind).items():
        if not name.isupper() and "ClassVar" not in hints.get(name, ""):
            raise Broken(
                f"{kind.__name__}.{name} is a {type(value).__name__} in the class: all episodes share it.",
                f"Set it in begin(): self.{name} = ...; a constant is written in capitals or annotated as ClassVar.",
            )


def _check_constructor(kind: type[Environment]) -> None:
    try:
        inspect.signature(kind).bind(tiers=(1,), score=None)
    except TypeError as error:
        raise Broken(
            f"{kind.__name__}(tiers=..., score=...) cannot be called: {error}.",
            "Let __init__ take tiers and score, and pass them on: super().__init__(tiers, score).",
        ) from None


def _tool_methods(kind: type[Environment]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The marked methods of the class and its bases; a method marked by a bare `@tool` is refused here."""
    for cls in reversed(kind.__mro__):
        for name, value in vars(cls).items():
            if getattr(value, "__qualname__", "") == "tool.<locals>.mark":
                raise Broken(
                    f"{_tool(kind, name)} has no description.", 'Write @tool("What it does.") instead of @tool.'
                )
            if hasattr(value, MARK):
                yield name, value


def _check_tool(kind: type[Environment], name: str, method: Callable[..., Any]) -> None:
    description, effect, cost = vars(method)[MARK]
    tool = _tool(kind, name)
    if hasattr(Environment, name):
        raise Broken(f"{tool} hides Environment.{name}, which Ferrata calls itself.", "Give the tool another name.")
    if not isinstance(description, str) or not description.strip():
        raise Broken(f"{tool} has no description.", 'Write @tool("What it does."): the model reads it.')
    if not isinstance(cost, int | float) or not math.isfinite(cost) or cost < 0:
        raise Broken(f"{tool} has the cost {cost!r}.", "A cost is a number from 0 on; rewards are in the recipe.")
    if inspect.iscoroutinefunction(method):
        raise Broken(f"{tool} is an async method.", "Write it as a plain method that returns text.")
    _check_parameters(tool, method, effect)


def _check_parameters(tool: str, method: Callable[..., Any], effect: Effect) -> None:
    try:
        hints = typing.get_type_hints(method)
    except Exception as error:
        raise Broken(f"{tool}: its type hints cannot be read: {error}.", "Import what they name.") from None
    if hints.get("return", str) is not str:
        raise Broken(f"{tool} is declared to return {_named(hints['return'])}.", "A tool returns text: -> str.")
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Broken(f"{tool} takes '{parameter}'.", "Give every argument a name and a type hint of its own.")
        if parameter.name not in hints:
            raise Broken(f"{tool}: parameter '{parameter.name}' has no type hint.", _hint_advice(parameter.name))
        if parameter.name == "confirm" and effect is Effect.IRREVERSIBLE:
            raise Broken(f"{tool} has a parameter 'confirm'.", "Leave it out: irreversible tools get it by themselves.")


def _hint_advice(parameter: str) -> str:
    return f"Write '{parameter}: str', or int, float, bool, list, dict, Literal: the model's schema comes from it."


def _check_schemas(kind: type[Environment]) -> None:
    try:
        tools_of(kind)
    except TaskError as error:
        advice = "Use str, int, float, bool, list[...], dict or Literal: the model's schema comes from it."
        raise Broken(f"{kind.__name__}: {str(error).partition(';')[0].rstrip('.')}.", advice) from None


def _tool(kind: type[Environment], name: str) -> str:
    return f"Tool '{name}' of {kind.__name__}"


def _named(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint))
