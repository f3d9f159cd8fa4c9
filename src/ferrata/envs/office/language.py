"""The words of the office: names, fields, numbers, and which of them only evaluation may use.

Names are two syllables (`Bel` + `van`), so that a name never met in training is still made of known
pieces. A stable hash reserves about a quarter of the names and a fifth of the numbers for evaluation:
no training task, demonstration or base-model text contains one of them.
"""

from __future__ import annotations

import random
import zlib
from functools import cache

FIRST_SYLLABLES = (
    "Bel", "Cor", "Dal", "Fen", "Gar", "Hol", "Jas", "Kel", "Lum", "Mar", "Nor", "Oz", "Pel", "Quin", "Ros",
    "Sal", "Tam", "Ur", "Vel", "Wil", "Yar", "Zan", "Bri", "Cle", "Dro", "Fla", "Gre", "Kra", "Plo", "Sto",
    "Tri", "Vos",
)  # fmt: skip
SECOND_SYLLABLES = (
    "van", "tis", "mor", "lek", "dun", "ria", "sen", "bex", "nik", "gol", "hart", "pas", "win", "zor", "fay",
    "cus", "dell", "rum", "tova", "lund", "mik", "nor", "pia", "quil", "sko", "thun", "vex", "yle", "bard",
    "cott", "fel", "gim",
)  # fmt: skip

NUMBER_FIELDS = ("price", "stock", "minimum", "weight", "budget", "deadline", "hours", "quota")
NAME_FIELDS = ("owner", "contact", "backup")
MAIL_DOMAIN = "@office.test"


def reserved(text: str) -> bool:
    """True when a name or number belongs to evaluation only. Depends on the text alone."""
    share = 5 if text.isdigit() else 4
    return zlib.crc32(text.encode()) % share == 0


@cache
def names(evaluation: bool) -> tuple[str, ...]:
    """All names of one split: reserved ones for evaluation, the others for training."""
    every = (first + second for first in FIRST_SYLLABLES for second in SECOND_SYLLABLES)
    return tuple(name for name in every if reserved(name) == evaluation)


@cache
def namesakes(name: str, evaluation: bool) -> tuple[str, ...]:
    """All other names of one split that share a syllable with `name`, at the same place."""
    first = next(
        first for first in FIRST_SYLLABLES if name.startswith(first) and name[len(first) :] in SECOND_SYLLABLES
    )
    second = name.removeprefix(first)
    similar = {first + other for other in SECOND_SYLLABLES} | {other + second for other in FIRST_SYLLABLES}
    return tuple(other for other in names(evaluation) if other in similar and other != name)


@cache
def numbers(low: int, high: int, evaluation: bool) -> tuple[str, ...]:
    """The numbers in [low, high) of one split, as text."""
    return tuple(str(n) for n in range(low, high) if reserved(str(n)) == evaluation)


def draw_name(stream: random.Random, evaluation: bool) -> str:
    """One name of the split."""
    return stream.choice(names(evaluation))


def draw_number(stream: random.Random, evaluation: bool, low: int = 100, high: int = 1000) -> str:
    """One number of the split, as text; three digits unless told otherwise."""
    return stream.choice(numbers(low, high, evaluation))
