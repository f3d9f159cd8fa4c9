"""Least privilege: what one task may touch, asked before anything is touched.

    guard = Guard(task.permissions, task.tools)
    guard.check("write", "notes/a.txt")     Refused when the task may not
    guard.forbids("write:notes/a.txt")      True when the attempt ends the episode

Kinds: `tool`, `read`, `write`, `table`, `recipient` are checked here; `escape` (a path out of the workspace), `sql`
(a statement that does more than read) and `name` (look-alike characters) are refused whatever the task says.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from ferrata.envs.tools import Refused
from ferrata.records import Permissions

_ALL = Permissions()
_FIELD = {"tool": "tools", "read": "read", "write": "write", "table": "tables", "recipient": "recipients"}
"""Kind -> the field of Permissions that rules it."""
_WHAT = {"tool": "the tools", "read": "what", "write": "what", "table": "the tables", "recipient": "the recipients"}
_ALIKE = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"}
"""Alphabets with letters that look like Latin ones."""
_VERB = {"read": " may read", "write": " may write"}


class Guard:
    """Answers for one episode what its task may touch."""

    def __init__(self, permissions: Permissions | None = None, tools: Sequence[str] = ()) -> None:
        self.permissions = permissions or _ALL
        self._tools = tools

    def check(self, kind: str, thing: str) -> None:
        """Raise Refused, naming what is permitted, unless the task may touch `thing`."""
        if kind == "recipient":
            thing = thing.lower()
        permitted: tuple[str, ...] | None = getattr(self.permissions, _FIELD[kind])
        if kind == "tool" and self._tools and thing not in self._tools:
            raise self._refusal(kind, thing, self._tools)
        if permitted is not None and not matches(thing, permitted):
            raise self._refusal(kind, thing, permitted)
        if self.permissions.forbidden and self._named(f"{kind}:{thing}"):
            raise Refused(f"{_short(thing)} is forbidden in this task", f"{kind}:{thing}")

    def allows(self, kind: str, thing: str) -> bool:
        """True when the task may touch `thing`."""
        try:
            self.check(kind, thing)
        except Refused:
            return False
        return True

    def forbids(self, operation: str) -> bool:
        """True when a refused operation, written `kind:thing`, ends the episode."""
        return bool(operation) and (operation.partition(":")[0] in self.permissions.forbidden or self._named(operation))

    def _named(self, operation: str) -> bool:
        return matches(operation, tuple(pattern for pattern in self.permissions.forbidden if ":" in pattern))

    def _refusal(self, kind: str, thing: str, permitted: Sequence[str]) -> Refused:
        among = ", ".join(permitted) or "none"
        return Refused(f"{_short(thing)} is not among {_WHAT[kind]} this task{_VERB.get(kind, ' may use')}: {among}",
                       f"{kind}:{thing}")  # fmt: skip


def matches(thing: str, globs: Sequence[str]) -> bool:
    """True when `thing` matches one of the globs."""
    return any(_pattern(glob).fullmatch(thing) for glob in globs)


def look_alike(name: str) -> bool:
    """True for a name that a person could take for another: invisible or compatibility characters, mixed alphabets."""
    if name.isascii():
        return not name.isprintable()
    if unicodedata.normalize("NFKC", name) != name or not name.isprintable():
        return True
    return any({"LATIN"} < _alphabets(word) & _ALIKE for word in re.findall(r"[^\W\d_]+", name))


def _alphabets(word: str) -> set[str]:
    """The alphabets of the letters of one word, by the first word of each character's Unicode name."""
    return {unicodedata.name(letter, "?").partition(" ")[0] for letter in word}


@lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    if "@" in glob:
        # Mail addresses do not tell capitals from small letters; `check` asks in small ones.
        glob = glob.lower()
    parts = re.split(r"(\*\*|\*|\?)", glob)
    rules = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(rules.get(part) or re.escape(part) for part in parts), re.DOTALL)


def _short(thing: str) -> str:
    return f"'{thing[:100]}'"
