"""Tokens per second and peak memory of the learner, beside a bare forward and backward pass of the same tokens.

    python benchmarks/learner.py [--policy smollm2-135m] [--dtype float32] [--threads 2] [--rounds 5] [--tasks 2]

The examples are groups of 8 scripted office episodes of tier 1, whose members share their opening, with made-up
advantages. In one process and in turn:

    bare      the model's body on the same tokens, in rows of the mean length of an example without padding, its
              output layer on as many hidden states as there are trained tokens, cross-entropy, backward
    packed    `Learner.update` without the optimizer's step, every opening packed with each of its members
    shared    the same, every opening packed once: what the learner does

All three count the tokens of the examples, so that a token that need not be computed is a gain. Peak memory is taken
in a process for each: `naive` computes logits of all tokens, padded, as a plain language-model loss does.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import platform
import random
import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from ferrata import load_recipe, make_env
from ferrata.learning import packing
from ferrata.learning.batch import Example, trained_tokens
from ferrata.learning.forward import precision
from ferrata.learning.learner import Learner
from ferrata.models.policy import Policy, load_policy
from ferrata.recipe import RlSection
from ferrata.training.demonstrations import demonstration

GROUP = 8


def office_groups(policy: Policy, tasks: int) -> list[Example]:
    """Scripted episodes of office tasks as examples; the log-probabilities are made up."""
    recipe = load_recipe("office-quickstart", ["env.tiers=[1]"])
    env, stream, examples = make_env("office", tiers=(1,)), random.Random(0), []
    for task in env.tasks("train", tasks, seed=1):
        for member in range(GROUP):
            shown = demonstration(recipe, env, policy.chat, task, stream)
            trained = sum(shown.loss_mask)
            logprobs = [-1.0 if sampled else 0.0 for sampled in shown.loss_mask]
            examples.append(Example(shown.token_ids, shown.loss_mask, logprobs, [1.0 - 0.25 * member] * trained))
    env.close()
    return examples


def bare(model: PreTrainedModel, examples: Sequence[Example], dtype: str) -> None:
    """Nothing but the tokens, one micro-batch of about the learner's size after the other."""
    total, trained = sum(example.length for example in examples), trained_tokens(examples)
    width = round(total / len(examples))
    rows_at_once = max(1, RlSection().microbatch_tokens // width)
    ids = torch.tensor([token for example in examples for token in example.token_ids[: example.length]])
    rows = ids[: total // width * width].view(-1, width)
    share = trained / rows.numel()
    for part in rows.split(rows_at_once):
        with precision(model, dtype):
            hidden = model.base_model(input_ids=part, use_cache=False).last_hidden_state.flatten(0, 1)
            chosen = torch.linspace(0, len(hidden) - 1, round(share * len(hidden))).long()
            logits = model.get_output_embeddings()(hidden[chosen]).float()
        functional.cross_entropy(logits, part.flatten()[chosen]).backward()


def naive(model: PreTrainedModel, examples: Sequence[Example], dtype: str) -> None:
    """A plain language-model loss: padded rows, logits of every token."""
    width = max(len(example.token_ids) for example in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.int64)
    labels = torch.full_like(ids, -100)
    for row, example in enumerate(examples):
        ids[row, : len(example.token_ids)] = torch.tensor(example.token_ids)
        labels[row, example.targets] = torch.tensor([example.token_ids[target] for target in example.targets])
    rows_at_once = max(1, RlSection().microbatch_tokens // width)
    for part, wanted in zip(ids.split(rows_at_once), labels.split(rows_at_once), strict=True):
        with precision(model, dtype):
            logits = model(input_ids=part, use_cache=False).logits.float()
        functional.cross_entropy(logits[:, :-1].flatten(0, 1), wanted[:, 1:].flatten()).backward()


def learn(model: PreTrainedModel, examples: Sequence[Example], dtype: str, shared: bool) -> None:
    """One update of the learner, its optimizer's step left out."""
    learner = Learner(model, RlSection(kl=0.0, entropy=0.0, minibatches=1, dtype=dtype))
    alone = patch.object(packing, "MIN_SHARED_TOKENS", packing.MIN_SHARED_TOKENS if shared else 10**9)
    with alone, patch("ferrata.learning.learner.guarded_step", lambda optimizer, norm: 0.0):
        learner.update(examples, random.Random(0))


WAYS: dict[str, Callable[[PreTrainedModel, Sequence[Example], str], None]] = {
    "bare": bare,
    "packed": lambda model, examples, dtype: learn(model, examples, dtype, shared=False),
    "shared": lambda model, examples, dtype: learn(model, examples, dtype, shared=True),
    "naive": naive,
}


def peak(policy: str, dtype: str, threads: int, tasks: int, way: str) -> None:
    """In a process of its own: how far memory grows over what the model and its gradients take."""
    torch.set_num_threads(threads)
    loaded = load_policy(policy)
    examples = office_groups(loaded, tasks)
    for parameter in loaded.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    gc.collect()
    before, highest, over = resident(), [0], threading.Event()

    def look() -> None:
        while not over.wait(0.005):
            highest[0] = max(highest[0], resident())

    watcher = threading.Thread(target=look)
    watcher.start()
    WAYS[way](loaded.model, examples, dtype)
    over.set()
    watcher.join()
    print(f"  {way:8} {(highest[0] - before) / 2**30:6.2f} GiB above weights and gradients")


def resident() -> int:
    """Bytes of this process that are in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def seconds(run: Callable[[], None], model: PreTrainedModel) -> float:
    started = time.perf_counter()
    run()
    taken = time.perf_counter() - started
    model.zero_grad()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    policy = load_policy(options.policy)
    examples = office_groups(policy, options.tasks)
    tokens = sum(example.length for example in examples)
    opening = statistics.mean(example.targets[0] for example in examples)
    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, {options.dtype}, {options.policy}")
    print(
        f"{len(examples)} examples in groups of {GROUP}, {tokens:,} tokens, {trained_tokens(examples):,} trained, "
        f"openings of {opening:.0f} on average"
    )
    taken: dict[str, list[float]] = {way: [] for way in ("bare", "packed", "shared")}
    for number in range(options.rounds + 1):
        for way, times in taken.items():
            spent = seconds(lambda way=way: WAYS[way](policy.model, examples, options.dtype), policy.model)
            if number:
                times.append(spent)
    for way, times in taken.items():
        ratios = [base / own for base, own in zip(taken["bare"], times, strict=True)]
        print(
            f"  {way:8} {tokens / statistics.median(times):8,.0f} tokens/s   {statistics.median(ratios):5.2f} x bare "
            f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds)"
        )
    for way in ("shared", "naive"):
        arguments = (options.policy, options.dtype, options.threads, options.tasks, way)
        process = multiprocessing.get_context("spawn").Process(target=peak, args=arguments)
        process.start()
        process.join()


if __name__ == "__main__":
    main()
