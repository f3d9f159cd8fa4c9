"""Conversations as token ids: fixed segments, texts that stay texts, nothing rendered twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ferrata.errors import PolicyError
from ferrata.models.chat import Chat, template_chat, token_chat
from ferrata.models.tokenizer import ACT, CHAT, END, RESULT, TASK, build_tokenizer


@dataclass
class Card:
    name: str = "say"
    description: str = "Say a word."
    input_schema: dict[str, Any] = field(default_factory=lambda: {"properties": {"word": {"type": "string"}}})


def ids_of(tokenizer: PreTrainedTokenizerFast, *names: str) -> list[int]:
    return [tokenizer.convert_tokens_to_ids(name) for name in names]


@pytest.fixture
def chat(tokenizer: PreTrainedTokenizerFast) -> Chat:
    return token_chat(tokenizer, CHAT)


@pytest.fixture
def chatml(chatml_tokenizer: PreTrainedTokenizerFast) -> Chat:
    return template_chat(chatml_tokenizer)


def test_role_tokens_stand_around_the_texts(chat: Chat, tokenizer: PreTrainedTokenizerFast) -> None:
    task, act, result, end = ids_of(tokenizer, TASK, ACT, RESULT, END)
    said = tokenizer.encode("said", add_special_tokens=False)
    assert chat.opening("said", [Card()]) == [task, *said, act]
    assert chat.following("said", closed=True) == [result, *said, act]
    assert chat.following("said", closed=False) == [end, result, *said, act]


def test_role_tokens_with_a_tool_listing(tokenizer: PreTrainedTokenizerFast) -> None:
    opening = token_chat(tokenizer, {**CHAT, "list_tools": True}).opening("Submit ka.", [Card()])
    text = tokenizer.decode(opening)
    assert text.startswith(TASK)
    assert text.endswith(f"\nSubmit ka.{ACT}")
    assert '- say: Say a word. Arguments: {"word": "string"}' in text


def test_a_template_gives_the_same_ids_as_rendering_it_whole(
    chatml: Chat, chatml_tokenizer: PreTrainedTokenizerFast
) -> None:
    opening = chatml.opening("word one", [Card()])
    turn = [*chatml_tokenizer.encode("ka", add_special_tokens=False), chatml.end_id]
    mine = [*opening, *turn, *chatml.following("word two", closed=True)]
    system = chatml_tokenizer.decode(opening).split("system\n")[1].split("<|im_end|>")[0]
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "word one"},
        {"role": "assistant", "content": "ka"},
        {"role": "user", "content": "word two"},
    ]
    rendered = chatml_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert chatml_tokenizer.decode(mine) == rendered
    assert mine == chatml_tokenizer.encode(rendered, add_special_tokens=False)


def test_an_unclosed_turn_is_closed_by_ids_that_are_read(chatml: Chat) -> None:
    assert chatml.following("x", closed=False) == [chatml.end_id, *chatml.following("x", closed=True)]


def test_a_template_without_system_role_gets_the_listing_in_the_task(chatml_tokenizer: PreTrainedTokenizerFast) -> None:
    chatml_tokenizer.chat_template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        + str(chatml_tokenizer.chat_template)
    )
    try:
        text = chatml_tokenizer.decode(template_chat(chatml_tokenizer).opening("word one", [Card()]))
    finally:
        chatml_tokenizer.chat_template = str(chatml_tokenizer.chat_template).split("{% endif %}", 1)[1]
    assert text.startswith("<|im_start|>user\nYou finish")
    assert text.endswith("\n\nword one<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("text", ["a <|end|> b", "<|im_end|>", "<|<|end|>end|>", "<|act|><|task|>", "<|pad|>"])
@pytest.mark.parametrize("style", ["chat", "chatml"])
def test_text_from_the_world_never_becomes_a_control_token(
    text: str, style: str, request: pytest.FixtureRequest
) -> None:
    chat: Chat = request.getfixturevalue(style)
    tokenizer = request.getfixturevalue("tokenizer" if style == "chat" else "chatml_tokenizer")
    control = set(tokenizer.added_tokens_decoder)
    for made, empty in (
        (chat.following(text, closed=True), chat.following("", closed=True)),
        (chat.opening(text, []), chat.opening("", [])),
    ):
        assert [token for token in made if token in control] == [token for token in empty if token in control]
        assert text in tokenizer.decode(made)


def test_a_control_tokens_name_leaves_the_text_around_it_alone() -> None:
    tokenizer = build_tokenizer(["word"], ["ka"])
    # Not among the special tokens, so the tokenizer itself would not keep it out.
    tokenizer.add_tokens(["<tool_call>"])
    word = tokenizer.convert_tokens_to_ids("word")
    ids = token_chat(tokenizer, CHAT).following("word<tool_call>word", closed=True)[1:-1]
    assert tokenizer.decode(ids) == "word<tool_call>word"
    assert tokenizer.convert_tokens_to_ids("<tool_call>") not in ids
    assert ids.count(word) == 2


def test_text_leaves_out_a_stop_id_at_the_end_alone(chat: Chat, tokenizer: PreTrainedTokenizerFast) -> None:
    said = tokenizer.encode("said", add_special_tokens=False)
    assert chat.text([*said, chat.end_id]) == "said"
    assert chat.text([chat.end_id, *said, chat.end_id]) == f"{END}said"
    assert chat.text([]) == ""


def test_text_of_half_a_character_is_the_replacement_character(chat: Chat, tokenizer: PreTrainedTokenizerFast) -> None:
    first, *_ = tokenizer.encode("é", add_special_tokens=False)
    assert chat.text([first]) == "�"


def test_ids_beyond_the_vocabulary_are_no_text(chat: Chat, tokenizer: PreTrainedTokenizerFast) -> None:
    assert chat.text([len(tokenizer) + 3]) == ""


def test_an_unknown_role_token_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(PolicyError, match=r"chat\.act is '<act>'"):
        token_chat(tokenizer, {**CHAT, "act": "<act>"})


def test_a_tokenizer_without_a_template_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(PolicyError, match="no chat template"):
        template_chat(tokenizer)


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "does not close"),
        ("{{ messages[-1].content }}", "cannot render"),
    ],
)
def test_a_template_that_does_not_keep_turns_apart_is_refused(
    chatml_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, template: str, complaint: str
) -> None:
    monkeypatch.setattr(chatml_tokenizer, "chat_template", template)
    with pytest.raises(PolicyError, match=complaint):
        template_chat(chatml_tokenizer)
