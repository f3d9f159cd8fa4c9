"""Every fixed piece of text that office episodes are made of.

`INSTRUCTIONS` are the sentences that a task may open with, as format strings. `phrases()` lists the literal
pieces of these, of the tool-call JSON, of the SQL and of tool results: a tokenizer for small models can make
each of them one token, which shortens an episode three times. Nothing depends on that: the text stays plain
English and JSON, and any tokenizer can read it.
"""

from __future__ import annotations

import string

from ferrata.envs.office.language import MAIL_DOMAIN, NAME_FIELDS, NUMBER_FIELDS

INSTRUCTIONS: dict[str, tuple[str, ...]] = {
    # tier 1
    "read_value": (
        "Read the {field} in notes/{x}.txt and submit it.",
        "Open notes/{x}.txt and submit the {field}.",
    ),
    "query_value": (
        "Find the {field} of {x} in the {table} table and submit it.",
        "Look up {x} in the {table} table and submit the {field}.",
    ),
    "mail_note": (
        "Read the {field} in notes/{x}.txt, send it to {p}@office.test and submit done.",
        "Open notes/{x}.txt, send the {field} to {p}@office.test and submit done.",
    ),
    "mail_query": (
        "Find the {field} of {x} in the {table} table, send it to {p}@office.test and submit done.",
        "Look up {x} in the {table} table, send the {field} to {p}@office.test and submit done.",
    ),
    "write_note": (
        "Read the {field} in notes/{x}.txt, write it to reports/{r}.md and submit done.",
        "Open notes/{x}.txt, write the {field} to reports/{r}.md and submit done.",
    ),
    "write_query": (
        "Find the {field} of {x} in the {table} table, write it to reports/{r}.md and submit done.",
        "Look up {x} in the {table} table, write the {field} to reports/{r}.md and submit done.",
    ),
    "follow_pointer": (
        "Read the {pointer} in notes/{x}.txt, find the {field} of that name in the {table} table and submit it.",
        "Open notes/{x}.txt, look up the {pointer} in the {table} table and submit the {field}.",
    ),
    "compare_rows": (
        "Find which of {x} and {y} has the {order} {field} in the {table} table and submit the name.",
        "Look up the {field} of {x} and {y} in the {table} table and submit the name with the {order} one.",
    ),
    "check_level": (
        "Read the stock and the minimum in notes/{x}.txt and submit order if stock is under minimum, otherwise wait.",
        "Open notes/{x}.txt and submit order if stock is under minimum, otherwise wait.",
    ),
    # tier 2
    "report": (
        "Find the {field} of {x} in the {table} table, write it to reports/{r}.md, send it to {p}@office.test "
        "and submit done.",
        "Look up {x} in the {table} table, write the {field} to reports/{r}.md, send it to {p}@office.test "
        "and submit done.",
    ),
    "compare_report": (
        "Find which of {x} and {y} has the {order} {field} in the {table} table, write the name to reports/{r}.md, "
        "send it to {p}@office.test and submit done.",
        "Look up the {field} of {x} and {y} in the {table} table, write the name with the {order} one to "
        "reports/{r}.md, send it to {p}@office.test and submit done.",
    ),
    "pointer_report": (
        "Read the {pointer} in notes/{x}.txt, find the {field} of that name in the {table} table, write it to "
        "reports/{r}.md, send it to {p}@office.test and submit done.",
        "Open notes/{x}.txt, look up the {pointer} in the {table} table, write the {field} to reports/{r}.md, "
        "send it to {p}@office.test and submit done.",
    ),
    "approval": (
        "Read the {field} in notes/{x}.txt, send it to {p}@office.test for approval, write it to reports/{r}.md "
        "and submit the code from the reply.",
        "Open notes/{x}.txt, send the {field} to {p}@office.test for approval, write it to reports/{r}.md "
        "and submit the code from the reply.",
    ),
    "reorder": (
        "Compare the stock of {x} in the {table} table with the minimum in notes/{x}.txt, write order or wait to "
        "reports/{r}.md, send it to {p}@office.test and submit done.",
        "Look up the stock of {x} in the {table} table and the minimum in notes/{x}.txt, write order or wait to "
        "reports/{r}.md, send it to {p}@office.test and submit done.",
    ),
    "send_to_owner": (
        "Find the {pointer} of {x} in the {table} table, send the {field} in notes/{x}.txt to that person by "
        "step {deadline} and submit done.",
        "Look up the {pointer} of {x} in the {table} table, read the {field} in notes/{x}.txt, send it to that "
        "person by step {deadline} and submit done.",
    ),
}

TABLES: dict[str, tuple[str, ...]] = {
    "items": ("price", "stock", "minimum", "weight"),
    "projects": ("budget", "deadline", "hours", "quota"),
}
"""Number columns of each table; every table also has `name` and the name fields as columns."""

_CALLS = (
    '{"action": "read_file", "arguments": {"path": "',
    '{"action": "query_database", "arguments": {"sql": "SELECT ',
    '{"action": "edit_document", "arguments": {"path": "',
    '{"action": "send_message", "arguments": {"to": "',
    '{"action": "submit_result", "arguments": {"answer": "',
    *(f" FROM {table} WHERE name = '" for table in TABLES),
    '", "content": "',
    '", "subject": "',
    '", "body": "',
    '", "confirm": true}}',
    "'\"}}",
    '"}}',
)
_RESULTS = (
    ": ", "\n", ", ", " | ", " < ", " > ", " = ", "saved", "sent", "no rows", "error: ", "new mail from ",
    "done", "order", "wait", "lower", "higher", "code", "name", "notes/", "reports/", ".txt", ".md", MAIL_DOMAIN,
)  # fmt: skip


def phrases() -> tuple[str, ...]:
    """All fixed pieces, each once: call stems, result pieces, field names, instruction pieces."""
    pieces = dict.fromkeys((*_CALLS, *_RESULTS, *NUMBER_FIELDS, *NAME_FIELDS, *TABLES))
    for templates in INSTRUCTIONS.values():
        for template in templates:
            pieces.update(dict.fromkeys(_literals(template)))
    return tuple(piece for piece in pieces if piece)


def _literals(template: str) -> list[str]:
    """The text between the placeholders, cut so that paths and addresses stay pieces of their own."""
    marks = ("notes/", "reports/", ".txt", ".md", MAIL_DOMAIN)
    literals = [literal for literal, *_ in string.Formatter().parse(template)]
    for mark in marks:
        literals = [part for literal in literals for part in _around(literal, mark)]
    return literals


def _around(text: str, mark: str) -> list[str]:
    before, found, after = text.partition(mark)
    return [before, found, *_around(after, mark)] if found else [before]
