"""What `ferrata eval` says beside its table: why nothing succeeded."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ferrata.cli.evaluating import why_nothing
from ferrata.evaluation.results import decode, encode, summarise
from ferrata.records import StopReason, Trajectory

MakeTrajectory = Callable[..., Trajectory]


def test_with_a_success_nothing_is_explained(make_trajectory: MakeTrajectory) -> None:
    assert why_nothing(summarise([make_trajectory(0, True), make_trajectory(1, False)])) == []


def test_the_most_frequent_stop_and_the_invalid_actions_are_named(make_trajectory: MakeTrajectory) -> None:
    episodes = [make_trajectory(key, False, stop=StopReason.MAX_TOKENS, invalid=2) for key in range(3)]
    result = summarise([*episodes, make_trajectory(3, False, invalid=3)])
    assert result.invalid_kinds == {"malformed_json": 9}
    assert decode(encode(result)) == result
    budget, invalid = why_nothing(result)
    assert budget.startswith("No task succeeded. 3 of 4 episodes end by max_tokens: rollout.max_tokens ends its")
    assert invalid.startswith("75.0 % of its actions are invalid, most of them malformed_json: ")


def test_turns_that_their_budget_cuts_point_to_that_budget(make_trajectory: MakeTrajectory) -> None:
    result = summarise([make_trajectory(key, False, stop=StopReason.MAX_TURNS, invalid=2) for key in range(3)])
    _, invalid = why_nothing(msgspec.structs.replace(result, invalid_kinds={"cut": 6}))
    assert invalid.endswith(
        "most of them cut: its turns end at rollout.max_tokens_per_turn before they come to an action."
    )


def test_few_invalid_actions_explain_nothing(make_trajectory: MakeTrajectory) -> None:
    [line] = why_nothing(summarise([make_trajectory(key, False) for key in range(3)]))
    assert line.startswith("No task succeeded. 3 of 3 episodes end by submitted: the agent ends its episodes")


def test_what_nobody_judged_is_not_explained(make_trajectory: MakeTrajectory) -> None:
    assert why_nothing(summarise([make_trajectory(0, None, stop=StopReason.ENV_ERROR)])) == []


def test_results_that_were_stored_before_are_still_read(make_trajectory: MakeTrajectory) -> None:
    content = encode(summarise([make_trajectory(0, True)]))
    del content["invalid_kinds"]
    assert decode(content).invalid_kinds == {}
