"""Micro-batches without padding: token sequences end to end, and what several of them begin with only once.

    MicroBatch     packed tokens of some examples, with the places of their trained tokens
    Layout         which stretches of the packed tokens are sequences, and what they go on from
    microbatches   examples -> micro-batches under a budget of tokens

The members of a group read the same opening. It is packed once, as a root, and each member goes on from it as a
branch: forward and backward, the opening is computed once for all of them. Gradients add up in it, so nothing about
the result changes but its cost. A sequence whose opening nobody shares is a root of its own.

Attention is causal, so no trained token sees what follows it: a sequence ends before its last trained token, which is
only a target.

Shape legend: T = packed tokens, all roots before all branches; N = trained tokens, example after example.
Of a layout: B = branches, S = the longest; L = the longest root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from ferrata.learning.batch import Example

MIN_SHARED_TOKENS = 16
"""Shorter openings are not worth a second attention call."""


@dataclass(frozen=True)
class Layout:
    """Where sequences stand among the T packed tokens."""

    roots: list[int]
    """Length of each root, in order."""
    branches: list[int]
    """Length of each branch, in order, at least 1; they stand behind all roots."""
    parents: list[int]
    """Which root each branch goes on from."""

    @cached_property
    def root_rows(self) -> Rows:
        """The roots as rows."""
        return Rows(self.roots)

    @cached_property
    def branch_rows(self) -> Rows:
        """The branches as rows."""
        return Rows(self.branches)

    @cached_property
    def parent_rows(self) -> Tensor:
        """`parents` as a tensor (B)."""
        return torch.tensor(self.parents)

    @cached_property
    def positions(self) -> Tensor:
        """Position of each packed token in its sequence (T)."""
        starts = [0] * len(self.roots) + [self.roots[parent] for parent in self.parents]
        lengths = [*self.roots, *self.branches]
        return torch.cat([torch.arange(begin, begin + n) for begin, n in zip(starts, lengths, strict=True)])

    @cached_property
    def branch_mask(self) -> Tensor:
        """(B, 1, S, L + S): true where a token of a branch sees a key, first its root's keys, padded, then its own."""
        root, own = self.root_rows.width, self.branch_rows.width
        of_root_BL = torch.arange(root) < torch.tensor(self.roots)[self.parent_rows][:, None]
        causal_SS = torch.ones(own, own, dtype=torch.bool).tril()
        rows = len(self.branches)
        seen = [of_root_BL[:, None].expand(rows, own, root), causal_SS.expand(rows, own, own)]
        return torch.cat(seen, dim=-1)[:, None]


class Rows:
    """Stretches of tokens end to end, and how to lay them out as rows that are padded on the right.

    Args:
        lengths: of the stretches, in order.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.count, self.width = len(lengths), max(lengths, default=0)
        self.packed = sum(lengths)
        self.full = self.packed == self.count * self.width
        """No padding: rows are the packed tokens as they stand."""
        starts = [0, *accumulate(lengths)][:-1]
        columns_W = torch.arange(self.width)
        lengths_R1 = torch.tensor(lengths).reshape(-1, 1)
        self.used = (columns_W < lengths_R1).flatten()
        """Which of the (rows * width) places hold a token."""
        self.source = (torch.tensor(starts).reshape(-1, 1) + columns_W.minimum(lengths_R1 - 1)).flatten()
        """Packed token of each place; a place of padding repeats the last token of its row."""
        self.place = self.used.nonzero().flatten()
        """Place of each packed token."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward pass reads. Examples without a trained token are in none."""

    examples: list[int]
    """Which examples: indices into the sequence that was split."""
    ids_T: Tensor
    """Packed token ids (int64)."""
    layout: Layout
    places_N: Tensor
    """Packed token from which each trained one is predicted."""
    targets_N: Tensor
    """The trained ids (int64)."""
    sampled_logprobs_N: Tensor
    """Log-probabilities of the trained ids when they were sampled."""
    advantages_N: Tensor
    """Advantage of each trained id."""
    temperatures_N: Tensor | None
    """Temperature at which each id was sampled; None when all are 1."""
    counts: list[int]
    """Trained ids of each example; they sum to N."""
    sampled_N: Tensor | None
    """False for the ids of demonstrations, which nobody sampled; None when all were sampled."""
    fresh_N: Tensor | None
    """True for what the policy as it is now sampled: neither older weights nor nobody; None when that holds for all."""
    firsts_S: Tensor
    """Which of the N ids is the first of a turn; S turns, example after example."""


@dataclass(frozen=True)
class _Family:
    """Examples with the same opening, or one example by itself."""

    members: list[int]
    """Indices of examples, the longest first."""
    opening: int
    """Tokens that they share; 0 for one by itself."""
    lengths: list[int]
    """Tokens that the model has to read of each."""

    @property
    def tokens(self) -> int:
        """Packed tokens."""
        return self.opening + sum(length - self.opening for length in self.lengths)

    @property
    def root(self) -> int:
        """Length of the root."""
        return self.opening or self.lengths[0]


def microbatches(examples: Sequence[Example], tokens: int) -> list[MicroBatch]:
    """Split examples into micro-batches of at most `tokens` packed tokens, long roots first.

    Roots of similar length stand together, for attention alone still pads. What exceeds `tokens` by itself gets a
    micro-batch of its own. The split never changes the gradient: every loss is a sum over trained tokens with a divisor
    of the whole.
    """
    families = sorted(_families(examples, tokens), key=lambda family: -family.root)
    batches: list[list[_Family]] = []
    room = 0
    for family in families:
        if not batches or family.tokens > room:
            batches.append([])
            room = tokens
        batches[-1].append(family)
        room -= family.tokens
    return [_assemble(examples, batch) for batch in batches]


def _families(examples: Sequence[Example], tokens: int) -> list[_Family]:
    """Put examples with the same opening together; those whose packed tokens exceed `tokens` are divided."""
    by_opening: dict[tuple[int, ...], list[int]] = {}
    for index, example in enumerate(examples):
        if example.targets:
            by_opening.setdefault(tuple(example.token_ids[: example.targets[0]]), []).append(index)
    families: list[_Family] = []
    for opening, members in by_opening.items():
        if len(members) == 1 or len(opening) < MIN_SHARED_TOKENS:
            families += [_Family([index], 0, [examples[index].length]) for index in members]
        else:
            families += _divided(sorted(members, key=lambda i: -examples[i].length), len(opening), examples, tokens)
    return families


def _divided(members: list[int], opening: int, examples: Sequence[Example], tokens: int) -> list[_Family]:
    """One family for as many members as fit, and so on; the opening is packed once in each."""
    parts: list[list[int]] = []
    room = 0
    for index in members:
        own = examples[index].length - opening
        if not parts or own > room:
            parts.append([])
            room = tokens - opening
        parts[-1].append(index)
        room -= own
    return [_Family(part, opening, [examples[index].length for index in part]) for part in parts]


def _assemble(examples: Sequence[Example], families: Sequence[_Family]) -> MicroBatch:
    """Pack families, one after the other: first all roots, then all branches."""
    roots = [family.root for family in families]
    branches, parents, ids, tails, starts = [], [], list[int](), list[int](), list[tuple[int, int, int]]()
    packed_roots = sum(roots)
    for number, family in enumerate(families):
        begin, root = len(ids), family.root
        ids += examples[family.members[0]].token_ids[:root]
        for index, length in zip(family.members, family.lengths, strict=True):
            # Token t of this example stands at begin + t in the root, at after + t behind it.
            starts.append((begin, packed_roots + len(tails) - root, root))
            if length > root:
                tails += examples[index].token_ids[root:length]
                branches.append(length - root)
                parents.append(number)
    order = [index for family in families for index in family.members]
    chosen = [examples[index] for index in order]
    places = [
        begin + target - 1 if target <= root else after + target - 1
        for example, (begin, after, root) in zip(chosen, starts, strict=True)
        for target in example.targets
    ]
    return _micro_batch(order, chosen, [*ids, *tails], Layout(roots, branches, parents), places)


def _micro_batch(
    order: list[int], chosen: Sequence[Example], ids: list[int], layout: Layout, places: list[int]
) -> MicroBatch:
    flat = [(example, target) for example in chosen for target in example.targets]
    temperatures = [example.temperature for example, _ in flat]
    return MicroBatch(
        examples=order,
        ids_T=torch.tensor(ids),
        layout=layout,
        places_N=torch.tensor(places),
        targets_N=torch.tensor([example.token_ids[target] for example, target in flat]),
        sampled_logprobs_N=torch.tensor([example.logprobs[target] for example, target in flat]),
        advantages_N=torch.tensor([value for example in chosen for value in _advantages(example)]),
        temperatures_N=torch.tensor(temperatures) if any(t != 1.0 for t in temperatures) else None,
        counts=[len(example.targets) for example in chosen],
        sampled_N=None if all(e.sampled for e in chosen) else torch.tensor([e.sampled for e, _ in flat]),
        fresh_N=None if all(map(_fresh, chosen)) else torch.tensor([_fresh(example) for example, _ in flat]),
        firsts_S=_firsts(chosen),
    )


def _fresh(example: Example) -> bool:
    return example.sampled and not example.stale


def _advantages(example: Example) -> Sequence[float]:
    """Advantage of each trained id; that of a demonstration is 1: its loss is then its negative log-likelihood."""
    return example.advantages if example.sampled else [1.0] * len(example.targets)


def _firsts(chosen: Sequence[Example]) -> Tensor:
    """Places of the first ids of turns among the trained ids of these examples."""
    places, start = [], 0
    for example in chosen:
        places += [start + offset for offset in accumulate(example.turns[:-1], initial=0)] if example.turns else []
        start += len(example.targets)
    return torch.tensor(places, dtype=torch.int64)
