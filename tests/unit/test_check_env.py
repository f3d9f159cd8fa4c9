"""`ferrata check-env`: what is printed, written and returned, and how a wrong class path is told."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrata.cli.main import app
from ferrata.envs.checker import check_environment
from ferrata.envs.contract.suite import CHECKS
from ferrata.rollout.worlds import find_environment, make_env

SOURCE = """
import random
import sys
import time
from ferrata import Environment, Script, Task, call, tool

FLAGS = {"red", "blue", "green", "white", "black", "pink", "grey", "brown"}


class Flag(Environment):
    name = "flag"
    families = {1: ("raise_one",), 2: ("raise_two",)}

    def generate(self, family, tier, stream, split):
        flags = stream.sample(sorted(FLAGS), tier)
        world = {"flags": flags, "where": f"{split} {stream.randrange(10**6)}"}
        return Task("flag", family, tier, split, f"Raise {flags} on {world['where']}.", world, ("up",), 5)

    def begin(self, task):
        self.up = []

    @tool("Raise a flag.")
    def hoist(self, colour: str) -> str:
        self.up.append(colour)
        if self.up == self.task.world["flags"]:
            self.reach("up")
            self.finish(success=True)
        return f"{len(self.up)} up"

    def scripts(self, task):
        calls = [call("hoist", colour=colour) for colour in task.world["flags"]]
        return [Script("raises", tuple(calls), True), Script("waits", ("...",), False)]


class Unsorted(Flag):
    def generate(self, family, tier, stream, split):
        task = super().generate(family, tier, stream, split)
        return Task("flag", family, tier, split, f"Raise {list(FLAGS)}.", task.world, ("up",), 5)


class Wordless(Flag):
    @tool("")
    def lower(self) -> str:
        return "down"


class Sleepy(Flag):
    @tool("Lower a flag.")
    def hoist(self, colour: str) -> str:
        time.sleep(1000)


class Endless(Flag):
    def generate(self, family, tier, stream, split):
        while True:
            pass


class Leaving(Flag):
    @tool("Raise a flag.")
    def hoist(self, colour: str) -> str:
        sys.exit(0)


class Slow(Flag):
    def __init__(self, tiers=(1,), score=None):
        raise OSError("the pole is gone")


instance = Flag()
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a module with environments, which other processes find too."""
    folder = tmp_path_factory.mktemp("flags")
    (folder / "own_flag_world.py").write_text(SOURCE)
    (folder / "own_broken_world.py").write_text("import random\n\nx = 1 / 0\n")
    (folder / "own_needy_world.py").write_text("import no_such_library\n")
    (folder / "own_unfinished_world.py").write_text("def f(:\n")
    sys.path.insert(0, str(folder))
    yield "own_flag_world"
    sys.path.remove(str(folder))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check-env", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_a_sound_environment_passes_every_check(module: str, tmp_path: Path) -> None:
    file = tmp_path / "checks.json"
    code, text = run(f"{module}:Flag", "--tasks", "4", "--fuzz", "100", "--json", str(file))
    assert code == 0, text
    assert "Every check passed (15 of 15 made)." in text
    written = json.loads(file.read_text())
    assert written["environment"] == "flag"
    assert written["ok"] is True
    assert [check["name"] for check in written["checks"]] == list(CHECKS)
    assert set(written["checks"][0]) == {"name", "ok", "detail", "advice"}


def test_a_fault_is_told_with_what_to_do_and_exit_code_1(module: str, tmp_path: Path) -> None:
    file = tmp_path / "checks.json"
    code, text = run(f"{module}:Unsorted", "--tasks", "4", "--fuzz", "0", "--json", str(file))
    assert code == 1
    assert "BROKEN" in text
    assert "1 of 14 checks failed." in text, "no wild text was played, so that check was not made"
    assert "Another process drew other tasks of family 'raise_" in text
    assert "Sort sets before drawing from them" in text
    written = json.loads(file.read_text())
    assert [check["name"] for check in written["checks"] if check["ok"] is False] == ["other process"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("Sleepy", r"action '.*hoist.*' hangs: it took longer than 0.3 s \(\S*own_flag_world.py:\d+ in hoist\)."),
        ("Endless", r"generate\(\) of Endless .* hangs: it took longer than 0.3 s \(\S*.py:\d+ in generate\)."),
        ("Leaving", r"action '.*hoist.*' raised SystemExit: 0 \(\S*own_flag_world.py:\d+ in hoist\)."),
    ],
)
def test_what_hangs_or_leaves_is_found_with_its_line(module: str, kind: str, sentence: str) -> None:
    began = time.monotonic()
    result = CliRunner().invoke(
        app,
        ["check-env", f"{module}:{kind}", "--tasks", "2", "--fuzz", "10", "--seconds", "0.3"],
        env={"COLUMNS": "400"},
    )
    assert time.monotonic() - began < 60
    assert result.exit_code == 1, result.output
    assert re.search(sentence, result.output)
    assert ("--seconds" in result.output) == (kind != "Leaving")


def test_each_check_is_announced(module: str) -> None:
    told: list[str] = []
    check_environment(make_env(f"{module}:Flag"), 1, fuzzed=0, progress=told.append)
    assert told == list(CHECKS)


def test_tiers_can_be_chosen(module: str) -> None:
    code, text = run(f"{module}:Flag", "--tier", "2", "--tasks", "3", "--fuzz", "10")
    assert code == 0
    assert "1 families cut" in text
    code, text = run(f"{module}:Flag", "--tier", "3")
    assert code == 2
    assert "has no tier [3]" in text


def test_the_file_is_refused_before_the_work(module: str, tmp_path: Path) -> None:
    code, text = run(f"{module}:Flag", "--json", str(tmp_path / "no" / "checks.json"))
    assert code == 2
    assert "cannot be written" in text
    assert "check " not in text


@pytest.mark.parametrize("command", [("check-env",), ("audit-rewards",), ("eval", "base", "--env")])
def test_a_folder_in_the_place_of_the_file_is_refused_before_the_work(
    module: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(app, [*command, f"{module}:Flag", "--json", str(tmp_path)])
    assert result.exit_code == 2
    assert f"The result cannot be written to {tmp_path}." in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("no_such_module:Flag", "cannot be found: there is no module 'no_such_module', neither installed nor in "),
        ("own_flag_world.deep:Flag", "Error: Environment 'own_flag_world.deep:Flag'"),
        ("own_flag_world:Flog", "cannot be found: module 'own_flag_world' has no 'Flog'. Did you mean 'Flag'?"),
        ("own_flag_world:", "module 'own_flag_world' has no ''. Known: Endless, Flag, Leaving, Sleepy, Slow, "),
        (":Flag", "cannot be found: write it as package.module:Class."),
        ("own_flag_world:FLAGS", "is not a subclass of ferrata.Environment, but a set."),
        ("own_flag_world:instance", "is not a subclass of ferrata.Environment, but a Flag."),
        ("own_flag_world:Task", "is not a subclass of ferrata.Environment, but a class."),
        ("own_broken_world:Flag", "importing 'own_broken_world' raised ZeroDivisionError: division by zero ("),
        ("own_needy_world:Flag", "importing 'own_needy_world' raised ModuleNotFoundError: No module named 'no_"),
        ("own_unfinished_world:Flag", "importing 'own_unfinished_world' raised SyntaxError"),
        ("own_flag_world:Wordless", "Tool 'lower' of Wordless has no description."),
        ("own_flag_world:Slow", "While making environment 'own_flag_world:Slow': OSError: the pole is gone"),
        ("offic", "Unknown environment 'offic'. Did you mean 'office'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_one_sentence(module: str, path: str, sentence: str) -> None:
    code, text = run(path)
    assert code == 2
    assert text.startswith("Error: ")
    assert sentence in text
    assert "Traceback" not in text


def test_an_import_error_names_the_line(module: str) -> None:
    assert "own_broken_world.py:3)" in run("own_broken_world:Flag")[1]
    assert "own_unfinished_world.py:1)" in run("own_unfinished_world:Flag")[1]


def test_every_family_is_checked_however_few_tasks_are_asked_for(module: str) -> None:
    report = check_environment(make_env(f"{module}:Flag", tiers=(1, 2)), 1, fuzzed=0)
    assert report.ok, report.broken
    assert "4 sound tasks" in next(check.detail for check in report.checks if check.name == "tasks")


def test_checking_leaves_the_environment_as_it_was(module: str) -> None:
    env = find_environment(f"{module}:Flag")()
    task = env.generate("raise_one", 1, random.Random(0), "train")
    env.reset(task)
    before = env.state_hash()
    assert check_environment(env, 2, fuzzed=20).ok
    assert env.state_hash() == before
