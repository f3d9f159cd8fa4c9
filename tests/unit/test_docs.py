"""The documentation says what the code does: names, tables, snippets, commands and links are held to it."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import ferrata.errors
from ferrata.algorithms.advantages import GroupSpread
from ferrata.cli.main import app
from ferrata.cli.starting import FILES
from ferrata.envs.checker import check_environment
from ferrata.envs.tools import Effect
from ferrata.errors import FerrataError
from ferrata.evaluation.results import encode, summarise
from ferrata.learning.preparation import REASONS
from ferrata.recipe import Recipe
from ferrata.recipe_loading import known_keys, load_recipe
from ferrata.records import EventKind, StopReason
from ferrata.replay.pool import GONE
from ferrata.rewards.spec import COMPONENTS, RewardSpec
from ferrata.rollout.worlds import make_env
from ferrata.runs import RunFolder, RunStore

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "ferrata"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def rows(page: str, first: str) -> list[list[str]]:
    """The rows of every table whose head begins with `first`, without code marks."""
    found = []
    for part in re.findall(rf"^\| {re.escape(first)} \|.*\n\|[- |]+\n((?:\|.*\n)+)", read(page), re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in part.splitlines()]
        found += [[cell.strip().replace("`", "") for cell in line] for line in lines]
    assert found, f"{page} has no table '{first}'"
    return found


def locker_source() -> str:
    return next(block for block in blocks(DOCS / "environments.md", "python") if "class Locker(" in block)


@pytest.fixture
def locker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of `locker.py`, from where it can be imported."""
    (tmp_path / "locker.py").write_text(locker_source(), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("locker", None)


# Pages that are written by the code -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generate: ModuleType) -> None:
    stale = [path.name for path, text in generate.pages().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make docs`"


def test_a_page_without_the_block_is_refused(generate: ModuleType) -> None:
    with pytest.raises(KeyError, match="tools"):
        generate.filled("no block here", {"tools": str})


# Metrics --------------------------------------------------------------------------------------------------------

NAME = re.compile(
    r"(rollout|reward|stop|time|rl|sft|groups|dropped|pool|ladder|collapse)/(refused/|removed/)?([a-z_]*[a-z])?"
)
FOLDERS = ("training", "learning", "replay", "diagnostics")
"""Where metrics are made."""
PATTERNS = {
    "rollout/success_tier_": ["<tier>"],
    "reward/": COMPONENTS,
    "stop/": list(StopReason),
    "groups/": list(GroupSpread),
    "dropped/": REASONS,
    "pool/refused/": ("unscored",),
    "pool/removed/": GONE,
}
"""Names that the code puts together, by their fixed part."""


def logged() -> set[tuple[str, str]]:
    """(name, file) of every metric in the sources."""
    found = set()
    for path in [path for folder in FOLDERS for path in (SOURCE / folder).glob("*.py")]:
        where = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                start = str(node.values[0].value)
                if NAME.match(start):
                    found |= {(start + ending, where) for ending in PATTERNS[start]}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                found.add((node.value, where))
    return {(name, where) for name, where in found if name not in PATTERNS}


def test_the_glossary_names_every_metric_and_no_other() -> None:
    described = [(row[0], row[4]) for row in rows("metrics.md", "name")]
    assert sorted(described) == sorted(logged())
    assert all(len(row) == 5 and all(row) for row in rows("metrics.md", "name")), "an empty cell"


# Environments ---------------------------------------------------------------------------------------------------


def test_the_example_is_the_same_wherever_it_stands() -> None:
    copies = [block for page in PAGES for block in blocks(page, "python") if "class Locker(" in block]
    assert set(copies) == {locker_source()}
    assert sum(bool(line.strip()) for line in locker_source().splitlines()) <= 40


def test_the_snippets_run(locker: Path) -> None:
    scope: dict[str, Any] = {}
    snippets = [block for block in blocks(DOCS / "environments.md", "python") if "class Locker(" not in block]
    assert len(snippets) >= 5
    for snippet in snippets:
        exec(compile(snippet, "environments.md", "exec"), scope)


def test_the_example_in_python_rolls_episodes_and_evaluates(capsys: pytest.CaptureFixture[str]) -> None:
    [snippet] = blocks(DOCS / "rollouts.md", "python")
    exec(compile(snippet, "rollouts.md", "exec"), {})
    *episodes, counts, result = capsys.readouterr().out.splitlines()
    assert len(episodes) == 4
    assert counts.startswith("4 4 ")
    assert result.endswith("% of 4 unseen tasks")


def test_the_files_of_a_new_project_are_these() -> None:
    described = {row[0].replace("depot/", "{package}/") for row in rows("your-own-environment.md", "file")}
    assert described == set(FILES)


def test_nobody_is_told_the_ids_of_requirements(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "office-smoke", "--dry-run", "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert "Entry gate: smallest share of valid actions." in result.output
    assert "SPEC" not in result.output + json.dumps(Recipe.model_json_schema())
    read = [
        *PAGES,
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "benchmarks").glob("*.py"),
        *(ROOT / "examples").glob("*.py"),
    ]
    assert [str(page) for page in read if "(SPEC " in page.read_text(encoding="utf-8")] == []


def test_the_commands_of_make_are_listed() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    head, _, _ = makefile.partition("\n\n")
    first, last = map(int, re.findall(r"sed -n '(\d+),(\d+)s", makefile)[0])
    listed = {line.split()[2] for line in head.splitlines()[first - 1 : last]}
    targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    assert listed == targets - {"help", "lint", "tests"}


def test_the_checks_are_these(locker: Path) -> None:
    result = CliRunner().invoke(app, ["check-env", "locker:Locker"])
    assert result.exit_code == 0, result.output
    report = check_environment(make_env("locker:Locker"), tasks_each=2)
    assert [row[0] for row in rows("your-own-environment.md", "check")] == [check.name for check in report.checks]


def test_the_contract_can_be_tested_as_it_says(locker: Path) -> None:
    scope: dict[str, Any] = {}
    for snippet in blocks(DOCS / "your-own-environment.md", "python"):
        exec(compile(snippet, "your-own-environment.md", "exec"), scope)
    contract = scope["TestLocker"]()
    contract.test_proof()
    contract.test_dominance()


def test_events_and_their_components_are_these() -> None:
    table = rows("environments.md", "event")
    assert {row[0] for row in table} == {kind.value for kind in EventKind}
    spec = RewardSpec()
    for event, _, component, weight in table:
        known = spec._weights.get(EventKind(event))
        assert (component, weight) == ("none", "none") if known is None else known[0] == component
        assert known is None or known[1] == getattr(spec.section, weight)


def test_effects_are_these() -> None:
    assert [row[0] for row in rows("environments.md", "effect")] == [effect.value for effect in Effect]


# Algorithm ------------------------------------------------------------------------------------------------------


def test_the_tests_of_the_invariants_exist() -> None:
    for _, place in rows("algorithm.md", "invariant"):
        path, _, name = place.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, place


# Runs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, make_trajectory: Any) -> Path:
    """A run with every kind of row."""
    episodes = [make_trajectory(key, success) for key, success in enumerate([True, False, False, None])]
    with RunFolder.create(load_recipe("office-smoke"), tmp_path / "run") as folder:
        folder.store.add_metrics("sft", 1, {"sft/loss": 2.0})
        folder.store.add_metrics("rl", 1, {"rollout/reward": 1.0, "reward/outcome": 1.2, "time/sampling": 3.0})
        folder.store.add_evaluation("sft", 1, "full", "greedy", encode(summarise(episodes)))
        folder.store.add_trajectories("sft", 1, "eval", episodes[:1])
        folder.store.add_trajectories("rl", 1, "eval", episodes)
    return folder.path


def answers(store: Path) -> list[list[tuple[Any, ...]]]:
    """What the SQL examples of the page answer."""
    connection = sqlite3.connect(store)
    found = [connection.execute(query).fetchall() for query in blocks(DOCS / "runs.md", "sql")]
    connection.close()
    return found


def test_the_sql_examples_answer(run: Path) -> None:
    success, rewards, failures = answers(run / "store.sqlite")
    assert success[0][:5] == ("sft", 1, "full", "greedy", pytest.approx(1 / 3))
    assert success[0][5] < 1 / 3 < success[0][6]
    assert rewards == [(1, "reward/outcome", 1.2), (1, "rollout/reward", 1.0)]
    assert failures == [("lookup", 1, "submitted", 2, 3.0, 3)]


def test_the_schema_is_this(run: Path) -> None:
    connection = sqlite3.connect(run / "store.sqlite")
    for table, columns, _ in rows("runs.md", "table"):
        found = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        assert found == columns.split(", "), table
    connection.close()


def test_the_entries_of_the_folder_are_described(run: Path) -> None:
    described = {row[0].rstrip("/") for row in rows("runs.md", "entry")}
    assert {path.name for path in run.iterdir()} <= described


def test_exit_codes_are_these() -> None:
    classes = {
        kind.__name__: kind.exit_code
        for kind in vars(ferrata.errors).values()
        if isinstance(kind, type) and issubclass(kind, FerrataError) and kind is not FerrataError
    }
    described = {name: int(row[0]) for row in rows("runs.md", "code") for name in row[2].split(", ") if name in classes}
    assert described == classes


# Everywhere -----------------------------------------------------------------------------------------------------


def commands(page: Path) -> list[list[str]]:
    """The words of every `ferrata` command in shell blocks and indented blocks; a synopsis with `[...]` is none."""
    lines = [line for language in ("sh", "console") for block in blocks(page, language) for line in block.splitlines()]
    text = page.read_text(encoding="utf-8").replace("\\\n", "")
    lines += re.findall(r"^    (.*)$", text, re.MULTILINE)
    lines = [re.sub(r"^(\$ )?(python -m )?", "", line) for line in lines if " [" not in line]
    return [shlex.split(line, comments=True)[1:] for line in lines if re.match(r"(\S+/)?ferrata ", line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_can_be_typed_as_they_stand(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    for name, *arguments in commands(page):
        context = group.commands[name].make_context(name, list(arguments))
        if name == "train" and not context.params["resume"]:
            load_recipe(context.params["recipe"], context.params["overrides"] or [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_in_the_text_are_settings(page: Path) -> None:
    sections = "|".join({key.partition(".")[0] for key in known_keys() if "." in key})
    words = " ".join(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))).split()
    settings = [word for word in words if re.fullmatch(rf"({sections})\.[a-z_]+(=\S+)?", word) and word != "run.json"]
    load_recipe("office-quickstart", [setting for setting in settings if "=" in setting])
    assert {setting for setting in settings if "=" not in setting} <= set(known_keys())


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in re.findall(r"`((?:src|tests|examples|docs|benchmarks)/[\w./-]+)", text):
        assert (ROOT / name).exists() or name in FILES, name
    for name in re.findall(
        r"`((?:algorithms|diagnostics|envs|learning|replay|rewards|runs|tasks|training)/\w+\.py)", text
    ):
        assert (SOURCE / name).exists(), name


# A real run -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_in_the_example_stores_what_the_pages_describe(locker: Path) -> None:
    command = next(words for words in commands(DOCS / "environments.md") if words[0] == "train")
    small = ["sft.updates=1", "sft.demonstrations=8", "rl.updates=1", "evaluation.tasks=2", "evaluation.tasks_small=2"]
    result = CliRunner().invoke(app, [*command, *small])
    assert result.exit_code == 0, result.output
    run = locker / "runs" / "locker"
    described = {row[0].replace("<tier>", "1") for row in rows("metrics.md", "name")}
    store = RunStore(run / "store.sqlite")
    stored = set(store.metric_names())
    store.close()
    assert len(stored) > 40
    assert stored <= described
    assert {path.name for path in run.iterdir()} == {row[0].rstrip("/") for row in rows("runs.md", "entry")}
    assert all(answers(run / "store.sqlite"))
