"""One episode as a small state machine: it is told what happened, and says what comes next.

    begin() -> Begin                 what to ask the environment first
    receive(turn) -> Step | ids      one sampled turn in; what to ask the environment, or, where thinking has used its
                                     budget, the ids that the model reads before it goes on with the same turn
    go_on(answer) -> ids | Cut | None
                                     an answer in; the ids that the model reads next, or the request that ends an
                                     episode whose budget is spent, or nothing more
    cancel()                         given up while it was under way
    trajectory()                     the record of it

The token sequence is built by appending alone: the ids that were sampled are the ids that are trained. Four
budgets apply: the task's own turns, the rollout's turns, tokens per turn, and tokens in all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from ferrata.envs.actions import begins_action
from ferrata.envs.base import Scorer
from ferrata.envs.faults import FaultRates
from ferrata.envs.tools import Tool
from ferrata.models.chat import Chat
from ferrata.recipe import RolloutSection
from ferrata.records import EventKind, StepResult, StopReason, Task, Trajectory, Turn
from ferrata.rollout.hosts import Answer, Begin, Begun, Cut, CutShort, Failed, Step, Stepped
from ferrata.sampling.protocol import Completion


class Episode:
    """One episode of one task.

    Args:
        tools: what the model is told that it may use.
        max_length: tokens that the sampler can hold for one episode.
        score: scores the environment's events; None where nothing does.
        seed, temperature, version, constrained: noted in the trajectory.
    """

    def __init__(
        self,
        task: Task,
        tools: Sequence[Tool],
        chat: Chat,
        budgets: RolloutSection,
        max_length: int,
        *,
        score: Scorer | None = None,
        seed: int = 0,
        temperature: float = 1.0,
        version: int = 0,
        constrained: bool = False,
    ) -> None:
        self.task = task
        self.score = score
        self.stop: StopReason | None = None
        """Why the episode is over; None while it goes on."""
        self.fault = ""
        """What failed, when that was not the agent."""
        self.unplayed = ""
        """Why the agent never came to act, though nothing failed."""
        self.environment_seconds = 0.0
        """Wall time inside the environment."""
        self._tools = tools
        self._chat = chat
        self._budgets = budgets
        self._limit = min(budgets.max_tokens, max_length)
        fits = budgets.max_tokens <= max_length
        self._limit_reason = StopReason.MAX_TOKENS if fits else StopReason.CONTEXT_OVERFLOW
        self._seed, self._temperature, self._version = seed, temperature, version
        self._constrained = constrained
        self._turns: list[Turn] = []
        self._ids: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._observation = ""
        self._scored = True
        self._said: Turn | None = None
        """The turn under way, or the one that the environment is asked about."""
        self._thought, self._acts_from = "", 0
        """Its text up to where thinking was cut, and how many of its ids come before that."""
        self._acting = not budgets.max_thinking_tokens
        """True when the budget of thinking no longer matters to it: its action has begun, or was asked for."""
        self._cut: StopReason | None = None
        """The budget that is spent, once the environment is told so."""
        self._asked_at = 0.0

    @property
    def max_new_tokens(self) -> int:
        """Most tokens of the turn that is asked for next."""
        budgets, said = self._budgets, len(self._said.token_ids) if self._said else 0
        # Beyond the budget of thinking token by token, until it is clear whether this is the action.
        most = budgets.max_tokens_per_turn if self._acting else max(budgets.max_thinking_tokens, said + 1)
        return min(most - said, self._limit - len(self._ids))

    def begin(self, faults: FaultRates | None = None) -> Begin:
        """What sets the task up. `faults` are rates of injected faults."""
        return Begin(self.task, self._seed, faults)

    def receive(self, completion: Completion) -> Step | Cut | list[int]:
        """Note one sampled turn; return what to ask the environment, or what is read before the turn goes on.

        A turn that the budget of the whole episode ended in its middle is no action: it is noted, and nobody blames the
        agent for half a JSON object. Nor does the environment where the budget of the turn did: it is told so.
        """
        self._append(completion.token_ids, completion.logprobs)
        turn = self._said or Turn(self._observation, "", [], [], None, (), {}, "")
        ids, logprobs = turn.token_ids + completion.token_ids, turn.logprobs + completion.logprobs
        self._said = turn = msgspec.structs.replace(
            turn,
            text=self._thought + self._chat.text(ids[self._acts_from :]),
            token_ids=ids,
            logprobs=logprobs,
            sampling_seconds=time.perf_counter() - self._asked_at,
        )
        if not completion.stopped and not self._acting and len(ids) < self._budgets.max_tokens_per_turn:
            return self._hand_over()
        if not completion.stopped and len(self._ids) >= self._limit:
            return self._cut_turn()
        # Thinking that was cut can hold braces of any kind: the action stands behind it.
        return Step(turn.text.removeprefix(self._thought), cut=not completion.stopped)

    def go_on(self, answer: Answer) -> list[int] | Cut | None:
        """Note what the environment answered; return the ids to append next, or the cut to ask for, or None."""
        self.environment_seconds += answer.seconds
        if isinstance(answer, Begun):
            self._observation = answer.observation
            return self._read(self._chat.opening(self._observation, self._tools))
        if isinstance(answer, Stepped):
            return self._stepped(answer)
        if isinstance(answer, CutShort):
            self._note_cut(answer.result)
        else:
            self._note_failure(answer)
        return None

    def cancel(self) -> None:
        """The episode is given up while it is under way."""
        self._note_failure(Failed(StopReason.CANCELLED, "The episode was given up while it was under way."))

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
            reward_version=str(getattr(self.score, "version", "")),
            constrained=self._constrained,
        )

    # Inside -------------------------------------------------------------------------------------------------------

    def _stepped(self, answer: Stepped) -> list[int] | Cut | None:
        """Decide what a step means for the episode."""
        result, turn = answer.result, self._take_said()
        self._turns.append(
            msgspec.structs.replace(
                turn,
                action=result.action,
                events=result.events,
                components=result.components,
                state_hash=answer.state_hash,
                environment_seconds=answer.seconds,
            )
        )
        self._scored = self._scored and result.reward is not None
        self._observation = result.observation.text
        self.stop = stop_reason(result)
        if self.stop is not None:
            return None
        if len(self._turns) >= self._budgets.max_turns:
            return self._ask_to_cut(StopReason.MAX_TURNS)
        closed, most = turn.token_ids[-1] == self._chat.end_id, self._budgets.max_observation_tokens
        return self._read(self._chat.following(self._observation, closed, most))

    def _cut_turn(self) -> Cut:
        """Note the turn under way, which no more token fits into, and ask for the cut."""
        self._turns.append(self._take_said())
        return self._ask_to_cut(self._limit_reason)

    def _hand_over(self) -> Cut | list[int]:
        """Thinking has used its budget: unless the action has begun, it is cut by ids that are read and not trained.

        When not even one more token fits, the episode is cut in the middle of the turn.
        """
        assert self._said is not None, "a turn is under way"
        # A constrained agent thinks without braces.
        text = self._said.text
        begun = True if self._constrained and "{" in text else begins_action(text)
        ids = self._chat.hand_over if begun is False else []
        if len(self._ids) + len(ids) >= self._limit:
            return self._cut_turn()
        self._append(ids)
        self._acting = begun is not None
        if begun is False:
            self._thought, self._acts_from = text + self._chat.text(ids), len(self._said.token_ids)
        return ids

    def _take_said(self) -> Turn:
        turn, self._said = self._said, None
        self._thought, self._acts_from, self._acting = "", 0, not self._budgets.max_thinking_tokens
        assert turn is not None, "the environment answers a step that was not asked for"
        return turn

    def _read(self, ids: list[int]) -> list[int] | Cut:
        """Append what the model reads next, if at least one token of a turn fits after it."""
        if len(self._ids) + len(ids) >= self._limit:
            if not self._turns:
                self.unplayed = (
                    f"the opening of a task of family '{self.task.family}' has {len(ids)} tokens, and an episode has "
                    f"room for {self._limit}: raise rollout.max_tokens, as far as the model's context allows."
                )
            return self._ask_to_cut(self._limit_reason)
        self._append(ids)
        self._asked_at = time.perf_counter()
        return ids

    def _append(self, ids: list[int], logprobs: list[float] | None = None) -> None:
        """Append ids that were sampled (with log-probabilities) or read (without)."""
        self._ids.extend(ids)
        self._mask.extend([logprobs is not None] * len(ids))
        self._logprobs.extend([0.0] * len(ids) if logprobs is None else logprobs)

    def _ask_to_cut(self, stop: StopReason) -> Cut:
        """A budget outside the environment ends the episode."""
        self._cut = stop
        return Cut(stop)

    def _note_cut(self, result: StepResult) -> None:
        """What a spent budget costs counts to the last turn."""
        self.stop = self._cut
        if self._turns:
            self._turns[-1] = _with_cut(self._turns[-1], result)

    def _note_failure(self, failure: Failed) -> None:
        """Something that is not the agent failed."""
        self.stop, self.fault = failure.stop, failure.fault
        if self._said is not None:
            turn = self._take_said()
            seconds = failure.seconds
            self._turns.append(
                msgspec.structs.replace(turn, state_hash=failure.state_hash, environment_seconds=seconds)
            )


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
