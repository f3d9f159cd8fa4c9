"""Learners that must learn, preparation whose counts must add up, and state that must resume exactly."""

import copy
import math
import random
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ferrata.errors import UnknownNameError
from ferrata.learning.batch import Example
from ferrata.learning.forward import logprobs_by_example
from ferrata.learning.learner import Learner
from ferrata.learning.muon import orthogonalise
from ferrata.learning.optimizer import build_optimizer, guarded_step, warmup_decay
from ferrata.learning.packing import microbatches
from ferrata.learning.preparation import REASONS, prepare
from ferrata.learning.supervised import SupervisedLearner
from ferrata.recipe import RlSection, SftSection
from ferrata.records import Group, StopReason, Task, Trajectory, Turn

VOCABULARY, WANTED = 12, 7
TASK = Task("test", "family", 1, "train", "Do it.", {}, ("done",), 5)


def tiny_policy(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def trajectory(reward: float | None, success: bool | None = None, **changes: object) -> Trajectory:
    turn = Turn("", "", [2, 3], [-1.0, -2.0], None, (), {"outcome": reward or 0.0}, "state")
    fields: dict[str, object] = {
        "task": TASK, "turns": [turn], "token_ids": [1, 2, 3], "loss_mask": [False, True, True],
        "logprobs": [0.0, -1.0, -2.0], "stop": StopReason.COMPLETED, "success": success, "reward": reward,
    }  # fmt: skip
    return Trajectory(**(fields | changes))


def sampled(model: LlamaForCausalLM, stream: random.Random, count: int = 32) -> list[Example]:
    """Sample two tokens after a prompt of one; the advantage counts the wanted token, less the mean."""
    ids_by_row, logprobs_by_row = [[1] for _ in range(count)], [[0.0] for _ in range(count)]
    for _ in range(2):
        with torch.no_grad():
            rows = model(input_ids=torch.tensor(ids_by_row)).logits[:, -1].log_softmax(dim=-1)
        for ids, logprobs, row in zip(ids_by_row, logprobs_by_row, rows, strict=True):
            ids.append(stream.choices(range(VOCABULARY), row.exp().tolist())[0])
            logprobs.append(row[ids[-1]].item())
    drawn = list(zip(ids_by_row, logprobs_by_row, strict=True))
    scores = [float(ids[1:].count(WANTED)) for ids, _ in drawn]
    mean = sum(scores) / count
    return [Example(i, [False, True, True], p, [s - mean] * 2) for (i, p), s in zip(drawn, scores, strict=True)]


def wanted_probability(model: LlamaForCausalLM) -> float:
    with torch.no_grad():
        return model(input_ids=torch.tensor([[1]])).logits[0, -1].softmax(dim=-1)[WANTED].item()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_learner_learns_to_emit_the_rewarded_token(kind: str) -> None:
    model, stream = tiny_policy(), random.Random(0)
    learner = Learner(model, RlSection(learning_rate=1e-2, kl=0.0, optimizer=kind))
    before = wanted_probability(model)
    for _ in range(12):
        metrics = learner.update(sampled(model, stream), stream)
    assert before < 0.2
    assert wanted_probability(model) > 0.9
    assert metrics["rl/steps"] == 2
    assert len(learner._optimizer._members) == (2 if kind == "muon" else 1)
    assert learner.updates == 12


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_supervised_learner_memorises_a_demonstration(kind: str) -> None:
    section = SftSection(updates=40, learning_rate=1e-2, optimizer=kind)
    learner = SupervisedLearner(tiny_policy(), section)
    batch = [Example.demonstration([1, 4, 2, 9], [False, True, True, True])] * 2
    history = [learner.update(batch) for _ in range(40)]
    assert history[0]["sft/loss"] == pytest.approx(math.log(VOCABULARY), abs=0.5)
    assert history[-1]["sft/loss"] < 0.1
    assert history[-1]["sft/token_accuracy"] == 1.0
    assert history[0]["sft/tokens"] == 6
    assert len(learner._optimizer._members) == (2 if kind == "muon" else 1)


def test_before_the_first_step_ratios_are_one_and_the_gap_is_closed() -> None:
    model, stream = tiny_policy(), random.Random(0)
    learner = Learner(model, RlSection(minibatches=1), copy.deepcopy(model))
    metrics = learner.update(sampled(model, stream), stream)
    assert metrics["rl/logprob_gap_max"] < 1e-4
    assert metrics["rl/ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["rl/clip_fraction"] == 0.0
    assert metrics["rl/kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["rl/entropy"] == pytest.approx(math.log(VOCABULARY), abs=0.2)
    assert metrics["rl/tokens"] == 64


def test_the_gap_reports_log_probabilities_of_another_distribution() -> None:
    model = tiny_policy()
    (true,) = logprobs_by_example(model, microbatches([Example.demonstration([1, 5], [False, True])], 99), 1)
    stale = Example([1, 5], [False, True], [0.0, true.item() - 0.5], [1.0])
    metrics = Learner(model, RlSection(kl=0.0)).update([stale], random.Random(0))
    assert metrics["rl/logprob_gap"] == pytest.approx(0.5, abs=1e-5)
    assert metrics["rl/ratio_mean"] == pytest.approx(math.exp(0.5), rel=1e-4)
    assert metrics["rl/clip_fraction"] == 1.0


def test_beside_older_examples_and_demonstrations_the_gap_is_that_of_fresh_ones() -> None:
    model = tiny_policy()
    (true,) = logprobs_by_example(model, microbatches([Example.demonstration([1, 5], [False, True])], 99), 1)
    fresh = Example([1, 5], [False, True], [0.0, true.item() - 0.25], [1.0])
    older = Example([1, 5], [False, True], [0.0, -9.0], [1.0], stale=True)
    sure = Example([1, 5], [False, True], [0.0, true.item()], [1.0], stale=True)
    shown = Example.demonstration([1, 5], [False, True])
    learner = Learner(model, RlSection(kl=0.0, minibatches=1))
    metrics = learner.update([older, sure, fresh, shown], random.Random(0))
    assert metrics["rl/logprob_gap"] == pytest.approx(0.25, abs=1e-5)
    assert metrics["rl/logprob_gap_max"] == pytest.approx(0.25, abs=1e-5)
    assert "rl/logprob_gap" not in learner.update([older, shown], random.Random(0)), "nothing is fresh"


def test_the_divergence_holds_the_policy_at_the_reference() -> None:
    moved = []
    for weight in (0.0, 10.0):
        model, stream = tiny_policy(), random.Random(0)
        learner = Learner(model, RlSection(learning_rate=1e-2, kl=weight), copy.deepcopy(model))
        for _ in range(6):
            learner.update(sampled(model, stream), stream)
        moved.append(wanted_probability(model))
    assert moved[1] < 0.3 < moved[0]


def test_the_reference_is_neither_trained_nor_asked_when_it_has_no_weight() -> None:
    model, stream = tiny_policy(), random.Random(0)
    reference = copy.deepcopy(model)
    asked: list[int] = []
    reference.register_forward_hook(lambda *_: asked.append(1))
    reference.base_model.register_forward_hook(lambda *_: asked.append(1))
    Learner(model, RlSection(kl=0.0), reference).update(sampled(model, stream), stream)
    assert not asked
    Learner(model, RlSection(kl=0.1), reference).update(sampled(model, stream), stream)
    assert asked
    assert all(parameter.grad is None for parameter in reference.parameters())


def test_nothing_to_train_takes_no_step() -> None:
    model = tiny_policy()
    before = copy.deepcopy(model.state_dict())
    silent = Example([1, 2], [False, False], [0.0, 0.0])
    for batch in ([], [silent]):
        assert Learner(model, RlSection(kl=0.0)).update(batch, random.Random(0))["rl/steps"] == 0
        assert SupervisedLearner(model, SftSection()).update(batch) == {"sft/tokens": 0.0}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_gradient_that_is_not_finite_is_refused_and_counted() -> None:
    model = tiny_policy()
    before = copy.deepcopy(model.state_dict())
    poisoned = Example([1, 2], [False, True], [0.0, -1.0], [math.nan])
    metrics = Learner(model, RlSection(kl=0.0)).update([poisoned], random.Random(0))
    assert (metrics["rl/steps"], metrics["rl/steps_skipped"]) == (0, 1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_learning_rate_falls_with_every_update_also_where_nothing_is_learnt() -> None:
    """Of a run on long tasks many rounds may have no spread; by its end the rate has fallen all the same."""
    learner = Learner(tiny_policy(), RlSection(kl=0.0, updates=4, learning_rate=1e-3, learning_rate_decay=1.0))
    stream, rates = random.Random(0), []
    for examples in ([], sampled(learner.model, stream), [], []):
        rates.append(learner.learning_rate)
        learner.update(examples, stream)
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])
    assert learner.learning_rate == 0.0


def test_while_the_value_head_warms_up_the_entropy_bonus_stays_as_it_is() -> None:
    section = RlSection(algorithm="ppo", kl=0.0, entropy=0.01, entropy_target=9.0, value={"warmup": 1})
    learner, stream, weights = Learner(tiny_policy(), section), random.Random(0), []
    for _ in range(2):
        drawn = sampled(learner.model, stream)
        examples = [replace(one, turns=[2], values=[[0.0]], value_targets=[[1.0]]) for one in drawn]
        weights.append(learner.update(examples, stream)["rl/entropy_weight"])
    assert weights[0] == 0.01 < weights[1], "the policy is far below its target, but it does not learn yet"


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_resuming_gives_the_same_next_update(kind: str) -> None:
    model, stream = tiny_policy(), random.Random(0)
    section = RlSection(kl=0.0, epochs=2, optimizer=kind)
    learner = Learner(model, section)
    learner.update(sampled(model, stream), stream)
    twin = copy.deepcopy(model)
    resumed = Learner(twin, section)
    resumed.load_state_dict(copy.deepcopy(learner.state_dict()))
    examples = sampled(model, stream)
    assert learner.update(examples, random.Random(9)) == resumed.update(examples, random.Random(9))
    assert resumed.updates == 2
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_supervised_resume_keeps_the_place_in_the_schedule() -> None:
    section = SftSection(updates=10, warmup=0.2)
    batch = [Example.demonstration([1, 4, 2], [False, True, True])]
    model = tiny_policy()
    learner = SupervisedLearner(model, section)
    for _ in range(3):
        learner.update(batch)
    twin = copy.deepcopy(model)
    resumed = SupervisedLearner(twin, section)
    resumed.load_state_dict(copy.deepcopy(learner.state_dict()))
    assert learner.update(batch) == resumed.update(batch)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_prepared_counts_add_up_and_name_every_reason() -> None:
    groups = [
        Group(TASK, [trajectory(5.0, True), trajectory(-1.0, False), trajectory(None)]),
        Group(TASK, [trajectory(5.0, True), trajectory(5.0, True)]),
        Group(TASK, [trajectory(-1.0, False), trajectory(-1.0, False, stop=StopReason.ENV_ERROR)]),
        Group(TASK, [trajectory(-1.0, False)] * 3),
        Group(TASK, [trajectory(math.nan, False), trajectory(1.0, True, temperature=0.0)]),
        Group(TASK, [trajectory(1.0, True, loss_mask=[False] * 3), trajectory(1.0, True), trajectory(1.0, False)]),
    ]
    examples, metrics = prepare(groups, RlSection())
    assert [example.advantages for example in examples] == [[1.0, 1.0], [-1.0, -1.0]]
    dropped = {reason: metrics[f"dropped/{reason}"] for reason in REASONS}
    assert dropped == {
        "faulty": 1, "unscored": 1, "not_finite": 1, "greedy": 1, "no_sampled_tokens": 1, "no_spread": 8,
    }  # fmt: skip
    assert metrics["rl/trajectories"] == metrics["rl/trajectories_trained"] + sum(dropped.values())
    kinds = {kind: metrics[f"groups/{kind}"] for kind in ("mixed", "all_good", "all_bad", "constant", "too_small")}
    assert kinds == {"mixed": 1, "all_good": 1, "all_bad": 1, "constant": 1, "too_small": 2}
    assert metrics["groups/total"] == sum(kinds.values())


def test_a_failed_environment_does_not_move_the_group_mean() -> None:
    crash = trajectory(-100.0, False, stop=StopReason.TIMEOUT)
    examples, _ = prepare([Group(TASK, [trajectory(2.0), trajectory(0.0), crash])], RlSection(normalise=False))
    assert [example.advantages for example in examples] == [[1.0, 1.0], [-1.0, -1.0]]


def test_weights_decay_only_where_they_are_matrices() -> None:
    model = tiny_policy()
    optimizer = build_optimizer(model, 1e-3, weight_decay=0.1)
    norms = {id(p) for name, p in model.named_parameters() if "norm" in name}
    decayed = {
        id(p) for member in optimizer._members for g in member.param_groups if g["weight_decay"] for p in g["params"]
    }
    assert not norms & decayed
    assert len(norms | decayed) == len(list(model.parameters())) == len(optimizer.parameters())


def test_muon_takes_the_inner_matrices_alone() -> None:
    model = tiny_policy()
    muon, adamw = build_optimizer(model, 1e-3, kind="muon")._members
    names = {id(p): name for name, p in model.named_parameters()}
    inner = [names[id(p)] for group in muon.param_groups for p in group["params"]]
    outer = [names[id(p)] for group in adamw.param_groups for p in group["params"]]
    assert len(inner) == 2 * 7
    assert all("proj" in name for name in inner)
    assert all("embed" in name or "norm" in name for name in outer)
    with pytest.raises(UnknownNameError, match="'muon'"):
        build_optimizer(model, 1e-3, kind="moun")


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 6, 20), (2, 20, 6)])
def test_orthogonalise_keeps_singular_vectors_and_levels_the_values(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    inside = u.mT @ orthogonalise(matrices) @ v.mT
    values = inside.diagonal(dim1=1, dim2=2)
    assert values.min() > 0.3
    assert values.max() < 1.3
    torch.testing.assert_close(inside, torch.diag_embed(values), atol=1e-4, rtol=0)


def test_the_learning_rate_rises_then_falls_to_nearly_zero() -> None:
    shares = [warmup_decay(step, 10, 0.2) for step in range(11)]
    assert shares == pytest.approx([0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0])
    assert warmup_decay(0, 1, 0.0) == 1.0
    assert [warmup_decay(step, 2, 1.0) for step in (0, 1, 2)] == [0.5, 1.0, 0.0]


def test_the_gradient_is_clipped_to_its_norm() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = build_optimizer(model, 1.0)
    model.weight.grad = torch.tensor([[30.0, 40.0]])
    seen: list[float] = []
    optimizer.step = lambda: seen.append(float(model.weight.grad.norm()))
    assert guarded_step(optimizer, max_grad_norm=1.0) == pytest.approx(50.0)
    assert seen == [pytest.approx(1.0, rel=1e-5)]
    assert model.weight.grad is None


def test_the_learning_rate_falls_linearly() -> None:
    model, stream = tiny_policy(), random.Random(0)
    learner = Learner(model, RlSection(kl=0.0, updates=4, learning_rate=1e-3, learning_rate_decay=0.8))
    rates = []
    for _ in range(5):
        rates.append(learner.learning_rate)
        learner.update(sampled(model, stream), stream)
    assert rates == pytest.approx([1e-3, 8e-4, 6e-4, 4e-4, 2e-4])
    assert learner.learning_rate == pytest.approx(2e-4), "what comes after the last update keeps the last rate"


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_in_bfloat16_the_weights_stay_in_single_precision_and_the_step_is_nearly_the_same(algorithm: str) -> None:
    steps = {}
    for dtype in ("float32", "bfloat16"):
        torch.manual_seed(0)
        model, stream = tiny_policy(), random.Random(3)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        section = RlSection(
            kl=0.0, dtype=dtype, algorithm=algorithm, learning_rate=1e-3, minibatches=1, value={"warmup": 0}
        )
        learner = Learner(model, section)
        examples = sampled(model, stream)
        if algorithm == "ppo":
            examples = [
                replace(one, turns=[len(one.targets)], values=[[0.1]], value_targets=[[1.0]]) for one in examples
            ]
        learner.update(examples, random.Random(0))
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        moved = [now.detach() - then for now, then in zip(model.parameters(), before, strict=True)]
        steps[dtype] = torch.cat([step.flatten() for step in moved])
    exact, rounded = steps["float32"], steps["bfloat16"]
    assert not torch.equal(exact, rounded), "nothing was computed in bfloat16"
    assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.9
