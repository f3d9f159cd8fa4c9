"""Where an author's code failed: an unexpected exception becomes one sentence that names file, line and function."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ferrata.envs.base import Environment
from ferrata.envs.contract.report import Broken, NotChecked
from ferrata.envs.deadlines import Overdue, short_path
from ferrata.envs.snapshot import UnsavableWorld

ADVICE = "Mend that line; a tool raises ToolError for what it cannot do and Refused for what it must not do."
HANGS = (
    "Mend that line, or give what it waits for a limit of its own; if it is only slow, allow more: --seconds, "
    "`seconds_each` in a test."
)
_PACKAGE = str(Path(inspect.getfile(Environment)).parents[1])


@contextmanager
def blame(kind: type[Environment], doing: str, advice: str = ADVICE) -> Iterator[None]:
    """Turn any exception inside the block into `Broken`: `doing` is the sentence's beginning, e.g. "Tool 'x'"."""
    try:
        yield
    except (Broken, NotChecked):
        raise
    except UnsavableWorld as error:
        place = _set_at(kind, error.attribute) if error.attribute else _line_of(getattr(kind, error.method))
        raise Broken(
            f"{doing} cannot be saved: {error.what}{place}.", f"{error.remedy[:1].upper()}{error.remedy[1:]}."
        ) from error
    except Overdue as error:
        raise Broken(f"{doing} hangs: {error} ({where(kind, error)}).", HANGS) from error
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}"[:300].split())
        raise Broken(f"{doing} raised {reason} ({where(kind, error)}).", advice) from error


def where(kind: type[Environment], error: BaseException) -> str:
    """`file.py:31 in type_code`: the innermost frame of the author's own files, else of any."""
    frames = traceback.extract_tb(error.__traceback__)
    folders = _folders(kind)
    own = [frame for frame in frames if frame.filename.startswith(folders) and not _ours(frame.filename, folders)]
    frame = (own or list(frames))[-1]
    return f"{short_path(frame.filename)}:{frame.lineno} in {frame.name}"


def _set_at(kind: type[Environment], attribute: str) -> str:
    """` (file.py:31 in begin)`: the first line of the author's classes that sets `self.attribute`."""
    setting = re.compile(rf"\bself\.{re.escape(attribute)}\s*(:[^=]*)?=(?!=)")
    for cls in kind.__mro__:
        for method in vars(cls).values() if issubclass(cls, Environment) and cls is not Environment else ():
            for offset, line in enumerate(_source(method)):
                if setting.search(line):
                    return _line_of(method, offset)
    return ""


def _source(method: object) -> list[str]:
    """The lines of a method; none where they cannot be had."""
    try:
        return inspect.getsourcelines(method)[0] if inspect.isfunction(method) else []
    except OSError:
        return []


def _line_of(method: Callable[..., Any], offset: int = 0) -> str:
    code = method.__code__
    return f" ({short_path(code.co_filename)}:{code.co_firstlineno + offset} in {method.__name__})"


def _folders(kind: type[Environment]) -> tuple[str, ...]:
    """The folders of the classes between `kind` and Environment."""
    classes = [cls for cls in kind.__mro__ if issubclass(cls, Environment) and cls is not Environment]
    return tuple(f"{Path(file).resolve().parent}{os.sep}" for cls in classes if (file := _file(cls)))


def _file(cls: type) -> str:
    try:
        return inspect.getfile(cls)
    except (TypeError, OSError):
        return ""  # typed at a prompt


def _ours(filename: str, folders: tuple[str, ...]) -> bool:
    """True for Ferrata's own files, unless the environment is one that ships with Ferrata."""
    return filename.startswith(_PACKAGE) and not any(folder.startswith(_PACKAGE) for folder in folders)
