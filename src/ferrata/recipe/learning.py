"""Sections of a recipe about what is learnt from it: SFT, RL, the pool, the ladder."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ferrata.recipe.base import Positive, Section, Share


class SftSection(Section):
    """Supervised fine-tuning on scripted demonstrations with deliberate imperfections."""

    updates: Annotated[int, Field(ge=0)] = 300
    """Optimizer steps; 0 skips the stage, evaluation included."""
    demonstrations: Positive = 6000
    """Scripted episodes to draw from."""
    tiers: tuple[Annotated[int, Field(ge=1, le=3)], ...] = ()
    """Tiers that are demonstrated; empty means all of `env.tiers`."""
    families: tuple[str, ...] = ()
    """Families that are demonstrated; empty means all of these tiers."""
    batch_size: Positive = 32
    """Demonstrations per step."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """'muon' steps the matrices by orthogonalised momentum, and everything else by AdamW."""
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-3
    """Peak learning rate, in AdamW's units for both optimizers."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the forward and the backward pass compute in; weights and optimizer are in single precision either way."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled decay of matrices, times the learning rate."""
    warmup: Share = 0.05
    """Share of the steps over which the learning rate rises; it then falls linearly to zero."""
    imperfection: Share = 0.5
    """Scales the rate of procedural errors in the demonstrations (0 = flawless)."""
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    """The gradient is scaled down to this norm."""


class ChannelSection(Section):
    """Two channels of reward: each gets its own advantage, scaled to size 1 over the batch, and they add up by weight.

    Outcome is the verdict and the penalty for an episode that a budget cut; process is everything else.
    """

    apart: bool = False
    """Keep the channels apart; without it, the rewards of a turn are added up and nothing else here is read."""
    process: Annotated[float, Field(ge=0.0)] = 0.3
    """Weight of rewards along the way."""
    outcome: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of the outcome."""
    process_lam: Share = 0.9
    """As `rl.lam`, for rewards along the way; `ppo` alone reads it."""
    outcome_lam: Share = 0.95
    """As `rl.lam`, for the outcome; `ppo` alone reads it."""


class ValueSection(Section):
    """The value head of PPO, on the policy's own body."""

    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-3
    """Of the head alone (AdamW)."""
    weight: Share = 0.0
    """How much of its gradient goes on into the policy that it reads; 0: that learns from advantages alone."""
    clip: Annotated[float, Field(gt=0.0)] = 0.5
    """How far a value may move in one update, in units of reward."""
    warmup: Annotated[int, Field(ge=0)] = 2
    """First updates in which the head alone learns: until then its values say nothing."""


class RlSection(Section):
    """Reinforcement learning on groups of episodes."""

    algorithm: Literal["grpo", "rloo", "reinforce++", "gigpo", "ppo"] = "grpo"
    """How rewards become advantages; see `algorithms/credit.py`."""
    view: Literal["episode", "turn"] = "episode"
    """'turn' takes every turn as an episode of its own, for comparison: what comes later does not count."""
    gamma: Share = 0.99
    """Discount per turn, for `reinforce++`, `ppo`, the turns of `gigpo`, and a process channel; `grpo` and `rloo` take
    the sum of an episode's rewards."""
    lam: Share = 0.95
    """Trace of generalised advantage estimation, per turn; `ppo` alone reads it."""
    step_weight: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of GiGPO's comparison of turns from the same state, beside that of episodes."""
    channels: ChannelSection = ChannelSection()
    """Process and outcome, kept apart or added up."""
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
    dtype: Literal["float32", "bfloat16"] = "float32"
    """As in `sft`."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Decoupled decay of matrices, times the learning rate."""
    epochs: Positive = 1
    """Passes over each collection."""
    minibatches: Positive = 2
    """Optimizer steps per pass."""
    microbatch_tokens: Positive = 2048
    """Tokens per forward pass; changes memory, never the gradient."""
    clip_low: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Lower clip of the probability ratio: 1 - clip_low."""
    clip_high: Annotated[float, Field(gt=0.0)] = 0.2
    """Upper clip of the probability ratio: 1 + clip_high."""
    kl: Annotated[float, Field(ge=0.0)] = 0.01
    """Weight of the KL divergence to the frozen reference, where `rl.kl_in` says."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where the divergence counts: as a term of the loss, or taken off the reward of each turn."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """How the divergence is estimated from sampled tokens, see `algorithms/divergence.py`. 'k1' is the usual one in the
    reward, and refused in the loss, where its expected gradient is zero."""
    entropy: Annotated[float, Field(ge=0.0)] = 0.003
    """Weight of the entropy bonus; with `entropy_target`, at the first update."""
    entropy_target: Annotated[float, Field(ge=0.0)] = 0.0
    """Entropy to hold (nats per token), by changing the weight of the bonus from update to update; 0 leaves it."""
    aggregation: Literal["token", "sequence", "constant"] = "token"
    """Which tokens weigh how much: all the same (DAPO); every episode the same (GRPO as published); all the same, over
    the length that the trained episodes could have had (Dr. GRPO)."""
    ratio: Literal["token", "sequence"] = "token"
    """Whose probability ratio is clipped: each token's, or the whole episode's (GSPO)."""
    importance_limit: Annotated[float, Field(ge=1.0)] = 2.0
    """Largest importance weight of tokens that an older policy sampled."""
    instructions: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of demonstrations among the examples of an update, against forgetting; they are those of `sft`, with their
    imperfections."""
    staleness: Annotated[int, Field(ge=0, le=1)] = 0
    """How many updates the weights that play may be older than those that learn: with 1 the next round is played
    while the learner works. What comes of older weights is trained with truncated importance weights."""
    redraws: Annotated[int, Field(ge=0, le=16)] = 0
    """How often groups without spread are replaced by fresh ones in one update (dynamic sampling)."""
    value: ValueSection = ValueSection()
    """The value head of PPO."""
    normalise: bool = True
    """Divide the group advantage by the group's standard deviation; false gives Dr. GRPO's advantage."""
    spread_floor: Annotated[float, Field(gt=0.0)] = 0.05
    """A group whose rewards have a smaller standard deviation gives no gradient."""
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    """The gradient is scaled down to this norm."""
    min_success: Share = 0.30
    """Entry gate: RL refuses to start below this success rate, sampled on unseen tasks of all of `env.tiers`, also of
    those that a ladder has not opened yet."""
    min_valid: Share = 0.5
    """Entry gate: smallest share of valid actions."""

    @property
    def by_group(self) -> bool:
        """True when the algorithm compares episodes within their group, so that a group without spread says nothing."""
        return self.algorithm not in ("reinforce++", "ppo")

    @model_validator(mode="after")
    def _divergence_acts(self) -> Self:
        """A term of the loss needs a gradient."""
        if self.kl > 0.0 and self.kl_in == "loss" and self.kl_estimator == "k1":
            raise ValueError(
                "rl.kl_estimator = 'k1' in the loss has an expected gradient of zero: it would hold nothing. Use k2 or "
                "k3, or rl.kl_in=reward."
            )
        if self.kl > 0.0 and self.kl_in == "reward" and self.channels.apart:
            raise ValueError(
                "rl.kl_in = 'reward' with rl.channels.apart has no strength: the process channel, from which it is "
                "taken, is scaled to size 1 afterwards, whatever rl.kl says. Use rl.kl_in=loss, or leave the channels "
                "together."
            )
        return self


class PoolSection(Section):
    """Older trajectories that are trained again for some rounds."""

    enabled: bool = False
    """Without it, every round is trained once and forgotten."""
    capacity: Positive = 1024
    """Most trajectories; the oldest go first."""
    fresh_rounds: Annotated[int, Field(ge=2, le=8)] = 3
    """Rounds in which a trajectory may be trained, its own included."""
    per_hash: Positive = 3
    """Most trajectories that did the same thing on the same task."""
    sensible_turns: Share = 0.75
    """A trajectory that was cut after its key subgoals stays a round longer if it took at most this share of its task's
    turn cap."""
    share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Largest share of older trajectories among those of one update."""


class LadderSection(Section):
    """From easy tasks to hard ones while RL goes on. Judged after every small evaluation."""

    enabled: bool = False
    """Without it, tasks are drawn from all tiers from the start."""
    gate: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.40
    """Success on the newest tier over which the next one is added."""
    evaluations: Positive = 2
    """How many consecutive evaluations must say so, up as well as down."""
    newest: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Share of the newest tier among training tasks."""
    collapse: Share = 0.5
    """The newest tier is taken back when success on a tier below falls under this share of what it was."""
    turn_caps: Annotated[tuple[Positive, ...], Field(min_length=1)] = (30, 60, 100)
    """Turns per episode, one after the other, none over `rollout.max_turns`; each task's own cap applies as well."""
    cut_share: Share = 0.15
    """The next turn cap holds when a larger share of training episodes is cut by this one, before their own."""
    tools: tuple[str, ...] = ()
    """Tool set of each rung, as `env.tools`; the last holds for all further ones. Empty gives each task its own."""
    schedule: tuple[Positive, ...] = ()
    """RL updates from which on one more tier is drawn, instead of the gate."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        """Caps grow, and updates come one after the other."""
        if list(self.turn_caps) != sorted(set(self.turn_caps)):
            raise ValueError(f"ladder.turn_caps = {list(self.turn_caps)} must grow from each to the next.")
        if list(self.schedule) != sorted(set(self.schedule)):
            raise ValueError(f"ladder.schedule = {list(self.schedule)} must grow from each to the next.")
        return self
