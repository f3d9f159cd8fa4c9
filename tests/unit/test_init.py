"""`ferrata init`: what is written, and what is refused."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ferrata.cli.main import app
from ferrata.cli.starting import FILES
from ferrata.envs.contract.definition import refuse_mistakes
from ferrata.recipe_loading import load_recipe


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", *arguments])
    return result.exit_code, result.output


def test_the_project_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "parcel-desk"
    code, text = run(str(folder))
    assert code == 0, text
    assert f"cd {folder}\n  pip install pytest\n  pytest\n" in text
    assert "pip install pytest" in (folder / "README.md").read_text()
    assert "ferrata check-env parcel_desk.environment:ParcelDesk" in text
    written = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert written == sorted(path.format(package="parcel_desk") for path in FILES)
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text())
    assert not any("$" in path.read_text() for path in folder.rglob("*") if path.is_file())
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "parcel-desk"


def test_people_are_so_many_that_copying_is_learnt(tmp_path: Path) -> None:
    """With a handful of names each is learnt by heart, and an unseen one is answered by one of them."""
    run(str(tmp_path / "depot"))
    space: dict[str, Any] = {"__name__": "written"}
    exec((tmp_path / "depot" / "depot" / "environment.py").read_text(), space)
    train, unseen = (set(space["NAMES"][split]) for split in ("train", "eval"))
    assert len(train) > 300
    assert len(unseen) > 50
    assert not train & unseen
    for pieces in (space["STARTS"], space["ENDINGS"]):
        for piece in pieces:
            assert any(piece in name for name in train), "evaluation is made of known pieces"


def test_its_scripts_label_with_what_the_task_says(tmp_path: Path) -> None:
    """A word that is always the same is learnt long before copying, and would be said in every task."""
    run(str(tmp_path / "depot"))
    space: dict[str, Any] = {"__name__": "written"}
    exec((tmp_path / "depot" / "depot" / "environment.py").read_text(), space)
    env = space["Depot"](tiers=(1, 2))
    for task in env.tasks("train", 20):
        calls = [json.loads(text) for script in env.scripts(task) for text in script.texts]
        towns = {said["arguments"]["town"] for said in calls if said["action"] == "label"}
        assert len(towns) == 2
        assert all(town in task.instruction for town in towns)


def test_the_name_can_be_chosen(tmp_path: Path) -> None:
    assert run(str(tmp_path / "My Project!"), "--name", "depot2")[0] == 0
    assert "class Depot2(Environment)" in (tmp_path / "My Project!" / "depot2" / "environment.py").read_text()


@pytest.mark.parametrize(
    "name", ["task", "script", "tool-error", "refused", "environment", "effect", "any", "none", "call"]
)
def test_a_class_never_hides_what_its_file_needs(tmp_path: Path, name: str) -> None:
    assert run(str(tmp_path / "new"), "--name", name)[0] == 0
    file = next(tmp_path.glob("new/*/environment.py"))
    space: dict[str, Any] = {"__name__": "written"}
    exec(compile(file.read_text(), str(file), "exec"), space)
    [kind] = [value for value in space.values() if getattr(value, "__module__", "") == "written"]
    refuse_mistakes(kind)
    env = kind(tiers=(1,))
    assert env.scripts(env.tasks("train", 1)[0])


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    assert run(str(tmp_path), "--name", "depot")[0] == 0


def test_its_environment_has_fewer_than_a_hundred_lines(tmp_path: Path) -> None:
    run(str(tmp_path / "depot"))
    assert len((tmp_path / "depot" / "depot" / "environment.py").read_text().splitlines()) < 100


@pytest.fixture
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports from its project is forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "depot"]:
        del sys.modules[name]


@pytest.mark.usefixtures("own_imports")
def test_its_recipe_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(str(tmp_path / "depot"))
    monkeypatch.chdir(tmp_path / "depot")
    recipe = load_recipe("recipe.toml", [])
    assert recipe.env.name == "depot.environment:Depot"
    result = CliRunner().invoke(app, ["train", "recipe.toml", "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "depot.environment:Depot, tiers 1, 2" in result.output


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "'' cannot be the name of an environment"),
        ("Depot", "use small letters"),
        ("2depot", "a letter first"),
        ("de pot", "cannot be the name"),
        ("../depot", "cannot be the name"),
        ("depot-", "single hyphens or underscores between them"),
        ("dépôt", "cannot be the name"),
        ("d" * 41, "at most 40 characters"),
        ("class", "'class' is a word of Python"),
        ("match", "'match' is a word of Python"),
        ("json", "There is a Python module called 'json' already"),
        ("torch", "There is a Python module called 'torch' already"),
        ("office", "'office' is a built-in environment"),
        ("tests", "There is a Python module called 'tests' already"),
    ],
)
def test_bad_names_are_refused(tmp_path: Path, name: str, sentence: str) -> None:
    code, text = run(str(tmp_path / "new"), "--name", name)
    assert code == 2
    assert text.startswith("Error: ")
    assert sentence in text
    assert not (tmp_path / "new").exists()


def test_a_folder_whose_name_will_not_do_asks_for_another(tmp_path: Path) -> None:
    code, text = run(str(tmp_path / "My Project"))
    assert code == 2
    assert text.rstrip().endswith("Choose another with --name.")


def test_folders_in_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    assert run(str(tmp_path), "--name", "depot") == (
        2,
        f"Error: {tmp_path} is not empty: name a new or an empty folder.\n",
    )
    file = tmp_path / "kept.txt"
    assert run(str(file), "--name", "depot") == (2, f"Error: {file} is not a folder: name a new or an empty folder.\n")
    assert file.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, text = run(str(tmp_path / "file" / "depot"))
    assert code == 2
    assert "The project cannot be written to" in text
