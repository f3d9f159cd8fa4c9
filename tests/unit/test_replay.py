"""Trajectories in the terminal: everything is there, exactly, and nothing that a model wrote is obeyed."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ferrata.errors import RunFolderError, UnknownNameError
from ferrata.recipe_loading import load_recipe
from ferrata.records import Event, EventKind, Trajectory
from ferrata.runs import RunFolder
from ferrata.viewer.replay import show_list, show_trajectory
from ferrata.viewer.text import describe_event, split_action, visible

MakeTrajectory = Callable[..., Trajectory]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    RunFolder.create(load_recipe("office-smoke"), path).close()
    return path


def _store(run: Path, *trajectories: Trajectory) -> None:
    with RunFolder.open(run) as folder:
        folder.store.add_trajectories("rl", 3, "eval", trajectories)


def _printed(show: Callable[..., None], *arguments: object, **options: object) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    show(console, *arguments, **options)
    text = console.file.getvalue()
    assert isinstance(text, str)
    return text


def test_a_trajectory_is_shown_turn_by_turn(run: Path, make_trajectory: MakeTrajectory) -> None:
    _store(run, make_trajectory(5, False, family="mail", tier=2, turns=2, invalid=1))
    text = _printed(show_trajectory, run, "1")
    expected = ["office / mail, tier 2, split eval", "✘ failure", "version 4, greedy, seed 9"]
    expected += ["Turn 1", "seen 0", "invalid: malformed_json", "efficiency -0.01  invalid -0.20  = -0.21"]
    expected += ["Turn 2", "seen 1", 'Thinking. {"action": "read_file"', "0.500 s for 3 tokens, 1.00 ms environment"]
    expected += ["the end", "outcome -1.00  = -1.22", "2 turns, 20 tokens of which 10 sampled"]
    assert [words for words in expected if words not in text] == []


def test_what_a_model_wrote_is_shown_exactly(run: Path, make_trajectory: MakeTrajectory) -> None:
    hostile = "[bold]not bold[/bold] [/] :smile: \x1b[2J\x07 \u202eright to left [link=http://x]y[/link]"
    _store(run, make_trajectory(0, text=hostile, family="[red]lookup"))
    text = _printed(show_trajectory, run, "1")
    assert "[bold]not bold[/bold] [/] :smile: ⟨ESC⟩[2J⟨U+0007⟩ ⟨U+202E⟩right to left [link=http://x]y[/link]" in text
    assert "\x1b" not in text
    assert "[red]lookup" in text
    assert "[red]lookup" in _printed(show_list, run)


def test_an_unscored_trajectory_says_so(run: Path, make_trajectory: MakeTrajectory) -> None:
    _store(run, make_trajectory(0, None))
    text = _printed(show_trajectory, run, "1")
    assert "? unscored" in text
    assert "+0.00" not in text


def test_the_list_shows_every_column(run: Path, make_trajectory: MakeTrajectory) -> None:
    _store(run, make_trajectory(0, True), make_trajectory(1, False, family="mail", tier=2))
    lines = _printed(show_list, run).splitlines()
    assert [cell.strip() for cell in lines[3].strip("│").split("│")] == [
        "1", "rl", "3", "eval", "lookup", "1", "✔ success", "+4.97", "3", "completed",
    ]  # fmt: skip
    assert "mail" in lines[4]
    assert "✘ failure" in lines[4]


def test_the_list_is_filtered_and_cut_to_the_newest(run: Path, make_trajectory: MakeTrajectory) -> None:
    _store(run, *(make_trajectory(key, key % 2 == 0) for key in range(10)))
    text = _printed(show_list, run, success=False, limit=2)
    assert text.count("✘ failure") == 2
    assert "✔" not in text
    assert "2 of 5, newest last" in text
    assert " 10 " in text


@pytest.mark.parametrize(
    ("identity", "error", "sentence"),
    [
        ("99", RunFolderError, "There is no trajectory 99"),
        ("best", UnknownNameError, "'best' is not a trajectory"),
        ("-1", UnknownNameError, "'-1' is not a trajectory"),
        ("²", UnknownNameError, "'²' is not a trajectory"),
    ],
)
def test_an_unknown_id_is_one_sentence(
    run: Path, make_trajectory: MakeTrajectory, identity: str, error: type[Exception], sentence: str
) -> None:
    _store(run, make_trajectory(0))
    with pytest.raises(error, match=sentence):
        _printed(show_trajectory, run, identity)


def test_an_unknown_family_gets_the_nearest_name(run: Path, make_trajectory: MakeTrajectory) -> None:
    _store(run, make_trajectory(0))
    with pytest.raises(UnknownNameError, match="Did you mean 'lookup'"):
        _printed(show_list, run, family="lokup")


def test_an_empty_run_and_no_run(run: Path, tmp_path: Path) -> None:
    assert "stores no such trajectory" in _printed(show_list, run)
    with pytest.raises(RunFolderError, match="no run folder"):
        _printed(show_list, tmp_path / "nowhere")


@settings(deadline=None)
@given(st.text())
def test_visible_text_is_printable_and_keeps_what_was_printable(text: str) -> None:
    shown = visible(text)
    assert all(character.isprintable() or character in "\n\u00a0\u3000" or character.isspace() for character in shown)
    assert "\x1b" not in shown
    if text.isprintable():
        assert shown == text


@settings(deadline=None)
@given(st.text())
def test_the_cut_parts_join_to_the_text(text: str) -> None:
    assert "".join(split_action(text)) == text


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('a {"x": 1} b {"action": "go", "arguments": {}} c', '{"action": "go", "arguments": {}}'),
        ('{"action": "go", ', ""),
        ("no object", ""),
        ("{" * 5000, ""),
    ],
)
def test_the_action_is_found(text: str, action: str) -> None:
    assert split_action(text).action == action


def test_events_in_words() -> None:
    assert describe_event(Event(EventKind.TOOL_COST, "query", 0.5)) == "tool cost: query 0.5"
    assert describe_event(Event(EventKind.STEP)) == "step"
