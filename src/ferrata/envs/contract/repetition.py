"""Checks that task, seed and texts decide an episode: here, again, and in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from ferrata.envs.base import Environment
from ferrata.envs.contract.blame import blame
from ferrata.envs.contract.definition import shared_state
from ferrata.envs.contract.elsewhere import SEED, Findings, findings
from ferrata.envs.contract.report import Broken, NotChecked
from ferrata.envs.contract.subject import Subject, short
from ferrata.records import StepResult, Task

SECONDS = 120
"""After this long the other process is given up."""
DRAWS = "Draw from self.random, set everything up in begin(), and use no clock, no random module and no order of a set."

Seen = tuple[str, str, tuple[Any, ...], tuple[tuple[str, float], ...], bool, bool]
"""State hash before a step, observation, events, components, terminated, truncated."""
_PARTS = ("state hash", "observation", "list of events", "reward", "end", "cut")


def trace(env: Environment, texts: Sequence[str]) -> list[Seen]:
    """Go on in an episode with fixed texts: everything that is seen, until they or the episode end."""
    seen = []
    for text in texts:
        before = env.state_hash()
        result = env.step(text)
        seen.append(_seen(before, result))
        if result.terminated or result.truncated:
            break
    return seen


def difference(one: Sequence[Seen], other: Sequence[Seen]) -> str:
    """How two traces differ first, or nothing when they are equal."""
    for turn, (left, right) in enumerate(zip(one, other, strict=False), start=1):
        for part, a, b in zip(_PARTS, left, right, strict=True):
            if a != b:
                return f"turn {turn} gave another {part}: {short(str(a), 80)}, then {short(str(b), 80)}"
    return "" if len(one) == len(other) else f"{len(one)} turns, then {len(other)}"


def check_determinism(subject: Subject) -> str:
    """The same task, seed and texts give the same episode: in a new instance, in a used one, from a stored task."""
    with subject.fresh() as one, subject.fresh() as other:
        for task in subject.tasks:
            texts = subject.scripts(task)[0].texts
            # Four episodes, each begun anew.
            with subject.blaming(f"Family '{task.family}'", actions=4 * (len(texts) + 1)):
                _check_alike(one, other, task, texts)
    _check_hashes(subject)
    _check_class_untouched(subject)
    return f"{len(subject.tasks)} tasks played three times, alike; equal state hashes had equal futures"


def _check_class_untouched(subject: Subject) -> None:
    """Episodes leave no trace in the class: no snapshot holds it, and all instances share it."""
    for name, value in shared_state(subject.kind).items():
        if value != subject.shared.get(name):
            raise Broken(
                f"Episodes change {subject.kind.__name__}.{name}, which all instances and episodes share.",
                f"Set it in begin(): self.{name} = ...",
            )


def check_other_process(subject: Subject) -> str:
    """Processes with other orders of sets, another `hash` and another clock draw the same tasks and see the same."""
    where = f"{subject.kind.__module__}:{subject.kind.__qualname__}"
    if not _importable(subject.kind):
        raise NotChecked(f"{subject.kind.__name__} cannot be imported by another process")
    others = [_start_process(where, subject, seed) for seed in _hash_seeds()]
    with blame(subject.kind, f"An episode of {subject.kind.__name__}"):
        here = findings(lambda: subject.kind(tiers=subject.env.tiers), subject.tasks_each)
    for there in [_answer(where, process) for process in others]:
        _compare(here, there)
    count = f"{len(here['tasks'])} fingerprints and {len(here['traces'])} episodes"
    return f"{count}, the same in {len(others)} processes with other orders of sets and another clock"


def _compare(here: Findings, there: Findings) -> None:
    advice = (
        "Sort sets before drawing from them, use no hash(), no id(), no clock and no random module, and let begin() "
        "set up all that episodes change."
    )
    for (family, ours), (_, theirs) in zip(here["tasks"], there["tasks"], strict=False):
        if ours != theirs:
            raise Broken(f"Another process drew other tasks of family '{family}' from the same seed.", advice)
    for (played, ours), (_, theirs) in zip(here["traces"], there["traces"], strict=False):
        if ours != theirs:
            raise Broken(f"Another process saw another episode, with the same seed: {played}.", advice)
    if len(here["traces"]) != len(there["traces"]):
        raise Broken("Another process was given another number of scripts for the same tasks.", advice)


def _importable(kind: type[Environment]) -> bool:
    """True when another process can find the class by its module and name."""
    found: Any = None if kind.__module__ == "__main__" else sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind


def _check_alike(one: Environment, other: Environment, task: Task, texts: Sequence[str]) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(task), type=Task)
    first = _from_start(one, task, texts)
    fault = difference(first, _from_start(other, task, texts))
    if fault:
        raise Broken(f"Family '{task.family}' with the same seed and texts went differently: {fault}.", DRAWS)
    fault = difference(first, _from_start(one, task, texts))
    if fault:
        raise Broken(
            f"Family '{task.family}' went differently in an instance that had played before: {fault}.",
            "Let begin() set up everything that an episode changes.",
        )
    fault = difference(first, _from_start(other, stored, texts))
    if fault:
        raise Broken(
            f"Family '{task.family}' went differently with a task that was stored as JSON: {fault}.",
            "Use lists in Task.world where there are tuples.",
        )


def _from_start(env: Environment, task: Task, texts: Sequence[str]) -> list[Seen]:
    env.reset(task, SEED)
    return trace(env, texts)


def _check_hashes(subject: Subject) -> None:
    """The same action in two states of one hash, with the same task, is answered alike."""
    known: dict[tuple[str, str, str], str] = {}
    for episode in subject.episodes:
        for before, text, result in zip(episode.hashes, episode.script.texts, episode.results, strict=False):
            answer = result.observation.text
            if known.setdefault((episode.task.fingerprint, before, text), answer) != answer and not result.truncated:
                raise Broken(
                    f"{subject.acting(episode.task, text)}: two states with the same hash answered differently.",
                    "Let world_state() hold everything that decides what tools answer.",
                )


def _hash_seeds() -> list[str]:
    """Three, none of which is this process's own."""
    return [seed for seed in "1234" if seed != os.environ.get("PYTHONHASHSEED")][:3]


def _start_process(where: str, subject: Subject, hash_seed: str) -> subprocess.Popen[str]:
    """Ask `elsewhere.findings` in a process with another hash seed."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    code = "from ferrata.envs.contract.elsewhere import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, where, ",".join(map(str, subject.env.tiers)), str(subject.tasks_each)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _answer(where: str, process: subprocess.Popen[str]) -> Findings:
    with process:
        try:
            told, complaint = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Broken(
                f"Another process took more than {SECONDS} s to play {where}.", "Check fewer --tasks."
            ) from None
    if process.returncode:
        last = (complaint.strip().splitlines() or ["nothing was said"])[-1]
        raise Broken(
            f"Another process could not play {where}: {last[:200]}.",
            "Mend what was raised there; the module must be importable from any process.",
        )
    answer: Findings = json.loads(told.splitlines()[-1])
    return answer


def _seen(before: str, result: StepResult) -> Seen:
    components = tuple(sorted(result.components.items()))
    return before, result.observation.text, result.events, components, result.terminated, result.truncated
