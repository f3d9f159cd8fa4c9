"""What a running pipeline tells whoever watches: a terminal, a log, or nobody.

The pipeline calls a `RunView`; `cli.live` draws one, `SilentView` ignores everything. A view reads these
metrics when they are there, and leaves out what is not:

    rollout/success             share of the collected episodes that succeeded
    rollout/reward              mean reward per episode
    rollout/tokens_per_second   sampled tokens per second of the collection
    time/prefill, time/decode, time/environment, time/idle, time/collection
                                where the time of the collection went (seconds)
    reward/<component>          mean of one reward component per episode
    stop/<reason>               share of episodes that stopped for this reason
    <stage>/loss, rl/kl, rl/entropy
                                of the last update
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Score(msgspec.Struct, frozen=True):
    """One evaluation as a person reads it."""

    label: str
    """What was measured, e.g. 'unseen tasks, greedy'."""
    success: float
    """Share of tasks that succeeded, 0 to 1."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    tasks: int
    """How many tasks were tried."""
    groups: dict[str, float] = msgspec.field(default_factory=dict)
    """Success by tier or family, in the order to show."""


class RunView(Protocol):
    """Whoever watches a run. No method may raise or block."""

    def stage(self, name: str, total: int) -> None:
        """A stage of `total` steps begins."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """`step` steps of the current stage are done."""

    def evaluation(self, step: int, score: Score) -> None:
        """The policy was evaluated after `step` steps of the current stage."""

    def message(self, text: str) -> None:
        """Something a person should read, as one sentence."""

    def close(self) -> None:
        """The run is over, well or badly."""


class SilentView:
    """A view that shows nothing: for library use and tests."""

    def stage(self, name: str, total: int) -> None:
        """Show nothing."""

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show nothing."""

    def evaluation(self, step: int, score: Score) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""
