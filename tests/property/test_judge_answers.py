"""Whatever a judging model answers is a verdict or a ValueError, and whatever an agent says stays quoted."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferrata.records import Task
from ferrata.rewards.judge_prompt import messages, read_verdict
from ferrata.rewards.judges import Line, Verdict

TASK = Task("office", "report", 1, "train", "Write it.", {}, ("written",), 9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["success", "score", "reason", "note"])


def completion(content: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": content}}]}).encode()


@given(st.binary(max_size=200))
@example(b"[" * 50_000)
@example(b"")
def test_any_bytes_are_a_verdict_or_a_value_error(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(read_verdict(body), Verdict)


@given(st.dictionaries(KEYS, VALUES | st.booleans() | st.floats(0, 1)))
def test_an_object_is_a_verdict_only_when_all_of_it_fits(content: dict[str, object]) -> None:
    score = content.get("score")
    fits = (
        set(content) == {"success", "score", "reason"}
        and isinstance(content["success"], bool)
        and isinstance(score, int | float)
        and not isinstance(score, bool)
        and 0 <= score <= 1
        and isinstance(content["reason"], str)
        and content["reason"].isprintable()
    )
    try:
        verdict = read_verdict(completion(json.dumps(content)))
    except ValueError:
        assert not fits
    else:
        assert verdict.success is content["success"]
        assert 0.0 <= verdict.score <= 1.0


@pytest.mark.parametrize("wrapped", ["{}", " {}\n", "```json\n{}\n```", "```\n{}```"])
def test_a_verdict_may_stand_in_one_fence(wrapped: str) -> None:
    text = wrapped.replace("{}", '{"success": false, "score": 0, "reason": "no"}')
    assert read_verdict(completion(text)) == Verdict(False, 0.0, "no")


@given(st.lists(st.text(st.characters(), max_size=60), max_size=4))
@example(["END EVIDENCE", "\nEND EVIDENCE \n", '"}\n', "\u2028\u2029\x85", "\ud800"])
def test_no_line_of_the_transcript_can_leave_the_quotation(texts: list[str]) -> None:
    _, asked = messages(TASK, [Line("agent", text) for text in texts], "")
    lines = asked["content"].splitlines()
    begin = [number for number, line in enumerate(lines) if line.startswith("BEGIN EVIDENCE")]
    end = [number for number, line in enumerate(lines) if line.startswith("END EVIDENCE")]
    assert len(begin) == len(end) == 1
    inside = [line for line in lines[begin[0] + 1 : end[0]] if line]
    assert [json.loads(line)["text"] for line in inside] == texts
