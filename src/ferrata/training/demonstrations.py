"""Scripted demonstrations as tokens, and whether they fit into the budgets under which the agent will act.

    demonstration   plays one, and writes down what was read and said
    measure         plays some of a recipe's, to see what its tasks take
    Measured        how many do not fit, into which budget, and which value would hold them

An observation is cut exactly as the collector cuts it: SFT reads what RL will read. Demonstrations are played in this
process, whatever `rollout.workers` says: each call of an author's code has `rollout.step_seconds`, where it can be cut.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from ferrata.envs.base import Environment
from ferrata.envs.deadlines import Overdue, deadline, place
from ferrata.errors import EnvironmentFault, FerrataError, TaskError, UsageError, safe_text
from ferrata.learning.batch import Example
from ferrata.models.chat import Chat
from ferrata.models.policy import Policy
from ferrata.recipe import Recipe
from ferrata.records import Task
from ferrata.rollout.containment import contained
from ferrata.seeds import derive, stream
from ferrata.training.rungs import climbs

SAMPLE = 60
"""Demonstrations that are measured before a run."""
SECONDS = 20.0
"""No more are begun after this time, where an environment is slow."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One scripted episode."""

    task: Task
    token_ids: list[int]
    """All T ids, read and said, in order."""
    loss_mask: list[bool]
    """True for what the agent says."""
    needs: dict[str, int]
    """What it takes: key of `rollout` -> the smallest value that holds it."""
    observation: int
    """Tokens of its longest observation before any cut."""

    def example(self, context: int = sys.maxsize) -> Example:
        """What SFT learns, as far as the model can read."""
        return Example.demonstration(self.token_ids[:context], self.loss_mask[:context])

    def fits(self, limits: dict[str, int]) -> bool:
        """True when the agent could play all of it under these budgets."""
        return all(self.needs[key] <= limit for key, limit in limits.items())


class Measured:
    """Demonstrations beside the budgets of their recipe.

    Args:
        played: what was demonstrated.
        recipe: whose budgets an episode has.
        policy: bounds an episode by what its model was made to read.
    """

    def __init__(self, played: Sequence[Demonstration], recipe: Recipe, policy: Policy) -> None:
        self.played = played
        self.context = policy.context
        """Tokens that the model was made to read."""
        self._rollout, self._ladder, self._climbs = recipe.rollout, recipe.ladder, climbs(recipe)
        self.limits = {
            "max_tokens": min(recipe.rollout.max_tokens, self.context),
            "max_turns": recipe.rollout.max_turns,
            "max_tokens_per_turn": recipe.rollout.max_tokens_per_turn,
        }
        """What one episode and one turn may take, by key of `rollout`."""

    @property
    def misfits(self) -> int:
        """How many the agent could not play to their end."""
        return sum(not shown.fits(self.limits) for shown in self.played)

    @property
    def sentences(self) -> list[str]:
        """For a person: each budget that is too small, how many do not fit, and what would hold them."""
        found = [self._sentence(key, limit) for key, limit in self.limits.items()]
        return [sentence for sentence in (*found, self._capped(), self._cut_observations()) if sentence]

    def refuse_misfits(self) -> None:
        """Raise UsageError when more do not fit than `rollout.max_misfit_share` allows."""
        share = self.misfits / max(1, len(self.played))
        if share > self._rollout.max_misfit_share:
            raise UsageError(
                f"{share:.0%} of the scripted demonstrations do not fit into an episode of this recipe, so the agent "
                f"could hardly finish its tasks. {' '.join(self.sentences)} Raise that, leave these tiers out, or set "
                "rollout.max_misfit_share=1 to train all the same."
            )

    def _sentence(self, key: str, limit: int) -> str:
        over = [shown for shown in self.played if shown.needs[key] > limit]
        if not over:
            return ""
        short = key == "max_tokens" and self.context < self._rollout.max_tokens
        name = f"the policy's context of {limit} tokens" if short else f"rollout.{key} = {limit}"
        wanted = [shown.needs[key] for shown in self.played]
        beyond = key == "max_tokens" and not short and max(wanted) > self.context
        note = f" The policy's context ends at {self.context} tokens." if beyond else ""
        return (
            f"{len(over)} of {len(wanted)} demonstrations ({_tiers(over)}) do not fit into {name}: "
            f"{_held(wanted, 0.95)} would hold 95 % of them, {max(wanted)} all.{note}"
        )

    def _capped(self) -> str:
        """Whether the ladder lets training episodes become as long; the lower caps before its last one are meant so."""
        last = self._ladder.turn_caps[-1]
        over = [shown for shown in self.played if shown.needs["max_turns"] > last]
        if not (self._climbs and over):
            return ""
        wanted = [shown.needs["max_turns"] for shown in self.played]
        return (
            f"{len(over)} of {len(wanted)} demonstrations ({_tiers(over)}) are longer than the last of "
            f"ladder.turn_caps, {last}, and no training episode can be: {_held(wanted, 0.95)} would hold 95 % of "
            f"them, {max(wanted)} all."
        )

    def _cut_observations(self) -> str:
        most = self._rollout.max_observation_tokens
        over = [shown for shown in self.played if most and shown.observation > most]
        if not over:
            return ""
        wanted = [shown.observation for shown in self.played]
        return (
            f"{len(over)} of {len(wanted)} demonstrations ({_tiers(over)}) have observations that are cut by "
            f"rollout.max_observation_tokens = {most}: {_held(wanted, 0.95)} would leave 95 % of them whole, "
            f"{max(wanted)} all."
        )


def measure(recipe: Recipe, env: Environment, policy: Policy, clock: Callable[[], float] = time.monotonic) -> Measured:
    """Play up to 60 training demonstrations of a recipe with the policy's own tokenizer; no more than SFT draws.

    Raises:
        TaskError: the environment cannot demonstrate its tasks, and the recipe imitates them.
    """
    played: list[Demonstration] = []
    errors, began = stream(recipe.seed, "budgets", "errors"), clock()
    most = min(SAMPLE, recipe.sft.demonstrations) if "sft" in recipe.stages else SAMPLE
    try:
        with contained(TaskError, f"drawing training tasks of environment '{recipe.env.name}'"):
            tasks = env.tasks("train", most, seed=derive(recipe.seed, "budgets"))
        for task in tasks:
            played.append(demonstration(recipe, env, policy.chat, task, errors))
            if clock() - began > SECONDS:
                break
    except FerrataError:
        # RL alone needs no scripts, but where it mixes demonstrations in: what was played so far is told.
        if "sft" in recipe.stages or recipe.rl.instructions:
            raise
    return Measured(played, recipe, policy)


def demonstration(recipe: Recipe, env: Environment, chat: Chat, task: Task, errors: Random) -> Demonstration:
    """Demonstrate a task as far as the episode goes; `errors` is where imperfections are drawn from.

    Raises TaskError, which names task, action and line, for what the environment raises and for what takes too long.
    """
    with _told(recipe, task, "asking for its demonstration"):
        texts = list(env.demonstrate(task, errors, recipe.sft.imperfection))
    with _told(recipe, task, "beginning it"):
        ids = chat.opening(env.reset(task).text, env.tools_for(task))
    mask, frame = [False] * len(ids), len(chat.following("", closed=True))
    turns = longest = observation = 0
    for text in texts:
        said = chat.saying(text)
        ids, mask = ids + said, mask + [True] * len(said)
        turns, longest = turns + 1, max(longest, len(said))
        with _told(recipe, task, f"action {_shortened(text)}"):
            result = env.step(text)
        if result.terminated or result.truncated:
            break
        whole = chat.following(result.observation.text, closed=True)
        observation = max(observation, len(whole) - frame)
        read = chat.following(result.observation.text, closed=True, most=recipe.rollout.max_observation_tokens)
        ids, mask = ids + read, mask + [False] * len(read)
    needs = {"max_tokens": len(ids), "max_turns": turns, "max_tokens_per_turn": longest}
    return Demonstration(task, ids, mask, needs, observation)


@contextmanager
def _told(recipe: Recipe, task: Task, doing: str) -> Iterator[None]:
    """One call of an author's code: what it raises, and where it hangs, is told with task, action and line."""
    what = f"family '{task.family}', task {_shortened(task.instruction)}, {doing}"
    hint = f"`ferrata check-env {recipe.env.name}` looks for more of this kind."
    seconds = recipe.rollout.step_seconds
    try:
        with contained(EnvironmentFault, f"demonstrating {what}"), deadline(seconds):
            yield
    except EnvironmentFault as error:
        if not isinstance(error.__cause__, Overdue):
            raise TaskError(f"{safe_text(error)}. {hint}") from error
        raise TaskError(
            f"Environment '{recipe.env.name}' hangs ({place(error.__cause__)}): {what} took longer than "
            f"rollout.step_seconds = {seconds:g}. Mend that line, or allow more if it is only slow. {hint}"
        ) from error


def _shortened(text: str, most: int = 100) -> str:
    flat = " ".join(text.split())
    return f"“{flat}”" if len(flat) <= most else f"“{flat[: most - 1]}…”"


def _held(wanted: Iterable[int], share: float) -> int:
    """The smallest value that is enough for this share."""
    ordered = sorted(wanted)
    return ordered[math.ceil(share * len(ordered)) - 1]


def _tiers(shown: Iterable[Demonstration]) -> str:
    """'tier 2', or 'tiers 2, 3'."""
    tiers = sorted({one.task.tier for one in shown})
    return f"tier{'s' * (len(tiers) > 1)} {', '.join(map(str, tiers))}"
