"""Checks on episodes as they go: their turn budget, what they do with wild texts, and how fast they are."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence

from ferrata.envs.base import Environment
from ferrata.envs.contract.proof import event_fault, observation_fault
from ferrata.envs.contract.report import Broken, NotChecked
from ferrata.envs.contract.subject import Subject, play, short
from ferrata.envs.contract.wild import Material, wild_texts, words_of
from ferrata.errors import UsageError
from ferrata.records import EventKind, StepResult, Task
from ferrata.seeds import stream

IDLE = "nothing to do"


def check_turn_budget(subject: Subject) -> str:
    """Idling is cut at `max_turns` and not ended by the task; nothing can be done after an end of either kind."""
    with subject.fresh() as env:
        for task in subject.one_of_each:
            with subject.blaming(f"Family '{task.family}', doing nothing,", actions=task.max_turns + 1):
                results = play(env, task, [IDLE] * (task.max_turns + 1))
            if len(results) != task.max_turns or not results[-1].truncated or results[-1].terminated:
                raise Broken(
                    f"Family '{task.family}': doing nothing for {task.max_turns} turns must be cut there, "
                    f"but the episode {_end(results)}.",
                    "Leave turns and the turn budget to the base class; do not finish() because of idleness.",
                )
            _refuses_more(env, f"Family '{task.family}', after being cut")
            _refuses_after_scripts(subject, env, task)
    return f"{len(subject.one_of_each)} families cut at max_turns; a step after the end is refused"


def check_hostile_text(subject: Subject) -> str:
    """Thousands of wild texts, mixed into real episodes: none raises, each is answered, and the events stay sound."""
    if not subject.fuzzed:
        raise NotChecked("no wild texts were asked for")
    draws = stream(0, "contract", subject.env.name)
    said = ended = 0
    with subject.fresh() as env:
        for task in itertools.cycle(subject.tasks):
            if said >= subject.fuzzed:
                break
            for result in _wild_episode(subject, env, task, draws):
                said += 1
                ended += result.terminated
    return f"{said:,} wild texts, none raised, {ended} ended an episode"


def measure_speed(subject: Subject) -> str:
    """Steps per second on this machine, generation, reset and parsing included: reported, never a fault."""
    with subject.fresh() as env:
        started, steps = time.perf_counter(), 0
        for task in env.tasks("train", len(subject.train)):
            steps += len(play(env, task, env.scripts(task)[0].texts))
    return f"{steps / (time.perf_counter() - started):,.0f} steps a second"


def _end(results: Sequence[StepResult]) -> str:
    if results and results[-1].terminated:
        return f"ended by itself at turn {len(results)}"
    return f"was cut at turn {len(results)}" if results and results[-1].truncated else "went on"


def _refuses_after_scripts(subject: Subject, env: Environment, task: Task) -> None:
    for script in subject.scripts(task):
        with subject.blaming(f"Family '{task.family}', script '{script.name}'", actions=len(script.texts) + 1):
            results = play(env, task, script.texts)
        if results and (results[-1].terminated or results[-1].truncated):
            _refuses_more(env, f"Family '{task.family}', after script '{script.name}'")


def _refuses_more(env: Environment, when: str) -> None:
    try:
        env.step(IDLE)
    except UsageError:
        return
    raise Broken(f"{when}: a step after the end must raise UsageError.", "Do not override step().")


def _wild_episode(subject: Subject, env: Environment, task: Task, draws: random.Random) -> Iterator[StepResult]:
    """Go some way along a script, and then be wild until the episode ends."""
    script = draws.choice(subject.scripts(task))
    ahead = script.texts[: draws.randrange(len(script.texts) + 1)]
    with subject.blaming(f"Family '{task.family}', script '{script.name}'", actions=len(ahead) + 1):
        results = play(env, task, ahead)
    if results and (results[-1].terminated or results[-1].truncated):
        env.reset(task)
    tools = [tool for tool in env.tools if not task.tools or tool.name in task.tools]
    for text in wild_texts(Material(tools, words_of(task), script.texts), draws):
        result = _wild_step(subject, env, task, text)
        yield result
        if result.terminated or result.truncated:
            return


def _wild_step(subject: Subject, env: Environment, task: Task, text: str) -> StepResult:
    acting = subject.acting(task, text)
    with subject.blaming(acting):
        result = env.step(text)
        env.state_hash()
    fault = _wild_fault(result)
    if fault:
        raise Broken(f"{acting} {fault[0]}.", fault[1])
    return result


def _wild_fault(result: StepResult) -> tuple[str, str] | None:
    fault = observation_fault(result) or event_fault(result)
    invalid = sum(event.kind == EventKind.INVALID for event in result.events)
    if not fault and invalid > 1:
        return "was reported as several invalid actions", "Raise Refused or ToolError once, and report nothing else."
    if not fault and invalid and not result.observation.text.startswith("error: "):
        return f"is invalid, but was answered by {short(result.observation.text, 60)}", "Do not override step()."
    return fault
