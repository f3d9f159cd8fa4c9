"""Errors of others as text, and the boundaries around their code."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ferrata.cli.boundary import OUR_BUG, BoundedCommands
from ferrata.errors import MAX_CHARACTERS, EnvironmentFault, TaskError, boundary, named, safe_text


class Mute(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


class NoText(Exception):
    def __str__(self) -> str:
        return 7


class Own(str):
    """A text with words of its own."""

    def __getitem__(self, key: object) -> str:
        raise AssertionError("read")

    def __format__(self, spec: str) -> str:
        raise AssertionError("read")


class Wordy(Exception):
    def __str__(self) -> str:
        return Own("odd")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("plain"), "ValueError: plain"),
        (Mute(), "Mute: (its text cannot be read: CancelledError)"),
        (NoText(), "NoText: (its text cannot be read: TypeError)"),
        (Wordy(), "Wordy: odd"),
        (OSError("caf\udce9"), "OSError: caf\\udce9"),
        (ValueError("x" * MAX_CHARACTERS), "ValueError: " + "x" * MAX_CHARACTERS),
        (ValueError("x" * 5000), "ValueError: " + "x" * MAX_CHARACTERS + "... (5000 characters)"),
    ],
)
def test_every_error_can_be_told(error: BaseException, text: str) -> None:
    assert named(error) == text
    with pytest.raises(EnvironmentFault) as raised, boundary(EnvironmentFault, "stepping"):
        raise error
    assert str(raised.value) == f"While stepping: {text}"


def test_how_much_is_told_can_be_chosen() -> None:
    assert safe_text(ValueError("xxxx"), 3) == "xxx... (4 characters)"


def test_a_boundary_turns_what_is_no_exception_into_its_fault() -> None:
    with pytest.raises(EnvironmentFault, match="While asking: CancelledError"), boundary(EnvironmentFault, "asking"):
        raise asyncio.CancelledError


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), TaskError("Wrong.")])
def test_a_boundary_lets_pass_what_is_no_failure(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, boundary(EnvironmentFault, "asking"):
        raise error
    assert raised.value is error


class Mutiny(BaseException):
    """Of no kind that anybody expects."""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (asyncio.CancelledError("gone"), OUR_BUG, "Error: this is a bug in Ferrata (asyncio."),
        (Mutiny("no more"), OUR_BUG, f"Error: this is a bug in Ferrata ({__name__}.Mutiny: no more)"),
        (GeneratorExit(), OUR_BUG, "Error: this is a bug in Ferrata (GeneratorExit)"),
        (EnvironmentFault(Own("odd")), 1, "Error: odd"),
        (SystemExit(3), 3, ""),
    ],
)
def test_a_command_shows_no_traceback_whatever_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    app = typer.Typer(cls=BoundedCommands)

    @app.callback()
    def group() -> None:
        """Make it a group."""

    @app.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(app, ["fail"])
    assert result.exit_code == code
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == bool(said)
