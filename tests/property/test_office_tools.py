"""Invariant 3 for the tools that come later in the curriculum: whatever the arguments, an answer and no exception."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrata.envs import call
from ferrata.envs.office import OfficeEnvironment
from ferrata.rewards import RewardSpec

ENV = OfficeEnvironment(tiers=(3,), score=RewardSpec())
TASKS = [ENV.tasks("train", 1, families=[family])[0] for family in ("mail_request", "no_shortcut", "newest_note")]
PLACES = ["", ".", "..", "/", "notes", "notes/", "private", "inbox", "a\0b", "~", "reports/../private", "x" * 500]

texts = st.sampled_from(PLACES) | st.text(max_size=20)
numbers = st.integers(-3, 5) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
calls = st.one_of(
    st.builds(lambda folder: call("list_files", folder=folder), texts),
    st.builds(lambda text: call("search_files", text=text), texts),
    st.builds(lambda number: call("read_messages", number=number), numbers),
    st.builds(lambda to, body: call("send_message", to=to, subject="x", body=body, confirm=True),
              st.sampled_from([part["to"] for task in TASKS for part in task.world["goal"]["parts"] if "to" in part]),
              texts),
    st.just(call("calendar")),
    st.just(call("read_messages")),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TASKS), st.lists(calls, max_size=8))
def test_every_call_is_answered_and_can_be_taken_back(task, texts) -> None:
    ENV.reset(task)
    for text in texts:
        before, answer = ENV.state_hash(), ENV.step(text)
        assert answer.observation.text
        assert answer.reward is not None
        assert "private/" not in answer.observation.text
        snapshot = ENV.snapshot()
        ENV.rollback()
        assert ENV.state_hash() == before
        ENV.restore(snapshot)
