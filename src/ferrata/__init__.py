"""Ferrata trains LLM agents to finish long tasks, and proves on unseen tasks that they got better.

    make_env        an environment by name, ready to play
    load_recipe     a recipe by name or file, with overrides
    Environment     base class for your own environment; `tool` marks its tools, `Script` and `call` prove its judge
    check_environment  the contract that every environment must fulfil

Names are loaded when they are first used: `import ferrata` itself imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ferrata.envs import Effect, Environment, Refused, Script, Task, ToolError, call, tool
    from ferrata.envs.checker import check_environment
    from ferrata.errors import FerrataError
    from ferrata.recipe import Recipe
    from ferrata.recipe_loading import load_recipe
    from ferrata.rollout.worlds import make_env

__version__ = "0.1.0"

__all__ = [
    "Effect",
    "Environment",
    "FerrataError",
    "Recipe",
    "Refused",
    "Script",
    "Task",
    "ToolError",
    "call",
    "check_environment",
    "load_recipe",
    "make_env",
    "tool",
]

_HOMES = {
    "Effect": "ferrata.envs",
    "Environment": "ferrata.envs",
    "FerrataError": "ferrata.errors",
    "Recipe": "ferrata.recipe",
    "Refused": "ferrata.envs",
    "Script": "ferrata.envs",
    "Task": "ferrata.envs",
    "ToolError": "ferrata.envs",
    "call": "ferrata.envs",
    "check_environment": "ferrata.envs.checker",
    "load_recipe": "ferrata.recipe_loading",
    "make_env": "ferrata.rollout.worlds",
    "tool": "ferrata.envs",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ferrata' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
