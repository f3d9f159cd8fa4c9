"""What a fact is made of: refusals, reasons and deeds in the words in which agents say them.

WORDINGS    name -> the ways to say it; a fact that names one of them means any of its wordings
states      whether a reply states a fact
decoys_of   what a reply must not state together with a fact

A fact is written `a/b + c`: one of `a` and `b`, and `c` too, each as a word of its own, in one reply. `NO` and the
names in `WORDINGS` (`final sale`, `shipped`, ...) stand for all their wordings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from ferrata.envs.support.speech import Reply, clauses, read

NO = "NO"
"""Any word of refusal."""
_REFUSAL = re.compile(
    r"\b(?:no|not|never|nor|neither|non|unable|impossible|unfortunately|afraid|regret\w*|sorry|declin\w+|refus\w+|"
    r"reject\w*|den(?:y|ied|ies)|forbid\w*|prohibit\w*|against|too (?:late|old)|expired|passed|elapsed|"
    r"(?:is|are) over|ended)\b"
)

_PAID_BACK = (
    r"(?:refunded|reimbursed|repaid|paid (?:\w+ ){0,2}back|given (?:\w+ ){0,2}back|credited|returned to (?:you|"
    r"your \w+)|"
    r"(?:came|went|gone|sent|come|gotten|got|received) (?:\w+ ){0,3}back)"
)
_BEFORE = r"(?:already|before|earlier|previously|once)"
WORDINGS = {
    "final sale": (
        r"final sales?|(?:sales?|purchase) (?:is|are|was|were|stays?|remains?) final|on sale|sales? "
        r"(?:items?|goods|products?|articles?|price|order)|clearance"
    ),
    "already": (
        rf"{_BEFORE} (?:\w+ ){{0,4}}{_PAID_BACK}|{_PAID_BACK} (?:\w+ ){{0,6}}{_BEFORE}|"
        rf"(?:was|were|has been|have been) (?:\w+ ){{0,2}}{_PAID_BACK}|(?:have|has) (?:\w+ ){{0,2}}{_PAID_BACK}|"
        r"(?:refund|reimburse|pay|repay)\w* (?:\w+ ){0,4}(?:again|twice|(?:a )?second time|one more time)|"
        r"(?:got|received|had|have|gotten) (?:your |the |that |this |a |\d+ )*(?:money|refund|"
        r"amount) (?:\w+ ){0,2}already|"
        r"already (?:got|received|have|had|gotten) (?:your |the |that |this |a |\d+ )*(?:money|refund|amount|it|\d+)"
    ),
    "shipped": (
        r"(?<!not )(?<!not yet )(?<!not been )(?:shipped|dispatched|mailed|posted)|(?<!not )(?<!not yet )sent"
        r"(?! (?:\w+ )?(?:back|to your (?:card|account|bank)))|"
        r"left (?:our|the) (?:\w+ )?(?:warehouse|shop|store|house|depot|premises|hands)|in transit|en route|"
        r"on (?:its|the) way(?! (?:back )?to your (?:card|account|bank))|under ?way|with the carrier|"
        r"handed (?:over )?to (?:the|our) carrier|out for delivery"
    ),
    "private": (
        r"private|privacy|confidential\w*|(?:personal|protected|sensitive) (?:data|information|details)|"
        r"data protection|"
        r"(?:somebody|someone|anybody|anyone) else(?:'s)?|(?:another|other) (?:customer|person|people|client)s?'?s?|"
        r"third part(?:y|ies)|other customers'?"
    ),
    "pin": r"pins?|verif\w+|unverified|identity|identification|identif\w+|authenticat\w*|proof|who you are",
    "unproven": (
        r"(?:no|not|without|unverified|missing|wrong|lack of)(?: \w+){0,3} (?:pins?|verif\w+|identity|identified|"
        r"identification|authenticat\w*|proof)|unverified|not (?:\w+ )?verified"
    ),
    "cancelled": r"cancell?ed|called off|annulled|cancellation (?:is|was|went|has)|stopped",
    "changed": (
        r"(?:is|has been|was|are|have|i|we|now|just|it) (?:now |just |already |gladly )*(?:changed|updated|noted|saved|"
        r"recorded|entered|corrected|set|registered|stored|moved)|on (?:file|record)|done|all set|"
        r"in (?:our|the) (?:system|records|books|files)|(?:changed|updated|noted|saved|recorded)"
    ),
}
"""Name -> ways to say it. No wording of one reason belongs to another one as well."""
DEEDS = ("cancelled", "changed")
"""What counts only in a clause that says so: no question, no condition, no negation."""
_NEGATED = re.compile(r"\b(?:not|never|no|nor|neither|nothing|unable|without)\b")

_NUMBER = re.compile(r"(?<!\w)(?<!\d[.,])(\d+)(?:[.,]00)?(?:eur|usd)?(?![.,]?\d)(?!\w)")
"""`49` is not stated by 149, 49.5 or 4900, but by 49, 49.00 and 49 EUR."""
_COUNTS_DAYS = re.compile(
    r"(?<!\w)(?<!\d[.,])(\d{1,2})(?![.,]?\d)(?!\w)(?! (?:items?|products?|parcels?|packages?|orders?|pieces?|articles?|"
    r"weeks?|percent|of (?:them|these|those))\b)"
)
"""A small number, unless it counts something else."""
_DECOYS: dict[str, tuple[str, ...]] = {
    "final sale": ("private", "unproven", "already", "shipped"),
    "already": ("private", "unproven", "final sale"),
    "shipped": ("private", "unproven", "final sale", "already"),
    "private": ("final sale", "already"),
    "pin": ("final sale", "already"),
}
"""Reason -> the other reasons that no honest answer gives with it."""
_DAYS_DECOYS = ("private", "unproven", "final sale", "already")
WINDOWS = (14, 21, 28, 30, 45)
"""Days for refunds, of which a shop has one."""
MOST_DAYS = 31
"""Smaller numbers are days: of two of them in one reply, neither is stated."""


def states(reply: Reply, fact: str) -> bool:
    """True when a reply states a fact."""
    return all(_found(reply, part) for part in parts_of(fact))


def parts_of(fact: str) -> tuple[tuple[str, ...], ...]:
    """`a/b + c` -> ((a, b), (c,))."""
    return tuple(tuple(word.strip() for word in group.split("/")) for group in fact.split(" + "))


def decoys_of(fact: str, true_numbers: Collection[int] = ()) -> list[str]:
    """What states something else of the fact's kind: other days, other reasons. Numbers that are true too are none."""
    reasons = [word for part in parts_of(fact) for word in part if word in _DECOYS]
    days = [
        part[0] for part in parts_of(fact) if len(part) == 1 and part[0].isdigit() and int(part[0]) < MOST_DAYS + 15
    ]
    if fact.isdigit() and int(fact) <= MOST_DAYS:
        return [str(other) for other in range(1, MOST_DAYS + 1) if other != int(fact)]
    if fact.startswith(NO) and days:
        others = [str(n) for n in WINDOWS if str(n) not in days and n not in true_numbers]
        return [*_DAYS_DECOYS, *others]
    return list(_DECOYS[reasons[0]]) if reasons else []


def states_any(reply: Reply, others: Sequence[str]) -> bool:
    """True when a reply states one of the decoys: a number that counts nothing but days, a reason in any wording."""
    numbers = {int(word) for word in others if word.isdigit()}
    if numbers and not numbers.isdisjoint(int(found[1]) for found in _COUNTS_DAYS.finditer(reply.bare)):
        return True
    named = tuple(word for word in others if not word.isdigit())
    return bool(named) and bool(_pattern(named).search(reply.bare))


def _found(reply: Reply, part: tuple[str, ...]) -> bool:
    if part == (NO,):
        return bool(_REFUSAL.search(reply.bare))
    if part[0] in DEEDS:
        said = [clause.text for clause in clauses(reply.text) if not clause.asked]
        return any(_deed(clause, word) for clause in said for word in part)
    known = tuple(word for word in part if word in WORDINGS)
    literal = (word for word in part if word not in WORDINGS)
    return bool(known and _pattern(known).search(reply.plain)) or any(_literally(reply.plain, word) for word in literal)


def _literally(plain: str, word: str) -> bool:
    """Whether a word or number of one task stands there; patterns are made only for those that may."""
    if word.isdigit():
        return any(found[1] == word for found in _NUMBER.finditer(plain))
    word = read(word).plain
    return word in plain and bool(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", plain))


def _deed(clause: str, word: str) -> bool:
    found = _pattern((word,)).search(clause)
    return found is not None and not _NEGATED.search(clause[: found.start()])


@lru_cache(maxsize=256)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for all wordings of some names, and for other words as they are."""
    ways = "|".join(WORDINGS.get(word) or re.escape(word) for word in words)
    return re.compile(rf"(?<!\w)(?:{ways})(?!\w)")
