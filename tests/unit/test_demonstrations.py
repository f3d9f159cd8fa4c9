"""Demonstrations as tokens: the same that the collector would write, and measured against the budgets."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from ferrata import load_recipe
from ferrata.cli.main import app
from ferrata.envs import Environment, Script, call, tool
from ferrata.errors import TaskError, UsageError
from ferrata.models.policy import Policy, load_policy
from ferrata.recipe import Recipe
from ferrata.records import StopReason, Task
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import EnvironmentSpec, make_env
from ferrata.runs import RunFolder, SilentView
from ferrata.runs.interrupt import Interrupts
from ferrata.training import pipeline, supervised
from ferrata.training.demonstrations import Measured, demonstration, measure


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("base")


@pytest.fixture
def office() -> Iterator[Environment]:
    with closing(make_env("office", tiers=(1, 2))) as env:
        yield env


def recipe(*overrides: str) -> Recipe:
    return load_recipe("office-smoke", ["rollout.max_tokens=512", "rollout.max_turns=30", *overrides])


class Kept(SilentView):
    """A view that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("most", [0, 12])
def test_its_tokens_are_those_that_the_collector_writes(
    script: Any, office: Environment, policy: Policy, most: int
) -> None:
    """The same turns played by the sampler: what SFT reads is what RL reads, observations cut alike."""
    chosen = recipe(f"rollout.max_observation_tokens={most}")
    cut = 0
    for task in office.tasks("train", 8):
        texts = office.demonstrate(task, Random(1), 0.5)
        shown = demonstration(chosen, office, policy.chat, task, Random(1))
        cut += shown.observation > most > 0
        sampler = script(lambda key, turn, texts=texts: policy.chat.saying(texts[turn]))
        collector = Collector(sampler, EnvironmentSpec("office", (1, 2)), policy.chat, chosen.rollout)
        with closing(collector):
            [played] = collector.collect([(task, 1)], 0).trajectories
        assert not played.stop.faulty
        assert (shown.token_ids, shown.loss_mask) == (played.token_ids, played.loss_mask)
        assert shown.needs["max_turns"] == len(played.turns)
    assert bool(cut) == bool(most), "the case is none unless something was cut"


@pytest.mark.parametrize("key", ["max_tokens", "max_turns", "max_tokens_per_turn"])
def test_what_it_needs_is_exactly_enough(script: Any, office: Environment, policy: Policy, key: str) -> None:
    task = office.tasks("train", 12)[-1]
    texts = office.demonstrate(task, Random(2), 0.0)
    shown = demonstration(recipe("sft.imperfection=0"), office, policy.chat, task, Random(2))
    # Without its last token, a turn only lacks its end: the action stands.
    for missing in (0, 2 if key == "max_tokens_per_turn" else 1):
        budget = recipe(f"rollout.{key}={shown.needs[key] - missing}").rollout
        sampler = script(lambda key, turn: policy.chat.saying(texts[turn % len(texts)]))
        collector = Collector(sampler, EnvironmentSpec("office", (1, 2)), policy.chat, budget)
        with closing(collector):
            [played] = collector.collect([(task, 1)], 0).trajectories
        assert (played.stop is StopReason.COMPLETED) == (missing == 0)


def test_it_is_said_how_many_do_not_fit_and_what_would_hold_them(office: Environment, policy: Policy) -> None:
    everything = measure(recipe(), office, policy)
    assert everything.sentences == []
    needed = sorted(shown.needs["max_tokens"] for shown in everything.played)
    limit = needed[40]
    found = measure(recipe(f"rollout.max_tokens={limit}"), office, policy)
    over = sum(need > limit for need in needed)
    assert found.misfits == over > 0
    [sentence] = found.sentences
    assert sentence.startswith(f"{over} of 60 demonstrations (tier")
    assert f"rollout.max_tokens = {limit}: {needed[56]} would hold 95 % of them, {needed[-1]} all." in sentence
    found.refuse_misfits()


def test_it_is_refused_when_most_do_not_fit(office: Environment, policy: Policy) -> None:
    with pytest.raises(UsageError, match=r"% of the scripted demonstrations do not fit .*rollout.max_turns = 1: "):
        measure(recipe("rollout.max_turns=1"), office, policy).refuse_misfits()
    measure(recipe("rollout.max_turns=1", "rollout.max_misfit_share=1"), office, policy).refuse_misfits()


def test_the_context_of_the_policy_is_a_budget_too(office: Environment, tiny_policy: Policy) -> None:
    context = tiny_policy.model.config.max_position_embeddings
    found = measure(recipe("rollout.max_tokens=100000"), office, tiny_policy)
    assert f"the policy's context of {context} tokens" in found.sentences[0]
    long = max(found.played, key=lambda shown: len(shown.token_ids))
    assert len(long.example(context).token_ids) == context < len(long.token_ids)
    assert "The policy's context ends at" in measure(recipe("rollout.max_tokens=100"), office, tiny_policy).sentences[0]


def test_cut_observations_are_told_and_refuse_nothing(office: Environment, policy: Policy) -> None:
    found = measure(recipe("rollout.max_observation_tokens=12"), office, policy)
    assert found.misfits == 0
    assert "observations that are cut by rollout.max_observation_tokens = 12: " in found.sentences[0]


def test_a_slow_environment_is_measured_for_twenty_seconds(office: Environment, policy: Policy) -> None:
    ticks = iter(range(0, 10_000, 5))
    assert len(measure(recipe(), office, policy, clock=lambda: float(next(ticks))).played) == 5


def test_without_scripts_only_what_imitates_is_refused(errand: type[Environment], policy: Policy) -> None:
    env = errand()
    for imitates in ([], ['stages=["rl"]', "rl.instructions=0.1"]):
        with pytest.raises(TaskError, match=r"write scripts\(\)"):
            measure(recipe(*imitates), env, policy)
    assert measure(recipe('stages=["rl"]'), env, policy).sentences == []


class Trouble(Environment):
    """Does what its task says, in a tool, in `begin`, or when it is asked for scripts."""

    name = "trouble"
    families: ClassVar = {1: ("wait",)}
    where, what = "tool", "sleep"

    def generate(self, family: str, tier: int, stream: Random, split: str) -> Task:
        self._trouble("generate")
        world = {"number": stream.randrange(10**6) * 2 + (split == "eval")}
        return Task(self.name, family, tier, split, f"Wait {world['number']}.", world, (), 3)

    def begin(self, task: Task) -> None:
        self._trouble("begin")

    @tool("Wait.")
    def wait(self) -> str:
        self._trouble("tool")
        self.finish(True)
        return "done"

    def scripts(self, task: Task) -> list[Script]:
        self._trouble("scripts")
        return [Script("waits", (call("wait"),), True), Script("idles", ("...",), False)]

    def _trouble(self, where: str) -> None:
        if where == self.where:
            {"sleep": lambda: time.sleep(1000), "exit": lambda: sys.exit(3), "raise": lambda: 1 / 0}[self.what]()


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("tool", 'action “{"action": "wait", "arguments": {}}”'),
        ("begin", "beginning it"),
        ("scripts", "asking for its demonstration"),
    ],
)
@pytest.mark.parametrize("what", ["sleep", "exit", "raise"])
def test_an_author_s_code_that_hangs_leaves_or_raises_is_told_with_its_line(
    policy: Policy, where: str, told: str, what: str
) -> None:
    env, began = Trouble(), time.monotonic()
    env.where, env.what = where, what
    chosen = recipe("env.name=trouble:Trouble", "rollout.step_seconds=0.2", "sft.imperfection=0")
    with pytest.raises(TaskError) as caught:
        measure(chosen, env, policy)
    sentence = str(caught.value)
    assert time.monotonic() - began < 20
    assert "family 'wait', task “Wait " in sentence
    assert told in sentence
    assert re.search(r"test_demonstrations\.py:\d+ in (_trouble|<lambda>)\)", sentence)
    assert "`ferrata check-env trouble:Trouble` looks for more of this kind." in sentence
    wanted = {"sleep": "hangs", "exit": "SystemExit: 3", "raise": "ZeroDivisionError"}
    assert wanted[what] in sentence
    if what == "sleep":
        assert "took longer than rollout.step_seconds = 0.2" in sentence


def test_a_generator_that_leaves_is_told_too(policy: Policy) -> None:
    env = Trouble()
    env.where, env.what = "generate", "exit"
    with pytest.raises(TaskError, match=r"drawing training tasks of environment .*SystemExit: 3 \(.*:\d+ in "):
        measure(recipe(), env, policy)


def test_no_more_are_measured_than_sft_draws(office: Environment, policy: Policy) -> None:
    """An environment may have only so many tasks."""
    assert len(measure(recipe("sft.demonstrations=7"), office, policy).played) == 7


# In a run ---------------------------------------------------------------------------------------------------


def test_a_run_says_it_at_its_start_and_counts_it(tmp_path: Path) -> None:
    chosen = load_recipe("office-smoke", ['stages=["sft"]', "rollout.max_turns=3", "sft.updates=2"])
    view = Kept()
    with RunFolder.create(chosen, tmp_path / "run") as folder:
        pipeline.run(chosen, folder, view, Interrupts(lambda text: None))
        counts = [count for _, count in folder.store.metrics("sft/too_long")]
    assert sum("do not fit into rollout.max_turns = 3" in text for text in view.said) == 1
    assert sum(text.startswith("SFT: ") and "of 64 demonstrations do not fit" in text for text in view.said) == 1
    assert len(counts) == 2
    assert 0 < sum(counts) < 2 * chosen.sft.batch_size


def test_a_slow_start_says_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PATIENCE", 0.01)
    monkeypatch.setattr(supervised, "PATIENCE", 0.0)
    chosen = load_recipe("office-smoke", ['stages=["sft"]', "sft.updates=1", "evaluation.tasks=4"])
    view = Kept()
    with RunFolder.create(chosen, tmp_path / "run") as folder:
        pipeline.run(chosen, folder, view, Interrupts(lambda text: None))
    assert "Playing demonstrations, to see what fits into the budgets." in view.said
    assert [text for text in view.said if text.startswith("SFT: playing")] == [
        "SFT: playing 64 demonstrations, 1 of them in the first 0 s."
    ]


def test_a_run_into_which_most_do_not_fit_never_begins(tmp_path: Path) -> None:
    with RunFolder.create(recipe("rollout.max_turns=1"), tmp_path / "run") as folder:
        with pytest.raises(UsageError, match="could hardly finish its tasks"):
            pipeline.run(folder.recipe, folder, SilentView(), Interrupts(lambda text: None))
        assert folder.store.stages() == []


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("rollout.max_turns=1", "do not fit into rollout.max_turns = 1"),
        ("env.name=offise", "Did you mean 'office'?"),
        ('env.families=["repport"]', "Did you mean 'report'?"),
        ("env.name=support env.tiers=[1] env.families=['report']", "famil"),
        ("env.faults.timeout={send_mial=0.1}", "Did you mean 'send_message'?"),
        ("policy.model=bass", "Did you mean 'base'?"),
    ],
)
def test_dry_run_refuses_what_the_run_would_refuse(tmp_path: Path, override: str, sentence: str) -> None:
    result = CliRunner().invoke(
        app, ["train", "office-smoke", "--dry-run", *override.split(), "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 2
    assert sentence in result.output


def test_dry_run_says_what_does_not_fit(tmp_path: Path) -> None:
    arguments = ["train", "office-smoke", "--dry-run", "--out", str(tmp_path / "run")]
    assert "do not fit into rollout.max_turns = 4: " in CliRunner().invoke(app, arguments).output
    result = CliRunner().invoke(app, [*arguments, "rollout.max_turns=30", "rollout.max_tokens=512"])
    assert "Each of 60 demonstrations fits into these budgets." in result.output


def test_measured_without_any_demonstration_refuses_nothing(policy: Policy) -> None:
    nothing = Measured([], recipe(), policy)
    nothing.refuse_misfits()
    assert nothing.sentences == []
