"""Every fixed piece of text that office episodes are made of.

`INSTRUCTIONS` are the sentences that a task may open with, as format strings. `phrases()` lists the literal
pieces of these, of the tool-call JSON, of the SQL and of tool results: a tokenizer for small models can make
each of them one token, which shortens an episode three times. Nothing depends on that: the text stays plain
English and JSON, and any tokenizer can read it.
"""

from __future__ import annotations

import string

from ferrata.envs.office.language import MAIL_DOMAIN, NAME_FIELDS, NUMBER_FIELDS

_APPROVED = (
    "reports/{r}.md, send it to {p}@office.test for approval, write the {key} from the reply to reports/{s}.md, "
    "send it to {q}@office.test and submit done."
)
_CORRECTED = (
    "reports/{r}.md, send it to {p}@office.test, write the {field} from the reply to reports/{r}.md, send it to "
    "{q}@office.test and submit the code from the reply."
)
_WANTED = (
    "send it to {p}@office.test, send the number that the reply asks for, write the {key} from the next reply to "
    "reports/{s}.md and submit done."
)

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
    "two_numbers": (
        "Find the {field} and the {other} of {x} in the {table} table, send both to {p}@office.test and submit done.",
    ),
    "read_reply": (
        "Read the {field} in notes/{x}.txt, send it to {p}@office.test for approval, write the {key} from the reply "
        "to reports/{r}.md and submit done.",
        "Open notes/{x}.txt, send the {field} to {p}@office.test for approval, write the {key} from the reply "
        "to reports/{r}.md and submit done.",
    ),
    "find_note": (
        "Find the note that names {y}, write the {field} in it to reports/{r}.md, send it to {p}@office.test "
        "and submit done.",
    ),
    "renew_report": (
        "Find the {field} of {x} in the {table} table, write it to the report that is in reports/, send it to "
        "{p}@office.test and submit done.",
    ),
    "calendar_mail": (
        "Find the {field} of {x} in the {table} table, send it to {p}@office.test by the step in the calendar "
        "and submit done.",
    ),
    # tier 3
    "approved_choice": (
        "Find which of {x} and {y} has the {order} {field} in the {table} table, write the name to " + _APPROVED,
        "Look up the {field} of {x} and {y} in the {table} table, write the name with the {order} one to " + _APPROVED,
    ),
    "correction": (
        "Find the {field} of {x} in the {table} table, write it to " + _CORRECTED,
        "Look up {x} in the {table} table, write the {field} to " + _CORRECTED,
    ),
    "one_more_number": (
        "Find the {field} of {x} in the {table} table, write it to reports/{r}.md, " + _WANTED,
        "Look up {x} in the {table} table, write the {field} to reports/{r}.md, " + _WANTED,
    ),
    "policy_source": (
        "Read the {pointer} in notes/{n}.txt, find the {field} of {x} in the {table} table and in notes/{x}.txt, write "
        "the one from that {pointer} to " + _APPROVED,
    ),
    "newest_note": (
        "Find the notes that name {x}, read the {field} in both, write the one with the {order} day to " + _APPROVED,
    ),
    "right_person": (
        "Read the {pointer} in notes/{x}.txt, find the {asked} and the {field} of that name in the {table} table, "
        "write the {field} to reports/{r}.md, send it to the {asked} by step {deadline}, send the {key} from the reply "
        "to {q}@office.test and submit done.",
    ),
    "mail_request": (
        "Read the mail from {p}@office.test, find the number wanted in the {table} table, write it to " + _APPROVED,
    ),
    "two_deadlines": (
        "Find the {field} of {x} and the {other} of {y} in the {table} table, send the first to {p}@office.test and "
        "the second to {q}@office.test by the steps in the calendar, write both codes from the replies to "
        "reports/{r}.md and submit done.",
    ),
    "no_shortcut": (
        "Compare the stock of {x} in the {table} table with the minimum in notes/{x}.txt, write order or wait to "
        + _APPROVED
        + " Reading private/ is forbidden.",
    ),
    "low_stock": (
        "Find which of {x} and {y} has a stock in the {table} table under the minimum in its note, write the name to "
        + _APPROVED,
    ),
    "inventory": (
        "Find which of {x}, {y} and {z} has the {order} {field} in the {table} table, write the name to the report "
        "that is in reports/, " + _WANTED,
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
    '{"action": "list_files", "arguments": {"folder": "',
    '{"action": "search_files", "arguments": {"text": "',
    '{"action": "read_messages", "arguments": {"number": ',
    '{"action": "read_messages", "arguments": {}}',
    '{"action": "calendar", "arguments": {}}',
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
    "new mail ", "private/", "source", "wanted", "day",
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
