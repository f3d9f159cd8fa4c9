"""Environments by name, and where a person's own are looked for."""

import pickle
import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

from ferrata import make_env
from ferrata.envs import Environment
from ferrata.errors import TaskError, UnknownNameError, UsageError
from ferrata.records import Task
from ferrata.rollout.workers import WorkerHost
from ferrata.rollout.worlds import EnvironmentSpec

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


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Locker", "Known: office, support. A class of your own is written as module:Class."),
        ("locker.Locker", "Did you mean 'locker:Locker'?"),
        ("worlds.locker.Locker", "Did you mean 'worlds.locker:Locker'?"),
        ("locker.py:Locker", "without .py and slashes. Did you mean 'locker:Locker'?"),
        ("./worlds/locker.py:Locker", "Did you mean 'worlds.locker:Locker'?"),
        ("locker.py", "Did you mean 'locker:CLASS'?"),
        ("ofice", "Did you mean 'office'?"),
    ],
)
def test_how_a_class_is_written_is_told(name: str, sentence: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        make_env(name)
    assert sentence in str(caught.value)
    assert name == "ofice" or "'office'" not in str(caught.value)


def test_a_class_of_the_script_itself_is_sent_to_no_worker() -> None:
    assert pickle.loads(pickle.dumps(EnvironmentSpec("office", (2,)))) == EnvironmentSpec("office", (2,))
    with pytest.raises(UsageError, match=r"__main__:Room stands in the script .* Move the class to a module"):
        WorkerHost(EnvironmentSpec("__main__:Room"), 1, 1.0)


def test_too_few_tasks_say_what_to_do() -> None:
    class Door(Environment):
        name = "door"
        families: ClassVar[dict[int, tuple[str, ...]]] = {1: ("open",)}

        def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
            return Task(self.name, family, tier, split, "Open it.", {"door": stream.randrange(3)}, (), 4)

    with pytest.raises(TaskError, match=r"has only 3 different tasks of 6 in split 'eval'\. Ask for fewer \(evaluat"):
        Door().tasks("eval", 6)
    with pytest.raises(TaskError, match=r"\(sft.demonstrations and .*--tasks of a command.*written_tasks\(\)"):
        Door().tasks("train", 6)


def test_a_task_of_another_name_says_where_to_mend_it() -> None:
    office = make_env("office")
    with pytest.raises(UsageError, match=r"of environment 'room' cannot be played in 'office'\..*Task\(self.name, "):
        office.reset(Task("room", "wait", 1, "train", "Wait.", {}, (), 3))
    office.close()


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
