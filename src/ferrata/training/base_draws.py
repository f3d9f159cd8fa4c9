"""What the skills of the base model's corpus are made of: names, numbers, records, questions, and their text forms."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ferrata.envs.office import language
from ferrata.envs.office.language import FIRST_SYLLABLES, MAIL_DOMAIN, NAME_FIELDS, NUMBER_FIELDS

FIELDS = (*NUMBER_FIELDS, *NAME_FIELDS)
BLANK = "_"
Turns = list[tuple[str, str]]
"""Pairs of role and text, as in `base_corpus.Exchange`."""


def draw_name(stream: random.Random) -> str:
    """A name that evaluation does not use."""
    return language.draw_name(stream, evaluation=False)


def draw_names(stream: random.Random, count: int) -> list[str]:
    """Distinct names; some share a syllable, so that half a name is not enough to tell them apart."""
    drawn = [draw_name(stream)]
    while len(drawn) < count:
        name = draw_name(stream)
        if stream.random() < 0.25:
            name = drawn[0][: -len(_second(drawn[0]))] + _second(name)
        if name not in drawn and not language.reserved(name):
            drawn.append(name)
    return drawn


def _second(name: str) -> str:
    return next(name[len(first) :] for first in FIRST_SYLLABLES if name.startswith(first) and name != first)


def draw_number(stream: random.Random) -> str:
    """Mostly three digits, sometimes one, two or four."""
    low, high = stream.choices(((100, 1000), (10, 100), (1000, 10000), (1, 10)), (78, 12, 8, 2))[0]
    return language.draw_number(stream, False, low, high)


def draw_two_numbers(stream: random.Random) -> tuple[int, int]:
    """Two different numbers of mostly three digits, often close to each other."""
    low, high = (100, 1000) if stream.random() < 0.88 else (10, 100)
    first = int(language.draw_number(stream, False, low, high))
    spread = stream.choice((9, 60, 1000))
    near = [n for n in range(max(low, first - spread), min(high, first + spread)) if n != first]
    second = stream.choice(near)
    while language.reserved(str(second)):
        second = stream.choice(near)
    return first, second


def draw_value(stream: random.Random, field: str) -> str:
    """A value as such a field holds one."""
    return draw_name(stream) if field in NAME_FIELDS else draw_number(stream)


def draw_fields(stream: random.Random, low: int = 2, high: int = 6) -> list[str]:
    """Different fields in any order."""
    return stream.sample(FIELDS, stream.randint(low, high))


def draw_record(stream: random.Random, fields: Sequence[str]) -> dict[str, str]:
    """A value for each field."""
    return {field: draw_value(stream, field) for field in fields}


def show_record(stream: random.Random, record: dict[str, str]) -> str:
    """A record as text: mostly one `key: value` a line."""
    style = stream.choices(range(4), (70, 12, 9, 9))[0]
    if style == 3:
        return as_json(record)
    separator, equals = (("\n", ": "), (", ", ": "), (" | ", ": "), ("\n", " = "))[style]
    return separator.join(f"{key}{equals}{value}" for key, value in record.items())


def as_json(record: dict[str, str]) -> str:
    """A record as one line of JSON."""
    return '{"' + '", "'.join(f'{key}": "{value}' for key, value in record.items()) + '"}'


def draw_question(stream: random.Random, key: str) -> str:
    """A question for the value under a key."""
    shapes = ("{}", "{}?", "the {} please", "what is the {}", "give the {}", "show {}", "now the {}")
    return stream.choice(shapes).format(key)


def draw_place(stream: random.Random, name: str) -> str:
    """A name inside a path, an address or a quotation."""
    shapes = ("notes/{}.txt", "reports/{}.md", "{}" + MAIL_DOMAIN, "name = '{}'", '"{}"')
    return stream.choice(shapes).format(name)


def interview(context: str, questions: Sequence[str], answers: Sequence[str]) -> Turns:
    """A context with the first question, then one question a turn."""
    turns = [("task", f"{context}\n{questions[0]}"), ("act", answers[0])]
    for question, answer in zip(questions[1:], answers[1:], strict=True):
        turns += [("result", question), ("act", answer)]
    return turns
