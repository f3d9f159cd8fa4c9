"""The contract of an environment, checked: what `ferrata check-env` prints.

proof          every scripted success succeeds, every scripted failure fails
determinism    the same task and texts give the same observations, events and state hashes
disjoint       training and evaluation tasks share no fingerprint
budgets        the turn cap truncates and does not terminate; a step after the end is refused
hostile text   no text raises, each is answered by something the model can read
dominance      all process reward of a task stays below its share of the outcome (given a check)
observations   none is longer than the limit
speed          steps per second, reset and generation included (reported, never a failure)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ferrata.envs.base import Environment
from ferrata.envs.observe import MAX_CHARACTERS
from ferrata.envs.scripts import Script
from ferrata.errors import TaskError, UsageError
from ferrata.records import EventKind, StepResult, Task

NOTE_CHARACTERS = 100
"""Room for the note that says what was left out of a long observation."""

HOSTILE_TEXTS = (
    "",
    "I do not know.",
    "{",
    '{"action": ',
    '{"action": "no_such_tool", "arguments": {}}',
    '{"action": 7, "arguments": []}',
    '{"action": "' + "x" * 5000,
    '{"a": ' * 3000,
    "[" * 3000,
    '{"action": "submit", "action": "submit"}',
    '{"action": "\\ud800", "arguments": {"\\u0000": NaN}}',
    "9" * 5000,
    "\x00\x1b[31m\u202e{}{}{}",
)


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    name: str
    ok: bool
    detail: str
    """What was seen: the first fault, or how much was checked."""


@dataclass(frozen=True)
class Report:
    """All checks of one environment."""

    environment: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True when every check passed."""
        return all(check.ok for check in self.checks)


class _Broken(Exception):
    """A check found a fault; the message says which."""


def check_environment(
    env: Environment, tasks_each: int = 30, dominance: Callable[[Sequence[Task]], None] | None = None
) -> Report:
    """Run every check on `tasks_each` tasks of each split. `dominance` raises TaskError where rewards outweigh."""
    try:
        train, evaluation = env.tasks("train", tasks_each), env.tasks("eval", tasks_each)
    except Exception as error:
        failed = Check("tasks", False, f"drawing tasks: {type(error).__name__}: {error}")
        return Report(env.name, (failed,))
    every = [*train, *evaluation]
    checks: list[tuple[str, Callable[[], str]]] = [
        ("proof", lambda: _check_proof(env, every)),
        ("determinism", lambda: _check_determinism(env, every)),
        ("disjoint splits", lambda: _check_disjoint(train, evaluation)),
        ("turn budget", lambda: _check_turn_budget(env, every[0])),
        ("hostile text", lambda: _check_hostile(env, every[0])),
        ("dominance", lambda: _check_dominance(every, dominance)),
        ("speed", lambda: _measure_speed(env, tasks_each)),
    ]
    return Report(env.name, tuple(_run(name, check) for name, check in checks))


def play(env: Environment, task: Task, texts: Sequence[str]) -> list[StepResult]:
    """Play fixed texts until they or the episode end."""
    env.reset(task)
    results = []
    for text in texts:
        results.append(env.step(text))
        if results[-1].terminated or results[-1].truncated:
            break
    return results


def succeeded(results: Sequence[StepResult]) -> bool:
    """True when the judge said success."""
    return any(event.kind == EventKind.SUCCESS for result in results for event in result.events)


def _run(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except _Broken as fault:
        return Check(name, False, str(fault))
    except Exception as error:
        return Check(name, False, f"raised {type(error).__name__}: {error}")


def _check_proof(env: Environment, tasks: Sequence[Task]) -> str:
    played = 0
    for task in tasks:
        scripts = env.scripts(task)
        for wanted in (True, False):
            if not any(script.success == wanted for script in scripts):
                raise _Broken(f"family '{task.family}' has no script that must {'succeed' if wanted else 'fail'}")
        for script in scripts:
            _check_script(env, task, script)
        played += len(scripts)
    return f"{played} scripts of {len(tasks)} tasks judged as they must be"


def _check_script(env: Environment, task: Task, script: Script) -> None:
    results = play(env, task, script.texts)
    if succeeded(results) != script.success:
        verdict = "failed" if script.success else "succeeded"
        last = results[-1].observation.text[:80] if results else "nothing"
        raise _Broken(f"family '{task.family}': script '{script.name}' {verdict}; the last answer was: {last!r}")
    if script.success:
        reached = {event.name for result in results for event in result.events if event.kind == EventKind.SUBGOAL}
        never = [subgoal for subgoal in task.subgoals if subgoal not in reached]
        if never:
            raise _Broken(f"family '{task.family}': the solution never reaches subgoal '{never[0]}'")
    long = max((len(result.observation.text) for result in results), default=0)
    if long > MAX_CHARACTERS + NOTE_CHARACTERS:
        raise _Broken(f"family '{task.family}': an observation has {long} characters, more than {MAX_CHARACTERS}")


def _check_determinism(env: Environment, tasks: Sequence[Task]) -> str:
    for task in tasks:
        texts = env.scripts(task)[0].texts
        first, again = _trace(env, task, texts), _trace(env, task, texts)
        if first != again:
            raise _Broken(f"family '{task.family}': the same texts gave two different episodes")
    return f"{len(tasks)} tasks played twice, alike"


def _trace(env: Environment, task: Task, texts: Sequence[str]) -> list[tuple[object, ...]]:
    env.reset(task)
    trace: list[tuple[object, ...]] = []
    for text in texts:
        before = env.state_hash()
        result = env.step(text)
        trace.append((before, result.observation.text, result.events, tuple(sorted(result.components.items()))))
        if result.terminated or result.truncated:
            break
    return trace


def _check_disjoint(train: Sequence[Task], evaluation: Sequence[Task]) -> str:
    shared = {task.fingerprint for task in train} & {task.fingerprint for task in evaluation}
    if shared:
        raise _Broken(f"{len(shared)} tasks stand in both splits; generate() must use `split` to keep them apart")
    return f"{len(train)} training and {len(evaluation)} evaluation tasks, none shared"


def _check_turn_budget(env: Environment, task: Task) -> str:
    results = play(env, task, ["nothing to do"] * (task.max_turns + 1))
    if len(results) != task.max_turns or not results[-1].truncated or results[-1].terminated:
        raise _Broken(f"idling for {task.max_turns} turns must truncate the episode, and not terminate it")
    try:
        env.step("one more")
    except UsageError:
        return f"cut after {task.max_turns} turns; a step after the end is refused"
    raise _Broken("a step after the end of the episode must raise UsageError")


def _check_hostile(env: Environment, task: Task) -> str:
    env.reset(task)
    for text in HOSTILE_TEXTS:
        result = env.step(text)
        if not result.observation.text:
            raise _Broken(f"{text[:40]!r} was answered by nothing")
        if result.terminated or result.truncated:
            env.reset(task)
    return f"{len(HOSTILE_TEXTS)} texts, none raised"


def _check_dominance(tasks: Sequence[Task], dominance: Callable[[Sequence[Task]], None] | None) -> str:
    if dominance is None:
        return "no reward spec given"
    try:
        dominance(tasks)
    except TaskError as error:
        raise _Broken(str(error)) from None
    return f"holds for {len(tasks)} tasks"


def _measure_speed(env: Environment, tasks: int) -> str:
    """Steps per second on this machine, generation, reset and parsing included."""
    started, steps = time.perf_counter(), 0
    for task in env.tasks("train", tasks, seed=1):
        steps += len(play(env, task, env.scripts(task)[0].texts))
    return f"{steps / (time.perf_counter() - started):,.0f} steps a second"
