"""The whole path of Ferrata in one file: imitate demonstrations, improve by GRPO, evaluate on unseen tasks.

    python examples/minimal_grpo.py [RECIPE] [KEY=VALUE ...]        e.g. office-quickstart seed=1 rl.updates=20

What differs from `ferrata train`: no micro-batches, no gates, no checkpoints, no store, no view, and one pass over
each collection. What does not differ: the numbers. `tests/golden/test_minimal_grpo.py` holds both to the same losses.

What differs from textbook GRPO:
1. An episode has many turns; only the tokens that the policy sampled carry loss, observations never do.
2. All sampled tokens of an episode share its group-relative advantage; each token weighs the same in the loss.
3. Groups whose rewards hardly differ are left out: they say nothing, and dividing by their spread would shout it.
4. The KL divergence to the policy that RL started from stands in the loss (estimator k3), with an entropy bonus.

Shapes: B episodes, T tokens of the longest, V vocabulary, N sampled tokens of the batch.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ferrata import load_recipe, make_env
from ferrata.envs import Environment
from ferrata.learning.optimizer import Optimizers, build_optimizer
from ferrata.models.chat import Chat
from ferrata.models.policy import Policy, load_policy
from ferrata.recipe import Recipe, RlSection
from ferrata.records import Group, Task
from ferrata.rollout.collector import Collector
from ferrata.sampling.local import LocalSampler
from ferrata.seeds import derive, stream


@dataclass
class Episode:
    """What the loss needs to know of one episode."""

    ids: list[int]
    mask: list[bool]
    """True for the tokens that the policy wrote."""
    sampled_logprobs: list[float]
    advantage: float = 1.0


def main(arguments: Sequence[str]) -> None:
    """Train, and print what happens."""
    recipe = load_recipe(arguments[0] if arguments else "office-quickstart", arguments[1:])
    if recipe.rl.epochs > 1 or recipe.rl.kl_estimator != "k3":
        raise SystemExit("This file knows one pass and the estimator k3: leave rl.epochs and rl.kl_estimator alone.")
    policy = load_policy(recipe.policy.model)
    env = new_env(recipe)
    for step, loss in enumerate(imitate(recipe, policy, env), start=1):
        print(f"sft {step}: loss {loss:.4f}")
    collector = make_collector(recipe, policy)
    print(f"success on unseen tasks: {success(recipe, collector, env):.1%}")
    for update, loss in enumerate(reinforce(recipe, policy, env, collector), start=1):
        print(f"rl {update}: loss {loss:.4f}")
    print(f"success on unseen tasks: {success(recipe, collector, env):.1%}")


# Imitation ------------------------------------------------------------------------------------------------------


def imitate(recipe: Recipe, policy: Policy, env: Environment) -> list[float]:
    """SFT on scripted demonstrations; the loss of each step (nats per token)."""
    section, seed, losses = recipe.sft, recipe.seed, []
    errors = stream(seed, "sft", "errors")
    tasks = env.tasks("train", section.demonstrations, seed=derive(seed, "sft", "tasks"))
    episodes = [
        demonstrate(env, policy.chat, task, env.demonstrate(task, errors, section.imperfection)) for task in tasks
    ]
    optimizer = build_optimizer(policy.model, section.learning_rate, section.weight_decay, section.optimizer)
    warmup = math.ceil(section.warmup * section.updates)
    for number in range(1, section.updates + 1):
        fall = (section.updates - number + 1) / max(1, section.updates - warmup)
        rate = section.learning_rate * (number / warmup if number <= warmup else fall)
        batch = stream(seed, "sft", "batch", number).sample(episodes, min(section.batch_size, len(episodes)))
        loss = -token_logprobs(policy, batch)[0].mean()
        optimizer.set_learning_rate(rate)
        losses.append(step(optimizer, policy, loss, section.max_grad_norm))
    return losses


def demonstrate(env: Environment, chat: Chat, task: Task, texts: Sequence[str]) -> Episode:
    """Play fixed texts, and write down as tokens what was read and what was said."""
    ids = chat.opening(env.reset(task).text, env.tools_for(task))
    mask = [False] * len(ids)
    for text in texts:
        said = chat.saying(text)
        result = env.step(text)
        read = chat.following(result.observation.text, closed=True)
        over = result.terminated or result.truncated
        ids += said if over else said + read
        mask += [True] * len(said) + ([] if over else [False] * len(read))
        if over:
            break
    return Episode(ids, mask, [0.0] * len(ids))


# Reinforcement --------------------------------------------------------------------------------------------------


def reinforce(recipe: Recipe, policy: Policy, env: Environment, collector: Collector) -> list[float]:
    """GRPO; the loss of each update, before its optimizer steps changed anything for the step's own batch."""
    section, seed, losses, trained = recipe.rl, recipe.seed, [], 0
    reference = Policy("reference", copy.deepcopy(policy.model), policy.tokenizer, policy.chat)
    optimizer = build_optimizer(policy.model, section.learning_rate, section.weight_decay, section.optimizer)
    for update in range(1, section.updates + 1):
        tasks = env.tasks("train", section.tasks_per_update, seed=derive(seed, "rl", "tasks", update))
        requests = [(task, section.group_size) for task in tasks]
        groups = collector.collect(requests, seed, ("rl", "sampling", update)).groups
        episodes = [episode for group in groups for episode in with_advantages(group, section)]
        order = list(range(len(episodes)))
        stream(seed, "rl", "shuffle", update).shuffle(order)
        fallen = section.learning_rate_decay * trained / section.updates
        optimizer.set_learning_rate(section.learning_rate * (1.0 - fallen))
        trained += bool(episodes)
        total, tokens = 0.0, 0
        for part in range(min(section.minibatches, len(order))):
            batch = [episodes[index] for index in order[part :: section.minibatches]]
            count = sum(sum(episode.mask) for episode in batch)
            loss = grpo_loss(recipe, policy, reference, batch)
            total += count * step(optimizer, policy, loss, section.max_grad_norm)
            tokens += count
        collector.sampler.publish(update)
        losses.append(total / max(1, tokens))
    return losses


def with_advantages(group: Group, section: RlSection) -> list[Episode]:
    """The episodes of one group, each with `(reward - mean) / std` of its group; none when they hardly differ."""
    scored = [trajectory for trajectory in group.trajectories if trajectory.reward is not None]
    rewards = torch.tensor([trajectory.reward for trajectory in scored], dtype=torch.float64)
    if len(scored) < 2 or rewards.std(correction=0) < section.spread_floor:
        return []
    advantages = (rewards - rewards.mean()) / (rewards.std(correction=0) if section.normalise else 1.0)
    return [
        Episode(t.token_ids, t.loss_mask, t.logprobs, float(advantage))
        for t, advantage in zip(scored, advantages, strict=True)
    ]


def grpo_loss(recipe: Recipe, policy: Policy, reference: Policy, batch: Sequence[Episode]) -> Tensor:
    """Clipped surrogate + KL to the reference - entropy bonus, as a mean over the sampled tokens."""
    section = recipe.rl
    logprobs_N, entropy_N = token_logprobs(policy, batch)
    with torch.no_grad():
        reference_N, _ = token_logprobs(reference, batch)
    sampled_N = torch.tensor([p for e in batch for p, m in zip(e.sampled_logprobs, e.mask, strict=True) if m])
    advantages_N = torch.tensor([episode.advantage for episode in batch for m in episode.mask if m])
    ratio_N = (logprobs_N - sampled_N).exp()
    clipped_N = ratio_N.clamp(1 - section.clip_low, 1 + section.clip_high)
    surrogate_N = torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)
    difference_N = reference_N - logprobs_N
    kl_N = difference_N.expm1() - difference_N
    return (-surrogate_N + section.kl * kl_N - section.entropy * entropy_N).mean()


# What both need -------------------------------------------------------------------------------------------------


def token_logprobs(policy: Policy, batch: Sequence[Episode]) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy (N,) of each token that the policy wrote, given all before it."""
    width = max(len(episode.ids) for episode in batch)
    ids_BT = torch.tensor([episode.ids + [0] * (width - len(episode.ids)) for episode in batch])
    mask_BT = torch.tensor([episode.mask + [False] * (width - len(episode.mask)) for episode in batch])
    logits_BTV = policy.model(input_ids=ids_BT, use_cache=False).logits.float()
    distribution_NV = logits_BTV[:, :-1][mask_BT[:, 1:]].log_softmax(-1)
    written_N = ids_BT[:, 1:][mask_BT[:, 1:]]
    entropy_N = -(distribution_NV.exp() * distribution_NV).sum(-1)
    return distribution_NV.gather(1, written_N[:, None])[:, 0], entropy_N


def step(optimizer: Optimizers, policy: Policy, loss: Tensor, max_norm: float) -> float:
    """One step down the gradient of `loss`; returns the loss."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def make_collector(recipe: Recipe, policy: Policy) -> Collector:
    """What plays many episodes at once."""
    sampler = LocalSampler(policy, recipe.rollout.episodes_at_once, recipe.rollout.max_tokens, recipe.rollout.stop)
    return Collector(sampler, lambda: new_env(recipe), policy.chat, recipe.rollout)


def new_env(recipe: Recipe) -> Environment:
    """The recipe's environment."""
    section = recipe.env
    return make_env(
        section.name, tiers=section.tiers, rewards=recipe.rewards, families=section.families, tools=section.tools
    )


def success(recipe: Recipe, collector: Collector, env: Environment) -> float:
    """Greedy success on unseen tasks."""
    tasks = env.tasks("eval", recipe.evaluation.tasks, seed=recipe.evaluation.seed)
    groups = collector.collect([(task, 1) for task in tasks], recipe.evaluation.seed, temperature=0.0).groups
    return sum(bool(group.trajectories[0].success) for group in groups) / len(groups)


if __name__ == "__main__":
    main(sys.argv[1:])
