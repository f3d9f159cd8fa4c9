"""Check that a snapshot holds the whole state: restored it has the same future, and a fork touches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ferrata.envs.base import Environment
from ferrata.envs.contract.elsewhere import SEED
from ferrata.envs.contract.repetition import Seen, difference, trace
from ferrata.envs.contract.report import Broken
from ferrata.envs.contract.subject import Subject
from ferrata.envs.scripts import Script
from ferrata.envs.snapshot import Snapshot
from ferrata.records import Task

HOW = "Let save_world() return everything that the episode changes, and load_world() put it back."
IDLE = ("", "nothing to do")
"""Two turns after the script: what the world does by itself belongs to the future."""


def check_snapshots(subject: Subject) -> str:
    """In the middle of episodes: store, restore elsewhere and here, fork, and compare every future."""
    moments = list(_moments(subject))
    with subject.fresh() as env, subject.fresh() as other:
        for task, script, turn in moments:
            doing = f"Family '{task.family}', a snapshot at turn {turn} of script '{script.name}',"
            with subject.blaming(doing, HOW, actions=6 * (len(script.texts) + len(IDLE) + 1)):
                env.reset(task, SEED)
                trace(env, script.texts[:turn])
                _check_moment(env, other, [*script.texts[turn:], *IDLE], f"Family '{task.family}', turn {turn}")
    return f"taken, restored and forked at {len(moments)} moments, always the same future"


def _check_moment(env: Environment, other: Environment, texts: Sequence[str], where: str) -> None:
    snapshot = env.snapshot()
    stored, before = snapshot.to_bytes(), env.state_hash()
    forked = _future_of_fork(env, texts)
    if env.state_hash() != before:
        raise Broken(f"{where}: a fork that was played on changed the original.", HOW)
    future = trace(env, texts)
    _same(future, forked, where, "went on differently in a fork")
    if snapshot.to_bytes() != stored:
        raise Broken(f"{where}: a snapshot changed when the episode went on.", "Return copies from save_world().")
    other.restore(Snapshot.from_bytes(stored))
    _same(future, trace(other, texts), where, "went on differently when restored in another instance")
    env.restore(snapshot)
    if env.state_hash() != before:
        raise Broken(f"{where}: the state is another one after going back to the snapshot.", HOW)
    _same(future, trace(env, texts), where, "went on differently after going back to the snapshot")


def _future_of_fork(env: Environment, texts: Sequence[str]) -> list[Seen]:
    fork = env.fork()
    try:
        return trace(fork, texts)
    finally:
        fork.close()


def _same(future: Sequence[Seen], seen: Sequence[Seen], where: str, what: str) -> None:
    fault = difference(future, seen)
    if fault:
        raise Broken(f"{where}: the episode {what}; {fault}.", HOW)


def _moments(subject: Subject) -> Iterator[tuple[Task, Script, int]]:
    """Turns at which an episode still goes on: all of one solution a family, the middle of every other script."""
    for task in subject.one_of_each:
        solved = False
        for episode in (e for e in subject.episodes if e.task is task):
            turns = range(len(episode.results))
            everywhere = episode.script.success and not solved
            solved = solved or episode.script.success
            chosen = turns if everywhere else turns[len(turns) // 2 :][:1]
            yield from ((task, episode.script, turn) for turn in chosen)
