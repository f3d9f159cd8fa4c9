"""The customer of rules: it answers when asked, insists, changes its mind, loses patience."""

import json
from typing import Any

import pytest

from ferrata.envs.support.customer import PERSONAS, RuleCustomer, asks

PIN = {"pin": "My PIN is 7713."}


def customer(persona: str, *topics: dict[str, Any]) -> RuleCustomer:
    made = RuleCustomer()
    full = [{"answers": {}, "facts": [], **topic} for topic in topics]
    made.begin({"name": "Anna", "speaker": "Anna", "persona": persona, "answers": PIN, "topics": full})
    return made


@pytest.mark.parametrize(
    ("text", "key", "asked"),
    [
        ("Your PIN, please?", "pin", True),
        ("Please tell me your pin.", "pin", True),
        ("I need to verify your identity: what is the code?", "pin", True),
        ("The PIN is wrong.", "pin", False),
        ("Which order is it?", "order", True),
        ("Your order is shipped.", "order", False),
        ("Which order? Your address stays.", "address", False),
        ("pink?", "pin", False),
    ],
)
def test_questions_are_understood(text: str, key: str, asked: bool) -> None:
    assert asks(text, key) is asked


def test_a_vague_customer_gives_the_number_when_asked() -> None:
    talk = customer("vague", {"say": "Where is it?", "answers": {"order": "It is order 4127."}, "facts": [0]})
    assert talk.hear("Hello!", []) == PERSONAS["vague"].nudge
    assert talk.hear("Which order, please? And your PIN?", []) == "My PIN is 7713. It is order 4127."
    assert talk.given == ["0.pin", "0.order"]
    assert talk.hear("In 3 days.", [0]) == PERSONAS["vague"].thanks
    assert talk.hear("Bye.", [0]) == "Goodbye."


def test_topics_come_one_after_another() -> None:
    talk = customer("plain", {"say": "One", "facts": [0]}, {"say": "Two", "facts": [1]})
    assert talk.hear("x", [1]) == PERSONAS["plain"].nudge
    assert talk.hear("x", [0, 1]) == f"{PERSONAS['plain'].next} Two"
    assert talk.hear("x", [0, 1]) == PERSONAS["plain"].thanks
    assert talk.settled == 2


def test_a_refusal_is_insisted_on_once() -> None:
    talk = customer("insistent", {"say": "Refund it", "facts": [0], "insist": "But why?"})
    assert talk.hear("No, 30 days.", [0]) == "But why?"
    assert (talk.topic, talk.settled) == (0, 0)
    assert talk.hear("Sorry, 30 days.", [0]) == PERSONAS["insistent"].thanks
    assert talk.settled == 1


def test_a_change_of_mind_comes_with_the_answer() -> None:
    first = {"say": "Cancel 4127", "leaves_on": "pin"}
    talk = customer("changing", first, {"say": "No, cancel 4130", "facts": [0]})
    assert talk.hear("One moment.", []) == PERSONAS["changing"].nudge
    assert talk.hear("Your PIN, please?", []) == "My PIN is 7713. No, cancel 4130"
    assert talk.topic == 1


def test_who_has_given_the_pin_before_changes_its_mind_at_once() -> None:
    first = {"say": "Where is it?", "facts": [0]}
    second = {"say": "Cancel 4127", "leaves_on": "pin"}
    talk = customer("changing", first, second, {"say": "No, cancel 4130", "facts": [1]})
    assert talk.hear("Your PIN, please?", []) == "My PIN is 7713."
    assert talk.hear("In 3 days.", [0]) == f"{PERSONAS['changing'].next} Cancel 4127 No, cancel 4130"
    assert (talk.topic, talk.settled) == (2, 2)


def test_what_is_missing_in_a_reply_is_asked_back() -> None:
    back = [["49", "Are you sure?"], ["refunded/money", "How much is it?"]]
    talk = customer("plain", {"say": "Refund it", "facts": [0], "back": back})
    assert talk.hear("Your money is under way.", []) == "How much is it?"
    assert talk.hear("It is 49.", []) == "Are you sure?"
    assert talk.hear("Good morning.", []) == PERSONAS["plain"].nudge
    assert talk.hear("Your money is under way.", [0]) == PERSONAS["plain"].thanks


def test_the_impatient_warn_and_leave_unless_there_is_progress() -> None:
    patience = PERSONAS["impatient"].patience
    talk = customer("impatient", {"say": "Hurry", "facts": [0]})
    said = [talk.wait(False) for _ in range(patience - 1)]
    assert said == [""] * (patience - 3) + ["How long will this take?", ""]
    assert talk.wait(True) == ""
    assert [bool(talk.wait(False)) for _ in range(patience)][-1]
    assert talk.left


def test_who_has_nothing_left_to_ask_does_not_leave_in_anger() -> None:
    talk = customer("impatient", {"say": "Hurry", "facts": [0]})
    talk.hear("x", [0])
    assert not any(talk.wait(False) for _ in range(20))
    assert not talk.left


def test_a_saved_customer_goes_on_where_it_was() -> None:
    topics = ({"say": "Refund it", "facts": [0], "insist": "But why?"}, {"say": "Two", "facts": [1]})
    talk, again = customer("impatient", *topics), customer("impatient", *topics)
    talk.hear("Your PIN? No.", [0])
    talk.wait(False)
    again.load(json.loads(json.dumps(talk.save())))
    assert again.save() == talk.save()
    assert again.hear("No.", [0]) == talk.hear("No.", [0]) == f"{PERSONAS['impatient'].next} Two"
