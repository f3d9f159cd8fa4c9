"""Whether documents, messages and the answer are what was asked for. Pure functions of text and goal.

states, misleads       one text
found                  one query and its result
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

_WORD = re.compile(r"[^\W_]+")


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


def misleads(text: str, expected: Part) -> bool:
    """True when `text` states a decoy in the place of what is expected. One that states both says too much instead."""
    words = words_of(text)
    complete = words.issuperset(map(str.casefold, values_of(expected)))
    return not complete and not words.isdisjoint(map(str.casefold, expected["decoys"]))


def found(part: Part, sql: str, reads: Collection[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> bool:
    """True when a query looked the part's cell up: it read the column, and shows the value or asks by the name.

    No two values of a world are equal, so a value that is shown says which row it came from. A query that compares or
    adds up shows no single value, and names whom it is about.
    """
    if (part["table"], part["field"]) not in reads or not rows:
        return False
    shown = any(part["value"].casefold() in words_of(str(cell)) for row in rows for cell in row)
    return shown or part["name"].casefold() in words_of(sql)


def informed(parts: Iterable[Part], part: Part, reached: Collection[str]) -> bool:
    """True when every value that `part` rests on was looked up: what is stated earlier is a guess.

    A part rests on the look-ups that it `needs`, or else on all that come before it.
    """
    if "needs" in part:
        return set(part["needs"]).issubset(reached)
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
