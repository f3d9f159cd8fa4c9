"""Mistakes of an environment's author in the class: each is refused when it is loaded, and told what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from ferrata.envs import Effect, Environment, tool
from ferrata.envs.contract.definition import check_definition, refuse_mistakes
from ferrata.envs.contract.report import Broken
from ferrata.errors import TaskError

from .door import Door


def no_name() -> type[Environment]:
    class Door2(Door):
        name = " "

    return Door2


def no_families() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {}

    return Door2


def family_without_comma() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {1: ("open")}

    return Door2


def tier_without_family() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {1: ("open",), 2: ()}

    return Door2


def tier_out_of_range() -> type[Environment]:
    class Door2(Door):
        families: ClassVar = {4: ("open",)}

    return Door2


def no_generate() -> type[Environment]:
    class Bare(Environment):
        name = "bare"
        families: ClassVar = {1: ("open",)}

    return Bare


def no_tools() -> type[Environment]:
    class Bare(Environment):
        name = "bare"
        families: ClassVar = {1: ("open",)}
        generate = Door.generate

    return Bare


def no_type_hint() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.")
        def knock(self, times) -> str:
            return "knock"

    return Door2


def no_schema_for_the_hint() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.")
        def knock(self, rhythm: complex) -> str:
            return "knock"

    return Door2


def any_number_of_arguments() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.")
        def knock(self, *times: int) -> str:
            return "knock"

    return Door2


def no_description() -> type[Environment]:
    class Door2(Door):
        @tool("")
        def knock(self) -> str:
            return "knock"

    return Door2


def bare_decorator() -> type[Environment]:
    class Door2(Door):
        @tool
        def knock(self) -> str:
            return "knock"

    return Door2


def tool_named_like_a_method() -> type[Environment]:
    class Door2(Door):
        @tool("Take a step.")
        def step(self, text: str) -> str:
            return "one step"

    return Door2


def tool_declared_to_return_a_number() -> type[Environment]:
    class Door2(Door):
        @tool("Count the doors.")
        def count(self) -> int:
            return 1

    return Door2


def async_tool() -> type[Environment]:
    class Door2(Door):
        @tool("Wait.")
        async def wait(self) -> str:
            return "waited"

    return Door2


def own_confirm() -> type[Environment]:
    class Door2(Door):
        @tool("Burn it.", effect=Effect.IRREVERSIBLE)
        def burn(self, confirm: bool) -> str:
            return "burnt"

    return Door2


def constructor_without_tiers() -> type[Environment]:
    class Door2(Door):
        def __init__(self, colour: str) -> None:
            super().__init__()

    return Door2


def half_a_pair() -> type[Environment]:
    class Door2(Door):
        def save_world(self) -> Any:
            return self.tries

    return Door2


def state_in_the_class() -> type[Environment]:
    class Door2(Door):
        pass

    Door2.opened = {}

    return Door2


def tool_that_costs_less_than_nothing() -> type[Environment]:
    class Door2(Door):
        @tool("Knock.", cost=-0.5)
        def knock(self) -> str:
            return "knock"

    return Door2


DEFINITIONS: list[tuple[Callable[[], type[Environment]], str, str]] = [
    (no_name, "Door2 has no name.", 'Write name = "door2"'),
    (no_families, "Door2 has no families", 'Write families = {1: ("open",)}'),
    (family_without_comma, "Door2.families[1] is the text 'open'.", "needs a comma: ('open',)"),
    (tier_without_family, "Door2.families[2] names no family.", "leave it out"),
    (tier_out_of_range, "Door2.families has a tier 4.", "Tiers are 1, 2 and 3."),
    (no_generate, "Bare has no generate().", "Write def generate(self, family, tier, stream, split)"),
    (no_tools, "Bare has no tools.", '@tool("...")'),
    (no_type_hint, "Tool 'knock' of Door2: parameter 'times' has no type hint.", "Write 'times: str'"),
    (no_schema_for_the_hint, "Door2: Tool 'knock': no JSON schema for the type hint <class 'complex'>", "Use str, int"),
    (any_number_of_arguments, "Tool 'knock' of Door2 takes '*times: ", "Give every argument a name"),
    (no_description, "Tool 'knock' of Door2 has no description.", '@tool("What it does.")'),
    (bare_decorator, "Tool 'knock' of Door2 has no description.", "instead of @tool."),
    (tool_named_like_a_method, "Tool 'step' of Door2 hides Environment.step", "Give the tool another name."),
    (tool_declared_to_return_a_number, "Tool 'count' of Door2 is declared to return int.", "-> str"),
    (async_tool, "Tool 'wait' of Door2 is an async method.", "plain method"),
    (own_confirm, "Tool 'burn' of Door2 has a parameter 'confirm'.", "Leave it out"),
    (constructor_without_tiers, "Door2(tiers=..., score=...) cannot be called", "super().__init__(tiers, score)"),
    (state_in_the_class, "Door2.opened is a dict in the class", "Set it in begin(): self.opened = ..."),
    (tool_that_costs_less_than_nothing, "Tool 'knock' of Door2 has the cost -0.5.", "A cost is a number from 0 on"),
    (half_a_pair, "Door2 has save_world() but no load_world().", "Write def load_world(self, state)"),
]


@pytest.mark.parametrize(("make", "seen", "advice"), DEFINITIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_mistake_in_the_class_is_refused_at_load(
    make: Callable[[], type[Environment]], seen: str, advice: str
) -> None:
    with pytest.raises(TaskError) as raised:
        refuse_mistakes(make())
    assert seen in str(raised.value)
    assert advice in str(raised.value)


def test_scripts_are_missed_when_checking_and_not_when_loading() -> None:
    class Unproven(Door):
        scripts = Environment.scripts

    refuse_mistakes(Unproven)
    with pytest.raises(Broken, match=r"Unproven has no scripts\(\)\. Write def scripts"):
        check_definition(Unproven)
