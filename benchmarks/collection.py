"""Seconds for one whole collection, Ferrata's Collector against the rollouts of TRL's GRPOTrainer.

    python benchmarks/collection.py --trl-python .venv-trl/bin/python [--rounds 3] [--policy smollm2-135m] [--threads 2]
                                    [--tasks 8] [--group 8] [--turns 30] [--contenders Ferrata TRL "TRL continuous"]

The environment of TRL has `trl==1.16.*` and this package (see docs/rollouts.md). The contenders run in turn, each in a
process of its own: same weights in fp32, same office tasks of tier 1, same tool listing, so that openings are the same
token for token (that is checked); temperature 1, no top-k, no top-p; 64 environments that score their steps.

A model of this size hardly ever calls a tool, so both play the same script: a turn is as long as the demonstrated one,
what is sampled is not looked at, and the demonstrated call is executed. Everything else is the contender's own code:

    Ferrata   `Collector.collect`, episodes with log-probabilities and rewards included
    TRL       `GRPOTrainer._generate_and_score_completions` with `environment_factory`, one instance for each rollout.
              With one generation for each optimizer step, as here, it computes no log-probabilities.

Starting up and a short warm-up are not timed. Prints medians of wall time and of processor time, and their ratios.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch

from ferrata import Task, make_env
from ferrata.envs.office import OfficeEnvironment
from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare
from ferrata.models.policy import Policy, load_policy, save_policy
from ferrata.recipe import RlSection, RolloutSection
from ferrata.records import Group, StepResult, Trajectory
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collector import Collector
from ferrata.sampling.local import LocalSampler
from ferrata.sampling.protocol import Completion

EPISODE_TOKENS, TURN_TOKENS = 512, 128
"""More than any episode or turn of tier 1 has."""
FAILED = -1.0
"""Outcome of every second member of a group, where something is learnt from them."""


@dataclass(frozen=True)
class Job:
    """What one contender does in one process."""

    policy: str
    """Folder of the policy."""
    threads: int
    tasks: int
    group: int
    """Episodes of each task."""
    turns: int
    """Most turns of an episode."""
    continuous: bool = False
    """TRL samples by transformers' continuous batching."""
    learn: bool = False
    """An optimizer step on what was played as well (`update.py`)."""


@dataclass(frozen=True)
class Played:
    """What it took."""

    seconds: float
    cpu_seconds: float
    sampled: int
    """Tokens of all turns."""
    read: int
    """Tokens that the model computed and did not sample; without padding."""
    again: int
    """Those among them that the same episode had computed in an earlier turn."""
    padding: int
    """Padding that it computed besides."""
    turns: int
    won: int
    """Episodes whose task was done."""
    parts: dict[str, float]
    """Seconds by what they went to."""

    @property
    def line(self) -> str:
        """All of it, to read."""
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.parts.items())
        return (
            f"{self.seconds:6.1f} s ({self.cpu_seconds:.1f} s of processors): {parts}; sampled {self.sampled:,}, read "
            f"{self.read:,} ({self.again:,} of them again), padding {self.padding:,}; {self.turns} turns, "
            f"{self.won} won"
        )


def office_scripts(job: Job) -> list[tuple[Task, list[str]]]:
    """The tasks, each with the texts of its demonstrated turns."""
    with closing(make_env("office", tiers=(1,))) as env:
        tasks = env.tasks("train", job.tasks, seed=1)
        return [(task, env.demonstrate(task, random.Random(1), 0.0)[: job.turns]) for task in tasks]


class ScriptedOffice(OfficeEnvironment):
    """An office in which the demonstrated call is executed, whatever was said."""

    scripts: ClassVar[dict[str, list[str]]] = {}
    """Turns by the task's fingerprint."""

    def step(self, text: str) -> StepResult:
        """Play the next turn of the script."""
        return super().step(self.scripts[self.task.fingerprint][self.turn])


class ScriptedSampler(LocalSampler):
    """Samples turns of given lengths, and nothing else ends them."""

    def __init__(self, policy: Policy, slots: int, lengths: Sequence[Sequence[int]]) -> None:
        super().__init__(policy, slots, EPISODE_TOKENS)
        self.lengths, self.taken = lengths, dict[int, int]()

    def submit(self, key: int, ids: Sequence[int], max_new_tokens: int) -> None:
        """Ask for a turn of the length that the script gives it; keys count from 0 in every collection."""
        turn = self.taken.get(key, 0)
        super().submit(key, ids, self.lengths[key][turn])
        self.taken[key] = turn + 1

    def close(self, key: int) -> None:
        """Forget the episode."""
        super().close(key)
        del self.taken[key]

    def advance(self) -> list[Completion]:
        """One step; every turn that is over has said what it wanted to say."""
        return [msgspec.structs.replace(done, stopped=True) for done in super().advance()]


def by_ferrata(job: Job) -> Played:
    """One collection by Ferrata."""
    torch.set_num_threads(job.threads)
    policy, scripts = load_policy(job.policy), office_scripts(job)
    policy.chat.stop_ids = frozenset()
    ScriptedOffice.scripts = {task.fingerprint: texts for task, texts in scripts}
    lengths = [[len(policy.chat.saying(text)) for text in texts] for _, texts in scripts for _ in range(job.group)]
    sampler = ScriptedSampler(policy, len(lengths), lengths)
    budgets = RolloutSection(
        episodes_at_once=len(lengths), max_turns=job.turns, max_tokens=EPISODE_TOKENS, max_tokens_per_turn=TURN_TOKENS
    )
    make = partial(ScriptedOffice, tiers=(1,), score=RewardSpec())
    with closing(Collector(sampler, make, policy.chat, budgets)) as collector:
        collector.collect([(scripts[0][0], 1)], 0)
        read, started, cpu_started = sampler.counts.read, time.perf_counter(), time.process_time()
        collection = collector.collect([(task, job.group) for task, _ in scripts], 1)
        learning = learn_from(collection.groups, policy) if job.learn else 0.0
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    stats = collection.stats
    parts = {"reading": stats.prefill_seconds, "sampling": stats.decode_seconds, "office": stats.environment_seconds}
    parts |= {"learning": learning} if job.learn else {}
    return Played(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        sampled=stats.tokens_sampled,
        read=sampler.counts.read - read,
        again=0,
        padding=0,
        turns=stats.turns,
        won=sum(trajectory.success is True for trajectory in collection.trajectories),
        parts=parts,
    )


def learn_from(groups: Sequence[Group], policy: Policy) -> float:
    """One step on all episodes, of which every second one of a group is said to have failed; returns the seconds."""
    started = time.perf_counter()
    section = RlSection(kl=0.0, entropy=0.0, minibatches=1, learning_rate=1e-6)
    spread = [
        Group(group.task, [failed(t) if i % 2 else t for i, t in enumerate(group.trajectories)]) for group in groups
    ]
    examples, _ = prepare(spread, section)
    metrics = Learner(policy.model, section).update(examples, random.Random(0))
    assert metrics["rl/steps"] == 1
    assert metrics["rl/tokens"] == sum(sum(t.loss_mask) for group in groups for t in group.trajectories)
    return time.perf_counter() - started


def failed(trajectory: Trajectory) -> Trajectory:
    """The same episode with another reward: scripts all succeed, and equal rewards teach nothing."""
    *turns, last = trajectory.turns
    last = msgspec.structs.replace(last, components={**last.components, "outcome": FAILED})
    reward = sum(turn.reward for turn in (*turns, last))
    return msgspec.structs.replace(trajectory, turns=[*turns, last], reward=reward, success=False)


def in_a_process(python: str, script: str, job: Job) -> Played:
    """Have a script beside this one do the job: it reads a Job as JSON, and its last line is a Played."""
    command = [python, str(Path(__file__).with_name(script)), "--job"]
    run = subprocess.run(command, input=json.dumps(asdict(job)), capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{run.stderr[-3000:]}")
    return Played(**json.loads(run.stdout.splitlines()[-1]))


def answer(play: Any) -> None:
    """What a process of a contender does: read the job, play, print."""
    print(json.dumps(asdict(play(Job(**json.load(sys.stdin))))))


def compare(results: dict[str, list[Played]], asked: float) -> None:
    """Print medians and ratios beside what is asked for; refuse to compare different work."""
    for name, played in results.items():
        wall, cpu = (statistics.median(getattr(one, kind) for one in played) for kind in ("seconds", "cpu_seconds"))
        print(f"{name:14s} {wall:6.1f} s, {cpu:6.1f} s of processors (medians of {len(played)})")
    for name in list(results)[1:]:
        pairs = list(zip(results[name], results["Ferrata"], strict=True))
        wall = sorted(other.seconds / ours.seconds for other, ours in pairs)
        cpu = statistics.median(other.cpu_seconds / ours.cpu_seconds for other, ours in pairs)
        print(
            f"Ferrata is {statistics.median(wall):.1f} x as fast as {name} ({wall[0]:.1f} to {wall[-1]:.1f}); ", end=""
        )
        print(f"{cpu:.1f} x by processor time (at least {asked:g} x asked for)")
    work = {(one.sampled, one.turns, one.won) for played in results.values() for one in played}
    if len(work) > 1:
        sys.exit(f"The contenders did not do the same work (sampled tokens, turns, episodes won): {sorted(work)}")
    print("Sampled tokens, turns and episodes won agree everywhere.")


def main(description: str | None = __doc__, learn: bool = False, asked: float = 4.0) -> None:
    """Let the contenders work in turn, print."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", required=True, help="Python of an environment that has TRL")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=["Ferrata", "TRL"])
    arguments = parser.parse_args()
    print(f"{processor()}, {arguments.threads} threads, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"{arguments.policy} in fp32: {arguments.tasks} tasks of office tier 1, {arguments.group} episodes of each")
    results: dict[str, list[Played]] = {name: [] for name in arguments.contenders}
    with tempfile.TemporaryDirectory() as folder:
        save_policy(load_policy(arguments.policy), Path(folder) / "policy")
        job = Job(f"{folder}/policy", arguments.threads, arguments.tasks, arguments.group, arguments.turns, learn=learn)
        for _ in range(arguments.rounds):
            for name, played in results.items():
                script, continuous = CONTENDERS[name]
                python = sys.executable if name == "Ferrata" else arguments.trl_python
                played.append(in_a_process(python, script, replace(job, continuous=continuous)))
                print(f"  {name:14s} {played[-1].line}", flush=True)
    compare(results, asked)


CONTENDERS = {
    "Ferrata": ("collection.py", False),
    "TRL": ("trl_collection.py", False),
    "TRL continuous": ("trl_collection.py", True),
}
"""The script that plays, and whether it samples by continuous batching."""


def processor() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    answer(by_ferrata) if "--job" in sys.argv else main()
