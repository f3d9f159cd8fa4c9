"""Customer support: tasks written and generated, each proven by its scripts."""

import json
import random
import re

import pytest

from ferrata.envs.office.language import FIRST_SYLLABLES, SECOND_SYLLABLES, reserved
from ferrata.envs.support import SupportEnvironment, families, scripts, written
from ferrata.envs.support.families import FAMILIES, TIERS
from ferrata.errors import TaskError
from ferrata.records import EventKind, Task

from .support_play import SPEC, drawn, kinds, names, play

# Written tasks --------------------------------------------------------------------------------------------------


def test_fifty_written_tasks_are_proven(support: SupportEnvironment) -> None:
    tasks = support.written_tasks()
    assert len({task.fingerprint for task in tasks}) == 50
    SPEC.check_dominance(tasks)
    for task in tasks:
        solution, *failures = support.scripts(task)
        assert EventKind.SUCCESS in kinds(play(support, task, solution.texts)), solution.name
        assert set(support.reached) == set(task.subgoals)
        assert len(solution.texts) <= task.max_turns
        assert len(failures) >= 4
        for failure in failures:
            results = play(support, task, failure.texts)
            assert EventKind.SUCCESS not in kinds(results), (task.instruction, failure.name)
            if failure.name != "never closes":
                assert results[-1].terminated


def test_each_written_failure_fails_for_a_reason_of_its_task(support: SupportEnvironment) -> None:
    for task in support.written_tasks():
        particular = support.scripts(task)[1:-3]
        assert len(particular) >= 2
        for failure in particular:
            results = play(support, task, failure.texts)
            assert names(results, EventKind.FORBIDDEN) or support.findings(), failure.name
            assert not names(results, EventKind.INVALID), failure.name


def test_a_written_task_that_cannot_be_read_is_named() -> None:
    entry = dict(written.entries("refunds")[0])
    with pytest.raises(TaskError, match="is not in the solution"):
        written.read("refunds", entry | {"wrong": [["x", "refund: 1 | 1"]]})
    for step in ("fly: away", "refund: 4127", "refund: 4127 | all"):
        with pytest.raises(TaskError, match="The step"):
            scripts.text_of(step)


# Generated tasks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "fewest", "most", "shortest", "longest"), [(1, 2, 3, 10, 15), (2, 4, 6, 20, 30), (3, 8, 12, 40, 60)]
)
def test_tiers_have_their_families_subgoals_and_caps(
    tier: int, fewest: int, most: int, shortest: int, longest: int
) -> None:
    env = SupportEnvironment((tier,))
    assert len(TIERS[tier]) >= 6
    tasks = env.tasks("train", 60)
    assert {task.family for task in tasks} == set(TIERS[tier])
    for task in tasks:
        assert fewest <= len(task.subgoals) <= most, task.family
        assert shortest <= task.max_turns <= longest, task.family
    env.close()


def test_tier_three_has_changes_of_mind_and_forbidden_requests() -> None:
    changing = [name for name in TIERS[3] if name != "siege"]
    for name in TIERS[3]:
        task = families.generate(name, 3, random.Random(1), "train")
        topics = task.world["customer"]["topics"]
        assert len(topics) >= 3
        assert any("insist" in topic for topic in topics), name
        assert any("leaves_on" in topic for topic in topics) == (name in changing), name


def words(task: Task) -> set[str]:
    """Names and numbers that identify: names, streets, order numbers, PINs, tracking codes, prices."""
    shop = task.world["shop"]
    content = json.dumps([shop[table] for table in ("customers", "orders", "items", "shipments")])
    syllables = re.compile(rf"\b(?:{'|'.join(FIRST_SYLLABLES)})(?:{'|'.join(SECOND_SYLLABLES)})\b")
    prices = {str(row[2]) for row in shop["items"]} | set(map(str, task.world["tickets"]))
    numbers = {str(row[0]) for row in shop["orders"]} | {str(row[5]) for row in shop["customers"]}
    tracking = {row[2].removeprefix("T") for row in shop["shipments"]}
    return set(syllables.findall(content)) | prices | numbers | tracking


def test_the_splits_share_no_fingerprint_no_name_and_no_number(support: SupportEnvironment) -> None:
    train, unseen = support.tasks("train", 81), support.tasks("eval", 81)
    assert not {task.fingerprint for task in train} & {task.fingerprint for task in unseen}
    assert all(reserved(word) for task in unseen for word in words(task))
    assert not any(reserved(word) for task in train for word in words(task))


def test_each_family_is_proven_in_both_splits(support: SupportEnvironment) -> None:
    for task in [task for family in FAMILIES for task in drawn(family)]:
        for script in support.scripts(task):
            results = play(support, task, script.texts)
            assert (EventKind.SUCCESS in kinds(results)) == script.success, (task.family, script.name)


def test_demonstrations_without_imperfection_succeed_and_with_it_never_leak(support: SupportEnvironment) -> None:
    stream = random.Random(0)
    for name in FAMILIES:
        task = drawn(name)[0]
        assert EventKind.SUCCESS in kinds(play(support, task, support.demonstrate(task, stream, 0.0)))
        flawed = play(support, task, support.demonstrate(task, stream, 1.0))
        assert EventKind.SUCCESS not in kinds(flawed)
        assert not [name for name in names(flawed, EventKind.FORBIDDEN) if "verification" not in name]


def test_each_stage_of_tools_solves_its_families() -> None:
    for stage, tools in families.TOOL_SETS.items():
        env = SupportEnvironment((1, 2, 3))
        env.choose(tools=stage)
        able = [name for name, family in FAMILIES.items() if set(families.NEEDS[name]) <= set(tools)]
        tasks = env.tasks("train", len(able))
        assert {task.family for task in tasks} == set(able)
        for task in tasks:
            assert EventKind.SUCCESS in kinds(play(env, task, env.scripts(task)[0].texts)), (stage, task.family)
        env.close()
