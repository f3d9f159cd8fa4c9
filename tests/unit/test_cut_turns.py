"""A turn that its budget cut is no malformed action: the agent is told so, and pays for nothing but a step."""

from __future__ import annotations

import pytest

from ferrata.envs import Environment, call
from ferrata.envs.actions import Fault, Malformed, parse
from ferrata.envs.tools import Tool, tools_of
from ferrata.recipe import RewardSection
from ferrata.records import Action, Event, EventKind
from ferrata.rewards.spec import RewardSpec

SAY = call("say", word="ka")


@pytest.fixture
def tools(errand: type[Environment]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools_of(errand)}


@pytest.mark.parametrize("text", ["", "I wonder ", SAY[:-3], "{x} and {", '{"plan": 3} so ', '{"plan": {"x" y } '])
def test_what_is_missing_from_a_cut_turn_is_not_held_against_it(text: str, tools: dict[str, Tool]) -> None:
    found = parse(text, tools, cut=True)
    assert isinstance(found, Malformed)
    assert (found.fault, "cut at its limit" in found.message) == (Fault.CUT, True)
    whole = parse(text, tools)
    assert isinstance(whole, Malformed)
    assert whole.fault is not Fault.CUT, "who ends the turn answers for it"


@pytest.mark.parametrize("text", [SAY, f"Hm. {SAY}", f"{SAY} and now", f'{SAY} {{"action": "sub'])
def test_an_action_that_is_complete_counts(text: str, tools: dict[str, Tool]) -> None:
    assert parse(text, tools, cut=True) == Action("say", {"word": "ka"})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (SAY + SAY, Fault.TWO_ACTIONS),
        (call("sing"), Fault.UNKNOWN_TOOL),
        (call("say") + " ka", Fault.BAD_ARGUMENTS),
    ],
)
def test_what_is_wrong_with_a_complete_action_still_is(text: str, fault: Fault, tools: dict[str, Tool]) -> None:
    found = parse(text, tools, cut=True)
    assert isinstance(found, Malformed)
    assert found.fault is fault


def test_the_environment_says_that_the_turn_was_cut_and_charges_a_step(errand: type[Environment]) -> None:
    world = errand(score=RewardSpec(RewardSection()))
    world.reset(world.tasks("train", 1)[0])
    cut = world.step(SAY[:-3], cut=True)
    assert cut.events == (Event(EventKind.STEP), Event(EventKind.INVALID, "cut"))
    assert cut.components == {"efficiency": -0.01}
    assert cut.observation.text == "error: your turn was cut at its limit before its action was complete"
    assert (cut.action, cut.terminated) == (None, False)
    assert world.step(SAY[:-3]).components == {"efficiency": -0.01, "format": -0.2}
    assert world.step(SAY, cut=True).observation.text == "said ka"
