"""Reading and writing recipes.

    load_recipe       a recipe that ships with the package, or a .toml file, with overrides `rl.updates=40`
    shipped_recipes   names of those that ship
    flatten           a recipe as dotted keys and values
    dump_recipe       a recipe as TOML, every key with its meaning
    as_toml           one value, as an override takes it

Whatever a person writes ends in a Recipe or in one sentence: RecipeError or UnknownNameError.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ferrata.errors import RecipeError, UnknownNameError, nearest
from ferrata.recipe import POLICY_NAMES, Recipe, RewardPhase, Section

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "dict_type": "a number, or a table of numbers",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number less than {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "literal_error": "one of {expected}",
    "too_short": "a list that is not empty",
    "string_pattern_mismatch": "letters, digits, '-', '_' and '.', at most 80, the first a letter or digit",
}
"""What to write instead, by pydantic's name for the fault."""

_BENDING = ("top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
"""Settings of other samplers that Ferrata does without: they change which distribution the tokens are drawn from."""


def shipped_recipes() -> list[str]:
    """Names of the recipes that ship with the package."""
    return sorted(_shipped())


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Load a shipped recipe by name, or a .toml file, and apply overrides in order.

    An override is `key=value` with a dotted key; the value is read as TOML, and as plain text where it is none. Where
    `policy.model` is a folder, its path becomes absolute: a run goes on with it wherever it is resumed.
    Raises UnknownNameError for an unknown recipe, RecipeError for anything wrong inside one.
    """
    text = _read(name_or_path)
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"Recipe {name_or_path} is not valid TOML: {error}.") from error
    content.setdefault("name", _name_after(name_or_path))
    for key in _leaves(content):
        _refuse_unknown(key)
    for override in overrides:
        _apply(content, override)
    return _rooted(_validated(content))


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as TOML: every key, its value, and its meaning as a comment. `load_recipe` reads it back."""
    return "\n".join(_dump_section(recipe, "")) + "\n"


def flatten(section: Section, prefix: str = "") -> dict[str, Any]:
    """Every dotted key with its value."""
    flat: dict[str, Any] = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Section) else {f"{prefix}{name}": value}
    return flat


def known_keys(section: type[Section] = Recipe, prefix: str = "") -> dict[str, FieldInfo]:
    """Every key that a recipe can hold, dotted, with its field."""
    keys: dict[str, FieldInfo] = {}
    for name, field in section.model_fields.items():
        inner = _section(field)
        keys |= known_keys(inner, f"{prefix}{name}.") if inner else {f"{prefix}{name}": field}
    return keys


def _rooted(recipe: Recipe) -> Recipe:
    """The recipe with an absolute path of its policy, where that is a folder and not a name."""
    path = Path(recipe.policy.model)
    if path.is_absolute() or not os.path.isdir(path) or recipe.policy.model in POLICY_NAMES:
        return recipe
    return recipe.model_copy(update={"policy": recipe.policy.model_copy(update={"model": str(path.absolute())})})


def _section(field: FieldInfo) -> type[Section] | None:
    """The section class that a field holds, or None for a plain value."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


# Finding and reading ----------------------------------------------------------------------------------------


def _shipped() -> dict[str, Traversable]:
    folder = files("ferrata") / "recipes"
    return {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}


def _name_after(name_or_path: str) -> str:
    """A recipe without a name is called after its file."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(name_or_path).stem).lstrip("-_.")[:80]
    return plain or "recipe"


def _read(name_or_path: str) -> str:
    """The text of a recipe file, or of a shipped recipe."""
    shipped = _shipped()
    if name_or_path in shipped:
        return shipped[name_or_path].read_text(encoding="utf-8")
    if not name_or_path.endswith(".toml"):
        raise UnknownNameError.of("recipe", name_or_path, shipped)
    try:
        return Path(name_or_path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UnknownNameError(f"There is no recipe file {name_or_path}.") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RecipeError(f"Recipe file {name_or_path} cannot be read: {reason}.") from error


# Overrides --------------------------------------------------------------------------------------------------


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one dotted key in the nested tables."""
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals:
        raise RecipeError(f"'{override}' is not an override: write KEY=VALUE, for example rl.updates=40.")
    _refuse_unknown(key)
    *tables, last = key.split(".")
    for name in tables:
        content = content.setdefault(name, {})
        if not isinstance(content, dict):
            raise RecipeError(f"'{name}' must be a table of keys, so '{key}' cannot be set.")
    content[last] = _value(text.strip())


def _value(text: str) -> Any:
    """The text as a TOML value; as itself where it is none."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    # A text such as '1\nother = 2' is valid TOML, but no value.
    return parsed["value"] if len(parsed) == 1 else text


def _leaves(content: dict[str, Any], section: type[Section] = Recipe, prefix: str = "") -> Iterator[str]:
    """Every dotted key that a recipe file sets. Sections are opened, values are not."""
    for name, value in content.items():
        field = section.model_fields.get(name)
        inner = _section(field) if field else None
        if inner and isinstance(value, dict):
            yield from _leaves(value, inner, f"{prefix}{name}.")
        elif not prefix and isinstance(value, dict) and value:
            yield from (f"{name}.{key}" for key in value)
        else:
            yield f"{prefix}{name}"


def _refuse_unknown(key: str) -> None:
    known = known_keys()
    if key in known:
        return
    setting = key.rpartition(".")[2]
    if setting in _BENDING:
        raise RecipeError(
            f"'{key}' is refused on purpose: under {setting} tokens are drawn from another distribution than the one "
            "that is trained, so that their stored log-probabilities would not be the policy's. Set "
            "rollout.temperature instead."
        )
    sections = sorted({name.rpartition(".")[0] for name in known if "." in name})
    if key in sections:
        example = next(name for name in known if name.startswith(f"{key}."))
        raise RecipeError(f"'{key}' is a section: set a key inside it, for example '{example}'.")
    hint = nearest(key, known)
    if not hint.startswith("Did you mean"):
        outer = (name for name in sections if "." not in name)
        hint = f"Known sections: {', '.join(outer)}; --dry-run prints every key."
    raise RecipeError(f"Unknown key '{key}'. {hint}")


# Values -----------------------------------------------------------------------------------------------------


def _validated(content: dict[str, Any]) -> Recipe:
    """The checked recipe. Goes through JSON because a strict check then still takes a list for a tuple."""
    try:
        return Recipe.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        raise RecipeError(_sentence(error.errors()[0])) from error
    except (ValueError, RecursionError) as error:
        raise RecipeError("A value in the recipe is too large or too deeply nested.") from error


def _sentence(fault: ErrorDetails) -> str:
    """Key, value and what is expected there, in one sentence."""
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"Key '{key}' is missing."
    if fault["type"] == "extra_forbidden":
        return f"Unknown key '{key}'. {nearest(str(fault['loc'][-1]), RewardPhase.model_fields)}"
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    if not key:
        return "A value in the recipe is too large, too deeply nested, or not valid text."
    expected = _EXPECTED.get(fault["type"])
    if expected is None:
        return f"Wrong value for '{key}': {fault['msg'].removeprefix('Value error, ')}."
    shown = _shortened(as_toml(fault["input"]))
    return f"Wrong value for '{key}': {shown}; expected {expected.format(**fault.get('ctx', {}))}."


def _shortened(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


# Writing ----------------------------------------------------------------------------------------------------


def _dump_section(section: Section, prefix: str) -> list[str]:
    """The section's own keys, then every section inside it under its heading."""
    values = {name: getattr(section, name) for name in type(section).model_fields}
    meanings = {name: field.description for name, field in type(section).model_fields.items()}
    lines = [_dump_key(name, value, meanings[name]) for name, value in values.items() if not isinstance(value, Section)]
    for name, value in values.items():
        if isinstance(value, Section):
            lines += ["", f"[{prefix}{name}]", *_dump_section(value, f"{prefix}{name}.")]
    return lines


def _dump_key(name: str, value: Any, meaning: str | None) -> str:
    line = f"{name} = {as_toml(value)}"
    return f"{line}  # {' '.join(meaning.split())}" if meaning else line


def as_toml(value: Any) -> str:
    """One value as TOML; what is None has no place in it."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the one control character that JSON lets stand.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{as_toml(key)} = {as_toml(item)}' for key, item in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else repr(value)
