"""Showing text that a model or a tool wrote exactly, and without giving it power over the screen.

visible         control characters become visible signs, so that nothing is hidden and nothing is executed
split_action    where in a model's raw text its action stands
describe_event  one event as a few words
"""

from __future__ import annotations

import json
import unicodedata
from typing import NamedTuple

from ferrata.envs.actions import MAX_OBJECTS, end_of_broken
from ferrata.records import Event, EventKind

_NAMES = {"\t": "TAB", "\r": "CR", "\x1b": "ESC", "\x00": "NUL", "\x7f": "DEL"}


class ActionText(NamedTuple):
    """A model's raw text, cut around its action; the three parts joined are the text."""

    before: str
    action: str
    """Empty when the text holds no JSON object that names an action."""
    after: str


def visible(text: str) -> str:
    """The text with every character that a screen would hide or obey made visible; line breaks stay.

    Control characters, invisible format characters (zero-width, direction overrides) and lone surrogates become
    their name or code point, e.g. ⟨ESC⟩ or ⟨U+202E⟩.
    """
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character == "\n" or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return f"⟨{_NAMES.get(character) or f'U+{ord(character):04X}'}⟩"


def split_action(text: str) -> ActionText:
    """Cut the text around the first JSON object with the key 'action'."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    for _ in range(MAX_OBJECTS):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = end_of_broken(text, start)
        else:
            if isinstance(value, dict) and "action" in value:
                return ActionText(text[:start], text[start:end], text[end:])
        start = text.find("{", end)
    return ActionText(text, "", "")


def describe_event(event: Event) -> str:
    """E.g. 'subgoal: found_price' or 'tool cost: query_database 0.5'."""
    words = str(event.kind).replace("_", " ")
    if event.name:
        words += f": {event.name}"
    return words if event.amount == 1.0 else f"{words} {event.amount:g}"


def event_tone(kind: EventKind) -> str:
    """'good', 'bad' or 'plain': how an event is coloured."""
    if kind in (EventKind.SUBGOAL, EventKind.SUCCESS):
        return "good"
    if kind in (EventKind.STEP, EventKind.TOOL_COST, EventKind.TOOL_FAULT):
        return "plain"
    return "bad"
