"""What all stages of one run share: the policy that learns, the collector that plays, where it is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from threading import get_ident

import torch

from ferrata.envs.audit import SEAL, AuditLog
from ferrata.envs.base import Environment
from ferrata.envs.faults import FaultRates
from ferrata.errors import Interrupted, TaskError
from ferrata.evaluation.evaluate import evaluate
from ferrata.evaluation.results import EvaluationResult, decode, encode
from ferrata.models.adapters import attach
from ferrata.models.policy import load_policy
from ferrata.recipe import Recipe
from ferrata.records import StopReason, Task, Trajectory
from ferrata.rewards import RewardSpec
from ferrata.rewards.judges import VERDICTS, make_judge
from ferrata.rollout.collector import Collector
from ferrata.rollout.containment import contained
from ferrata.rollout.hosts import close_quietly
from ferrata.rollout.worlds import EnvironmentSpec
from ferrata.runs import RunFolder
from ferrata.runs.interrupt import Interrupts
from ferrata.runs.view import RunView, Score
from ferrata.sampling.factory import make_sampler
from ferrata.sampling.protocol import ActionsOnly
from ferrata.seeds import derive
from ferrata.tasks.splits import refuse_overlap


class Session:
    """One run under way. Raises UsageError at once for what a person got wrong in the recipe."""

    def __init__(self, recipe: Recipe, folder: RunFolder, view: RunView, interrupts: Interrupts) -> None:
        if recipe.policy.threads:
            torch.set_num_threads(recipe.policy.threads)
        self.recipe, self.folder, self.view, self.interrupts = recipe, folder, view, interrupts
        self.rewards = RewardSpec(recipe.rewards)
        """The recipe's weights with all their phases."""
        self.scoring = self.rewards.at(0)
        """The weights that score episodes now."""
        self.version = 0
        """How often the policy has learned; what is published carries it."""
        self.faults = FaultRates.of(recipe.env.faults)
        """Injected into the tools while RL collects; evaluation is without."""
        self.audit = AuditLog(folder.path / "audit") if recipe.run.audit else None
        """Where what the policy does is logged; scripted demonstrations are not."""
        self._home = get_ident()
        self._opened = ExitStack()
        """What must be closed, the last one first."""
        self._opened.callback(self._close_audit)
        try:
            self._open()
        except BaseException:
            self._opened.close()
            raise

    def _open(self) -> None:
        """Make the environment, the policy, and what plays them. Whatever fails, what was opened is closed again."""
        recipe = self.recipe
        self._patterns: dict[tuple[int, tuple[int, ...], str, tuple[str, ...]], Environment] = {}
        self._opened.callback(self._close_patterns)
        self.env = self.pattern(recipe.env.tiers)
        if self.faults:
            self.faults.refuse_unknown(tool.name for tool in self.env.tools)
        if "sft" in recipe.stages or recipe.rl.instructions:
            self.demonstrated()  # what it lacks is told before anything is trained
        self.unseen = self._draw(self.env, "eval", recipe.evaluation.tasks, recipe.evaluation.seed)
        """The tasks of the full evaluation; training tasks are checked against them."""
        self.policy = load_policy(recipe.policy.model)
        if recipe.policy.lora_rank:
            self._attach_adapters()
        self.sampler = make_sampler(self.policy, recipe)
        self._opened.callback(self.sampler.shutdown)
        if recipe.evaluation.constrained:
            self._refuse_unconstrainable()
        self.judge = make_judge(recipe.judge, self.folder.path / VERDICTS)
        if self.judge is not None:
            self._opened.callback(self.judge.close)
        self.collector = Collector(
            self.sampler, self._env_spec(self.audit), self.policy.chat, recipe.rollout, self.judge
        )
        self._opened.callback(self.collector.close)

    def pattern(self, tiers: Sequence[int], tools: str = "", families: Sequence[str] = ()) -> Environment:
        """An environment that draws tasks of these tiers and families alone, with this tool set; nobody plays in it.

        Each thread has its own: see `leave_thread`.
        """
        section = self.recipe.env
        key = (get_ident(), tuple(tiers), tools or section.tools, tuple(families) or section.families)
        if key not in self._patterns:
            self._patterns[key] = replace(self._env_spec(None), tiers=key[1], tools=key[2], families=key[3])()
        return self._patterns[key]

    def leave_thread(self) -> None:
        """The next round is played in another thread: close the environments that only this one may use.

        Some libraries, sqlite3 among them, serve only the thread that made something. What the thread that opened the
        session draws its tasks from stays, for it comes back.
        """
        self.collector.leave_thread()
        if get_ident() != self._home:
            self._close_patterns(get_ident())

    def demonstrated(self) -> Environment:
        """An environment that draws the tasks that are demonstrated."""
        section = self.recipe.sft
        return self.pattern(section.tiers or self.recipe.env.tiers, families=section.families)

    def draw_tasks(self, n: int, *path: str | int, env: Environment | None = None) -> list[Task]:
        """`n` training tasks of the stream named by `path`; TaskError if one stands in the evaluation set.

        They are of the recipe's tiers, or of those of `env`.
        """
        tasks = self._draw(env or self.pattern(self.recipe.env.tiers), "train", n, derive(self.recipe.seed, *path))
        refuse_overlap(tasks, self.unseen)
        self.rewards.check_dominance(tasks)
        return tasks

    def score_for(self, stage: str, update: int) -> None:
        """From now on, score episodes by the weights that hold at this update; a new phase is noted once."""
        spec = self.rewards.at(update)
        if spec.version == self.scoring.version:
            return
        self.scoring = spec
        for env in self._patterns.values():
            env.score = spec
        # Environments that were made before would go on with the old weights.
        self.collector.remake(self._env_spec(self.audit))
        text = f"Reward phase '{spec.phase}' has begun: from here on episodes are scored by weights {spec.version}."
        # A resumed run enters the phase again, but its store remembers the first time.
        if all(note.text != text for note in self.folder.store.notes("rewards")):
            self.folder.store.add_note(stage, update, "rewards", text)
            self.view.message(text)

    def learned(self) -> None:
        """The policy's weights have changed; the sampler has them after `publish`."""
        self.version += 1

    def publish(self) -> None:
        """Hand the policy's weights to the sampler, where it does not have them yet."""
        if self.sampler.version != self.version:
            self.sampler.publish(self.version)

    def evaluate_small(self, stage: str, step: int, tasks: Sequence[Task]) -> EvaluationResult:
        """Greedy success on some of the unseen tasks."""
        result, _ = self._evaluate(stage, step, "small", "greedy", tasks)
        self.folder.store.add_metrics(stage, step, {"time/evaluation": result.seconds})
        return result

    def evaluate_fully(self, stage: str, step: int) -> EvaluationResult:
        """Greedy and sampled success on all unseen tasks; stores the greedy episodes, returns the sampled result."""
        greedy, trajectories = self._evaluate(stage, step, "full", "greedy", self.unseen)
        self.folder.store.drop_trajectories(stage, step, "eval")
        self.folder.store.add_trajectories(stage, step, "eval", trajectories)
        sampled, _ = self._evaluate(stage, step, "full", "sampled", self.unseen)
        self.folder.store.add_metrics(stage, step, {"time/evaluation": greedy.seconds + sampled.seconds})
        return sampled

    def last_sampled(self, stage: str | None = None) -> EvaluationResult | None:
        """The newest full evaluation with sampling, of one stage or of the run; None when there was none."""
        stored = [entry for entry in self.folder.store.evaluations("full", stage) if entry.name == "sampled"]
        return decode(stored[-1].content) if stored else None

    def stop_if_asked(self) -> None:
        """Raise Interrupted when the person asked to stop. Call it right after a checkpoint."""
        if self.interrupts.requested:
            raise Interrupted(f"Stopped; everything is saved. Go on with: ferrata train {self.folder.path} --resume")

    def seal_audit(self) -> None:
        """Note in the store where the audit log stands, so that what is removed from it later is found.

        The log only grows, also where a resumed run goes back: the note is no matter of one step.
        """
        stages = self.folder.store.stages()
        if self.audit is not None and stages:
            self.folder.store.add_note(stages[-1], 0, SEAL, self.audit.seal())

    def close(self) -> None:
        """Close all environments, the sampler, the judge and the audit log."""
        self._opened.close()

    def _close_patterns(self, thread: int | None = None) -> None:
        """Close the environments that tasks are drawn from: those of one thread, or all."""
        for key in [key for key in self._patterns if thread in (None, key[0])]:
            close_quietly(self._patterns.pop(key))

    def _close_audit(self) -> None:
        if self.audit is not None:
            self.audit.close()
            self.seal_audit()

    def _draw(self, env: Environment, split: str, n: int, seed: int) -> list[Task]:
        """Tasks of a split. What the author's generator raises, `sys.exit()` included, becomes a TaskError."""
        with contained(TaskError, f"drawing tasks of environment '{self.recipe.env.name}'"):
            return env.tasks(split, n, seed=seed)

    def _attach_adapters(self) -> None:
        section = self.recipe.policy
        seed = derive(self.recipe.seed, "policy", "adapters")
        attach(self.policy.model, section.lora_rank, section.lora_alpha, section.lora_targets, seed)

    def _refuse_unconstrainable(self) -> None:
        """Find out now, not at the first evaluation, whether episodes can be constrained."""
        self.sampler.open(0, 0, 0.0, ActionsOnly(tuple(self.env.tools)))
        self.sampler.close(0)

    def _env_spec(self, audit: AuditLog | None) -> EnvironmentSpec:
        """How environments are made, with the weights that score now."""
        section = self.recipe.env
        return EnvironmentSpec(
            section.name, section.tiers, self.scoring.section, section.families, section.tools, audit
        )

    def _evaluate(
        self, stage: str, step: int, kind: str, decoding: str, tasks: Sequence[Task]
    ) -> tuple[EvaluationResult, list[Trajectory]]:
        section, greedy = self.recipe.evaluation, decoding == "greedy"
        temperature = 0.0 if greedy else self.recipe.rollout.temperature
        constrained = section.constrained and greedy
        result, trajectories = evaluate(
            self.collector, self.env, tasks=tasks, seed=section.seed, temperature=temperature, constrained=constrained
        )
        self.folder.store.add_evaluation(stage, step, kind, decoding, encode(result))
        if result.unscored:
            self.view.message(_dropped(result))
        rate, tiers = result.success, {f"tier {tier}": rate.share for tier, rate in result.by_tier.items()}
        self.view.evaluation(step, Score(f"unseen tasks, {decoding}", rate.share, rate.low, rate.high, rate.n, tiers))
        return result, trajectories


def _dropped(result: EvaluationResult) -> str:
    """For a person: how many episodes of an evaluation say nothing about the agent, and why."""
    stops = ", ".join(f"{stop} {count}" for stop, count in result.stops.items() if StopReason(stop).faulty)
    return (
        f"Of {result.n} evaluation episodes ({result.decoding}) {result.unscored} could not be scored and count as "
        f"nothing{f' ({stops})' if stops else ''}: success is over the other {result.scored}."
    )
