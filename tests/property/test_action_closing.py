"""A turn that stops behind its action stops exactly there, whatever pieces its text arrives in."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ferrata.errors import PolicyError
from ferrata.models.policy import Policy
from ferrata.sampling import local
from ferrata.sampling.closing import Closings, ObjectScanner
from ferrata.sampling.local import LocalSampler

values = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.sampled_from(['}"', "{", "\\", '\\"}', "é€😀"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
    max_leaves=4,
)
asides = [
    "", "I think. ", "a {b} c ", '{"plan": {"x": 1}} ', "é€ } ", 'say "hm" ', "{not json} ",
    "I set {x and then ", 'Use "{" here. ', '{"x then ', "{ { ", '{"plan": 3 ', "} { ",
]  # fmt: skip
thinking = st.lists(st.sampled_from(asides), max_size=3).map("".join)
within_a_test = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def end_found(scanner: ObjectScanner, pieces: list[str]) -> int | None:
    """How many characters had arrived when the scanner said that the action is complete."""
    arrived = 0
    for piece in pieces:
        arrived += len(piece)
        if scanner.read(piece):
            return arrived
    return None


@given(before=thinking, arguments=st.dictionaries(st.text(max_size=4), values, max_size=3), ascii_only=st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_end_is_the_last_character_of_the_object(before: str, arguments: dict[str, Any], ascii_only: bool) -> None:
    action = json.dumps({"action": "say", "arguments": arguments}, ensure_ascii=ascii_only)
    text = f"{before}{action} and more }}"
    assert end_found(ObjectScanner(), list(text)) == len(before) + len(action)


@given(text=st.text(alphabet='{}"\\a: ,1', max_size=40))
@settings(max_examples=200, deadline=None)
def test_what_the_scanner_takes_for_an_action_is_one(text: str) -> None:
    end = end_found(ObjectScanner("a"), list(text))
    if end is not None:
        begins = [place for place in range(end) if text[place] == "{"]
        assert any("a" in value for value in (_value(text[begin:end]) for begin in begins))


def _value(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}


@given(before=thinking, word=st.text(max_size=6))
@within_a_test
def test_tokens_that_split_characters_are_read_as_their_text(
    before: str, word: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    action = json.dumps({"action": "say", "arguments": {"word": word}}, ensure_ascii=False)
    ids = tokenizer.encode(before + action, add_special_tokens=False, split_special_tokens=True)
    closings = Closings(tokenizer)
    closings.begin(0)
    closed = [closings.closes(0, token) for token in ids]
    assert closed == [False] * (len(ids) - 1) + [True]


@given(ids=st.lists(st.integers(0, 400), max_size=60))
@within_a_test
def test_no_sequence_of_ids_raises_or_hides_a_later_action(ids: list[int], tokenizer: PreTrainedTokenizerFast) -> None:
    closings = Closings(tokenizer)
    closings.begin(0)
    closed = [closings.closes(0, token) for token in ids]
    if "{" not in tokenizer.decode(ids) and not any(closed):
        action = tokenizer.encode('x{"action": "ka", "arguments": {}}', add_special_tokens=False)
        assert [closings.closes(0, token) for token in action][-1]


def test_a_turn_ends_with_its_action(tiny_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tiny_policy.tokenizer.encode('ka{"action": "ka", "arguments": {}}', add_special_tokens=False)
    wanted = iter([*said, *said, *said])
    monkeypatch.setattr(local, "draw", lambda *_: (torch.tensor([next(wanted)]), torch.tensor([-0.5])))
    sampler = LocalSampler(tiny_policy, 2, 150, stop="json")
    sampler.open(0, 0, 1.0)
    for _ in range(2):
        sampler.submit(0, [5, 6], 60)
        while not (done := sampler.advance()):
            pass
        assert done[0].token_ids == said
        assert done[0].stopped


def test_a_tokenizer_that_cannot_decode_by_token_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"rollout\.stop = 'json'"):
        Closings(cast("PreTrainedTokenizerBase", object()))
