"""Environments by name: the built-in ones, and any class as `package.module:Class`.

make_env           one environment
EnvironmentSpec    how to make one, as a record that can be sent to a worker process
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pickle import PicklingError
from types import ModuleType
from typing import Any

from ferrata.envs.audit import AuditLog
from ferrata.envs.base import Environment
from ferrata.envs.contract.definition import refuse_mistakes, refuse_unmade
from ferrata.envs.faults import FaultRates
from ferrata.errors import TaskError, UnknownNameError, UsageError, boundary, nearest
from ferrata.recipe import RewardSection
from ferrata.rewards.spec import RewardSpec

ENVIRONMENTS = {
    "office": "ferrata.envs.office:OfficeEnvironment",
    "support": "ferrata.envs.support:SupportEnvironment",
}
"""Name -> where its class is."""


def make_env(
    name: str,
    tiers: Sequence[int] = (1,),
    tier: int | None = None,
    rewards: RewardSection | None = None,
    *,
    families: Sequence[str] = (),
    tools: str = "",
    faults: FaultRates | None = None,
    audit: AuditLog | None = None,
) -> Environment:
    """Make an environment that scores its steps.

    Args:
        name: a built-in environment, or `package.module:Class`.
        tiers: difficulties of its tasks.
        tier: one difficulty; takes the place of `tiers`.
        rewards: weights of the reward components; the defaults when None.
        families: the families to draw tasks from; all of the tiers when empty.
        tools: one of the environment's tool sets; each task's own when empty.
        faults: rates of injected faults; none when None.
        audit: where every action is logged; nowhere when None.

    Raises:
        UnknownNameError: no environment has this name, or it has no such family, tool set, or tool in `faults`.
        TaskError: `package.module:Class` is not there, is no environment, or its definition has a mistake.
        UsageError: the environment has no such tier, or no family is left in its tiers.
    """
    kind = find_environment(name)
    with boundary(TaskError, f"making environment '{name}'"):
        env = kind(tiers=tiers if tier is None else (tier,), score=RewardSpec(rewards))
    refuse_unmade(env)
    try:
        env.choose(families, tools)
        if faults:
            faults.refuse_unknown(tool.name for tool in env.tools)
    except UsageError:
        env.close()
        raise
    env.faults, env.audit = faults, audit
    return env


@dataclass(frozen=True)
class EnvironmentSpec:
    """How to make an environment: calling it makes one. The fields are what `make_env` takes."""

    name: str
    tiers: tuple[int, ...] = (1,)
    rewards: RewardSection | None = None
    families: tuple[str, ...] = ()
    tools: str = ""
    audit: AuditLog | None = None
    """Where every action is logged: in each process that the record is sent to, a file of its own."""

    def __call__(self) -> Environment:
        """Make one. Raises as `make_env` does."""
        return make_env(
            self.name, self.tiers, rewards=self.rewards, families=self.families, tools=self.tools, audit=self.audit
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to a worker. Raises PicklingError for a class of the script itself, which no worker can find."""
        if self.name.startswith("__main__:"):
            raise PicklingError(
                f"{self.name} stands in the script that is run, and a worker runs another one. Move the class to a "
                "module of its own and name that"
            )
        return dict(vars(self))


def find_environment(name: str) -> type[Environment]:
    """The class of an environment, by name or as `package.module:Class`. Raises as `make_env` does."""
    if name not in ENVIRONMENTS:
        _refuse_spelling(name)
    kind = _find_class(ENVIRONMENTS.get(name, name))
    refuse_mistakes(kind)
    _refuse_taken_name(kind)
    return kind


def _refuse_spelling(name: str) -> None:
    """Refuse what can be no class of a module, with the spelling that was most likely meant."""
    path, colon, kind = name.partition(":")
    module = path.removesuffix(".py").strip("./").replace("/", ".")
    if path.endswith(".py") or "/" in path:
        raise UnknownNameError(
            f"Unknown environment '{name}': a module is named as in an import, without .py and slashes. Did you mean "
            f"'{module}:{kind or 'CLASS'}'?"
        )
    if colon:
        return
    module, dot, kind = name.rpartition(".")
    if dot and module:
        raise UnknownNameError(f"Unknown environment '{name}'. Did you mean '{module}:{kind}'?")
    close = get_close_matches(name, ENVIRONMENTS, n=1, cutoff=0.7)
    hint = f"Did you mean '{close[0]}'?" if close else f"Known: {', '.join(sorted(ENVIRONMENTS))}."
    raise UnknownNameError(f"Unknown environment '{name}'. {hint} A class of your own is written as module:Class.")


def _refuse_taken_name(kind: type[Environment]) -> None:
    """Results and tasks carry the environment's name: those of two environments must not look alike."""
    if kind.name in ENVIRONMENTS and kind is not _find_class(ENVIRONMENTS[kind.name]):
        raise TaskError(
            f'{kind.__name__} has the name of a built-in environment: write another than name = "{kind.name}".'
        )


def _find_class(path: str) -> type[Environment]:
    name, _, attribute = path.partition(":")
    module = _import(path, name)
    found = getattr(module, attribute, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if _is_environment(value)]
        raise TaskError(
            f"Environment '{path}' cannot be found: module '{name}' has no '{attribute}'. {nearest(attribute, classes)}"
        )
    if not _is_environment(found):
        what = "class" if isinstance(found, type) else type(found).__name__
        raise TaskError(f"Environment '{path}' is not a subclass of ferrata.Environment, but a {what}.")
    kind: type[Environment] = found
    return kind


def _is_environment(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Environment) and value is not Environment


def _import(path: str, name: str) -> ModuleType:
    """The module of an environment. What its import raises is told with the line that raised it."""
    if os.getcwd() not in sys.path:
        # A console script does not search the folder it is called from, where people keep what they write.
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise TaskError(
                f"Environment '{path}' cannot be found: there is no module '{error.name}', neither installed nor in "
                f"{os.getcwd()}."
            ) from error
        raise _broken_module(path, name, error) from error
    except Exception as error:
        raise _broken_module(path, name, error) from error


def _broken_module(path: str, name: str, error: Exception) -> TaskError:
    if not name:
        return TaskError(f"Environment '{path}' cannot be found: write it as package.module:Class.")
    if isinstance(error, SyntaxError):
        place = f"{error.filename}:{error.lineno}"
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename}:{last.lineno}"
    return TaskError(
        f"Environment '{path}' cannot be used: importing '{name}' raised {type(error).__name__}: {error} ({place})."
    )
