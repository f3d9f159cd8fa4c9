"""Environments by name: the built-in ones, and any class as `package.module:Class`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from ferrata.envs.base import Environment
from ferrata.errors import FerrataError, TaskError, UnknownNameError
from ferrata.recipe import RewardSection
from ferrata.rewards.spec import RewardSpec

ENVIRONMENTS = {"office": "ferrata.envs.office:OfficeEnvironment"}
"""Name -> where its class is."""


def make_env(
    name: str, tiers: Sequence[int] = (1,), tier: int | None = None, rewards: RewardSection | None = None
) -> Environment:
    """Make an environment that scores its steps.

    Args:
        name: a built-in environment, or `package.module:Class`.
        tiers: difficulties of its tasks.
        tier: one difficulty; takes the place of `tiers`.
        rewards: weights of the reward components; the defaults when None.

    Raises:
        UnknownNameError: no environment has this name.
        TaskError: `package.module:Class` is not there, or is no environment.
        UsageError: the environment has no such tier.
    """
    cls = find_environment(name)
    try:
        return cls(tiers=tiers if tier is None else (tier,), score=RewardSpec(rewards))
    except FerrataError:
        raise
    except Exception as error:
        raise TaskError(f"Environment '{name}' cannot be made: {type(error).__name__}: {error}.") from error


def find_environment(name: str) -> type[Environment]:
    """The class of an environment, by name or as `package.module:Class`. Raises as `make_env` does."""
    if ":" not in name and name not in ENVIRONMENTS:
        raise UnknownNameError.of("environment", name, ENVIRONMENTS)
    return _find_class(ENVIRONMENTS.get(name, name))


def _find_class(path: str) -> type[Environment]:
    module, _, attribute = path.partition(":")
    if os.getcwd() not in sys.path:
        # A console script does not search the folder it is called from, where people keep what they write.
        sys.path.append(os.getcwd())
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        # Anything may go wrong in a module that somebody is writing; it is theirs, and no fault of ours.
        raise TaskError(f"Environment '{path}' cannot be loaded: {type(error).__name__}: {error}.") from error
    if not (isinstance(cls, type) and issubclass(cls, Environment)):
        raise TaskError(f"Environment '{path}' is not a subclass of ferrata.envs.Environment.")
    return cls
