"""The environment: what a person writes to give an agent a world, and what the rest of Ferrata sees of it.

A subclass says which `families` of tasks it has, generates tasks, sets up a task's world in `begin`, offers
methods marked `@tool`, and proves its judge with `scripts`. This base class does the rest of every step:
parse and check the action, count repetition, call the tool, collect events, keep budgets, score.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ferrata.envs.actions import Fault, Malformed, parse
from ferrata.envs.observe import observation_text
from ferrata.envs.scripts import Script
from ferrata.envs.tools import Refused, Tool, ToolError, tools_of
from ferrata.errors import TaskError, UsageError
from ferrata.records import Action, Event, EventKind, Observation, StepResult, StopReason, Task
from ferrata.seeds import stream

Scorer = Callable[[Sequence[Event]], dict[str, float]]
"""From the events of one step to named reward components."""


class Environment:
    """Base class of every environment. One instance plays one episode at a time."""

    name: ClassVar[str]
    """Short name, used in tasks and results."""
    version: ClassVar[str] = "1"
    """Change it whenever the judge or the task generator changes: results of two versions are not compared."""
    families: ClassVar[Mapping[int, tuple[str, ...]]]
    """Tier -> names of its task families."""
    own_domains: ClassVar[tuple[str, ...]] = ()
    """Mail domains whose addresses are not masked in observations."""

    def __init__(self, tiers: Sequence[int] = (1,), score: Scorer | None = None) -> None:
        unknown = sorted(set(tiers) - set(self.families))
        if unknown or not tiers:
            raise UsageError(f"Environment '{self.name}' has no tier {unknown}; it has {sorted(self.families)}.")
        self.tiers = tuple(sorted(set(tiers)))
        self.tools: tuple[Tool, ...] = tools_of(type(self))
        self.score = score
        self._allowed: dict[str, Tool] = {}
        self._over = True

    # What an author writes ------------------------------------------------------------------------------------

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        """One task of a family, drawn from `stream` alone. `split` is 'train' or 'eval': use disjoint content."""
        raise TaskError(f"Environment '{self.name}' does not say how to generate tasks: write generate().")

    def begin(self, task: Task) -> None:
        """Set the world up for `task`."""

    def after_step(self) -> list[str]:
        """What happens in the world after each step; returned lines are added to the observation."""
        return []

    def scripts(self, task: Task) -> list[Script]:
        """At least one script that must succeed and one that must fail."""
        raise TaskError(f"Environment '{self.name}' does not prove its judge: write scripts().")

    def demonstrate(self, task: Task, stream: random.Random, imperfection: float) -> Sequence[str]:
        """Texts of one demonstration. By default a script: one that fails with probability `imperfection`."""
        wanted = stream.random() >= imperfection
        return stream.choice([script for script in self.scripts(task) if script.success == wanted]).texts

    def world_state(self) -> Any:
        """JSON-ready state of the world for `state_hash`; two equal states must have equal futures."""
        return None

    def close(self) -> None:
        """Release files and connections."""

    # What tools call ------------------------------------------------------------------------------------------

    def reach(self, subgoal: str) -> None:
        """Report a subgoal of the task; only the first time counts."""
        if subgoal in self.task.subgoals and subgoal not in self.reached:
            self.reached.append(subgoal)
            rewarded = not self.task.key_steps or subgoal in self.task.key_steps
            self._events.append(Event(EventKind.SUBGOAL, subgoal, float(rewarded)))

    def finish(self, success: bool) -> None:
        """End the episode with the judge's verdict."""
        self._over = True
        self._events.append(Event(EventKind.SUCCESS if success else EventKind.FAILURE))

    def forbid(self, operation: str) -> None:
        """End the episode because of a forbidden operation."""
        self._over = True
        self._events.append(Event(EventKind.FORBIDDEN, operation))

    # What the rest of Ferrata calls -------------------------------------------------------------------------------

    def tasks(self, split: str, n: int, seed: int = 0, families: Sequence[str] | None = None) -> list[Task]:
        """`n` different tasks of a split, spread evenly over the families of this environment's tiers."""
        if split not in ("train", "eval"):
            raise UsageError(f"Unknown split '{split}'. Known: eval, train.")
        chosen = [(tier, family) for tier in self.tiers for family in self.families[tier]]
        chosen = [pair for pair in chosen if families is None or pair[1] in families]
        if not chosen:
            raise UsageError(f"No family of '{self.name}' in tiers {list(self.tiers)} is among {families}.")
        order = stream(seed, self.name, split)
        order.shuffle(chosen)
        drawn: dict[str, Task] = {}
        for attempt in range(20 * n):
            tier, family = chosen[attempt % len(chosen)]
            task = self.generate(family, tier, stream(seed, self.name, split, attempt), split)
            drawn.setdefault(task.fingerprint, task)
            if len(drawn) == n:
                return list(drawn.values())
        raise TaskError(f"Environment '{self.name}' has only {len(drawn)} different tasks of {n} in split '{split}'.")

    def tools_for(self, task: Task) -> list[Tool]:
        """The tools that a task may use; all where it names none."""
        return [tool for tool in self.tools if not task.tools or tool.name in task.tools]

    def reset(self, task: Task) -> Observation:
        """Begin an episode: the first observation is the task's instruction."""
        if task.env != self.name:
            raise UsageError(f"A task of environment '{task.env}' cannot be played in '{self.name}'.")
        self.task = task
        self.turn = 0
        self.reached: list[str] = []
        self._events: list[Event] = []
        self._history: list[tuple[str, str]] = []
        self._allowed = {tool.name: tool for tool in self.tools_for(task)}
        self._over = False
        self.begin(task)
        return Observation(task.instruction)

    def step(self, text: str) -> StepResult:
        """One turn of the agent: its raw text in, the tool's result, events and reward out.

        No text raises: a malformed action is answered by an `error: ...` observation and an INVALID event.
        Raises UsageError when the episode is over or was never begun.
        """
        if self._over:
            raise UsageError(f"The episode of '{self.name}' is over: call reset(task) before step().")
        self.turn += 1
        self._events = [Event(EventKind.STEP)]
        parsed = parse(text, self._allowed)
        if isinstance(parsed, Malformed):
            answer = self._invalid(parsed.fault, parsed.message)
        else:
            self._note_repetition(parsed)
            answer = self._act(parsed)
        lines = [answer, *self.after_step()] if not self._over else [answer]
        truncated = not self._over and self.turn >= self.task.max_turns
        observation = observation_text("\n".join(lines), self.own_domains)
        action = parsed if isinstance(parsed, Action) else None
        return self._result(observation, action, truncated)

    def cut(self, stop: StopReason) -> StepResult:
        """End the episode because a budget outside the environment is spent."""
        self._events = []
        return self._result(f"stopped: {stop.value}", None, truncated=True)

    def state_hash(self) -> str:
        """Hash of task, progress and world: equal when the future can be the same."""
        state = (self.task.fingerprint, sorted(self.reached), self.world_state())
        return hashlib.blake2b(msgspec.json.encode(state, order="sorted"), digest_size=8).hexdigest()

    # Inside a step --------------------------------------------------------------------------------------------

    def _act(self, action: Action) -> str:
        """Call the tool; what it cannot or must not do becomes an answer."""
        cost = self._allowed[action.name].cost
        if cost:
            self._events.append(Event(EventKind.TOOL_COST, action.name, cost))
        try:
            answer: str = getattr(self, action.name)(**action.arguments)
        except ToolError as error:
            self._events.append(Event(EventKind.TOOL_ERROR, action.name))
            return f"error: {error}"
        except Refused as error:
            return self._invalid(Fault.REFUSED, str(error))
        return answer

    def _invalid(self, fault: Fault, message: str) -> str:
        self._events.append(Event(EventKind.INVALID, fault.value))
        return f"error: {message}"

    def _note_repetition(self, action: Action) -> None:
        """Events for the same call again, and for the same tool a third step running."""
        key = (action.name, action.canonical)
        if key in self._history:
            self._events.append(Event(EventKind.REPEAT, action.name))
        elif [name for name, _ in self._history[-2:]] == [action.name] * 2:
            self._events.append(Event(EventKind.NEAR_REPEAT, action.name))
        self._history.append(key)

    def _result(self, observation: str, action: Action | None, truncated: bool) -> StepResult:
        terminated = self._over
        if truncated:
            self._over = True
            self._events.append(Event(EventKind.UNFINISHED))
        events = tuple(self._events)
        components = self.score(events) if self.score else {}
        reward = sum(components.values()) if self.score else None
        return StepResult(
            Observation(observation), reward, components, terminated, truncated, events, action, {"turn": self.turn}
        )
