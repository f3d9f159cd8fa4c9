"""The environments of `rollout_faults.py` and `slow_environments.py`, apart from them: workers import nothing else."""

from __future__ import annotations

import os
import time

from ferrata.envs.office import OfficeEnvironment
from ferrata.records import StepResult
from ferrata.seeds import stream

HANG, RAISE, DIE = 0.0004, 0.002, 0.0002
"""Probability of each for one step; half of them strike again when the episode is played again."""
NAP_SECONDS = 0.3


class ClumsyOffice(OfficeEnvironment):
    """An office in which things go wrong."""

    def step(self, text: str) -> StepResult:
        """Go wrong now and then, otherwise be the office."""
        fate = stream(self.seed, "clumsy", self.turn).random()
        if fate < HANG + RAISE + DIE and (fate * 1e6 % 2 < 1 or os.urandom(1)[0] < 128):
            if fate < HANG:
                time.sleep(3600)
            if fate < HANG + DIE:
                os._exit(1)
            raise RuntimeError("the tool is broken")
        return super().step(text)


class SlowOffice(OfficeEnvironment):
    """An office whose every step takes its time."""

    def step(self, text: str) -> StepResult:
        """Be the office, later."""
        time.sleep(NAP_SECONDS)
        return super().step(text)
