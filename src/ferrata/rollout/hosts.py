"""Who runs the environments of a collection. A request is handed over, and its answer is taken when it is there.

    ask(key, Begin | Step | Cut)  ->  take() -> [(key, Begun | Stepped | CutShort | Failed)]  ...  release(key)

    EnvironmentHost   the protocol; an episode has one request under way at most
    LocalHost         in this process: the answer is there at once, so that nothing happens in another order
    perform           one request, in one environment

`workers.WorkerHost` fulfils the protocol with worker processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import msgspec

from ferrata.envs.base import Environment
from ferrata.envs.faults import FaultRates
from ferrata.errors import EnvironmentFault, JudgeFault, boundary
from ferrata.records import StepResult, StopReason, Task

MakeEnvironment = Callable[[], Environment]


class Past(msgspec.Struct, frozen=True):
    """One turn that was answered: what it takes to play it again, and to know that it went the same way."""

    text: str
    state_hash: str
    """Of the state before the turn."""
    observation: str
    """What the environment answered."""


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
    def pattern(self) -> Environment:
        """One environment of the kind, for what does not depend on an episode: its tools, its scorer."""

    def ask(self, key: int, request: Request) -> None:
        """Hand a request over. `Begin` comes first; the next one may follow when this one is answered."""

    def take(self, seconds: float) -> list[tuple[int, Answer]]:
        """The answers that are there. Without any, wait for the first one, but no longer than this."""

    def release(self, key: int, broken: bool) -> None:
        """The episode is over. A broken environment plays no other."""

    def close(self) -> None:
        """Close all environments, also those of episodes under way; they are made afresh when needed."""


class LocalHost:
    """Runs environments in this process. A step that hangs cannot be cut here: only another process could end it.

    Args:
        make_env: makes one environment; called once for each episode that runs at the same time.
    """

    def __init__(self, make_env: MakeEnvironment) -> None:
        self._make_env = make_env
        self._pattern: Environment | None = None
        self._idle: list[Environment] = []
        self._playing: dict[int, Environment] = {}
        self._answers: list[tuple[int, Answer]] = []

    @property
    def pattern(self) -> Environment:
        """One environment of the kind. Raises EnvironmentFault when none can be made."""
        if self._pattern is None:
            self._pattern = self._take_environment()
            self._idle.append(self._pattern)
        return self._pattern

    def ask(self, key: int, request: Request) -> None:
        """Do it at once. Raises EnvironmentFault when an environment cannot be made."""
        if isinstance(request, Begin):
            self._playing[key] = self._take_environment()
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

    def close(self) -> None:
        """Close all environments. One that fails keeps none of the others open."""
        for env in (*self._idle, *self._playing.values()):
            close_quietly(env)
        self._idle, self._playing, self._answers, self._pattern = [], {}, [], None

    def _take_environment(self) -> Environment:
        return self._idle.pop() if self._idle else one_more(self._make_env)


def one_more(make_env: MakeEnvironment) -> Environment:
    """A new environment. Raises EnvironmentFault when it cannot be made."""
    with _failing("making one more environment"):
        return make_env()


def close_quietly(env: Environment) -> None:
    """Close an environment; what fails while a broken one is closed tells nothing new."""
    with suppress(Exception, SystemExit):
        env.close()


@contextmanager
def _failing(doing: str) -> Iterator[None]:
    """Make any unexpected exception an EnvironmentFault that names what was being done.

    So is `sys.exit()`, which would end the run, or the one thread of a worker, as if all were well.
    """
    try:
        with boundary(EnvironmentFault, doing):
            yield
    except SystemExit as error:
        raise EnvironmentFault(f"While {doing}: SystemExit: {error}") from error


def perform(env: Environment, request: Request) -> Answer:
    """Do what is asked, timed; failures that are not the agent's become an answer. Other errors of ours are raised."""
    task = request.task if isinstance(request, Begin) else env.task
    doing = {Begin: "beginning", Step: "stepping", Cut: "cutting"}[type(request)]
    started, state_hash = time.perf_counter(), ""
    try:
        with _failing(f"{doing} an episode of '{task.env}', family '{task.family}'"):
            if isinstance(request, Begin):
                return Begun(_begin(env, request), time.perf_counter() - started)
            if isinstance(request, Cut):
                return CutShort(env.cut(request.stop), time.perf_counter() - started)
            state_hash = env.state_hash()
            return Stepped(state_hash, _answered(env.step(request.text)), time.perf_counter() - started)
    except (EnvironmentFault, JudgeFault) as fault:
        stop = StopReason.JUDGE_ERROR if isinstance(fault, JudgeFault) else StopReason.ENV_ERROR
        return Failed(stop, str(fault), state_hash, time.perf_counter() - started)


def _answered(result: StepResult) -> StepResult:
    """The result of a step, if there is something to read in it: a server that is gone often answers nothing.

    Raises EnvironmentFault where the episode goes on and the observation is empty.
    """
    if not result.observation.text.strip() and not (result.terminated or result.truncated):
        raise EnvironmentFault("The step was answered by nothing, which the contract of environments rules out.")
    return result


def _begin(env: Environment, request: Begin) -> str:
    """Set the task up; return the first observation."""
    env.faults = request.faults
    observation = env.reset(request.task, request.seed).text
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
            before, answer = env.state_hash(), env.step(past.text)
            if (before, answer.observation.text) != (past.state_hash, past.observation):
                raise EnvironmentFault(f"turn {turn} went another way when it was played again in another process.")
    finally:
        env.audit = audit
    if audit is not None:
        audit.write(f"{request.task.fingerprint}-{request.seed}", env.turn, "", "restored")
