"""What the office judge takes for an answer: any case of letters, no list, nothing stated before it was read."""

from __future__ import annotations

from contextlib import closing

import pytest

from ferrata.envs.checker import play, succeeded
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.office.judge import states
from ferrata.envs.scripts import call


@pytest.mark.parametrize(("text", "stated"), [("Done.", True), ("DONE", True), ("done 429", False), ("do ne", False)])
def test_words_count_in_any_case_and_decoys_spoil_them(text: str, stated: bool) -> None:
    assert states(text, {"value": "done", "decoys": ["429"]}) is stated


def test_a_document_written_before_the_lookup_is_a_guess() -> None:
    with closing(OfficeEnvironment((1,))) as env:
        task = env.tasks("train", 1, families=["write_note"])[0]
        read, write, submit = env.scripts(task)[0].texts
        assert succeeded(play(env, task, (read, write, submit)))
        assert not succeeded(play(env, task, (write, read, submit)))


def test_every_number_of_a_world_is_no_answer() -> None:
    with closing(OfficeEnvironment((1, 2))) as env:
        for task in env.tasks("train", 30):
            listing = [script for script in env.scripts(task) if script.name == "states every number"]
            assert all(not succeeded(play(env, task, script.texts)) for script in listing)
        task = env.tasks("train", 1, families=["query_value"])[0]
        column = [str(cell) for table in task.world["tables"].values() for row in table["rows"] for cell in row]
        read = env.scripts(task)[0].texts[0]
        assert not succeeded(play(env, task, (read, call("submit_result", answer=" ".join(column)))))
