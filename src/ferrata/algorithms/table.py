"""The names by which a recipe selects a formula: one explicit table per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from ferrata.algorithms.aggregation import Weights, constant, sequence_mean, token_mean
from ferrata.algorithms.credit import Estimator, gigpo, grpo, ppo, reinforce_pp, rloo, to_go
from ferrata.algorithms.divergence import k1, k2, k3
from ferrata.errors import UnknownNameError

Formula = TypeVar("Formula")
Divergence = Callable[[Tensor, Tensor], Tensor]
"""(logprobs_N, reference_logprobs_N) -> divergence per token (N,)"""
Aggregation = Callable[[Sequence[int], int], Weights]
"""(trained tokens of each episode, most that one can have) -> their weights and the divisor"""

ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": grpo,
    "rloo": rloo,
    "reinforce++": reinforce_pp,
    "gigpo": gigpo,
    "ppo": ppo,
}
PROCESS_ESTIMATORS: Mapping[str, Estimator] = {**ESTIMATORS, "grpo": to_go, "rloo": to_go, "gigpo": to_go}
"""The same for a channel of rewards along the way: what compares whole episodes compares returns from each turn on."""
DIVERGENCES: Mapping[str, Divergence] = {"k1": k1, "k2": k2, "k3": k3}
AGGREGATIONS: Mapping[str, Aggregation] = {"token": token_mean, "sequence": sequence_mean, "constant": constant}


def estimator(name: str, process: bool = False) -> Estimator:
    """How an algorithm gives credit to turns; `process` for a channel of its own. Raises `UnknownNameError`."""
    return _known("algorithm", name, PROCESS_ESTIMATORS if process else ESTIMATORS)


def divergence(name: str) -> Divergence:
    """An estimator of the KL divergence. Raises `UnknownNameError`."""
    return _known("divergence estimator", name, DIVERGENCES)


def aggregation(name: str) -> Aggregation:
    """How the losses of tokens become the loss of a batch. Raises `UnknownNameError`."""
    return _known("aggregation", name, AGGREGATIONS)


def _known(kind: str, name: str, table: Mapping[str, Formula]) -> Formula:
    if name not in table:
        raise UnknownNameError.of(kind, name, table)
    return table[name]
