"""Anti-farming rules: the same call again, and the same tool for the third step running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ferrata.records import EventKind

Call = tuple[str, str]
"""(tool, digest of tool and arguments)"""
NO_CALL: Call = ("", "")
"""What stands in the history for a turn without a call, which interrupts a run of the same tool."""


def repetition(history: Sequence[Call], call: Call, excused: bool) -> Iterator[EventKind]:
    """What a call repeats, given the calls before it; nothing when a fault had struck the last attempt."""
    if excused:
        return
    if call in history:
        yield EventKind.REPEAT
    elif [name for name, _ in history[-2:]] == [call[0]] * 2:
        yield EventKind.NEAR_REPEAT
