"""From a story to its figures: which metric is drawn how, with legend and numbers to read out.

    success_figure      success on unseen tasks over updates, with its interval
    family_rows         the table by family, each with a small plot of its intervals
    reward_figures      one small plot for each reward component
    behaviour_figures   turns, invalid actions, speed
    stop_figure         why episodes ended
    time_figure         where the time went
    ladder_figures      rung, turn cap, success of each tier
    health_figures      entropy, KL, clipping, groups without spread; pool and value head where they are used

A figure whose metric was not recorded is left out, or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from markupsafe import Markup

from ferrata.evaluation.results import EvaluationResult, Rate
from ferrata.viewer.plots import (
    Look,
    Part,
    Series,
    interval_plot,
    line_plot,
    number,
    series_class,
    share_bar,
    stacked_plot,
)
from ferrata.viewer.story import Curve, Story, upper_first

_STOP_CLASS = {"completed": "s3", "submitted": "s2", "max_turns": "s7", "max_tokens": "s4", "context_overflow": "s8"}
"""Faults and forbidden operations share the remaining two."""
_GROUP_NAMES = {"groups/mixed": "mixed", "groups/all_good": "all good", "groups/all_bad": "all bad"}
_TIME_NAMES = ("sampling", "environment", "learning", "evaluation")

_LADDER = {
    "ladder/rung": ("Rung", "How many tiers were added to the first.", False),
    "ladder/turn_cap": ("Turn cap", "Most turns of a training episode; a task's own cap applies as well.", False),
}
_BEHAVIOUR = {
    "rollout/success": ("Success while practising", "Share of sampled training episodes that succeed.", True),
    "rollout/turns": ("Turns per episode", "Mean turns of a training episode.", False),
    "rollout/invalid_share": ("Invalid actions", "Share of turns whose action was malformed or refused.", True),
    "rollout/tokens_per_second": ("Speed", "Sampled tokens per second while collecting.", False),
}
_HEALTH = {
    "rl/entropy": ("Entropy", "Mean entropy of the policy at sampled tokens (nats). Near 0, exploration has ended."),
    "rl/kl": ("KL to the reference", "How far the policy has moved from its start (nats per token)."),
    "rl/clip_fraction": ("Clip fraction", "Share of tokens whose probability ratio was clipped."),
    "rl/grad_norm": ("Gradient norm", "Before clipping."),
    "rl/logprob_gap": ("Sampler-learner gap", "Mean difference of log-probabilities of the same tokens (nats)."),
    "rl/loss": ("Loss", "The surrogate's value; its level means little, its jumps do."),
}
_WHERE_USED = {
    "rl/value_error": ("Value error", "Mean distance of the value head from its targets, in units of reward."),
    "groups/replaced": ("Replaced groups", "Played without spread, and replaced by fresh ones."),
    "pool/size": ("Replay pool", "Trajectories in the pool after the update."),
    "rl/stale_share": ("Older data", "Share of the trained examples that older weights sampled."),
    "rl/importance_weight": ("Importance weight", "Mean truncated weight of tokens that older weights sampled."),
}
"""Plotted only where they were ever different from 0."""
_SFT = {
    "sft/loss": ("SFT loss", "Cross-entropy of the demonstrations' tokens (nats)."),
    "sft/token_accuracy": ("SFT token accuracy", "Share of the demonstrations' tokens that are the likeliest one."),
}


class Figure(msgspec.Struct, frozen=True):
    """A plot and what stands around it."""

    title: str
    caption: str
    svg: Markup
    narrow: Markup = Markup("")
    """The same plot for a phone, where the wide one would be too small to read."""
    legend: Sequence[tuple[str, str]] = ()
    """(name, class) of each series; empty where the title says it all."""
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    """The plot's numbers, for those who cannot see it."""


class FamilyRow(msgspec.Struct, frozen=True):
    """One line of the table by family."""

    family: str
    tier: int | None
    """None in the row for all tiers."""
    total: bool
    """The row sums up other rows."""
    n: int
    before: Rate | None
    after: Rate | None
    sampled: Rate | None
    svg: Markup


def success_figure(story: Story) -> Figure | None:
    """Greedy success on unseen tasks: all tiers with the Wilson band, and each tier as a line."""
    if not story.curve:
        return None
    series = [_overall(story), *_tiers(story)]
    last = story.curve[-1].result.success
    description = (
        f"Greedy success on unseen tasks at {len(story.curve)} points, from update {story.curve[0].update} to "
        f"{story.curve[-1].update}. It ends at {percent(last)}."
    )
    look = Look("Success on unseen tasks", description, 1000, 340, percent=True, y_range=(0.0, 1.0), markers=True)
    return Figure(
        title="Greedy success by update",
        caption=f"Update 0 is the policy {story.start}. The band is the 95% Wilson interval over all tasks.",
        svg=line_plot(series, look),
        narrow=line_plot(series, look._replace(width=400, height=280)),
        legend=[(one.name, one.css) for one in series] if len(series) > 1 else [],
        headers=["update", "tasks", *(one.name for one in series)],
        rows=[_success_row(point.update, point.result, _tiers_of(story)) for point in story.curve],
    )


def family_rows(story: Story) -> list[FamilyRow]:
    """One row for each family; with several tiers also a row for each tier and one for all."""
    results = (story.before_rl, story.after_rl, story.sampled_rl or story.sampled_before_rl)
    keys = sorted({(one.tier, one.family) for result in results if result for one in result.by_family})
    rows = [
        _family_row(story.start, family, tier, [_of_family(one, tier, family) for one in results])
        for tier, family in keys
    ]
    tiers = sorted({tier for tier, _ in keys})
    for tier in tiers if len(tiers) > 1 else []:
        rates = [result.by_tier.get(tier) if result else None for result in results]
        rows.append(_family_row(story.start, f"all of tier {tier}", tier, rates, total=True))
    if rows:
        all_tasks = [result.success if result else None for result in results]
        rows.append(_family_row(story.start, "all", None, all_tasks, total=True))
    return rows


def reward_figures(story: Story) -> list[Figure]:
    """The mean return, then one small plot for each component, largest first: their scales differ too much for one."""
    components = sorted(f"reward/{name}" for name in _seen(story, "reward/"))
    components.sort(key=lambda name: -max(abs(value) for _, value in story.metrics[name]))
    return [
        figure
        for name in ["rollout/reward", *components]
        if (figure := _small(name, _reward_title(name), "", story.metrics.get(name, [])))
    ]


def behaviour_figures(story: Story) -> list[Figure]:
    """How the agent behaves while it practises."""
    drawn = [
        _small(name, title, caption, story.metrics.get(name, []), shares)
        for name, (title, caption, shares) in _BEHAVIOUR.items()
    ]
    return [figure for figure in drawn if figure]


def ladder_figures(story: Story) -> list[Figure]:
    """Where the ladder stood, and success of the tiers that were open; empty without a ladder."""
    if "ladder/rung" not in story.metrics:
        return []
    tiers = {
        f"rollout/success_tier_{tier}": (f"Success in training, tier {tier}", "Share of sampled episodes.", True)
        for tier in sorted(story.recipe.env.tiers)
    }
    drawn = [
        _small(name, title, caption, story.metrics.get(name, []), shares)
        for name, (title, caption, shares) in (_LADDER | tiers).items()
    ]
    return [figure for figure in drawn if figure]


def health_figures(story: Story) -> list[Figure]:
    """Signs of a policy that is collapsing, drifting, or not learning."""
    curves, used = story.metrics | story.sft_metrics, _seen(story, "")
    shown = _HEALTH | {name: words for name, words in _WHERE_USED.items() if name in used} | _SFT
    drawn = [_small(name, title, caption, curves.get(name, [])) for name, (title, caption) in shown.items()]
    groups = {label: story.metrics[name] for name, label in _GROUP_NAMES.items() if name in story.metrics}
    caption = _GROUPS_CAPTION if story.recipe.rl.by_group else _GROUPS_ASIDE
    stack = _stack("Groups with and without spread", caption, groups, ["s1", "s3", "s2"], narrow=True)
    return [figure for figure in [*drawn[:3], stack, *drawn[3:]] if figure]


_GROUPS_CAPTION = "Only mixed groups teach: where all succeed or all fail alike there is nothing to compare."
_GROUPS_ASIDE = "Every group teaches: episodes are compared with values or with the batch, not with their group."


def stop_figure(story: Story) -> Figure | None:
    """Why training episodes ended, as shares of each update."""
    curves = _seen(story, "stop/")
    ordered = sorted(curves, key=lambda name: (list(_STOP_CLASS).index(name) if name in _STOP_CLASS else 99, name))
    colours = [_STOP_CLASS.get(name, "s5" if name == "forbidden" else "s6") for name in ordered]
    caption = "Completed: the task was done. Submitted: the agent handed in something that was not a success."
    named = {name.replace("_", " "): curves[name] for name in ordered}
    return _stack("Why episodes ended", caption, named, colours)


def time_figure(story: Story) -> Figure | None:
    """Where the wall time went, over all stages."""
    seconds = {name: _total(story, f"time/{name}") for name in _TIME_NAMES}
    parts = [Part(name, value, series_class(i)) for i, (name, value) in enumerate(seconds.items()) if value > 0.0]
    whole = sum(part.value for part in parts)
    words = [f"{part.name} {part.value / whole:.0%}" for part in parts]
    svg = share_bar(parts, Look("Where the time went", ", ".join(words), 1000, 34))
    if not svg:
        return None
    return Figure(
        title="Where the time went",
        caption=f"{duration(whole)} measured in all.",
        svg=svg,
        legend=[(f"{part.name} {duration(part.value)} ({part.value / whole:.0%})", part.css) for part in parts],
    )


def percent(rate: Rate | None) -> str:
    """'93% (89–96)', or a dash where nobody knows."""
    return f"{share(rate)} {interval(rate)}".strip()


def share(rate: Rate | None) -> str:
    """'93%', or a dash where nobody knows."""
    return f"{100 * rate.share:.0f}%" if rate and rate.n else "–"


def interval(rate: Rate | None) -> str:
    """The 95% interval in per cent: '(89–96)'; empty where nobody knows."""
    return f"({100 * rate.low:.0f}–{100 * rate.high:.0f})" if rate and rate.n else ""


def duration(seconds: float) -> str:
    """'4 min 05 s', '12.3 s' or '2 h 10 min'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _overall(story: Story) -> Series:
    rates = [(point.update, point.result.success) for point in story.curve]
    band = [(update, rate.low, rate.high) for update, rate in rates]
    return Series("all tasks", [(update, rate.share) for update, rate in rates], band, "s1 strong")


def _tiers(story: Story) -> list[Series]:
    return [
        Series(f"tier {tier}", _tier_points(story, tier), css=f"{series_class(index + 1)} dashed")
        for index, tier in enumerate(_tiers_of(story))
    ]


def _tiers_of(story: Story) -> list[int]:
    """The tiers that are shown apart; none where there is only one."""
    tiers = sorted({tier for point in story.curve for tier in point.result.by_tier})
    return tiers if len(tiers) > 1 else []


def _tier_points(story: Story, tier: int) -> list[tuple[float, float]]:
    return [(p.update, p.result.by_tier[tier].share) for p in story.curve if tier in p.result.by_tier]


def _success_row(update: int, result: EvaluationResult, tiers: Sequence[int]) -> list[str]:
    by_tier = [percent(result.by_tier[tier]) if tier in result.by_tier else "–" for tier in tiers]
    return [str(update), str(result.scored), percent(result.success), *by_tier]


def _of_family(result: EvaluationResult | None, tier: int, family: str) -> Rate | None:
    found = [one.success for one in result.by_family if (one.tier, one.family) == (tier, family)] if result else []
    return found[0] if found else None


def _family_row(
    start: str, family: str, tier: int | None, rates: Sequence[Rate | None], total: bool = False
) -> FamilyRow:
    before, after, sampled = rates
    marks = [(rate.share, rate.low, rate.high, css) for rate, css in ((before, "s6"), (after, "s1")) if rate and rate.n]
    words = f"{upper_first(start)} {percent(before)}, after RL {percent(after)}"
    look = Look(f"Success on {family}, tier {tier or 'any'}", words, 170, 34)
    n = max((rate.n for rate in (after, before, sampled) if rate), default=0)
    return FamilyRow(family, tier, total, n, before, after, sampled, interval_plot(marks, look))


def _small(name: str, title: str, caption: str, curve: Curve, as_percent: bool = False) -> Figure | None:
    """A small plot of one metric."""
    if not curve:
        return None
    first, last = number(curve[0][1], as_percent), number(curve[-1][1], as_percent)
    label = "step" if name.startswith("sft/") else "update"
    look = Look(title, f"{caption} From {first} to {last}.".strip(), 280, 175, percent=as_percent, x_label=label)
    return Figure(
        title=title,
        caption=caption,
        svg=line_plot([Series(title, curve)], look),
        headers=[label, title.lower()],
        rows=[[str(step), number(value, as_percent)] for step, value in curve],
    )


def _stack(
    title: str, caption: str, curves: dict[str, Curve], colours: Sequence[str], narrow: bool = False
) -> Figure | None:
    """A stacked plot of curves that share their steps; a step missing from one counts as 0 there."""
    steps = sorted({step for curve in curves.values() for step, _ in curve})
    if not steps:
        return None
    tables = {name: dict(curve) for name, curve in curves.items()}
    parts = {name: [table.get(step, 0.0) for step in steps] for name, table in tables.items()}
    size = (280, 175) if narrow else (1000, 260)
    look = Look(title, f"Shares of {', '.join(parts)} over updates.", *size)
    css = list(colours[: len(parts)])
    return Figure(
        title=title,
        caption=caption,
        svg=stacked_plot(steps, parts, look, css),
        narrow=Markup("") if narrow else stacked_plot(steps, parts, look._replace(width=400, height=240), css),
        legend=list(zip(parts, css, strict=True)),
        headers=["update", *parts],
        rows=[[str(step), *(number(values[i]) for values in parts.values())] for i, step in enumerate(steps)],
    )


def _seen(story: Story, prefix: str) -> dict[str, Curve]:
    """The RL metrics of a namespace that were ever different from 0, by the rest of their name."""
    found = {name: curve for name, curve in story.metrics.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): curve for name, curve in found.items() if any(value for _, value in curve)}


def _total(story: Story, name: str) -> float:
    curves: Iterable[Curve] = (story.metrics.get(name, []), story.sft_metrics.get(name, []))
    return sum(value for curve in curves for _, value in curve)


def _reward_title(name: str) -> str:
    return "Return" if name == "rollout/reward" else name.removeprefix("reward/").replace("_", " ").capitalize()
