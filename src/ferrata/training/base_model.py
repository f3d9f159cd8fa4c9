"""The recipe of the small base model that ships with the package: `python -m ferrata.training.base_model`.

    train             the whole recipe: corpus -> batches -> steps -> policy folder
    new_model         the architecture, about 1.2 million weights
    optimizers        Muon for the matrices inside the layers, AdamW for the rest
    exact_by_skill    share of answers that greedy decoding would get right, by skill

The number of steps is fixed, not the minutes, so the same seed gives the same model. Only the agent's answers carry
loss.

Shapes: B rows, T tokens of a row, N answer tokens of a batch, D width, V vocabulary.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ferrata import models
from ferrata.learning.muon import Muon
from ferrata.learning.optimizer import warmup_decay
from ferrata.models.tokenizer import CHAT, END, PAD, build_tokenizer, padded_size
from ferrata.seeds import derive
from ferrata.training import base_corpus
from ferrata.training.base_batches import IGNORED, Batches, Encoded, collate, encode, token_id

SHORT, LONG = (20, 80), (10, 160)
"""Rows of a batch and tokens of a row: about 24 exchanges a batch. Every fourth batch is long."""

TOKENS = 1600
"""Tokens of a batch."""

EMBEDDING_SCALE = 0.5
"""Deviation of a fresh embedding. Large, so that what a layer adds does not drown which token stands where."""

Body = Callable[..., Any]
"""The layers of a model: ids to hidden states."""


STEPS = 12_000
WARMUP = 100 / STEPS
"""Share of the steps in which the learning rates rise; after that they fall linearly to zero."""

MUON, MUON_DECAY = 0.009, 0.2
"""Peak learning rate and decay of the matrices inside the layers."""

ADAM = 0.003
"""Peak learning rate of embeddings and norms."""


# --- the model -------------------------------------------------------------------------------------------------------


def new_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the base model; unknown special strings inside text stay plain text."""
    tokenizer = build_tokenizer(*base_corpus.vocabulary())
    tokenizer.split_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens = True
    return tokenizer


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A freshly drawn model: five layers of width 128 with full heads."""
    config = LlamaConfig(
        vocab_size=padded_size(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 300.0},
        tie_word_embeddings=True,
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        bos_token_id=None,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(std=EMBEDDING_SCALE)
        model.model.norm.weight.fill_(0.1 / EMBEDDING_SCALE)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.1)
            layer.mlp.down_proj.weight.mul_(0.1)
    return model


# --- learning --------------------------------------------------------------------------------------------------------


def optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms. Each remembers its peak rate."""
    inside = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    outside = [p for name, p in model.named_parameters() if not (p.ndim == 2 and ".layers." in name)]
    made = [Muon(inside, MUON, MUON_DECAY), torch.optim.AdamW(outside, ADAM, betas=(0.9, 0.95), weight_decay=0.0)]
    for group in itertools.chain.from_iterable(optimizer.param_groups for optimizer in made):
        group["peak"] = group["lr"]
    return made


def answer_loss(model: LlamaForCausalLM, body: Body, ids_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """Mean cross-entropy of an answer token, in nats. Other positions cost no logits.

    `body` is `model.model`, or a compiled version of it.
    """
    hidden_BTD = body(input_ids=ids_BT, use_cache=False).last_hidden_state
    answers_BT = labels_BT[:, 1:] != IGNORED
    logits_NV: Tensor = model.lm_head(hidden_BTD[:, :-1][answers_BT])
    return functional.cross_entropy(logits_NV, labels_BT[:, 1:][answers_BT])


def update(
    model: LlamaForCausalLM, body: Body, makers: Sequence[torch.optim.Optimizer], batch: tuple[Tensor, Tensor]
) -> float:
    """One step on one batch; returns the loss before it."""
    loss = answer_loss(model, body, *batch)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in makers:
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


# --- validation ------------------------------------------------------------------------------------------------------


def validation_set(seed: int, tokenizer: PreTrainedTokenizerFast, each: int = 32) -> list[Encoded]:
    """`each` exchanges of every skill, from a stream that training never sees."""
    counts: dict[str, int] = defaultdict(int)
    chosen = []
    for exchange in base_corpus.examples(derive(seed, "validation")):
        counts[exchange.skill] += 1
        if counts[exchange.skill] <= each:
            chosen.append(encode(exchange, tokenizer))
        if len(chosen) == each * len(base_corpus.SKILLS):
            return chosen
    raise AssertionError("the stream of examples is endless")


@torch.no_grad()
def exact_by_skill(model: LlamaForCausalLM, examples: Sequence[Encoded], pad: int) -> dict[str, float]:
    """Share of answers whose every token is the model's first choice, given the true history."""
    right: dict[str, list[bool]] = defaultdict(list)
    ordered = sorted(examples, key=lambda encoded: len(encoded.ids))
    for first in range(0, len(ordered), 64):
        chunk = ordered[first : first + 64]
        ids_BT, _ = collate([[encoded] for encoded in chunk], len(chunk[-1].ids), pad)
        choices_BT = model(input_ids=ids_BT, use_cache=False).logits.argmax(-1)
        for b, encoded in enumerate(chunk):
            for start, stop in encoded.answers:
                right[encoded.skill].append(choices_BT[b, start - 1 : stop - 1].tolist() == encoded.ids[start:stop])
    return {skill: sum(right[skill]) / len(right[skill]) for skill in base_corpus.SKILLS}


# --- the recipe ------------------------------------------------------------------------------------------------------


def train(out: Path, seed: int, compiled: bool, steps: int = STEPS, held_out_each: int = 32) -> dict[str, float]:
    """Train, and write the policy folder, now and then on the way and at the end.

    Returns the share of exact answers by skill at the end. `compiled` turns torch.compile on, a fifth faster where a
    C++ compiler is at hand.
    """
    torch.manual_seed(derive(seed, "weights"))
    tokenizer = new_tokenizer()
    model = new_model(tokenizer)
    body: Body = torch.compile(model.model, dynamic=False) if compiled else model.model
    held_out = validation_set(seed, tokenizer, held_out_each)
    exact: dict[str, float] = {}
    log = _Log(steps, every_seconds=150.0)
    for step, loss in enumerate(_losses(model, body, tokenizer, seed, steps), start=1):
        log.add(loss)
        if log.due() or step == steps:
            exact = exact_by_skill(model, held_out, token_id(tokenizer, PAD))
            log.show(step, exact)
            save(out, model, tokenizer, {"steps": step, "of": steps, "seed": seed, "exact": exact})
    return exact


def _losses(
    model: LlamaForCausalLM, body: Body, tokenizer: PreTrainedTokenizerFast, seed: int, steps: int
) -> Iterator[float]:
    """Take every step; yields the loss of each."""
    makers = optimizers(model)
    short = iter(Batches(derive(seed, "short"), tokenizer, *SHORT))
    long = iter(Batches(derive(seed, "long"), tokenizer, *LONG))
    for step in range(steps):
        for group in itertools.chain.from_iterable(optimizer.param_groups for optimizer in makers):
            group["lr"] = group["peak"] * warmup_decay(step, steps, WARMUP)
        yield update(model, body, makers, next(long if step % 4 == 3 else short))


class _Log:
    """Prints loss, pace and accuracy every few minutes."""

    def __init__(self, steps: int, every_seconds: float) -> None:
        self._steps, self._every = steps, every_seconds
        self._started = self._shown = time.monotonic()
        self._losses: list[float] = []

    def add(self, loss: float) -> None:
        self._losses.append(loss)
        if len(self._losses) % 100 == 0:
            print(f"loss {sum(self._losses[-100:]) / 100:.3f}", flush=True)

    def due(self) -> bool:
        return time.monotonic() - self._shown > self._every

    def show(self, step: int, exact: dict[str, float]) -> None:
        seconds = time.monotonic() - self._started
        pace, recent = step / seconds, self._losses[-50:]
        print(f"step {step}/{self._steps}  {seconds / 60:.1f} min, {(self._steps - step) / pace / 60:.1f} left"
              f"  {pace * TOKENS:.0f} tokens/s  loss {sum(recent) / len(recent):.3f}"
              f"  exact {sum(exact.values()) / len(exact):.3f}")  # fmt: skip
        print("  " + ", ".join(f"{skill} {share:.2f}" for skill, share in exact.items()), flush=True)
        self._shown = time.monotonic()


def save(out: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, training: dict[str, Any]) -> None:
    """Write the policy folder. Each file is replaced whole, so a reader never sees half a file."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".base-") as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        Path(scratch, "ferrata.json").write_text(json.dumps({"chat": CHAT, "training": training}, indent=2) + "\n")
        for file in sorted(Path(scratch).iterdir()):
            os.replace(file, out / file.name)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the base model that ships with Ferrata.")
    parser.add_argument("--out", type=Path, default=Path(next(iter(models.__path__)), "base"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    train(chosen.out, chosen.seed, chosen.compile)


if __name__ == "__main__":
    main()
