"""The recipe of the small base model that ships with the package: `python -m ferrata.training.base_model`.

    train             the whole recipe: corpus -> batches -> steps -> policy folder
    new_model         the architecture, about 1.2 million weights
    Muon              orthogonalised momentum for the matrices, in fp32
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ferrata import models
from ferrata.learning.muon import orthogonalise
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


@dataclass(frozen=True)
class Rates:
    """Peak learning rates; both warm up, then fall linearly to zero at the last step."""

    muon: float = 0.02
    """For the matrices inside the layers."""

    adam: float = 0.003
    """For embeddings and norms."""

    warmup: int = 100
    """Steps."""

    def share(self, step: int, steps: int) -> float:
        """Share of the peak at a step in [0, steps)."""
        return min(1.0, (step + 1) / self.warmup) * (1.0 - step / steps)


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


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix is replaced by its nearest orthogonal one (Jordan et al., 2024), in fp32.

    The implementation of torch computes in bf16, which many CPUs only emulate. Matrices of one shape are
    orthogonalised together.
    """

    def __init__(self, matrices: Sequence[Tensor], lr: float, momentum: float = 0.95, decay: float = 0.1) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                by_shape[matrix.shape].append(matrix)
            for shape, matrices in by_shape.items():
                updates = orthogonalise(torch.stack([self._momentum(m, group["momentum"]) for m in matrices]))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["decay"])
                torch._foreach_add_(matrices, list(updates), alpha=-scale)

    def _momentum(self, matrix: Tensor, momentum: float) -> Tensor:
        """Nesterov momentum of the gradient."""
        assert matrix.grad is not None
        state = self.state[matrix]
        buffer = state.setdefault("momentum", torch.zeros_like(matrix))
        buffer.lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(buffer, momentum)


def optimizers(model: LlamaForCausalLM, rates: Rates) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms. Each remembers its peak rate."""
    inside = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    outside = [p for name, p in model.named_parameters() if not (p.ndim == 2 and ".layers." in name)]
    made = [Muon(inside, rates.muon), torch.optim.AdamW(outside, rates.adam, betas=(0.9, 0.95), weight_decay=0.0)]
    for optimizer in made:
        for group in optimizer.param_groups:
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


@dataclass(frozen=True)
class Phase:
    """One part of the training, with optimizers of its own."""

    name: str
    path: tuple[str, ...]
    """Names of the stream that the phase's text is drawn from."""
    steps: int
    schedule: int
    """Steps after which the learning rates would be zero; more than `steps` ends the phase before that."""
    rates: Rates
    emphasis: dict[str, int]
    """Weights of skills that differ from `base_corpus.SKILLS`."""


PHASES = (
    Phase("first", (), steps=2516, schedule=5400, rates=Rates(), emphasis={}),
    Phase(
        "finish",
        ("finish",),
        steps=1500,
        schedule=1500,
        rates=Rates(muon=0.012, adam=0.002),
        emphasis={"compare": 24, "compare names": 20, "levels": 24, "table": 4, "copying": 3, "repeat": 3, "add": 0},
    ),
)
"""Everything first; then mostly what was still weak, comparing numbers, while the learning rates fall to zero."""


def train(
    out: Path, seed: int, compiled: bool, phases: Sequence[Phase] = PHASES, held_out_each: int = 32
) -> dict[str, float]:
    """Train through all phases and write the policy folder, now and then on the way and at the end.

    Returns the share of exact answers by skill at the end. `compiled` turns torch.compile on, a fifth faster where a
    C++ compiler is at hand.
    """
    torch.manual_seed(derive(seed, "weights"))
    tokenizer = new_tokenizer()
    model = new_model(tokenizer)
    body: Body = torch.compile(model.model, dynamic=False) if compiled else model.model
    held_out = validation_set(seed, tokenizer, held_out_each)
    exact: dict[str, float] = {}
    for phase in phases:
        log = _Log(phase.steps, every_seconds=150.0)
        for step, loss in enumerate(_run_phase(phase, model, body, tokenizer, seed), start=1):
            log.add(loss)
            if log.due() or step == phase.steps:
                exact = exact_by_skill(model, held_out, token_id(tokenizer, PAD))
                log.show(step, exact)
                save(out, model, tokenizer, {"phase": phase.name, "steps": step, "seed": seed, "exact": exact})
    return exact


def _run_phase(
    phase: Phase, model: LlamaForCausalLM, body: Body, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Iterator[float]:
    """Take the steps of one phase; yields the loss of each."""
    makers = optimizers(model, phase.rates)
    short = iter(Batches(derive(seed, *phase.path, "short"), tokenizer, *SHORT, phase.emphasis))
    long = iter(Batches(derive(seed, *phase.path, "long"), tokenizer, *LONG, phase.emphasis))
    for step in range(phase.steps):
        for group in itertools.chain.from_iterable(optimizer.param_groups for optimizer in makers):
            group["lr"] = group["peak"] * phase.rates.share(step, phase.schedule)
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
