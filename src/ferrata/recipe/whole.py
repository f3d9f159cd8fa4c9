"""The recipe itself, and its sections about evaluation and about what a run keeps."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ferrata.recipe.base import Label, Positive, Section
from ferrata.recipe.learning import LadderSection, PoolSection, RlSection, SftSection
from ferrata.recipe.playing import EnvSection, JudgeSection, PolicySection, RewardSection, RolloutSection


class EvaluationSection(Section):
    """Greedy evaluation on unseen tasks."""

    tasks: Positive = 200
    """Tasks of the full evaluation, spread evenly over families."""
    tasks_small: Positive = 60
    """Tasks of the evaluation during training."""
    every: Positive = 10
    """RL updates between small evaluations."""
    constrained: bool = False
    """Greedy evaluations admit only well-formed actions (docs/sampling.md); needs llguidance. What is collected for
    training, and the sampled evaluation that its gate goes by, never are constrained."""
    seed: int = 7
    """Seed of the evaluation tasks; independent of the run's seed."""

    @model_validator(mode="after")
    def _small_is_smaller(self) -> Self:
        """The tasks of the small evaluation are the first of the full one."""
        if self.tasks_small > self.tasks:
            raise ValueError(
                f"evaluation.tasks_small = {self.tasks_small} is more than evaluation.tasks = {self.tasks}, of which "
                "it takes the first: lower it, or raise the other."
            )
        return self


class RunSection(Section):
    """What a run keeps."""

    checkpoint_every: Positive = 20
    """RL updates (and SFT steps x 10) between checkpoints."""
    keep_checkpoints: Positive = 2
    """Older checkpoints are deleted."""
    store_groups: Annotated[int, Field(ge=0)] = 2
    """Groups of training trajectories stored per update."""
    audit: bool = True
    """Log every action of training and evaluation in audit/, hash-chained (`ferrata verify-audit`)."""


class Recipe(Section):
    """A whole run, resolved."""

    name: Label
    """Names the run folder."""
    description: str = ""
    """One line for a person."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Root of every random stream of the run."""
    stages: Annotated[tuple[Literal["sft", "rl"], ...], Field(min_length=1)] = ("sft", "rl")
    """Stages in order, each behind its gate."""
    env: EnvSection = EnvSection()
    policy: PolicySection = PolicySection()
    rewards: RewardSection = RewardSection()
    judge: JudgeSection = JudgeSection()
    rollout: RolloutSection = RolloutSection()
    sft: SftSection = SftSection()
    rl: RlSection = RlSection()
    pool: PoolSection = PoolSection()
    ladder: LadderSection = LadderSection()
    evaluation: EvaluationSection = EvaluationSection()
    run: RunSection = RunSection()

    @property
    def updates_per_rung(self) -> int:
        """Fewest RL updates from one tier of the ladder to the next."""
        return self.evaluation.every * self.ladder.evaluations

    @model_validator(mode="after")
    def _caps_can_hold(self) -> Self:
        """A turn cap that `rollout.max_turns` comes before would never be met."""
        highest, most = self.ladder.turn_caps[-1], self.rollout.max_turns
        if self.ladder.enabled and highest > most:
            raise ValueError(
                f"ladder.turn_caps goes up to {highest}, but rollout.max_turns = {most} ends every episode before: set "
                f"rollout.max_turns={highest}, or lower the caps."
            )
        return self

    @model_validator(mode="after")
    def _rungs_fit(self) -> Self:
        """A schedule opens every tier but the first, and there are no tools for rungs that are not there."""
        section, tiers = self.ladder, len(self.env.tiers)
        if section.enabled and section.schedule and len(section.schedule) != tiers - 1:
            raise ValueError(
                f"ladder.schedule = {list(section.schedule)} opens {len(section.schedule)} more tiers, but env.tiers = "
                f"{list(self.env.tiers)} has {tiers - 1} beyond the first: name one update for each."
            )
        if section.enabled and len(section.tools) > tiers:
            raise ValueError(
                f"ladder.tools = {list(section.tools)} names {len(section.tools)} rungs, but env.tiers = "
                f"{list(self.env.tiers)} makes {tiers}."
            )
        return self

    @field_validator("stages")
    @classmethod
    def _each_stage_once_and_in_order(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        """A run knows where it stands by the name of the stage, and its report what RL started from."""
        if len(set(stages)) < len(stages):
            raise ValueError("each stage can be there once; start a second run with policy.model=RUN for more")
        if stages == ("rl", "sft"):
            raise ValueError("sft comes before rl; to imitate after RL, start a second run with policy.model=RUN")
        return stages
