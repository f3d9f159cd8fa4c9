"""Who runs the environments of a collection. A request is handed over, and its answer is taken when it is there.

    ask(key, Begin | Step | Cut)  ->  take() -> [(key, Begun | Stepped | CutShort | Failed)]  ...  release(key)

    EnvironmentHost   the protocol; an episode has one request under way at most
    LocalHost         in this process: the answer is there at once, so that nothing happens in another order
    perform           one request, in one environment
    offered           the tools of a task, as one environment offers them

Whatever code of the environment raises or answers is contained here: it is the failure of one episode. What a person
got wrong, such as a task of another environment, is raised; so is what fails before any environment was ever made.

`workers.WorkerHost` fulfils the protocol with worker processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from ferrata.envs.base import Environment, Scorer
from ferrata.envs.faults import FaultRates
from ferrata.envs.tools import Tool
from ferrata.errors import MAX_CHARACTERS, EnvironmentFault, FerrataError, JudgeFault, safe_text
from ferrata.records import StepResult, StopReason, Task
from ferrata.rollout.answers import checked_hash, checked_step, checked_tools, first_observation
from ferrata.rollout.containment import contained

_CHARACTERS = 2 * MAX_CHARACTERS
"""Longest text of a fault: it quotes an error, and says where that came from."""

MakeEnvironment = Callable[[], Environment]


class Past(msgspec.Struct, frozen=True):
    """One turn that was answered: what it takes to play it again, and to know that it went the same way."""

    text: str
    state_hash: str
    """Of the state before the turn."""
    observation: str
    """What the environment answered."""
    cut: bool = False
    """As in `Step`."""


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Begin an episode, and play the turns again that another worker had played when it was lost."""

    task: Task
    seed: int
    """The episode's own."""
    faults: FaultRates | None = None
    """Rates of injected faults."""
    past: list[Past] = []


class Step(msgspec.Struct, frozen=True, tag=True):
    """Take one turn."""

    text: str
    cut: bool = False
    """A budget of tokens ended the turn."""


class Cut(msgspec.Struct, frozen=True, tag=True):
    """End the episode because a budget outside the environment is spent."""

    stop: StopReason


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The episode has begun."""

    observation: str
    seconds: float = 0.0
    """Wall time inside the environment; so in every answer."""


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """A turn was taken."""

    state_hash: str
    """Of the state before it."""
    result: StepResult
    seconds: float = 0.0


class CutShort(msgspec.Struct, frozen=True, tag=True):
    """The episode was ended."""

    result: StepResult
    seconds: float = 0.0


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Something that is not the agent failed; the episode is over."""

    stop: StopReason
    fault: str
    """What failed, as a sentence."""
    state_hash: str = ""
    """Of the state before a turn, where it was known."""
    seconds: float = 0.0


Request = Begin | Step | Cut
Answer = Begun | Stepped | CutShort | Failed


class EnvironmentHost(Protocol):
    """Runs the environments of many episodes; keys are the caller's names of the episodes.

    What a person got wrong, such as a task of another environment, is raised by `ask` or `take`.
    """

    @property
    def score(self) -> Scorer | None:
        """Scores the environments' events; None where nothing does, and before `tools_for` was asked."""

    def tools_for(self, task: Task) -> tuple[Tool, ...] | Failed:
        """The tools of a task. The first call makes an environment, and raises when it cannot be made."""

    def ask(self, key: int, request: Request) -> None:
        """Hand a request over. `Begin` comes first; the next one may follow when this one is answered."""

    def take(self, seconds: float) -> list[tuple[int, Answer]]:
        """The answers that are there. Without any, wait for the first one, but no longer than this."""

    def release(self, key: int, broken: bool) -> None:
        """The episode is over. A broken environment plays no other."""

    def leave_thread(self) -> None:
        """The next request comes from another thread: close what only this one may use. Nothing is under way."""

    def close(self) -> None:
        """Close all environments, also those of episodes under way; they are made afresh when needed."""


class LocalHost:
    """Runs environments in this process. A step that hangs cannot be cut here: only another process could end it.

    Args:
        make_env: makes one environment; called once for each episode that runs at the same time.
    """

    def __init__(self, make_env: MakeEnvironment) -> None:
        self._make_env = make_env
        self._first: Environment | None = None
        """Says what does not depend on an episode; it plays as well."""
        self._idle: list[Environment] = []
        self._playing: dict[int, Environment] = {}
        self._answers: list[tuple[int, Answer]] = []

    @property
    def score(self) -> Scorer | None:
        """The scorer of the first environment."""
        return self._first.score if self._first is not None else None

    def tools_for(self, task: Task) -> tuple[Tool, ...] | Failed:
        """The tools that the first environment offers. Raises EnvironmentFault when it cannot be made."""
        return offered(self._made_first(), task)

    def ask(self, key: int, request: Request) -> None:
        """Do it at once. Raises EnvironmentFault when not even one environment can be made."""
        if isinstance(request, Begin):
            self._made_first()
            env = self._idle.pop() if self._idle else another(self._make_env)
            if isinstance(env, Failed):
                self._answers.append((key, env))
                return
            self._playing[key] = env
        self._answers.append((key, perform(self._playing[key], request)))

    def take(self, seconds: float) -> list[tuple[int, Answer]]:
        """The answers to what was asked since; there is nothing to wait for."""
        taken, self._answers = self._answers, []
        return taken

    def release(self, key: int, broken: bool) -> None:
        """Keep the environment for the next episode; a broken one is closed."""
        env = self._playing.pop(key, None)
        if env is not None and broken:
            close_quietly(env)
        elif env is not None:
            self._idle.append(env)

    def leave_thread(self) -> None:
        """Close all environments: some libraries, sqlite3 among them, serve only the thread that made something."""
        self.close()

    def close(self) -> None:
        """Close all environments. One that fails keeps none of the others open."""
        for env in (*self._idle, *self._playing.values()):
            close_quietly(env)
        self._idle, self._playing, self._answers, self._first = [], {}, [], None

    def _made_first(self) -> Environment:
        if self._first is None:
            self._first = one_more(self._make_env)
            self._idle.append(self._first)
        return self._first


def one_more(make_env: MakeEnvironment) -> Environment:
    """A new environment. Raises EnvironmentFault when it cannot be made."""
    with contained(EnvironmentFault, "making one more environment"):
        return make_env()


def another(make_env: MakeEnvironment) -> Environment | Failed:
    """A new environment after others: the maker is known to work, so when it fails now, that is the world's fault.

    Only the episode that needed the environment fails; it is tried again as all that fail.
    """
    try:
        return one_more(make_env)
    except FerrataError as error:
        return Failed(StopReason.ENV_ERROR, safe_text(error, _CHARACTERS))


def close_quietly(env: Environment) -> None:
    """Close an environment; what fails while a broken one is closed tells nothing new."""
    with suppress(FerrataError), contained(EnvironmentFault, "closing an environment"):
        env.close()


def offered(env: Environment, task: Task) -> tuple[Tool, ...] | Failed:
    """The tools that a task may use; what goes wrong is the failure of the episode that asks."""
    doing = f"asking for the tools of a task of '{task.env}', family '{task.family}'"
    try:
        with contained(EnvironmentFault, doing):
            return checked_tools(env.tools_for(task))
    except (EnvironmentFault, JudgeFault) as fault:
        return failure(fault, doing)


def perform(env: Environment, request: Request) -> Answer:
    """Do what is asked, timed; failures that are not the agent's become an answer. Other errors of ours are raised."""
    doing, started, state_hash = _words(env, request), time.perf_counter(), ""
    try:
        with contained(EnvironmentFault, doing):
            if isinstance(request, Begin):
                return Begun(_begin(env, request), time.perf_counter() - started)
            if isinstance(request, Cut):
                return CutShort(checked_step(env.cut(request.stop), cut=True), time.perf_counter() - started)
            state_hash = checked_hash(env.state_hash())
            return Stepped(state_hash, checked_step(_step(env, request)), time.perf_counter() - started)
    except (EnvironmentFault, JudgeFault) as fault:
        return failure(fault, doing, state_hash, time.perf_counter() - started)


def failure(fault: EnvironmentFault | JudgeFault, doing: str, state_hash: str = "", seconds: float = 0.0) -> Failed:
    """A fault as an answer; one that says nothing is told by what was being done."""
    stop = StopReason.JUDGE_ERROR if isinstance(fault, JudgeFault) else StopReason.ENV_ERROR
    return Failed(stop, safe_text(fault, _CHARACTERS) or f"While {doing}: {type(fault).__name__}.", state_hash, seconds)


def _words(env: Environment, request: Request) -> str:
    """What is being done, for messages. A world that never called our `reset` has no task."""
    doing = {Begin: "beginning", Step: "stepping", Cut: "cutting"}[type(request)]
    task = request.task if isinstance(request, Begin) else vars(env).get("task")
    named = f" of '{task.env}', family '{task.family}'" if isinstance(task, Task) else ""
    return f"{doing} an episode{named}"


def _step(env: Environment, turn: Step | Past) -> StepResult:
    """Take a turn; only one that was cut is said to be, for an environment may have a `step` of its own."""
    return env.step(turn.text, cut=True) if turn.cut else env.step(turn.text)


def _begin(env: Environment, request: Begin) -> str:
    """Set the task up; return the first observation."""
    env.faults = request.faults
    observation = first_observation(env.reset(request.task, request.seed))
    if request.past:
        _play_again(env, request)
    return observation


def _play_again(env: Environment, request: Begin) -> None:
    """Take the turns again that were taken elsewhere. The audit log knows them already: it notes that they came back.

    Raises EnvironmentFault when the world answers otherwise than it did.
    """
    audit, env.audit = env.audit, None
    try:
        for turn, past in enumerate(request.past, start=1):
            before, answer = env.state_hash(), _step(env, past)
            if (before, answer.observation.text) != (past.state_hash, past.observation):
                raise EnvironmentFault(f"turn {turn} went another way when it was played again in another process.")
    finally:
        env.audit = audit
    if audit is not None:
        audit.write(f"{request.task.fingerprint}-{request.seed}", env.turn, "", "restored")
