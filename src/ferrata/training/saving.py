"""Checkpoints of a stage, and going on from one.

A checkpoint holds the policy as an ordinary transformers folder, the learner's optimizer state, and the stage
and step they belong to. Every random stream is derived from the run's seed and the step, so nothing else is
needed to go on exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ferrata.errors import CheckpointError
from ferrata.models.policy import load_policy, save_policy
from ferrata.training.session import Session

_POLICY = "policy"
_LEARNER = "learner.pt"


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


def save(session: Session, stage: str, step: int, learner: Stateful) -> None:
    """Write a checkpoint after `step` steps of a stage, whole or not at all. Raises CheckpointError."""

    def write(folder: Path) -> None:
        save_policy(session.policy, folder / _POLICY)
        torch.save(learner.state_dict(), folder / _LEARNER)

    session.folder.checkpoints.save(f"{stage}-{step}", write, {"stage": stage, "step": step})


def find_position(session: Session) -> Position | None:
    """The newest whole checkpoint; None when there is none. Later rows of the store are dropped."""
    checkpoint = session.folder.checkpoints.latest(session.view.message)
    if checkpoint is None:
        session.view.message("No checkpoint was found: the run starts from the beginning.")
        return None
    position = Position(checkpoint.state["stage"], checkpoint.state["step"], checkpoint.path)
    session.folder.store.truncate_after(position.stage, position.step)
    load_weights(session.policy.model, position.folder / _POLICY)
    return position


def restore(learner: Stateful, position: Position) -> None:
    """Give a learner the optimizer state of a checkpoint of its own stage."""
    learner.load_state_dict(torch.load(position.folder / _LEARNER, weights_only=True))


def load_weights(model: torch.nn.Module, folder: Path) -> None:
    """Copy the weights of a saved policy into a model of the same shape."""
    try:
        model.load_state_dict(load_policy(str(folder)).model.state_dict())
    except RuntimeError as error:
        raise CheckpointError(f"The weights in {folder} do not fit this recipe's policy: {error}") from error
