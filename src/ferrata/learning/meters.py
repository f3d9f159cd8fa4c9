"""Sums, counts and maxima gathered while learning, and the metrics made of them."""

from __future__ import annotations

from torch import Tensor


class Meters:
    """Means over everything that was added, and maxima; `metrics()` names them."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._maxima: dict[str, float] = {}

    def add(self, name: str, values: Tensor) -> None:
        """Add every value of a tensor to a mean."""
        self._sums[name] = self._sums.get(name, 0.0) + float(values.detach().sum())
        self._counts[name] = self._counts.get(name, 0) + values.numel()

    def largest(self, name: str, value: float) -> None:
        """Keep the largest value seen under a name."""
        self._maxima[name] = max(self._maxima.get(name, value), value)

    def metrics(self) -> dict[str, float]:
        """The mean or maximum under each name; a name without values is left out."""
        means = {name: total / self._counts[name] for name, total in self._sums.items() if self._counts[name]}
        return means | self._maxima
