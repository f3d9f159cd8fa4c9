"""Many episodes at once through one sampler, without lock-step: an episode goes on as soon as its turn is sampled or
its environment has answered, and a waiting one joins as soon as a slot is free. Nobody waits for a particular episode.

    Collector.collect(requests) -> Collection: groups in the order asked for, and what it cost (`collection`)
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from ferrata.envs.faults import FaultRates
from ferrata.errors import RolloutFault, SamplerFault
from ferrata.models.chat import Chat
from ferrata.recipe import RolloutSection
from ferrata.records import Group, StopReason, Task, Trajectory
from ferrata.rewards.judges import Judge
from ferrata.rollout.collection import Collection, CollectionStats, Progress
from ferrata.rollout.episode import Episode
from ferrata.rollout.hosts import Answer, Cut, EnvironmentHost, Failed, LocalHost, MakeEnvironment, Step
from ferrata.rollout.judging import Judging, awaits_verdict
from ferrata.rollout.workers import WorkerHost
from ferrata.sampling.protocol import ActionsOnly, Completion, Sampler
from ferrata.seeds import derive

IDLE_SECONDS = 1.0
"""Longest wait for environments at a time, when there is nothing to sample; then verdicts are looked for."""
RETRIES = 1
"""How often an episode that failed through no fault of the agent is played again from its start."""


class _Place(NamedTuple):
    """Which episode of a collection."""

    group: int
    member: int
    attempt: int = 0


class Collector:
    """Plays groups of episodes. Keeps its environments from one collection to the next; `close` it in the end.

    Args:
        sampler: samples the turns.
        make_env: makes one environment; called once for each episode that runs at the same time. With
            `budgets.workers` it must be picklable, see `worlds.EnvironmentSpec`.
        chat: how conversations become token ids.
        budgets: of an episode, how many run at once, and where their environments run.
        judge: whose verdicts take the place of the environments'; None where those stand. Closed by who made it.
    """

    def __init__(
        self,
        sampler: Sampler,
        make_env: MakeEnvironment,
        chat: Chat,
        budgets: RolloutSection,
        judge: Judge | None = None,
    ) -> None:
        self.sampler = sampler
        self.judge = judge
        self.chat = chat
        self.budgets = budgets
        self.host = _host(make_env, budgets)
        """Runs the environments."""
        self.last_stats = CollectionStats()
        """What the last collection did, also when it was interrupted or failed."""

    def collect(
        self,
        requests: Sequence[tuple[Task, int]],
        seed: int,
        path: Sequence[str | int] = ("sampling",),
        temperature: float | None = None,
        progress: Progress | None = None,
        faults: FaultRates | None = None,
        constrained: bool = False,
        max_turns: int = 0,
        pulse: Callable[[], None] = lambda: None,
    ) -> Collection:
        """Play every task as often as asked.

        Args:
            requests: tasks, each with the number of its episodes.
            seed: root of all seeds: member m of group g samples with `derive(seed, *path, g, m)`.
            path: names this collection among all that share the root.
            temperature: the recipe's when None; 0.0 is greedy.
            progress: told after every episode.
            faults: rates of injected faults; none when None.
            constrained: the agent can only say well-formed actions. For evaluation and serving: nothing of it can be
                trained, because the log-probabilities are not the policy's (docs/sampling.md).
            max_turns: of these episodes, where that is fewer than the budgets allow; 0 leaves it to them.
            pulse: called again and again while the collection goes on; what it raises ends it.

        Raises:
            RolloutFault: more than `budgets.max_fault_share` of the episodes were dropped.
            SamplerFault: the sampler failed, or holds so many episodes of others that none of these can begin.
            UsageError: the sampler cannot constrain the episodes of a task.
        """
        budgets = self.budgets
        if max_turns:
            budgets = budgets.model_copy(update={"max_turns": min(max_turns, budgets.max_turns)})
        with _Collecting(self, requests, seed, path, temperature, progress, faults, constrained, budgets) as collecting:
            return collecting.run(pulse)

    def remake(self, make_env: MakeEnvironment) -> None:
        """From now on, make environments in another way; no collection may be under way."""
        self.close()
        self.host = _host(make_env, self.budgets)

    def leave_thread(self) -> None:
        """The next collection is made in another thread: close what only this one may use."""
        self.host.leave_thread()

    def close(self) -> None:
        """Close all environments, and end all workers; they are made afresh when needed."""
        self.host.close()


def _host(make_env: MakeEnvironment, budgets: RolloutSection) -> EnvironmentHost:
    return WorkerHost(make_env, budgets.workers, budgets.step_seconds) if budgets.workers else LocalHost(make_env)


class _Collecting:
    """One collection under way."""

    def __init__(
        self,
        owner: Collector,
        requests: Sequence[tuple[Task, int]],
        seed: int,
        path: Sequence[str | int],
        temperature: float | None,
        progress: Progress | None,
        faults: FaultRates | None,
        constrained: bool,
        budgets: RolloutSection,
    ) -> None:
        self._budgets = budgets
        self._owner, self._sampler, self._host = owner, owner.sampler, owner.host
        self._requests = requests
        self._seed, self._path = seed, path
        self._temperature = owner.budgets.temperature if temperature is None else temperature
        self._progress, self._faults, self._constrained = progress, faults, constrained
        self._waiting = deque(
            _Place(group, member) for group, (_, count) in enumerate(requests) for member in range(count)
        )
        self._running: dict[int, tuple[_Place, Episode]] = {}
        self._sampling: set[int] = set()
        """The running episodes that wait for a turn; the others wait for their environment."""
        self._judging = Judging[tuple[int, int]](owner.judge) if owner.judge else None
        self._over: dict[tuple[int, int], Trajectory] = {}
        self._next_key = 0
        self._last_fault = ""
        self.stats = owner.last_stats = CollectionStats(asked=len(self._waiting))

    def run(self, pulse: Callable[[], None]) -> Collection:
        """Play until every episode is over."""
        while self._waiting or self._running:
            pulse()
            while self._waiting and self._room():
                self._begin(self._waiting.popleft())
            self._take_answers()
            if self._sampling:
                self._sample()
            elif self._running:
                self._wait_for_environments()
            elif self._waiting and self._sampler.free <= 0:
                raise SamplerFault(
                    "The sampler has no room for an episode, though none of this collection is open: it holds episodes "
                    "of others. Close those first, or give the collector a sampler of its own."
                )
            self._take_verdicts(wait=False)
        self._take_verdicts(wait=True)
        return Collection(self._groups(), self.stats)

    def __enter__(self) -> Self:
        self._started, self._clock = time.perf_counter(), self._sampler.clock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """After an interruption or a failure, leave neither open episodes nor open environments behind."""
        self.stats.seconds = time.perf_counter() - self._started
        if error is None:
            self._note_clock()
            self._stop_judging()
        else:
            self._give_up()

    def _note_clock(self) -> None:
        clock = self._sampler.clock
        self.stats.prefill_seconds = clock.prefill - self._clock.prefill
        self.stats.decode_seconds = clock.decode - self._clock.decode

    def _stop_judging(self) -> None:
        if self._judging is not None:
            self._judging.close()

    def _give_up(self) -> None:
        """Nobody gets what is unfinished, but it is counted.

        What fails while things are closed often fails because of the first error, and must neither hide it nor keep
        anything else open.
        """
        unfinished = self.stats.asked - len(self._over)
        if unfinished:
            self.stats.dropped[StopReason.CANCELLED.value] += unfinished
        try:
            closings: list[Callable[[], None]] = [self._note_clock, self._stop_judging]
            for key, (_, episode) in self._running.items():
                episode.cancel()
                closings += [partial(self._sampler.close, key), partial(self._host.release, key, broken=True)]
            for closing in closings:
                with suppress(Exception):
                    closing()
        finally:
            self._running.clear()
            with suppress(Exception):
                self._owner.close()

    def _room(self) -> bool:
        return self._sampler.free > 0 and len(self._running) < self._owner.budgets.episodes_at_once

    def _begin(self, place: _Place) -> None:
        """Start an episode; a fault while it begins ends it at once."""
        seed = derive(self._seed, *self._path, place.group, place.member)
        task = self._requests[place.group][0]
        owner, sampler = self._owner, self._sampler
        offered = self._host.tools_for(task)
        tools = () if isinstance(offered, Failed) else offered
        episode = Episode(
            task,
            tools,
            owner.chat,
            self._budgets,
            sampler.max_length,
            score=self._host.score,
            seed=seed,
            temperature=self._temperature,
            version=sampler.version,
            constrained=self._constrained,
        )
        key, self._next_key = self._next_key, self._next_key + 1
        only = ActionsOnly(tools, owner.budgets.max_thinking_tokens) if self._constrained and tools else None
        sampler.open(key, seed, self._temperature, only)
        self._running[key] = (place, episode)
        if isinstance(offered, Failed):
            self._go_on(key, episode.go_on(offered))
            return
        self._host.ask(key, episode.begin(self._faults))
        self._take_answers()

    def _sample(self) -> None:
        """Let the sampler take one step, and hand the turns that it finished to their environments."""
        before = time.perf_counter()
        completions = self._sampler.advance()
        self.stats.sampling_seconds += time.perf_counter() - before
        for completion in completions:
            self._receive(completion)

    def _receive(self, completion: Completion) -> None:
        _, episode = self._running[completion.key]
        self._sampling.remove(completion.key)
        self.stats.tokens_sampled += len(completion.token_ids)
        move = episode.receive(completion)
        # Ids to read do not end the turn: it goes on after them.
        self.stats.turns += not isinstance(move, list)
        if isinstance(move, Step):
            self._host.ask(completion.key, move)
            self._take_answers()
        else:
            self._go_on(completion.key, move)

    def _wait_for_environments(self) -> None:
        before = time.perf_counter()
        answers = self._host.take(IDLE_SECONDS)
        self.stats.idle_seconds += time.perf_counter() - before
        self._note(answers)

    def _take_answers(self) -> None:
        """Go on with the episodes whose environments have answered, until no further answer is there."""
        while answers := self._host.take(0.0):
            self._note(answers)

    def _note(self, answers: Sequence[tuple[int, Answer]]) -> None:
        for key, answer in answers:
            self.stats.overdue += answer.seconds > self._owner.budgets.step_seconds
            self._go_on(key, self._running[key][1].go_on(answer))

    def _go_on(self, key: int, move: list[int] | Cut | None) -> None:
        """Hand the next ids to the sampler, or a cut to the environment, or finish the episode."""
        place, episode = self._running[key]
        if isinstance(move, list):
            self.stats.tokens_read += len(move)
            # The budget was taken after the ids were appended: what is left is for the turn.
            self._sampler.submit(key, move, episode.max_new_tokens)
            self._sampling.add(key)
        elif move is not None:
            self._host.ask(key, move)
        else:
            del self._running[key]
            self._sampler.close(key)
            self._host.release(key, broken=episode.stop is not None and episode.stop.faulty)
            self.stats.environment_seconds += episode.environment_seconds
            self._finish(place, episode)

    def _finish(self, place: _Place, episode: Episode) -> None:
        """Keep the trajectory, or play the episode again when something else than the agent failed."""
        if episode.stop is not None and episode.stop.faulty and place.attempt < RETRIES:
            self.stats.retried += 1
            self._waiting.append(place._replace(attempt=place.attempt + 1))
            return
        trajectory, key = episode.trajectory(), (place.group, place.member)
        if self._judging is not None and awaits_verdict(trajectory):
            self._judging.ask(key, trajectory, episode.score)
        else:
            self._settle(key, trajectory, episode.fault or episode.unplayed)

    def _take_verdicts(self, wait: bool) -> None:
        """Settle the episodes that were judged meanwhile, or all that still wait for a verdict."""
        for key, trajectory, fault in self._judging.settled(wait) if self._judging else ():
            self._settle(key, trajectory, fault)

    def _settle(self, key: tuple[int, int], trajectory: Trajectory, fault: str) -> None:
        """Count an episode that is over; `fault` says why it tells nothing about the agent, if it does not."""
        self._over[key] = trajectory
        if trajectory.success is None:
            self._last_fault = fault
            self.stats.dropped[trajectory.stop.value] += 1
            self._refuse_too_many_faults()
        else:
            self.stats.played += 1
        if self._progress is not None:
            self._progress(len(self._over), self.stats.asked)

    def _refuse_too_many_faults(self) -> None:
        """A run that learns from what is left, or from nothing at all, would go on as if all were well."""
        dropped, asked, allowed = (
            sum(self.stats.dropped.values()),
            self.stats.asked,
            self._owner.budgets.max_fault_share,
        )
        if dropped <= allowed * asked and dropped < asked:
            return
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.stats.dropped.items())
        cause = f" The last of them: {self._last_fault}" if self._last_fault else ""
        limit = f"more than rollout.max_fault_share = {allowed:.0%} allows" if allowed < 1 else "so nothing is left"
        raise RolloutFault(f"{dropped} of {asked} episodes had to be dropped ({reasons}), {limit}.{cause}")

    def _groups(self) -> list[Group]:
        return [
            Group(task, [self._over[group, member] for member in range(count)])
            for group, (task, count) in enumerate(self._requests)
        ]
