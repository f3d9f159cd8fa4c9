"""The table of checks, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from ferrata.envs.contract.definition import check_definition
from ferrata.envs.contract.episodes import check_hostile_text, check_turn_budget, measure_speed
from ferrata.envs.contract.proof import check_events, check_observations, check_proof, check_scripts, check_subgoals
from ferrata.envs.contract.repetition import check_determinism, check_other_process
from ferrata.envs.contract.snapshots import check_snapshots
from ferrata.envs.contract.subject import Subject
from ferrata.envs.contract.tasks import check_dominance, check_splits, check_tasks

CHECKS: Mapping[str, Callable[[Subject], str]] = MappingProxyType(
    {
        "definition": lambda subject: check_definition(subject.kind),
        "tasks": check_tasks,
        "splits": check_splits,
        "scripts": check_scripts,
        "proof": check_proof,
        "subgoals": check_subgoals,
        "events": check_events,
        "observations": check_observations,
        "determinism": check_determinism,
        "other process": check_other_process,
        "snapshots": check_snapshots,
        "turn budget": check_turn_budget,
        "hostile text": check_hostile_text,
        "dominance": check_dominance,
        "speed": measure_speed,
    }
)
"""Name -> check: says what it saw, or raises Broken or NotChecked."""
_PLAYABLE = ("definition", "tasks", "scripts")
NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tasks": ("definition",),
        "splits": ("definition", "tasks"),
        "scripts": ("definition", "tasks"),
        "other process": (*_PLAYABLE, "determinism"),
        "snapshots": (*_PLAYABLE, "determinism"),
        "hostile text": (*_PLAYABLE, "events", "observations"),
        "dominance": ("definition", "tasks"),
    }
)
"""Check -> checks without which it could only find the same fault again; all others need `_PLAYABLE`."""


def missing(name: str, broken: Collection[str]) -> str:
    """The first of the checks that `name` needs which found a fault; empty when none did."""
    needed = NEEDS.get(name, () if name == "definition" else _PLAYABLE)
    return next((other for other in needed if other in broken), "")
