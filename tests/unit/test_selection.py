"""Which families a recipe draws from, and with which tools."""

from __future__ import annotations

from contextlib import closing

import pytest

from ferrata import load_recipe, make_env
from ferrata.envs.selection import select
from ferrata.errors import UnknownNameError, UsageError

OFFERED = {1: ("a", "b"), 2: ("c", "d")}
NEEDS = {"b": ("read", "write"), "d": ("send",)}


def test_without_a_choice_all_families_of_the_tiers_are_drawn() -> None:
    assert select("x", OFFERED, (1,)) == [(1, "a"), (1, "b")]
    assert select("x", OFFERED, (1, 2), needs=NEEDS) == [(1, "a"), (1, "b"), (2, "c"), (2, "d")]


def test_the_order_is_that_of_the_environment() -> None:
    assert select("x", OFFERED, (1, 2), ["d", "a"]) == [(1, "a"), (2, "d")]
    assert select("x", OFFERED, (1,), ["d", "a"]) == [(1, "a")]


def test_families_that_need_more_tools_are_left_out() -> None:
    assert select("x", OFFERED, (1, 2), tools=["read"], needs=NEEDS) == [(1, "a"), (2, "c")]
    assert select("x", OFFERED, (1,), tools=["read", "write"], needs=NEEDS) == [(1, "a"), (1, "b")]


def test_what_cannot_be_drawn_is_one_sentence() -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown family of environment 'x' 'e'\. Known: a, b, c, d\."):
        select("x", OFFERED, (1,), ["a", "e"])
    with pytest.raises(UsageError, match=r"No family of 'x' in tiers \[1\] is among \['c'\]\."):
        select("x", OFFERED, (1,), ["c"])
    with pytest.raises(UsageError, match=r"No such family of 'x' in tiers \[2\] can be done with read, write alone\."):
        select("x", OFFERED, (2,), ["d"], ["read", "write"], NEEDS)


def test_a_recipe_chooses_families_and_tools() -> None:
    section = load_recipe("office-smoke", ['env.families=["report", "read_value"]', "env.tools=standard"]).env
    with closing(make_env("office", section.tiers, families=section.families, tools=section.tools)) as env:
        tasks = env.tasks("train", 6)
    assert {task.family for task in tasks} == {"report", "read_value"}
    assert {len(task.tools) for task in tasks} == {5}


def test_wrong_names_in_a_recipe_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"family of environment 'office' 'reprot'\. Did you mean 'report'\?"):
        make_env("office", (1, 2), families=("reprot",))
    with pytest.raises(UnknownNameError, match=r"tool set of environment 'office' 'ful'\. Did you mean 'full'\?"):
        make_env("office", tools="ful")
    with pytest.raises(UsageError, match=r"of 'office' in tiers \[3\] can be done with read_file,"):
        make_env("office", tier=3, tools="standard")
