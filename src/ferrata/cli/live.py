"""What a person watches while a run trains.

    LiveView    a board in a terminal, redrawn in place
    PlainView   one line every few steps, where output is a file or a pipe
    LoggedView  either, and what is said also goes to a log
    make_view   whichever fits the console

The first two keep a `Board`, the few facts worth showing, and draw it with pure functions. The names of the metrics
they read are listed in `runs.view`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ferrata.runs.view import RunView, Score

_BAR = 12
"""Characters of a reward bar."""
_LEARNING = (("loss", "loss", ".3f"), ("KL", "kl", ".4f"), ("entropy", "entropy", ".3f"))
"""What is shown of the learner: label, metric of the current stage, form."""
_TIMES = (("prefill, decode", "prefill", "decode"), ("environment, idle", "environment", "idle"))
"""What is shown of a collection's time: label, and two metrics as shares of it."""
_SPARKS = "▁▂▃▄▅▆▇█"


@dataclass
class Board:
    """The facts worth showing, as of now."""

    title: str
    began: float
    """Clock when the run began (seconds)."""
    stage: str = ""
    step: int = 0
    total: int = 0
    stage_began: float = 0.0
    first_step: int | None = None
    """First step reported in this stage: not 1 when the run was resumed."""
    done: list[str] = field(default_factory=list)
    """Stages that are over."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Latest value of each metric of the stage."""
    scores: list[Score] = field(default_factory=list)
    """Evaluations, oldest first."""

    def begin_stage(self, name: str, total: int, now: float) -> None:
        """A stage begins; the one before it is over."""
        if self.stage:
            self.done.append(self.stage)
        self.stage, self.total, self.stage_began = name, total, now
        self.step, self.first_step, self.metrics = 0, None, {}

    def advance(self, step: int, metrics: Mapping[str, float]) -> None:
        """Steps were done."""
        if self.first_step is None:
            self.first_step = step
        self.step = step
        self.metrics.update(metrics)

    def seconds_left(self, now: float) -> float | None:
        """Seconds until the stage is over, at the pace so far; None before there is a pace."""
        if self.first_step is None or not self.step:
            return None
        pace = (now - self.stage_began) / (self.step - self.first_step + 1)
        return max(0.0, pace * (self.total - self.step))

    def prefixed(self, prefix: str) -> dict[str, float]:
        """Metrics named `prefix/...`, without the prefix."""
        return {name.removeprefix(prefix): value for name, value in self.metrics.items() if name.startswith(prefix)}


class LiveView:
    """A board that is redrawn in place; messages scroll by above it."""

    def __init__(self, console: Console, title: str) -> None:
        self.board = Board(title, time.monotonic())
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=2, transient=False)
        self._live.start()

    def stage(self, name: str, total: int) -> None:
        """A stage of `total` steps begins."""
        self.board.begin_stage(name, total, time.monotonic())
        self._live.refresh()

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """`step` steps of the current stage are done."""
        self.board.advance(step, metrics)

    def evaluation(self, step: int, score: Score) -> None:
        """The policy was evaluated."""
        self.board.scores.append(score)
        self._live.refresh()

    def message(self, text: str) -> None:
        """Show a sentence above the board."""
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the last board standing."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        return draw(self.board, time.monotonic())


class Terminal(Console):
    """A console that tells of a reader who went away, as any write to a closed pipe does."""

    def on_broken_pipe(self) -> None:
        """Raise what rich swallows, so that each caller decides what it means."""
        raise BrokenPipeError


class PlainView:
    """About ten lines a stage, for logs."""

    def __init__(self, console: Console, title: str) -> None:
        self.board = Board(title, time.monotonic())
        self._console = console

    def stage(self, name: str, total: int) -> None:
        """A stage of `total` steps begins."""
        self.board.begin_stage(name, total, time.monotonic())
        self.message(_begins(name, total))

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print every tenth part of the stage, and its first and last step."""
        first = self.board.first_step is None
        self.board.advance(step, metrics)
        if first or step == self.board.total or step % max(1, self.board.total // 10) == 0:
            self.message(progress_line(self.board, time.monotonic()))

    def evaluation(self, step: int, score: Score) -> None:
        """Print the score."""
        self.board.scores.append(score)
        self.message(f"{_at(self.board.stage, step)}: {score_line(score)}")

    def message(self, text: str) -> None:
        """Print a sentence."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Everything is printed already."""


class LoggedView:
    """Any view, and a log of what was said: stages, evaluations and messages, with `log` adding one line each.

    A terminal that went away, or a full disk behind it, is no reason to end a run: it goes on unseen.
    """

    def __init__(self, view: RunView, log: Callable[[str], None]) -> None:
        self._view = view
        self._log = log
        self._stage = ""

    def stage(self, name: str, total: int) -> None:
        """Log that a stage begins."""
        self._stage = name
        self._log(_begins(name, total))
        with suppress(OSError):
            self._view.stage(name, total)

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shown, not logged: the store keeps every number."""
        with suppress(OSError):
            self._view.progress(step, metrics)

    def evaluation(self, step: int, score: Score) -> None:
        """Log the score."""
        self._log(f"{_at(self._stage, step)}: {score_line(score)}")
        with suppress(OSError):
            self._view.evaluation(step, score)

    def message(self, text: str) -> None:
        """Log the sentence."""
        self._log(text)
        with suppress(OSError):
            self._view.message(text)

    def close(self) -> None:
        """Close the view; the log belongs to the run folder."""
        with suppress(OSError):
            self._view.close()


def make_view(console: Console, title: str) -> RunView:
    """The live board in a terminal that can redraw, plain lines anywhere else."""
    return (
        LiveView(console, title) if console.is_terminal and not console.is_dumb_terminal else PlainView(console, title)
    )


# Drawing ----------------------------------------------------------------------------------------------------


def draw(board: Board, now: float) -> RenderableType:
    """The whole board; `now` is the clock (seconds)."""
    columns = Table.grid(expand=True, padding=(0, 2))
    columns.add_column(ratio=1)
    columns.add_column(ratio=1)
    columns.add_row(Group(_unseen(board), Text(), _learning(board)), Group(_rewards(board), Text(), _stops(board)))
    return Panel(
        Group(_stage_line(board, now), Text(), columns),
        title=Text(board.title, style="bold"),
        subtitle=Text(f"{clock(now - board.began)} so far · Ctrl-C saves and stops", style="dim"),
        border_style="dim",
        padding=(1, 2),
    )


def _stage_line(board: Board, now: float) -> RenderableType:
    left = board.seconds_left(now)
    line = Table.grid(expand=True, padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True, justify="right")
    name = Text.assemble(*((f"{stage} ✓  ", "green") for stage in board.done), (board.stage, "bold"))
    bar = ProgressBar(total=max(board.total, 1), completed=board.step, pulse=not board.step, animation_time=now)
    count = Text(f"{board.step}/{board.total}  {'' if left is None else clock(left) + ' left'}")
    line.add_row(name, bar, count)
    return line


def _unseen(board: Board) -> RenderableType:
    """Success on unseen tasks: now, at the start, and between."""
    if not board.scores:
        return Group(_heading("Unseen tasks"), Text("not evaluated yet", style="dim"))
    label = board.scores[0].label
    history = [score for score in board.scores if score.label == label]
    others = {score.label: score for score in board.scores if score.label != label}
    latest, start = history[-1], history[0]
    lines = [
        Text.assemble(
            (percent(latest.success), "bold green"), (f"  {interval(latest)}", "dim"), f"  of {latest.tasks} tasks"
        ),
        Text.assemble((f"from {percent(start.success)}  ", "dim"), (spark([s.success for s in history]), "green")),
        *(Text(f"{name}  {percent(value)}") for name, value in latest.groups.items()),
        *(
            Text(f"{_short(name)}  {percent(score.success)}  {interval(score)}", "dim")
            for name, score in others.items()
        ),
    ]
    return Group(_heading(f"Success: {label}"), *lines)


def _short(label: str) -> str:
    """What tells a label apart from the one in the heading: 'unseen tasks, sampled' -> 'sampled'."""
    return label.rpartition(", ")[2]


def _learning(board: Board) -> RenderableType:
    metrics = board.metrics
    grid = _grid()
    if "rollout/success" in metrics:
        grid.add_row(Text("success in training"), Text(percent(metrics["rollout/success"])))
    for label, name, form in _LEARNING:
        if f"{board.stage}/{name}" in metrics:
            grid.add_row(Text(label), Text(format(metrics[f"{board.stage}/{name}"], form)))
    if "rollout/tokens_per_second" in metrics:
        grid.add_row(Text("sampled tokens/s"), Text(f"{metrics['rollout/tokens_per_second']:,.0f}"))
    for label, *names in _TIMES:
        if all(f"time/{name}" in metrics for name in (*names, "collection")):
            grid.add_row(Text(label), Text(", ".join(_share_of_collection(metrics, name) for name in names)))
    return Group(_heading("Learning"), grid if grid.row_count else Text("no update yet", style="dim"))


def _share_of_collection(metrics: Mapping[str, float], name: str) -> str:
    """A time as a share of the collection's: of environments in workers, which overlap, it may exceed the whole."""
    return percent(metrics[f"time/{name}"] / max(metrics["time/collection"], 1e-9))


def _rewards(board: Board) -> RenderableType:
    """Mean reward per episode by component, each with a bar in proportion to the largest."""
    components = {name: value for name, value in board.prefixed("reward/").items() if value}
    if not components:
        return Group(_heading("Reward"), Text("no episode yet", style="dim"))
    largest = max(abs(value) for value in components.values())
    grid = _grid()
    for name, value in sorted(components.items(), key=lambda item: -abs(item[1])):
        colour = "green" if value > 0 else "red"
        bar = "━" * max(1, round(_BAR * abs(value) / largest))
        grid.add_row(Text(name), Text(f"{value:+.3f}"), Text(bar, style=colour))
    total = board.metrics.get("rollout/reward", sum(components.values()))
    return Group(_heading(f"Reward per episode {total:+.2f}"), grid)


def _stops(board: Board) -> RenderableType:
    shares = {name: share for name, share in board.prefixed("stop/").items() if share}
    if not shares:
        return Text()
    grid = _grid()
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        grid.add_row(Text(name), Text(percent(share)))
    return Group(_heading("Episodes stopped by"), grid)


def _heading(text: str) -> Text:
    return Text(text, style="bold cyan")


def _grid() -> Table:
    """A name column and a right-aligned value column, and room for a bar."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    return grid


# Words and numbers ------------------------------------------------------------------------------------------


def progress_line(board: Board, now: float) -> str:
    """One line for a log."""
    left = board.seconds_left(now)
    parts = [f"{board.stage} {board.step}/{board.total}"]
    metrics, stage = board.metrics, board.stage
    parts += [f"success {percent(metrics['rollout/success'])}"] if "rollout/success" in metrics else []
    parts += [f"reward {metrics['rollout/reward']:+.2f}"] if "rollout/reward" in metrics else []
    shown = ((label, metrics.get(f"{stage}/{name}"), form) for label, name, form in _LEARNING)
    parts += [f"{label} {value:{form}}" for label, value, form in shown if value is not None]
    parts += [f"{clock(left)} left"] if left is not None and board.step < board.total else []
    return "  ".join(parts)


def _begins(stage: str, total: int) -> str:
    return f"{stage}: {total} step{'s' * (total != 1)}"


def _at(stage: str, step: int) -> str:
    """When something was measured; before the first stage, at the start."""
    return f"{stage} {step}" if stage else "start"


def score_line(score: Score) -> str:
    """An evaluation in one line."""
    groups = ", ".join(f"{name} {percent(value)}" for name, value in score.groups.items())
    return f"{score.label}: {percent(score.success)} {interval(score)} of {score.tasks}" + (
        f" ({groups})" if groups else ""
    )


def percent(share: float) -> str:
    """0.845 -> '84.5 %'; a share that nobody knows is a dash."""
    return f"{100 * share:.1f} %" if share == share else "–"


def interval(score: Score) -> str:
    """The 95 % interval in percent: '[78, 89]'."""
    return f"[{100 * score.low:.0f}, {100 * score.high:.0f}]"


def clock(seconds: float) -> str:
    """75.2 -> '1:15'; an hour and more as '1:02:03'."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def spark(shares: list[float], most: int = 20) -> str:
    """Shares of 0 to 1 as a row of small bars, the newest `most`."""
    return "".join(_SPARKS[min(7, int(8 * max(0.0, share)))] for share in shares[-most:] if share == share)
