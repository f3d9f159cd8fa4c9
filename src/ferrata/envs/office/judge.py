"""Whether documents, messages and the answer are what was asked for. Pure functions of text and goal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_WORD = re.compile(r"\w+")


def states(text: str, expected: dict[str, Any]) -> bool:
    """True when `text` states the expected value as a word of its own and none of the decoys.

    Listing everything that was read is therefore no answer, and a sentence around the value is no fault.
    """
    words = _WORD.findall(text)
    return expected["value"] in words and not set(expected["decoys"]) & set(words)


def shows_cell(columns: Sequence[str], rows: Sequence[Sequence[Any]], lookup: dict[str, Any]) -> bool:
    """True when a query result shows the asked cell. Values are unique in a world, so the value identifies it."""
    field = lookup["field"]
    return any(
        column == field and str(row[index]) == lookup["value"] for index, column in enumerate(columns) for row in rows
    )
