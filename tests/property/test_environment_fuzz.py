"""Invariant 3: no text a model can emit raises out of `env.step`, and each is answered by something to act on."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrata.envs import call
from ferrata.envs.office import OfficeEnvironment
from ferrata.records import EventKind
from ferrata.rewards import RewardSpec

ENV = OfficeEnvironment(score=RewardSpec())
TASK = ENV.tasks("train", 1, families=["approval"])[0]
TOOLS = [tool.name for tool in ENV.tools]
ARGUMENTS = ["path", "sql", "content", "to", "subject", "body", "answer", "confirm", "other"]

any_text = st.text(max_size=60)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
tricky = st.sampled_from(
    ["SELECT * FROM items", "reports/a/b/c.md", "../x", "a@office.test", "\ud800", "\0", "a" * 3000, "'; --", "{}"]
)
calls = st.builds(
    lambda name, arguments: json.dumps({"action": name, "arguments": arguments}),
    st.sampled_from(TOOLS) | any_text | st.just("\ud800"),
    st.dictionaries(st.sampled_from(ARGUMENTS), any_json | tricky | st.just(True), max_size=5) | any_json,
)
valid = st.one_of(
    st.builds(lambda p: call("read_file", path=p), any_text | tricky),
    st.builds(lambda q: call("query_database", sql=q), any_text | tricky),
    st.builds(lambda p, c: call("edit_document", path=p, content=c), any_text | tricky, any_text | tricky),
    st.builds(
        lambda t, s, b: call("send_message", to=t, subject=s, body=b, confirm=True),
        any_text | tricky, any_text | tricky, any_text | tricky,
    ),
    st.builds(lambda a: call("submit_result", answer=a), any_text | tricky),
)  # fmt: skip
halves = st.builds(lambda text, at: text[: int(at * len(text))], calls | valid, st.floats(0, 1))
deep = st.builds(
    lambda opener, depth: '{"action": "read_file", "arguments": {"path": ' + opener * depth,
    st.sampled_from(["[", '{"a": ', "{"]), st.integers(1, 3000),
)  # fmt: skip
huge = st.integers(1, 6000).map(lambda digits: '{"action": "read_file", "arguments": {"path": ' + "9" * digits + "}}")
halved_keys = calls.map(lambda text: text[:-1] + ', "\\ud83d": 1}')
doubled = calls.map(lambda text: text[:-1] + ', "action": "read_file"}')


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(text=st.one_of(any_text, calls, valid, halves, deep, huge, doubled, halved_keys))
def test_no_text_raises(text: str) -> None:
    ENV.reset(TASK)
    result = ENV.step(text)
    assert result.observation.text
    assert result.observation.text.encode(), "half a character would stop the tokenizer"
    assert len(result.observation.text) < 2200
    invalid = [event.name for event in result.events if event.kind == EventKind.INVALID]
    assert len(invalid) <= 1
    assert not invalid or result.observation.text.startswith("error: ")
    assert ENV.state_hash()
