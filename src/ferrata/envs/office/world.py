"""Draws the content of one office: notes, tables, people, and distractors of the same type.

Every name and number comes from one split (`language.reserved`), and no two cells of a world are equal, so
that a value identifies where it was read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ferrata.envs.office.language import (
    MAIL_DOMAIN,
    NAME_FIELDS,
    NUMBER_FIELDS,
    draw_name,
    draw_number,
    namesakes,
)
from ferrata.envs.office.phrases import TABLES


class WorldDraw:
    """Names, numbers, notes and tables of one task, drawn from one stream without repetition."""

    def __init__(self, stream: random.Random, split: str) -> None:
        self.stream = stream
        self.evaluation = split == "eval"
        self.notes: dict[str, dict[str, str]] = {}
        """Subject -> field -> value: becomes notes/SUBJECT.txt."""
        self.rows: dict[str, dict[str, dict[str, str]]] = {}
        """Table -> name -> column -> value."""
        self.files: dict[str, str] = {}
        """Further files, path -> content."""
        self.inbox: list[dict[str, str]] = []
        """Mails that are there from the start: `from`, `subject`, `body`."""
        self.used: set[str] = set()
        """Every name and number of this world."""

    def name(self) -> str:
        """A name that this world does not have yet."""
        return self._fresh(lambda: draw_name(self.stream, self.evaluation))

    def similar(self, name: str) -> str:
        """A name that this world does not have yet, that is half the same as `name`."""
        free = [other for other in namesakes(name, self.evaluation) if other not in self.used]
        return self._fresh(lambda: self.stream.choice(free) if free else draw_name(self.stream, self.evaluation))

    def number(self, low: int = 100, high: int = 1000) -> str:
        """A number that this world does not have yet."""
        return self._fresh(lambda: draw_number(self.stream, self.evaluation, low, high))

    def apart(self, gap: int = 20) -> tuple[str, str]:
        """Two numbers, the lower first, at least `gap` apart."""
        while True:
            low, high = sorted((self.number(), self.number()), key=int)
            if int(high) - int(low) >= gap:
                return low, high

    def table(self) -> str:
        """The name of a table."""
        return self.stream.choice(tuple(TABLES))

    def column(self, table: str) -> str:
        """A number column of a table."""
        return self.stream.choice(TABLES[table])

    def number_field(self) -> str:
        """A field that holds a number."""
        return self.stream.choice(NUMBER_FIELDS)

    def name_field(self) -> str:
        """A field that holds a name."""
        return self.stream.choice(NAME_FIELDS)

    def add_note(self, subject: str, **fields: str) -> None:
        """notes/SUBJECT.txt with these fields and one or two distractors, in any order."""
        spare = [field for field in NUMBER_FIELDS if field not in fields]
        extra = {field: self.number() for field in self.stream.sample(spare, self.stream.randint(1, 2))}
        if not set(NAME_FIELDS) & set(fields) and self.stream.random() < 0.5:
            extra[self.name_field()] = self.name()
        self.notes[subject] = self._shuffled({**fields, **extra})

    def add_row(self, table: str, name: str, **cells: str) -> None:
        """One row of a table; the columns that are not given hold distractors."""
        row = {column: self.number() for column in TABLES[table]} | {field: self.name() for field in NAME_FIELDS}
        self.rows.setdefault(table, {})[name] = row | cells

    def sign_note(self, subject: str, name: str) -> str:
        """Add a field with a name to a note; returns the field."""
        field = self.stream.choice([field for field in NAME_FIELDS if field not in self.notes[subject]])
        self.notes[subject] = self._shuffled({**self.notes[subject], field: name})
        return field

    def add_report(self) -> str:
        """A report that is there already; returns its name."""
        name = self.name()
        self.files[f"reports/{name}.md"] = self.number()
        return name

    def add_mail(self, person: str, subject: str, **fields: str) -> int:
        """A mail in the inbox; returns its number."""
        self.inbox.append({"from": person + MAIL_DOMAIN, "subject": subject, "body": note_text(fields)})
        return len(self.inbox)

    def content(self) -> dict[str, Any]:
        """Files and tables, JSON-ready: with a distractor note, and distractor rows in both tables."""
        self.add_note(self.name())
        for table in TABLES:
            for _ in range(self.stream.randint(1, 2)):
                self.add_row(table, self.name())
        files = {f"notes/{subject}.txt": note_text(fields) for subject, fields in self.notes.items()}
        tables = {table: self._table(rows) for table, rows in self.rows.items()}
        mails = {"inbox": self.inbox} if self.inbox else {}
        return {"files": files | self.files, "tables": tables, **mails}

    def _table(self, rows: dict[str, dict[str, str]]) -> dict[str, Any]:
        names = list(rows)
        self.stream.shuffle(names)
        columns = list(next(iter(rows.values())))
        cells = [[name, *(_cell(rows[name][column]) for column in columns)] for name in names]
        return {"columns": ["name", *columns], "rows": cells}

    def _fresh(self, draw: Callable[[], str]) -> str:
        while True:
            value = draw()
            if value not in self.used:
                self.used.add(value)
                return value

    def _shuffled(self, fields: dict[str, str]) -> dict[str, str]:
        order = list(fields)
        self.stream.shuffle(order)
        return {field: fields[field] for field in order}


def note_text(fields: dict[str, str]) -> str:
    """The text of a note: one `field: value` line each."""
    return "\n".join(f"{field}: {value}" for field, value in fields.items())


def _cell(value: str) -> int | str:
    return int(value) if value.isdigit() else value
