"""What the agent reads: short, private, and ready in no time whatever the tool gave."""

from __future__ import annotations

import time

import pytest

from ferrata.envs.observe import MAX_CHARACTERS, mask, observation_text

PHONES = (
    "+49 30 1234567", "+49 (0)30/1234567", "+15551234567", "+1 (555) 123-4567", "(555) 123-4567", "555-123-4567",
    "555.123.4567", "1-555-123-4567", "030/1234567", "030 1234567", "06 12 34 56 78", "+44 20 7946 0958",
)  # fmt: skip


@pytest.mark.parametrize("phone", PHONES)
@pytest.mark.parametrize("around", ["{}", "call {} today", "phone: {}.", "({})", "{}, or write"])
def test_phone_numbers_are_masked(phone: str, around: str) -> None:
    masked = mask(around.format(phone))
    assert "[phone]" in masked
    assert sum(map(str.isdigit, masked)) == 0


@pytest.mark.parametrize(
    "plain",
    ["2026-11-29", "price: 429", "1,234.50", "order 1034, 372 paid", "12:30", "192.168.1.10", "3.14159265", "step 10"],
)
def test_other_numbers_are_not(plain: str) -> None:
    assert mask(plain) == plain


def test_cards_identities_and_strangers_are_masked_and_colleagues_are_not() -> None:
    text = "4111 1111 1111 1111, 123-45-6789, a.b+c@evil.test, ann@office.test"
    assert mask(text, ("office.test",)) == "[card], [id], [mail], ann@office.test"


def test_the_cut_counts_what_it_leaves_out() -> None:
    assert observation_text("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    for length in (MAX_CHARACTERS + 1, 10 * MAX_CHARACTERS):
        note = f"\n... {length - MAX_CHARACTERS} of {length} characters left out"
        assert observation_text("x" * length) == "x" * MAX_CHARACTERS + note


@pytest.mark.parametrize("position", range(MAX_CHARACTERS - 20, MAX_CHARACTERS + 420, 3))
def test_no_number_is_shown_by_halves(position: int) -> None:
    text = "x" * position + " +49 30 1234567 " + "y" * 3000
    shown = observation_text(text).partition("\n...")[0]
    assert sum(map(str.isdigit, shown)) == 0


def test_the_mask_takes_no_time_to_speak_of() -> None:
    """A pattern that starts anew at every dot would take minutes here."""
    started = time.process_time()
    observation_text("a-" * 50_000 + "@")
    mask("a." * 5_000 + "@" + "b-" * 5_000)
    assert time.process_time() - started < 5.0
