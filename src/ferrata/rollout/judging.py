"""A judge is asked about finished episodes in threads of its own, while other episodes still play.

    Judging.ask(key, trajectory, score)    hand a finished episode over
    Judging.settled(wait)                  the episodes that were judged since

A verdict takes the place of the environment's. A judge that fails leaves the episode unscored, never at zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import msgspec

from ferrata.envs.base import Scorer
from ferrata.errors import JudgeFault, safe_text
from ferrata.records import Event, EventKind, StopReason, Trajectory, Turn
from ferrata.rewards.judges import Judge, Verdict, joint_version, transcript_of
from ferrata.rollout.containment import contained

Key = TypeVar("Key", bound=Hashable)

_JUDGED_STOPS = (StopReason.COMPLETED, StopReason.SUBMITTED)
_VERDICTS = (EventKind.SUCCESS, EventKind.FAILURE)
_REASON_CHARACTERS = 200
"""Length of the judge's reason in the event that says its verdict."""


def awaits_verdict(trajectory: Trajectory) -> bool:
    """True for an episode that the agent brought to its end: what a budget cut or a rule forbade needs no judge."""
    return trajectory.stop in _JUDGED_STOPS


def judged(trajectory: Trajectory, judge: Judge, score: Scorer | None) -> tuple[Trajectory, str]:
    """The trajectory with the judge's verdict in place of the environment's, and what went wrong, if anything."""
    version = joint_version(trajectory.reward_version, judge)
    try:
        with contained(JudgeFault, f"judging an episode of '{trajectory.task.env}'"):
            verdict = _checked(judge.judge(trajectory.task, transcript_of(trajectory)))
            turns = [*trajectory.turns[:-1], _last_turn(trajectory.turns[-1], verdict, score)]
    except JudgeFault as fault:
        unscored = msgspec.structs.replace(
            trajectory, stop=StopReason.JUDGE_ERROR, success=None, reward=None, reward_version=version
        )
        return unscored, safe_text(fault)
    scored = msgspec.structs.replace(
        trajectory,
        turns=turns,
        stop=StopReason.COMPLETED if verdict.success else StopReason.SUBMITTED,
        success=verdict.success,
        reward=sum(turn.reward for turn in turns) if trajectory.reward is not None else None,
        reward_version=version,
    )
    return scored, ""


def _checked(verdict: object) -> Verdict:
    """The verdict, if it is one. Raises JudgeFault."""
    if not isinstance(verdict, Verdict) or not isinstance(verdict.success, bool) or not isinstance(verdict.reason, str):
        raise JudgeFault(f"The judge answered with {verdict!r:.200}, not with a verdict.")
    return verdict


def _last_turn(turn: Turn, verdict: Verdict, score: Scorer | None) -> Turn:
    kind = EventKind.SUCCESS if verdict.success else EventKind.FAILURE
    kept = tuple(event for event in turn.events if event.kind not in _VERDICTS)
    reason = verdict.reason[:_REASON_CHARACTERS].encode(errors="replace").decode()
    events = (*kept, Event(kind, reason))
    return msgspec.structs.replace(turn, events=events, components=score(events) if score else {})


class Judging(Generic[Key]):
    """Episodes that wait for a verdict. Close it in the end; what still waits then is given up."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._threads = ThreadPoolExecutor(judge.at_once, thread_name_prefix="judge")
        self._waiting: dict[Key, Future[tuple[Trajectory, str]]] = {}

    def ask(self, key: Key, trajectory: Trajectory, score: Scorer | None) -> None:
        """Have an episode judged; `settled` hands it back under `key`."""
        self._waiting[key] = self._threads.submit(judged, trajectory, self._judge, score)

    def settled(self, wait: bool) -> Iterator[tuple[Key, Trajectory, str]]:
        """The judged episodes with what went wrong, if anything: those that are ready, or all when told to wait."""
        for key in [key for key, future in self._waiting.items() if wait or future.done()]:
            trajectory, fault = self._waiting.pop(key).result()
            yield key, trajectory, fault

    def close(self) -> None:
        """Ask nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
