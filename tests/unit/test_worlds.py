"""Environments by name, and where a person's own are looked for."""

from pathlib import Path

import pytest

from ferrata import make_env
from ferrata.errors import TaskError, UnknownNameError

OWN = """
from ferrata import Environment

class Room(Environment):
    name = "room"
    families = {1: ("wait",)}
"""


def test_an_environment_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_room_world.py").write_text(OWN)
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(TaskError, match="cannot be loaded"):
        make_env("own_room_world:Room")
    monkeypatch.chdir(tmp_path)
    assert make_env("own_room_world:Room").name == "room"


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'office'"):
        make_env("ofice")
    with pytest.raises(TaskError, match="is not a subclass"):
        make_env("pathlib:Path")
