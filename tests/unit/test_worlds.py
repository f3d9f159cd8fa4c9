"""Environments by name, and where a person's own are looked for."""

import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from ferrata import make_env
from ferrata.envs import Environment
from ferrata.errors import TaskError, UnknownNameError
from ferrata.records import Task

OWN = """
from ferrata import Environment, Task, tool

class Room(Environment):
    name = "room"
    families = {1: ("wait",)}

    def generate(self, family, tier, stream, split):
        return Task("room", family, tier, split, "Wait.", {}, (), 3)

    @tool("Wait.")
    def wait(self) -> str:
        return "waited"
"""


def test_an_environment_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_room_world.py").write_text(OWN)
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(TaskError, match="there is no module 'own_room_world'"):
        make_env("own_room_world:Room")
    monkeypatch.chdir(tmp_path)
    assert make_env("own_room_world:Room").name == "room"


def test_the_name_of_a_built_in_environment_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "false_office_world.py").write_text(OWN.replace('name = "room"', 'name = "office"'))
    monkeypatch.setattr("sys.path", [])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError, match="Room has the name of a built-in environment"):
        make_env("false_office_world:Room")
    with closing(make_env("ferrata.envs.office:OfficeEnvironment")) as env:
        assert env.name == "office"


def test_a_constructor_that_leaves_the_base_class_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = OWN + "\n    def __init__(self, tiers=(1,), score=None):\n        self.tiers = tiers\n"
    (tmp_path / "half_made_world.py").write_text(own)
    monkeypatch.setattr("sys.path", [])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError, match=r"must call super\(\).__init__\(tiers, score\)"):
        make_env("half_made_world:Room")


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'office'"):
        make_env("ofice")
    with pytest.raises(TaskError, match="is not a subclass"):
        make_env("pathlib:Path")


def test_a_family_that_has_run_out_leaves_its_place_to_the_others() -> None:
    class Shelves(Environment):
        name = "shelves"
        families: ClassVar[dict[int, tuple[str, ...]]] = {1: ("few", "many")}

        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            number = stream.randrange(3 if family == "few" else 10**6)
            return Task("shelves", family, tier, split, "Fetch it.", {"number": number}, ("fetched",), 4)

    tasks = Shelves().tasks("train", 30)
    assert Counter(task.family for task in tasks) == {"few": 3, "many": 27}
