"""What a run opens is closed again, also where it never begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrata import load_recipe
from ferrata.envs.audit import AuditLog, verify
from ferrata.envs.office import OfficeEnvironment
from ferrata.errors import PolicyError, UsageError
from ferrata.runs import RunFolder, SilentView
from ferrata.runs.interrupt import Interrupts
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


def test_the_log_is_closed_last(tmp_path: Path, closed: list[str]) -> None:
    """Whatever is closed before it may still write to it."""
    recipe = load_recipe("office-smoke")
    with RunFolder.create(recipe, tmp_path / "run") as folder:
        Session(recipe, folder, SilentView(), Interrupts(lambda text: None)).close()
    assert closed[-1] == "AuditLog"
    assert "OfficeEnvironment" in closed
