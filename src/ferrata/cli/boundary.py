"""The one place where errors meet the person: a sentence on stderr, an exit code, never a traceback.

our own errors     "Error: ..." and the error's exit code
Ctrl-C             "Stopped." and 130
a closed pipe      silence and 141, as the shell's own tools
anything else      our bug: one sentence that says where the traceback was written, and 70
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from ferrata.errors import FerrataError, Interrupted, safe_text

OUR_BUG = 70
STOPPED = 130
CLOSED_PIPE = 141
_CHARACTERS = 20_000
"""Longest message; the person may be told long lists."""


class BoundedCommands(TyperGroup):
    """The command group, with the error boundary around whichever command runs."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; every way of failing ends in an exit code."""
        try:
            return super().invoke(ctx)
        except Interrupted as error:
            code, text = error.exit_code, str(error)
        except FerrataError as error:
            code, text = error.exit_code, f"Error: {safe_text(error, _CHARACTERS)}"
        except KeyboardInterrupt:
            code, text = STOPPED, "Stopped."
        except BrokenPipeError:
            _silence_stdout()
            code, text = CLOSED_PIPE, ""
        except SystemExit:
            raise
        except BaseException as error:
            # The parser's own errors and exits are not ours to explain.
            if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code"):
                raise
            code, text = OUR_BUG, _our_bug()
        if text:
            typer.echo(text, err=True)
        raise typer.Exit(code)


def _our_bug() -> str:
    """Write the current traceback to a file and say where it is."""
    report = traceback.format_exc()
    last = report.rstrip().rsplit("\n", 1)[-1]
    try:
        descriptor, name = tempfile.mkstemp(prefix="ferrata-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(report)
        where = f"the traceback is in {Path(name)}"
    except OSError:
        where = "no traceback could be written"
    return f"Error: this is a bug in Ferrata ({last}); {where}."


def _silence_stdout() -> None:
    """Let the interpreter flush its buffers into nothing, for nobody reads them any more."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
