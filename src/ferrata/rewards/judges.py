"""Who says whether a task is done.

Judging by rule is what environments do: they end an episode with their own verdict. A `Judge` is asked afterwards, and
its verdict takes the place of theirs. A judge that fails raises JudgeFault: the episode is then unscored, which is not
zero.

    Judge                 the protocol; write your own with a `version`, `at_once` and `judge(task, transcript)`
    Verdict, Line         what a judge says, and what it reads
    make_judge(section)   the judge of a recipe; None for rules
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec

from ferrata.errors import UsageError
from ferrata.recipe import JudgeSection
from ferrata.records import Task, Trajectory

VERDICTS = "verdicts"
"""Folder in a run that keeps what a judging model said."""


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a judge says of one episode."""

    success: bool
    """Whether the task is done: this alone decides the outcome reward."""
    score: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    """How well, from 0 to 1; kept for people, never rewarded."""
    reason: str
    """One sentence for people."""


class Line(msgspec.Struct, frozen=True):
    """One entry of a transcript."""

    speaker: Literal["environment", "agent"]
    text: str


class Judge(Protocol):
    """Judges finished episodes; may be called from several threads at once."""

    @property
    def version(self) -> str:
        """Content hash of everything that decides its verdicts."""

    @property
    def at_once(self) -> int:
        """Most episodes it judges at the same time."""

    def judge(self, task: Task, transcript: Sequence[Line]) -> Verdict:
        """The verdict on one episode. Raises JudgeFault when there is none."""

    def close(self) -> None:
        """Let go of connections; whoever still waits for a verdict gets a JudgeFault."""


def make_judge(section: JudgeSection, cache: Path | None = None) -> Judge | None:
    """The judge that a recipe asks for; None where the environment's rules judge.

    `cache` is a folder that keeps verdicts. Raises UsageError when the variable that should hold the key is not set.
    """
    if section.kind == "rules":
        return None
    from ferrata.rewards.model_judge import ModelJudge  # an HTTP client takes long to load, and few runs need one

    if section.api_key_env and not os.environ.get(section.api_key_env):
        raise UsageError(f"judge.api_key_env names {section.api_key_env}, which is not set; it must hold the key.")
    return ModelJudge(
        section.endpoint,
        section.model,
        section.rubric,
        section.api_key_env,
        timeout=section.timeout,
        retries=section.retries,
        cache=cache,
        at_once=section.at_once,
    )


def transcript_of(trajectory: Trajectory) -> list[Line]:
    """What the agent read and wrote, in order, without the instruction that it began with."""
    lines: list[Line] = []
    for number, turn in enumerate(trajectory.turns):
        if number:
            lines.append(Line("environment", turn.observation))
        lines.append(Line("agent", turn.text))
    return [*lines, Line("environment", trajectory.final_observation)]


def joint_version(rewards: str, judge: Judge | None) -> str:
    """Version of a reward: of its weights, and of the judge where one was asked."""
    return f"{rewards}+{judge.version}" if judge else rewards
