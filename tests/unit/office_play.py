"""Tasks of the office by family, and what was played in them."""

from __future__ import annotations

import re

from ferrata.envs import Script, call
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.office.goals import Part, parts_of
from ferrata.envs.office.language import FIRST_SYLLABLES, SECOND_SYLLABLES
from ferrata.envs.office.solutions import solution
from ferrata.records import EventKind, StepResult, Task
from ferrata.rewards import RewardSpec

SPEC = RewardSpec()
NAME = re.compile(f"(?:{'|'.join(FIRST_SYLLABLES)})(?:{'|'.join(SECOND_SYLLABLES)})")
LONG = OfficeEnvironment.families[3]


def task_of(office: OfficeEnvironment, family: str, split: str = "train", seed: int = 0) -> Task:
    return office.tasks(split, 1, seed=seed, families=[family])[0]


def texts_of(task: Task) -> list[str]:
    return [text for _, text in solution(task)]


def part_of(task: Task, subgoal: str) -> Part:
    return next(part for part in parts_of(task.world["goal"]) if part["subgoal"] == subgoal)


def script_of(office: OfficeEnvironment, task: Task, name: str) -> Script:
    return next(script for script in office.scripts(task) if script.name == name)


def events_of(results: list[StepResult], kind: EventKind) -> list[str]:
    return [event.name for result in results for event in result.events if event.kind == kind]


def play_until(office: OfficeEnvironment, task: Task, subgoal: str) -> StepResult:
    """Play the solution up to the step that reaches a subgoal."""
    office.reset(task)
    for text in texts_of(task):
        result = office.step(text)
        if subgoal in events_of([result], EventKind.SUBGOAL):
            return result
    raise AssertionError(f"the solution never reaches {subgoal}")


def mail(part: Part, body: str) -> str:
    return call("send_message", to=part["to"], subject="x", body=body, confirm=True)
