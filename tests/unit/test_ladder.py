"""The ladder climbs by measured success, comes down when what it stood on collapses, and stands where it stood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from ferrata.recipe import LadderSection
from ferrata.tasks.ladder import Ladder

ON = LadderSection(enabled=True, gate=0.4, evaluations=2)


def climbed(section: LadderSection = ON) -> Ladder:
    """A ladder on its second rung, with 80 % on tier 1 when it climbed."""
    ladder = Ladder(section, (1, 2, 3))
    assert ladder.judge(10, {1: 0.8}, 0.0) == []
    assert [move.kind for move in ladder.judge(20, {1: 0.8}, 0.0)] == ["promoted"]
    return ladder


def test_it_starts_on_the_easiest_tier_alone() -> None:
    assert Ladder(ON, (2, 1, 3)).shares() == {1: 1.0}


def test_without_it_all_tiers_are_drawn_from_and_nothing_is_judged() -> None:
    ladder = Ladder(LadderSection(), (1, 2, 3))
    assert ladder.counts(6) == {1: 2, 2: 2, 3: 2}
    assert ladder.turn_cap == 0
    assert ladder.judge(5, {1: 1.0, 2: 1.0, 3: 1.0}, 1.0) == []


def test_one_good_evaluation_is_not_enough() -> None:
    ladder = Ladder(ON, (1, 2))
    for update, success in ((1, 0.9), (2, 0.3), (3, 0.9)):
        assert ladder.judge(update, {1: success}, 0.0) == []
    (move,) = ladder.judge(4, {1: 0.41}, 0.0)
    assert (move.update, move.kind, move.rung) == (4, "promoted", 1)
    assert move.why == "Success on tier 1 was over 40% in 2 evaluations running."
    assert ladder.shares() == {1: 0.5, 2: 0.5}


def test_where_one_evaluation_is_enough_it_says_so() -> None:
    (move,) = Ladder(LadderSection(enabled=True, evaluations=1), (1, 2)).judge(4, {1: 0.41}, 0.0)
    assert move.why == "Success on tier 1 was over 40% in the last evaluation."


def test_exactly_the_gate_does_not_open_it() -> None:
    ladder = Ladder(LadderSection(enabled=True, gate=0.4, evaluations=1), (1, 2))
    assert ladder.judge(1, {1: 0.4}, 0.0) == []


def test_it_comes_down_when_the_tier_below_collapses_and_can_climb_again() -> None:
    ladder = climbed()
    assert ladder.judge(30, {1: 0.39, 2: 0.9}, 0.0) == []
    (move,) = ladder.judge(40, {1: 0.3, 2: 0.9}, 0.0)
    assert (move.kind, move.rung) == ("fell back", 0)
    assert move.why == "Success on tier 1 fell from 80% to 30%; the mix returns to what worked."
    assert ladder.shares() == {1: 1.0}
    assert ladder.judge(50, {1: 0.5}, 0.0) == []
    assert [move.kind for move in ladder.judge(60, {1: 0.5}, 0.0)] == ["promoted"]


def test_a_poor_newest_tier_is_no_collapse() -> None:
    ladder = climbed()
    for update in range(30, 100, 10):
        assert ladder.judge(update, {1: 0.8, 2: 0.0}, 0.0) == []


def test_the_turn_cap_rises_by_itself() -> None:
    ladder = Ladder(ON, (1, 2))
    assert ladder.turn_cap == 30
    (move,) = ladder.judge(10, {1: 0.0}, 0.2)
    assert (move.kind, move.rung, move.turn_cap) == ("turn cap", 0, 60)
    ladder.judge(20, {1: 0.0}, 0.2)
    assert ladder.turn_cap == 100
    assert ladder.judge(30, {1: 0.0}, 1.0) == []


def test_a_schedule_climbs_whatever_the_success() -> None:
    ladder = Ladder(LadderSection(enabled=True, schedule=(10, 20)), (1, 2, 3))
    assert ladder.reach(9) == []
    assert ladder.judge(9, {1: 1.0}, 0.0) == [], "evaluations have no say"
    assert [move.rung for move in ladder.reach(10)] == [1]
    assert ladder.reach(11) == []
    assert ladder.rung == 1
    assert [move.rung for move in ladder.reach(25)] == [2]
    assert ladder.reach(26) == []


def test_a_schedule_skips_no_rung() -> None:
    ladder = Ladder(LadderSection(enabled=True, schedule=(2, 3)), (1, 2, 3))
    assert [move.rung for move in ladder.reach(9)] == [1]
    assert [move.rung for move in ladder.reach(10)] == [2]


def test_without_a_schedule_no_update_changes_anything() -> None:
    assert Ladder(ON, (1, 2)).reach(50) == []


def test_it_can_fall_back_twice() -> None:
    ladder = Ladder(LadderSection(enabled=True, gate=0.4, evaluations=1, collapse=0.5), (1, 2, 3))
    ladder.judge(1, {1: 0.9}, 0.0)
    ladder.judge(2, {1: 0.9, 2: 0.6}, 0.0)
    assert ladder.rung == 2
    assert [move.rung for move in ladder.judge(3, {1: 0.4, 2: 0.6, 3: 0.1}, 0.0)] == [1]
    assert [move.rung for move in ladder.judge(4, {1: 0.1, 2: 0.3}, 0.0)] == [0]


def test_it_does_not_climb_again_before_what_collapsed_is_mended() -> None:
    ladder = Ladder(LadderSection(enabled=True, gate=0.4, evaluations=1, collapse=0.5), (1, 2))
    ladder.judge(1, {1: 0.9}, 0.0)
    assert ladder.judge(2, {1: 0.44, 2: 0.3}, 0.0)[0].kind == "fell back"
    assert ladder.judge(3, {1: 0.44}, 0.0) == [], "over the gate, but under half of what it was"
    assert ladder.judge(4, {1: 0.5}, 0.0)[0].kind == "promoted"
    assert ladder.judge(5, {1: 0.44, 2: 0.3}, 0.0)[0].why.startswith("Success on tier 1 fell from 90% to 44%")


def test_a_tier_that_was_not_evaluated_is_neither_good_nor_collapsed() -> None:
    ladder = Ladder(LadderSection(enabled=True, gate=0.4, evaluations=1), (1, 2, 3))
    ladder.judge(1, {1: 0.9}, 0.0)
    assert ladder.judge(2, {2: 0.3}, 0.0) == []
    assert ladder.judge(3, {2: 0.9}, 0.0)[0].rung == 2
    assert ladder.judge(4, {1: 0.4}, 0.0)[0].kind == "fell back", "what it was before still counts"


def test_tools_grow_with_the_rung() -> None:
    ladder = climbed(LadderSection(enabled=True, tools=("basic", "standard")))
    assert Ladder(LadderSection(enabled=True, tools=("basic", "standard")), (1,)).tools == "basic"
    assert ladder.tools == "standard"
    assert Ladder(ON, (1,)).tools == ""


@given(some.integers(1, 64), some.floats(0.01, 0.99), some.integers(1, 3))
def test_counts_add_up_whatever_the_shares(tasks: int, newest: float, tiers: int) -> None:
    section = LadderSection(enabled=True, evaluations=1, gate=0.0, newest=newest)
    ladder = Ladder(section, tuple(range(1, tiers + 1)))
    for update in range(tiers - 1):
        ladder.judge(update, dict.fromkeys(range(1, tiers + 1), 1.0), 0.0)
    counts, shares = ladder.counts(tasks), ladder.shares()
    assert sum(counts.values()) == tasks
    assert all(abs(counts[tier] - shares[tier] * tasks) < 1 for tier in shares)


EVALUATIONS = some.lists(
    some.tuples(some.dictionaries(some.integers(1, 3), some.floats(0, 1), max_size=3), some.floats(0, 1)), max_size=20
)


@given(EVALUATIONS, some.integers(0, 20))
def test_a_ladder_that_was_saved_goes_on_as_the_one_that_was_not(
    evaluations: list[tuple[dict[int, float], float]], at: int
) -> None:
    left_alone, resumed = Ladder(ON, (1, 2, 3)), Ladder(ON, (1, 2, 3))
    for update, (success, cut) in enumerate(evaluations):
        if update == at:
            state = resumed.state()
            resumed = Ladder(ON, (1, 2, 3))
            resumed.load(state)
        assert left_alone.judge(update, success, cut) == resumed.judge(update, success, cut)
        assert 0 <= left_alone.rung <= 2
    assert left_alone.state() == resumed.state()


@pytest.mark.parametrize("wrong", [{"turn_caps": (30, 20)}, {"schedule": (10, 10)}])
def test_caps_and_schedules_must_grow(wrong: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ValidationError, match="must grow"):
        LadderSection(**wrong)
