"""SFT: imitate scripted demonstrations, whose procedure is deliberately imperfect."""

from __future__ import annotations

from collections.abc import Sequence

from ferrata.envs.base import Environment
from ferrata.learning.batch import Example
from ferrata.learning.supervised import SupervisedLearner
from ferrata.models.chat import Chat
from ferrata.records import Task
from ferrata.seeds import stream
from ferrata.training.saving import Position, restore, save
from ferrata.training.session import Session


def run(session: Session, position: Position | None) -> None:
    """Train on demonstrations for `sft.updates` steps, then evaluate on unseen tasks."""
    section, seed = session.recipe.sft, session.recipe.seed
    learner = SupervisedLearner(session.policy.model, section)
    if position:
        restore(learner, position)
    if position and position.step == section.updates and session.last_sampled("sft"):
        return
    examples = draw_demonstrations(session)
    session.view.stage("sft", section.updates)
    for step in range(position.step + 1 if position else 1, section.updates + 1):
        batch = stream(seed, "sft", "batch", step).sample(examples, min(section.batch_size, len(examples)))
        metrics = learner.update(batch)
        session.folder.store.add_metrics("sft", step, metrics)
        session.view.progress(step, metrics)
        due = step % (10 * session.recipe.run.checkpoint_every) == 0 and step < section.updates
        if session.interrupts.requested or due:
            save(session, "sft", step, learner)
            session.stop_if_asked()
    session.publish()
    session.evaluate_fully("sft", section.updates)
    save(session, "sft", section.updates, learner)
    session.stop_if_asked()


def draw_demonstrations(session: Session) -> list[Example]:
    """Scripted episodes on training tasks, as examples whose loss lies on the agent's tokens alone."""
    section, env, chat = session.recipe.sft, session.env, session.policy.chat
    errors = stream(session.recipe.seed, "sft", "errors")
    tasks = session.draw_tasks(section.demonstrations, "sft", "tasks")
    return [demonstration(env, chat, task, env.demonstrate(task, errors, section.imperfection)) for task in tasks]


def demonstration(env: Environment, chat: Chat, task: Task, texts: Sequence[str]) -> Example:
    """Play fixed texts in the environment, and write down as tokens what was read and what was said."""
    ids = chat.opening(env.reset(task).text, env.tools_for(task))
    mask = [False] * len(ids)
    for text in texts:
        said = chat.saying(text)
        ids, mask = ids + said, mask + [True] * len(said)
        result = env.step(text)
        if result.terminated or result.truncated:
            break
        read = chat.following(result.observation.text, closed=True)
        ids, mask = ids + read, mask + [False] * len(read)
    return Example.demonstration(ids, mask)
