"""Every environment that ships, and the one of the README, fulfils the contract that users test theirs with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ferrata.envs.contract import EnvironmentContract
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.support import SupportEnvironment
from ferrata.rewards import RewardSpec

README = Path(__file__).parents[2] / "README.md"


def readme_locker() -> Any:
    """The class of the README's example."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    source = next(block for block in blocks if "class Locker" in block)
    scope: dict[str, Any] = {"__name__": "readme"}
    exec(compile(source, "README.md", "exec"), scope)
    return scope["Locker"]


class TestOffice(EnvironmentContract):
    environment = OfficeEnvironment
    fuzzed = 3000
    dominance = RewardSpec().check_dominance


class TestSupport(EnvironmentContract):
    environment = SupportEnvironment
    fuzzed = 3000
    dominance = RewardSpec().check_dominance


class TestReadmeLocker(EnvironmentContract):
    dominance = RewardSpec().check_dominance

    @pytest.fixture(autouse=True)
    def locker(self) -> None:
        self.environment = readme_locker()
