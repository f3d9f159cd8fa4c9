"""A real instruct model goes the same way as the small one: it rolls out in the office and takes a training step."""

import pytest
import torch

from ferrata.learning.batch import Example
from ferrata.learning.learner import Learner
from ferrata.models.policy import load_policy
from ferrata.recipe import RlSection, RolloutSection
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import make_env
from ferrata.sampling.local import LocalSampler
from ferrata.seeds import stream


@pytest.mark.slow
def test_smollm2_rolls_out_and_takes_a_training_step() -> None:
    policy = load_policy("smollm2-135m")
    budgets = RolloutSection(episodes_at_once=2, max_turns=2, max_tokens_per_turn=24, max_tokens=1024)
    sampler = LocalSampler(policy, budgets.episodes_at_once, budgets.max_tokens)
    collector = Collector(sampler, lambda: make_env("office", tier=1), policy.chat, budgets)
    env = make_env("office", tier=1)
    task = env.tasks("train", 1)[0]
    env.close()
    [group] = collector.collect([(task, 2)], seed=0).groups
    collector.close()
    assert all(len(trajectory.turns) == 2 for trajectory in group.trajectories)
    assert all(sum(trajectory.loss_mask) > 4 for trajectory in group.trajectories)

    before = policy.model.get_output_embeddings().weight.detach().clone()
    learner = Learner(policy.model, RlSection(learning_rate=1e-5, kl=0.0, minibatches=1))
    examples = [
        Example.of(trajectory, [advantage] * len(trajectory.turns))
        for trajectory, advantage in zip(group.trajectories, (1, -1), strict=True)
    ]
    metrics = learner.update(examples, stream(0, "shuffle"))
    assert metrics["rl/steps"] == 1
    assert metrics["rl/steps_skipped"] == 0
    assert metrics["rl/logprob_gap_max"] < 1e-3
    assert not torch.equal(before, policy.model.get_output_embeddings().weight)
