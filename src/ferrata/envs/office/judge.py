"""Whether documents, messages and the answer are what was asked for. Pure functions of text and goal.

states, shows_cell     one text, one query result
documents_as_asked     the last content of every path
mails_as_asked         nobody got a mail that was not asked for
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ferrata.envs.office.goals import Part, of_kind, values_of

_WORD = re.compile(r"\w+")


def states(text: str, expected: Part) -> bool:
    """True when `text` states every expected value as a word of its own, and none of the decoys.

    Listing everything that was read is therefore no answer, and a sentence around the value is no fault.
    """
    words = set(_WORD.findall(text))
    return words.issuperset(values_of(expected)) and words.isdisjoint(expected["decoys"])


def shows_cell(columns: Sequence[str], rows: Sequence[Sequence[Any]], lookup: Part) -> bool:
    """True when a query result shows the asked cell. Values are unique in a world, so the value identifies it."""
    field = lookup["field"]
    return any(
        column == field and str(row[index]) == lookup["value"] for index, column in enumerate(columns) for row in rows
    )


def documents_as_asked(parts: Iterable[Part], documents: Mapping[str, str]) -> bool:
    """True when each document's last content is what was asked for last, and no other document was touched."""
    wanted = {part["path"]: part for part in of_kind(parts, "write")}
    return wanted.keys() == documents.keys() and all(states(documents[path], part) for path, part in wanted.items())


def mails_as_asked(parts: Iterable[Part], recipients: Iterable[str]) -> bool:
    """True when nobody got a mail too many. Mails that were asked for are subgoals, and counted there."""
    allowed: Counter[str] = Counter()
    for part in of_kind(parts, "send"):
        allowed[part["to"]] += part.get("tries", 1)
    return Counter(recipients) <= allowed
