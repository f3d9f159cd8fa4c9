"""The typed recipe of a run: what `ferrata train RECIPE` reads, and what a run folder keeps.

    Recipe
      env         which environment and tiers
      policy      which model to start from
      rewards     weights of the reward components
      rollout     budgets of an episode, and how many run at once
      sft         supervised stage on scripted demonstrations
      rl          reinforcement-learning stage
      evaluation  how often, on how many unseen tasks
      run         checkpoints, what is stored

`recipe_loading.load_recipe` reads TOML and dotted overrides (`rl.updates=40`).
This module imports no torch, so that the command line answers at once.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Positive = Annotated[int, Field(gt=0, le=10**12)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Common behaviour of all sections: unknown keys are refused, values cannot be changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class EnvSection(Section):
    """Which world the agent practises in."""

    name: str = "office"
    """A registered environment, or `package.module:Class`."""
    tiers: Annotated[tuple[Annotated[int, Field(ge=1, le=3)], ...], Field(min_length=1)] = (1, 2)
    """Task tiers; tasks are drawn evenly from all families of these tiers."""


class PolicySection(Section):
    """The model to start from."""

    model: str = "base"
    """'base' (ships with the package), 'smollm2-135m', or a local folder of a transformers model."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads for tensor work; 0 means all cores."""


class RewardSection(Section):
    """Reward per event, by component (SPEC REW-1)."""

    success: float = 5.0
    """Outcome when the judge says success."""
    failure: float = -1.0
    """Outcome when the judge says failure."""
    process: Annotated[float, Field(ge=0.0)] = 0.08
    """Each subgoal reached for the first time."""
    efficiency: Annotated[float, Field(le=0.0)] = -0.01
    """Each step."""
    near_repeat: Annotated[float, Field(le=0.0)] = -0.02
    """The same tool for the third step running."""
    repeat: Annotated[float, Field(le=0.0)] = -0.1
    """The same action and arguments a second time in the episode."""
    invalid: Annotated[float, Field(le=0.0)] = -0.2
    """An action that is malformed or refused."""
    unfinished: Annotated[float, Field(le=0.0)] = -1.5
    """A budget cut the episode."""
    safety: Annotated[float, Field(le=0.0)] = -10.0
    """A forbidden operation."""
    tool_cost: Annotated[float, Field(le=0.0)] = -1.0
    """Each unit of cost that a tool reports."""
    process_limit: Share = 0.2
    """Largest allowed share of all process reward of a task in `success` (SPEC REW-2)."""


class RolloutSection(Section):
    """Budgets of one episode, and how many run at once. Turns and tokens are different budgets."""

    episodes_at_once: Positive = 128
    """Episodes in the running batch."""
    max_turns: Positive = 30
    """Turns per episode; each task's own cap applies as well."""
    max_tokens_per_turn: Positive = 64
    """Sampled tokens in one turn."""
    max_tokens: Positive = 512
    """Tokens of a whole trajectory, read and written."""
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    """Sampling temperature in training; evaluation is greedy."""
    max_fault_share: Share = 0.2
    """Largest share of episodes of one collection that may fail through no fault of the agent."""


class SftSection(Section):
    """Supervised fine-tuning on scripted demonstrations with deliberate imperfections."""

    updates: Annotated[int, Field(ge=0)] = 300
    """Optimizer steps; 0 skips the stage, evaluation included."""
    demonstrations: Positive = 6000
    """Scripted episodes to draw from."""
    batch_size: Positive = 32
    """Demonstrations per step."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """'muon' steps the matrices by orthogonalised momentum, and everything else by AdamW."""
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-3
    """Peak learning rate, in AdamW's units for both optimizers."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled decay of matrices, times the learning rate."""
    warmup: Share = 0.05
    """Share of the steps over which the learning rate rises; it then falls linearly to zero."""
    imperfection: Share = 0.5
    """Scales the rate of procedural errors in the demonstrations (0 = flawless)."""
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    """The gradient is scaled down to this norm."""


class RlSection(Section):
    """Reinforcement learning on groups of episodes."""

    algorithm: Literal["grpo"] = "grpo"
    """How rewards become advantages."""
    updates: Annotated[int, Field(ge=0)] = 60
    """Rounds of collect and learn; 0 skips the stage, evaluation included."""
    tasks_per_update: Positive = 16
    """Fresh training tasks of each round."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Episodes of the same task from the same initial state."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """As in `sft`."""
    learning_rate: Annotated[float, Field(gt=0.0)] = 3e-4
    """Learning rate at the first update, in AdamW's units for both optimizers."""
    learning_rate_decay: Share = 0.0
    """Share of it that is gone by the end; it falls linearly."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled decay of matrices, times the learning rate."""
    epochs: Positive = 1
    """Passes over each collection."""
    minibatches: Positive = 2
    """Optimizer steps per pass."""
    microbatch_tokens: Positive = 2048
    """Padded tokens per forward pass; changes memory, never the gradient."""
    clip_low: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Lower clip of the probability ratio: 1 - clip_low."""
    clip_high: Annotated[float, Field(gt=0.0)] = 0.2
    """Upper clip of the probability ratio: 1 + clip_high."""
    kl: Annotated[float, Field(ge=0.0)] = 0.01
    """Weight of the KL divergence to the frozen reference, in the loss."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    """How the divergence is estimated from sampled tokens; see `algorithms/divergence.py`."""
    entropy: Annotated[float, Field(ge=0.0)] = 0.003
    """Weight of the entropy bonus."""
    normalise: bool = True
    """Divide the group advantage by the group's standard deviation; false gives Dr. GRPO's advantage."""
    spread_floor: Annotated[float, Field(gt=0.0)] = 0.05
    """A group whose rewards have a smaller standard deviation gives no gradient."""
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    """The gradient is scaled down to this norm."""
    min_success: Share = 0.30
    """Entry gate: RL refuses to start below this success rate (SPEC ALG-8)."""
    min_valid: Share = 0.5
    """Entry gate: smallest share of valid actions."""


class EvaluationSection(Section):
    """Greedy evaluation on unseen tasks."""

    tasks: Positive = 200
    """Tasks of the full evaluation, spread evenly over families."""
    tasks_small: Positive = 60
    """Tasks of the evaluation during training."""
    every: Positive = 10
    """RL updates between small evaluations."""
    seed: int = 7
    """Seed of the evaluation tasks; independent of the run's seed."""

    @model_validator(mode="after")
    def _small_is_smaller(self) -> Self:
        """The tasks of the small evaluation are the first of the full one."""
        if self.tasks_small > self.tasks:
            raise ValueError(f"tasks_small = {self.tasks_small} is more than tasks = {self.tasks}")
        return self


class RunSection(Section):
    """What a run keeps."""

    checkpoint_every: Positive = 20
    """RL updates (and SFT steps x 10) between checkpoints."""
    keep_checkpoints: Positive = 2
    """Older checkpoints are deleted."""
    store_groups: Annotated[int, Field(ge=0)] = 2
    """Groups of training trajectories stored per update."""


class Recipe(Section):
    """A whole run, resolved."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
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
    rollout: RolloutSection = RolloutSection()
    sft: SftSection = SftSection()
    rl: RlSection = RlSection()
    evaluation: EvaluationSection = EvaluationSection()
    run: RunSection = RunSection()

    @field_validator("stages")
    @classmethod
    def _each_stage_once(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        """A run knows where it stands by the name of the stage."""
        if len(set(stages)) < len(stages):
            raise ValueError("each stage can be there once; start a second run with policy.model=RUN for more")
        return stages
