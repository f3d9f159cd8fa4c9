"""The report of a run: one HTML file that needs nothing else.

    write_report(path)      read the run, render, write, put in place
    render_report(story)    the HTML text

The template escapes everything that it is given; plots are the only markup that passes, and they are built by
`viewer.plots` from escaped parts. So a model may write what it likes, and the reader's browser obeys none of it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ferrata.errors import RunFolderError
from ferrata.evaluation.results import EvaluationResult
from ferrata.runs import RunFolder
from ferrata.viewer import figures
from ferrata.viewer.story import Story, tell, upper_first
from ferrata.viewer.text import describe_event, event_tone, split_action, visible

_TEMPLATES = Path(__file__).parent / "templates"
NOISE = 0.05
"""A paired difference with a larger p-value is called noise."""


def write_report(run_path: Path) -> Path:
    """Write `report.html` into the run folder and return its path. An older report is replaced at once or not at all.

    Raises RunFolderError when `run_path` is not a run folder, or the file cannot be written.
    """
    with RunFolder.open(run_path) as run:
        html = render_report(tell(run))
        _replace(run.report, html)
        return run.report


def render_report(story: Story) -> str:
    """The whole page. The same story gives the same bytes.

    One pass over the finished page makes control characters visible, so no place that shows a model's text is missed.
    """
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "event": describe_event,
        "signed": signed,
        "share": figures.share,
        "interval": figures.interval,
    }
    environment.globals |= {"split_action": split_action, "tone": event_tone}
    return visible(environment.get_template("report.html.j2").render(_page(story)))


def _page(story: Story) -> dict[str, Any]:
    """Everything that the template reads, by name."""
    return {
        "story": story,
        "style": Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
        "verdict": verdict(story),
        "tiles": tiles(story),
        "success": figures.success_figure(story),
        "families": figures.family_rows(story),
        "rewards": figures.reward_figures(story),
        "behaviour": figures.behaviour_figures(story),
        "ladder": figures.ladder_figures(story),
        "next_rung": next_rung(story),
        "moves": [note for note in story.notes if note.kind == "ladder"],
        "notes": [note for note in story.notes if note.kind != "ladder"],
        "stops": figures.stop_figure(story),
        "time": figures.time_figure(story),
        "health": figures.health_figures(story),
        "cards": [card for card in (story.success, story.failure) if card],
    }


def verdict(story: Story) -> str:
    """The report in a few sentences, no stronger than the figures allow."""
    before, after = story.before_rl, story.after_rl
    if before is None and after is None:
        return "Nothing was evaluated on unseen tasks yet."
    if before is None or after is None:
        only, when = (after, "after RL") if after else (before, story.start)
        assert only is not None
        solved = figures.percent(only.success)
        how = "greedily among well-formed actions" if only.constrained else "greedily"
        return f"{upper_first(when)} the policy solves {solved} of {only.scored} unseen tasks, decoding {how}."
    if before.scored != after.scored:
        return (
            f"Greedy success was {figures.percent(before.success)} on {before.scored} unseen tasks {story.start}, and "
            f"{figures.percent(after.success)} on {after.scored} of them when last measured during RL. The two are "
            "not compared: their tasks differ."
        )
    moved = _moved(before, after)
    among = " among well-formed actions" if after.constrained else ""
    return (
        f"On {after.scored} unseen tasks, greedy success{among} {moved} {figures.percent(before.success)} "
        f"{story.start} to {figures.percent(after.success)} after RL. {_paired(story)}"
    ).strip()


def next_rung(story: Story) -> str:
    """What a ladder waits for that has not opened every tier: the rule, and the last figure it went by."""
    section, rl, tiers = story.recipe.ladder, story.recipe.rl, sorted(story.recipe.env.tiers)
    standing = story.metrics.get("ladder/rung", [])
    if not standing or section.schedule:
        return ""
    update, rung = standing[-1]
    # A round that was begun before the ladder moved was played on the old rung.
    moved = any(
        note.step + rl.staleness >= update and note.text.startswith(("Promoted", "Fell back")) for note in story.notes
    )
    if moved or int(rung) + 1 >= len(tiers):
        return ""
    newest, opens = tiers[int(rung)], tiers[int(rung) + 1]
    judged = [one for one in story.curve if 0 < one.update < rl.updates and newest in one.result.by_tier]
    last = (
        f"; it was {figures.percent(judged[-1].result.by_tier[newest])} at update {judged[-1].update}" if judged else ""
    )
    often = f"{section.evaluations} small evaluations running" if section.evaluations > 1 else "a small evaluation"
    return (
        f"Tier {opens} opens when greedy success on tier {newest} is over {section.gate:.0%} in {often} and no "
        f"open tier has collapsed{last}."
    )


def signed(value: float | None) -> str:
    """'+0.08' or '−0.21', or 'unscored'."""
    return "unscored" if value is None else f"{value:+.2f}".replace("-", "−")


def tiles(story: Story) -> list[tuple[str, str, str]]:
    """The headline numbers: (name, value, note)."""
    latest = story.latest
    if latest is None:
        return []
    before = story.before_rl if story.after_rl else None
    start = f"{figures.share(before.success)} {story.start}" if before else ""
    found = [("Greedy success", figures.share(latest.success), start)]
    sampled = story.sampled_rl or (None if story.after_rl else story.sampled_before_rl)
    if sampled:
        found.append(("Sampled success", figures.share(sampled.success), f"at temperature {sampled.temperature:g}"))
    for tier, rate in latest.by_tier.items():
        found.append((f"Tier {tier}", figures.share(rate), f"{rate.count} of {rate.n} tasks"))
    invalid = f"{before.invalid.share:.1%} {story.start}" if before else "of all turns"
    found.append(("Invalid actions", f"{latest.invalid.share:.1%}", invalid))
    found.append(("Turns", f"{latest.turns:.1f}", f"{latest.tokens:.0f} tokens"))
    found.append(("Time", figures.duration(story.seconds), f"seed {story.recipe.seed}"))
    return found


def _moved(before: EvaluationResult, after: EvaluationResult) -> str:
    if after.success.share > before.success.share:
        return "rose from"
    return "fell from" if after.success.share < before.success.share else "stayed from"


def _paired(story: Story) -> str:
    comparison = story.comparison
    if comparison is None:
        return ""
    counts = f"Task by task, {comparison.only_second} were gained and {comparison.only_first} lost"
    p_value = "p < 0.001" if comparison.p_value < 0.001 else f"p = {comparison.p_value:.2g}"
    judged = "more than noise" if comparison.p_value < NOISE else "not distinguishable from noise"
    return f"{counts}: {judged} (exact McNemar test, {p_value})."


def _replace(path: Path, html: str) -> None:
    """Write beside the target, then rename, so that a reader never sees half a report."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".html", delete=False, encoding="utf-8") as file:
            temporary = Path(file.name)
            file.write(html)
        temporary.chmod(0o644)  # temporary files are private; a report is to be passed around
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise RunFolderError(f"The report cannot be written to {path}: {error.strerror or error}.") from error
