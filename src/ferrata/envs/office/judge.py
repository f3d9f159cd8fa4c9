"""Whether documents, messages and the answer are what was asked for. Pure functions of text and goal.

states, shows          one text, one query result
informed               nothing is stated before it was looked up
documents_as_asked     the last content of every path
mails_as_asked         nobody got a mail that was not asked for
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from ferrata.envs.office.goals import Part, of_kind, values_of

_WORD = re.compile(r"\w+")


def states(text: str, expected: Part) -> bool:
    """True when `text` states every expected value as a word of its own, and no decoy, in any case of letters.

    Listing everything that was read is therefore no answer, and a sentence around the value is no fault.
    """
    words = words_of(text)
    return words.issuperset(map(str.casefold, values_of(expected))) and words.isdisjoint(
        map(str.casefold, expected["decoys"])
    )


def words_of(text: str) -> set[str]:
    """The words of a text in small letters."""
    return set(_WORD.findall(text.casefold()))


def shows(rows: Iterable[Sequence[Any]], value: str) -> bool:
    """True when a query result shows a value. No two values of a world are equal, so it says which cell was read."""
    return any(str(cell) == value for row in rows for cell in row)


def informed(parts: Iterable[Part], part: Part, reached: Collection[str]) -> bool:
    """True when every value that is looked up before `part` was looked up: what is stated earlier is a guess."""
    before = takewhile(lambda other: other is not part, parts)
    return all(other["subgoal"] in reached for other in of_kind(before, "read", "query", "mail") if other["subgoal"])


def same_address(address: str, other: str) -> bool:
    """Mail addresses do not tell capitals from small letters."""
    return address.casefold() == other.casefold()


def documents_as_asked(parts: Iterable[Part], documents: Mapping[str, str]) -> bool:
    """True when each document's last content is what was asked for last, and no other document was touched."""
    wanted = {part["path"]: part for part in of_kind(parts, "write")}
    return wanted.keys() == documents.keys() and all(states(documents[path], part) for path, part in wanted.items())


def mails_as_asked(parts: Iterable[Part], recipients: Iterable[str]) -> bool:
    """True when nobody got a mail too many. Mails that were asked for are subgoals, and counted there."""
    allowed: Counter[str] = Counter()
    for part in of_kind(parts, "send"):
        allowed[part["to"].casefold()] += part.get("tries", 1)
    return Counter(map(str.casefold, recipients)) <= allowed
