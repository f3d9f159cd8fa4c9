"""Sections of a recipe about what is played: environment, policy, rewards, judge, budgets of an episode."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ferrata.recipe.base import Bonus, Cost, Label, Positive, Section, Share

POLICY_NAMES = ("base", "smollm2-135m")
"""Policies that are known by name; any other is a folder."""


def _for_every_tool(rates: Any) -> Any:
    """One number stands for every tool."""
    return {"*": rates} if isinstance(rates, int | float) else rates


Rates = Annotated[dict[str, Share], BeforeValidator(_for_every_tool)]


class FaultSection(Section):
    """Injected faults of tools: the probability for one call, as one number or as {TOOL = number}."""

    timeout: Rates = Field(default={})
    """A call is lost; the next attempt may work."""
    missing: Rates = Field(default={})
    """What a reading tool looks for is not there for one to three turns."""
    repeated: Rates = Field(default={})
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

    @model_validator(mode="after")
    def _each_tier_once(self) -> Self:
        """Each tier has its share; naming it twice would not double that."""
        if len(set(self.tiers)) < len(self.tiers):
            raise ValueError(f"env.tiers = {list(self.tiers)} names a tier twice.")
        return self


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
