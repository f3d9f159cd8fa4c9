"""The first fifteen office families stay what they were: policies were trained and measured on them.

For a seed, a family's tasks, the answers of the five tools and the demonstrations are pinned by digests. A change
here makes stored results incomparable: it needs a new `OfficeEnvironment.version`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from ferrata import load_recipe, make_env
from ferrata.envs import call
from ferrata.envs.office import OfficeEnvironment
from ferrata.records import Task

TASKS: dict[str, str] = {
    "read_value": "ab97fa2a7589",
    "query_value": "966595d8c3dc",
    "mail_note": "559b80b3e217",
    "mail_query": "ac0a9db530ff",
    "write_note": "b2872983c50b",
    "write_query": "dc348a3f1e39",
    "follow_pointer": "696dfd003e24",
    "compare_rows": "6c9e78dedc1c",
    "check_level": "561e52d22a47",
    "report": "d241da5aac4d",
    "compare_report": "0ab51a663a5e",
    "pointer_report": "6ea6267dd423",
    "approval": "415022992a2a",
    "reorder": "65d776b6ccce",
    "send_to_owner": "104718682571",
}
"""Family -> digest of three training and three evaluation tasks."""
EPISODES: dict[str, str] = {
    "read_value": "38e4bf62364e",
    "query_value": "c94c61ea4dfc",
    "mail_note": "9b4c32b68eec",
    "mail_query": "d98f5f29713f",
    "write_note": "57d6279a8551",
    "write_query": "447f6486a0da",
    "follow_pointer": "e2d149c6fef7",
    "compare_rows": "a4ae67346283",
    "check_level": "53673299eb87",
    "report": "3b07b5dc5679",
    "compare_report": "892dfc7c9b1b",
    "pointer_report": "cf3cfbd6ae7c",
    "approval": "0fc5f9707861",
    "reorder": "a92ad91cff9f",
    "send_to_owner": "192056883f2e",
}
"""Family -> digest of what the solution, flawed demonstrations and odd actions are answered."""
STREAM = "028fb84f79ff"
"""Digest of the first 60 training and evaluation tasks that office-quickstart draws."""

ODD = (
    "I do not know.",
    '{"action": "read", "arguments": {}}',
    '{"action": "xyz", "arguments": {}}',
    '{"action": "read_file", "arguments": {"file": "x"}}',
    call("read_file", path="notes"),
    call("read_file", path="../x"),
    call("query_database", sql="SELECT * FROM items"),
    call("query_database", sql="SELECT name, price FROM items WHERE 1 = 0"),
    call("query_database", sql="DROP TABLE items"),
    call("edit_document", path="notes/x.txt", content="x"),
    call("edit_document", path="reports/x.md", content="x@home.example"),
    call("read_file", path="reports/x.md"),
    call("send_message", to="a@office.test", subject="x", body="x"),
    call("send_message", to="nobody", subject="x", body="x", confirm=True),
    call("send_message", to="a@office.test", subject="x", body="x", confirm=True),
    call("submit_result", answer="done"),
)


@pytest.fixture(scope="module")
def office() -> Iterator[OfficeEnvironment]:
    with closing(OfficeEnvironment()) as env:
        yield env


def digest(content: Any) -> str:
    return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=6).hexdigest()


def drawn(office: OfficeEnvironment, family: str) -> list[Task]:
    tier = 1 if family in list(TASKS)[:9] else 2
    return [office.generate(family, tier, random.Random(s), split) for split in ("train", "eval") for s in (1, 2, 3)]


def content(task: Task) -> tuple[Any, ...]:
    return task.fingerprint, task.instruction, task.world, task.subgoals, task.max_turns, task.tier, task.key_steps


def played(office: OfficeEnvironment, task: Task) -> Iterator[Any]:
    """What the agent reads, and the events, in the solution, in flawed demonstrations and after odd actions."""
    flawed = [office.demonstrate(task, random.Random(seed), 0.5) for seed in range(12)]
    for texts in (office.scripts(task)[0].texts, *flawed, ODD):
        office.reset(task)
        for text in texts:
            result = office.step(text)
            yield text, result.observation.text, result.events, result.terminated, result.truncated
            if result.terminated or result.truncated:
                break


@pytest.mark.parametrize("family", TASKS)
def test_tasks_are_the_same(office: OfficeEnvironment, family: str) -> None:
    assert digest([content(task) for task in drawn(office, family)]) == TASKS[family]


@pytest.mark.parametrize("family", TASKS)
def test_solutions_demonstrations_and_answers_are_the_same(office: OfficeEnvironment, family: str) -> None:
    assert digest([list(played(office, task)) for task in drawn(office, family)]) == EPISODES[family]


def test_quickstart_draws_the_same_tasks() -> None:
    recipe = load_recipe("office-quickstart")
    assert recipe.env.families == tuple(TASKS)
    with closing(make_env(recipe.env.name, tiers=recipe.env.tiers, families=recipe.env.families)) as env:
        assert (
            digest([task.fingerprint for split in ("train", "eval") for task in env.tasks(split, 60, seed=7)]) == STREAM
        )
