"""Mistakes of an environment's author in what a snapshot keeps, which is taken at every turn of a solution."""

from __future__ import annotations

from typing import Any

import pytest

from ferrata.envs import Effect, Environment, Script, Task, call, tool
from ferrata.envs.checker import check_environment

from .door import SPEC, Door


class ForgetsOnce(Door):
    """Six turns, and only the snapshot of `forgets` lacks what was counted."""

    forgets = 0

    @tool("Wait.")
    def wait(self, number: int) -> str:
        self.tries += 1
        return f"waited {self.tries} times"

    def scripts(self, task: Task) -> list[Script]:
        key = task.world["key"]
        waiting = tuple(call("wait", number=number) for number in range(4))
        right = (*waiting, call("look"), call("turn_key", key=key, confirm=True))
        return [Script("waits and turns", right, True), Script("guesses", (call("finish_wrong"),), False)]

    @tool("Give up.")
    def finish_wrong(self) -> str:
        self.finish(success=False)
        return "gone"

    def save_world(self) -> Any:
        return {"tries": 0 if self.turn == type(self).forgets else self.tries}

    def load_world(self, state: Any) -> None:
        self.tries = state["tries"]

    def world_state(self) -> Any:
        return self.turn


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_snapshot_is_taken_at_every_turn_of_a_solution(turn: int) -> None:
    kind = type("ForgetsOnce", (ForgetsOnce,), {"forgets": turn})
    [fault] = check_environment(kind(score=SPEC), 2, SPEC.check_dominance, fuzzed=20).broken
    assert fault.name == "snapshots"
    assert f"turn {turn}: the episode went on differently" in fault.detail


# What cannot be saved -------------------------------------------------------------------------------------------


class Keeping(Door):
    """Keeps in a tool what JSON has no kind for."""

    def begin(self, task: Task) -> None:
        self.tries = 0
        self.tried = []

    @tool("Turn a key.", effect=Effect.IRREVERSIBLE)
    def turn_key(self, key: int) -> str:
        if self.tried == []:
            self.tried = {key}  # here
        return super().turn_key(key)


class Giving(Door):
    """Gives a world that JSON cannot hold."""

    def save_world(self) -> Any:  # here
        return {"tries": self.tries, "made": object()}

    def load_world(self, state: Any) -> None:
        self.tries = state["tries"]


@pytest.mark.parametrize(
    ("kind", "what", "function", "advice"),
    [
        (Keeping, "keeps a set in 'tried', which cannot be saved by itself", "begin", "Write save_world()"),
        (Giving, "save_world() of environment 'door' must give JSON-ready content", "save_world", "Encoding objects"),
    ],
)
def test_what_cannot_be_saved_is_blamed_on_the_author_s_line(
    kind: type[Environment], what: str, function: str, advice: str
) -> None:
    [fault, *_] = check_environment(kind(), 2, SPEC.check_dominance, fuzzed=20).broken
    assert what in fault.detail
    assert "test_mistakes_in_snapshots.py:" in fault.detail
    assert fault.detail.endswith(f" in {function}).")
    assert "snapshot.py" not in fault.detail
    assert fault.advice.startswith(advice)
