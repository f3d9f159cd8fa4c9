"""A learner with a small policy, and episodes as it gets them, for faults in what is learnt from an episode.

All go the public way: groups of trajectories -> `prepare` -> `Learner.update`. Where a gradient is looked at, the
optimizer does nothing, so that the gradient and the weights stay as they are.
"""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from ferrata.learning.batch import Example
from ferrata.learning.learner import Learner
from ferrata.learning.preparation import prepare
from ferrata.recipe import RlSection
from ferrata.records import Group, StopReason, Task, Trajectory, Turn

TASK = Task("test", "family", 1, "train", "Do it.", {}, ("done",), 9)
VOCABULARY = 61
ALGORITHMS = ("grpo", "rloo", "reinforce++", "gigpo", "ppo")
EVERY = pytest.mark.parametrize("algorithm", ALGORITHMS)
Components = dict[str, float]


def tiny(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


POLICY, REFERENCE = tiny(0), tiny(1)


def episode(
    *rewards: Components | float,
    states: str = "",
    success: bool | None = None,
    stop: StopReason = StopReason.COMPLETED,
    observed: int = 2,
    seed: int = 0,
    sampled: int = 2,
    **more: Any,
) -> Trajectory:
    """An episode of one turn for each reward, with `observed` ids read before each turn and after the last.

    A reward that is a number is the outcome's. Its turns stand in the states named by single letters.
    """
    stream = random.Random(seed)
    turns, ids, mask = [], [1, 2, 3], [False] * 3
    for number, reward in enumerate(rewards):
        said = [stream.randrange(4, VOCABULARY) for _ in range(sampled)]
        components = reward if isinstance(reward, dict) else {"outcome": reward}
        state = states[number] if states else f"{seed} {number}"
        turns.append(Turn("", "", said, [-4.0] * sampled, None, (), components, state))
        ids, mask = [*ids, *said, *[4] * observed], [*mask, *[True] * sampled, *[False] * observed]
    fields: dict[str, Any] = {"reward": sum(turn.reward for turn in turns), "loss_mask": mask, **more}
    logprobs = [-4.0 if trained else 0.0 for trained in mask]
    return Trajectory(task=TASK, turns=turns, token_ids=ids, logprobs=logprobs, stop=stop, success=success, **fields)


def group(*episodes: Trajectory) -> Group:
    return Group(TASK, list(episodes))


def section(algorithm: str = "grpo", **more: Any) -> RlSection:
    quiet = {"kl": 0.0, "entropy": 0.0, "minibatches": 1, "max_grad_norm": 1e9, "value": {"warmup": 0}}
    return RlSection(algorithm=algorithm, **{**quiet, **more})


def learner_of(chosen: RlSection, model: LlamaForCausalLM = POLICY) -> Learner:
    return Learner(model, chosen, REFERENCE if chosen.kl else None)


def prepared(groups: Sequence[Group], chosen: RlSection) -> list[Example]:
    learner = learner_of(chosen)
    return prepare(groups, chosen, learner.score if learner.scores else None)[0]


def advantages(groups: Sequence[Group], chosen: RlSection) -> list[list[float]]:
    """Of every trained token of every example."""
    return [list(example.advantages) for example in prepared(groups, chosen)]


def freeze(learner: Learner) -> None:
    for optimizer in [learner._optimizer, *([learner.critic._optimizer] if learner.critic else [])]:
        optimizer.step = optimizer.zero_grad = lambda: None
    learner.model.zero_grad()


def gradient(examples: Sequence[Example], chosen: RlSection) -> tuple[Tensor, dict[str, float]]:
    """Of one step on these examples, the value head's included, and what was measured."""
    learner = learner_of(chosen)
    freeze(learner)
    metrics = learner.update(examples, random.Random(0))
    heads = list(learner.critic.head.parameters()) if learner.critic else []
    parameters = [*POLICY.parameters(), *heads]
    flat = [torch.zeros(0) if p.grad is None else p.grad.double().flatten() for p in parameters]
    POLICY.zero_grad()
    return torch.cat(flat), metrics
