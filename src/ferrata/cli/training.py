"""`ferrata train`: find the recipe and the folder, run the pipeline while a person watches, write the report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ferrata.cli.live import LoggedView, Terminal, make_view
from ferrata.cli.plan import plan
from ferrata.errors import FerrataError, Interrupted, RunFolderError, TaskError
from ferrata.recipe import POLICY_NAMES, Recipe
from ferrata.recipe_loading import as_toml, dump_recipe, flatten, load_recipe
from ferrata.rollout.worlds import find_environment
from ferrata.runs import RunFolder, graceful_interrupts
from ferrata.runs.folder import default_path, is_run, refuse_occupied

if TYPE_CHECKING:
    from ferrata.envs.base import Environment
    from ferrata.models.chat import ToolCard
    from ferrata.models.policy import Policy


def train(recipe_name: str, overrides: Sequence[str], out: Path | None, resume: bool) -> None:
    """Train, or go on training, then write the report. Raises FerrataError, whose text is for the person."""
    if resume:
        _resume(resumed_path(recipe_name, out), recipe_name, overrides)
    else:
        _start(new_recipe(recipe_name, overrides), out)


def _start(recipe: Recipe, out: Path | None) -> None:
    with RunFolder.create(recipe, out) as folder:
        try:
            _run(folder, resume=False)
        except BaseException:
            # Most of what a person got wrong is found out here, before anything is trained: leave no stub behind.
            folder.discard()
            raise
    _finish(folder)


def _resume(path: Path, recipe_name: str, overrides: Sequence[str]) -> None:
    with RunFolder.open(path, writing=True) as folder:
        refuse_changes(folder.recipe, recipe_name, overrides, path)
        _run(folder, resume=True)
    _finish(folder)


def describe(recipe_name: str, overrides: Sequence[str], out: Path | None, resume: bool) -> None:
    """Print the resolved recipe, what it amounts to, whether its tasks fit, and where it would be written.

    Changes nothing. Raises UsageError where `train` would at its start: for an environment, tiers, families or a policy
    that are not there, for what cannot be sampled here (vLLM that is not installed, episodes that need more memory than
    there is), for adapters or a judge that cannot be had, and for budgets into which most demonstrations do not fit.
    """
    if resume:
        path = resumed_path(recipe_name, out)
        with RunFolder.open(path) as folder:
            recipe = folder.recipe
        refuse_changes(recipe, recipe_name, overrides, path)
    else:
        recipe = new_recipe(recipe_name, overrides)
        path = out or default_path(recipe)
        refuse_occupied(path)
    # A name that is nowhere is told at once, not below the whole recipe.
    find_environment(recipe.env.name)
    console = Terminal(highlight=False, markup=False, soft_wrap=True)
    console.print(dump_recipe(recipe))
    for what, amount in [*plan(recipe), ("continues in" if resume else "would write to", str(path))]:
        console.print(f"{what:<15} {amount}")
    for sentence in _tried(recipe, resume):
        console.print(sentence)


def _tried(recipe: Recipe, resume: bool) -> list[str]:
    """Open what a run opens at its start; what is to be said about a new run's demonstrations beside its budgets."""
    from ferrata.envs.faults import FaultRates
    from ferrata.models.policy import load_policy
    from ferrata.rewards.judges import make_judge
    from ferrata.rollout.worlds import make_env
    from ferrata.training.demonstrations import measure
    from ferrata.training.remarks import remarks

    section = recipe.env
    env = make_env(
        section.name,
        section.tiers,
        rewards=recipe.rewards,
        families=section.families,
        tools=section.tools,
        faults=FaultRates.of(section.faults),
    )
    with closing(env), ExitStack() as opened:
        policy = load_policy(recipe.policy.model)
        judge = make_judge(recipe.judge)
        if judge is not None:
            opened.callback(judge.close)
        _try_policy(recipe, policy, env.tools)
        _try_rungs(recipe, env)
        if resume:
            return []
        measured = measure(recipe, env, policy)
    measured.refuse_misfits()
    fits = [f"Each of {len(measured.played)} demonstrations fits into these budgets."]
    return [*remarks(recipe), *(measured.sentences or fits)]


def _try_policy(recipe: Recipe, policy: Policy, tools: Sequence[ToolCard]) -> None:
    """Raise what a run would where its policy gets no adapters, or cannot be sampled."""
    from ferrata.models.adapters import attach
    from ferrata.sampling.factory import check_sampler

    section = recipe.policy
    if section.lora_rank:
        attach(policy.model, section.lora_rank, section.lora_alpha, section.lora_targets, seed=0)
    check_sampler(policy, recipe, tools)


def _try_rungs(recipe: Recipe, env: Environment) -> None:
    """Raise what a run would for a ladder on which a tier has no tasks."""
    from ferrata.rollout.containment import contained
    from ferrata.rollout.worlds import EnvironmentSpec
    from ferrata.training.rungs import check_rungs, climbs

    if not climbs(recipe):
        return
    section = recipe.env
    with contained(TaskError, f"drawing tasks of environment '{section.name}'"):
        unseen = env.tasks("eval", recipe.evaluation.tasks, seed=recipe.evaluation.seed)
    with ExitStack() as opened:

        @cache
        def pattern(tiers: Sequence[int], tools: str) -> Environment:
            spec = EnvironmentSpec(section.name, tuple(tiers), recipe.rewards, section.families, tools or section.tools)
            return opened.enter_context(closing(spec()))

        check_rungs(recipe, unseen, pattern)


def new_recipe(recipe_name: str, overrides: Sequence[str]) -> Recipe:
    """The recipe of a new run."""
    if is_run(Path(recipe_name)):
        raise RunFolderError(f"{recipe_name} is a run folder: add --resume to continue it.")
    return load_recipe(recipe_name, overrides)


def resumed_path(recipe_name: str, out: Path | None) -> Path:
    """The run folder that --resume means: --out, or the recipe argument when it is a folder."""
    if out is not None:
        return out
    if recipe_name.endswith(".toml") or not (Path(recipe_name).exists() or "/" in recipe_name):
        raise RunFolderError("--resume needs a run folder: ferrata train RUN --resume, or name it with --out.")
    return Path(recipe_name)


def refuse_changes(recipe: Recipe, recipe_name: str, overrides: Sequence[str], path: Path) -> None:
    """A resumed run keeps its recipe: raise RunFolderError when what was asked for differs from it."""
    source = str(path / "recipe.toml") if Path(recipe_name).is_dir() else recipe_name
    kept, asked = flatten(recipe), flatten(load_recipe(source, overrides))
    if _same_policy(kept["policy.model"], asked["policy.model"]):
        asked["policy.model"] = kept["policy.model"]
    changed = [key for key in kept if kept[key] != asked[key]]
    if changed:
        key = changed[0]
        raise RunFolderError(
            f"{path} was started with {key} = {as_toml(kept[key])}, not {as_toml(asked[key])}: a resumed run keeps its "
            "recipe, so leave that out, or start a new run."
        )


def _same_policy(kept: str, asked: str) -> bool:
    """A relative path that was made absolute when the run began, asked for from elsewhere."""
    parts = Path(asked).parts
    relative = not Path(asked).is_absolute() and asked not in POLICY_NAMES
    return relative and Path(kept).is_absolute() and Path(kept).parts[-len(parts) :] == parts


def _run(folder: RunFolder, resume: bool) -> None:
    """Run the pipeline under a view, with Ctrl-C made graceful; failures are also written to the log."""
    view = LoggedView(make_view(Terminal(), f"Ferrata · {folder.recipe.name}"), folder.log)
    view.message(f"Run folder: {folder.path}")
    view.message(f"Loading the policy '{folder.recipe.policy.model}' and the environment '{folder.recipe.env.name}'.")
    try:
        # Only now, for it takes seconds in which a person should know that something happens.
        from ferrata.training import pipeline

        with graceful_interrupts(view.message) as interrupts:
            pipeline.run(folder.recipe, folder, view, interrupts, resume=resume)
    except KeyboardInterrupt:
        raise Interrupted(_stopped_at_once(folder, resume)) from None
    except FerrataError as error:
        folder.log(f"{type(error).__name__}: {error}")
        raise
    finally:
        view.close()


def _stopped_at_once(folder: RunFolder, resume: bool) -> str:
    """What is left of a run that a second Ctrl-C ended, and how to go on."""
    if folder.blank and not resume:
        return "Stopped at once, before anything was trained: nothing is left behind."
    newest = folder.checkpoints.latest()
    where = f"Go on from checkpoint {newest.name}" if newest else "There is no checkpoint yet. Begin again"
    return f"Stopped at once. {where} with: ferrata train {folder.path} --resume"


def _finish(folder: RunFolder) -> None:
    from ferrata.viewer.report import write_report

    print(f"Policy: {folder.policy}")
    print(f"Report: {write_report(folder.path)}")
