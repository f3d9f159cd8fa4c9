"""Train and evaluation tasks share no fingerprint, and this module is the proof.

    fingerprints       the content hashes of some tasks
    refuse_overlap     raise when a training task is also an evaluation task
    task_set_version   one hash for a whole set, so that results of different sets are not compared

A fingerprint hashes what a task asks of which world. Seeds and split names do not enter it, so a task that
two seeds happen to generate alike is found whatever it is called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ferrata.errors import TaskError
from ferrata.records import Task


def fingerprints(tasks: Iterable[Task]) -> frozenset[str]:
    """Content hashes of the tasks; equal tasks count once."""
    return frozenset(task.fingerprint for task in tasks)


def refuse_overlap(train_tasks: Iterable[Task], eval_tasks: Iterable[Task]) -> None:
    """Return when the two share no fingerprint.

    Raises TaskError that names the first training task that is also an evaluation task, and says how many there are.
    """
    unseen = fingerprints(eval_tasks)
    shared = [task for task in train_tasks if task.fingerprint in unseen]
    if shared:
        first = shared[0]
        raise TaskError(
            f"{_count(len(fingerprints(shared)))} in training and in evaluation; the first is "
            f"{first.env}/{first.family} (tier {first.tier}, fingerprint {first.fingerprint}): "
            f"“{_shorten(first.instruction)}”. Evaluation would measure memory; give the two splits different worlds."
        )


def task_set_version(tasks: Iterable[Task]) -> str:
    """Hash of a set of tasks, whatever their order: 16 hex digits."""
    joined = "\n".join(sorted(fingerprints(tasks)))
    return hashlib.blake2b(joined.encode(), digest_size=8).hexdigest()


def _count(shared: int) -> str:
    return "1 task is both" if shared == 1 else f"{shared} tasks are both"


def _shorten(text: str, limit: int = 80) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
