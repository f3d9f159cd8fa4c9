"""What an environment answers, checked before anybody relies on it.

    first_observation    of `reset`
    checked_step         of `step` and `cut`
    checked_hash         of `state_hash`
    checked_tools        of `tools_for`

Answers are checked where the environment runs, in the same way in this process and in a worker: so an episode ends
alike in both, and nothing ill-typed reaches a tokenizer, the store, or the wire between processes. `StepResult.info` is
left out: no episode needs it, and it may hold anything. Each function raises EnvironmentFault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real

import msgspec

from ferrata.envs.tools import Tool
from ferrata.errors import EnvironmentFault, named
from ferrata.records import Action, Event, EventKind, Observation, StepResult

MAX_CHARACTERS = 2**23
"""Longest text; with it a message still fits between processes."""

_ACTION = msgspec.msgpack.Decoder(Action)


def first_observation(observation: object) -> str:
    """The text of the first observation."""
    return _observed("reset", observation)


def checked_step(result: object, cut: bool = False) -> StepResult:
    """The answer to a step, or to a cut, with plain values.

    A step after which the episode goes on must be answered by something: a server that is gone often answers nothing.
    """
    what = "cut" if cut else "step"
    if not isinstance(result, StepResult):
        raise EnvironmentFault(f"{what} answered with {_kind(result)}, not with a StepResult.")
    text = _observed(what, result.observation)
    terminated, truncated = bool(result.terminated), bool(result.truncated)
    if not (cut or terminated or truncated or text.strip()):
        raise EnvironmentFault("The step was answered by nothing, which the contract of environments rules out.")
    return StepResult(
        Observation(text),
        None if result.reward is None else _number(f"The reward of {what}", result.reward),
        _components(what, result.components),
        terminated,
        truncated,
        tuple(_event(what, event) for event in result.events),
        _action(what, result.action),
    )


def checked_hash(state_hash: object) -> str:
    """The hash of a state."""
    return _text("state_hash", state_hash)


def checked_tools(tools: object) -> tuple[Tool, ...]:
    """The tools of a task; what the model is told of them must be plain JSON."""
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Tool) for tool in tools):
        raise EnvironmentFault(f"tools_for answered with {_kind(tools)}, not with a list of tools.")
    for tool in tools:
        try:
            msgspec.json.encode((tool.name, tool.description, tool.input_schema))
        except (TypeError, ValueError, RecursionError) as error:
            raise EnvironmentFault(f"A tool of tools_for is not plain JSON: {named(error)}.") from error
    return tuple(tools)


def _observed(what: str, observation: object) -> str:
    if not isinstance(observation, Observation):
        raise EnvironmentFault(f"{what} answered with {_kind(observation)}, not with an Observation.")
    return _text(f"The observation of {what}", observation.text)


def _text(what: str, text: object) -> str:
    """A text that can be read and sent."""
    if not isinstance(text, str):
        raise EnvironmentFault(f"{what} is {_kind(text)}, not a text.")
    if len(text) > MAX_CHARACTERS:
        raise EnvironmentFault(f"{what} has {len(text)} characters, and {MAX_CHARACTERS} are the most.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EnvironmentFault(f"{what} is no valid Unicode: half a character at {error.start}.") from error
    return text if type(text) is str else str.__str__(text)


def _components(what: str, components: object) -> dict[str, float]:
    if not isinstance(components, Mapping):
        raise EnvironmentFault(f"The components of {what} are {_kind(components)}, not numbers by name.")
    return {
        _text(f"The name of a component of {what}", name): _number(f"Component {name!r:.100} of {what}", value)
        for name, value in components.items()
    }


def _number(what: str, value: object) -> float:
    if type(value) is not float:
        if not isinstance(value, Real):
            raise EnvironmentFault(f"{what} is {_kind(value)}, not a number.")
        value = float(value)
    if not math.isfinite(value):
        raise EnvironmentFault(f"{what} is {value}, not a finite number.")
    return value


def _action(what: str, action: object) -> Action | None:
    """The action as another process would read it."""
    if action is None:
        return None
    try:
        return _ACTION.decode(msgspec.msgpack.encode(action))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EnvironmentFault(f"The action of {what} is no plain Action: {named(error)}.") from error


def _event(what: str, event: object) -> Event:
    if not isinstance(event, Event) or not isinstance(event.kind, EventKind):
        raise EnvironmentFault(f"An event of {what} is {_kind(event)}, not an Event of a known kind.")
    _text(f"The name of an event of {what}", event.name)
    _number(f"The amount of an event of {what}", event.amount)
    return event


def _kind(value: object) -> str:
    return type(value).__name__
