"""The wild texts: the same for a seed, and of every kind that matters."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import islice

from ferrata.envs import Effect, call
from ferrata.envs.actions import Fault, Malformed, parse
from ferrata.envs.contract.wild import Material, value_for, wild_texts, words_of
from ferrata.envs.tools import Tool
from ferrata.records import Action, Task


def schema(**properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


READ = Tool("read", "Read.", Effect.READ, schema(path={"type": "string"}, lines={"type": "integer"}), {})
SEND = Tool(
    "send", "Send.", Effect.IRREVERSIBLE,
    schema(to={"enum": ["a", "b"]}, parts={"type": "array", "items": {"type": "number"}}, extra={"type": "object"},
           fast={"type": "boolean"}, confirm={"type": "boolean"}), {},
)  # fmt: skip
MATERIAL = Material([READ, SEND], ["notes/a.txt", "17"], [call("read", path="notes/a.txt", lines=3), "Let me see."])


def draw(n: int, seed: int = 0) -> list[str]:
    return list(islice(wild_texts(MATERIAL, random.Random(seed)), n))


def test_a_seed_gives_the_same_texts() -> None:
    assert draw(300) == draw(300)
    assert draw(300) != draw(300, seed=1)


def test_they_reach_every_fault_and_every_tool() -> None:
    seen: Counter[str] = Counter()
    for text in draw(4000):
        parsed = parse(text, {tool.name: tool for tool in MATERIAL.tools})
        seen[parsed.fault if isinstance(parsed, Malformed) else parsed.name] += 1
    not_of_texts = {Fault.REFUSED, Fault.CUT}
    assert set(seen) == {*(fault.value for fault in Fault if fault not in not_of_texts), "read", "send"}
    assert seen["read"] + seen["send"] > 800


def test_they_go_where_it_is_dangerous() -> None:
    texts = draw(4000)
    actions = [action for action in (parse(text, {"read": READ}) for text in texts) if isinstance(action, Action)]
    paths = {action.arguments["path"] for action in actions}
    lines = {action.arguments["lines"] for action in actions}
    assert {"notes/a.txt", "\0", "../../etc/passwd", ""} <= paths
    assert {0, -1, 2**31, 17} <= lines
    assert all(type(line) is int for line in lines), "1.0 is an integer to JSON, and to a tool"
    assert any(text.count('"confirm": true') > 1 for text in texts), "a key twice"
    assert any(len(text) > 100_000 for text in texts)


def test_values_fit_their_schema() -> None:
    for properties in (READ.input_schema["properties"], SEND.input_schema["properties"]):
        for inner in properties.values():
            validator = Tool("t", "T.", Effect.READ, {"type": "object", "properties": {"x": inner}}, {}).validator
            for seed in range(60):
                value = value_for(inner, MATERIAL.words, random.Random(seed))
                assert validator.is_valid({"x": value}), value
                json.dumps(value)


def test_the_words_of_a_task_are_its_content() -> None:
    world = {"files": {"notes/a.txt": "price: 7"}, "codes": [12, 3.5], "long": "x" * 600}
    task = Task("e", "f", 1, "train", "Read notes, please.", world, (), 3)
    words = words_of(task)
    assert {"Read", "notes", "please", "notes/a.txt", "price: 7", "12", "3.5", "files"} <= set(words)
    assert not any(len(word) > 500 for word in words)
    assert words_of(Task("e", "f", 1, "train", "", {}, (), 3))
