"""What a run opens is closed again, also where it never begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ferrata import load_recipe
from ferrata.envs.audit import AuditLog, verify
from ferrata.envs.office import OfficeEnvironment
from ferrata.errors import JudgeFault, PolicyError, RolloutFault, UsageError
from ferrata.evaluation.results import summarise
from ferrata.records import StopReason, Task
from ferrata.runs import RunFolder, SilentView
from ferrata.runs.interrupt import Interrupts
from ferrata.training import pipeline
from ferrata.training.session import Session


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was closed, in order."""
    names: list[str] = []

    def noting(kind: type[Any]) -> Callable[[Any], None]:
        close = kind.close

        def noted(self: Any) -> None:
            names.append(kind.__name__)
            close(self)

        return noted

    for kind in (OfficeEnvironment, AuditLog):
        monkeypatch.setattr(kind, "close", noting(kind))
    return names


@pytest.mark.parametrize(
    ("override", "fault"),
    [("policy.model=nowhere", PolicyError), ("env.faults.timeout={nothing=0.5}", UsageError)],
)
def test_a_run_that_cannot_begin_closes_its_environment_and_its_log(
    tmp_path: Path, closed: list[str], override: str, fault: type[Exception]
) -> None:
    recipe = load_recipe("office-smoke", [override])
    with RunFolder.create(recipe, tmp_path / "run") as folder:
        with pytest.raises(fault):
            Session(recipe, folder, SilentView(), Interrupts(lambda text: None))
        assert closed == ["OfficeEnvironment", "AuditLog"]
        assert verify(folder.path / "audit").unfinished == 0


def test_dropped_episodes_of_an_evaluation_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_trajectory: Any
) -> None:
    class Kept(SilentView):
        said: ClassVar[list[str]] = []

        def message(self, text: str) -> None:
            self.said.append(text)

    played = [make_trajectory(key) for key in range(3)] + [make_trajectory(3, None, stop=StopReason.ENV_ERROR)]
    recipe = load_recipe("office-smoke")
    with RunFolder.create(recipe, tmp_path / "run") as folder:
        session = Session(recipe, folder, Kept(), Interrupts(lambda text: None))
        for episodes in (played, played[:3]):
            outcome = (summarise(episodes), episodes)
            monkeypatch.setattr("ferrata.training.session.evaluate", lambda *args, outcome=outcome, **keys: outcome)
            session.evaluate_small("rl", 1, session.unseen)
        session.close()
    assert Kept.said == [
        "Of 4 evaluation episodes (greedy) 1 could not be scored and count as nothing (env_error 1): success is over "
        "the other 3."
    ]


@pytest.mark.parametrize(("word", "hint"), [("crash", True), ("judge", False)])
def test_an_environment_that_fails_in_a_run_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, hint: bool
) -> None:
    def fail(self: OfficeEnvironment, task: Task) -> None:
        raise RuntimeError("the office is closed") if word == "crash" else JudgeFault("The judge is asleep.")

    recipe = load_recipe("office-smoke", ['stages=["rl"]', "evaluation.tasks=4"])
    monkeypatch.setattr(pipeline, "check_budgets", lambda session: None)
    monkeypatch.setattr(OfficeEnvironment, "begin", fail)
    with RunFolder.create(recipe, tmp_path / "run") as folder, pytest.raises(RolloutFault) as caught:
        pipeline.run(recipe, folder, SilentView(), Interrupts(lambda text: None))
    told = str(caught.value)
    assert (re.search(r"the office is closed \(.*test_session.py:\d+ in fail\)", told) is not None) == hint
    assert told.endswith(" `ferrata check-env office` looks for such faults.") == hint


def test_the_log_is_closed_last(tmp_path: Path, closed: list[str]) -> None:
    """Whatever is closed before it may still write to it."""
    recipe = load_recipe("office-smoke")
    with RunFolder.create(recipe, tmp_path / "run") as folder:
        Session(recipe, folder, SilentView(), Interrupts(lambda text: None)).close()
    assert closed[-1] == "AuditLog"
    assert "OfficeEnvironment" in closed
