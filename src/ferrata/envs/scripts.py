"""Scripted episodes: the proof that a judge works, and the demonstrations that a policy starts from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Script:
    """A fixed sequence of model texts for one task, and whether it must succeed."""

    name: str
    """What this script does, e.g. 'solves the task' or 'submits at once'."""
    texts: tuple[str, ...]
    """What the agent says, turn by turn."""
    success: bool
    """The verdict that the judge must reach."""


def call(action: str, /, **arguments: Any) -> str:
    """The text of one tool call, exactly as the environments expect it."""
    return json.dumps({"action": action, "arguments": arguments}, ensure_ascii=False)
