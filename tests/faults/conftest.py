"""Collectors that play in the lodge, in this process or in worker processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ferrata.models.policy import Policy
from ferrata.recipe import RolloutSection
from ferrata.records import Task
from ferrata.rollout.collector import Collector
from ferrata.rollout.worlds import make_env

from .lodges import LODGE, WORLD, Decide


@pytest.fixture
def lodge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that the workers can import, and a place of its own for all temporary files."""
    path, scratch = tmp_path / "lodge.py", tmp_path / "scratch"
    path.write_text(WORLD)
    scratch.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    yield path
    sys.modules.pop("lodge", None)
    assert [found.name for found in scratch.iterdir()] == [], "temporary files were left behind"


@pytest.fixture
def collector(tiny_policy: Policy, script: Any) -> Iterator[Callable[..., Collector]]:
    """Makes collectors whose turns are decided by the episode's seed and the turn."""
    with ExitStack() as stack:

        def make(decide: Decide, make_env: Any = LODGE, **budgets: Any) -> Collector:
            sampler = script(lambda key, turn: decide(sampler.opened[key][0], turn), slots=16)
            section = RolloutSection(
                **{"max_tokens": 3000, "max_tokens_per_turn": 200, "workers": 2, "max_fault_share": 1.0, **budgets}
            )
            made = Collector(sampler, make_env, tiny_policy.chat, section)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def tasks() -> list[Task]:
    return make_env("lodge:Lodge").tasks("train", 6)
