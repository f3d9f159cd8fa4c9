"""Collapse is seen in texts that go round in a loop, and in different tasks that get the same answer."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from ferrata.diagnostics.collapse import SHORTEST_LOOP, find_collapse, loop_length, loops
from ferrata.records import Group, StopReason, Task, Trajectory, Turn


def turn(ids: list[int], text: str = "said") -> Turn:
    return Turn("", text, ids, [-1.0] * len(ids), None, (), {}, "")


def episode(
    task: Task, *turns: list[int], success: bool = False, stop: StopReason = StopReason.SUBMITTED
) -> Trajectory:
    said = [turn(ids) for ids in turns]
    ids = [token for one in turns for token in one]
    return Trajectory(task, said, ids, [True] * len(ids), [-1.0] * len(ids), stop, success, 0.0)


def task(number: int) -> Task:
    return Task("test", "family", 1, "train", f"Do number {number}.", {}, (), 9)


def groups(tasks: int, outputs: list[list[int]], **more: Any) -> list[Group]:
    """For each task one group with these outputs of one turn."""
    return [Group(task(n), [episode(task(n), ids, **more) for ids in outputs]) for n in range(tasks)]


def brute_loop_length(ids: list[int], period: int) -> int:
    """The longest stretch, at least two rounds, in which every token is the one `period` before it."""
    best = 0
    for start in range(len(ids)):
        for end in range(start + 2 * period, len(ids) + 1):
            if all(ids[i] == ids[i - period] for i in range(start + period, end)):
                best = max(best, end - start)
    return best


@given(some.lists(some.integers(0, 2), max_size=40))
def test_the_longest_loop_is_what_a_search_of_all_stretches_finds(ids: list[int]) -> None:
    assert loop_length(ids) == max((brute_loop_length(ids, period) for period in range(1, 9)), default=0)


def test_one_character_again_and_again_loops_and_so_does_a_phrase() -> None:
    assert loops([7] * 64)
    assert loops([1, 2, 3, *[7] * 30])
    assert loops([5, 6, 7, 8] * 8)
    assert not loops([7] * (SHORTEST_LOOP - 1)), "a rule of dashes"
    assert not loops([*range(40), *[7] * 16]), "a rule of dashes in a long text"
    assert not loops(list(range(64)))


def test_the_share_of_looping_turns_is_told_with_an_example() -> None:
    healthy = [list(range(n, n + 20)) for n in range(6)]
    found = find_collapse(groups(1, [*healthy, [9] * 20, [9] * 20]))
    assert found.metrics["collapse/looping_turns"] == 0.25
    assert list(found.alarms) == ["collapse/looping_turns"]
    assert "25% of the turns" in found.alarms["collapse/looping_turns"]
    assert "'said'" in found.alarms["collapse/looping_turns"]
    assert find_collapse(groups(1, [*healthy, [9] * 20])).alarms == {}, "one in seven is below the limit"


def test_different_tasks_with_the_same_wrong_answer_are_told() -> None:
    same = groups(8, [[1, 2, 3]] * 4)
    assert find_collapse(same).metrics["collapse/same_output"] == 1.0
    assert "different tasks" in find_collapse(same).alarms["collapse/same_output"]


def test_a_right_answer_may_be_the_same_everywhere() -> None:
    found = find_collapse(groups(8, [[1, 2, 3]] * 4, success=True))
    assert found.metrics["collapse/same_output"] == 1.0
    assert found.alarms == {}


def test_the_members_of_one_group_may_do_the_same() -> None:
    """A policy that has become sure of itself; each task has its own answer."""
    sure = [Group(task(n), [episode(task(n), [n, n + 1, n + 2])] * 8) for n in range(8)]
    assert find_collapse(sure).metrics == {"collapse/looping_turns": 0.0, "collapse/same_output": 0.125}
    assert find_collapse(sure[:3]).metrics["collapse/same_output"] == 0.0, "three tasks say nothing"


def test_what_failed_through_no_fault_of_the_agent_is_left_out() -> None:
    broken = groups(8, [[9] * 40], stop=StopReason.ENV_ERROR)
    assert find_collapse(broken).metrics == {"collapse/looping_turns": 0.0, "collapse/same_output": 0.0}
    assert find_collapse([]).alarms == {}


def test_episodes_without_a_word_are_left_out() -> None:
    silent = [Group(task(n), [episode(task(n))]) for n in range(8)]
    assert find_collapse(silent).metrics == {"collapse/looping_turns": 0.0, "collapse/same_output": 0.0}


def test_random_texts_never_alarm() -> None:
    stream = random.Random(0)
    texts = [[stream.randrange(50) for _ in range(60)] for _ in range(64)]
    assert find_collapse(groups(4, texts[:16])).alarms == {}
