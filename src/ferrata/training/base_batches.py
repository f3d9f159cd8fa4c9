"""The base model's text as rows of tokens.

    Encoded     an exchange as tokens, with the spans that the agent wrote
    Batches     packs exchanges into rows without waste
    collate     rows of exchanges as padded tensors, with labels on answers alone

Shapes: B rows, T tokens of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ferrata.models.tokenizer import ACT, END, PAD, RESULT, TASK
from ferrata.training import base_corpus
from ferrata.training.base_corpus import Exchange

IGNORED = -100
"""Label of a token that carries no loss."""


@dataclass(frozen=True)
class Encoded:
    """An exchange as tokens."""

    skill: str
    """Key of base_corpus.SKILLS."""

    ids: list[int]
    """Token ids of the whole conversation."""

    answers: list[tuple[int, int]]
    """Half-open spans of `ids` that the agent wrote, each with its end token."""


def encode(exchange: Exchange, tokenizer: PreTrainedTokenizerFast) -> Encoded:
    """Render an exchange as the chat of CHAT does: a role token before each turn, an end token after each answer."""
    roles = {"task": TASK, "result": RESULT, "act": ACT}
    ids: list[int] = []
    answers: list[tuple[int, int]] = []
    for role, text in exchange.turns:
        ids.append(token_id(tokenizer, roles[role]))
        start = len(ids)
        ids += tokenizer.backend_tokenizer.encode(text).ids
        if role == "act":
            ids.append(token_id(tokenizer, END))
            answers.append((start, len(ids)))
    return Encoded(exchange.skill, ids, answers)


def token_id(tokenizer: PreTrainedTokenizerFast, token: str) -> int:
    """The id of a special token."""
    index = tokenizer.backend_tokenizer.token_to_id(token)
    assert isinstance(index, int)
    return index


class Batches:
    """Endless batches of packed rows: (ids_BT, labels_BT), labels IGNORED outside answers.

    Several conversations share a row, one after the other; each is a distraction for the next. Rows are filled with
    the longest waiting exchange that still fits.
    """

    def __init__(self, seed: int, tokenizer: PreTrainedTokenizerFast, rows: int, row: int) -> None:
        self._exchanges = base_corpus.examples(seed)
        self._tokenizer, self._rows, self._row = tokenizer, rows, row
        self._waiting: list[Encoded] = []

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield collate([self._fill() for _ in range(self._rows)], self._row, token_id(self._tokenizer, PAD))

    def _fill(self) -> list[Encoded]:
        chosen: list[Encoded] = []
        left = self._row
        while True:
            self._refill()
            at = next((i for i, waiting in enumerate(self._waiting) if len(waiting.ids) <= left), None)
            if at is None:
                return chosen
            chosen.append(self._waiting.pop(at))
            left -= len(chosen[-1].ids)

    def _refill(self) -> None:
        while len(self._waiting) < 24:
            encoded = encode(next(self._exchanges), self._tokenizer)
            if len(encoded.ids) <= self._row:
                self._waiting.append(encoded)


def collate(rows: Sequence[Sequence[Encoded]], length: int, pad: int) -> tuple[Tensor, Tensor]:
    """Rows of exchanges as (ids_BT, labels_BT), padded on the right."""
    ids_BT = torch.full((len(rows), length), pad)
    labels_BT = torch.full((len(rows), length), IGNORED)
    for b, row in enumerate(rows):
        offset = 0
        for encoded in row:
            tokens = torch.tensor(encoded.ids)
            ids_BT[b, offset : offset + len(tokens)] = tokens
            for start, stop in encoded.answers:
                labels_BT[b, offset + start : offset + stop] = tokens[start:stop]
            offset += len(tokens)
    return ids_BT, labels_BT
