"""Snapshot, restore, fork, rollback: what they keep, what they refuse, and that copies do not touch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

from ferrata.envs import Effect, Environment, Script, Task, ToolError, call, tool
from ferrata.envs.snapshot import Snapshot
from ferrata.errors import TaskError, UsageError
from ferrata.records import EventKind


class Purse(Environment):
    """Draw coins, spend them: a world of plain attributes, with draws of its own."""

    name = "purse"
    families: ClassVar = {1: ("spend",)}
    undo_turns = 3

    def generate(self, family: str, tier: int, stream: Random, split: str) -> Task:
        world = {"start": stream.randrange(1000) * 2 + (split == "eval")}
        return Task("purse", family, tier, split, "Spend.", world, ("drawn", "spent"), 20)

    def begin(self, task: Task) -> None:
        self.coins: list[int] = []
        self.notes: dict[str, Any] = {"start": task.world["start"]}

    @tool("Draw a coin.")
    def draw(self) -> str:
        self.coins.append(self.random.randrange(1, 100))
        self.reach("drawn")
        return f"coins: {self.coins}"

    @tool("Spend the last coin.", Effect.WRITE)
    def spend(self) -> str:
        if not self.coins:
            raise ToolError("the purse is empty")
        self.notes["last"] = self.coins.pop()
        self.reach("spent")
        return f"spent {self.notes['last']}"

    @tool("Stop.")
    def stop(self) -> str:
        self.finish(set(self.reached) == set(self.task.subgoals))
        return "over"

    def scripts(self, task: Task) -> list[Script]:
        return [Script("spends", (call("draw"), call("spend"), call("stop")), True)]


@pytest.fixture
def purse() -> Iterator[Purse]:
    with closing(Purse()) as env:
        env.reset(env.tasks("train", 1)[0], seed=11)
        yield env


def drawn(env: Environment, times: int = 1) -> list[str]:
    return [env.step(call("draw")).observation.text for _ in range(times)]


def test_own_draws_follow_from_the_seed_and_the_task() -> None:
    env = Purse()
    first, second = env.tasks("train", 2)
    texts = []
    for task, seed in ((first, 1), (first, 1), (first, 2), (second, 1)):
        env.reset(task, seed)
        texts.append(drawn(env, 3)[-1])
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_restored_in_another_instance_from_bytes(purse: Purse) -> None:
    drawn(purse, 2)
    data = purse.snapshot().to_bytes()
    future = [*drawn(purse), purse.step(call("spend")).observation.text, purse.state_hash()]
    other = Purse()
    other.restore(Snapshot.from_bytes(data))
    assert [*drawn(other), other.step(call("spend")).observation.text, other.state_hash()] == future
    assert other.seed == 11


def test_a_snapshot_is_not_changed_by_what_comes_later(purse: Purse) -> None:
    drawn(purse)
    snapshot = purse.snapshot()
    before = snapshot.to_bytes()
    drawn(purse, 2)
    purse.restore(snapshot)
    drawn(purse, 2)
    assert snapshot.to_bytes() == before


def test_repetition_goes_on_after_a_restore(purse: Purse) -> None:
    drawn(purse)
    purse.restore(purse.snapshot())
    kinds = [event.kind for event in purse.step(call("draw")).events]
    assert EventKind.REPEAT in kinds
    assert EventKind.SUBGOAL not in kinds


def test_two_forks_do_not_touch(purse: Purse) -> None:
    drawn(purse, 2)
    one, two = purse.fork(), purse.fork()
    assert one.state_hash() == two.state_hash() == purse.state_hash()
    one.step(call("spend"))
    assert two.state_hash() == purse.state_hash() != one.state_hash()
    assert drawn(two) == drawn(purse)


def test_a_snapshot_of_an_episode_that_is_over(purse: Purse) -> None:
    before = purse.snapshot()
    purse.step(call("stop"))
    over = purse.snapshot()
    purse.restore(before)
    drawn(purse)
    purse.restore(over)
    with pytest.raises(UsageError, match="is over"):
        purse.step(call("draw"))


def test_an_attribute_set_after_the_snapshot_is_gone(purse: Purse) -> None:
    snapshot = purse.snapshot()
    purse.extra = 1  # type: ignore[attr-defined]
    purse.restore(snapshot)
    assert not hasattr(purse, "extra")


@pytest.mark.parametrize("content", [{1, 2}, (1, 2), [("a", 1)], {"a": {1: "b"}}, object()])
def test_what_json_cannot_bring_back_is_refused_by_name(purse: Purse, content: object) -> None:
    purse.notes["odd"] = content
    with pytest.raises(TaskError, match=r"in 'notes', which cannot be saved by itself: write save_world"):
        purse.snapshot()


def test_an_own_save_world_must_be_json_ready(purse: Purse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purse, "save_world", lambda: object())
    with pytest.raises(TaskError, match="'purse' must give JSON-ready content"):
        purse.snapshot()


def test_another_version_is_refused(purse: Purse, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = purse.snapshot()
    monkeypatch.setattr(Purse, "version", "2")
    with pytest.raises(UsageError, match="'purse' version 1 cannot be restored in 'purse' version 2"):
        purse.restore(snapshot)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[1]", b'{"env": 1}', b"[" * 5000])
def test_bytes_that_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(UsageError, match="not a snapshot"):
        Snapshot.from_bytes(data)


def test_rollback_takes_back_turns(purse: Purse) -> None:
    drawn(purse)
    kept = purse.snapshot()
    drawn(purse)
    purse.step(call("spend"))
    purse.rollback(2)
    assert unpaid(purse.snapshot()) == unpaid(kept)
    drawn(purse)
    purse.rollback()
    assert unpaid(purse.snapshot()) == unpaid(kept)


def unpaid(snapshot: Snapshot) -> Snapshot:
    """What was rewarded once stays so after a rollback."""
    return msgspec.structs.replace(snapshot, paid=())


def test_a_subgoal_that_was_taken_back_is_not_rewarded_again(purse: Purse) -> None:
    def amounts(text: str) -> list[float]:
        return [event.amount for event in purse.step(text).events if event.kind is EventKind.SUBGOAL]

    assert amounts(call("draw")) == [1.0]
    purse.rollback()
    assert purse.reached == []
    again = purse.fork()
    assert amounts(call("draw")) == [0.0]
    with closing(again):
        result = again.step(call("draw"))
        assert [event.amount for event in result.events if event.kind is EventKind.SUBGOAL] == [0.0]
    assert purse.reached == ["drawn"]
    purse.reset(purse.task, seed=12)
    assert amounts(call("draw")) == [1.0], "another episode is paid anew"


def test_rollback_of_the_end(purse: Purse) -> None:
    purse.step(call("stop"))
    purse.rollback()
    assert drawn(purse)


@pytest.mark.parametrize("turns", [0, -1, 4])
def test_rollback_of_more_than_is_kept(purse: Purse, turns: int) -> None:
    drawn(purse, 5)
    with pytest.raises(UsageError, match=rf"{turns} turns cannot be rolled back in 'purse': 3 are kept"):
        purse.rollback(turns)


def test_a_fork_draws_what_the_original_was_told_to_draw() -> None:
    class Two(Purse):
        families: ClassVar = {1: ("spend", "save")}

        def generate(self, family: str, tier: int, stream: Random, split: str) -> Task:
            return msgspec.structs.replace(super().generate(family, tier, stream, split), family=family)

    with closing(Two()) as env:
        env.choose(("save",))
        env.reset(env.tasks("train", 1)[0])
        with closing(env.fork()) as copy:
            assert {task.family for task in copy.tasks("train", 6)} == {"save"}


def test_what_is_set_before_the_base_class_is_state_as_well() -> None:
    class Early(Purse):
        def __init__(self) -> None:
            self.seen: list[int] = []
            super().__init__()

    with closing(Early()) as env:
        env.reset(env.tasks("train", 1)[0])
        kept = env.snapshot()
        env.seen.append(1)
        env.restore(kept)
        assert env.seen == []


def test_settings_of_an_instance_are_no_state(purse: Purse) -> None:
    purse.undo_turns = 1
    before = purse.state_hash()
    purse.undo_turns = 2
    assert purse.state_hash() == before
    assert "undo_turns" not in purse.save_world()


def test_there_is_nothing_to_take_before_the_first_reset() -> None:
    for take in (Purse().snapshot, Purse().fork):
        with pytest.raises(UsageError, match=r"no episode of 'purse' yet"):
            take()


def test_restoring_forgets_the_turns_before(purse: Purse) -> None:
    drawn(purse, 2)
    purse.restore(purse.snapshot())
    with pytest.raises(UsageError, match="0 are kept"):
        purse.rollback()


def test_a_constructor_of_its_own_overrides_another() -> None:
    class Lined(Purse):
        def __init__(self, lining: str) -> None:
            super().__init__()
            self.lining = lining

        def another(self) -> Lined:
            return Lined("silk")

    env = Lined("silk")
    env.reset(env.tasks("train", 1)[0])
    assert env.fork().state_hash() == env.state_hash()
