"""One episode as a small state machine: it is told what was sampled, and says what the model reads next.

    begin() -> ids          the opening, or None when there is nothing to sample
    receive(turn) -> ids    one sampled turn in; the next observation out, or None when the episode is over
    trajectory()            the record of it

The token sequence is built by appending alone: the ids that were sampled are the ids that are trained. Four
budgets apply: the task's own turns, the rollout's turns, tokens per turn, and tokens in all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from ferrata.envs.base import Environment
from ferrata.errors import EnvironmentFault, FerrataError, JudgeFault, boundary
from ferrata.models.chat import Chat
from ferrata.recipe import RolloutSection
from ferrata.records import EventKind, StepResult, StopReason, Task, Trajectory, Turn
from ferrata.sampling.protocol import Completion


class Episode:
    """One episode of one task.

    Args:
        env: plays this episode alone until it is over.
        max_length: tokens that the sampler can hold for one episode.
        seed, temperature, version: noted in the trajectory.
    """

    def __init__(
        self,
        env: Environment,
        task: Task,
        chat: Chat,
        budgets: RolloutSection,
        max_length: int,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        version: int = 0,
    ) -> None:
        self.env = env
        self.task = task
        self.stop: StopReason | None = None
        """Why the episode is over; None while it goes on."""
        self.fault = ""
        """What failed, when that was not the agent."""
        self.unplayed = ""
        """Why the agent never came to act, though nothing failed."""
        self.environment_seconds = 0.0
        """Wall time inside the environment."""
        self._chat = chat
        self._budgets = budgets
        self._limit = min(budgets.max_tokens, max_length)
        fits = budgets.max_tokens <= max_length
        self._limit_reason = StopReason.MAX_TOKENS if fits else StopReason.CONTEXT_OVERFLOW
        self._seed, self._temperature, self._version = seed, temperature, version
        self._turns: list[Turn] = []
        self._ids: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._observation = ""
        self._scored = True
        self._asked_at = 0.0

    @property
    def max_new_tokens(self) -> int:
        """Most tokens of the turn that is asked for next."""
        return min(self._budgets.max_tokens_per_turn, self._limit - len(self._ids))

    def begin(self) -> list[int] | None:
        """Set the task up; return the ids of the opening, or None when the episode is over already."""
        try:
            with self._environment("beginning"):
                self._observation = self.env.reset(self.task, self._seed).text
        except (EnvironmentFault, JudgeFault) as fault:
            self._fail(fault)
            return None
        return self._ask(self._chat.opening(self._observation, self.env.tools_for(self.task)))

    def receive(self, completion: Completion) -> list[int] | None:
        """Play one sampled turn; return the ids to append next, or None when the episode is over."""
        sampling_seconds = time.perf_counter() - self._asked_at
        ids = completion.token_ids
        self._append(ids, completion.logprobs)
        text = self._chat.text(ids)
        before, state_hash, result, fault = self.environment_seconds, "", None, None
        try:
            with self._environment("stepping"):
                state_hash = self.env.state_hash()
                result = self.env.step(text)
        except (EnvironmentFault, JudgeFault) as error:
            fault = error
        self._turns.append(
            Turn(
                observation=self._observation,
                text=text,
                token_ids=ids,
                logprobs=completion.logprobs,
                action=result.action if result else None,
                events=result.events if result else (),
                components=result.components if result else {},
                state_hash=state_hash,
                sampling_seconds=sampling_seconds,
                environment_seconds=self.environment_seconds - before,
            )
        )
        if result is None:
            self._fail(fault)
            return None
        return self._go_on(result, closed=ids[-1] == self._chat.end_id)

    def trajectory(self) -> Trajectory:
        """The record of the episode, once it is over."""
        assert self.stop is not None, "the episode is still under way"
        # Without a turn the agent never acted, so there is nothing to judge.
        known = not self.stop.faulty and bool(self._turns)
        scored = known and self._scored
        return Trajectory(
            task=self.task,
            turns=self._turns,
            token_ids=self._ids,
            loss_mask=self._mask,
            logprobs=self._logprobs,
            stop=self.stop,
            success=self.stop is StopReason.COMPLETED if known else None,
            reward=sum(turn.reward for turn in self._turns) if scored else None,
            final_observation=self._observation,
            policy_version=self._version,
            seed=self._seed,
            temperature=self._temperature,
            reward_version=str(getattr(self.env.score, "version", "")),
        )

    # Inside -------------------------------------------------------------------------------------------------------

    def _go_on(self, result: StepResult, closed: bool) -> list[int] | None:
        """Decide what a step means for the episode."""
        self._scored = self._scored and result.reward is not None
        self._observation = result.observation.text
        self.stop = stop_reason(result)
        if self.stop is not None:
            return None
        if len(self._turns) >= self._budgets.max_turns:
            self._cut(StopReason.MAX_TURNS)
            return None
        return self._ask(self._chat.following(self._observation, closed))

    def _ask(self, ids: list[int]) -> list[int] | None:
        """Append what the model reads next, if at least one token of a turn fits after it."""
        if len(self._ids) + len(ids) >= self._limit:
            if not self._turns:
                self.unplayed = (
                    f"the opening of a task of family '{self.task.family}' has {len(ids)} tokens, and an episode has "
                    f"room for {self._limit}: raise rollout.max_tokens, as far as the model's context allows."
                )
            self._cut(self._limit_reason)
            return None
        self._append(ids)
        self._asked_at = time.perf_counter()
        return ids

    def _append(self, ids: list[int], logprobs: list[float] | None = None) -> None:
        """Append ids that were sampled (with log-probabilities) or read (without)."""
        self._ids.extend(ids)
        self._mask.extend([logprobs is not None] * len(ids))
        self._logprobs.extend([0.0] * len(ids) if logprobs is None else logprobs)

    def _cut(self, stop: StopReason) -> None:
        """A budget outside the environment ends the episode; what that costs counts to the last turn."""
        try:
            with self._environment("cutting"):
                result = self.env.cut(stop)
        except (EnvironmentFault, JudgeFault) as fault:
            self._fail(fault)
            return
        self.stop = stop
        if self._turns:
            self._turns[-1] = _with_cut(self._turns[-1], result)

    def _fail(self, fault: FerrataError | None) -> None:
        """Something that is not the agent failed."""
        self.stop = StopReason.JUDGE_ERROR if isinstance(fault, JudgeFault) else StopReason.ENV_ERROR
        self.fault = str(fault)

    @contextmanager
    def _environment(self, doing: str) -> Iterator[None]:
        """Time what happens inside the environment, and name its failures."""
        started = time.perf_counter()
        try:
            with boundary(EnvironmentFault, f"{doing} an episode of '{self.task.env}', family '{self.task.family}'"):
                yield
        finally:
            self.environment_seconds += time.perf_counter() - started


def stop_reason(result: StepResult) -> StopReason | None:
    """Why a step ended the episode; None when it did not."""
    if result.truncated:
        return StopReason.MAX_TURNS
    if not result.terminated:
        return None
    kinds = {event.kind for event in result.events}
    if EventKind.FORBIDDEN in kinds:
        return StopReason.FORBIDDEN
    return StopReason.COMPLETED if EventKind.SUCCESS in kinds else StopReason.SUBMITTED


def _with_cut(turn: Turn, cut: StepResult) -> Turn:
    """The turn with the events and components of the cut added."""
    components = dict(turn.components)
    for name, value in cut.components.items():
        components[name] = components.get(name, 0.0) + value
    return msgspec.structs.replace(turn, events=(*turn.events, *cut.events), components=components)
