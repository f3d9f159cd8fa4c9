"""Stages in order, each behind its gate: what `ferrata train` runs."""

from __future__ import annotations

from ferrata.errors import UsageError
from ferrata.models.policy import save_policy
from ferrata.recipe import Recipe
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.view import RunView
from ferrata.training import rl, supervised
from ferrata.training.saving import find_position
from ferrata.training.session import Session

STAGES = {"sft": supervised.run, "rl": rl.run}


def run(recipe: Recipe, folder: RunFolder, view: RunView, interrupts: Interrupts, resume: bool = False) -> None:
    """Run every stage of a recipe and leave the final policy in the run folder.

    With `resume`, go on from the newest whole checkpoint, or from the start when there is none.
    Raises Interrupted when the person asked to stop, after everything up to there was saved.
    """
    session = Session(recipe, folder, view, interrupts)
    try:
        session.rewards.check_dominance(session.unseen)
        position = find_position(session) if resume else None
        remaining = recipe.stages[recipe.stages.index(position.stage) :] if position else recipe.stages
        for stage in remaining:
            if position and position.stage == stage:
                STAGES[stage](session, position)
            else:
                check_gate(session, stage)
                STAGES[stage](session, None)
        save_policy(session.policy, folder.policy)
    finally:
        session.close()


def check_gate(session: Session, stage: str) -> None:
    """Refuse to start RL from a policy too weak to learn from its own successes (SPEC ALG-8)."""
    if stage != "rl":
        return
    section, result = session.recipe.rl, session.last_sampled() or session.evaluate_fully("rl", 0)
    valid = 1.0 - result.invalid.share
    if result.success.share < section.min_success:
        raise UsageError(
            f"RL refuses to start: sampled success on unseen tasks is {result.success.share:.0%}, below "
            f"rl.min_success = {section.min_success:.0%}. Train SFT longer (sft.updates), or lower rl.min_success."
        )
    if valid < section.min_valid:
        raise UsageError(
            f"RL refuses to start: {valid:.0%} of the actions are valid, below rl.min_valid = {section.min_valid:.0%}. "
            "Train SFT longer (sft.updates), or lower rl.min_valid."
        )
