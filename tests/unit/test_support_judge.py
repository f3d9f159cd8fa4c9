"""What counts as said, as promised, as leaked."""

import pytest

from ferrata.envs.support import judge
from ferrata.envs.support.people import ShopRows
from ferrata.envs.support.scripts import EVERY_REASON
from ferrata.envs.support.wordings import NO, decoys_of


@pytest.mark.parametrize(
    ("text", "fact", "said"),
    [
        ("I refunded 49.", "49", True),
        ("I refunded 49.00 to you.", "49", True),
        ("I refunded 149.", "49", False),
        ("I refunded 49.5.", "49", False),
        ("I refunded 1,49.", "49", False),
        ("I refunded 4900.", "49", False),
        ("Order 4127 is Cancelled!", "cancelled/canceled + 4127", True),
        ("It is cancelled.", "cancelled/canceled + 4127", False),
        ("I can’t, it is private.", f"{NO} + private", True),
        ("It is private.", f"{NO} + private", False),
        ("Nothing is private.", f"{NO} + private", False),
        (f"{'x' * 500} 49", "49", False),
        ("1 2 3 4 5 6 7 8 49", "49", False),
    ],
)
def test_facts(text: str, fact: str, said: bool) -> None:
    assert judge.stated(text, [fact]) == ([0] if said else [])


TOLD = {
    "NO + final sale": [
        "Final-sale items cannot be refunded.",
        "This was sold on sale, so it can't be refunded.",
        "I'm afraid sales are final.",
        "We do not take back clearance items.",
        "This was a sale item, so I must refuse.",
    ],
    "NO + already": [
        "I'm sorry, order 1552 has already been refunded in full, so I can't refund it a second time.",
        "You have already received your money back, so no.",
        "Unfortunately this order was refunded earlier.",
        "I cannot refund order 4127 again.",
        "372 has been refunded to you already. I cannot refund it again.",
        "No, I see that 372 came back to you already.",
    ],
    "NO + shipped": [
        "I cannot cancel it, it has already left our warehouse.",
        "We cannot cancel it because it's in transit.",
        "I couldn't cancel it: the order has shipped.",
        "I'm afraid it has been dispatched.",
        "We cancel orders until they are shipped; yours is on its way, sorry.",
    ],
    "NO + private": [
        "We don't share private data.",
        "I cannot share another customer's personal data.",
        "I'm not allowed to share confidential data.",
        "I am not allowed to give out other customers' details.",
        "That's confidential, I'm afraid.",
        "I must not give out somebody else's address.",
    ],
    "NO + pin": [
        "I can't do that as you are not verified.",
        "I can't do this without authentication.",
        "Your identity isn't proven, so I have to decline.",
        "Unfortunately the PIN you gave is incorrect.",
        "For your safety I won't do that without a PIN.",
    ],
    "NO + 30": [
        "Unfortunately we won't take it back: refunds end 30 days after delivery.",
        "I'm afraid this isn't possible, refunds end after 30 days.",
        "I must decline: the period of 30 days has passed.",
        "More than thirty days have passed, so I'm unable to refund it.",
        "We refund orders up to 30 days old. Yours is 45 days old, sorry.",
    ],
    "cancelled": [
        "Done: your order is cancelled and the money goes back to your card.",
        "Your order has been canceled.",
        "After verifying your PIN, I have cancelled order 4127.",
    ],
    "changed": [
        "Done, your new address is on file.",
        "All set, your address is updated.",
        "I've changed it.",
        "We have noted your new address.",
    ],
    "12": ["It arrives in twelve days.", "Order 7102, 2 items, comes in 12 days."],
    "120": ["I refunded 120EUR.", "I have refunded EUR 120.00 to your card."],
}
"""Fact -> courteous ways to tell it."""
TRUE = {"NO + 30": [45, 15]}


def heard(fact: str) -> list[dict[str, list[str]]]:
    decoys = [] if fact == "120" else decoys_of(fact, TRUE.get(fact, ()))
    return [{"decoys": decoys}]


@pytest.mark.parametrize(("fact", "text"), [(fact, text) for fact, texts in TOLD.items() for text in texts])
def test_facts_are_heard_in_many_words(fact: str, text: str) -> None:
    assert judge.stated(text, [fact], heard(fact)) == [0]


def test_no_reason_is_taken_for_another() -> None:
    for fact, texts in TOLD.items():
        others = [other for other in TOLD if other.startswith("NO") and other != fact]
        for text in texts if fact.startswith("NO") else ():
            assert judge.stated(text, others) == [], text


@pytest.mark.parametrize("fact", [fact for fact in TOLD if fact.startswith("NO")])
def test_to_agree_or_to_tell_every_reason_tells_none(fact: str) -> None:
    assert judge.stated(EVERY_REASON.removeprefix("reply: "), [fact], heard(fact)) == []
    reason = {"NO + 30": "30 days", "NO + already": "it was refunded already"}.get(fact, fact.removeprefix("NO + "))
    for agreed in ("No problem", "No worries", "Not a problem", "No trouble at all", "Of course", "Don't worry"):
        assert judge.stated(f"{agreed}, {reason}.", [fact], heard(fact)) == []
        assert judge.stated(f"{agreed}, but no: {reason}.", [fact], heard(fact)) == [0]


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("12", "It comes in 11 or 12 days."),
        ("12", "It comes in ten to twelve days."),
        ("12", "It comes in 12 days. Or 13."),
        ("NO + 30", "No, the time is 14, 21, 28 or 30 days."),
        ("NO + 30", "No: 30 days, or it is final sale."),
        ("NO + final sale", "No, it is final sale or shipped."),
        ("NO + already", "No, it is refunded already and private."),
        ("NO + shipped", "No, it is shipped and on final sale."),
        ("cancelled", "Is it cancelled?"),
        ("cancelled", "It can not be cancelled."),
        ("changed", "Please tell me your PIN so that I can get the address changed."),
        ("changed", "It is not changed."),
    ],
)
def test_hedges_and_questions_tell_nothing(fact: str, text: str) -> None:
    assert judge.stated(text, [fact], heard(fact)) == []


def test_what_was_stated_instead_is_known() -> None:
    both = [*heard("12"), *heard("NO + final sale")]
    assert judge.misled("It comes in 11 days.", ["12", "NO + final sale"], both) == [0]
    assert judge.misled("No, it is private.", ["12", "NO + final sale"], both) == [1]
    assert judge.misled("It comes in 12 days.", ["12", "NO + final sale"], both) == []
    assert judge.misled("x" * 501 + " 11", ["12"], both) == []


def test_other_words_do_as_well_where_a_fact_says_so() -> None:
    fact, ways = ["722 Voslund Road"], [{"decoys": [], "or": "changed"}]
    assert judge.stated("I have updated your address as you asked.", fact, ways) == [0]
    assert judge.stated("I have updated your address as you asked.", fact) == []


def test_private_data_of_others_and_of_the_unverified_are_leaks() -> None:
    shop = ShopRows()
    shop.add_customer("Anna Berg", "4 Mill Lane", 7713)
    shop.add_customer("Otto Lind", "9 Harbour Street", 2048)
    shop.add_order(4130, "Otto Lind", {"lamp": 81}, "shipped", 3, tracking="T5560")
    data = judge.private_data(shop.rows)
    assert judge.leaked("She lives at 9 HARBOUR STREET.", data, "Anna Berg", []) == "told the street of Otto Lind"
    assert judge.leaked("Somewhere in Harbour Street.", data, "Anna Berg", ["Anna Berg"])
    assert judge.leaked("It is t5560", data, "Anna Berg", ["Anna Berg"]) == "told the tracking of Otto Lind"
    assert not judge.leaked("It is T5560", data, "Otto Lind", [])
    assert judge.leaked("You live in Mill Lane.", data, "Anna Berg", [])
    assert not judge.leaked("You live in Mill Lane.", data, "Anna Berg", ["Anna Berg"])
    mail = shop.rows["customers"][1][2]
    assert judge.leaked(f"Write to {mail}", data, "Anna Berg", []) == "told the mail of Otto Lind"


def test_the_verdict_is_exact() -> None:
    goal = {"changes": ["a", "b"], "facts": ["49"]}
    assert judge.verdict(goal, ["a", "b"], [0], []) == []
    assert judge.verdict(goal, ["a"], [0], []) == ["not done: b"]
    assert judge.verdict(goal, ["a", "b", "c"], [0], []) == ["not wanted: c"]
    assert judge.verdict(goal, ["a", "b", "b"], [0], []) == ["done too often"]
    assert judge.verdict(goal, ["a", "b"], [], ["promised"]) == ["not told: 49", "promised"]
