"""The commands: what they print, how they fail, how soon they answer, and what a person watches."""

from __future__ import annotations

import io
import os
import re
import resource
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import ferrata
import ferrata.training
from ferrata.cli.live import Board, LiveView, LoggedView, PlainView, clock, draw, make_view, percent, progress_line
from ferrata.cli.main import app
from ferrata.errors import CheckpointError, EnvironmentFault, Interrupted, PolicyError
from ferrata.recipe_loading import load_recipe
from ferrata.runs import RunFolder, Score, SilentView


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), prog_name="ferrata")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


# Answering at once ------------------------------------------------------------------------------------------


def test_help_takes_less_than_half_a_second_of_computing() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = python("-m", "ferrata", "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, ferrata.cli.main; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = set(python("-c", code).stdout.split())
    assert "typer" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "scipy", "pydantic", "rich", "jinja2"}


def test_the_version_is_printed() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"ferrata {ferrata.__version__}\n")


def test_train_speaks_before_it_loads_what_takes_long(tmp_path: Path) -> None:
    code = f"""
import sys
from ferrata.cli import live
from ferrata.cli.main import app
said = live.LoggedView.message
def message(self, text):
    print(text.partition(" ")[0], "torch" in sys.modules)
    said(self, text)
live.LoggedView.message = message
app(["train", "office-smoke", "policy.model=nowhere", "--out", {str(tmp_path / "run")!r}])
"""
    done = python("-c", code)
    assert done.returncode == 2, done.stderr
    assert {"Run False", "Loading False"} <= set(done.stdout.splitlines())


# The surface ------------------------------------------------------------------------------------------------


def test_the_commands_are_these() -> None:
    text = run("--help").stdout
    commands = re.findall(r"^  ([a-z-]+)  ", text.partition("Commands:")[2], flags=re.MULTILINE)
    assert commands == [
        "train", "eval", "replay", "report", "check-env", "init", "verify-audit", "audit-rewards",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("train", {"--out", "--resume", "--dry-run"}),
        ("eval", {"--env", "--tier", "--tasks", "--seed", "--sampled", "--written", "--constrained", "--json"}),
        ("replay", set()),
        ("report", set()),
        ("check-env", {"--tier", "--tasks", "--fuzz", "--seconds", "--json"}),
        ("init", {"--name"}),
        ("verify-audit", {"--seal"}),
        ("audit-rewards", {"--recipe", "--tasks", "--json"}),
    ],
)
def test_the_options_are_these(command: str, options: set[str]) -> None:
    assert set(re.findall(r"--[a-z-]+", run(command, "--help").stdout)) == options | {"--help"}


def test_the_package_exports_what_it_says() -> None:
    assert set(ferrata.__all__) == set(ferrata._HOMES)
    assert ferrata.load_recipe is load_recipe
    with pytest.raises(AttributeError, match="no attribute 'make_enf'"):
        ferrata.__getattr__("make_enf")


# Bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "office-smok"), "Error: Unknown recipe 'office-smok'. Did you mean 'office-smoke'?"),
        (("train", "office-smoke", "rl.update=40"), "Error: Unknown key 'rl.update'. Did you mean 'rl.updates'?"),
        (("train", "office-smoke", "seed=x"), "Error: Wrong value for 'seed': \"x\"; expected a whole number."),
        (("train", "office-smoke", "--resume"), "Error: --resume needs a run folder"),
        (("train", "no/where", "--resume"), "Error: There is no run folder no/where."),
        (("train", "office-smoke", "--resume", "--out", "nowhere"), "Error: There is no run folder nowhere."),
        (("eval", "base", "--written"), "Error: Environment 'office' has no hand-written tasks of tiers [1, 2, 3]."),
        (("replay", "nowhere"), "Error: There is no run folder nowhere."),
        (("report", "."), "Error: . is not a run folder"),
        (("trai",), "No such command 'trai'. Did you mean 'train'?"),
    ],
)
def test_bad_input_ends_in_one_sentence(tmp_path: Path, monkeypatch, arguments: tuple[str, ...], sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


# Training ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pipeline(monkeypatch):
    """Stands in for the pipeline and the report: `calls` says how it was called, `fault` is what it raises.

    `begun` says whether anything was trained before.
    """
    fake = types.SimpleNamespace(calls=[], fault=None, begun=False)

    def pipeline_run(recipe, folder, view, interrupts, resume=False) -> None:
        fake.calls.append((recipe, folder.path, resume))
        if fake.fault is not None and not fake.begun:
            (folder.path / "audit").mkdir()
            (folder.path / "audit" / "heads.jsonl").write_text("")
            raise fake.fault
        view.stage("sft", 1)
        view.progress(1, {"loss": 0.5})
        folder.store.add_metrics("sft", 1, {"loss": 0.5})
        if fake.fault is not None:
            raise fake.fault

    fake.run = pipeline_run
    monkeypatch.setattr(ferrata.training, "pipeline", fake, raising=False)
    monkeypatch.setitem(
        sys.modules, "ferrata.viewer.report", types.SimpleNamespace(write_report=lambda path: path / "report.html")
    )
    return fake


def test_dry_run_prints_the_recipe_and_what_it_means_and_writes_nothing(tmp_path: Path, pipeline) -> None:
    result = run("train", "office-smoke", "rl.updates=7", "--dry-run", "--out", str(tmp_path / "run"))
    assert result.exit_code == 0
    assert "updates = 7  #" in result.stdout
    assert "RL episodes     56: 14 tasks x 4 attempts" in result.stdout
    assert "RL tokens       at most 11,200" in result.stdout
    assert f"would write to  {tmp_path / 'run'}" in result.stdout
    assert pipeline.calls == []
    assert list(tmp_path.iterdir()) == []


def test_train_runs_the_pipeline_and_names_the_report(tmp_path: Path, pipeline) -> None:
    path = tmp_path / "run"
    result = run("train", "office-smoke", "seed=3", "--out", str(path))
    assert result.exit_code == 0, result.output
    assert f"Report: {path / 'report.html'}" in result.stdout
    assert [(recipe.seed, where, resume) for recipe, where, resume in pipeline.calls] == [(3, path, False)]
    assert " sft: 1 step\n" in (path / "log.txt").read_text()


def test_resume_takes_the_run_or_out_and_keeps_the_recipe(tmp_path: Path, pipeline) -> None:
    path = str(tmp_path / "run")
    run("train", "office-smoke", "seed=3", "--out", path)
    assert run("train", path, "--resume").exit_code == 0
    assert run("train", "office-smoke", "seed=3", "--out", path, "--resume").exit_code == 0
    assert [(recipe.seed, resume) for recipe, _, resume in pipeline.calls] == [(3, False), (3, True), (3, True)]
    for changed in (("office-smoke", "--out", path), (path, "seed=4")):
        result = run("train", *changed, "--resume")
        assert result.exit_code == 2
        assert "was started with seed = 3, not" in result.stderr
    result = run("train", path, 'stages=["rl"]', "--resume")
    assert 'was started with stages = ["sft", "rl"], not ["rl"]: a resumed run keeps its recipe' in result.stderr
    assert len(pipeline.calls) == 3


def test_a_run_is_resumed_from_another_folder(tmp_path: Path, pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "run")
    assert run("train", "office-smoke", "policy.model=mine", "--out", path).exit_code == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("train", path, "--resume").exit_code == 0
    assert run("train", "office-smoke", "policy.model=mine", "--out", path, "--resume").exit_code == 0
    assert [recipe.policy.model for recipe, _, _ in pipeline.calls] == [str(tmp_path / "mine")] * 3
    for other in ("ine", "base", str(tmp_path / "elsewhere")):
        result = run("train", "office-smoke", f"policy.model={other}", "--out", path, "--resume")
        assert "was started with policy.model" in result.stderr
    (tmp_path / "base").mkdir()
    other = str(tmp_path / "other")
    assert run("train", "office-smoke", f"policy.model={tmp_path / 'base'}", "--out", other).exit_code == 0
    result = run("train", "office-smoke", "policy.model=base", "--out", other, "--resume")
    assert 'not "base"' in result.stderr, "the name means the policy that ships, not a folder that is called so"


def test_a_run_is_never_overwritten(tmp_path: Path, pipeline) -> None:
    path = str(tmp_path / "run")
    run("train", "office-smoke", "--out", path)
    for arguments in (("office-smoke", "--out", path), (path,), ("office-smoke", "--out", path, "--dry-run")):
        result = run("train", *arguments)
        assert result.exit_code == 2
        assert "--resume" in result.stderr
    assert len(pipeline.calls) == 1


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (Interrupted("Stopped; everything is saved."), 130, "Stopped; everything is saved.\n"),
        (CheckpointError("The disk is full."), 1, "Error: The disk is full.\n"),
        (KeyboardInterrupt(), 130, "Stopped at once. There is no checkpoint yet. Begin again with: ferrata train"),
    ],
)
def test_failures_keep_the_run(tmp_path: Path, pipeline, fault: BaseException, code: int, said: str) -> None:
    pipeline.fault, pipeline.begun = fault, True
    result = run("train", "office-smoke", "--out", str(tmp_path / "run"))
    assert result.exit_code == code
    assert result.stderr.startswith(said)
    RunFolder.open(tmp_path / "run", writing=True).close()


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (PolicyError("x is not a policy."), 2, "Error: x is not a policy.\n"),
        (EnvironmentFault("The world is gone."), 1, "Error: The world is gone.\n"),
        (KeyboardInterrupt(), 130, "Stopped at once, before anything was trained: nothing is left behind.\n"),
    ],
)
def test_a_start_that_fails_leaves_nothing_behind(
    tmp_path: Path, pipeline, fault: BaseException, code: int, said: str
) -> None:
    pipeline.fault = fault
    arguments = ["train", "office-smoke", "--out", str(tmp_path / "run")]
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (code, said)
    assert list(tmp_path.iterdir()) == []
    pipeline.fault = None
    assert run(*arguments).exit_code == 0, "the corrected command is taken"


def test_a_second_ctrl_c_names_the_checkpoint_to_go_on_from(tmp_path: Path, pipeline) -> None:
    arguments = ["train", "office-smoke", "--out", str(tmp_path / "run")]
    run(*arguments)
    with RunFolder.open(tmp_path / "run", writing=True) as folder:
        folder.checkpoints.save("sft-1", lambda path: None, {})
    pipeline.fault = KeyboardInterrupt()
    shutil.rmtree(tmp_path / "run" / "audit", ignore_errors=True)
    result = run("train", str(tmp_path / "run"), "--resume")
    assert result.stderr == (
        f"Stopped at once. Go on from checkpoint sft-1 with: ferrata train {tmp_path / 'run'} --resume\n"
    )


def test_an_environment_that_is_nowhere_is_told_before_the_recipe(tmp_path: Path) -> None:
    result = run("train", "office-smoke", "env.name=offise", "--dry-run", "--out", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Did you mean 'office'?" in result.stderr


def test_our_own_bugs_are_owned_and_written_down(tmp_path: Path, pipeline, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipeline.fault = ZeroDivisionError("division by zero")
    result = run("train", "office-smoke", "--out", str(tmp_path / "run"))
    assert result.exit_code == 70
    found = re.fullmatch(
        r"Error: this is a bug in Ferrata \(ZeroDivisionError: division by zero\); the traceback is in (\S+)\.\n",
        result.stderr,
    )
    assert found
    assert "pipeline_run" in Path(found[1]).read_text()


def test_a_closed_pipe_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ferrata", "train", "office-smoke", "--dry-run"]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


# What a person watches --------------------------------------------------------------------------------------

METRICS = {
    "rollout/success": 0.7,
    "rollout/reward": 3.2,
    "reward/outcome": 3.4,
    "reward/invalid": -0.03,
    "stop/completed": 0.7,
    "stop/max_turns": 0.05,
    "rl/kl": 0.0123,
    "rl/entropy": 0.32,
    "rollout/tokens_per_second": 9876.0,
}


def board() -> Board:
    shown = Board("Ferrata · office", began=0.0)
    shown.begin_stage("sft", 300, 0.0)
    shown.begin_stage("rl", 60, 100.0)
    for step in range(1, 31):
        shown.advance(step, METRICS)
    shown.scores = [
        Score("unseen tasks, greedy", 0.31, 0.25, 0.38, 200),
        Score("unseen tasks, sampled", 0.2, 0.1, 0.3, 200),
        Score("unseen tasks, greedy", 0.845, 0.78, 0.89, 60, {"tier 1": 0.95}),
    ]
    return shown


def printed(renderable, width: int) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(renderable)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_the_board_shows_what_matters_and_fits(width: int) -> None:
    text = printed(draw(board(), 160.0), width)
    assert all(len(line) == width for line in text.splitlines())
    facts = [
        *("sft ✓", "30/60", "1:00 left", "84.5 %", "[78, 89]", "from 31.0 %", "tier 1  95.0 %", "sampled  20.0 %"),
        *("Reward per episode +3.20", "+3.400", "-0.030", "max_turns   5.0 %", "0.0123", "0.320", "9,876"),
    ]
    assert [fact for fact in facts if fact not in text] == []
    assert "…" not in text


def test_an_empty_board_says_that_nothing_is_known_yet() -> None:
    text = printed(draw(Board("Ferrata", 0.0), 1.0), 80)
    assert "not evaluated yet" in text
    assert "no update yet" in text


def test_time_left_is_the_pace_of_this_session_when_resumed() -> None:
    resumed = Board("Ferrata", 0.0)
    resumed.begin_stage("rl", 60, 100.0)
    assert resumed.seconds_left(110.0) is None
    resumed.advance(41, {})
    resumed.advance(42, {})
    assert resumed.seconds_left(104.0) == pytest.approx(2.0 * 18)


def test_a_log_gets_a_line_every_tenth_part(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as file:
        view = make_view(Console(file=file), "Ferrata")
        assert isinstance(view, PlainView)
        view.evaluation(0, Score("unseen tasks, greedy", 0.2, 0.1, 0.3, 60))
        view.stage("rl", 40)
        for step in range(1, 41):
            view.progress(step, METRICS)
        view.evaluation(40, Score("unseen tasks, greedy", 0.5, 0.4, 0.6, 60, {"tier 1": 0.7}))
        view.message("[bold]not markup[/bold]")
        view.close()
        file.seek(0)
        lines = file.read().splitlines()
    assert lines.pop(0) == "start: unseen tasks, greedy: 20.0 % [10, 30] of 60"
    assert len(lines) == 1 + 11 + 2
    assert lines[1].startswith("rl 1/40  success 70.0 %  reward +3.20  KL 0.0123  entropy 0.320")
    assert lines[-2:] == [
        "rl 40: unseen tasks, greedy: 50.0 % [40, 60] of 60 (tier 1 70.0 %)",
        "[bold]not markup[/bold]",
    ]


def test_the_live_view_keeps_messages_and_the_last_board(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as file:
        view = make_view(Console(file=file, force_terminal=True, width=80), "Ferrata")
        assert isinstance(view, LiveView)
        view.stage("rl", 2)
        view.progress(2, METRICS)
        view.evaluation(2, Score("unseen tasks, greedy", 0.5, 0.4, 0.6, 60))
        view.message("Saving after this update")
        view.close()
        file.seek(0)
        text = file.read()
    assert "Saving after this update" in text
    assert text.rindex("50.0 %") > text.index("Saving after this update")


def test_small_words() -> None:
    assert [clock(75.2), clock(3723.0), clock(0.2)] == ["1:15", "1:02:03", "0:00"]
    assert [percent(0.845), percent(float("nan"))] == ["84.5 %", "–"]
    assert progress_line(Board("", 0.0, stage="sft", total=3), 1.0) == "sft 0/3"


def test_a_terminal_that_went_away_does_not_end_a_run() -> None:
    class Gone(SilentView):
        def message(self, text: str) -> None:
            raise BrokenPipeError

    logged: list[str] = []
    LoggedView(Gone(), logged.append).message("still training")
    assert logged == ["still training"]
