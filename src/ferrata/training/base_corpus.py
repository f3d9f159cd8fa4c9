"""The text that the small base model learns from: skills without the office.

    Exchange     one short conversation: a task, results and the agent's answers
    examples     the endless, seeded stream of exchanges that mixes every skill in SKILLS
    vocabulary   the pieces and words that the tokenizer of the base model should hold whole

The skills are those that any clerk needs before learning a job: copy, look up under a key, read a row, fill a form,
follow one name to another, compare and add. No exchange is an office task, uses a task instruction or calls a tool,
and no name or number reserved for evaluation occurs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ferrata.envs.office.language import FIRST_SYLLABLES, SECOND_SYLLABLES
from ferrata.envs.office.phrases import phrases
from ferrata.training import base_skills_deciding as deciding
from ferrata.training import base_skills_reading as reading
from ferrata.training.base_draws import FIELDS, Turns, draw_record, show_record


@dataclass(frozen=True)
class Exchange:
    """A conversation that shows one skill."""

    skill: str
    """Key of SKILLS."""

    turns: tuple[tuple[str, str], ...]
    """Pairs of role (`task`, `result` or `act`) and text; the last is an `act`. Only `act` is to be learned."""


# --- words -----------------------------------------------------------------------------------------------------------

_QUESTION_WORDS = (
    "copy", "first", "last", "after ", "before ", "repeat", "all", "again", "the ", "what is ", "give ", "show ",
    "now ", "then ", "and then ", " please", "?", "row", "rows", "who", " has ", " from ", "value", "fill ", "form",
    "path", "mail", "add", "plus", " + ", " - ", "compare", "sort", "under", "over", "next", "note", "report", "ask ",
    "which ", "smaller", "larger", "same", "yes", "no", "list", "pick ", " with ", " or ", "if ", " is ", "keep ",
)  # fmt: skip
_FORM_PIECES = (
    '{"', '": "', '", "', '"}', '", "path": "', '", "to": "', "SELECT ", " FROM ", " WHERE ", " = '", "'", '"', "{",
    "}", "_", "(", ")", " AND ", " ORDER BY ", " LIMIT ", ";", ",", ":", "-> ", "/", "@", "\n\n", "```", "[", "]",
)  # fmt: skip
_ERROR_WORDS = (
    "unknown", "invalid", "missing", "expected", "action", "actions", "argument", "arguments", "must", "be", "not",
    "found", "such", "table", "column", "columns", "file", "file not found", "object", "string", "text", "to", "of",
    "for", "a", "already", "only", "allowed", "try", "use", "one", "step", "steps", "left", "reply", "approved",
    "approval", "confirm", "true", "false", "null", "needs", "empty", "there", "this", "that", "it", "you", "are",
    "can", "cannot", "message", "address", "document", "database", "query", "read", "write", "send", "submit", "answer",
    "result", "subject", "body", "content", "sql", "read_file", "query_database", "edit_document", "send_message",
    "submit_result", "notes", "reports", "permission", "denied", "temporarily", "unavailable", "timeout", "syntax",
    "near", "JSON", "Error", "error",
)  # fmt: skip


def vocabulary() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The phrases, syllables and words of the base tokenizer, as `build_tokenizer` takes them."""
    spaced = tuple(f" {word}" for word in _ERROR_WORDS)
    return phrases(), (*FIRST_SYLLABLES, *SECOND_SYLLABLES), (*_QUESTION_WORDS, *_FORM_PIECES, *_ERROR_WORDS, *spaced)


# --- the stream ------------------------------------------------------------------------------------------------------


def examples(seed: int) -> Iterator[Exchange]:
    """Endless exchanges; the same seed gives the same stream."""
    stream = random.Random(seed)
    skills, weights = list(SKILLS), [weight for _, weight in SKILLS.values()]
    while True:
        skill = stream.choices(skills, weights)[0]
        turns = SKILLS[skill][0](stream)
        yield Exchange(skill, tuple(_interrupted(stream, turns) if stream.random() < 0.25 else turns))


def _interrupted(stream: random.Random, turns: Turns) -> Turns:
    """The same conversation with an unrelated question somewhere in the middle: what it needs lies further back.

    The question is about other fields, so that nothing asked later becomes ambiguous.
    """
    said = "\n".join(text for _, text in turns)
    unsaid = [field for field in FIELDS if field not in said]
    if len(turns) < 4 or len(unsaid) < 2:
        return turns
    at = 2 * stream.randrange(1, len(turns) // 2)
    record = draw_record(stream, stream.sample(unsaid, stream.randint(2, min(5, len(unsaid)))))
    question, answer = reading.ask_bare(stream, record, [stream.choice(list(record))])
    return [*turns[:at], ("result", f"{show_record(stream, record)}\n{question}"), ("act", answer), *turns[at:]]


SKILLS: dict[str, tuple[Callable[[random.Random], Turns], int]] = {
    "copying": (reading.copying, 5),
    "repeat": (reading.repeat, 6),
    "lookup": (reading.lookup, 22),
    "request": (reading.request, 14),
    "delayed": (reading.delayed, 13),
    "slots": (reading.slots, 7),
    "paths": (reading.paths, 3),
    "table": (deciding.table, 12),
    "form": (deciding.form, 6),
    "sql": (deciding.sql, 6),
    "two hops": (deciding.two_hops, 8),
    "compare": (deciding.compare, 12),
    "compare names": (deciding.compare_names, 14),
    "levels": (deciding.levels, 10),
    "add": (deciding.add, 1),
}
"""Every skill: how to draw an exchange of it, and how often (relative weight)."""
