"""Invariant 8: snapshot -> restore -> the same future; fork -> two futures that do not touch.

Random calls of the office with random faults: whatever was played, and wherever it is cut.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrata.envs import call
from ferrata.envs.faults import FaultRates
from ferrata.envs.mailbox import Mail, _encoded, _plain
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.snapshot import Snapshot
from ferrata.records import StepResult, Task
from ferrata.rewards import RewardSpec

ENV, OTHER = (OfficeEnvironment(score=RewardSpec()) for _ in range(2))
TASKS = ENV.tasks("train", 12)
NAMES = ["notes/a.txt", "reports/a.md", "reports/deep/b.md", "reports", "outbox/0001.eml", "../x"]
TEXTS = ["", "done", "12 units", "é\n", "code"]


def world_calls(task: Task) -> list[str]:
    """Calls that mean something in this task: what its solution does, and its files."""
    return [*ENV.scripts(task)[0].texts[:-1], *(call("read_file", path=path) for path in task.world["files"])]


some = st.sampled_from
any_call = st.one_of(
    st.builds(lambda p: call("read_file", path=p), some(NAMES)),
    st.builds(lambda p, c: call("edit_document", path=p, content=c), some(NAMES), some(TEXTS)),
    st.builds(lambda s: call("query_database", sql=s), some(["SELECT * FROM items", "SELECT 1", "DROP TABLE items"])),
    st.builds(
        lambda t, b: call("send_message", to=t, subject="s", body=b, confirm=True),
        some(["Ada@office.test", "x@y.test", "nobody"]),
        some(TEXTS),
    ),
    st.just("nothing to do"),
)
rates = st.none() | st.builds(FaultRates, timeout=some([0.0, 0.3]), missing=some([0.0, 0.5]), repeated=some([0.0, 1.0]))


@st.composite
def episodes(draw: st.DrawFn) -> tuple[Task, list[str], list[str], list[str]]:
    """A task, what comes before the cut, and two futures."""
    task = draw(some(TASKS))
    step = any_call | some(world_calls(task))
    end = st.just([]) | st.builds(lambda a: [call("submit_result", answer=a)], some(TEXTS))
    lists = st.lists(step, max_size=6)
    return task, draw(lists), draw(lists) + draw(end), draw(lists) + draw(end)


def play(env: OfficeEnvironment, texts: list[str]) -> list[tuple[StepResult, str]]:
    """Steps until the episode ends, each with the hash after it; then all files."""
    played: list[tuple[StepResult, str]] = []
    for text in texts:
        played.append((env.step(text), env.state_hash()))
        if played[-1][0].terminated or played[-1][0].truncated:
            break
    return played


def unpaid(state: dict[str, Any]) -> dict[str, Any]:
    """The state without what was rewarded: a rollback does not take a reward back, so that none is paid twice."""
    return {**state, "snapshot": msgspec.structs.replace(state["snapshot"], paid=())}


def everything(env: OfficeEnvironment) -> dict[str, Any]:
    return {"files": env._workspace.listing(), "snapshot": env.snapshot()}


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(episode=episodes(), faults=rates, seed=st.integers(0, 5))
def test_the_same_future_here_in_another_instance_and_twice(
    episode: tuple[Task, list[str], list[str], list[str]], faults: FaultRates | None, seed: int
) -> None:
    task, before, after, instead = episode
    ENV.faults = faults
    ENV.reset(task, seed)
    play(ENV, before)
    snapshot, at_the_cut = ENV.snapshot(), everything(ENV)
    future, end = play(ENV, after), everything(ENV)
    OTHER.restore(Snapshot.from_bytes(snapshot.to_bytes()))
    assert everything(OTHER) == at_the_cut
    assert (play(OTHER, after), everything(OTHER)) == (future, end)
    ENV.reset(TASKS[0], 99)
    ENV.restore(snapshot)
    assert everything(ENV) == at_the_cut
    play(ENV, instead)
    ENV.restore(snapshot)
    assert (play(ENV, after), everything(ENV)) == (future, end)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(episode=episodes(), faults=rates)
def test_two_futures_that_do_not_touch(
    episode: tuple[Task, list[str], list[str], list[str]], faults: FaultRates | None
) -> None:
    task, before, after, instead = episode
    ENV.faults = faults
    ENV.reset(task)
    play(ENV, before)
    with closing(ENV.fork()) as alone:
        expected = play(alone, after), everything(alone)
    with closing(ENV.fork()) as fork:
        at_the_cut = everything(ENV)
        other_future = play(fork, instead), everything(fork)
        assert everything(ENV) == at_the_cut
        assert (play(ENV, after), everything(ENV)) == expected
        assert (other_future[0], everything(fork)) == other_future


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(episode=episodes(), turns=st.integers(1, 4))
def test_rolled_back_as_if_it_had_not_been(episode: tuple[Task, list[str], list[str], list[str]], turns: int) -> None:
    task, before, after, _ = episode
    ENV.faults, ENV.undo_turns = None, 4
    ENV.reset(task)
    play(ENV, before)
    states = [everything(ENV)]
    for text in after[:turns]:
        if ENV.snapshot().over:
            break
        ENV.step(text)
        states.append(everything(ENV))
    for back in range(len(states) - 1, 0, -1):
        ENV.rollback()
        assert unpaid(everything(ENV)) == unpaid(states[back - 1])


headers = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)
bodies = st.text(st.characters(max_codepoint=127, exclude_characters="\r\0"), max_size=200)


@given(subject=headers, body=bodies, number=st.integers(1, 200))
def test_the_short_way_writes_the_same_mail(subject: str, body: str, number: int) -> None:
    mail = Mail(number, "outbox", "agent@office.test", "Ada@office.test", subject, body)
    assert _plain(mail) == _encoded(mail)
