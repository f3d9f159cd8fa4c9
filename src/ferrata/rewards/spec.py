"""From events to named reward components (SPEC REW-1), and the check that the outcome dominates (REW-2)."""

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

COMPONENTS = tuple(dict.fromkeys(component for component, _ in _COMPONENT.values()))


class RewardSpec:
    """Weights per event. Calling it with the events of one step gives that step's components."""

    def __init__(self, section: RewardSection | None = None) -> None:
        self.section = section or RewardSection()
        self._weights = {
            kind: (component, float(getattr(self.section, weight))) for kind, (component, weight) in _COMPONENT.items()
        }

    @property
    def version(self) -> str:
        """Content hash of the weights."""
        return hashlib.blake2b(self.section.model_dump_json().encode(), digest_size=6).hexdigest()

    def __call__(self, events: Sequence[Event]) -> dict[str, float]:
        """Named components of one step; components without an event are left out."""
        components: dict[str, float] = {}
        for event in events:
            if event.kind in self._weights:
                component, weight = self._weights[event.kind]
                components[component] = components.get(component, 0.0) + weight * event.amount
        return components

    def check_dominance(self, tasks: Sequence[Task]) -> None:
        """Raise TaskError when the process reward obtainable in a task exceeds its allowed share of success."""
        allowed = self.section.process_limit * self.section.success
        for task in tasks:
            rewarded = set(task.subgoals) & set(task.key_steps) if task.key_steps else set(task.subgoals)
            obtainable = self.section.process * len(rewarded)
            if obtainable > allowed + 1e-9:
                raise TaskError(
                    f"Process reward outweighs the outcome in family '{task.family}': {len(rewarded)} subgoals x "
                    f"{self.section.process} = {obtainable:.2f}, more than {self.section.process_limit:.0%} of the "
                    f"success reward {self.section.success} = {allowed:.2f}. Lower rewards.process."
                )
