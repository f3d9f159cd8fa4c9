"""Every algorithm learns a small world through the real collector, sampler and learner; without credit, none does.

The world pays turns after the turns that decide. A policy that has only learnt to speak starts at chance; after twelve
updates it succeeds three times out of four at least, with either seed. With its advantages zeroed it stays below twice
what chance gives, and with their signs turned it unlearns what chance gave it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ferrata.envs import Environment, Task, call, tool
from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare
from ferrata.learning.supervised import SupervisedLearner
from ferrata.models.chat import token_chat
from ferrata.models.policy import Policy
from ferrata.models.tokenizer import CHAT, build_tokenizer, padded_size
from ferrata.recipe import Recipe, RewardSection, RlSection, RolloutSection, SftSection
from ferrata.rewards.spec import RewardSpec
from ferrata.rollout.collector import Collection, Collector
from ferrata.sampling.local import LocalSampler
from ferrata.training.demonstrations import demonstration

pytestmark = pytest.mark.slow

PULLS = [call("pull", lever=lever) for lever in ("red", "green", "blue")]
WORDS = ("Go", "pulled", "waited", "entered", "error")
DOORS = [call("enter", door=door) for door in ("left", "right")]
CHANCE = 1 / 6
LEARNT = 0.75
GROUP, GROUPS = 8, 4


class Doors(Environment):
    """Pull the green lever, and later enter the left door. Only one turn after that it shows whether both was right."""

    name = "doors"
    families: ClassVar = {1: ("enter",)}

    def begin(self, task: Task) -> None:
        self.pulled, self.waited, self.entered = "", False, ""

    def demonstrate(self, task: Task, stream: random.Random, imperfection: float) -> Sequence[str]:
        return [stream.choice(PULLS), call("wait"), stream.choice(DOORS), call("look")]

    @tool("Pull a lever.")
    def pull(self, lever: str) -> str:
        self.pulled = self.pulled or lever
        return "pulled"

    @tool("Wait.")
    def wait(self) -> str:
        if self.pulled == "green":
            self.reach("humming")
        self.waited = True
        return "waited"

    @tool("Enter a door.")
    def enter(self, door: str) -> str:
        self.entered = self.entered or door
        return "entered"

    @tool("Look around.")
    def look(self) -> str:
        self.finish(self.waited and (self.pulled, self.entered) == ("green", "left"))
        return "over"


TASK = Task("doors", "enter", 1, "train", "Go.", {}, ("humming",), 5)


def new_policy(tokenizer: PreTrainedTokenizerFast) -> Policy:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=padded_size(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
        initializer_range=0.1, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return Policy("speaker", LlamaForCausalLM(config).eval(), tokenizer, token_chat(tokenizer, CHAT))


@pytest.fixture(scope="module")
def speaker() -> Policy:
    """A tiny policy that plays the world's four turns in order, with any lever and any door."""
    policy = new_policy(build_tokenizer([*PULLS, *DOORS, call("wait"), call("look")], [], WORDS))
    recipe, errors = Recipe(name="speaker"), random.Random(0)
    said = [demonstration(recipe, Doors(), policy.chat, TASK, errors).example() for _ in range(90)]
    learner = SupervisedLearner(policy.model, SftSection(updates=60, learning_rate=1e-2))
    for _ in range(60):
        learner.update(said)
    return policy


class School:
    """One run of reinforcement learning from the speaking policy on.

    Args:
        speaker: where it begins; left as it is.
        section: the algorithm and its settings.
        seed: of everything that is drawn.
    """

    def __init__(self, speaker: Policy, section: RlSection, seed: int) -> None:
        self.policy, self.section, self.seed = replace(speaker, model=copy.deepcopy(speaker.model)), section, seed
        self.sampler = LocalSampler(self.policy, slots=96, max_length=64)
        budgets = RolloutSection(max_turns=5, max_tokens_per_turn=4, max_tokens=64, episodes_at_once=96)
        self.collector = Collector(
            self.sampler, lambda: Doors(score=RewardSpec(RewardSection())), self.policy.chat, budgets
        )
        self.learner = Learner(self.policy.model, section, speaker.model, budgets.max_tokens)

    def update(self, number: int, change: Callable[[float], float] = lambda advantage: advantage) -> dict[str, float]:
        """One round: play, prepare, learn, publish. `change` is done to every advantage before it is learnt from."""
        groups = self._play("sampling", number, [GROUP] * GROUPS).groups
        score = self.learner.score if self.learner.scores else None
        examples, counts = prepare(groups, self.section, score)
        changed = [replace(example, advantages=[change(a) for a in example.advantages]) for example in examples]
        metrics = self.learner.update(changed, random.Random(f"{self.seed} {number}"))
        self.sampler.publish(number)
        return counts | metrics

    def success(self) -> float:
        """Share of sampled episodes that succeed."""
        episodes = self._play("evaluation", 0, [96]).trajectories
        return sum(bool(episode.success) for episode in episodes) / len(episodes)

    def _play(self, name: str, number: int, sizes: list[int]) -> Collection:
        return self.collector.collect([(TASK, size) for size in sizes], self.seed, (name, number))


PLAIN: dict[str, Any] = {"learning_rate": 5e-3, "kl": 0.0, "entropy": 0.0, "minibatches": 1}
UPDATES = 12
KINDS: dict[str, dict[str, Any]] = {
    "GRPO": {"algorithm": "grpo"},
    "RLOO": {"algorithm": "rloo", "normalise": False},
    "REINFORCE++": {"algorithm": "reinforce++"},
    "GiGPO": {"algorithm": "gigpo"},
    "PPO": {"algorithm": "ppo"},
    "Dr. GRPO": {"algorithm": "grpo", "normalise": False, "aggregation": "constant"},
    "DAPO": {"algorithm": "grpo", "clip_high": 0.28, "aggregation": "token", "minibatches": 2, "epochs": 2},
    "GSPO": {"algorithm": "grpo", "ratio": "sequence", "aggregation": "sequence", "minibatches": 2, "epochs": 2},
    "GRPO, channels apart": {"algorithm": "grpo", "channels": {"apart": True}},
    "PPO, channels apart": {"algorithm": "ppo", "channels": {"apart": True}},
    "RLOO, divergence in the reward": {"algorithm": "rloo", "kl": 0.05, "kl_in": "reward"},
    "GRPO, divergence and entropy in the loss": {
        "algorithm": "grpo",
        "kl": 0.02,
        "kl_estimator": "k2",
        "entropy": 0.005,
    },
}


def school(speaker: Policy, name: str, seed: int) -> School:
    return School(speaker, RlSection(**{**PLAIN, **KINDS[name]}), seed)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", KINDS)
def test_it_learns_what_is_paid_turns_later(speaker: Policy, name: str, seed: int) -> None:
    lesson = school(speaker, name, seed)
    assert lesson.success() < 2 * CHANCE
    for number in range(1, UPDATES + 1):
        metrics = lesson.update(number)
        assert metrics["rl/steps_skipped"] == 0
    assert lesson.success() > LEARNT


@pytest.mark.parametrize("name", KINDS)
def test_it_does_not_learn_without_credit_and_unlearns_with_signs_turned(speaker: Policy, name: str) -> None:
    without, turned = school(speaker, name, 0), school(speaker, name, 0)
    for number in range(1, UPDATES // 2 + 1):
        without.update(number, lambda advantage: 0.0)
        turned.update(number, lambda advantage: -advantage)
    assert without.success() < 2 * CHANCE
    assert turned.success() < CHANCE / 2
