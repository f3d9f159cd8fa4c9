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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ferrata.envs.office import language
from ferrata.envs.office.language import FIRST_SYLLABLES, MAIL_DOMAIN, NAME_FIELDS, NUMBER_FIELDS, SECOND_SYLLABLES
from ferrata.envs.office.phrases import TABLES, phrases

FIELDS = (*NUMBER_FIELDS, *NAME_FIELDS)
BLANK = "_"


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


Turns = list[tuple[str, str]]


def _interview(context: str, questions: Sequence[str], answers: Sequence[str]) -> Turns:
    """A context with the first question, then one question a turn."""
    turns = [("task", f"{context}\n{questions[0]}"), ("act", answers[0])]
    for question, answer in zip(questions[1:], answers[1:], strict=True):
        turns += [("result", question), ("act", answer)]
    return turns


def _interrupted(stream: random.Random, turns: Turns) -> Turns:
    """The same conversation with an unrelated question somewhere in the middle: what it needs lies further back.

    The question is about other fields, so that nothing asked later becomes ambiguous.
    """
    said = "\n".join(text for _, text in turns)
    unsaid = [field for field in FIELDS if field not in said]
    if len(turns) < 4 or len(unsaid) < 2:
        return turns
    at = 2 * stream.randrange(1, len(turns) // 2)
    record = _record(stream, stream.sample(unsaid, stream.randint(2, min(5, len(unsaid)))))
    question, answer = _ask_bare(stream, record, [stream.choice(list(record))])
    return [*turns[:at], ("result", f"{_show(stream, record)}\n{question}"), ("act", answer), *turns[at:]]


# --- small draws -----------------------------------------------------------------------------------------------------


def _name(stream: random.Random) -> str:
    return language.draw_name(stream, evaluation=False)


def _names(stream: random.Random, count: int) -> list[str]:
    """Distinct names; some share a syllable, so that half a name is not enough to tell them apart."""
    drawn = [_name(stream)]
    while len(drawn) < count:
        name = _name(stream)
        if stream.random() < 0.25:
            name = drawn[0][: -len(_second(drawn[0]))] + _second(name)
        if name not in drawn and not language.reserved(name):
            drawn.append(name)
    return drawn


def _second(name: str) -> str:
    return next(name[len(first) :] for first in FIRST_SYLLABLES if name.startswith(first) and name != first)


def _number(stream: random.Random) -> str:
    """Mostly three digits, sometimes one, two or four."""
    low, high = stream.choices(((100, 1000), (10, 100), (1000, 10000), (1, 10)), (78, 12, 8, 2))[0]
    return language.draw_number(stream, False, low, high)


def _two_numbers(stream: random.Random) -> tuple[int, int]:
    """Two different numbers of mostly three digits, often close to each other."""
    low, high = (100, 1000) if stream.random() < 0.88 else (10, 100)
    first = int(language.draw_number(stream, False, low, high))
    spread = stream.choice((9, 60, 1000))
    near = [n for n in range(max(low, first - spread), min(high, first + spread)) if n != first]
    second = stream.choice(near)
    while language.reserved(str(second)):
        second = stream.choice(near)
    return first, second


def _value(stream: random.Random, field: str) -> str:
    return _name(stream) if field in NAME_FIELDS else _number(stream)


def _fields(stream: random.Random, low: int = 2, high: int = 6) -> list[str]:
    return stream.sample(FIELDS, stream.randint(low, high))


def _record(stream: random.Random, fields: Sequence[str]) -> dict[str, str]:
    return {field: _value(stream, field) for field in fields}


def _show(stream: random.Random, record: dict[str, str]) -> str:
    """A record as text: mostly one `key: value` a line."""
    style = stream.choices(range(4), (70, 12, 9, 9))[0]
    if style == 3:
        return _json(record)
    separator, equals = (("\n", ": "), (", ", ": "), (" | ", ": "), ("\n", " = "))[style]
    return separator.join(f"{key}{equals}{value}" for key, value in record.items())


def _json(record: dict[str, str]) -> str:
    return '{"' + '", "'.join(f'{key}": "{value}' for key, value in record.items()) + '"}'


def _question(stream: random.Random, key: str) -> str:
    shapes = ("{}", "{}?", "the {} please", "what is the {}", "give the {}", "show {}", "now the {}")
    return stream.choice(shapes).format(key)


def _place(stream: random.Random, name: str) -> str:
    """A name inside a path, an address or a quotation."""
    shapes = ("notes/{}.txt", "reports/{}.md", "{}" + MAIL_DOMAIN, "name = '{}'", '"{}"')
    return stream.choice(shapes).format(name)


# --- copying ---------------------------------------------------------------------------------------------------------


def _copying(stream: random.Random) -> Turns:
    """A list, then questions about positions and neighbours in it."""
    items = list(dict.fromkeys(_value(stream, stream.choice(FIELDS)) for _ in range(stream.randint(3, 9))))
    separator = stream.choice((", ", " | ", "\n", " "))
    questions, answers = [], []
    for _ in range(stream.randint(1, 4)):
        question, answer = _about_list(stream, items, separator)
        questions.append(question)
        answers.append(answer)
    return _interview(separator.join(items), questions, answers)


def _about_list(stream: random.Random, items: list[str], separator: str) -> tuple[str, str]:
    at = stream.randrange(len(items) - 1) if len(items) > 1 else 0
    kind = stream.randrange(5)
    if kind == 0:
        return "copy all", separator.join(items)
    if kind == 1:
        return "first", items[0]
    if kind == 2:
        return "last", items[-1]
    if kind == 3 and len(items) > 1:
        return f"before {items[at + 1]}", items[at]
    return (f"after {items[at]}", items[at + 1]) if len(items) > 1 else ("first", items[0])


def _repeat(stream: random.Random) -> Turns:
    """Values and pieces in random order, to be repeated: they are symbols here, without meaning."""
    pieces = [_value(stream, stream.choice(FIELDS)) for _ in range(stream.randint(4, 14))]
    for at in range(len(pieces)):
        if stream.random() < 0.25:
            pieces[at] = stream.choice(phrases())
    text = stream.choice((", ", " | ", "\n", " ")).join(pieces)
    return [("task", f"repeat\n{text}"), ("act", text)]


# --- looking up ------------------------------------------------------------------------------------------------------


def _lookup(stream: random.Random) -> Turns:
    """One record, several questions about one key or about many, in any order."""
    record = _record(stream, _fields(stream))
    most = 1 if stream.random() < 0.5 else len(record)
    wanted = [stream.sample(list(record), stream.randint(1, most)) for _ in range(stream.randint(1, 3))]
    kinds = stream.choices((_ask_bare, _ask_copy, _ask_form), (50, 30, 20), k=len(wanted))
    asked = [kind(stream, record, keys) for kind, keys in zip(kinds, wanted, strict=True)]
    return _interview(_show(stream, record), [question for question, _ in asked], [answer for _, answer in asked])


def _ask_bare(stream: random.Random, record: dict[str, str], keys: Sequence[str]) -> tuple[str, str]:
    return _question(stream, ", ".join(keys)), ", ".join(record[key] for key in keys)


def _ask_copy(stream: random.Random, record: dict[str, str], keys: Sequence[str]) -> tuple[str, str]:
    return f"copy {', '.join(keys)}", ", ".join(f"{key}: {record[key]}" for key in keys)


def _ask_form(stream: random.Random, record: dict[str, str], keys: Sequence[str]) -> tuple[str, str]:
    return "fill " + _json(dict.fromkeys(keys, BLANK)), _json({key: record[key] for key in keys})


def _request(stream: random.Random) -> Turns:
    """The question comes first, the record answers a request for it; later the value is asked again."""
    name, other = _names(stream, 2)
    record = _record(stream, _fields(stream))
    keys = stream.sample(list(record), stream.randint(1, 2))
    where, copied = _place(stream, name), stream.random() < 0.3
    task = stream.choice(("{w} of {n}", "the {w} of {n} please", "ask {n}, show {w}", "what is the {w} in {n}?"))
    if copied:
        task = stream.choice(("copy {w} of {n}", "ask {n}, copy {w}"))
    turns = [("task", task.format(w=" and ".join(keys), n=where)), ("act", where), ("result", _show(stream, record))]
    turns.append(("act", ", ".join(f"{key}: {record[key]}" if copied else record[key] for key in keys)))
    for _ in range(stream.randint(0, 2)):
        key = stream.choice(keys)
        cue = stream.choice((f"sent to {other}, {key} again", f"saved\n{key}", _json({"to": other, key: BLANK})))
        answer = _json({"to": other, key: record[key]}) if cue.startswith("{") else record[key]
        turns += [("result", cue), ("act", answer)]
    return turns


def _delayed(stream: random.Random) -> Turns:
    """Forms with blanks come first, then the facts, then one form is filled after each reply."""
    name, writer, reader = _names(stream, 3)
    record = _record(stream, _fields(stream))
    key = stream.choice(list(record))
    blanks, filled = _forms(stream, writer, reader, record[key])
    line = stream.choice(("{k} of {n}", "{n} {k}", "keep the {k} of {n}", "{k} from {n}")).format(k=key, n=name)
    parts = [line, *blanks]
    turns = [("task", stream.choice(("\n", ", then ", "; ")).join(parts)), ("act", name)]
    turns.append(("result", _show(stream, record)))
    for form in filled:
        turns += [("act", form), ("result", stream.choice(("saved", "sent", "done", "next")))]
    return turns[:-1]


def _forms(stream: random.Random, writer: str, reader: str, value: str) -> tuple[list[str], list[str]]:
    """One to three forms of a random order, blank and filled."""
    shapes = [
        f'reports/{writer}.md", "content": "{BLANK}"}}}}',
        f'{reader}{MAIL_DOMAIN}", "body": "{BLANK}"}}}}',
        f'{reader}{MAIL_DOMAIN}", "subject": "{writer}", "body": "{BLANK}"}}}}',
        f'{{"to": "{reader}", "value": "{BLANK}"}}',
        f'notes/{writer}.txt", "content": "{BLANK}"}}}}',
        f"name = '{BLANK}'",
    ]
    blanks = stream.sample(shapes, stream.randint(1, 3))
    return blanks, [blank.replace(BLANK, value) for blank in blanks]


def _slots(stream: random.Random) -> Turns:
    """A sentence gives names their roles; forms ask for each role."""
    where, writer, reader = _names(stream, 3)
    value = _number(stream)
    named = f"the {stream.choice(NUMBER_FIELDS)} {value}"
    facts = [f"notes/{where}.txt", f"reports/{writer}.md", f"{reader}{MAIL_DOMAIN}", named]
    stream.shuffle(facts)
    joined = stream.choice((", ", " and ", "\n", " ")).join(facts)
    asks = {
        "path": f"notes/{where}.txt", "report": f"reports/{writer}.md", "mail": f"{reader}{MAIL_DOMAIN}",
        "value": value,
        '{"path": "notes/_"}': f'{{"path": "notes/{where}.txt"}}',
        '{"to": "_"}': f'{{"to": "{reader}{MAIL_DOMAIN}"}}',
        '{"report": "_", "content": "_"}': f'{{"report": "reports/{writer}.md", "content": "{value}"}}',
        '{"to": "_", "body": "_"}}': f'{{"to": "{reader}{MAIL_DOMAIN}", "body": "{value}"}}}}',
    }  # fmt: skip
    chosen = stream.sample(list(asks), stream.randint(2, 4))
    return _interview(joined, chosen, [asks[ask] for ask in chosen])


def _paths(stream: random.Random) -> Turns:
    """Names from a sentence go into paths, addresses and conditions."""
    names = _names(stream, stream.randint(1, 3))
    shapes = {"path": "notes/{}.txt", "report": "reports/{}.md", "mail": "{}" + MAIL_DOMAIN, "row": "WHERE name = '{}'"}
    questions, answers = [], []
    for kind in stream.sample(list(shapes), stream.randint(2, 4)):
        name = stream.choice(names)
        questions.append(f"{kind} of {name}" if len(names) > 1 or stream.random() < 0.3 else kind)
        answers.append(shapes[kind].format(name))
    return _interview(stream.choice((", ", " and ", "\n")).join(names), questions, answers)


# --- tables and forms ------------------------------------------------------------------------------------------------


def _table(stream: random.Random) -> Turns:
    """Rows under a header or one sentence a row; questions name rows and columns, or a value."""
    names = _names(stream, stream.randint(2, 5))
    fields = _fields(stream, 1, 3 if len(names) > 3 else 4)
    rows = {name: _record(stream, fields) for name in names}
    header, lines = _show_rows(stream, rows, fields)
    asked = [_about_rows(stream, rows, fields, lines) for _ in range(stream.randint(2, 5))]
    text = "\n".join((*header, *lines.values()))
    return _interview(text, [question for question, _ in asked], [answer for _, answer in asked])


def _about_rows(
    stream: random.Random, rows: dict[str, dict[str, str]], fields: Sequence[str], lines: dict[str, str]
) -> tuple[str, str]:
    name, field, kind = stream.choice(list(rows)), stream.choice(fields), stream.random()
    if kind < 0.2:
        return f"copy row {name}", lines[name]
    if kind < 0.3:
        return f"row {name}", ", ".join(rows[name].values())
    if kind < 0.4:
        order = stream.sample(list(rows), len(rows))
        return f"{field} of {', '.join(order)}", ", ".join(rows[other][field] for other in order)
    if kind < 0.5 and sum(row[field] == rows[name][field] for row in rows.values()) == 1:
        return f"who has {field} {rows[name][field]}", name
    shapes = ("{f} of {n}", "{n} {f}", "the {f} of {n} please", "{n}, {f}?")
    return stream.choice(shapes).format(f=field, n=name), rows[name][field]


def _show_rows(
    stream: random.Random, rows: dict[str, dict[str, str]], fields: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """A table in one of three styles: header lines, and the line of each name."""
    style = stream.randrange(3)
    if style == 0:
        return [" | ".join(("name", *fields))], {name: " | ".join((name, *row.values())) for name, row in rows.items()}
    if style == 1:
        return [], {name: f"{name}: " + ", ".join(f"{k} {v}" for k, v in row.items()) for name, row in rows.items()}
    return [], {name: ", ".join(f"{k}: {v}" for k, v in {"name": name, **row}.items()) for name, row in rows.items()}


def _form(stream: random.Random) -> Turns:
    """A sentence with facts, and a form whose keys come in another order."""
    record = {"name": _name(stream), **_record(stream, _fields(stream, 2, 4))}
    keys = stream.sample(list(record), len(record))
    sentence = stream.choice((", ", " and ", "; ")).join(f"{key} {record[key]}" for key in keys)
    asked = stream.sample(list(record), stream.randint(2, len(record)))
    questions, answers = ["fill " + _json(dict.fromkeys(asked, BLANK))], [_json({key: record[key] for key in asked})]
    if stream.random() < 0.5:
        key = stream.choice(keys)
        questions.append(f"{key}?")
        answers.append(record[key])
    return _interview(sentence, questions, answers)


def _sql(stream: random.Random) -> Turns:
    """A question about a row, written as a query; then the row, then the value."""
    table = stream.choice(list(TABLES))
    record = _record(stream, stream.sample((*TABLES[table], *NAME_FIELDS), stream.randint(2, 6)))
    name, keys = _name(stream), stream.sample(list(record), min(len(record), stream.choice((1, 1, 2))))
    wanted = stream.choice(("{w} of {n}, {t}", "{t}: {w} of {n}", "sql for the {w} of {n} in {t}")).format(
        w=" and ".join(keys), n=name, t=table
    )
    query = f"SELECT {', '.join(keys)} FROM {table} WHERE name = '{name}'"
    row = record if stream.random() < 0.4 else {key: record[key] for key in keys}
    values = ", ".join(record[key] for key in keys)
    return [("task", wanted), ("act", query), ("result", _show(stream, row)), ("act", values)]


# --- two hops --------------------------------------------------------------------------------------------------------


def _two_hops(stream: random.Random) -> Turns:
    """From a name to another name, and on to that one's value."""
    return _hops_in_turns(stream) if stream.random() < 0.65 else _hops_in_place(stream)


def _hops_in_turns(stream: random.Random) -> Turns:
    pointer, field = stream.choice(NAME_FIELDS), stream.choice(NUMBER_FIELDS)
    name = _name(stream)
    first = _record(stream, _with(stream, pointer))
    second = _record(stream, _with(stream, field))
    tasks = ("{f} of the {p} of {n}", "{n}: {p}, then {f}", "who is {p} of {n}, give the {f} of that name")
    task = stream.choice(tasks)
    shape = stream.choice(("{}", "notes/{}.txt", "name = '{}'"))
    return [
        ("task", task.format(f=field, p=pointer, n=shape.format(name))),
        ("act", shape.format(name)), ("result", _show(stream, first)),
        ("act", shape.format(first[pointer])), ("result", _show(stream, second)),
        ("act", second[field]),
    ]  # fmt: skip


def _with(stream: random.Random, field: str) -> list[str]:
    """Some fields in random order, the given one among them."""
    fields = [field, *stream.sample([other for other in FIELDS if other != field], stream.randint(1, 5))]
    stream.shuffle(fields)
    return fields


def _hops_in_place(stream: random.Random) -> Turns:
    """All links and values stand in one context; the answer names the person, then the value."""
    names = _names(stream, stream.randint(4, 6))
    half = len(names) // 2
    subjects, people = names[:half], names[half:]
    pointer, field = stream.choice(NAME_FIELDS), stream.choice(NUMBER_FIELDS)
    links = {subject: stream.choice(people) for subject in subjects}
    values = {person: _number(stream) for person in people}
    lines = [f"{s}: {pointer} {p}" for s, p in links.items()] + [f"{p}: {field} {v}" for p, v in values.items()]
    stream.shuffle(lines)
    chosen = stream.sample(subjects, stream.randint(1, half))
    questions = [f"{field} of the {pointer} of {subject}" for subject in chosen]
    answers = [f"{links[subject]}: {values[links[subject]]}" for subject in chosen]
    return _interview("\n".join(lines), questions, answers)


# --- comparing and adding --------------------------------------------------------------------------------------------


def _compare(stream: random.Random) -> Turns:
    """Pairs of numbers: which sign, which is lower or higher, which order."""
    questions, answers = [], []
    for _ in range(stream.randint(3, 6)):
        question, answer = _about_pair(stream)
        questions.append(question)
        answers.append(answer)
    return _interview("compare", questions, answers)


def _about_pair(stream: random.Random) -> tuple[str, str]:
    first, second = _two_numbers(stream)
    pair, low, high = f"{first} and {second}", min(first, second), max(first, second)
    kind = stream.randrange(5)
    if kind == 0:
        return pair, f"{first} {'<' if first < second else '>'} {second}"
    if kind == 1:
        return f"sort {pair}", f"{low} < {high}"
    if kind == 2:
        return f"lower of {pair}", str(low)
    if kind == 3:
        return f"higher of {pair}", str(high)
    return f"{first} is under {second}?", "yes" if first < second else "no"


def _compare_names(stream: random.Random) -> Turns:
    """Which of two names has the lower or higher value, in one place or from two replies."""
    names, field, order = _names(stream, 2), stream.choice(NUMBER_FIELDS), stream.choice(("lower", "higher"))
    values = _two_numbers(stream)
    first, second = values
    winner = names[0] if (first < second) == (order == "lower") else names[1]
    working = stream.random() < 0.6
    task = stream.choice(("which of {a} and {b} has {o} {f}?", "{a} or {b}, the {o} {f}", "{o} {f}: {a} or {b}"))
    asked = task.format(a=names[0], b=names[1], o=order, f=field) + (", compare" if working else "")
    answer = f"{first} {'<' if first < second else '>'} {second}\n{winner}" if working else winner
    if stream.random() < 0.3:
        facts = "\n".join(f"{name}: {field} {value}" for name, value in zip(names, values, strict=True))
        return [("task", f"{facts}\n{asked}"), ("act", answer)]
    records = [_record(stream, _with(stream, field)) | {field: str(value)} for value in values]
    return [
        ("task", asked), ("act", names[0]), ("result", _show(stream, records[0])),
        ("act", names[1]), ("result", _show(stream, records[1])), ("act", answer),
    ]  # fmt: skip


def _levels(stream: random.Random) -> Turns:
    """Two fields of one record: `order` when the first is under the second, else `wait`."""
    low, limit = stream.sample(NUMBER_FIELDS, 2)
    if stream.random() < 0.5:
        low, limit = "stock", "minimum"
    first, second = _two_numbers(stream)
    fields = list(dict.fromkeys((low, limit, *_fields(stream, 2, 4))))
    stream.shuffle(fields)
    record = _record(stream, fields) | {low: str(first), limit: str(second)}
    decision = "order" if first < second else "wait"
    sign = "<" if first < second else ">"
    questions = ["order or wait"]
    answers = [decision]
    if stream.random() < 0.6:
        questions, answers = ["compare, order or wait"], [f"{first} {sign} {second}\n{decision}"]
    if stream.random() < 0.5:
        questions, answers = [f"{low} and {limit}", *questions], [f"{first}, {second}", *answers]
    return _interview(f"order if {low} is under {limit}\n{_show(stream, record)}", questions, answers)


def _add(stream: random.Random) -> Turns:
    """Small sums, none of whose numbers is reserved."""
    questions: list[str] = []
    answers: list[str] = []
    while len(questions) < 3:
        first, second = stream.randrange(1, 100), stream.randrange(1, 10)
        if not any(language.reserved(str(n)) for n in (first, second, first + second)):
            questions.append(f"{first} + {second}")
            answers.append(str(first + second))
    return _interview("add", questions, answers)


SKILLS: dict[str, tuple[Callable[[random.Random], Turns], int]] = {
    "copying": (_copying, 5),
    "repeat": (_repeat, 6),
    "lookup": (_lookup, 22),
    "request": (_request, 14),
    "delayed": (_delayed, 13),
    "slots": (_slots, 7),
    "paths": (_paths, 3),
    "table": (_table, 12),
    "form": (_form, 6),
    "sql": (_sql, 6),
    "two hops": (_two_hops, 8),
    "compare": (_compare, 12),
    "compare names": (_compare_names, 14),
    "levels": (_levels, 10),
    "add": (_add, 1),
}
"""Every skill: how to draw an exchange of it, and how often (relative weight)."""
