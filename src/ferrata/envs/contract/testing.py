"""The contract as a test class: subclass it in your own tests.

    from ferrata.envs.contract import EnvironmentContract

    class TestLocker(EnvironmentContract):
        environment = Locker

Each check is one test. pytest is not imported: it finds the methods by their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from unittest.case import SkipTest

from ferrata.envs.base import Environment
from ferrata.envs.contract.definition import check_definition
from ferrata.envs.contract.report import Broken, NotChecked
from ferrata.envs.contract.subject import SECONDS_EACH, Dominance, Subject
from ferrata.envs.contract.suite import CHECKS


class EnvironmentContract:
    """What every environment must fulfil. A subclass, or a fixture that it uses, sets `environment`."""

    environment: Callable[..., Environment]
    """The class, whose tiers are then all checked; or a function without arguments that makes an instance."""
    dominance: Dominance | None = None
    """`RewardSpec(...).check_dominance` of the rewards that you train with."""
    tasks_each: ClassVar[int] = 10
    """Tasks of each split; at least one of every family is drawn."""
    fuzzed: ClassVar[int] = 1000
    """How many wild texts are tried."""
    seconds_each: ClassVar[float] = SECONDS_EACH
    """Longest time of one action (seconds)."""
    _shared: ClassVar[tuple[Any, Subject] | None] = None
    """What `environment` was, and the subject made of it."""

    def test_definition(self) -> None:
        """Name, families, methods and tools of the class."""
        self.check("definition")

    def test_tasks(self) -> None:
        """Tasks are sound and come from their stream alone."""
        self.check("tasks")

    def test_splits(self) -> None:
        """Training and evaluation share no task."""
        self.check("splits")

    def test_scripts(self) -> None:
        """Scripts fit their turns and can be played."""
        self.check("scripts")

    def test_proof(self) -> None:
        """The judge gives every script its verdict."""
        self.check("proof")

    def test_subgoals(self) -> None:
        """Every subgoal is reached by the solution, in order."""
        self.check("subgoals")

    def test_events(self) -> None:
        """An ended episode has one verdict."""
        self.check("events")

    def test_observations(self) -> None:
        """After every step there is something to read, and not too much."""
        self.check("observations")

    def test_determinism(self) -> None:
        """The same seed and texts give the same episode."""
        self.check("determinism")

    def test_other_process(self) -> None:
        """Another process sees the same."""
        self.check("other process")

    def test_snapshots(self) -> None:
        """Restored or forked, an episode has the same future."""
        self.check("snapshots")

    def test_turn_budget(self) -> None:
        """Idling is cut and not ended; nothing follows an end."""
        self.check("turn budget")

    def test_hostile_text(self) -> None:
        """No text raises."""
        self.check("hostile text")

    def test_dominance(self) -> None:
        """The outcome outweighs the process."""
        self.check("dominance")

    def test_speed(self) -> None:
        """The speed can be measured."""
        self.check("speed")

    def check(self, name: str) -> None:
        """Make one check: AssertionError says what was seen and what to do, SkipTest why it was not made."""
        __tracebackhide__ = True
        try:
            CHECKS[name](self._subject())
        except NotChecked as reason:
            raise SkipTest(f"not checked: {reason}") from None
        except Broken as fault:
            raise AssertionError(str(fault)) from fault.__cause__

    @classmethod
    def teardown_class(cls) -> None:
        """Close what the tests of the class shared."""
        if cls._shared is not None:
            cls._shared[1].env.close()
        cls._shared = None

    def _subject(self) -> Subject:
        """The environment under check: one for all tests, so that tasks are drawn and scripts are played once."""
        cls, make = type(self), _as_written(self, "environment")
        if cls._shared is None or cls._shared[0] is not make:
            cls.teardown_class()
            cls._shared = make, self._new_subject(make)
        return cls._shared[1]

    def _new_subject(self, make: Any) -> Subject:
        if isinstance(make, type) and issubclass(make, Environment):
            check_definition(make)
            make = partial(make, tiers=tuple(sorted(make.families)))
        return Subject(make, self.tasks_each, self.fuzzed, _as_written(self, "dominance"), self.seconds_each)


def _as_written(contract: EnvironmentContract, name: str) -> Any:
    """What a subclass wrote. A plain function there would be a method, and be handed the contract as its argument.

    One that wants it, as `def environment(self)` does, stays a method.
    """
    value = getattr(contract, name)
    if inspect.ismethod(value) and value.__self__ is contract:
        takes = list(inspect.signature(value.__func__).parameters)
        return value if takes[:1] == ["self"] else value.__func__
    return value
