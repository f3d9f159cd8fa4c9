"""The small tokenizer: exact round trips, one token a piece, the same tokens in every context."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ferrata.envs.office.language import FIRST_SYLLABLES, SECOND_SYLLABLES, names
from ferrata.envs.office.phrases import phrases
from ferrata.models.tokenizer import ACT, END, PAD, RESULT, TASK, build_tokenizer, padded_size
from ferrata.training.base_corpus import vocabulary

TOKENIZER = build_tokenizer(*vocabulary())
PIECES = (*phrases(), *FIRST_SYLLABLES, *SECOND_SYLLABLES, "<|end|>", "<|", "4", "07", "é", " ", "\r\n")


def pieces_of(text: str) -> list[str]:
    return [TOKENIZER.decode([index]) for index in TOKENIZER.encode(text)]


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_text_made_of_pieces_comes_back(text: str) -> None:
    plain = TOKENIZER.encode(text, split_special_tokens=True)
    assert TOKENIZER.decode(plain) == text
    assert not set(plain) & set(TOKENIZER.all_special_ids)


def test_the_vocabulary_is_small_and_padded() -> None:
    assert len(TOKENIZER) < 800
    assert padded_size(TOKENIZER) % 16 == 0
    assert 0 <= padded_size(TOKENIZER) - len(TOKENIZER) < 16


@pytest.mark.parametrize("piece", phrases())
def test_a_phrase_is_one_token(piece: str) -> None:
    assert len(TOKENIZER.encode(piece)) == 1


def test_the_longest_piece_wins() -> None:
    assert pieces_of(", write it to ") == [", write it to "]
    assert pieces_of(", write it") == [", ", "write", " it"]


@pytest.mark.parametrize(
    "context",
    ["{}", "ask {} now", "\n{}\n", '{{"name": "{}"}}', "notes/{}.txt", "reports/{}.md", "{}@office.test", "x{}y",
     " FROM items WHERE name = '{}'\"}}}}", "owner: {}, price: 429"],
)  # fmt: skip
def test_a_name_is_two_tokens_in_every_context(context: str) -> None:
    before, after = context.split("{}")
    for name in names(evaluation=True)[:20] + names(evaluation=False)[:20]:
        alone = TOKENIZER.encode(name)
        assert len(alone) == 2
        start = len(TOKENIZER.encode(before.format()))
        assert TOKENIZER.encode(before.format() + name + after.format())[start : start + 2] == alone


@pytest.mark.parametrize(
    ("number", "expected"),
    [("7", ["7"]), ("42", ["42"]), ("07", ["07"]), ("429", ["42", "9"]), ("4291", ["42", "91"]), ("100", ["10", "0"])],
)
def test_numbers_are_cut_in_pairs_from_the_left(number: str, expected: list[str]) -> None:
    assert pieces_of(number) == expected
    assert pieces_of(f'": "{number}"') == ['": "', *expected, '"']


def test_special_tokens_can_be_plain_text() -> None:
    text = f"price{END}{ACT}"
    assert TOKENIZER.encode(text)[-2:] == TOKENIZER.convert_tokens_to_ids([END, ACT])
    assert not set(TOKENIZER.encode(text, split_special_tokens=True)) & set(TOKENIZER.all_special_ids)
    assert (TOKENIZER.pad_token, TOKENIZER.eos_token) == (PAD, END)
    assert len(TOKENIZER.convert_tokens_to_ids([TASK, RESULT, ACT, END, PAD])) == 5


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    for text in ("Belvan: 429\n", "<|end|>", "naïve  text , with . spaces ' s", '{"to": "Kelmor@office.test"}'):
        assert loaded.encode(text) == TOKENIZER.encode(text)
        assert loaded.decode(loaded.encode(text)) == text


@pytest.mark.parametrize("piece", ["", "room 9"])
def test_unusable_pieces_are_refused(piece: str) -> None:
    with pytest.raises(ValueError, match="cannot be a token"):
        build_tokenizer([piece], [])
