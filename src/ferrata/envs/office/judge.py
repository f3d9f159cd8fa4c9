"""Whether documents, messages and the answer are what was asked for. Pure functions of text and goal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_WORD = re.compile(r"\w+")


def states(text: str, expected: dict[str, Any]) -> bool:
    """True when `text` states the expected value as a word of its own and none of the decoys, in any case of letters.

    Listing everything that was read is therefore no answer, and a sentence around the value is no fault.
    """
    words = {word.casefold() for word in _WORD.findall(text)}
    return expected["value"].casefold() in words and not words & {decoy.casefold() for decoy in expected["decoys"]}


def shows(rows: Iterable[Sequence[Any]], value: str) -> bool:
    """True when a query result shows a value. No two values of a world are equal, so it says which cell was read."""
    return any(str(cell) == value for row in rows for cell in row)
