"""Skills of the base model's corpus over several things: tables, forms, SQL, two hops, comparing, adding."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ferrata.envs.office import language
from ferrata.envs.office.language import NAME_FIELDS, NUMBER_FIELDS
from ferrata.envs.office.phrases import TABLES
from ferrata.training.base_draws import (
    BLANK,
    FIELDS,
    Turns,
    as_json,
    draw_fields,
    draw_name,
    draw_names,
    draw_number,
    draw_record,
    draw_two_numbers,
    interview,
    show_record,
)

# --- tables and forms ------------------------------------------------------------------------------------------------


def table(stream: random.Random) -> Turns:
    """Rows under a header or one sentence a row; questions name rows and columns, or a value."""
    names = draw_names(stream, stream.randint(2, 5))
    fields = draw_fields(stream, 1, 3 if len(names) > 3 else 4)
    rows = {name: draw_record(stream, fields) for name in names}
    header, lines = _show_rows(stream, rows, fields)
    asked = [_about_rows(stream, rows, fields, lines) for _ in range(stream.randint(2, 5))]
    text = "\n".join((*header, *lines.values()))
    return interview(text, [question for question, _ in asked], [answer for _, answer in asked])


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


def form(stream: random.Random) -> Turns:
    """A sentence with facts, and a form whose keys come in another order."""
    record = {"name": draw_name(stream), **draw_record(stream, draw_fields(stream, 2, 4))}
    keys = stream.sample(list(record), len(record))
    sentence = stream.choice((", ", " and ", "; ")).join(f"{key} {record[key]}" for key in keys)
    asked = stream.sample(list(record), stream.randint(2, len(record)))
    questions, answers = (
        ["fill " + as_json(dict.fromkeys(asked, BLANK))],
        [as_json({key: record[key] for key in asked})],
    )
    if stream.random() < 0.5:
        key = stream.choice(keys)
        questions.append(f"{key}?")
        answers.append(record[key])
    return interview(sentence, questions, answers)


def sql(stream: random.Random) -> Turns:
    """A question about a row, written as a query; then the row, then the value."""
    table = stream.choice(list(TABLES))
    record = draw_record(stream, stream.sample((*TABLES[table], *NAME_FIELDS), stream.randint(2, 6)))
    name, keys = draw_name(stream), stream.sample(list(record), min(len(record), stream.choice((1, 1, 2))))
    wanted = stream.choice(("{w} of {n}, {t}", "{t}: {w} of {n}", "sql for the {w} of {n} in {t}")).format(
        w=" and ".join(keys), n=name, t=table
    )
    query = f"SELECT {', '.join(keys)} FROM {table} WHERE name = '{name}'"
    row = record if stream.random() < 0.4 else {key: record[key] for key in keys}
    values = ", ".join(record[key] for key in keys)
    return [("task", wanted), ("act", query), ("result", show_record(stream, row)), ("act", values)]


# --- two hops --------------------------------------------------------------------------------------------------------


def two_hops(stream: random.Random) -> Turns:
    """From a name to another name, and on to that one's value."""
    return _hops_in_turns(stream) if stream.random() < 0.65 else _hops_in_place(stream)


def _hops_in_turns(stream: random.Random) -> Turns:
    pointer, field = stream.choice(NAME_FIELDS), stream.choice(NUMBER_FIELDS)
    name = draw_name(stream)
    first = draw_record(stream, _with(stream, pointer))
    second = draw_record(stream, _with(stream, field))
    tasks = ("{f} of the {p} of {n}", "{n}: {p}, then {f}", "who is {p} of {n}, give the {f} of that name")
    task = stream.choice(tasks)
    shape = stream.choice(("{}", "notes/{}.txt", "name = '{}'"))
    return [
        ("task", task.format(f=field, p=pointer, n=shape.format(name))),
        ("act", shape.format(name)), ("result", show_record(stream, first)),
        ("act", shape.format(first[pointer])), ("result", show_record(stream, second)),
        ("act", second[field]),
    ]  # fmt: skip


def _with(stream: random.Random, field: str) -> list[str]:
    """Some fields in random order, the given one among them."""
    fields = [field, *stream.sample([other for other in FIELDS if other != field], stream.randint(1, 5))]
    stream.shuffle(fields)
    return fields


def _hops_in_place(stream: random.Random) -> Turns:
    """All links and values stand in one context; the answer names the person, then the value."""
    names = draw_names(stream, stream.randint(4, 6))
    half = len(names) // 2
    subjects, people = names[:half], names[half:]
    pointer, field = stream.choice(NAME_FIELDS), stream.choice(NUMBER_FIELDS)
    links = {subject: stream.choice(people) for subject in subjects}
    values = {person: draw_number(stream) for person in people}
    lines = [f"{s}: {pointer} {p}" for s, p in links.items()] + [f"{p}: {field} {v}" for p, v in values.items()]
    stream.shuffle(lines)
    chosen = stream.sample(subjects, stream.randint(1, half))
    questions = [f"{field} of the {pointer} of {subject}" for subject in chosen]
    answers = [f"{links[subject]}: {values[links[subject]]}" for subject in chosen]
    return interview("\n".join(lines), questions, answers)


# --- comparing and adding --------------------------------------------------------------------------------------------


def compare(stream: random.Random) -> Turns:
    """Pairs of numbers: which sign, which is lower or higher, which order."""
    questions, answers = [], []
    for _ in range(stream.randint(3, 6)):
        question, answer = _about_pair(stream)
        questions.append(question)
        answers.append(answer)
    return interview("compare", questions, answers)


def _about_pair(stream: random.Random) -> tuple[str, str]:
    first, second = draw_two_numbers(stream)
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


def compare_names(stream: random.Random) -> Turns:
    """Which of two names has the lower or higher value, in one place or from two replies."""
    names, field, order = draw_names(stream, 2), stream.choice(NUMBER_FIELDS), stream.choice(("lower", "higher"))
    values = draw_two_numbers(stream)
    first, second = values
    winner = names[0] if (first < second) == (order == "lower") else names[1]
    working = stream.random() < 0.6
    task = stream.choice(("which of {a} and {b} has {o} {f}?", "{a} or {b}, the {o} {f}", "{o} {f}: {a} or {b}"))
    asked = task.format(a=names[0], b=names[1], o=order, f=field) + (", compare" if working else "")
    answer = f"{first} {'<' if first < second else '>'} {second}\n{winner}" if working else winner
    if stream.random() < 0.3:
        facts = "\n".join(f"{name}: {field} {value}" for name, value in zip(names, values, strict=True))
        return [("task", f"{facts}\n{asked}"), ("act", answer)]
    records = [draw_record(stream, _with(stream, field)) | {field: str(value)} for value in values]
    return [
        ("task", asked), ("act", names[0]), ("result", show_record(stream, records[0])),
        ("act", names[1]), ("result", show_record(stream, records[1])), ("act", answer),
    ]  # fmt: skip


def levels(stream: random.Random) -> Turns:
    """Two fields of one record: `order` when the first is under the second, else `wait`."""
    low, limit = stream.sample(NUMBER_FIELDS, 2)
    if stream.random() < 0.5:
        low, limit = "stock", "minimum"
    first, second = draw_two_numbers(stream)
    fields = list(dict.fromkeys((low, limit, *draw_fields(stream, 2, 4))))
    stream.shuffle(fields)
    record = draw_record(stream, fields) | {low: str(first), limit: str(second)}
    decision = "order" if first < second else "wait"
    sign = "<" if first < second else ">"
    questions = ["order or wait"]
    answers = [decision]
    if stream.random() < 0.6:
        questions, answers = ["compare, order or wait"], [f"{first} {sign} {second}\n{decision}"]
    if stream.random() < 0.5:
        questions, answers = [f"{low} and {limit}", *questions], [f"{first}, {second}", *answers]
    return interview(f"order if {low} is under {limit}\n{show_record(stream, record)}", questions, answers)


def add(stream: random.Random) -> Turns:
    """Small sums, none of whose numbers is reserved."""
    questions: list[str] = []
    answers: list[str] = []
    while len(questions) < 3:
        first, second = stream.randrange(1, 100), stream.randrange(1, 10)
        if not any(language.reserved(str(n)) for n in (first, second, first + second)):
            questions.append(f"{first} + {second}")
            answers.append(str(first + second))
    return interview("add", questions, answers)
