"""The solution of a task: the texts of somebody who does its parts in order and makes no mistake.

solution     (subgoal, text) of every step
steps_of     the same for other parts of the task, in another order, or with some left out
text_of      the tool call that does one part
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ferrata.envs.office.goals import LOOKUPS, Part, fields_of, of_kind, parts_of, values_of
from ferrata.envs.scripts import call
from ferrata.records import Task

Step = tuple[str, str]
"""(subgoal that the step reaches, text of the step)"""

WAITING = (
    call("calendar"),
    call("read_messages"),
    call("list_files", folder="reports"),
    call("list_files", folder="notes"),
)
"""What passes a step while somebody is expected to answer: each once, and nothing that the task needs anyway."""


def solution(task: Task) -> list[Step]:
    """The steps that solve a task, in order. After each lookup the agent first says what it found."""
    return steps_of(parts_of(task.world["goal"]), task)


def steps_of(parts: Sequence[Part], task: Task) -> list[Step]:
    """The steps that do these parts of a task in this order, and wait for replies where they must."""
    steps: list[Step] = []
    post = _Post(task)
    waits = iter([text for text in WAITING if text not in {text_of(part) for part in parts if part["do"] in LOOKUPS}])
    thought = ""
    for part in parts:
        if part["do"] != "reply":
            steps.append((part["subgoal"], thought + text_of(part)))
            post.note(part, turn=len(steps))
            thought = ""
        elif not part.get("shown"):
            while len(steps) < post.arrival(part):
                steps.append(("waiting", thought + next(waits)))
                thought = ""
            steps.append((part["subgoal"], thought + call("read_messages", number=post.number(part))))
            thought = ""
        thought += _finding(part)
    return steps


class _Post:
    """Which mails come at which step, and in which order, if each mail of the agent is answered as it should be."""

    def __init__(self, task: Task) -> None:
        self._letters = len(task.world.get("inbox", ()))
        self._replies = of_kind(parts_of(task.world["goal"]), "reply")
        self._sent: dict[str, int] = {}

    def note(self, part: Part, turn: int) -> None:
        """The part was done at this turn."""
        self._sent[part["subgoal"]] = turn

    def arrival(self, reply: Part) -> int:
        """The turn at whose end the reply is there; 0 for one that nobody asked for."""
        arrival: int = self._sent.get(reply["of"], -reply["delay"]) + reply["delay"]
        return arrival

    def number(self, reply: Part) -> int:
        """Its number in the inbox."""
        coming = [other for other in self._replies if other["of"] in self._sent]
        order = sorted(coming, key=lambda other: (self.arrival(other), self._sent[other["of"]]))
        names = [other["subgoal"] for other in order]
        return self._letters + 1 + (names.index(reply["subgoal"]) if reply["subgoal"] in names else len(names))


def text_of(part: Part, confirm: bool = True) -> str:
    """The tool call that does a part."""
    return _TEXTS[part["do"]](part) if part["do"] != "send" else _send(part, confirm)


def _query(part: Part) -> str:
    field, table, name = part["field"], part["table"], part["name"]
    return call("query_database", sql=f"SELECT {field} FROM {table} WHERE name = '{name}'")


def _send(part: Part, confirm: bool) -> str:
    arguments = {"to": part["to"], "subject": part["subject"], "body": _content(part)}
    return call("send_message", **arguments, **({"confirm": True} if confirm else {}))


def _content(part: Part) -> str:
    return ", ".join(values_of(part))


_TEXTS: dict[str, Callable[[Part], str]] = {
    "read": lambda part: call("read_file", path=part["path"]),
    "query": _query,
    "listing": lambda part: call("list_files", folder=part["folder"]),
    "search": lambda part: call("search_files", text=part["text"]),
    "deadlines": lambda part: call("calendar"),
    "mail": lambda part: call("read_messages", **({"number": part["number"]} if part["number"] else {})),
    "write": lambda part: call("edit_document", path=part["path"], content=_content(part)),
    "submit": lambda part: call("submit_result", answer=_content(part)),
}


def _finding(part: Part) -> str:
    """What was found, said aloud: `price: 429 `. The value is then at hand, wherever it is needed.

    A comparison is said before it decides: `310 < 429 `.
    """
    if part["do"] != "reply" and part["do"] not in LOOKUPS:
        return ""
    said = [f"{field}: {value} " for field, value in fields_of(part).items()] if "field" in part else []
    return "".join(said) + (f"{part['conclusion']} " if "conclusion" in part else "")
