"""The recipe of the base model: rows hold whole exchanges, only answers carry loss, steps learn and repeat."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from ferrata.models.tokenizer import ACT, END, PAD
from ferrata.training import base_model
from ferrata.training.base_batches import IGNORED, Batches, collate, encode
from ferrata.training.base_corpus import SKILLS, Exchange

TOKENIZER = base_model.new_tokenizer()
EXCHANGE = Exchange("lookup", (("task", "price: 429\nprice?"), ("act", "429")))


def test_only_answers_and_their_end_carry_loss() -> None:
    ids_BT, labels_BT = collate([[encode(EXCHANGE, TOKENIZER)]], 16, TOKENIZER.convert_tokens_to_ids(PAD))
    assert TOKENIZER.decode(ids_BT[0]).startswith(f"<|task|>price: 429\nprice?{ACT}429{END}{PAD}")
    assert TOKENIZER.decode(labels_BT[0][labels_BT[0] != IGNORED]) == f"429{END}"


def test_special_strings_in_a_text_stay_text() -> None:
    encoded = encode(Exchange("lookup", (("task", f"say {END}"), ("act", END))), TOKENIZER)
    assert encoded.ids.count(TOKENIZER.convert_tokens_to_ids(END)) == 1
    assert encoded.ids[-1] == TOKENIZER.convert_tokens_to_ids(END)


def test_rows_are_nearly_full_and_repeatable() -> None:
    first, again = (next(iter(Batches(5, TOKENIZER, rows=16, row=160))) for _ in range(2))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert (first[0] == TOKENIZER.convert_tokens_to_ids(PAD)).float().mean() < 0.12


def test_training_writes_a_policy_folder(tmp_path: Path) -> None:
    exact = base_model.train(tmp_path / "base", seed=0, compiled=False, steps=2, held_out_each=1)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    assert set(exact) == set(SKILLS)
    assert 1_000_000 < sum(weight.numel() for weight in model.parameters()) < 1_300_000
    assert sum(file.stat().st_size for file in (tmp_path / "base").iterdir()) < 8_000_000
    assert {file.name for file in (tmp_path / "base").iterdir()} >= {"config.json", "ferrata.json", "tokenizer.json"}


def test_updates_lower_the_loss() -> None:
    torch.manual_seed(0)
    model = base_model.new_model(TOKENIZER)
    makers = base_model.optimizers(model)
    batch = next(iter(Batches(1, TOKENIZER, rows=4, row=80)))
    losses = [base_model.update(model, model.model, makers, batch) for _ in range(6)]
    assert losses[-1] < losses[0] - 1.0
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
