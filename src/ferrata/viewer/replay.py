"""Reading trajectories in the terminal, for `ferrata replay`.

    show_trajectory(console, run, id)   one trajectory turn by turn
    show_list(console, run, ...)         those stored, as a table
    render_trajectory / render_list     the same as rich renderables, from records alone

What a model or a tool wrote is shown character by character: rich markup in it is text, and control characters
are made visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ferrata.errors import UnknownNameError
from ferrata.records import Event, Trajectory, Turn
from ferrata.runs import RunFolder, RunStore, StoredTrajectory
from ferrata.viewer.text import describe_event, event_tone, split_action, visible

_STYLES = {"good": "green", "bad": "red", "plain": "dim"}
_NUMBERS = ("id", "step", "tier", "reward", "turns")


def show_trajectory(console: Console, run: Path, identity: str) -> None:
    """Print the stored trajectory `identity` of a run.

    Raises RunFolderError when `run` is not a run folder or stores no trajectory of this number, and UnknownNameError
    when the id is no number.
    """
    with RunFolder.open(run) as folder:
        console.print(render_trajectory(identity, find_trajectory(folder.store, identity)))


def show_list(
    console: Console,
    run: Path,
    *,
    split: str | None = None,
    family: str | None = None,
    success: bool | None = None,
    limit: int = 50,
) -> None:
    """Print the newest `limit` stored trajectories of a run that pass the filters.

    Raises RunFolderError when `run` is not a run folder, and UnknownNameError when it stores nothing of this family.
    """
    with RunFolder.open(run) as folder:
        rows = folder.store.list_trajectories(split=split, family=family, success=success)
        if family is not None and not rows:
            _refuse_unknown_family(folder.store, family)
    if not rows:
        console.print(f"{run} stores no such trajectory.", markup=False)
        return
    console.print(render_list(rows[-limit:]))
    shown = f"{min(limit, len(rows))} of {len(rows)}, newest last."
    console.print(f"{shown} Read one: ferrata replay {run} ID", markup=False)


def find_trajectory(store: RunStore, identity: str) -> Trajectory:
    """The stored trajectory of this id.

    Raises UnknownNameError when the id is no number, RunFolderError when there is none of this id.
    """
    if not (identity.isascii() and identity.isdigit() and len(identity) < 19):
        raise UnknownNameError(
            f"'{identity}' is not a trajectory: ids are the numbers that `ferrata replay {store.path.parent}` lists."
        )
    return store.trajectory(int(identity))


def render_trajectory(identity: str, trajectory: Trajectory) -> RenderableType:
    """The whole trajectory: who and what, each turn, the totals."""
    turns = [_turn(number, turn) for number, turn in enumerate(trajectory.turns, start=1)]
    return Group(_header(identity, trajectory), *turns, *_ending(trajectory))


def render_list(rows: Iterable[StoredTrajectory]) -> Table:
    """Stored trajectories, one a row."""
    table = Table()
    for name in ("id", "stage", "step", "split", "family", "tier", "success", "reward", "turns", "stop"):
        table.add_column(name, justify="right" if name in _NUMBERS else "left")
    for row in rows:
        words = [str(row.id), row.stage, str(row.step), row.split, row.family, str(row.tier)]
        cells = [Text(visible(word)) for word in words]
        table.add_row(*cells, _verdict(row.success), _reward(row.reward), Text(str(row.turns)), Text(row.stop))
    return table


def _refuse_unknown_family(store: RunStore, family: str) -> None:
    known = {row.family for row in store.list_trajectories()}
    if family not in known:
        raise UnknownNameError.of("family", family, known)


def _header(identity: str, trajectory: Trajectory) -> Panel:
    task = trajectory.task
    decoding = "greedy" if trajectory.temperature == 0.0 else f"sampled at temperature {trajectory.temperature:g}"
    decoding += ", constrained" if trajectory.constrained else ""
    facts: list[tuple[str, str | Text]] = [
        ("task", f"{task.env} / {visible(task.family)}, tier {task.tier}, split {task.split}"),
        ("fingerprint", task.fingerprint),
        ("success", _verdict(trajectory.success)),
        ("reward", _reward(trajectory.reward)),
        ("stop", _stop(trajectory)),
        ("policy", f"version {trajectory.policy_version}, {decoding}, seed {trajectory.seed}"),
    ]
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, style="dim"), value if isinstance(value, Text) else Text(value))
    return Panel(grid, title=Text(f"Trajectory {identity}"), title_align="left", expand=False)


def _turn(number: int, turn: Turn) -> Group:
    return Group(
        Rule(Text(f"Turn {number}", style="bold"), align="left"),
        _block("reads", Text(visible(turn.observation))),
        _block("writes", _highlighted(turn.text)),
        _block("events", _events(turn.events)),
        _block("reward", _sum(turn.components)),
        _block("time", Text(_timing(turn), style="dim")),
    )


def _ending(trajectory: Trajectory) -> list[RenderableType]:
    sampling = sum(turn.sampling_seconds for turn in trajectory.turns)
    environment = sum(turn.environment_seconds for turn in trajectory.turns)
    sampled = sum(trajectory.loss_mask)
    totals = (
        f"{len(trajectory.turns)} turns, {len(trajectory.token_ids)} tokens of which {sampled} sampled, "
        f"{sampling:.2f} s sampling, {environment:.3f} s environment"
    )
    return [
        Rule(Text("End", style="bold"), align="left"),
        _block("reads", Text(visible(trajectory.final_observation))),
        _block("verdict", Text.assemble(_verdict(trajectory.success), ", stopped: ", _stop(trajectory))),
        _block("reward", _sum(trajectory.components) if trajectory.reward is not None else _reward(None)),
        _block("totals", Text(totals, style="dim")),
    ]


def _block(name: str, content: Text) -> RenderableType:
    if not content.plain:
        content = Text("(nothing)", style="dim")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=8, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(Text(name), content)
    return Padding(grid, (0, 0, 0, 1))


def _highlighted(text: str) -> Text:
    before, action, after = split_action(text)
    return Text.assemble((visible(before), ""), (visible(action), "bold cyan"), (visible(after), ""))


def _events(events: Sequence[Event]) -> Text:
    parts = [Text(visible(describe_event(event)), style=_STYLES[event_tone(event.kind)]) for event in events]
    return Text(", ").join(parts)


def _sum(components: dict[str, float]) -> Text:
    """'process +0.08  efficiency -0.01  = +0.07'."""
    if not components:
        return Text("none", style="dim")
    parts = [Text.assemble(visible(name) + " ", (f"{value:+.2f}", _sign(value))) for name, value in components.items()]
    total = sum(components.values())
    return Text("  ").join([*parts, Text.assemble("= ", (f"{total:+.2f}", f"bold {_sign(total)}"))])


def _sign(value: float) -> str:
    return "green" if value > 0 else "red" if value < 0 else "dim"


def _timing(turn: Turn) -> str:
    milliseconds = 1000 * turn.environment_seconds
    return f"{turn.sampling_seconds:.3f} s for {len(turn.token_ids)} tokens, {milliseconds:.2f} ms environment"


def _verdict(success: bool | None) -> Text:
    if success is None:
        return Text("? unscored", style="yellow")
    return Text("✔ success", style="green") if success else Text("✘ failure", style="red")


def _reward(reward: float | None) -> Text:
    return Text("unscored", style="yellow") if reward is None else Text(f"{reward:+.2f}", style=_sign(reward))


def _stop(trajectory: Trajectory) -> str:
    return str(trajectory.stop).replace("_", " ")
