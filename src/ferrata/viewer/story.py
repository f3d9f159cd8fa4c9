"""What a run's report says, gathered from its folder: `tell(run) -> Story`. No HTML here.

Evaluations are recognised by their content (decoding, number of tasks), never by the label they were stored under.
A run that ended early tells what it has; `missing` says in sentences what it has not.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from ferrata.envs.audit import SEAL
from ferrata.evaluation.results import EvaluationResult, decode
from ferrata.evaluation.statistics import PairedComparison, compare_paired
from ferrata.recipe import Recipe
from ferrata.recipe_loading import as_toml, flatten, load_recipe, shipped_recipes
from ferrata.records import Trajectory
from ferrata.runs import Note, RunFolder, RunStore

Curve = list[tuple[int, float]]
"""A metric as (update, value)."""


class Measurement(msgspec.Struct, frozen=True):
    """One evaluation and when it was made."""

    stage: str
    update: int
    """RL update; 0 is what RL started from."""
    result: EvaluationResult


class Card(msgspec.Struct, frozen=True):
    """A trajectory that the report shows."""

    title: str
    id: int
    """Its id in the store, for `ferrata replay`."""
    trajectory: Trajectory


class Story(msgspec.Struct, frozen=True):
    """Everything that a report says."""

    recipe: Recipe
    recipe_text: str
    command: str
    """The command that reproduces the run."""
    versions: dict[str, str]
    curve: list[Measurement]
    """Greedy evaluations on unseen tasks by update, the largest one of each update."""
    before_rl: EvaluationResult | None
    """Greedy, after SFT; without SFT in this run, of the policy that RL started from."""
    after_rl: EvaluationResult | None
    sampled_before_rl: EvaluationResult | None
    sampled_rl: EvaluationResult | None
    comparison: PairedComparison | None
    """Before RL against after RL, task by task; None unless both were evaluated on the same task set."""
    metrics: dict[str, Curve]
    """Every metric of the RL stage."""
    sft_metrics: dict[str, Curve]
    seconds: float
    """How long the run computed."""
    success: Card | None
    failure: Card | None
    before_after: tuple[Card, Card] | None
    notes: list[Note]
    missing: list[str]
    """What an unfinished run cannot say, one sentence each."""

    @property
    def latest(self) -> EvaluationResult | None:
        """The last word on unseen tasks: after RL, or before it where RL has none yet."""
        return self.after_rl or self.before_rl

    @property
    def start(self) -> str:
        """What to call the point that RL starts from."""
        return start_of(self.recipe)


def start_of(recipe: Recipe) -> str:
    """'after SFT', or 'before RL' where the run had no SFT before it."""
    return "after SFT" if "sft" in recipe.stages and recipe.sft.updates > 0 else "before RL"


def upper_first(text: str) -> str:
    """The text as a title or a sentence begins; names in capitals stay as they are."""
    return text[:1].upper() + text[1:]


def tell(run: RunFolder) -> Story:
    """Read everything that the report needs."""
    store = run.store
    measured = [_measurement(row.stage, row.step, row.content) for row in store.evaluations()]
    before, after = _last(measured, False, "greedy"), _last(measured, True, "greedy")
    cards = Cards(store, start_of(run.recipe))
    metrics = _curves(store, "rl")
    story = Story(
        recipe=run.recipe,
        recipe_text=(run.path / "recipe.toml").read_text(encoding="utf-8"),
        command=reproduce_command(run.recipe, run.path),
        versions=_versions(run.path),
        curve=_greedy_curve(measured),
        before_rl=before,
        after_rl=after,
        sampled_before_rl=_last(measured, False, "sampled"),
        sampled_rl=_last(measured, True, "sampled"),
        comparison=_compare(before, after),
        metrics=metrics,
        sft_metrics=_curves(store, "sft"),
        seconds=max((seconds for _, seconds in store.seconds()), default=0.0),
        success=cards.typical(True),
        failure=cards.typical(False),
        before_after=cards.before_after(),
        notes=[note for note in store.notes() if note.kind != SEAL],  # those are for `ferrata verify-audit`
        missing=[],
    )
    return msgspec.structs.replace(story, missing=list(_missing(story)))


class Cards:
    """Chooses the trajectories to show from the stored greedy evaluations, always the same ones."""

    def __init__(self, store: RunStore, start: str) -> None:
        self._start = start
        self._before, self._after = _evaluated(store, False), _evaluated(store, True)

    def typical(self, success: bool) -> Card | None:
        """The latest policy's success (or failure) nearest to the median number of turns.

        Among failures only those with the commonest stop reason count: a typical failure fails as most do.
        """
        latest = self._after or self._before
        chosen = {key: one for key, one in latest.items() if one.success is success}
        if not chosen:
            return None
        stop = Counter(one.stop for one in chosen.values()).most_common(1)[0][0]
        alike = {key: one for key, one in chosen.items() if one.stop == stop}
        middle = median(len(one.turns) for one in alike.values())
        identity = min(alike, key=lambda key: (abs(len(alike[key].turns) - middle), key))
        return Card("A typical success" if success else "A typical failure", identity, alike[identity])

    def before_after(self) -> tuple[Card, Card] | None:
        """The task that failed before RL and succeeds after it where the return rose most."""
        after = {one.task.fingerprint: (key, one) for key, one in self._after.items() if one.success}
        pairs = [
            ((key, one), after[one.task.fingerprint])
            for key, one in self._before.items()
            if one.success is False and one.task.fingerprint in after
        ]
        if not pairs:
            return None
        first, second = max(pairs, key=lambda pair: (_gain(pair[0][1], pair[1][1]), -pair[0][0]))
        return Card(upper_first(self._start), *first), Card("After RL", *second)


def reproduce_command(recipe: Recipe, path: Path) -> str:
    """The shell command that makes the same run: a shipped recipe with what differs from it, or the folder's own."""
    if recipe.name not in shipped_recipes():
        return f"ferrata train {shlex.quote(str(path / 'recipe.toml'))}"
    shipped, ours = flatten(load_recipe(recipe.name)), flatten(recipe)
    changed = [shlex.quote(f"{key}={as_toml(value)}") for key, value in ours.items() if shipped[key] != value]
    # The seed is always named: it is what a reader wants to change first.
    seed = [] if any(one.startswith("seed=") for one in changed) else [f"seed={recipe.seed}"]
    return " ".join(["ferrata train", recipe.name, *seed, *changed])


def _measurement(stage: str, step: int, content: dict[str, Any]) -> Measurement:
    return Measurement(stage, step if stage == "rl" else 0, decode(content))


def _last(measured: Sequence[Measurement], after: bool, decoding: str) -> EvaluationResult | None:
    """The last evaluation before or after RL; of several at the same update, the one on the most tasks."""
    chosen = [one for one in measured if (one.update > 0) is after and one.result.decoding == decoding]
    return max(chosen, key=lambda one: (one.update, one.result.n)).result if chosen else None


def _greedy_curve(measured: Iterable[Measurement]) -> list[Measurement]:
    largest: dict[int, Measurement] = {}
    for one in measured:
        held = largest.get(one.update)
        if one.result.decoding == "greedy" and (held is None or one.result.n >= held.result.n):
            largest[one.update] = one
    return [largest[update] for update in sorted(largest)]


def _compare(before: EvaluationResult | None, after: EvaluationResult | None) -> PairedComparison | None:
    if before is None or after is None or before.versions != after.versions:
        return None
    return compare_paired(before.outcomes, after.outcomes)


def _curves(store: RunStore, stage: str) -> dict[str, Curve]:
    return {name: store.metrics(name, stage) for name in store.metric_names(stage)}


def _evaluated(store: RunStore, after: bool) -> dict[int, Trajectory]:
    """The greedy evaluation episodes of the last step that was evaluated before or after RL, by id."""
    rows = [row for row in store.list_trajectories(split="eval") if (row.stage == "rl" and row.step > 0) is after]
    last = max((row.step for row in rows), default=0)
    stored = {row.id: store.trajectory(row.id) for row in rows if row.step == last}
    return {key: one for key, one in stored.items() if one.temperature == 0.0}


def _gain(before: Trajectory, after: Trajectory) -> float:
    return (after.reward or 0.0) - (before.reward or 0.0)


def _versions(path: Path) -> dict[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads((path / "versions.json").read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _missing(story: Story) -> Iterable[str]:
    done = max((step for curve in story.metrics.values() for step, _ in curve), default=0)
    planned = story.recipe.rl.updates if "rl" in story.recipe.stages else 0
    if done < planned:
        yield f"The run is not finished: {done} of {planned} RL updates are done. All figures are of the run so far."
    if story.before_rl is None:
        yield f"The policy was not evaluated {story.start}, so there is no starting point to compare with."
    if story.after_rl is None and planned:
        yield "The policy was not evaluated after RL yet, so whether RL helped is not known."
    elif story.sampled_rl is None and planned:
        yield "Sampled success after RL was not measured; only greedy success is shown."
    if story.before_rl and story.after_rl and story.comparison is None:
        yield f"The evaluations {story.start} and after RL used different task sets and are not compared task by task."
    if story.latest is None:
        yield "Nothing was evaluated on unseen tasks, so this report says nothing about how good the policy is."
    if story.latest and story.latest.unscored:
        yield f"{story.latest.unscored} of {story.latest.n} evaluation episodes could not be judged and are left out."
    yield from _missing_cards(story)


def _missing_cards(story: Story) -> Iterable[str]:
    if story.success is None:
        yield "No successful evaluation episode is stored to show."
    if story.failure is None and story.success is not None:
        yield "No failed evaluation episode is stored to show."
    if story.before_after is None and story.after_rl is not None:
        yield f"No stored task failed {story.start} and succeeds after RL, so there is no before and after to show."
