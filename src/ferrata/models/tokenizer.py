"""The tokenizer of the small policies: known pieces whole, numbers in pairs of digits, everything else bytes.

    build_tokenizer   phrases, syllables and words -> a transformers tokenizer
    SPECIAL_TOKENS    the roles of a conversation; CHAT says how a policy folder names them

A text is cut at the leftmost longest known piece, so a piece has the same token in every context: a name is its
two syllables in a sentence, in JSON and in a path. `429` is `42|9`. What no piece covers falls back to single
bytes, so every text comes back exactly: `decode(encode(text)) == text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as InOrder
from transformers import PreTrainedTokenizerFast

TASK, RESULT, ACT, END, PAD = "<|task|>", "<|result|>", "<|act|>", "<|end|>", "<|pad|>"
SPECIAL_TOKENS = (PAD, END, TASK, RESULT, ACT)
"""They take the last ids, in this order, and stay outside the model's own vocabulary: with
`split_special_tokens=True` a text that merely contains one is encoded as plain bytes."""

CHAT: dict[str, Any] = {
    "style": "tokens", "task": TASK, "result": RESULT, "act": ACT, "end": END, "list_tools": False,
}  # fmt: skip
"""The `chat` entry of a policy's ferrata.json."""

DIGITS = tuple(str(n) for n in range(10)) + tuple(f"{n:02d}" for n in range(100))
"""Numbers are cut from the left in pairs; an odd last digit stands alone."""


def build_tokenizer(
    phrases: Sequence[str], syllables: Sequence[str], words: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A tokenizer in which each phrase, syllable and word is one token.

    Args:
        phrases: literal pieces of any length, spaces and newlines included.
        syllables: parts of names.
        words: further pieces, such as the words of error messages.

    Raises:
        ValueError: a piece is empty, or contains an ASCII digit (numbers have their own rule).

    """
    pieces = tuple(dict.fromkeys((*phrases, *syllables, *words)))
    for piece in pieces:
        if not piece or re.search("[0-9]", piece):
            raise ValueError(f"{piece!r} cannot be a token: pieces are not empty and hold no digits.")
    tokenizer = Tokenizer(BPE(vocab=_vocabulary(pieces), merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = _cutter(pieces)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[TASK, RESULT, ACT],
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def padded_size(tokenizer: PreTrainedTokenizerFast, multiple: int = 16) -> int:
    """Rows of an embedding that holds every token: the vocabulary rounded up to a multiple."""
    return -(-len(tokenizer) // multiple) * multiple


def _vocabulary(pieces: Sequence[str]) -> dict[str, int]:
    """Ids in the order: the 256 bytes, digit pairs, pieces. Keys are in the byte alphabet."""
    ordinary = (_in_bytes(piece) for piece in (*DIGITS, *pieces))
    return {token: index for index, token in enumerate(dict.fromkeys((*_bytes(), *ordinary)))}


def _bytes() -> list[str]:
    """The printable stand-ins of the 256 bytes, sorted."""
    return sorted(ByteLevel.alphabet())


def _in_bytes(text: str) -> str:
    """The text as the byte alphabet writes it (a space becomes `Ġ`)."""
    byte_level = ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(part for part, _ in byte_level.pre_tokenize_str(text))


def _cutter(pieces: Iterable[str]) -> PreTokenizer:
    """Cut at the leftmost longest piece or digit pair: alternatives are tried from the longest on."""
    longest_first = sorted(pieces, key=len, reverse=True)
    pattern = "|".join((*(re.escape(piece) for piece in longest_first), "[0-9]{1,2}"))
    return InOrder([Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
