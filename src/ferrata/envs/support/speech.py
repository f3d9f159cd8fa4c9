"""How a reply is read: plain words, set phrases dropped, clause by clause.

read      a text in plain words, and without phrases like "no problem" that say no without refusing
clauses   the clauses of a reply, and whether each says something that is so or will be so
asks      whether a reply asks for something

Nothing here knows what a shop is; `wordings` and `promises` do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
_UNITS += "seventeen eighteen nineteen"
_VALUES = {word: value for value, word in enumerate(_UNITS.split())}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_SMALL = "|".join(word for word, value in _VALUES.items() if value > 1)
_NUMBER_WORD = re.compile(rf"\b(?:({'|'.join(_TENS)})(?: ({'|'.join(_VALUES)}))?|({_SMALL}))\b")
"""`one` alone is left: no one, one moment, this one."""

_CONTRACTED = tuple(
    (re.compile(short), full)
    for short, full in (
        (r"\bcan't\b", "can not"), (r"\bwon't\b", "will not"), (r"\bshan't\b", "shall not"), (r"n't\b", " not"),
        (r"'ll\b", " will"), (r"'ve\b", " have"), (r"'re\b", " are"), (r"'d\b", " would"), (r"\bi'm\b", "i am"),
        (r"\blet's\b", "let us"), (r"\b(it|that|there|here|what|he|she)'s\b", r"\1 is"),
    )
)  # fmt: skip
_HYPHEN = re.compile(r"(?<=[^\W\d])[-‐‑](?=[^\W\d])")

_PHRASES = re.compile(
    r"\b(?:no (?:problems?|worries|trouble|bother|big deal|doubt|matter (?:what|how|that|if|whether)|need to worry)"
    r"(?: at all| whatsoever)?|not (?:a problem|an issue|a worry|at all|to worry|only|just|merely|simply)|"
    r"(?:do not|never) (?:worry|mind|hesitate)|of course|why not|(?:whether )?or not|no reason not to|"
    r"no (?:more|later|longer) than|(?:with|without) (?:no |any )?(?:further )?(?:delay|ado|hesitation|fuss)|"
    r"no (?:questions asked|strings attached)|as soon as (?:possible|i can|we can)|(?:just |only |for )?this once|"
    r"if (?:possible|you (?:like|wish|do not mind|please|agree)|that is (?:fine|all right|ok)|that (?:suits|helps))|"
    r"if (?:you|there)(?: \w+){1,3} (?:any\w*|some\w*|else|more|questions?|further)\b[^,.!?;\n]*)\b"
)
"""Set phrases that neither refuse nor set a condition."""
_BLANKS = re.compile(r"[^\S\n]{2,}|[\t\r\f\v\xa0]")
_EVEN = re.compile(r"\beven (?:if|when|after|though)\b")


@dataclass(frozen=True)
class Reply:
    """One reply, read."""

    text: str
    """As it was written."""
    plain: str
    """Small letters, contractions written out, hyphens as blanks, number words as numbers."""
    bare: str
    """The same without set phrases."""


@lru_cache(maxsize=1024)
def read(text: str) -> Reply:
    """Read a reply."""
    plain = text.lower().replace("’", "'").replace("‘", "'").replace("cannot", "can not")
    for short, full in _CONTRACTED if "'" in plain else ():
        plain = short.sub(full, plain)
    plain = _BLANKS.sub(" ", _NUMBER_WORD.sub(_in_digits, _HYPHEN.sub(" ", plain)))
    return Reply(text, plain, _BLANKS.sub(" ", _EVEN.sub("although", _PHRASES.sub(" ", plain))))


def _in_digits(found: re.Match[str]) -> str:
    tens, unit, small = found.groups()
    return str(_TENS.get(tens, 0) + _VALUES.get(unit or small, 0))


# Clauses ------------------------------------------------------------------------------------------------------------

_SENTENCE = re.compile(r"[^.!?;\n]+[.!?;\n]?")
_POINT = re.compile(r"(?<=\d)[.,](?=\d)")
"""Points and commas inside numbers end nothing."""
_BREAK = re.compile(
    r"[,:()\"“”]|\s[-–]\s|—|"
    r"\b(?=(?:and|but|or|so|because|although|though|however|while|whereas|yet|if|unless|whether|"
    r"once(?! more| again)|when|whenever|as soon as|as long as|provided|assuming|in case|before|after|until|till|then|"
    r"which|who)\b)"
)
_WORD = re.compile(r"[\w']+")
_PURPOSE = re.compile(r"^so (?:that )?(?:i|we) (?:can|could|may|am able)\b")
_REQUESTING = re.compile(
    r"\b(?:please|tell|give|needs?|provide|send|share|confirm|pin|verify|check|look|see|require|ask|let me|may i)\b"
)
_PROOF = r"(?: \w+){0,3} (?:pins?|verif\w+|identity|identification|checks?|proof|confirmation)\b"
_SUBJECT = r" (?:i|we|you|he|she|it|they|this|that)\b"
_UNREAL = re.compile(
    rf"^(?:if|unless|whether|once|when|whenever|as soon as|as long as|provided|assuming|in case)\b|"
    rf"^(?:before|after|until|till)(?:{_SUBJECT}|{_PROOF})"
)
"""Beginnings of clauses that say what is not so yet."""
_SETS_CONDITION = re.compile(
    r"^(?:if|unless|once|when|whenever|as soon as|as long as|provided|assuming|in case|after)\b"
)
"""Those that what stands beside them depends on."""
_JOINS = re.compile(r"^(?:and|but|so|or|yet|however)\b")
_INVERTED = re.compile(
    r"^(?:shall|should|can|could|may|might|would|will|do|does|did|is|are|was|has|have|what|which|who|when|"
    r"where|why|how)\b(?! (?:will|have|has|is) )"
)
_LEAD = re.compile(
    r"^(?:and|but|so|or|then|yet|however|yes|no|ok|okay|well|sure|right|fine|all right|alright|sorry|please|thus|"
    r"therefore|because|although|though|now|certainly|absolutely|gladly|great|good)\b "
)
_AUXILIARY = (
    r"will|shall|can|could|would|may|have|has|had|am|are|is|be|been|going to|not|never|also|now|then|just|\w+ly"
)
_ACTOR = re.compile(rf"\b(i|we|they|(?:my|our|a) \w+)((?: (?:{_AUXILIARY}))*)(?= |$)")
_OPENS_WITH_AUXILIARY = re.compile(r"^(?:will|shall|can|have|has|am|are|did)\b")
_OPENS_WITH_ACT = re.compile(
    r"^(?:(?:then|also|now|just|\w+ly) )*(?!\w+ing\b)(?:refund|reimburs|repa|pay|paid|cancel|annul|stop|chang|"
    r"updat|correct|"
    r"set|enter|"
    r"note|record|save|send|sent|give|gave|issu|process|approv|grant|credit|transfer|return|tell|share|"
    r"put)\w*\b(?! (?:is|are)\b)"
)


@dataclass(frozen=True)
class Clause:
    """One clause of a reply."""

    text: str
    """Words with one blank between them; the subject of the clause before it where it has none of its own."""
    sentence: str
    real: bool
    """False for questions, conditions and what depends on them, purposes."""
    asked: bool
    """True for questions, conditions themselves and purposes."""


@lru_cache(maxsize=1024)
def clauses(text: str) -> tuple[Clause, ...]:
    """The clauses of a reply, in order."""
    bare = _POINT.sub("", read(text).bare)
    return tuple(clause for sentence in _SENTENCE.findall(bare) for clause in _of_sentence(sentence))


@dataclass
class _Piece:
    """A clause in the making."""

    text: str
    own: bool
    """Not real by itself: a question, a condition, a purpose."""
    conditional: bool
    """A condition for the clauses beside it."""


def _of_sentence(sentence: str) -> list[Clause]:
    """The clauses of one sentence.

    A condition holds for the clauses that no `and` or `but` parts from it, and when it comes first, for those after
    an `and` as well.
    """
    words = (" ".join(_WORD.findall(piece)) for piece in _BREAK.split(sentence))
    pieces = [piece for piece in words if piece]
    groups: list[list[_Piece]] = [[]]
    own = False
    for at, piece in enumerate(pieces):
        purpose = bool(_PURPOSE.search(piece) and _REQUESTING.search(sentence))
        if groups[-1] and _JOINS.search(piece) and not purpose:
            groups.append(_joined(groups[-1], piece))
        text, follows = _with_subject(piece, pieces[:at])
        question = sentence.rstrip().endswith("?") and (at == len(pieces) - 1 or bool(_INVERTED.search(text)))
        condition = bool(_UNREAL.search(piece))
        own = purpose or question or condition or (follows and own)
        groups[-1].append(_Piece(text, own, condition and bool(_SETS_CONDITION.search(piece))))
    return [_clause(piece, group, sentence) for group in groups for piece in group if piece.text]


def _joined(group: list[_Piece], piece: str) -> list[_Piece]:
    """What a new group begins with: the condition that came first in the one before, after an `and`."""
    return [_Piece("", True, True)] if group[0].conditional and piece.startswith("and") else []


def _clause(piece: _Piece, group: list[_Piece], sentence: str) -> Clause:
    depends = any(other.conditional for other in group)
    return Clause(piece.text, sentence, not (piece.own or depends), piece.own)


def _with_subject(piece: str, before: Sequence[str]) -> tuple[str, bool]:
    """A clause without its joining word, with the subject of one before it; whether it needed that."""
    text = piece
    while lead := _LEAD.match(text):
        text = text[lead.end() :]
    auxiliary = _OPENS_WITH_AUXILIARY.search(text)
    if not (auxiliary or _OPENS_WITH_ACT.search(text)):
        return text, False
    actors = next((found for found in map(_ACTOR.findall, reversed(before[-3:])) if found), None)
    if actors is None:
        return text, False
    return f"{actors[-1][0] if auxiliary else ''.join(actors[-1])} {text}", True


# Questions ----------------------------------------------------------------------------------------------------------

_QUESTIONS = {
    "pin": re.compile(r"\bpins?\b|\bverify\b|\bverification\b|\bidentity\b"),
    "order": re.compile(r"\border\b"),
    "address": re.compile(r"\baddress\b|\bwhere\b"),
    "item": re.compile(r"\bitems?\b|\bproduct\b|\bwhat is\b"),
}
"""What a reply asks for -> the words that ask for it."""
_REQUEST = re.compile(
    r"\?|\bplease\b|\b(?:tell|give|send) me\b|\bi (?:would |will |do )?need\b|\bwhat\b|\bwhich\b|\b(?:provide|"
    r"confirm) your\b"
)
_ASKING = re.compile(r"[^.?!\n]*[.?!\n]?")


def asks(text: str, key: str) -> bool:
    """True when a sentence of the text asks for the thing of this key."""
    sentences = _ASKING.findall(text.lower().replace("’", "'").replace("i'd ", "i would "))
    return any(_REQUEST.search(sentence) and _QUESTIONS[key].search(sentence) for sentence in sentences)
