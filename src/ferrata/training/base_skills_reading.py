"""Skills of the base model's corpus that find what is there: copy, repeat, look up, fill slots, write paths."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ferrata.envs.office.language import MAIL_DOMAIN, NUMBER_FIELDS
from ferrata.envs.office.phrases import phrases
from ferrata.training.base_draws import (
    BLANK,
    FIELDS,
    Turns,
    as_json,
    draw_fields,
    draw_names,
    draw_number,
    draw_place,
    draw_question,
    draw_record,
    draw_value,
    interview,
    show_record,
)

# --- copying ---------------------------------------------------------------------------------------------------------


def copying(stream: random.Random) -> Turns:
    """A list, then questions about positions and neighbours in it."""
    items = list(dict.fromkeys(draw_value(stream, stream.choice(FIELDS)) for _ in range(stream.randint(3, 9))))
    separator = stream.choice((", ", " | ", "\n", " "))
    questions, answers = [], []
    for _ in range(stream.randint(1, 4)):
        question, answer = _about_list(stream, items, separator)
        questions.append(question)
        answers.append(answer)
    return interview(separator.join(items), questions, answers)


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


def repeat(stream: random.Random) -> Turns:
    """Values and pieces in random order, to be repeated: they are symbols here, without meaning."""
    pieces = [draw_value(stream, stream.choice(FIELDS)) for _ in range(stream.randint(4, 14))]
    for at in range(len(pieces)):
        if stream.random() < 0.25:
            pieces[at] = stream.choice(phrases())
    text = stream.choice((", ", " | ", "\n", " ")).join(pieces)
    return [("task", f"repeat\n{text}"), ("act", text)]


# --- looking up ------------------------------------------------------------------------------------------------------


def lookup(stream: random.Random) -> Turns:
    """One record, several questions about one key or about many, in any order."""
    record = draw_record(stream, draw_fields(stream))
    most = 1 if stream.random() < 0.5 else len(record)
    wanted = [stream.sample(list(record), stream.randint(1, most)) for _ in range(stream.randint(1, 3))]
    kinds = stream.choices((ask_bare, _ask_copy, _ask_form), (50, 30, 20), k=len(wanted))
    asked = [kind(stream, record, keys) for kind, keys in zip(kinds, wanted, strict=True)]
    return interview(show_record(stream, record), [question for question, _ in asked], [answer for _, answer in asked])


def ask_bare(stream: random.Random, record: dict[str, str], keys: Sequence[str]) -> tuple[str, str]:
    """Ask for values; the answer is the values alone."""
    return draw_question(stream, ", ".join(keys)), ", ".join(record[key] for key in keys)


def _ask_copy(stream: random.Random, record: dict[str, str], keys: Sequence[str]) -> tuple[str, str]:
    return f"copy {', '.join(keys)}", ", ".join(f"{key}: {record[key]}" for key in keys)


def _ask_form(stream: random.Random, record: dict[str, str], keys: Sequence[str]) -> tuple[str, str]:
    return "fill " + as_json(dict.fromkeys(keys, BLANK)), as_json({key: record[key] for key in keys})


def request(stream: random.Random) -> Turns:
    """The question comes first, the record answers a request for it; later the value is asked again."""
    name, other = draw_names(stream, 2)
    record = draw_record(stream, draw_fields(stream))
    keys = stream.sample(list(record), stream.randint(1, 2))
    where, copied = draw_place(stream, name), stream.random() < 0.3
    task = stream.choice(("{w} of {n}", "the {w} of {n} please", "ask {n}, show {w}", "what is the {w} in {n}?"))
    if copied:
        task = stream.choice(("copy {w} of {n}", "ask {n}, copy {w}"))
    turns = [
        ("task", task.format(w=" and ".join(keys), n=where)),
        ("act", where),
        ("result", show_record(stream, record)),
    ]
    turns.append(("act", ", ".join(f"{key}: {record[key]}" if copied else record[key] for key in keys)))
    for _ in range(stream.randint(0, 2)):
        key = stream.choice(keys)
        cue = stream.choice((f"sent to {other}, {key} again", f"saved\n{key}", as_json({"to": other, key: BLANK})))
        answer = as_json({"to": other, key: record[key]}) if cue.startswith("{") else record[key]
        turns += [("result", cue), ("act", answer)]
    return turns


def delayed(stream: random.Random) -> Turns:
    """Forms with blanks come first, then the facts, then one form is filled after each reply."""
    name, writer, reader = draw_names(stream, 3)
    record = draw_record(stream, draw_fields(stream))
    key = stream.choice(list(record))
    blanks, filled = _forms(stream, writer, reader, record[key])
    line = stream.choice(("{k} of {n}", "{n} {k}", "keep the {k} of {n}", "{k} from {n}")).format(k=key, n=name)
    parts = [line, *blanks]
    turns = [("task", stream.choice(("\n", ", then ", "; ")).join(parts)), ("act", name)]
    turns.append(("result", show_record(stream, record)))
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


def slots(stream: random.Random) -> Turns:
    """A sentence gives names their roles; forms ask for each role."""
    where, writer, reader = draw_names(stream, 3)
    value = draw_number(stream)
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
    return interview(joined, chosen, [asks[ask] for ask in chosen])


def paths(stream: random.Random) -> Turns:
    """Names from a sentence go into paths, addresses and conditions."""
    names = draw_names(stream, stream.randint(1, 3))
    shapes = {"path": "notes/{}.txt", "report": "reports/{}.md", "mail": "{}" + MAIL_DOMAIN, "row": "WHERE name = '{}'"}
    questions, answers = [], []
    for kind in stream.sample(list(shapes), stream.randint(2, 4)):
        name = stream.choice(names)
        questions.append(f"{kind} of {name}" if len(names) > 1 or stream.random() < 0.3 else kind)
        answers.append(shapes[kind].format(name))
    return interview(stream.choice((", ", " and ", "\n")).join(names), questions, answers)
