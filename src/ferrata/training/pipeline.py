"""Stages in order, each behind its gate: what `ferrata train` runs."""

from __future__ import annotations

from threading import Timer

from ferrata.errors import RolloutFault, UsageError
from ferrata.models.policy import save_policy
from ferrata.recipe import Recipe
from ferrata.records import StopReason
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.view import RunView
from ferrata.training import rl, supervised
from ferrata.training.demonstrations import measure
from ferrata.training.remarks import remarks
from ferrata.training.rungs import check_rungs
from ferrata.training.saving import POLICY, go_back
from ferrata.training.session import Session

STAGES = {"sft": supervised.run, "rl": rl.run}
PATIENCE = 2.0
"""Seconds after which a person is told what takes so long."""


def run(recipe: Recipe, folder: RunFolder, view: RunView, interrupts: Interrupts, resume: bool = False) -> None:
    """Run every stage of a recipe and leave the final policy in the run folder.

    With `resume`, go on from the newest whole checkpoint, or from the start when there is none.
    Raises Interrupted when the person asked to stop, after everything up to there was saved.
    """
    session = Session(recipe, folder, view, interrupts)
    try:
        session.rewards.check_dominance(session.unseen)
        check_rungs(recipe, session.unseen, session.pattern)
        position = go_back(session) if resume else None
        if position is None:
            for sentence in remarks(recipe):
                view.message(sentence)
            check_budgets(session)
        remaining = recipe.stages[recipe.stages.index(position.stage) :] if position else recipe.stages
        for stage in remaining:
            if getattr(recipe, stage).updates == 0:
                view.message(f"Stage {stage} is skipped: {stage}.updates is 0.")
            elif position and position.stage == stage:
                STAGES[stage](session, position)
            else:
                check_gate(session, stage)
                STAGES[stage](session, None)
        save_policy(session.policy, folder.policy)
    except RolloutFault as fault:
        raise RolloutFault(f"{fault}{_where_to_look(session)}") from fault
    finally:
        session.close()


def _where_to_look(session: Session) -> str:
    """What finds the fault of an environment that failed too often; empty where something else did."""
    dropped = session.collector.last_stats.dropped
    if not {StopReason.ENV_ERROR.value, StopReason.TIMEOUT.value} & dropped.keys():
        return ""
    return f" `ferrata check-env {session.recipe.env.name}` looks for such faults."


def check_budgets(session: Session) -> None:
    """Say before anything is trained what does not fit into an episode, and refuse when most does not."""
    slow = Timer(PATIENCE, session.view.message, ["Playing demonstrations, to see what fits into the budgets."])
    slow.daemon = True
    slow.start()
    try:
        measured = measure(session.recipe, session.env, session.policy)
    finally:
        slow.cancel()
    measured.refuse_misfits()
    for sentence in measured.sentences:
        session.view.message(sentence)


def check_gate(session: Session, stage: str) -> None:
    """Refuse to start RL from a policy too weak to learn from its own successes."""
    if stage != "rl":
        return
    section, result = session.recipe.rl, session.last_sampled() or session.evaluate_fully("rl", 0)
    valid = 1.0 - result.invalid.share
    if result.success.share < section.min_success:
        raise UsageError(
            f"RL refuses to start: sampled success on unseen tasks is {result.success.share:.0%}, below "
            f"rl.min_success = {section.min_success:.0%}. {_way_out(session, 'min_success')}"
        )
    if valid < section.min_valid:
        raise UsageError(
            f"RL refuses to start: {valid:.0%} of the actions are valid, below rl.min_valid = {section.min_valid:.0%}. "
            f"{_way_out(session, 'min_valid')}"
        )


def _way_out(session: Session, gate: str) -> str:
    """What to do about a gate that stays closed, without losing the policy that stands before it."""
    checkpoint = session.folder.checkpoints.latest(session.view.message)
    policy = checkpoint.path / POLICY if checkpoint else session.recipe.policy.model
    return (
        "Train SFT longer (sft.updates) in a new run, or start RL from this policy all the same: ferrata train "
        f"{session.folder.path / 'recipe.toml'} 'stages=[\"rl\"]' policy.model={policy} rl.{gate}=0"
    )
