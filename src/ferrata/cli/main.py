"""The commands of `ferrata`. Each parses, calls the library, prints; whatever fails ends in `cli.boundary`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ferrata import __version__
from ferrata.cli.boundary import BoundedCommands

app = typer.Typer(
    cls=BoundedCommands,
    help="Train LLM agents to finish long tasks, and prove on unseen tasks that they got better.",
    epilog="Begin with: ferrata train office-quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ferrata {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version, and do nothing.")
    ] = False,
) -> None:
    """What stands before the command."""


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe's name or .toml file; with --resume a run.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings, e.g. seed=1 rl.updates=40.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder [default: runs/RECIPE-TIME].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run from its newest checkpoint.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would happen, and do nothing.")] = False,
) -> None:
    """Train a policy by a recipe, and write the report."""
    from ferrata.cli import training

    if dry_run:
        training.describe(recipe, overrides or [], out, resume)
    else:
        training.train(recipe, overrides or [], out, resume)


@app.command(name="eval")
def evaluate(
    policy: Annotated[str, typer.Argument(metavar="RUN_OR_POLICY", help="A run folder, a policy folder or a model.")],
    env: Annotated[
        str | None, typer.Option(help="Environment: a name, or module:Class [default: the run's, or office].")
    ] = None,
    tier: Annotated[list[int] | None, typer.Option(help="Task tier; may repeat [default: the run's, or all].")] = None,
    tasks: Annotated[int, typer.Option(min=1, max=100_000, help="How many unseen tasks.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 7,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Sample as in training instead of choosing greedily.")
    ] = False,
    written: Annotated[
        bool, typer.Option("--written", help="Play the environment's hand-written tasks, all of them, instead.")
    ] = False,
    constrained: Annotated[
        bool, typer.Option("--constrained", help="Admit only well-formed actions; needs llguidance.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the whole result to this file.")] = None,
) -> None:
    """Measure success on unseen tasks, with intervals."""
    from ferrata.cli import evaluating

    request = evaluating.Request(policy, env, tuple(tier or ()), tasks, seed, sampled, written, constrained)
    evaluating.evaluate(request, json)


@app.command()
def replay(
    run: Run,
    trajectory: Annotated[
        str | None, typer.Argument(metavar="TRAJECTORY", help="Its id; without one, the newest are listed.")
    ] = None,
) -> None:
    """List stored trajectories, or read one turn by turn."""
    from ferrata.cli.live import Terminal
    from ferrata.viewer.replay import show_list, show_trajectory

    if trajectory is None:
        show_list(Terminal(), run)
    else:
        show_trajectory(Terminal(), run, trajectory)


@app.command()
def report(run: Run) -> None:
    """Write the report of a run: one HTML file."""
    from ferrata.viewer.report import write_report

    typer.echo(f"Report: {write_report(run)}")


@app.command(name="check-env")
def check_env(
    name: Annotated[str, typer.Argument(metavar="NAME_OR_CLASS", help="An environment's name, or module:Class.")],
    tier: Annotated[list[int] | None, typer.Option(help="Task tier; may repeat [default: all].")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of each split; at least one a family.")] = 30,
    fuzz: Annotated[int, typer.Option(min=0, help="How many wild texts are tried.")] = 2000,
    seconds: Annotated[float, typer.Option(min=0.01, help="Longest time of one action; what takes longer hangs.")] = 10,
    json: Annotated[Path | None, typer.Option(help="Also write the checks to this file.")] = None,
) -> None:
    """Check an environment's contract: judge, splits, snapshots, budgets, hostile input."""
    from ferrata.cli import checking

    if not checking.check(name, tier or (), tasks, fuzz, seconds, json):
        raise typer.Exit(1)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)],
    name: Annotated[
        str | None, typer.Option(help="Name of the environment [default: the folder's name].", show_default=False)
    ] = None,
) -> None:
    """Write a small environment project to start from: a world, its tests, a recipe."""
    from ferrata.cli import starting

    starting.start(folder, name)


@app.command(name="verify-audit")
def verify_audit(
    run: Run,
    seal: Annotated[
        str | None, typer.Option(help="A seal that was printed before: nothing of it may be gone.", show_default=False)
    ] = None,
) -> None:
    """Check the audit log of a run: every link of every chain, and that nothing was removed."""
    from ferrata.cli import auditing

    if not auditing.check_audit(run, seal):
        raise typer.Exit(1)


@app.command(name="audit-rewards")
def audit_rewards(
    name: Annotated[str, typer.Argument(metavar="NAME_OR_CLASS", help="An environment's name, or module:Class.")],
    recipe: Annotated[
        str | None, typer.Option(help="Audit this recipe's rewards, phases and tiers [default: all tiers].")
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks of each tier.")] = 60,
    json: Annotated[Path | None, typer.Option(help="Also write the whole audit to this file.")] = None,
) -> None:
    """Let exploiters play an environment, and say whether any earns more than honest work."""
    from ferrata.cli import auditing_rewards

    if not auditing_rewards.audit(name, recipe, tasks, json):
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the command."""
    app()
