"""`ferrata eval`: success of a policy on unseen tasks, in the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from ferrata.cli import json_file
from ferrata.cli.live import Terminal, percent
from ferrata.envs.base import Environment
from ferrata.errors import UsageError
from ferrata.evaluation.evaluate import evaluate as evaluate_policy
from ferrata.evaluation.results import EvaluationResult, Rate
from ferrata.models.policy import load_policy
from ferrata.recipe import Recipe
from ferrata.records import StopReason, Task
from ferrata.rewards.judges import VERDICTS, make_judge
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import EnvironmentSpec, find_environment
from ferrata.runs import RunFolder
from ferrata.runs.folder import is_run
from ferrata.sampling.factory import make_sampler


@dataclass(frozen=True)
class Request:
    """What is to be measured."""

    policy: str
    """A run folder, a policy folder, or a known model."""
    env: str | None
    """None: the run's environment."""
    tiers: tuple[int, ...]
    """Empty: those of the run in its own environment, all of any other."""
    tasks: int
    """How many to draw."""
    seed: int
    """Of the tasks."""
    sampled: bool
    """At the recipe's temperature instead of greedily."""
    written: bool = False
    """The environment's hand-written tasks of these tiers, all of them, instead of drawn ones."""
    constrained: bool = False
    """Only well-formed actions can be sampled."""


def evaluate(request: Request, json: Path | None) -> None:
    """Measure and print; `json` also gets the whole result. Raises UsageError for what cannot be measured."""
    if json is not None:
        json_file.refuse_unwritable(json)
    result = measure(request)
    Terminal().print(show(result))
    if json is not None:
        json_file.write(json, result)


def measure(request: Request) -> EvaluationResult:
    """Play the tasks. A run's own budgets and rewards apply; elsewhere the defaults."""
    recipe, folder = _source(request.policy)
    make = _worlds(request, recipe)
    env = make()
    temperature = recipe.rollout.temperature if request.sampled else 0.0
    with closing(env):
        tasks = written_tasks(env) if request.written else request.tasks
        with _collector(folder, request, recipe, make) as collector, _progress() as progress:
            result, _ = evaluate_policy(
                collector,
                env,
                tasks=tasks,
                seed=request.seed,
                temperature=temperature,
                constrained=request.constrained,
                progress=progress,
            )
    return result


def written_tasks(env: Environment) -> list[Task]:
    """The hand-written tasks of an environment's tiers. Raises UsageError when there are none."""
    tasks = [task for task in env.written_tasks() if task.tier in env.tiers]
    if not tasks:
        raise UsageError(f"Environment '{env.name}' has no hand-written tasks of tiers {list(env.tiers)}.")
    return tasks


def _worlds(request: Request, recipe: Recipe) -> EnvironmentSpec:
    """What makes the environments that were asked for; a run's own has its families and tools, where they apply."""
    name = request.env or recipe.env.name
    offered = find_environment(name).families
    own = name == recipe.env.name and is_run(Path(request.policy))
    tiers = request.tiers or (recipe.env.tiers if own else ()) or tuple(offered)
    known = {family for tier in tiers for family in offered.get(tier, ())}
    families = tuple(family for family in recipe.env.families if own and family in known)
    tools = recipe.env.tools if own else ""
    return EnvironmentSpec(name, tiers, recipe.rewards, families, tools)


def _source(policy: str) -> tuple[Recipe, str]:
    """The recipe to go by, and what `load_policy` takes: of an unfinished run, its newest checkpoint."""
    path = Path(policy)
    if not is_run(path):
        return Recipe(name="evaluation"), policy
    with RunFolder.open(path) as folder:
        checkpoint = None if folder.policy.exists() else folder.checkpoints.latest()
    if checkpoint is None:
        return folder.recipe, policy
    Terminal(stderr=True).print(f"{path} has not finished: evaluating its checkpoint {checkpoint.name}.", markup=False)
    return folder.recipe, str(checkpoint.path / "policy")


@contextmanager
def _collector(folder: str, request: Request, recipe: Recipe, make: EnvironmentSpec) -> Iterator[Collector]:
    policy = load_policy(folder)
    at_once = (
        recipe.rollout.episodes_at_once if request.written else min(recipe.rollout.episodes_at_once, request.tasks)
    )
    sampler = make_sampler(policy, recipe, at_once)
    judge = make_judge(recipe.judge, Path(request.policy) / VERDICTS if is_run(Path(request.policy)) else None)
    collector = Collector(sampler, make, policy.chat, recipe.rollout, judge)
    try:
        yield collector
    finally:
        collector.close()
        sampler.shutdown()
        if judge is not None:
            judge.close()


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr that goes away in the end."""
    with Progress(console=Terminal(stderr=True), transient=True) as bar:
        shown = bar.add_task("Evaluating on unseen tasks", total=None)
        yield lambda over, asked: bar.update(shown, completed=over, total=asked)


def show(result: EvaluationResult) -> RenderableType:
    """Success by family and tier, and what else matters, as a table and a few lines."""
    how = f"{result.decoding}, constrained" if result.constrained else result.decoding
    table = Table(title=Text(f"{result.env}: {result.n} unseen tasks, {how}"), title_justify="left")
    table.add_column("tier", justify="right")
    table.add_column("family", no_wrap=True)
    for name in ("success", "95 % interval", "tasks"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.by_family:
        table.add_row(str(row.tier), row.family, *_rate(row.success))
    table.add_section()
    for tier, rate in result.by_tier.items():
        table.add_row(str(tier), "all", *_rate(rate))
    table.add_row("", Text("all", "bold"), *(Text(cell, "bold green") for cell in _rate(result.success)))
    return Group(table, *(Text(line) for line in _lines(result)))


_STOPPED = {
    StopReason.SUBMITTED: "the agent ends its episodes, but not with what was asked for",
    StopReason.FORBIDDEN: "the agent does what its task forbids",
    StopReason.MAX_TURNS: "the agent's turns run out before it is done",
    StopReason.MAX_TOKENS: "rollout.max_tokens ends its episodes (a run is evaluated under its own, else under the "
    "default)",
    StopReason.CONTEXT_OVERFLOW: "its episodes do not fit into the policy's context",
}
"""What a stop reason says about an evaluation without a success."""
_MANY_INVALID = 0.2
"""Share of invalid actions that explains failures."""


def why_nothing(result: EvaluationResult) -> list[str]:
    """Where no task succeeded: what most likely keeps the policy from it."""
    if result.success.count or not result.scored:
        return []
    stop = max(result.stops, key=lambda name: result.stops[name])
    said = _STOPPED.get(StopReason(stop), "something other than the agent fails")
    lines = [f"No task succeeded. {result.stops[stop]} of {result.n} episodes end by {stop}: {said}."]
    if result.invalid.share > _MANY_INVALID and result.invalid_kinds:
        kind = next(iter(result.invalid_kinds))
        why = "it does not know how to call these tools. Train it on this environment first (ferrata train)."
        if kind == "cut":
            why = "its turns end at rollout.max_tokens_per_turn before they come to an action."
        lines.append(f"{percent(result.invalid.share)} of its actions are invalid, most of them {kind}: {why}")
    return lines


def _lines(result: EvaluationResult) -> list[str]:
    stops = ", ".join(f"{name} {count}" for name, count in result.stops.items())
    lines = [
        f"invalid actions {percent(result.invalid.share)} of {result.invalid.n} turns",
        f"turns {result.turns:.1f}, tokens {result.tokens:.0f}, reward {result.reward.value:+.2f} per episode",
        f"stopped by: {stops}",
        f"took {result.seconds:.1f} s",
    ]
    if result.unscored:
        lines.append(f"{result.unscored} episodes could not be judged and count as nothing")
    return [*lines, *why_nothing(result)]


def _rate(rate: Rate) -> tuple[str, str, str]:
    return percent(rate.share), f"[{100 * rate.low:.0f}, {100 * rate.high:.0f}]", str(rate.n)
