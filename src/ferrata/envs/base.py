"""The environment: what a person writes to give an agent a world, and what the rest of Ferrata sees of it.

A subclass says which `families` of tasks it has, generates tasks, sets up a task's world in `begin`, offers
methods marked `@tool`, and proves its judge with `scripts`. This base class does the rest of every step:
parse and check the action, ask for permission, inject faults, count repetition, call the tool, collect events, keep
budgets, score, write the audit log. `rewinding` adds snapshots, forks and rollbacks of what `save_world` saves.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Self

import msgspec

from ferrata.envs.actions import Fault, Malformed, parse
from ferrata.envs.audit import AuditLog, digest, outcome_of
from ferrata.envs.faults import FaultRates, FaultState, ToolFault
from ferrata.envs.observe import observation_text
from ferrata.envs.permissions import Guard
from ferrata.envs.repetition import NO_CALL, repetition
from ferrata.envs.rewinding import Rewinding
from ferrata.envs.scripts import Script
from ferrata.envs.selection import Pair, draw_tasks, select
from ferrata.envs.snapshot import Snapshot, encode_world, plain_world
from ferrata.envs.tools import Refused, Tool, ToolError, tools_of
from ferrata.errors import TaskError, UnknownNameError, UsageError
from ferrata.records import Action, Event, EventKind, Observation, StepResult, StopReason, Task
from ferrata.seeds import stream

VERDICTS = (EventKind.SUCCESS, EventKind.FAILURE, EventKind.FORBIDDEN)
Scorer = Callable[[Sequence[Event]], dict[str, float]]
"""From the events of one step to named reward components."""


class Environment(Rewinding):
    """Base class of every environment. One instance plays one episode at a time."""

    name: ClassVar[str]
    """Short name, used in tasks and results."""
    version: ClassVar[str] = "1"
    """Change it whenever the judge or the task generator changes: results of two versions are not compared."""
    families: ClassVar[Mapping[int, tuple[str, ...]]]
    """Tier -> names of its task families."""
    own_domains: ClassVar[tuple[str, ...]] = ()
    """Mail domains whose addresses are not masked in observations."""
    tool_sets: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Stage of the curriculum -> its tools; `choose` takes one of them."""
    needs: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Family -> the tools without which it cannot be done; other families do with any."""

    def __init__(
        self,
        tiers: Sequence[int] = (1,),
        score: Scorer | None = None,
        *,
        faults: FaultRates | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        before = frozenset(vars(self))
        unknown = sorted(set(tiers) - set(self.families))
        if unknown or not tiers:
            raise UsageError(f"Environment '{self.name}' has no tier {unknown}; it has {sorted(self.families)}.")
        self.tiers = tuple(sorted(set(tiers)))
        self.tools: tuple[Tool, ...] = tools_of(type(self))
        self.score = score
        if faults:
            faults.refuse_unknown(tool.name for tool in self.tools)
        self.faults = faults
        """Rates of injected faults; a change holds from the next reset on."""
        self.audit = audit
        """Where every action is logged."""
        self.guard = Guard()
        """Says what the task may touch; hand it to the workspace, the database and the mailbox."""
        self._chosen = [(tier, family) for tier in self.tiers for family in self.families[tier]]
        self._stage: tuple[str, ...] = ()
        self.task: Task
        self.seed = 0
        """The episode's own seed."""
        self.turn = 0
        self.reached: list[str] = []
        self._paid: set[str] = set()
        self._events: list[Event] = []
        self._history: list[tuple[str, str]] = []
        self._every = {tool.name: tool for tool in self.tools}
        self._offered: Sequence[str] = ()
        self._fingerprint = ""
        self._legible: list[str] = []
        self._random: Random | None = None
        self._faults: FaultState | None = None
        self._past: deque[Snapshot] = deque(maxlen=self.undo_turns)
        self._over = True
        self._own = frozenset((*vars(self), *dir(Environment), "task", "_own")) - before

    # What an author writes ------------------------------------------------------------------------------------

    def generate(self, family: str, tier: int, stream: Random, split: str) -> Task:
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

    def demonstrate(self, task: Task, stream: Random, imperfection: float) -> Sequence[str]:
        """Texts of one demonstration. By default a script: one that fails with probability `imperfection`."""
        wanted = stream.random() >= imperfection
        return stream.choice([script for script in self.scripts(task) if script.success == wanted]).texts

    def written_tasks(self) -> list[Task]:
        """Tasks written by hand, for evaluation alone: no family may generate them. None by default."""
        return []

    def save_world(self) -> Any:
        """The whole state of the world that can change, JSON-ready. By default: the attributes that you set."""
        return plain_world(self.name, self._attributes())

    def load_world(self, state: Any) -> None:
        """Bring back what `save_world` gave; `begin` has set the task's world up before. Lists come for tuples."""
        for name in self._attributes().keys() - state.keys():
            delattr(self, name)
        vars(self).update(state)

    def world_state(self) -> Any:
        """JSON-ready state of the world for `state_hash`; two equal states must have equal futures."""
        return self.save_world()

    def another(self) -> Self:
        """A new instance of the same make, for `fork`. Override it when your constructor takes something else."""
        return type(self)(tiers=self.tiers, score=self.score)

    def close(self) -> None:
        """Release files and connections."""

    # What tools call ------------------------------------------------------------------------------------------

    @property
    def random(self) -> Random:
        """Random numbers of the episode, for draws inside the world. They depend on seed and task alone."""
        if self._random is None:
            self._random = stream(self.seed, "world", self._fingerprint)
        return self._random

    @property
    def lost_turns(self) -> int:
        """Turns that injected faults have taken from the agent: a fair deadline is that much later."""
        return self._faults.struck if self._faults else 0

    def reach(self, subgoal: str) -> None:
        """Report a subgoal of the task; only the first time counts, and a rollback makes no second first time."""
        if subgoal in self.task.subgoals and subgoal not in self.reached:
            self.reached.append(subgoal)
            rewarded = subgoal not in self._paid and (not self.task.key_steps or subgoal in self.task.key_steps)
            self._paid.add(subgoal)
            self._events.append(Event(EventKind.SUBGOAL, subgoal, float(rewarded)))

    def finish(self, success: bool) -> None:
        """End the episode with the judge's verdict; the first one counts."""
        if not self._over:
            self._over = True
            self._events.append(Event(EventKind.SUCCESS if success else EventKind.FAILURE))

    def forbid(self, operation: str) -> None:
        """End the episode because of a forbidden operation, whatever the judge has said in the same step."""
        self._over = True
        self._events = [event for event in self._events if event.kind not in VERDICTS]
        self._events.append(Event(EventKind.FORBIDDEN, operation))

    # What the rest of Ferrata calls -------------------------------------------------------------------------------

    def choose(self, families: Sequence[str] = (), tools: str = "") -> None:
        """From now on, draw tasks from these families alone (all when empty) and give them this stage's tools.

        Args:
            families: names; those of other tiers are no mistake.
            tools: a name in `tool_sets`; each task keeps its own tools when empty. Families that need more are left
                out.

        Raises:
            UnknownNameError: there is no such family, or no such tool set.
            UsageError: no family is left.
        """
        if tools and tools not in self.tool_sets:
            raise UnknownNameError.of(f"tool set of environment '{self.name}'", tools, self.tool_sets)
        self._stage = self.tool_sets[tools] if tools else ()
        self._chosen = select(self.name, self.families, self.tiers, families, self._stage, self.needs)

    @property
    def open_families(self) -> tuple[str, ...]:
        """The families that tasks are drawn from, see `choose`."""
        return tuple(family for _, family in self._chosen)

    @property
    def stage_tools(self) -> tuple[str, ...]:
        """The tools that drawn tasks are given, see `choose`; empty where each keeps its own."""
        return self._stage

    def tasks(self, split: str, n: int, seed: int = 0, families: Sequence[str] | None = None) -> list[Task]:
        """`n` different tasks of a split, spread evenly over the families of this environment's tiers."""
        return draw_tasks(self.name, self.generate, self._pairs(families), split, n, seed, tools=self._stage)

    def _pairs(self, families: Sequence[str] | None) -> list[Pair]:
        chosen = [pair for pair in self._chosen if families is None or pair[1] in families]
        if not chosen:
            raise UsageError(f"No family of '{self.name}' in tiers {list(self.tiers)} is among {families}.")
        return chosen

    def tools_for(self, task: Task) -> list[Tool]:
        """The tools that a task may use; all where it names none."""
        return [tool for tool in self.tools if not task.tools or tool.name in task.tools]

    def reset(self, task: Task, seed: int = 0) -> Observation:
        """Begin an episode: the first observation is the task's instruction.

        Args:
            task: what is asked.
            seed: the episode's own seed; faults and `self.random` are drawn from it.
        """
        if task.env != self.name:
            raise UsageError(
                f"A task of environment '{task.env}' cannot be played in '{self.name}'. If its own generate() has made "
                "it, let that say Task(self.name, ...)."
            )
        self._past = deque(maxlen=self.undo_turns)
        self._set_up(task, seed)
        self._faults = FaultState(self.faults) if self.faults else None
        self._over = False
        return Observation(task.instruction)

    def step(self, text: str, *, cut: bool = False) -> StepResult:
        """One turn of the agent: its raw text in, the tool's result, events and reward out.

        No text raises: a malformed action is answered by an `error: ...` observation and an INVALID event.

        Args:
            text: what the agent said.
            cut: a budget of tokens ended the turn. Without a complete action in it the agent is told so, by an event
                INVALID of the name `cut`, which costs nothing.

        Raises:
            UsageError: the episode is over or was never begun.
        """
        if self._over:
            raise UsageError(f"The episode of '{self.name}' is over: call reset(task) before step().")
        if self.undo_turns:
            self._past.append(self.snapshot())
        self.turn += 1
        self._events = [Event(EventKind.STEP)]
        try:
            action, observation = self._play(text, cut)
        except BaseException as error:
            self._log(text, f"failed:{type(error).__name__}")
            raise
        self._log(text, outcome_of(self._events))
        truncated = not self._over and self.turn >= self.task.max_turns
        return self._result(observation, action, truncated)

    def cut(self, stop: StopReason) -> StepResult:
        """End the episode because a budget outside the environment is spent."""
        self._events = []
        return self._result(f"stopped: {stop.value}", None, truncated=True)

    def state_hash(self) -> str:
        """Hash of task, progress and world: equal when the future can be the same."""
        world = self.world_state()
        state = (self._fingerprint, sorted(self.reached), world)
        try:
            content = msgspec.json.encode(state, order="sorted")
        except (TypeError, ValueError, RecursionError):
            default = type(self).world_state is Environment.world_state
            encode_world(self.name, world, "save_world" if default else "world_state")
            raise
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    # Inside a step --------------------------------------------------------------------------------------------

    def _set_up(self, task: Task, seed: int) -> None:
        """A fresh world for `task`, nothing done in it yet; not to be played before all of it is there."""
        self._over = True
        self.task, self.seed, self._fingerprint = task, seed, task.fingerprint
        self.turn, self.reached, self._events, self._history, self._random = 0, [], [], [], None
        self._paid = set()
        self._offered = task.tools or tuple(self._every)
        self.guard = Guard(task.permissions, self._offered)
        self.begin(task)

    def _attributes(self) -> dict[str, Any]:
        """What the author keeps in the instance, and this class knows nothing of."""
        return {name: value for name, value in vars(self).items() if name not in self._own}

    def _play(self, text: str, cut: bool) -> tuple[Action | None, str]:
        """Parse and act; the action, None when it was malformed, and what the model reads."""
        self._legible = []
        parsed = parse(text, self._every, self._offered, cut=cut)
        if isinstance(parsed, Malformed):
            self._history.append(NO_CALL)
            answer = self._invalid(parsed.fault, parsed.message)
        else:
            answer = self._act(parsed)
        lines = [answer, *self.after_step()] if not self._over else [answer]
        return parsed if isinstance(parsed, Action) else None, self._readable("\n".join(lines))

    def _readable(self, text: str) -> str:
        """A text as the model reads it."""
        return observation_text(text, self.own_domains, self._legible)

    def _act(self, action: Action) -> str:
        """Call the tool; what it cannot or must not do becomes an answer."""
        tool, key = self._every[action.name], (action.name, digest(action.canonical))
        excused = self._faults is not None and self._faults.excuse(key[1])
        self._events += [Event(kind, action.name) for kind in repetition(self._history, key, excused)]
        self._history.append(key)
        try:
            self.guard.check("tool", action.name)
            fault = self._draw_fault(tool, key)
            if fault is not None:
                return f"error: {fault.message}"
            if tool.cost:
                self._events.append(Event(EventKind.TOOL_COST, action.name, tool.cost))
            answer: str = getattr(self, action.name)(**action.arguments)
        except ToolError as error:
            self._events.append(Event(EventKind.TOOL_ERROR, action.name))
            return f"error: {error}"
        except Refused as refusal:
            return self._refuse(refusal)
        return answer

    def _draw_fault(self, tool: Tool, key: tuple[str, str]) -> ToolFault | None:
        """The injected fault that strikes this call. The call is forgotten: to try again is no repetition."""
        if self._faults is None:
            return None
        repeated = key in self._history[:-1]
        fault = self._faults.draw(
            tool, key[1], repeated=repeated, turn=self.turn, seed=self.seed, episode=self._fingerprint
        )
        if fault is not None:
            self._history.pop()
            self._events.append(Event(EventKind.TOOL_FAULT, fault.kind))
        return fault

    def _refuse(self, refusal: Refused) -> str:
        """An INVALID event, or the end of the episode where the task forbids what was attempted.

        An address that the agent wrote itself, and those that it may write to, are no news to it: they stay readable.
        """
        kind, _, thing = refusal.operation.partition(":")
        if kind == "recipient":
            self._legible = [thing.lower(), *(name.lower() for name in self.guard.permissions.recipients or ())]
        if self.guard.forbids(refusal.operation):
            self.forbid(refusal.operation[:200])
            return f"forbidden: {refusal}. The episode is over."
        return self._invalid(Fault.REFUSED, str(refusal))

    def _invalid(self, fault: Fault, message: str) -> str:
        self._events.append(Event(EventKind.INVALID, fault.value))
        return f"error: {message}"

    def _log(self, text: str, outcome: str) -> None:
        if self.audit is not None:
            self.audit.write(f"{self._fingerprint}-{self.seed}", self.turn, text, outcome)

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
