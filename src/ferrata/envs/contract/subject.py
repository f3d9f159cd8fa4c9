"""What is being checked: one environment, its drawn tasks, and every script of every task played once.

The checks share a `Subject`, so that tasks are drawn and scripts are played once, however many checks look at them.
While scripts are played, calls of tools and of `reach` are watched: a tool that returns something that is no text,
and a subgoal that no task knows, would otherwise pass in silence or fail far from their cause.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ferrata.envs.base import Environment
from ferrata.envs.contract.blame import ADVICE, blame
from ferrata.envs.contract.definition import refuse_unmade, shared_state
from ferrata.envs.contract.report import Broken
from ferrata.envs.deadlines import deadline
from ferrata.envs.scripts import Script
from ferrata.envs.tools import tools_of
from ferrata.records import EventKind, StepResult, Task

_KEPT = ("tools", "tiers", "score", "faults", "audit")
"""Attributes of the base class that no episode changes."""
Dominance = Callable[[Sequence[Task]], None]
"""Raises TaskError when the process reward of a task outweighs its outcome."""
SECONDS_EACH = 10.0
"""Longest time of one action, and of whatever else an author's method does, unless more is allowed (seconds)."""


@dataclass
class Episode:
    """One script, played."""

    task: Task
    script: Script
    results: list[StepResult] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    """State hash before each step."""
    asked: list[str] = field(default_factory=list)
    """Every name that was passed to `reach`, known to the task or not."""

    @property
    def reached(self) -> list[str]:
        """Subgoals in the order in which they were reached."""
        events = [event for result in self.results for event in result.events]
        return [event.name for event in events if event.kind == EventKind.SUBGOAL]


class Subject:
    """An environment under check. `env` generates tasks; `fresh` makes instances to play in."""

    def __init__(
        self,
        make: Callable[[], Environment],
        tasks_each: int = 30,
        fuzzed: int = 2000,
        dominance: Dominance | None = None,
        seconds_each: float = SECONDS_EACH,
    ) -> None:
        self.make = make
        self.env = make()
        refuse_unmade(self.env)
        self.kind = type(self.env)
        self.shared = copy.deepcopy(shared_state(self.kind))
        """What stood in the class before anything was played."""
        families = sum(len(self.env.families[tier]) for tier in self.env.tiers)
        self.tasks_each = max(tasks_each, families)
        self.fuzzed = fuzzed
        self.dominance = dominance
        self.seconds_each = seconds_each

    @contextmanager
    def blaming(self, doing: str, advice: str = ADVICE, actions: int = 1) -> Iterator[None]:
        """Blame the environment for what is raised inside, and for taking longer than this many actions may."""
        with blame(self.kind, doing, advice), deadline(self.seconds_each * actions):
            yield

    @contextmanager
    def fresh(self) -> Iterator[Environment]:
        """A new instance, closed afterwards."""
        env = self.make()
        try:
            yield env
        finally:
            env.close()

    @cached_property
    def train(self) -> list[Task]:
        """Training tasks, all families alike."""
        return self._draw("train")

    @cached_property
    def evaluation(self) -> list[Task]:
        """Evaluation tasks, all families alike."""
        return self._draw("eval")

    @cached_property
    def written(self) -> list[Task]:
        """The hand-written tasks of the tiers under check."""
        with self.blaming(f"written_tasks() of {self.kind.__name__}", "Mend that line."):
            return [task for task in self.env.written_tasks() if task.tier in self.env.tiers]

    @property
    def unseen(self) -> list[Task]:
        """Tasks that training never sees."""
        return [*self.evaluation, *self.written]

    @property
    def tasks(self) -> list[Task]:
        """All of them."""
        return [*self.train, *self.unseen]

    @cached_property
    def episodes(self) -> list[Episode]:
        """Every script of every task, played once. Raises Broken where one cannot be played."""
        watch, episodes = _Watch(), []
        with self.fresh() as env:
            env.__class__ = _watched(self.kind, watch)
            kept = {name: getattr(env, name) for name in _KEPT}
            for task in self.tasks:
                for script in self.scripts(task):
                    episodes.append(self._play(env, task, script, watch))
                    self._check_untouched(env, kept, episodes[-1])
        return episodes

    @cached_property
    def one_of_each(self) -> list[Task]:
        """One training task of each family."""
        return list({(task.tier, task.family): task for task in reversed(self.train)}.values())

    def scripts(self, task: Task) -> list[Script]:
        """The scripts of a task, checked to be scripts."""
        with self.blaming(f"scripts() of {self.kind.__name__} for a task of family '{task.family}'"):
            scripts = list(self.env.scripts(task))
        if not all(isinstance(script, Script) and not isinstance(script.texts, str) for script in scripts):
            raise Broken(
                f"scripts() of {self.kind.__name__} returns something that is no Script with a tuple of texts.",
                'Return Script("what it does", (call(...), call(...)), success).',
            )
        return scripts

    def acting(self, task: Task, text: str) -> str:
        """The beginning of a sentence about one action."""
        return f"Family '{task.family}', action {short(text)}"

    def _draw(self, split: str) -> list[Task]:
        return self.env.tasks(split, self.tasks_each)

    def _play(self, env: Environment, task: Task, script: Script, watch: _Watch) -> Episode:
        watch.family, watch.asked = task.family, []
        episode = Episode(task, script, asked=watch.asked)
        with self.blaming(f"begin() of {self.kind.__name__} for a task of family '{task.family}'"):
            env.reset(task)
        for text in script.texts:
            with self.blaming(self.acting(task, text)):
                episode.hashes.append(env.state_hash())
                episode.results.append(env.step(text))
            if episode.results[-1].terminated or episode.results[-1].truncated:
                break
        return episode

    def _check_untouched(self, env: Environment, kept: dict[str, Any], episode: Episode) -> None:
        """The author's code did not use a name of the base class for something of its own."""
        expected = {**kept, "task": episode.task, "turn": len(episode.results), "seed": 0}
        for name, value in expected.items():
            if getattr(env, name) != value:
                raise Broken(
                    f"Family '{episode.task.family}': {self.kind.__name__} sets self.{name}, which belongs to the base "
                    "class.",
                    f"Give it another name, e.g. self.my_{name}.",
                )


def play(env: Environment, task: Task, texts: Sequence[str], seed: int = 0) -> list[StepResult]:
    """Play fixed texts until they or the episode end."""
    env.reset(task, seed)
    results = []
    for text in texts:
        results.append(env.step(text))
        if results[-1].terminated or results[-1].truncated:
            break
    return results


def succeeded(results: Sequence[StepResult]) -> bool:
    """True when the judge said success."""
    return any(event.kind == EventKind.SUCCESS for result in results for event in result.events)


def short(text: str, limit: int = 120) -> str:
    """A text as it can stand in a message: quoted, escaped, cut in the middle."""
    quoted = repr(text)
    return quoted if len(quoted) <= limit else f"{quoted[: limit - 30]} ... {quoted[-20:]}"


@dataclass
class _Watch:
    """What a watched instance has seen in the current episode."""

    family: str = ""
    asked: list[str] = field(default_factory=list)


def _watched(kind: type[Environment], watch: _Watch) -> type[Environment]:
    """A subclass that records what is passed to `reach` and refuses what a tool returns when it is no text."""

    def reach(self: Environment, subgoal: str) -> None:
        watch.asked.append(subgoal)
        kind.reach(self, subgoal)

    tools = {tool.name: _text_only(kind, tool.name, watch) for tool in tools_of(kind)}
    return type(kind.__name__, (kind,), {**tools, "reach": reach, "__module__": kind.__module__})


def _text_only(kind: type[Environment], name: str, watch: _Watch) -> Callable[..., Any]:
    method = getattr(kind, name)

    def watched(self: Environment, *values: Any, **arguments: Any) -> Any:
        answer = method(self, *values, **arguments)
        if not isinstance(answer, str):
            raise Broken(
                f"Family '{watch.family}': tool '{name}' of {kind.__name__} returned {type(answer).__name__}, "
                "not text.",
                "Return what the model is to read as a str.",
            )
        return answer

    return watched
