"""The report: what it says, what it admits not to know, and that nothing a model wrote can act in it."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from ferrata.envs.audit import SEAL
from ferrata.errors import RunFolderError
from ferrata.evaluation.results import encode, summarise
from ferrata.recipe_loading import load_recipe
from ferrata.records import StopReason, Trajectory
from ferrata.runs import Note, RunFolder
from ferrata.viewer.plots import Look, Series, interval_plot, line_plot, nice_ticks, number, stacked_plot
from ferrata.viewer.report import next_rung, render_report, verdict, write_report
from ferrata.viewer.story import Story, reproduce_command, start_of, tell

MakeTrajectory = Callable[..., Trajectory]
VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """The tags of a page, and whether they nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    RunFolder.create(load_recipe("office-quickstart", ["seed=3", "rl.updates=20"]), path).close()
    return path


@pytest.fixture
def evaluated(make_trajectory: MakeTrajectory) -> Callable[[int, float], list[Trajectory]]:
    """Twelve unseen tasks of two tiers, of which the first `solved` succeed."""

    def evaluated(solved: int, temperature: float = 0.0) -> list[Trajectory]:
        return [
            make_trajectory(
                key, key < solved, family="lookup" if key % 2 else "compare", tier=1 if key % 2 else 2,
                temperature=temperature, turns=3 + key % 3,
            )
            for key in range(12)
        ]  # fmt: skip

    return evaluated


def _add(run: Path, stage: str, step: int, kind: str, trajectories: Sequence[Trajectory]) -> None:
    result = summarise(trajectories, seed=7)
    with RunFolder.open(run) as folder:
        folder.store.add_evaluation(stage, step, kind, result.decoding, encode(result))
        if result.decoding == "greedy":
            folder.store.add_trajectories(stage, step, "eval", trajectories)


def _fill(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    """A finished run: 4 of 12 after SFT, 11 of 12 after RL."""
    _add(run, "sft", 300, "full", evaluated(4))
    _add(run, "rl", 10, "small", evaluated(8))
    _add(run, "rl", 20, "full", evaluated(11))
    _add(run, "rl", 20, "full", evaluated(9, temperature=1.0))
    with RunFolder.open(run) as folder:
        folder.store.add_metrics("sft", 1, {"sft/loss": 2.0, "time/learning": 5.0})
        for update in range(1, 21):
            folder.store.add_metrics("rl", update, _metrics(update))


def _metrics(update: int) -> dict[str, float]:
    share = update / 20
    return {
        "reward/safety": 0.0, "stop/forbidden": 0.0,
        "rollout/reward": 5 * share, "rollout/turns": 9 - 5 * share, "reward/outcome": 5 * share, "reward/process": 0.1,
        "stop/completed": share, "stop/max_turns": 1 - share, "groups/mixed": 0.5, "groups/all_good": 0.3,
        "groups/all_bad": 0.2, "rl/entropy": 0.4 - 0.2 * share, "rl/kl": 0.01 * share, "rl/clip_fraction": 0.02,
        "time/sampling": 2.0, "time/learning": 1.0,
    }  # fmt: skip


def _story(run: Path) -> Story:
    with RunFolder.open(run) as folder:
        return tell(folder)


# What it says -----------------------------------------------------------------------------------------------


def test_seals_of_the_audit_log_are_no_story(run: Path) -> None:
    with RunFolder.open(run, writing=True) as folder:
        folder.store.add_note("sft", 0, SEAL, "1.4cf1b0a6d1c2e3f4")
        folder.store.add_note("sft", 1, "rewards", "A phase has begun.")
        assert [note.text for note in tell(folder).notes] == ["A phase has begun."]
        assert "1.4cf1b0a6d1c2e3f4" not in render_report(tell(folder))


def test_a_finished_run_tells_the_whole_story(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _fill(run, evaluated)
    html = write_report(run).read_text()
    assert "On 12 unseen tasks, greedy success rose from 33% (14–61) after SFT to 92% (65–99) after RL." in html
    assert "7 were gained and 0 lost: more than noise (exact McNemar test, p = 0.016)" in html
    assert "What this report cannot say" not in html
    headings = ["By family", "Why episodes ended", "Where the time went", "Groups with and without spread"]
    headings += ["The same task before and after", "The resolved recipe", "ferrata train office-quickstart"]
    assert [heading for heading in headings if heading not in html] == []
    assert html.count("A typical success") == html.count("A typical failure") == 1


def test_the_curve_takes_the_largest_greedy_evaluation_of_each_update(
    run: Path, evaluated: Callable[..., list[Trajectory]]
) -> None:
    _fill(run, evaluated)
    _add(run, "rl", 20, "small", evaluated(2)[:6])
    curve = [(point.update, point.result.success.count, point.result.n) for point in _story(run).curve]
    assert curve == [(0, 4, 12), (10, 8, 12), (20, 11, 12)]


def test_the_ladder_tells_its_whole_story(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _fill(run, evaluated)
    assert 'id="ladder"' not in render_report(_story(run))
    with RunFolder.open(run, writing=True) as folder:
        for update in range(1, 9):
            folder.store.add_metrics("rl", update, {"ladder/rung": float(update > 4), "ladder/turn_cap": 30.0})
        folder.store.add_note("rl", 4, "ladder", "Promoted: success on tier 1 was over 40% in 2 evaluations running.")
        folder.store.add_note("rl", 6, "other", "Something else.")
    page = render_report(_story(run))
    ladder, rest = page.split('id="ladder"')[1].split("</section>", 1)
    assert "Update 4: Promoted: success on tier 1" in ladder
    assert "From 0 to 1." in ladder
    assert "Promoted" not in rest
    assert "Something else." in rest


def test_a_ladder_that_stands_still_says_what_it_waits_for(
    run: Path, evaluated: Callable[..., list[Trajectory]]
) -> None:
    _fill(run, evaluated)
    with RunFolder.open(run, writing=True) as folder:
        for update in range(1, 21):
            folder.store.add_metrics("rl", update, {"ladder/rung": 0.0, "ladder/turn_cap": 30.0})
    story = _story(run)
    waits = (
        "Tier 2 opens when greedy success on tier 1 is over 40% in 2 small evaluations running and no open tier has "
        "collapsed; it was 67% (30–90) at update 10."
    )
    assert next_rung(story) == waits
    assert waits in render_report(story)
    scheduled = load_recipe("office-quickstart", ["ladder.schedule=[9]"])
    assert next_rung(msgspec.structs.replace(story, recipe=scheduled)) == "", "a schedule waits for nothing"
    assert next_rung(msgspec.structs.replace(story, metrics={})) == "", "no ladder"
    climbed = {"ladder/rung": [(20, 1.0)]}
    assert next_rung(msgspec.structs.replace(story, metrics=climbed)) == "", "all tiers are open"
    moved = [Note("rl", 20, 0.0, "ladder", "Promoted: and so on.")]
    assert next_rung(msgspec.structs.replace(story, notes=moved)) == "", "where it stands now, no update has recorded"
    capped = [Note("rl", 20, 0.0, "ladder", "Turn cap: and so on.")]
    assert next_rung(msgspec.structs.replace(story, notes=capped)) == waits
    earlier = [Note("rl", 19, 0.0, "ladder", "Fell back: and so on.")]
    assert next_rung(msgspec.structs.replace(story, notes=earlier)) == waits
    ahead = load_recipe("office-quickstart", ["rl.updates=20", "rl.staleness=1"])
    assert next_rung(msgspec.structs.replace(story, notes=earlier, recipe=ahead)) == "", "it was played before the move"
    one = load_recipe("office-quickstart", ["rl.updates=20", "ladder.evaluations=1"])
    assert "over 40% in a small evaluation and" in next_rung(msgspec.structs.replace(story, recipe=one))


@pytest.mark.parametrize(
    ("overrides", "start"),
    [
        ([], "after SFT"),
        (['stages=["sft"]'], "after SFT"),
        (['stages=["rl"]'], "before RL"),
        (["sft.updates=0"], "before RL"),
    ],
)
def test_the_point_that_rl_starts_from_is_called_what_it_is(overrides: list[str], start: str) -> None:
    assert start_of(load_recipe("office-quickstart", overrides)) == start


def test_without_sft_the_story_begins_with_what_rl_started_from(
    tmp_path: Path, evaluated: Callable[..., list[Trajectory]]
) -> None:
    run = tmp_path / "more"
    RunFolder.create(load_recipe("office-quickstart", ['stages=["rl"]', "rl.updates=20"]), run).close()
    _add(run, "rl", 0, "full", evaluated(4))
    _add(run, "rl", 0, "full", evaluated(3, temperature=1.0))
    _add(run, "rl", 20, "full", evaluated(11))
    story = _story(run)
    html = render_report(story)
    assert "On 12 unseen tasks, greedy success rose from 33% (14–61) before RL to 92% (65–99) after RL." in html
    assert story.before_after is not None
    assert [card.title for card in story.before_after] == ["Before RL", "After RL"]
    assert "Before RL 33% (14–61), after RL 92% (65–99)" in html
    assert "after SFT" not in html
    assert story.comparison is not None
    assert story.sampled_before_rl is not None


@pytest.mark.parametrize(
    ("algorithm", "caption"), [("grpo", "Only mixed groups teach"), ("ppo", "Every group teaches")]
)
def test_what_groups_are_worth_depends_on_the_algorithm(
    tmp_path: Path, evaluated: Callable[..., list[Trajectory]], algorithm: str, caption: str
) -> None:
    run = tmp_path / "run"
    RunFolder.create(load_recipe("office-quickstart", [f"rl.algorithm={algorithm}", "rl.updates=20"]), run).close()
    _fill(run, evaluated)
    html = render_report(_story(run))
    assert caption in html
    assert ("Only mixed groups teach" in html) + ("Every group teaches" in html) == 1


def test_what_never_happened_is_not_plotted(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _fill(run, evaluated)
    html = write_report(run).read_text()
    assert ">Outcome<" in html
    assert ">Safety<" not in html
    assert ">max turns<" in html
    assert ">forbidden<" not in html
    optional = ("Value error", "Replaced groups", "Replay pool", "Older data", "Importance weight")
    assert [title for title in optional if title in html] == []
    with RunFolder.open(run, writing=True) as folder:
        folder.store.add_metrics("rl", 20, {"pool/size": 12.0, "rl/stale_share": 0.25, "groups/replaced": 0.0})
    html = write_report(run).read_text()
    assert [title for title in optional if title in html] == ["Replay pool", "Older data"]


def test_before_and_after_is_a_task_that_was_gained(run: Path, make_trajectory: MakeTrajectory) -> None:
    clumsy = make_trajectory(0, True, turns=40, invalid=40)  # its return rises more, but it succeeded before
    _add(run, "sft", 1, "full", [clumsy, make_trajectory(1, False), make_trajectory(2, False, invalid=1)])
    _add(run, "rl", 20, "full", [make_trajectory(key, True) for key in range(3)])
    pair = _story(run).before_after
    assert pair is not None
    before, after = (card.trajectory for card in pair)
    assert before.task.fingerprint == after.task.fingerprint == make_trajectory(2).task.fingerprint
    assert (before.success, after.success) == (False, True)


def test_a_typical_failure_fails_as_most_do(run: Path, make_trajectory: MakeTrajectory) -> None:
    cut = [make_trajectory(key, False, turns=turns, stop=StopReason.MAX_TURNS) for key, turns in enumerate((4, 6, 9))]
    _add(run, "sft", 1, "full", [make_trajectory(7, False, turns=1), *cut])
    card = _story(run).failure
    assert card is not None
    assert (card.trajectory.stop, len(card.trajectory.turns)) == (StopReason.MAX_TURNS, 6)


def test_different_task_sets_are_not_compared(
    run: Path, make_trajectory: MakeTrajectory, evaluated: Callable[..., list[Trajectory]]
) -> None:
    _add(run, "sft", 1, "full", evaluated(4))
    _add(run, "rl", 20, "full", [make_trajectory(key, True) for key in range(5, 20)])
    story = _story(run)
    assert story.comparison is None
    assert any("different task sets" in sentence for sentence in story.missing)
    assert "Task by task" not in verdict(story)


def test_a_small_difference_is_called_noise(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _add(run, "sft", 1, "full", evaluated(6))
    _add(run, "rl", 20, "full", evaluated(7))
    assert "not distinguishable from noise" in verdict(_story(run))


def test_a_fall_is_called_a_fall(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _add(run, "sft", 1, "full", evaluated(9))
    _add(run, "rl", 20, "full", evaluated(2))
    assert "greedy success fell from 75%" in verdict(_story(run))


def test_the_command_reproduces_the_recipe(run: Path) -> None:
    with RunFolder.open(run) as folder:
        command = reproduce_command(folder.recipe, folder.path)
        program, verb, name, *overrides = shlex.split(command)
        assert (program, verb) == ("ferrata", "train")
        assert load_recipe(name, overrides) == folder.recipe


@pytest.mark.parametrize(
    "override",
    [
        "rl.channels.apart=true",
        "rl.value.warmup=3",
        "env.faults.timeout=0.25",
        'env.faults.missing={read_file=0.5, "*"=0.125}',
        'rewards.phases=[{name="late", from_update=2, process=0.1}, {name="later", from_update=3, success=6.0}]',
        'env.families=["report", "approval"]',
        "description='it\\'s \"quoted\"'",
        "rl.kl=0.0",
    ],
)
def test_every_kind_of_setting_is_in_the_command(tmp_path: Path, override: str) -> None:
    recipe = load_recipe("office-smoke", [override.replace("\\'", "’")])
    assert recipe != load_recipe("office-smoke")
    _, _, name, *overrides = shlex.split(reproduce_command(recipe, tmp_path))
    assert load_recipe(name, overrides) == recipe


# What it does not know --------------------------------------------------------------------------------------


def test_an_empty_run_admits_that_it_knows_nothing(run: Path) -> None:
    html = write_report(run).read_text()
    Page(html)
    assert "Nothing was evaluated on unseen tasks yet." in html
    assert "The run is not finished: 0 of 20 RL updates are done." in html
    assert "says nothing about how good the policy is" in html


def test_a_run_that_stopped_after_sft_claims_nothing_about_rl(
    run: Path, evaluated: Callable[..., list[Trajectory]]
) -> None:
    _add(run, "sft", 300, "full", evaluated(4))
    html = write_report(run).read_text()
    assert "After SFT the policy solves 33% (14–61) of 12 unseen tasks" in html
    assert "whether RL helped is not known" in html
    assert "rose from" not in html


def test_unscored_episodes_are_reported(run: Path, make_trajectory: MakeTrajectory) -> None:
    broken = make_trajectory(9, None, stop=StopReason.ENV_ERROR)
    _add(run, "sft", 1, "full", [make_trajectory(0), make_trajectory(1, False), broken])
    assert "1 of 3 evaluation episodes could not be judged and are left out." in _story(run).missing


# Safety and form --------------------------------------------------------------------------------------------

HOSTILE = '</div></style><script>alert(1)</script><img src=x onerror="alert(2)"><svg onload=alert(3)> {{ 7*7 }} \x1b[2J'


def test_what_a_model_wrote_cannot_act(run: Path, make_trajectory: MakeTrajectory) -> None:
    hostile = [make_trajectory(key, key < 2, family=f"f{HOSTILE}", text=HOSTILE) for key in range(4)]
    _add(run, "sft", 1, "full", hostile)
    with RunFolder.open(run) as folder:
        folder.store.add_note("sft", 1, "alarm", HOSTILE)
        folder.store.add_metrics("rl", 1, {f"reward/{HOSTILE}": 1.0, f"stop/{HOSTILE}": 1.0})
    html = write_report(run).read_text()
    page = Page(html)
    assert page.attributes("script") == page.attributes("img") == []
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert html.count("<style>") == html.count("</style>") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "{{ 7*7 }}" in html
    assert "\x1b" not in html
    assert "⟨ESC⟩[2J" in html


def test_the_page_asks_nobody_for_anything(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _fill(run, evaluated)
    html = write_report(run).read_text()
    page = Page(html)
    # The judge's address is a setting that the page shows as text.
    assert not re.search(r"https?://(?!127\.0\.0\.1)|url\(|@import", html)
    references = [attributes[key] for _, attributes in page.tags for key in ("src", "href") if attributes.get(key)]
    assert all(reference and reference.startswith(("#", "data:")) for reference in references)
    policy = [one["content"] for one in page.attributes("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_the_page_can_be_read_out(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _fill(run, evaluated)
    html = write_report(run).read_text()
    page = Page(html)
    plots = page.attributes("svg")
    identities = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(plots) > 15
    assert len(identities) == len(set(identities))
    for plot in plots:
        assert plot["role"] == "img"
        assert set((plot["aria-labelledby"] or "").split()) <= set(identities)
    assert all(attributes.get("scope") for attributes in page.attributes("th"))
    assert page.attributes("html") == [{"lang": "en"}]
    assert "prefers-color-scheme: dark" in html


def test_the_same_story_gives_the_same_bytes(run: Path, evaluated: Callable[..., list[Trajectory]]) -> None:
    _fill(run, evaluated)
    assert render_report(_story(run)) == render_report(_story(run))


def test_a_failed_write_leaves_the_old_report(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = write_report(run)
    with RunFolder.open(run) as folder:
        folder.store.add_note("rl", 1, "alarm", "a newer story")
    before, files = report.read_text(), sorted(os.listdir(run))

    def refuse(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ferrata.viewer.report.os.replace", refuse)
    with pytest.raises(RunFolderError, match=r"cannot be written.*No space left"):
        write_report(run)
    assert report.read_text() == before
    assert sorted(os.listdir(run)) == files


# Plots ------------------------------------------------------------------------------------------------------

LOOK = Look("A title", "A description", 480, 260)


def _heights(svg: Markup, css: str) -> list[float]:
    points = re.search(rf'class="{css}" points="([^"]*)"', svg)
    assert points is not None
    return [float(pair.split(",")[1]) for pair in points[1].split()]


def test_a_rising_line_rises_on_the_page() -> None:
    heights = _heights(line_plot([Series("up", [(0, 1.0), (1, 2.0), (2, 4.0)])], LOOK), "line s1")
    assert heights == sorted(heights, reverse=True)
    assert heights[0] - heights[1] == pytest.approx((heights[1] - heights[2]) / 2, abs=0.2)


def test_the_band_encloses_the_line() -> None:
    svg = line_plot([Series("rate", [(0, 0.5), (9, 0.9)], [(0, 0.4, 0.6), (9, 0.8, 0.95)])], LOOK)
    line, band = _heights(svg, "line s1"), _heights(svg, "band s1")
    assert band[0] < line[0] < band[3]
    assert band[1] < line[1] < band[2]


def test_what_is_not_finite_is_left_out() -> None:
    svg = line_plot([Series("gap", [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)])], LOOK)
    assert len(_heights(svg, "line s1")) == 2
    assert "nan" not in svg
    assert line_plot([Series("nothing", [(0, math.nan)])], LOOK) == ""


@pytest.mark.parametrize("points", [[(5, 0.0)], [(5, 3.0)], [(0, 2.0), (1, 2.0)], [(0, -1e-9), (1, 1e9)]])
def test_flat_single_and_extreme_curves_are_drawn(points: list[tuple[float, float]]) -> None:
    svg = line_plot([Series("odd", points)], LOOK)
    assert all(math.isfinite(height) and 0 <= height <= 260 for height in _heights(svg, "line s1"))


def test_stacked_parts_fill_the_plot() -> None:
    svg = stacked_plot([1, 2], {"a": [1.0, 3.0], "b": [3.0, 1.0]}, LOOK, ["s1", "s2"])
    lower, upper = _heights(svg, "area s1"), _heights(svg, "area s2")
    assert upper[:2] == [12.0, 12.0]
    assert upper[2:] == lower[1::-1]
    assert lower[2:] == [220.0, 220.0]


def test_a_step_without_any_part_is_drawn_empty() -> None:
    assert "nan" not in stacked_plot([1, 2], {"a": [0.0, 1.0]}, LOOK, ["s1"])


def test_plots_escape_their_words() -> None:
    look = LOOK._replace(title="<b>", description='"&')
    svg = line_plot([Series("<i>", [(0, 1.0), (1, 2.0)])], look) + interval_plot([(0.5, 0.4, 0.6, "s1")], look)
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert "&lt;b&gt;" in svg


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.08, 0.08000000000000002), (0.0, 1e-13), (0.0, 5e-324), (1e-7, 1.1e-7), (0.0, 0.0), (-3.0, -3.0)],
)
def test_hardly_any_spread_still_makes_an_axis(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert len(set(ticks)) == len(ticks) > 1
    assert ticks[0] <= low <= high <= ticks[-1]
    line_plot([Series("curve", [(0, low), (1, high)])], LOOK)


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_even_and_cover_the_range(low: float, width: float) -> None:
    high = low + width
    ticks = nice_ticks(low, high)
    slack = 1e-6 * max(abs(low), abs(high), width)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= 7


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [(0.0, False, "0"), (-0.05, False, "−0.05"), (1234.5, False, "1,234"), (1.2e-5, False, "1.2e−05"),
     (0.925, True, "92.5%"), (1.0, True, "100%"), (math.nan, False, "–")],
)  # fmt: skip
def test_numbers_in_print(value: float, percent: bool, text: str) -> None:
    assert number(value, percent) == text
