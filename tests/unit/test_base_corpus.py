"""The corpus of the base model: sound exchanges, every skill, nothing of the evaluation or of the office."""

from __future__ import annotations

import itertools
import re

from ferrata.envs.office.language import FIRST_SYLLABLES, SECOND_SYLLABLES, reserved
from ferrata.envs.office.phrases import INSTRUCTIONS
from ferrata.training.base_corpus import SKILLS, Exchange, examples

NAME = re.compile(f"(?:{'|'.join(FIRST_SYLLABLES)})(?:{'|'.join(SECOND_SYLLABLES)})")
SAMPLE = tuple(itertools.islice(examples(seed=3), 20_000))


def text_of(exchange: Exchange) -> str:
    return "\n".join(text for _, text in exchange.turns)


def test_no_reserved_name_or_number() -> None:
    text = "\n".join(text_of(exchange) for exchange in SAMPLE)
    found = set(NAME.findall(text)) | set(re.findall("[0-9]+", text))
    assert len(found) > 1000
    assert not [token for token in found if reserved(token)]


def test_no_office_instruction_and_no_tool_call() -> None:
    openings = [
        re.sub(r"\\{\w+\\}", "[A-Za-z]+", re.escape(t)) for templates in INSTRUCTIONS.values() for t in templates
    ]
    instruction = re.compile("|".join(openings))
    for exchange in SAMPLE:
        assert not instruction.search(text_of(exchange))
        if exchange.skill != "repeat":
            assert '"action"' not in text_of(exchange)


def test_every_skill_occurs_and_turns_alternate() -> None:
    assert {exchange.skill for exchange in SAMPLE} == set(SKILLS)
    for exchange in SAMPLE:
        roles = [role for role, _ in exchange.turns]
        assert roles[0] == "task"
        assert roles[1::2] == ["act"] * (len(roles) // 2)
        assert set(roles[2::2]) <= {"result"}
        assert all(text for _, text in exchange.turns)


def test_the_same_seed_gives_the_same_stream() -> None:
    assert SAMPLE[:50] == tuple(itertools.islice(examples(seed=3), 50))
    assert SAMPLE[:50] != tuple(itertools.islice(examples(seed=4), 50))


def test_sums_and_comparisons_are_true() -> None:
    for exchange in SAMPLE:
        pairs = zip(exchange.turns[::2], exchange.turns[1::2], strict=True)
        if exchange.skill == "add" and len(exchange.turns) == 6:
            for (_, question), (_, answer) in pairs:
                assert sum(map(int, question.removeprefix("add\n").split(" + "))) == int(answer)
        for low, sign, high in re.findall(r"([0-9]+) ([<>]) ([0-9]+)", text_of(exchange)):
            assert (int(low) < int(high)) == (sign == "<")


def test_copied_answers_stand_in_the_history() -> None:
    for exchange in SAMPLE:
        if exchange.skill in ("lookup", "request", "table", "two hops", "delayed", "slots", "form", "sql"):
            for at, (role, text) in enumerate(exchange.turns):
                history = "\n".join(earlier for _, earlier in exchange.turns[:at])
                if role == "act":
                    assert all(word in history for word in NAME.findall(text) + re.findall("[0-9]+", text))
