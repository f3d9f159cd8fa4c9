"""Playing an evaluation: fixed tasks that training never sees, greedy unless asked otherwise.

Nothing here is drawn at random: tasks follow from `seed`, and so does the sampling when `temperature` is not 0.
What the episodes say is computed by `results.summarise`, a pure function.
"""

from __future__ import annotations

from collections.abc import Sequence

from ferrata.envs.base import Environment
from ferrata.errors import RolloutFault
from ferrata.evaluation.results import EvaluationResult, summarise
from ferrata.records import Task, Trajectory
from ferrata.rewards.judges import Judge, joint_version
from ferrata.rollout.collection import Progress
from ferrata.rollout.collector import Collector
from ferrata.tasks.splits import task_set_version


def evaluate(
    collector: Collector,
    env: Environment,
    *,
    split: str = "eval",
    tasks: int | Sequence[Task] = 200,
    seed: int = 7,
    temperature: float = 0.0,
    constrained: bool = False,
    progress: Progress | None = None,
) -> tuple[EvaluationResult, list[Trajectory]]:
    """Play tasks once each: as many different ones as `tasks` says, spread evenly over the families, or those given.

    The same seed gives the same tasks, whatever was played before; temperature 0 is greedy; `constrained` admits only
    well-formed actions. Raises TaskError when the environment has not so many tasks, RolloutFault when so many episodes
    failed that the result would say nothing, UsageError when the episodes cannot be constrained.
    """
    chosen = env.tasks(split, tasks, seed=seed) if isinstance(tasks, int) else tasks
    requests = [(task, 1) for task in chosen]
    collection = collector.collect(requests, seed, ("evaluation",), temperature, progress, constrained=constrained)
    result = summarise(
        collection.trajectories,
        seed=seed,
        asked=len(chosen),
        seconds=collection.stats.seconds,
        versions=_versions(env, chosen, collector.judge),
    )
    if result.scored == 0:
        raise RolloutFault(f"None of the {result.n} evaluation episodes could be judged; stopped: {result.stops}.")
    return result, collection.trajectories


def _versions(env: Environment, tasks: Sequence[Task], judge: Judge | None) -> dict[str, str]:
    """What was measured: results with different versions are not compared."""
    versions = {"tasks": task_set_version(tasks), "environment": f"{env.name}-{env.version}"}
    rewards = getattr(env.score, "version", None)
    return versions if rewards is None else {**versions, "rewards": joint_version(str(rewards), judge)}
