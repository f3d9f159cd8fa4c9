"""Checks on tasks: well-formed, JSON-ready, drawn from their stream alone, and never in both splits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ferrata.envs.contract.report import Broken, NotChecked
from ferrata.envs.contract.subject import Subject
from ferrata.errors import TaskError, nearest
from ferrata.records import Task
from ferrata.seeds import stream

PROBES = 20
"""Streams from which a task of every family is drawn for both splits."""
SPLITS = ("train", "eval")


def check_tasks(subject: Subject) -> str:
    """Every family gives sound tasks, the same ones from the same stream."""
    for tier, family, split in _kinds(subject):
        _check_sound(subject, _generate(subject, family, tier, split, 0), family, tier, split)
        _check_repeatable(subject, family, tier, split)
    try:
        tasks = subject.tasks
    except TaskError as error:
        _check_stream_is_used(subject)
        raise Broken(
            f"{str(error).partition('. ')[0]}.", "Let generate() draw from more content, or check fewer with --tasks."
        ) from None
    for task in tasks:
        _check_sound(subject, task, task.family, task.tier, task.split)
    return f"{len(tasks)} sound tasks, the same from the same stream"


def check_splits(subject: Subject) -> str:
    """Training and evaluation share no fingerprint, not even when both draw from the same stream."""
    advice = "Let `split` choose between two disjoint sets of content, e.g. of names or numbers."
    for tier in subject.env.tiers:
        for family in subject.env.families[tier]:
            for probe in range(PROBES):
                one, other = (_generate(subject, family, tier, split, probe) for split in SPLITS)
                if one.fingerprint == other.fingerprint:
                    raise Broken(
                        f"generate() of {subject.kind.__name__} ignores `split`: one stream gives the same task of "
                        f"family '{family}' for training and for evaluation.",
                        advice,
                    )
    shared = {task.fingerprint for task in subject.train} & {task.fingerprint for task in subject.unseen}
    if shared:
        family = next(task.family for task in subject.train if task.fingerprint in shared)
        raise Broken(f"{len(shared)} tasks stand in both splits, the first in family '{family}'.", advice)
    written = f", {len(subject.written)} written by hand" if subject.written else ""
    return f"{len(subject.train)} training and {len(subject.evaluation)} evaluation tasks{written}, none shared"


def check_dominance(subject: Subject) -> str:
    """The process reward of every task stays below its share of the outcome's."""
    if subject.dominance is None:
        raise NotChecked("no reward spec was given")
    try:
        subject.dominance(subject.tasks)
    except TaskError as error:
        sentence, _, advice = str(error).rpartition(". ")
        raise Broken(f"{sentence}.", f"{advice} Or name fewer key_steps in the task.") from None
    return f"holds for {len(subject.tasks)} tasks"


def _kinds(subject: Subject) -> Iterator[tuple[int, str, str]]:
    for tier in subject.env.tiers:
        for family in subject.env.families[tier]:
            for split in SPLITS:
                yield tier, family, split


def _generate(subject: Subject, family: str, tier: int, split: str, probe: int) -> Task:
    name = subject.kind.__name__
    with subject.blaming(f"generate() of {name} for family '{family}'", "Mend that line."):
        task = subject.env.generate(family, tier, stream(probe, "contract", family), split)
    if not isinstance(task, Task):
        raise Broken(f"generate() of {name} returns {type(task).__name__} for family '{family}'.", "Return a Task.")
    return task


def _check_repeatable(subject: Subject, family: str, tier: int, split: str) -> None:
    for probe in range(3):
        if _generate(subject, family, tier, split, probe) != _generate(subject, family, tier, split, probe):
            raise Broken(
                f"generate() of {subject.kind.__name__} gave two different tasks of family '{family}' for one stream.",
                "Draw from the argument `stream` alone: not from the random module, a clock, or counters.",
            )


def _check_stream_is_used(subject: Subject) -> None:
    for tier, family, split in _kinds(subject):
        drawn = {_generate(subject, family, tier, split, probe).fingerprint for probe in range(PROBES)}
        if len(drawn) == 1:
            raise Broken(
                f"generate() of {subject.kind.__name__} ignores `stream`: {PROBES} streams gave the same task of "
                f"family '{family}'.",
                "Draw the content of the task from `stream`: of a fixed list with stream.choice(...). A list that is "
                "for evaluation alone is handed out by written_tasks() instead.",
            )


def _check_sound(subject: Subject, task: Task, family: str, tier: int, split: str) -> None:
    for fault, advice in _faults(subject, task, family, tier, split):
        raise Broken(f"A task of family '{family}' of {subject.kind.__name__} {fault}.", advice)


def _faults(subject: Subject, task: Task, family: str, tier: int, split: str) -> Iterator[tuple[str, str]]:
    """What is wrong with the fields of a task, and what to do."""
    expected = {"env": subject.env.name, "family": family, "tier": tier, "split": split}
    for field, value in expected.items():
        if getattr(task, field) != value:
            yield f"has {field} = {getattr(task, field)!r}", f"generate() passes {field} on: here it is {value!r}."
    if not isinstance(task.instruction, str) or not task.instruction.strip():
        yield "has no instruction", "Say in `instruction` what the agent is to do."
    if not isinstance(task.max_turns, int) or task.max_turns < 1:
        yield f"has max_turns = {task.max_turns!r}", "Give it the turns of its solution, and some to spare."
    yield from _name_faults(task, [tool.name for tool in subject.env.tools])
    if not isinstance(task.world, dict):
        yield f"has a world of type {type(task.world).__name__}", "Make `world` a dictionary."
    for place, why in _not_json(task.world, "world"):
        yield (
            f"has a world that is not JSON-ready: {place} {why}",
            "Use dict with text keys, list, str, int, float, bool.",
        )


def _name_faults(task: Task, tools: list[str]) -> Iterator[tuple[str, str]]:
    for field in ("subgoals", "key_steps", "tools"):
        names = getattr(task, field)
        if isinstance(names, str):
            yield f"has {field} = {names!r}, a text", f"A tuple of one name needs a comma: ({names!r},)."
        elif len(set(names)) < len(names):
            yield f"names one of its {field} twice", f"Give each of {list(names)} once."
    for step in task.key_steps:
        if step not in task.subgoals:
            yield f"has the key step '{step}', which is no subgoal", nearest(step, task.subgoals)
    for tool in task.tools:
        if tool not in tools:
            yield f"allows a tool '{tool}' that does not exist", nearest(tool, tools)


def _not_json(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Where a value cannot be written as JSON and read again, and why."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield place, f"has the key {key!r} of type {type(key).__name__}"
            yield from _not_json(inner, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_json(inner, f"{place}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield place, f"is {value}"
    elif isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            yield place, "holds a lone surrogate"
    elif type(value) not in (bool, int, float, type(None)):
        yield place, f"is of type {type(value).__name__}"
