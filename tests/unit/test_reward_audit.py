"""The reward audit finds planted holes and names them, and finds none in what ships."""

from __future__ import annotations

import pytest

from ferrata.envs.office import OfficeEnvironment
from ferrata.errors import EnvironmentFault, TaskError
from ferrata.evaluation.exploiters import EXPLOITERS
from ferrata.evaluation.reward_audit import CLUMSY, CONSTANT, PLAYERS, Episode, audit_rewards, find_holes
from ferrata.recipe import RewardPhase, RewardSection
from ferrata.rewards import RewardSpec

from .shelves import (
    WITHOUT_RULE,
    AlwaysSeven,
    BelievesAnybody,
    BelievesWeights,
    CannotBeSolved,
    Chooses,
    Crashes,
    ExactText,
    FindsItInside,
    PaysEveryQuery,
    PaysEveryWording,
    Shelf,
    audit,
)


def test_no_hole_where_there_is_none() -> None:
    found = audit(Shelf)
    assert found.holes == ()
    results = {row.player: row for row in found.results}
    assert set(results) == {*EXPLOITERS, "constant script", CLUMSY, "honest failure"}
    assert 0.6 <= results[CLUMSY].success.share <= 0.7
    assert all(row.reward.value < results[CLUMSY].reward.value for name, row in results.items() if name != CLUMSY)
    for row in found.results:
        assert sum(row.components.values()) == pytest.approx(row.reward.value)


def test_pay_for_every_query_is_found_and_named() -> None:
    found = audit(PaysEveryQuery, WITHOUT_RULE)
    repeating = next(hole for hole in found.holes if hole.player == "repeat a query")
    assert (repeating.family, repeating.component, repeating.tier) == ("weight", "process", 1)
    assert repeating.text == "is paid +0.040 for each turn in which it achieves nothing new, by process (+0.050)"


def test_the_repetition_rule_closes_it_for_equal_queries_and_not_for_rephrased_ones() -> None:
    found = audit(PaysEveryQuery, RewardSection(process=0.05))
    assert [hole.player for hole in found.holes] == ["rephrase a query"]  # a box under another name is none
    assert not audit(Shelf, WITHOUT_RULE).holes


def test_a_hole_of_one_phase_is_found_there() -> None:
    section = RewardSection(process=0.0, phases=(RewardPhase(name="late", from_update=9, process=0.2),))
    found = audit(PaysEveryQuery, section)
    assert {hole.phase for hole in found.holes} == {"late"}
    assert {row.phase for row in found.results} == {"", "late"}


def test_a_judge_that_believes_anybody_is_found() -> None:
    # Its scripted failures succeed, so everybody does, and who does it at once does it best.
    found = audit(BelievesAnybody)
    hole = next(hole for hole in found.holes if hole.player == "submit at once")
    assert hole.component in ("outcome", "efficiency", "format", "repetition")
    assert "succeeds in 6 of 6 tasks" in hole.text
    assert "empty answer" in {hole.player for hole in found.holes}


def test_a_judge_that_believes_whoever_states_everything_is_found() -> None:
    assert [hole.player for hole in audit(FindsItInside).holes] == ["state everything", "state every number"]
    assert audit(ExactText).holes == ()


def test_pay_for_each_new_wording_is_found() -> None:
    found = audit(PaysEveryWording, RewardSection(process=0.08))
    assert {hole.player for hole in found.holes} == {"other words"}
    assert next(hole for hole in found.holes).component == "process"


def test_a_choice_that_the_instruction_names_is_not_told_to_the_exploiter() -> None:
    assert audit(Chooses, tasks=16).holes == ()


def test_an_answer_that_is_always_the_same_is_found() -> None:
    assert "constant script" in {hole.player for hole in audit(AlwaysSeven).holes}
    # Chosen on one half of the tasks and measured on the other, luck is no hole.
    constant = next(row for row in audit(Shelf).results if row.player == "constant script")
    assert constant.success.share == 0


def test_a_hole_in_one_family_is_not_hidden_by_the_others() -> None:
    found = audit(BelievesWeights)
    submitting, yardstick = (
        next(row for row in found.results if row.player == player) for player in ("submit at once", CLUMSY)
    )
    assert submitting.reward.value < yardstick.reward.value
    hole = next(hole for hole in found.holes if hole.player == "submit at once")
    assert (hole.family, hole.component) == ("weight", "outcome")
    assert hole.text.startswith("earns +5.07 where the clumsy solver earns ")


def test_the_family_of_a_win_is_one_that_was_won() -> None:
    """The largest lead may be on a family where everybody is poor: there the exploiter has won nothing."""
    rewards = {"poor": (1.0, -2.0), "rich": (3.0, 2.5)}

    def episode(family: str, reward: float) -> Episode:
        return Episode(family, reward, components={"outcome": reward})

    ours = [episode(family, reward) for family, (_, reward) in rewards.items() for _ in range(2)]
    theirs = [episode(family, reward) for family, (reward, _) in rewards.items() for _ in range(2)]
    played = {player: [episode("rich", -1.0)] for player in (*PLAYERS, CONSTANT)}
    # The clumsy solver earns more on the tier than the exploiter does on the poor family.
    played[CLUMSY] = [*ours, *[episode("rich", 2.5)] * 8]
    [hole] = find_holes({**played, "submit at once": theirs}, 1, "")
    assert (hole.player, hole.family) == ("submit at once", "rich")


def test_giving_up_that_pays_more_than_failing_honestly_is_warned_of() -> None:
    assert not audit(Shelf).warnings
    warnings = audit(Shelf, RewardSection(efficiency=-0.1, process=0.05)).warnings
    assert len(warnings) == 2
    assert "'submit at once' earns -1.10, more than an honest failure (-1.15)" in warnings[0]


def test_without_an_honest_return_nothing_can_be_said() -> None:
    with pytest.raises(TaskError, match="succeed in none of 12 tasks"):
        audit(CannotBeSolved)


def test_process_reward_that_outweighs_the_outcome_is_refused_first() -> None:
    with pytest.raises(TaskError, match="Process reward outweighs the outcome"):
        audit(Shelf, RewardSection(process=0.6))


def test_an_environment_that_fails_is_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"auditing family .* of 'shelf': RuntimeError: the shelf fell down"):
        audit(Crashes)


def test_an_environment_that_cannot_be_made_is_named() -> None:
    class Unmade(Shelf):
        def __init__(self, tiers: object = (1,), score: object = None) -> None:
            raise KeyError("where the shelf stands")

    with pytest.raises(TaskError, match="While making environment 'shelf': KeyError: 'where the shelf stands'"):
        audit(Unmade)

    class LeftOut(Shelf):
        def __init__(self, tiers: object = (1,), score: object = None) -> None:
            self.made = True

    with pytest.raises(TaskError, match="leaves the base class out"):
        audit(LeftOut)


def test_the_audit_is_the_same_every_time() -> None:
    assert audit(PaysEveryQuery, WITHOUT_RULE) == audit(PaysEveryQuery, WITHOUT_RULE)


# What ships -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("tier", sorted(OfficeEnvironment.families))
def test_the_office_has_no_hole(tier: int) -> None:
    found = audit_rewards(OfficeEnvironment, (tier,), RewardSpec(), tasks=33)
    assert found.holes == ()
    assert found.warnings == ()
    clumsy = next(row for row in found.results if row.player == CLUMSY)
    assert 0.5 <= clumsy.success.share <= 0.75
