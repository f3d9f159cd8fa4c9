"""The typed recipe of a run: what `ferrata train RECIPE` reads, and what a run folder keeps.

    Recipe
      env         which environment and tiers
      policy      which model to start from
      rewards     weights of the reward components, and how they change by phase
      judge       who says whether a task is done: the environment's rules, or a model
      rollout     budgets of an episode, and how many run at once
      sft         supervised stage on scripted demonstrations
      rl          reinforcement-learning stage
      pool        older trajectories that RL trains again
      ladder      from easy tiers to hard ones while RL goes on
      evaluation  how often, on how many unseen tasks
      run         checkpoints, what is stored

`recipe_loading.load_recipe` reads TOML and dotted overrides (`rl.updates=40`).
This module imports no torch, so that the command line answers at once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

Positive = Annotated[int, Field(gt=0, le=10**12)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Bonus = Annotated[float, Field(ge=0.0)]
Cost = Annotated[float, Field(le=0.0)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]


class Section(BaseModel):
    """Common behaviour of all sections: unknown keys are refused, values cannot be changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def _for_every_tool(rates: Any) -> Any:
    """One number stands for every tool."""
    return {"*": rates} if isinstance(rates, int | float) else rates


Rates = Annotated[dict[str, Share], BeforeValidator(_for_every_tool)]


class FaultSection(Section):
    """Injected faults of tools: the probability for one call, as one number or as {TOOL = number}."""

    timeout: Rates = {}
    """A call is lost; the next attempt may work."""
    missing: Rates = {}
    """What a reading tool looks for is not there for one to three turns."""
    repeated: Rates = {}
    """A call that was made before is answered by an error."""


class EnvSection(Section):
    """Which world the agent practises in."""

    name: str = "office"
    """A registered environment, or `package.module:Class`."""
    tiers: Annotated[tuple[Annotated[int, Field(ge=1, le=3)], ...], Field(min_length=1)] = (1, 2)
    """Task tiers; tasks are drawn evenly from the families of these tiers."""
    families: tuple[str, ...] = ()
    """Families of tasks to draw from; empty means all of the tiers. Names of other tiers are no mistake."""
    tools: str = ""
    """Tool set, in the office 'basic', 'standard' or 'full'; empty gives each task its own. Families that need more
    tools are left out."""
    faults: FaultSection = FaultSection()
    """Faults in training; evaluation is without."""


class PolicySection(Section):
    """The model to start from."""

    model: str = "base"
    """'base' (ships with the package), 'smollm2-135m', a run folder (the policy that it ended with), or a local folder
    of a transformers model."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads for tensor work; 0 means all cores."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What sampling computes in; 'bfloat16' samples with a rounded copy. Learning has `sft.dtype` and `rl.dtype`."""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    """Rank of the adapters that are trained beside frozen weights (LoRA); 0 trains the weights themselves."""
    lora_alpha: Annotated[float, Field(gt=0.0)] = 16.0
    """What adapters add is scaled by lora_alpha / lora_rank."""
    lora_targets: tuple[str, ...] = ()
    """Last names of the linear layers that get adapters, such as 'q_proj'; empty means all but the output layer."""


class RewardPhase(Section):
    """Weights that hold from one RL update on. What a phase leaves out is as in `rewards`."""

    name: Label
    """What the phase is called, e.g. 'efficiency'."""
    from_update: Positive
    """The first RL update of the phase; it lasts until the next one."""
    success: float | None = None
    """As `rewards.success`."""
    failure: Cost | None = None
    """As `rewards.failure`."""
    process: Bonus | None = None
    """As `rewards.process`."""
    efficiency: Cost | None = None
    """As `rewards.efficiency`."""
    near_repeat: Cost | None = None
    """As `rewards.near_repeat`."""
    repeat: Cost | None = None
    """As `rewards.repeat`."""
    format: Cost | None = None
    """As `rewards.format`."""
    invalid: Cost | None = None
    """As `rewards.invalid`."""
    unfinished: Cost | None = None
    """As `rewards.unfinished`."""
    safety: Cost | None = None
    """As `rewards.safety`."""
    tool_cost: Cost | None = None
    """As `rewards.tool_cost`."""


class RewardSection(Section):
    """Reward per event, by component."""

    success: float = 5.0
    """Outcome when the judge says success."""
    failure: Cost = -1.0
    """Outcome when the judge says failure."""
    process: Bonus = 0.08
    """Each subgoal reached for the first time."""
    efficiency: Cost = -0.01
    """Each step."""
    near_repeat: Cost = -0.02
    """The same tool for the third step running."""
    repeat: Cost = -0.1
    """The same action and arguments a second time in the episode."""
    format: Cost = -0.2
    """A text that holds no well-formed action."""
    invalid: Cost = -0.2
    """A well-formed action that is refused: an unknown tool, wrong arguments, no permission."""
    unfinished: Cost = -1.5
    """A budget cut the episode."""
    safety: Cost = -10.0
    """A forbidden operation."""
    tool_cost: Cost = -1.0
    """Each unit of cost that a tool reports."""
    process_limit: Share = 0.2
    """Largest allowed share of all process reward of a task in `success`."""
    phases: tuple[RewardPhase, ...] = ()
    """Weights that change as training goes on, one `[[rewards.phases]]` table each, in order."""

    def during(self, phase: RewardPhase) -> RewardSection:
        """The weights of a phase."""
        changed = phase.model_dump(exclude={"name", "from_update"}, exclude_none=True)
        return self.model_copy(update={**changed, "phases": ()})

    @model_validator(mode="after")
    def _check_phases(self) -> Self:
        """Every phase comes after the one before it, under a name of its own, and its weights make sense."""
        for earlier, later in pairwise(self.phases):
            if later.from_update <= earlier.from_update:
                raise ValueError(
                    f"Reward phase '{later.name}' begins at update {later.from_update}, not after phase "
                    f"'{earlier.name}' at {earlier.from_update}: list the phases in the order in which they begin."
                )
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            raise ValueError(f"Two reward phases have the same name: {', '.join(names)}.")
        _check_weights(self, "")
        for phase in self.phases:
            _check_weights(self.during(phase), f" in phase '{phase.name}'")
        return self


def _check_weights(weights: RewardSection, where: str) -> None:
    """Refuse weights under which doing worse pays better. Raises ValueError with both numbers."""
    worse = {
        "unfinished": "never submitting would pay more than an honest failure",
        "safety": "a forbidden operation would pay more than an honest failure",
    }
    if weights.success <= 0:
        raise ValueError(f"rewards.success = {weights.success}{where} must be greater than 0.")
    for name, why in worse.items():
        pay = getattr(weights, name)
        if weights.failure < pay:
            raise ValueError(
                f"rewards.failure = {weights.failure}{where} must be at least rewards.{name} = {pay}: {why}."
            )


class JudgeSection(Section):
    """Who says whether a task is done."""

    kind: Literal["rules", "model"] = "rules"
    """'rules' is the environment's own judge; 'model' asks a language model, whose verdict takes its place."""
    endpoint: str = ""
    """Base address of an OpenAI-compatible server, e.g. 'http://127.0.0.1:8000/v1'."""
    model: str = ""
    """Name of the model at that server."""
    rubric: str = ""
    """What counts as success, in words, beyond the task itself."""
    api_key_env: str = ""
    """Environment variable that holds the server's key; empty sends none."""
    timeout: Annotated[float, Field(gt=0.0)] = 60.0
    """Seconds for one answer."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """Further attempts after one that failed; then the episode is unscored."""
    at_once: Positive = 8
    """Most requests at the same time."""

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        """A model judge needs an address and a name."""
        if self.kind == "model" and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("judge.kind = 'model' needs judge.endpoint, for example 'http://127.0.0.1:8000/v1'.")
        if self.kind == "model" and not self.model:
            raise ValueError("judge.kind = 'model' needs judge.model, the model's name at that server.")
        return self


class RolloutSection(Section):
    """Budgets of one episode, and how many run at once. Turns and tokens are different budgets."""

    sampler: Literal["local", "vllm"] = "local"
    """What samples: Ferrata's own sampler, or vLLM in this process where it is installed (docs/vllm.md)."""
    episodes_at_once: Positive = 128
    """Episodes in the running batch."""
    max_turns: Positive = 30
    """Turns per episode; each task's own cap applies as well."""
    max_tokens_per_turn: Positive = 64
    """Sampled tokens in one turn."""
    max_thinking_tokens: Annotated[int, Field(ge=0)] = 0
    """Sampled tokens of a turn before its action has to begin; then the agent is handed over to its action, for which
    the rest of `max_tokens_per_turn` is left. 0 means no budget of its own."""
    max_tokens: Positive = 512
    """Tokens of a whole trajectory, read and written."""
    max_observation_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens of one observation, the note included that says how many it had; 0 means no limit beyond `max_tokens`. An
    observation that is too long is at least this note."""
    stop: Literal["turn", "json"] = "turn"
    """What ends a turn before its budget: 'turn', the end-of-turn token; 'json', that token or the end of the JSON
    object that names an action, whichever comes first."""
    temperature: Annotated[float, Field(ge=0.01, le=100.0)] = 1.0
    """Sampling temperature in training; evaluation is greedy."""
    max_fault_share: Share = 0.2
    """Largest share of episodes of one collection that may fail through no fault of the agent."""
    max_misfit_share: Share = 0.5
    """Largest share of scripted demonstrations that may not fit into these budgets; above it a run is refused."""
    workers: Annotated[int, Field(ge=0, le=256)] = 0
    """Processes that run the environments; 0 runs them in the training process, which is best for those that answer
    within a few milliseconds."""
    step_seconds: Annotated[float, Field(gt=0.0)] = 60.0
    """Longest time for one step, or for the beginning of an episode (seconds). A worker cuts what takes longer, and
    the episode counts as a timeout. Without workers a step that hangs cannot be cut, and a slow one is only counted."""

    @model_validator(mode="after")
    def _action_fits(self) -> Self:
        """What thinking may use must leave room for the action."""
        if self.max_thinking_tokens >= self.max_tokens_per_turn:
            raise ValueError(
                f"rollout.max_thinking_tokens = {self.max_thinking_tokens} leaves no room for an action in "
                f"rollout.max_tokens_per_turn = {self.max_tokens_per_turn}."
            )
        return self


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
    weight: Annotated[float, Field(ge=0.0)] = 0.5
    """Weight of its loss beside the policy's."""
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
    staleness: Literal[0, 1] = 0
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

    @model_validator(mode="after")
    def _divergence_acts(self) -> Self:
        """A term of the loss needs a gradient."""
        if self.kl > 0.0 and self.kl_in == "loss" and self.kl_estimator == "k1":
            raise ValueError(
                "rl.kl_estimator = 'k1' in the loss has an expected gradient of zero: it would hold nothing. Use k2 or "
                "k3, or rl.kl_in=reward."
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
    gate: Share = 0.40
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
            raise ValueError(f"tasks_small = {self.tasks_small} is more than tasks = {self.tasks}.")
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

    @field_validator("stages")
    @classmethod
    def _each_stage_once(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        """A run knows where it stands by the name of the stage."""
        if len(set(stages)) < len(stages):
            raise ValueError("each stage can be there once; start a second run with policy.model=RUN for more")
        return stages
