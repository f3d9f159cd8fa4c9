"""The people whom the agent writes to: what they answer, and when. All of it follows from the task's goal.

answers     the letters that a mail brings
Letter      one mail on its way to the agent
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from ferrata.envs.office.goals import Part, fields_of, of_kind
from ferrata.envs.office.judge import misleads, same_address, states, words_of
from ferrata.envs.office.world import note_text


class Letter(msgspec.Struct, frozen=True):
    """A mail of an outside role."""

    turn: int
    """It arrives at the end of this turn."""
    sender: str
    subject: str
    body: str
    subgoal: str = ""
    """Reached when the agent reads it."""
    shown: bool = False
    """The agent reads it as it arrives; otherwise it must open it."""


def answers(
    parts: Sequence[Part],
    to: str,
    body: str,
    turn: int,
    *,
    late: int,
    reached: Collection[str],
    coming: Collection[str],
) -> Iterator[Letter]:
    """What a mail to `to` brings: the replies to what it states, or else an objection of somebody who still waits.

    Args:
        parts: of the task's goal.
        to: whom the agent wrote to.
        body: what it wrote.
        turn: when.
        late: turns that no deadline counts.
        reached: subgoals so far, this mail's included.
        coming: subgoals of replies that are on their way or have come; nobody answers twice.
    """
    mine = [part for part in of_kind(parts, "send") if same_address(part["to"], to)]
    right = {part["subgoal"] for part in mine if in_time(part, turn - late) and states(body, part)}
    for reply in of_kind(parts, "reply"):
        if reply["of"] in right and reply["subgoal"] not in coming:
            text = note_text(fields_of(reply))
            sender, arrival = mine[0]["to"], turn + reply["delay"]
            yield Letter(arrival, sender, _subject(reply), text, reply["subgoal"], _shown(reply))
    awaited = [part for part in mine if part.get("objects") and part["subgoal"] not in reached]
    if awaited and not right:
        text = objection(awaited[0], body, turn - late)
        yield Letter(turn, awaited[0]["to"], "your mail", text, shown=_shown(awaited[0]))


def in_time(part: Part, turn: int) -> bool:
    """True until the part's deadline, if it has one, has passed."""
    deadline: int = part.get("deadline", turn)
    return turn <= deadline


def objection(part: Part, body: str, turn: int) -> str:
    """What is wrong with a mail: a field that it lacks, one that it has wrong, too much in it, too late."""
    words = words_of(body)
    lacking = [field for field, value in fields_of(part).items() if value.casefold() not in words]
    if lacking:
        return f"{'wrong' if misleads(body, part) else 'missing'}: {lacking[0]}"
    return "too late" if not in_time(part, turn) else "too much"


def _subject(reply: Part) -> str:
    return "approved" if reply["field"] == "code" else "your mail"


def _shown(part: Part) -> bool:
    return bool(part.get("shown"))
