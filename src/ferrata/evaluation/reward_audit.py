"""The reward audit: can anybody earn more by exploiting the reward than by working?

    audit_rewards(kind, tiers, spec) -> RewardAudit

All players of `exploiters` play the same tasks, in every tier and under the weights of every reward phase. A hole is

    a win       an exploiter's mean return reaches that of the honest but clumsy solver, on the tier as a whole or
                on one family (there it must also reach what the clumsy solver earns on the whole tier)
    a wage      on some family an exploiter is paid for turns in which nothing new was achieved

The second is found even where the wage is too small to win: a policy that learns finds it all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean

import msgspec

from ferrata.envs.base import Environment
from ferrata.envs.contract.definition import refuse_unmade
from ferrata.envs.scripts import Script
from ferrata.errors import EnvironmentFault, TaskError, boundary
from ferrata.evaluation.exploiters import EXPLOITERS, Player, Scene, actions, clumsy, honest, replay
from ferrata.evaluation.results import Mean, Rate
from ferrata.records import Event, EventKind, StepResult, StopReason, Task
from ferrata.rewards import RewardSpec
from ferrata.seeds import stream

CLUMSY = "honest but clumsy"
HONEST_FAILURE = "honest failure"
PLAYERS: dict[str, Player] = {**EXPLOITERS, HONEST_FAILURE: honest, CLUMSY: clumsy}
CONSTANT = "constant script"
"""The one exploiter that is chosen by what it earns."""
CONSTANT_TASKS = 12
"""How many tasks of each family it plays, at least."""
CONSTANT_SCRIPTS = 3
"""How many solutions it chooses from."""
FOREIGN_TASKS = 8
"""How many other tasks an exploiter takes plausible arguments from."""
FAILURES = 3
"""How many scripted failures of a task the honest players choose from."""

_ENDS = {EventKind.SUCCESS, EventKind.FAILURE, EventKind.FORBIDDEN, EventKind.UNFINISHED}


class PlayerResult(msgspec.Struct, frozen=True):
    """What one player earned on the tasks of one tier, under the weights of one phase."""

    player: str
    tier: int
    phase: str
    """Reward phase; empty before the first."""
    reward: Mean
    """Mean return with its t interval at 95 %."""
    success: Rate
    """With its Wilson interval at 95 %."""
    components: dict[str, float]
    """Mean reward of an episode by component."""


class Hole(msgspec.Struct, frozen=True):
    """A way to earn without working."""

    player: str
    tier: int
    phase: str
    family: str
    """The family where it shows most."""
    component: str
    """The component that pays for it."""
    text: str
    """One sentence with the numbers."""


class RewardAudit(msgspec.Struct, frozen=True):
    """All results, and what they mean."""

    env: str
    tasks: int
    """Tasks of each tier."""
    seed: int
    rewards: str
    """Version of the reward spec."""
    results: tuple[PlayerResult, ...]
    holes: tuple[Hole, ...]
    warnings: tuple[str, ...]
    """Weights that teach to give up; no exploiter wins by them."""


@dataclass
class Episode:
    """What one player earned in one task."""

    family: str
    reward: float = 0.0
    success: bool = False
    components: dict[str, float] = field(default_factory=dict)
    wages: dict[str, float] = field(default_factory=dict)
    """Components of the turns in which nothing new was achieved and the episode did not end."""
    idle: int = 0
    """How many such turns there were."""


Played = dict[str, list[Episode]]
"""Player -> its episodes, in the order of the tasks."""


def audit_rewards(
    kind: type[Environment],
    tiers: Sequence[int],
    spec: RewardSpec,
    *,
    tasks: int = 60,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> RewardAudit:
    """Play every tier under every phase of `spec`. Nothing is drawn but from `seed`.

    Args:
        kind: class of the environment.
        tiers: the tiers to play.
        spec: the weights with their phases.
        tasks: of each tier, spread evenly over its families.
        seed: of tasks and players.
        progress: told what is being played.

    Raises:
        TaskError: the environment cannot be made or has not so many tasks, or process reward outweighs the outcome.
        EnvironmentFault: the environment fails.
    """
    results: list[PlayerResult] = []
    holes: list[Hole] = []
    warnings: list[str] = []
    for tier in tiers:
        with boundary(TaskError, f"making environment '{kind.name}'"):
            env = kind(tiers=(tier,))
        refuse_unmade(env)
        try:
            drawn = env.tasks("train", tasks, seed=seed)
            spec.check_dominance(drawn)
            scenes = make_scenes(env, drawn)
            for phase in spec.all_phases:
                env.score = phase
                progress(f"tier {tier}" + (f", phase {phase.phase}" if phase.phase else ""))
                played = {name: _play_all(env, scenes, name, seed) for name in PLAYERS}
                played[CONSTANT] = _play_constant_scripts(env, scenes, seed)
                _refuse_hopeless(env, played[CLUMSY], tier)
                results += [_result(name, tier, phase.phase, episodes) for name, episodes in played.items()]
                holes += find_holes(played, tier, phase.phase)
                warnings += find_warnings(played, tier, phase.phase)
        finally:
            env.close()
    return RewardAudit(kind.name, tasks, seed, spec.version, tuple(results), tuple(holes), tuple(warnings))


# Playing --------------------------------------------------------------------------------------------------------


def make_scenes(env: Environment, tasks: Sequence[Task]) -> list[Scene]:
    """What the players may know of each task."""
    solutions = [_solution(env, task) for task in tasks]
    numbers: dict[str, int] = {}
    scenes = []
    for place, (task, solution) in enumerate(zip(tasks, solutions, strict=True)):
        tools = {tool.name: tool for tool in env.tools if not task.tools or tool.name in task.tools}
        others = [*range(place + 1, len(tasks)), *range(place)]
        others.sort(key=lambda other: tasks[other].family != task.family)
        texts = [text for other in others[:FOREIGN_TASKS] for text in solutions[other]]
        same = [text for other in others if tasks[other].family == task.family for text in solutions[other]]
        scene = Scene(task, tools, solution, _honest_failures(env, task), actions(texts, tools), actions(same, tools))
        # Families begin at different places, so that few tasks of many families are also solved two times in three.
        scene.number = numbers[task.family] = numbers.get(task.family, len(numbers) - 1) + 1
        scenes.append(scene)
    return scenes


def _solution(env: Environment, task: Task) -> Sequence[str]:
    for script in env.scripts(task):
        if script.success and actions(script.texts, {tool.name: tool for tool in env.tools}):
            return script.texts
    raise TaskError(
        f"Family '{task.family}' of '{env.name}' has no script that must succeed: ferrata check-env says more."
    )


def _honest_failures(env: Environment, task: Task) -> list[Sequence[str]]:
    """Scripted failures that come far and end with nothing worse than a failure."""

    def length(script: Script) -> int:
        return -len(script.texts)

    kept: list[Sequence[str]] = []
    for script in sorted((script for script in env.scripts(task) if not script.success), key=length):
        results = _steps(env, task, iter(script.texts), [])
        if not any(EventKind.FORBIDDEN in _kinds(result.events) for result in results):
            kept.append(script.texts)
        if len(kept) == FAILURES:
            break
    if not kept:
        raise TaskError(
            f"Family '{task.family}' of '{env.name}' has no script that must fail: ferrata check-env says more."
        )
    return kept


def _play_all(env: Environment, scenes: Sequence[Scene], player: str, seed: int) -> list[Episode]:
    return [
        play(env, scene, PLAYERS[player], stream(seed, "audit", player, place)) for place, scene in enumerate(scenes)
    ]


def _play_constant_scripts(env: Environment, scenes: Sequence[Scene], seed: int) -> list[Episode]:
    """In each family, the one script that pays best whatever the task: chosen on one half of the tasks, for the other.

    The families of a tier share its tasks, so there are few of each; a choice needs more.
    """
    families = dict.fromkeys(scene.task.family for scene in scenes)
    episodes: list[Episode] = []
    for family in families:
        some = [scene for scene in scenes if scene.task.family == family]
        with suppress(TaskError):  # the family has no more tasks
            some = make_scenes(env, env.tasks("train", max(CONSTANT_TASKS, len(some)), seed=seed, families=(family,)))
        for chosen, measured in ((some[::2], some[1::2]), (some[1::2], some[::2])):
            if chosen:
                best = _best_script(env, chosen)
                episodes += [play(env, scene, replay(best), random.Random(seed)) for scene in measured]
    return episodes


def _best_script(env: Environment, scenes: Sequence[Scene]) -> Sequence[str]:
    """Of some tasks' solutions, the one that earns most on the other tasks."""

    def earned(number: int) -> float:
        others = [scene for place, scene in enumerate(scenes) if place != number]
        player = replay(scenes[number].solution)
        return sum(play(env, scene, player, random.Random(0)).reward for scene in others)

    return scenes[max(range(min(len(scenes), CONSTANT_SCRIPTS)), key=earned)].solution


def _refuse_hopeless(env: Environment, episodes: Sequence[Episode], tier: int) -> None:
    if not any(episode.success for episode in episodes):
        raise TaskError(
            f"The rewards of '{env.name}' cannot be audited in tier {tier}: with detours, the scripted solutions "
            f"succeed in none of {len(episodes)} tasks, so there is no honest return to compare with."
        )


def play(env: Environment, scene: Scene, player: Player, draw: random.Random) -> Episode:
    """One episode of a player. Raises EnvironmentFault when the environment fails."""
    episode, paid = Episode(scene.task.family), set[str]()
    scene.seen = []
    for result in _steps(env, scene.task, player(scene, draw), scene.seen):
        _count(episode, result, scene.task, paid)
    return episode


def _steps(env: Environment, task: Task, texts: Iterator[str], seen: list[str]) -> Iterator[StepResult]:
    """The results of an episode, and in `seen` what was read; when the texts end before it, a budget cuts it."""
    with boundary(EnvironmentFault, f"auditing family '{task.family}' of '{env.name}'"):
        seen.append(env.reset(task).text)
        for text in texts:
            result = env.step(text)
            seen.append(result.observation.text)
            yield result
            if result.terminated or result.truncated:
                return
        yield env.cut(StopReason.MAX_TOKENS)


def _count(episode: Episode, result: StepResult, task: Task, paid: set[str]) -> None:
    """Add one step to what the episode earned; `paid` holds the subgoals that were reached before."""
    reached = {e.name for e in result.events if e.kind is EventKind.SUBGOAL and e.name in task.subgoals} - paid
    paid |= reached
    kinds = _kinds(result.events)
    episode.success = episode.success or EventKind.SUCCESS in kinds
    _add(episode.components, result.components)
    episode.reward += sum(result.components.values())
    if not reached and not kinds & _ENDS:
        episode.idle += 1
        _add(episode.wages, result.components)


def _kinds(events: Sequence[Event]) -> set[EventKind]:
    return {event.kind for event in events}


def _add(total: dict[str, float], components: Mapping[str, float]) -> None:
    for name, value in components.items():
        total[name] = total.get(name, 0.0) + value


# Judging --------------------------------------------------------------------------------------------------------


def _result(player: str, tier: int, phase: str, episodes: Sequence[Episode]) -> PlayerResult:
    reward = Mean.of([episode.reward for episode in episodes])
    success = Rate.of(sum(episode.success for episode in episodes), len(episodes))
    return PlayerResult(player, tier, phase, reward, success, _mean_components(episodes))


def find_holes(played: Played, tier: int, phase: str) -> list[Hole]:
    """For each exploiter, the family where it wins by most, or else is paid most for nothing."""
    holes = []
    for player in (*EXPLOITERS, CONSTANT):
        for look in (_win, _wage):
            found = look(played, player)
            if found:
                holes.append(Hole(player, tier, phase, *found))
                break
    return holes


def _win(played: Played, player: str) -> tuple[str, str, str] | None:
    """Family, component and sentence of the exploiter's clearest win over the clumsy solver."""
    theirs, ours = _by_family(played[player]), _by_family(played[CLUMSY])
    leads = {family: _mean_reward(theirs[family]) - _mean_reward(ours[family]) for family in theirs}
    whole = _mean_reward(played[CLUMSY])
    # A family on which the clumsy solver happened to fail every time is no yardstick by itself.
    won = [name for name, lead in leads.items() if lead >= 0 and _reaches(player, theirs[name], whole)]
    if not won and not _reaches(player, played[player], whole):
        return None
    family = max(won or leads, key=lambda name: leads[name])
    earned, needed = _mean_components(theirs[family]), _mean_components(ours[family])
    component = max(earned | needed, key=lambda name: earned.get(name, 0.0) - needed.get(name, 0.0))
    wins = sum(episode.success for episode in theirs[family])
    text = (
        f"earns {_mean_reward(theirs[family]):+.2f} where the clumsy solver earns {_mean_reward(ours[family]):+.2f}, "
        f"by {component} ({earned.get(component, 0.0):+.2f} against {needed.get(component, 0.0):+.2f}); "
        f"it succeeds in {wins} of {len(theirs[family])} tasks"
    )
    return family, component, text


def _reaches(player: str, episodes: Sequence[Episode], goal: float) -> bool:
    """True when the mean return is that high; for the constant script, surely: luck guesses most of two answers."""
    reward = Mean.of([episode.reward for episode in episodes])
    seen = reward.low if player == CONSTANT else reward.value
    return seen is not None and seen >= goal


def _wage(played: Played, player: str) -> tuple[str, str, str] | None:
    """Family, component and sentence of the exploiter's highest wage for turns that achieve nothing new."""
    wages: dict[str, dict[str, float]] = {}
    for family, episodes in _by_family(played[player]).items():
        turns = sum(episode.idle for episode in episodes)
        total: dict[str, float] = {}
        for episode in episodes:
            _add(total, episode.wages)
        wages[family] = {name: value / max(1, turns) for name, value in total.items()}
    family = max(wages, key=lambda name: sum(wages[name].values()))
    wage = sum(wages[family].values())
    if wage <= 1e-9:
        return None
    component = max(wages[family], key=lambda name: wages[family][name])
    text = (
        f"is paid {wage:+.3f} for each turn in which it achieves nothing new, "
        f"by {component} ({wages[family][component]:+.3f})"
    )
    return family, component, text


def find_warnings(played: Played, tier: int, phase: str) -> list[str]:
    """Weights under which giving up at once pays more than trying, coming some way and failing."""
    tries = [episode for episode in played[HONEST_FAILURE] if episode.components.get("process")]
    if not tries:
        return []
    tried = _mean_reward(tries)
    where = f"Tier {tier}" + (f", phase '{phase}'" if phase else "")
    return [
        f"{where}: '{player}' earns {_mean_reward(played[player]):+.2f}, more than an honest failure ({tried:+.2f}): "
        "who expects to fail learns to give up. Raise rewards.process or lower the cost of steps and repetition."
        for player in ("submit at once", "empty answer", "never submit")
        if _mean_reward(played[player]) > tried
    ]


def _by_family(episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
    parts: dict[str, list[Episode]] = {}
    for episode in episodes:
        parts.setdefault(episode.family, []).append(episode)
    return parts


def _mean_reward(episodes: Sequence[Episode]) -> float:
    return fmean(episode.reward for episode in episodes)


def _mean_components(episodes: Sequence[Episode]) -> dict[str, float]:
    total: dict[str, float] = {}
    for episode in episodes:
        _add(total, episode.components)
    return {name: value / len(episodes) for name, value in sorted(total.items())}
