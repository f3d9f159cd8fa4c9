"""Frozen records that travel between the parts of Ferrata.

    Permissions  which tools, paths, tables and recipients a task may touch
    Task         what is asked, with everything an environment needs to set it up
    Action       one parsed tool call
    Event        one fact that an environment reports; rewards are computed from events alone
    StepResult   what `env.step` answers
    Turn         one turn of an episode, as it happened
    Trajectory   one episode: turns, and one token sequence with a loss mask
    Group        trajectories of the same task and the same initial state

Shape legend: T = tokens of a whole trajectory, K = sampled tokens of one turn.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any

import msgspec


class StopReason(enum.StrEnum):
    """Why an episode ended."""

    COMPLETED = "completed"
    """The environment ended the episode because the task succeeded."""
    SUBMITTED = "submitted"
    """The agent submitted its result, and it was not a success."""
    MAX_TURNS = "max_turns"
    """The turn cap of the task or the rollout was reached."""
    MAX_TOKENS = "max_tokens"
    """The token budget of the trajectory was reached."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The next observation does not fit in the model's context."""
    FORBIDDEN = "forbidden"
    """A forbidden operation ended the episode."""
    ENV_ERROR = "env_error"
    """The environment failed. Never trained."""
    JUDGE_ERROR = "judge_error"
    """The judge failed. Unscored, never trained."""
    TIMEOUT = "timeout"
    """A deadline in wall time passed. Never trained."""
    CANCELLED = "cancelled"
    """The run was stopped while the episode was under way. Never trained."""

    @property
    def faulty(self) -> bool:
        """True when the episode says nothing about the agent."""
        return self in (StopReason.ENV_ERROR, StopReason.JUDGE_ERROR, StopReason.TIMEOUT, StopReason.CANCELLED)


class EventKind(enum.StrEnum):
    """What kind of fact an event reports."""

    STEP = "step"
    """One step was taken (for the efficiency component)."""
    SUBGOAL = "subgoal"
    """A subgoal was reached for the first time; `name` is the subgoal, `amount` 0 when only key steps are rewarded."""
    INVALID = "invalid"
    """The action was malformed, refused, or cut by the turn's budget; `name` is the fault, see `envs.actions.Fault`."""
    NEAR_REPEAT = "near_repeat"
    """The same tool for the third step running."""
    REPEAT = "repeat"
    """The same action with the same arguments a second time in the episode."""
    TOOL_ERROR = "tool_error"
    """A well-formed call that the tool could not carry out (no such file); `name` is the tool."""
    TOOL_FAULT = "tool_fault"
    """An injected fault kept a tool from answering; `name` is the kind of fault. Not the agent's failure."""
    TOOL_COST = "tool_cost"
    """Using a tool costs; `amount` is how much."""
    FORBIDDEN = "forbidden"
    """A forbidden operation; the episode ends."""
    SUCCESS = "success"
    """The judge's verdict at the end: the task is done."""
    FAILURE = "failure"
    """The judge's verdict at the end: the task is not done."""
    UNFINISHED = "unfinished"
    """A budget cut the episode before it ended."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact that the environment reports."""

    kind: EventKind
    name: str = ""
    """Which subgoal, which fault, which operation."""
    amount: float = 1.0
    """How much of it, in the kind's own unit."""


class Permissions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one task may touch. None means: everything that the environment offers; () means nothing.

    Globs: `*` stands for anything within one part of a path, `**` for any number of parts, `?` for one character.
    """

    read: tuple[str, ...] | None = None
    """Globs of the paths that may be read."""
    write: tuple[str, ...] | None = None
    """Globs of the paths that may be written."""
    tables: tuple[str, ...] | None = None
    """Globs of the database tables that may be read."""
    recipients: tuple[str, ...] | None = None
    """Globs of the addresses that may be written to."""
    tools: tuple[str, ...] | None = None
    """Globs of the tools that may be called, among those that the task shows (`Task.tools`)."""
    forbidden: tuple[str, ...] = ()
    """Attempts that end the episode. A kind, e.g. `write` or `escape`, covers every refusal of
    that kind; `kind:glob`, e.g. `recipient:*@press.test`, covers what matches, permitted above or not."""


class Task(msgspec.Struct, frozen=True):
    """One task instance. Everything that decides the episode's world is in `world`."""

    env: str
    """Name of the environment."""
    family: str
    """Kind of task, e.g. 'report'."""
    tier: int
    """Difficulty, 1 to 3."""
    split: str
    """'train' or 'eval'."""
    instruction: str
    """What the agent is asked to do: the first observation."""
    world: dict[str, Any]
    """JSON-ready content from which the environment builds its state and judge."""
    subgoals: tuple[str, ...]
    """Names of the subgoals, in their usual order."""
    max_turns: int
    """The task's own cap on turns."""
    tools: tuple[str, ...] = ()
    """Names of the tools this task may use; empty means all of the environment's."""
    key_steps: tuple[str, ...] = ()
    """Subgoals that alone earn process reward; empty means all of them."""
    permissions: Permissions | None = None
    """What the task may touch; None means everything that the environment offers."""

    @property
    def fingerprint(self) -> str:
        """Content hash: equal for tasks that ask the same of the same world, whatever their seed or split."""
        content = (self.env, self.family, self.instruction, self.world)
        return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=12).hexdigest()


class Action(msgspec.Struct, frozen=True):
    """One parsed tool call."""

    name: str
    arguments: dict[str, Any]

    @property
    def canonical(self) -> str:
        """The action as JSON with sorted keys, for comparing actions."""
        return msgspec.json.encode((self.name, self.arguments), order="sorted").decode(errors="replace")


class Observation(msgspec.Struct, frozen=True):
    """What the model reads."""

    text: str


class StepResult(msgspec.Struct, frozen=True):
    """What `env.step` answers."""

    observation: Observation
    reward: float | None
    """Sum of `components`; None when the environment carries no reward spec or the judge failed."""
    components: dict[str, float]
    """Named reward components of this step."""
    terminated: bool
    """The task itself ended the episode."""
    truncated: bool
    """A budget ended the episode."""
    events: tuple[Event, ...]
    action: Action | None = None
    """The parsed action; None when it was malformed."""
    info: dict[str, Any] = msgspec.field(default_factory=dict)


class Turn(msgspec.Struct, frozen=True):
    """One turn of an episode, as it happened."""

    observation: str
    """What the model read before it acted."""
    text: str
    """`decode(token_ids)`: the model's raw text, end-of-turn token left out.

    Where thinking was cut, what the model read to go on with its action stands in between.
    """
    token_ids: list[int]
    """The K sampled ids, the end-of-turn token included when it was sampled."""
    logprobs: list[float]
    """Log-probability of each of the K ids under the distribution that was sampled from (nats)."""
    action: Action | None
    """The parsed action; None when it was malformed."""
    events: tuple[Event, ...]
    components: dict[str, float]
    """Named reward components of this turn."""
    state_hash: str
    """Hash of the environment's state before the turn."""
    sampling_seconds: float = 0.0
    """Wall time from the observation to the last sampled token (seconds)."""
    environment_seconds: float = 0.0
    """Wall time of `env.step` (seconds)."""

    @property
    def reward(self) -> float:
        """Sum of the components of this turn."""
        return sum(self.components.values())


class Trajectory(msgspec.Struct, frozen=True):
    """One episode. The token sequence is built by appending, never by rendering again."""

    task: Task
    turns: list[Turn]
    token_ids: list[int]
    """All T ids that the model read or wrote, in order."""
    loss_mask: list[bool]
    """True for the sampled ids among the T."""
    logprobs: list[float]
    """The sampler's log-probability for sampled ids, 0.0 elsewhere (length T)."""
    stop: StopReason
    success: bool | None
    """The judge's verdict; None when nobody knows."""
    reward: float | None
    """Sum over turns; None means unscored, which is not zero: never trained on."""
    final_observation: str = ""
    """What the environment answered last."""
    policy_version: int = 0
    """Which published weights sampled it."""
    seed: int = 0
    """Seed of the episode's own sampling stream."""
    temperature: float = 1.0
    """0.0 means greedy."""
    reward_version: str = ""
    """Content hash of the weights that scored it, and '+' with the judge's where a model judged; empty: unknown."""
    constrained: bool = False
    """True when only well-formed actions could be sampled: `logprobs` are then not the policy's. Never trained."""

    @property
    def components(self) -> dict[str, float]:
        """Reward components summed over the turns."""
        total: dict[str, float] = {}
        for turn in self.turns:
            for name, value in turn.components.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def count(self, kind: EventKind) -> int:
        """How many events of a kind the episode saw."""
        return sum(event.kind == kind for turn in self.turns for event in turn.events)


class Group(msgspec.Struct, frozen=True):
    """Trajectories of the same task from the same initial state."""

    task: Task
    trajectories: list[Trajectory]
