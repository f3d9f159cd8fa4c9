"""From events to named reward components, by training phase.

    RewardSpec(section)        the weights of a recipe; calling it scores the events of one step
    RewardSpec.at(update)      the weights that hold at an RL update
    check_dominance(tasks)     the outcome dominates, in every phase

A spec is pure: it knows nothing of what was scored before. That a subgoal pays only once is the episode's to say
(`Environment.reach`), and `rescoring` holds it over a whole stored trajectory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ferrata.errors import TaskError
from ferrata.recipe import RewardSection
from ferrata.records import Event, EventKind, Task

_COMPONENT: dict[EventKind, tuple[str, str]] = {
    EventKind.STEP: ("efficiency", "efficiency"),
    EventKind.SUBGOAL: ("process", "process"),
    EventKind.INVALID: ("invalid", "invalid"),
    EventKind.NEAR_REPEAT: ("repetition", "near_repeat"),
    EventKind.REPEAT: ("repetition", "repeat"),
    EventKind.TOOL_COST: ("tool_cost", "tool_cost"),
    EventKind.FORBIDDEN: ("safety", "safety"),
    EventKind.SUCCESS: ("outcome", "success"),
    EventKind.FAILURE: ("outcome", "failure"),
    EventKind.UNFINISHED: ("unfinished", "unfinished"),
}
"""Event kind -> (component it counts to, weight in the recipe)."""

FORMAT_FAULTS = frozenset({"no_json", "malformed_json", "no_action", "two_actions", "too_long"})
"""INVALID events of these names mean that the text held no well-formed action; the others, that it was refused."""

FREE = frozenset({"cut"})
"""INVALID events of these names cost nothing: a budget ended the turn, and what it would have held is not known."""

COMPONENTS = tuple(dict.fromkeys(("format", *(component for component, _ in _COMPONENT.values()))))


class RewardSpec:
    """Weights per event. Calling it with the events of one step gives that step's components.

    Args:
        section: the recipe's weights, with their phases; the defaults when None.
        phase: name of the phase these weights belong to; empty before the first.
    """

    def __init__(self, section: RewardSection | None = None, phase: str = "") -> None:
        self.section = section or RewardSection()
        self.phase = phase
        self._weights = {
            kind: (component, float(getattr(self.section, weight))) for kind, (component, weight) in _COMPONENT.items()
        }
        self._format = ("format", float(self.section.format))

    @property
    def version(self) -> str:
        """Content hash of the weights; the phases that come later have no part in it."""
        content = self.section.model_dump_json(exclude={"phases"})
        return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()

    def at(self, update: int) -> RewardSpec:
        """The spec that holds at an RL update (counted from 1); at 0 none of the phases has begun."""
        begun = [phase for phase in self.section.phases if phase.from_update <= update]
        return RewardSpec(self.section.during(begun[-1]), begun[-1].name) if begun else self

    @property
    def all_phases(self) -> list[RewardSpec]:
        """The spec itself, and that of each phase."""
        return [self, *(self.at(phase.from_update) for phase in self.section.phases)]

    def __call__(self, events: Sequence[Event]) -> dict[str, float]:
        """Named components of one step; components without an event are left out."""
        components: dict[str, float] = {}
        for event in events:
            if event.kind in self._weights and not (event.kind is EventKind.INVALID and event.name in FREE):
                component, weight = self._weight(event)
                components[component] = components.get(component, 0.0) + weight * event.amount
        return components

    def check_dominance(self, tasks: Sequence[Task]) -> None:
        """Raise TaskError when, in any phase, the process reward obtainable in a task exceeds its share of success."""
        for spec in self.all_phases:
            for task in tasks:
                spec._check_task(task)

    def _weight(self, event: Event) -> tuple[str, float]:
        malformed = event.kind is EventKind.INVALID and event.name in FORMAT_FAULTS
        return self._format if malformed else self._weights[event.kind]

    def _check_task(self, task: Task) -> None:
        unknown = sorted(set(task.key_steps) - set(task.subgoals))
        if unknown:
            raise TaskError(
                f"Key step '{unknown[0]}' of family '{task.family}' can never be reached: it is none of the task's "
                f"subgoals ({', '.join(task.subgoals)})."
            )
        rewarded = len(set(task.key_steps or task.subgoals))
        obtainable = self.section.process * rewarded
        allowed = self.section.process_limit * self.section.success
        if obtainable > allowed + 1e-9:
            what = "key steps" if task.key_steps else "subgoals"
            where = f" in phase '{self.phase}'" if self.phase else ""
            raise TaskError(
                f"Process reward outweighs the outcome in family '{task.family}'{where}: {rewarded} {what} x "
                f"{self.section.process} = {obtainable:.2f}, more than {self.section.process_limit:.0%} of the "
                f"success reward {self.section.success} = {allowed:.2f}. Lower rewards.process{where}."
            )
