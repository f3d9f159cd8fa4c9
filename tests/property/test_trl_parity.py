"""Advantages, losses and gradients are those of TRL's own trainers, on random batches of several turns.

Each batch goes two ways: through `prepare` and `Learner.update`, and through `_generate_and_score_completions` and
`_compute_loss` of TRL's trainer, in which only the sampling is scripted. Both score the same model, in double precision
up to the logits and in single precision from there on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ferrata.learning.batch import Example
from ferrata.learning.forward import logprobs_by_example
from ferrata.learning.learner import Learner
from ferrata.learning.packing import microbatches
from ferrata.learning.preparation import prepare
from ferrata.recipe import RlSection
from ferrata.records import Group, StopReason, Task, Trajectory, Turn

# TRL asks transformers by a name that transformers has renamed.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is:FutureWarning")]

TASK = Task("test", "family", 1, "train", "Do it.", {}, (), 9)
GROUPS, MEMBERS, LONGEST = 3, 4, 14
WORDS = 12
PRECISION = 1e-6
BATCHES = settings(max_examples=10, deadline=None)


@dataclass
class Episode:
    """What both sides are told about one episode."""

    prompt: list[int]
    completion: list[int]
    mask: list[int]
    """1 for the sampled ids of the completion."""
    gaps: list[float]
    """How far each stored log-probability is from the policy's."""
    reward: float


def generate_for_grpo(trainer: Any, prompts: list[str]) -> tuple[Any, ...]:
    """Takes the place of sampling in TRL's trainer: what was sampled is in its `script`."""
    masks = [episode.mask for episode in trainer.script]
    return *generate_for_rloo(trainer, prompts)[:2], masks, [""] * len(prompts), None, {}, None, []


def generate_for_rloo(trainer: Any, prompts: list[str]) -> tuple[Any, ...]:
    """The same for the trainer that knows no observations."""
    read = [list(episode.prompt) for episode in trainer.script]
    return read, [list(episode.completion) for episode in trainer.script], [""] * len(prompts)


def model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, pad_token_id=0,
        initializer_range=0.1,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


class Bench:
    """A policy, its reference, and TRL's trainers on them."""

    def __init__(self, folder: Path) -> None:
        self.policy, self.reference = model(0), model(1)
        self.reference.save_pretrained(folder / "reference")
        self.policy.config._name_or_path = str(folder / "reference")  # TRL loads its reference from there.
        words = Tokenizer(WordLevel({"pad": 0, "end": 1, "word": 2}, unk_token="word"))
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="pad", eos_token="end")
        self.folder = folder

    def grpo(self, **settings: Any) -> Any:
        """TRL's trainer for GRPO and its kin."""
        from trl import GRPOConfig, GRPOTrainer  # Ten seconds, spent only where these tests run.

        return self._trainer(GRPOTrainer, GRPOConfig, generate_for_grpo, settings)

    def rloo(self, **settings: Any) -> Any:
        """TRL's trainer for RLOO."""
        from trl import RLOOConfig, RLOOTrainer

        return self._trainer(RLOOTrainer, RLOOConfig, generate_for_rloo, settings)

    def _trainer(self, trainer: type, config: type, generate: Callable[..., Any], settings: dict[str, Any]) -> Any:
        from datasets import Dataset

        fixed = {"output_dir": str(self.folder), "use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}
        sizes = {"num_generations": MEMBERS, "per_device_train_batch_size": GROUPS * MEMBERS}
        # TRL's own default for checkpointing goes by a name that transformers has renamed.
        args = config(**fixed, **sizes, activation_checkpointing=False, max_completion_length=LONGEST, **settings)

        def scores(**_: Any) -> list[float]:
            return [episode.reward for episode in made.script]

        rows = Dataset.from_list([{"prompt": "word"}] * GROUPS * MEMBERS)
        made: Any = type("Scripted", (trainer,), {"_generate": generate})(
            model=self.policy, reward_funcs=scores, args=args, train_dataset=rows, processing_class=self.tokenizer
        )
        made.current_gradient_accumulation_steps = 1
        return made


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("trl"))


def episodes(seed: int, observations: bool = True) -> list[Episode]:
    """A random batch: `GROUPS` prompts with `MEMBERS` ragged completions each, of one turn or more."""
    stream = random.Random(seed)
    found = []
    for _ in range(GROUPS):
        prompt = [stream.randrange(1, WORDS) for _ in range(stream.randint(1, 8))]
        for _ in range(MEMBERS):
            length = stream.randint(1, LONGEST)
            mask = [1, *(int(not observations or stream.random() < 0.6) for _ in range(length - 1))]
            stream.shuffle(mask)
            ids = [stream.randrange(1, WORDS) for _ in mask]
            gaps = [stream.uniform(-0.5, 0.5) for _ in mask]
            found.append(Episode(prompt, ids, mask, gaps, stream.uniform(-5, 5)))
    return found


def policy_logprobs(policy: LlamaForCausalLM, script: list[Episode], temperature: float) -> list[list[float]]:
    """The policy's log-probabilities of every id of the completions."""
    scored = []
    for episode in script:
        ids = [*episode.prompt, *episode.completion]
        mask = [False] * len(episode.prompt) + [True] * len(episode.completion)
        scored.append(Example(ids, mask, [0.0] * len(ids), [0.0] * len(episode.completion), temperature))
    found = logprobs_by_example(policy, microbatches(scored, 10**6), len(scored))
    return [logprobs_N.tolist() for logprobs_N in found]


def trajectory(episode: Episode, logprobs: list[float], temperature: float) -> Trajectory:
    """The episode as Ferrata stores it: every run of sampled ids is a turn, with its part of the reward."""
    sizes = [len(run) for run in "".join(map(str, episode.mask)).split("0") if run]
    stored = [logprob + gap for logprob, gap in zip(logprobs, episode.gaps, strict=True)]
    turns = [
        Turn("", "", [0] * size, [0.0] * size, None, (), {"outcome": episode.reward / len(sizes)}, f"state {number}")
        for number, size in enumerate(sizes)
    ]
    before = [False] * len(episode.prompt)
    return Trajectory(
        TASK,
        turns,
        [*episode.prompt, *episode.completion],
        [*before, *map(bool, episode.mask)],
        [0.0 for _ in before] + [p if sampled else 0.0 for p, sampled in zip(stored, episode.mask, strict=True)],
        StopReason.COMPLETED,
        None,
        episode.reward,
        temperature=temperature,
    )


def grouped(script: list[Episode], logprobs: list[list[float]], temperature: float = 1.0) -> list[Group]:
    played = [trajectory(episode, found, temperature) for episode, found in zip(script, logprobs, strict=True)]
    return [Group(TASK, played[start : start + MEMBERS]) for start in range(0, len(played), MEMBERS)]


def gradient(policy: LlamaForCausalLM) -> Tensor:
    flat = torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])
    policy.zero_grad()
    return flat


def our_gradient(learner: Learner, examples: list[Example]) -> tuple[Tensor, dict[str, float]]:
    """Gradient and metrics of one optimizer step that is not taken."""
    learner.model.zero_grad()
    learner._optimizer.step = lambda: None
    learner._optimizer.zero_grad = lambda: None
    metrics = learner.update(examples, random.Random(0))
    return gradient(learner.model), metrics


def section(**more: Any) -> RlSection:
    common = {"minibatches": 1, "max_grad_norm": 1e9, "normalise": False, "kl": 0.0, "entropy": 0.0}
    return RlSection(**{**common, **more})


def assert_same_gradient(ours: Tensor, theirs: Tensor) -> None:
    assert theirs.norm() > 1e-3, "nothing is compared"
    assert (ours - theirs).norm() < PRECISION * theirs.norm()


# Advantages --------------------------------------------------------------------------------------------------------


def test_advantages_of_grpo(bench: Bench) -> None:
    centred = bench.grpo(scale_rewards="none")
    scaled = bench.grpo(scale_rewards="group")

    @BATCHES
    @given(some.integers(0, 2**32))
    def check(seed: int) -> None:
        script = episodes(seed)
        groups = grouped(script, [[0.0] * len(episode.completion) for episode in script])
        ours, _ = prepare(groups, section())
        theirs = _advantages(centred, script)
        assert _distance([set(example.advantages) for example in ours], theirs) < PRECISION

        # TRL divides by the sample's deviation and adds 1e-4 to it; ours is the population's, with a floor instead.
        ours, _ = prepare(groups, section(normalise=True))
        rewards = torch.tensor([episode.reward for episode in script]).double().view(GROUPS, MEMBERS)
        exact = (rewards.std(1) + 1e-4) / rewards.std(1, correction=0)
        theirs = _advantages(scaled, script) * exact.repeat_interleave(MEMBERS)
        assert _distance([set(example.advantages) for example in ours], theirs) < PRECISION

    check()


@pytest.mark.parametrize("kl", [0.0, 0.05])
def test_advantages_of_rloo_with_the_divergence_in_the_reward(bench: Bench, kl: float) -> None:
    trainer = bench.rloo(beta=kl, normalize_advantages=False)
    chosen = section(algorithm="rloo", kl=kl, kl_in="reward", kl_estimator="k1")
    learner = Learner(bench.policy, chosen, bench.reference if kl else None)

    @BATCHES
    @given(some.integers(0, 2**32))
    def check(seed: int) -> None:
        script = _on_policy(episodes(seed, observations=False))
        groups = grouped(script, policy_logprobs(bench.policy, script, 1.0))
        ours, _ = prepare(groups, chosen, learner.score if learner.scores else None)
        theirs = _advantages(trainer, script)
        if kl == 0.0:
            assert _distance([set(example.advantages) for example in ours], theirs) < PRECISION
        # Divergences of some 20 nats are added up in single precision on both sides.
        assert _distance([set(example.advantages) for example in ours], theirs) < 5 * PRECISION

    check()


def _on_policy(script: list[Episode]) -> list[Episode]:
    """The same, with the policy's own log-probabilities."""
    for episode in script:
        episode.gaps = [0.0] * len(episode.gaps)
    return script


def _advantages(trainer: Any, script: list[Episode]) -> Tensor:
    trainer.script = script
    found: Tensor = trainer._generate_and_score_completions([{"prompt": "word"}] * len(script))["advantages"]
    return found.double()


def _distance(ours: list[set[float]], theirs: Tensor) -> float:
    """Largest difference; every episode has one advantage, the same in all its tokens."""
    assert all(len(values) == 1 for values in ours)
    return float((torch.tensor([value for values in ours for value in values]).double() - theirs).abs().max())


# Losses ------------------------------------------------------------------------------------------------------------

PLAIN_K3 = {"use_bias_correction_kl": False}
"""TRL's default multiplies k3 by the ratio, whose gradient is that of k2; Ferrata has k2 by name."""

LOSSES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("GRPO as published", {"loss_type": "grpo"}, {"aggregation": "sequence"}),
    ("mean over tokens", {"loss_type": "bnpo"}, {"aggregation": "token"}),
    ("DAPO", {"loss_type": "dapo", "epsilon_high": 0.28}, {"aggregation": "token", "clip_high": 0.28}),
    ("Dr. GRPO", {"loss_type": "dr_grpo"}, {"aggregation": "constant"}),
    (
        "GSPO",
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.15},
        {"aggregation": "sequence", "ratio": "sequence", "clip_low": 0.1, "clip_high": 0.15},
    ),
    ("divergence k3", {"loss_type": "grpo", "beta": 0.3, **PLAIN_K3}, {"aggregation": "sequence", "kl": 0.3}),
    (
        "GSPO with divergence, over tokens",
        {"loss_type": "dapo", "importance_sampling_level": "sequence", "beta": 0.3, **PLAIN_K3},
        {"aggregation": "token", "ratio": "sequence", "kl": 0.3},
    ),
    ("entropy bonus", {"loss_type": "bnpo", "entropy_coef": 0.1}, {"aggregation": "token", "entropy": 0.1}),
    ("temperature", {"loss_type": "dapo", "temperature": 0.7}, {"aggregation": "token"}),
]


@pytest.mark.parametrize(("theirs", "ours"), [case[1:] for case in LOSSES], ids=[case[0] for case in LOSSES])
def test_gradients_of_the_losses(bench: Bench, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    trainer = bench.grpo(scale_rewards="none", **{"beta": 0.0, **theirs})
    chosen, temperature = section(**ours), theirs.get("temperature", 1.0)
    reference = bench.reference if chosen.kl else None

    @BATCHES
    @given(some.integers(0, 2**32))
    def check(seed: int) -> None:
        script = episodes(seed)
        logprobs = policy_logprobs(bench.policy, script, temperature)
        examples, _ = prepare(grouped(script, logprobs, temperature), chosen)
        found, metrics = our_gradient(Learner(bench.policy, chosen, reference, LONGEST), examples)

        trainer.script = script
        inputs = trainer._generate_and_score_completions([{"prompt": "word"}] * len(script))
        inputs["old_per_token_logps"] = _padded(script, logprobs, inputs["completion_ids"].shape[1])
        trainer._metrics["train"].clear()
        bench.policy.train()  # TRL divides otherwise while it evaluates. There is no dropout.
        loss = trainer._compute_loss(bench.policy, inputs)
        loss.backward()
        assert_same_gradient(found, gradient(bench.policy))
        if chosen.aggregation == "token":
            assert metrics["rl/loss"] == pytest.approx(loss.item(), abs=PRECISION)
        _assert_same_metrics(metrics, trainer._metrics["train"], chosen)

    check()


def _padded(script: list[Episode], logprobs: list[list[float]], width: int) -> Tensor:
    """The stored log-probabilities, in single precision, as TRL lays them out: (episodes, width), zeros behind."""
    stored = torch.zeros((len(script), width), dtype=torch.float64)
    for row, (episode, found) in enumerate(zip(script, logprobs, strict=True)):
        stored[row, : len(found)] = torch.tensor([p + gap for p, gap in zip(found, episode.gaps, strict=True)])
    return stored


def _assert_same_metrics(ours: dict[str, float], theirs: dict[str, list[float]], chosen: RlSection) -> None:
    """What is said about the step: entropy, divergence and the share of tokens that the clip silenced."""
    assert ours["rl/entropy"] == pytest.approx(theirs["entropy"][0], rel=1e-5)
    if chosen.kl:
        assert ours["rl/kl"] == pytest.approx(theirs["kl"][0], rel=1e-5)
    if chosen.ratio == "token":  # For whole episodes TRL counts episodes, Ferrata tokens.
        assert ours["rl/clip_fraction"] == pytest.approx(theirs["clip_ratio/region_mean"][0], abs=1e-6)


def test_gradient_of_rloo_at_the_sampling_policy(bench: Bench) -> None:
    """TRL clips the ratio of a whole episode, Ferrata that of its tokens: where nothing was clipped yet, both agree."""
    trainer = bench.rloo(beta=0.0, normalize_advantages=False)
    chosen = section(algorithm="rloo", aggregation="constant")

    @BATCHES
    @given(some.integers(0, 2**32))
    def check(seed: int) -> None:
        script = _on_policy(episodes(seed, observations=False))
        examples, _ = prepare(grouped(script, policy_logprobs(bench.policy, script, 1.0)), chosen)
        found, _ = our_gradient(Learner(bench.policy, chosen, length=1), examples)
        trainer.script = script
        inputs = trainer._generate_and_score_completions([{"prompt": "word"}] * len(script))
        trainer._compute_loss(bench.policy, inputs).backward()
        assert_same_gradient(found, gradient(bench.policy))

    check()
