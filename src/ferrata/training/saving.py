"""Checkpoints of a stage, and going on from one.

    save      policy, optimizer, place in the run
    go_back   the whole run as it was at its newest checkpoint
    restore   a learner as it was there
    progress_of   what else the stage had saved there

A checkpoint holds the policy as an ordinary transformers folder, its adapters where it has any, the learner's
optimizer state, and the stage and step they belong to; for RL also its pool, its ladder and a round that was played
ahead. Every random stream is derived from the run's seed and the step, so nothing else is needed to go on exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ferrata.errors import CheckpointError
from ferrata.models.adapters import has_adapters, load_adapters, save_adapters
from ferrata.models.policy import load_policy, save_policy
from ferrata.training.session import Session

POLICY = "policy"
"""Folder of the policy inside a checkpoint."""
ADAPTERS = "adapters.safetensors"
"""File of the adapters beside it, where a policy has them."""
_LEARNER = "learner.pt"
_PROGRESS = "progress.msgpack"


class Stateful(Protocol):
    """A learner whose optimizer state can be saved and restored."""

    def state_dict(self) -> dict[str, Any]:
        """Everything but the weights."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""


@dataclass(frozen=True)
class Position:
    """Where a run goes on: the first `step` steps of `stage` are done."""

    stage: str
    step: int
    folder: Path
    """The checkpoint."""


def save(session: Session, stage: str, step: int, learner: Stateful, progress: bytes = b"") -> None:
    """Write a checkpoint after `step` steps of a stage, whole or not at all. Raises CheckpointError.

    Args:
        session: whose policy is saved.
        stage: which stage.
        step: how many of its steps are done.
        learner: whose optimizer state is saved.
        progress: what else the stage needs to go on; `progress_of` gives it back.
    """

    def write(folder: Path) -> None:
        save_policy(session.policy, folder / POLICY)
        if has_adapters(session.policy.model):
            save_adapters(session.policy.model, folder / ADAPTERS)
        torch.save(learner.state_dict(), folder / _LEARNER)
        (folder / _PROGRESS).write_bytes(progress)

    state = {"stage": stage, "step": step, "policy_version": session.version}
    session.folder.checkpoints.save(f"{stage}-{step}", write, state)
    session.seal_audit()


def go_back(session: Session) -> Position | None:
    """Take the run back to its newest whole checkpoint, or to its start when there is none (then None).

    The policy gets the weights of the checkpoint, the sampler their version, and the store forgets what came later.

    Raises:
        CheckpointError: there are checkpoints, but none is whole; nothing was changed.
    """
    checkpoint = session.folder.checkpoints.latest(session.view.message)
    if checkpoint is None:
        session.folder.checkpoints.refuse_loss()
        session.view.message("No checkpoint was found: the run starts from the beginning.")
        session.folder.store.clear()
        return None
    position = Position(checkpoint.state["stage"], checkpoint.state["step"], checkpoint.path)
    session.folder.store.truncate_after(position.stage, position.step)
    load_weights(session.policy.model, position.folder)
    session.version = checkpoint.state["policy_version"]
    session.sampler.publish(session.version)
    return position


def restore(learner: Stateful, position: Position) -> None:
    """Give a learner the optimizer state of a checkpoint of its own stage."""
    learner.load_state_dict(torch.load(position.folder / _LEARNER, weights_only=True))


def progress_of(position: Position) -> bytes:
    """What the stage saved beside the learner."""
    return (position.folder / _PROGRESS).read_bytes()


def load_weights(model: torch.nn.Module, checkpoint: Path) -> None:
    """Give a model what was trained up to a checkpoint: its weights, or its adapters. Raises CheckpointError."""
    if has_adapters(model):
        load_adapters(model, checkpoint / ADAPTERS)
        return
    folder = checkpoint / POLICY
    try:
        model.load_state_dict(load_policy(str(folder)).model.state_dict())
    except RuntimeError as error:
        raise CheckpointError(f"The weights in {folder} do not fit this recipe's policy: {error}") from error
