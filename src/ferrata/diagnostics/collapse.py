"""A policy that has collapsed, seen in what it wrote.

    find_collapse(groups) -> Collapse      of one collection: two numbers for the store, and sentences for a person
    loop_length(ids)                       how much of a text goes round and round

Collapse is cheap to see in the texts and hard to see in the curves: the loss is small, the gradient too, and success
only stays where it was. Two signs are looked for. A turn loops: most of it is a few tokens over and over. Or different
tasks get the very same answer although it is mostly wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ferrata.records import Group, Trajectory, Turn

PERIOD = 8
"""The longest sequence of tokens whose repetition counts as a loop."""
SHORTEST_LOOP = 16
"""Tokens of the shortest loop: less than that may be a table, a rule of dashes, a number."""
LOOPING_TURNS = 0.2
"""Share of turns that loop over which a person is told."""
SAME_OUTPUT = 0.5
"""Share of episodes with the very same output over which a person is told."""
FEWEST_TASKS = 4
"""Different tasks below which the same output says nothing."""
MOSTLY_WRONG = 0.5
"""Success under which the same output for different tasks is worth a word: some questions do have one answer."""

_SHOWN = 40
"""Characters of a text that are quoted."""
_ADVICE = (
    "A policy that began like this needs more SFT. One that was well before is being ruined: stop, and begin again "
    "with a lower rl.learning_rate, or a higher rl.kl or rl.entropy."
)


class Collapse(msgspec.Struct, frozen=True):
    """What one collection says about collapse."""

    looping_turns: float
    """Share of turns that loop."""
    same_output: float
    """Share of episodes whose output is the commonest one; 0 with fewer than `FEWEST_TASKS` different tasks."""
    alarms: dict[str, str]
    """Metric -> what a person should know, for each metric over its limit."""

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers, named `collapse/...`."""
        return {"collapse/looping_turns": self.looping_turns, "collapse/same_output": self.same_output}


def find_collapse(groups: Sequence[Group]) -> Collapse:
    """Look for collapse in one collection; episodes that failed through no fault of the agent are left out."""
    episodes = [episode for group in groups for episode in group.trajectories if not episode.stop.faulty]
    turns = [turn for episode in episodes for turn in episode.turns if turn.token_ids]
    looping = [turn for turn in turns if loops(turn.token_ids)]
    commonest, same = _commonest(episodes)
    found = Collapse(len(looping) / max(1, len(turns)), same, {})
    if found.looping_turns > LOOPING_TURNS:
        found.alarms["collapse/looping_turns"] = (
            f"{found.looping_turns:.0%} of the turns repeat a few tokens over and over, for instance "
            f"{_quoted(looping[0])}. {_ADVICE}"
        )
    if commonest is not None and same > SAME_OUTPUT and _success(episodes) < MOSTLY_WRONG:
        found.alarms["collapse/same_output"] = (
            f"{same:.0%} of the episodes, on different tasks, wrote the very same: {_quoted(_first_text(commonest))}. "
            f"{_ADVICE}"
        )
    return found


def loops(ids: Sequence[int]) -> bool:
    """Whether most of a text, and at least `SHORTEST_LOOP` tokens, goes round in one loop."""
    length = loop_length(ids)
    return length >= SHORTEST_LOOP and 2 * length >= len(ids)


def loop_length(ids: Sequence[int]) -> int:
    """Tokens of the longest stretch that is 1 to `PERIOD` tokens at least twice over; 0 where none is."""
    longest = 0
    for period in range(1, min(PERIOD, len(ids) // 2) + 1):
        run = 0
        for index in range(period, len(ids)):
            run = run + 1 if ids[index] == ids[index - period] else 0
            if run >= period:
                longest = max(longest, run + period)
    return longest


def _commonest(episodes: Sequence[Trajectory]) -> tuple[Trajectory | None, float]:
    """An episode with the commonest output, and the share of those that have it."""
    written = [episode for episode in episodes if any(turn.token_ids for turn in episode.turns)]
    if len({episode.task.fingerprint for episode in written}) < FEWEST_TASKS:
        return None, 0.0
    outputs = [tuple(tuple(turn.token_ids) for turn in episode.turns) for episode in written]
    output, count = Counter(outputs).most_common(1)[0]
    return written[outputs.index(output)], count / len(outputs)


def _first_text(episode: Trajectory) -> Turn:
    return next(turn for turn in episode.turns if turn.token_ids)


def _success(episodes: Sequence[Trajectory]) -> float:
    return sum(bool(episode.success) for episode in episodes) / max(1, len(episodes))


def _quoted(turn: Turn) -> str:
    """The end of what a turn says, as one line."""
    return repr("..." + turn.text[-_SHOWN:] if len(turn.text) > _SHOWN else turn.text)
