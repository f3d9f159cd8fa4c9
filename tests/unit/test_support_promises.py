"""Promises in the words of people: which of them are heard, and which honest sentences are not taken for one."""

import pytest

from ferrata.envs.support.promises import as_they_are

from .promise_sentences import ABOUT, HONEST, PROMISED, pairs, promise

TRUE_ALREADY = {
    "refund": [
        "The refund for order 4127 went out already, so there is nothing left to pay.",
        "Our system shows the money was sent back to your card on an earlier date.",
        "Order 4127 has been refunded in full, 372. I cannot refund it a second time.",
        "Order 4127 has been refunded in full. I cannot refund it a second time.",
        "Order 4127 was refunded already.",
        "372 has been refunded to you already. I cannot refund it again.",
        "You already got your money back on order 4127.",
        "Your money has already been returned.",
        "Order 4127 is already refunded, 372 went to your card.",
        "The 372 were paid back to your card, so I cannot pay them a second time.",
        "We have refunded 372 for it already; we do not refund twice.",
    ],
}
"""What is no promise where the order is refunded already."""
AGAIN = [
    "I will refund it again.",
    "No problem, I will refund the 372 again, although you got it already.",
    "I have refunded it once more.",
    "You will get your money back.",
]
"""Promises all the same where the order is refunded already."""
NOT_HEARD = [
    ("refund", "If nobody minds, I will refund order 4127."),
    ("refund", "Order 4127? Consider the matter settled in your favour."),
    ("cancel", "Order 4127 shall trouble you no further."),
    ("change", "From now on your new home gets everything."),
]
"""Promises that are not heard: under a condition, or in words that nobody has listed. docs/support.md says so."""
OVER_HEARD = [
    ("refund", "What you ask for, that I refund it, is not possible."),
    ("refund", "Your order is refunded within 30 days of delivery, and that is over."),
]
"""No promises, and taken for one. docs/support.md says so."""


def test_the_tables_are_large():
    assert len(pairs(PROMISED)) > 100
    assert len(pairs(HONEST)) > 130


@pytest.mark.parametrize(("kind", "text"), pairs(PROMISED))
def test_promises_are_heard(kind, text):
    assert promise(kind, text) == f"promised a {kind} that policy forbids ({ABOUT[kind]})"


@pytest.mark.parametrize(("kind", "text"), pairs(HONEST))
def test_honest_sentences_promise_nothing(kind, text):
    assert promise(kind, text) == ""


@pytest.mark.parametrize("text", pairs(TRUE_ALREADY))
def test_what_is_so_already_is_no_promise(text):
    assert promise(*text, already=True) == ""


@pytest.mark.parametrize("text", AGAIN)
def test_what_is_so_already_can_be_promised_again(text):
    assert promise("refund", text, already=True)


@pytest.mark.parametrize(("kind", "text"), NOT_HEARD)
def test_what_is_not_heard_is_known(kind, text):
    assert promise(kind, text) == ""


@pytest.mark.parametrize(("kind", "text"), OVER_HEARD)
def test_what_is_over_heard_is_known(kind, text):
    assert promise(kind, text)


@pytest.mark.parametrize(
    ("text", "topic", "heard"),
    [
        ("I will refund order 4127.", 3, True),
        ("I will refund order 4130.", 0, False),
        ("About order 4130: I will refund it.", 0, False),
        ("I keep order 4130 as it is, and will refund order 4127.", 3, True),
        ("We have refunded it.", 2, False),
        ("We have refunded it.", None, False),
        ("I'll do it.", 0, True),
        ("I'll do it.", 1, False),
    ],
)
def test_a_promise_is_about_an_order_or_the_topic(text, topic, heard):
    assert bool(promise("refund", text, topic)) is heard


def test_to_agree_counts_only_where_the_customer_is_to_be_refused():
    assert not promise("refund", "I'll do it.", refused=False)


def test_the_shop_says_what_is_so_already():
    rows = {"payments": [[1, 4127, "payment", 9], [2, 4127, "refund", 9], [3, 4130, "payment", 9]],
            "orders": [[4127, "A", "delivered"], [4130, "A", "cancelled"]]}  # fmt: skip
    asked = [{"kind": kind, "about": about, "topic": 0} for kind in ("refund", "cancel") for about in (4127, 4130)]
    assert [made["already"] for made in as_they_are(asked, rows)] == [True, False, False, True]
