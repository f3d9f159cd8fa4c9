"""Customer support: what the agent has to say, what it may say before it has looked, and what it need not recite."""

import pytest

from ferrata.envs.support import SupportEnvironment, families, scripts
from ferrata.envs.support.families import FAMILIES
from ferrata.records import EventKind, Task

from .support_play import drawn, kinds, play, task_of


def request_of(support: SupportEnvironment, family: str, fact: str) -> Task:
    """A training task of a family whose first fact begins like this."""
    tasks = support.tasks("train", 30, families=[family])
    return next(task for task in tasks if task.world["goal"]["facts"][0].startswith(fact))


def answers(support: SupportEnvironment, task: Task, steps: list[str]) -> tuple[bool, list[str]]:
    """Whether these steps succeed, and what was observed. A step that is JSON is played as it is."""
    results = play(support, task, [step if step.startswith("{") else scripts.text_of(step) for step in steps])
    return EventKind.SUCCESS in kinds(results), [result.observation.text for result in results]


def test_what_was_not_looked_up_cannot_be_told(support: SupportEnvironment) -> None:
    task = task_of(support, "order_status")
    look, reply, close = task.world["proof"]["solution"]
    done, seen = answers(support, task, [reply, look, close])
    assert not done
    assert seen[0] == f"customer: {families.SURE}"
    assert answers(support, task, [reply, look, reply, close])[0]


def test_days_cannot_be_tried_one_by_one(support: SupportEnvironment) -> None:
    task = task_of(support, "order_status")
    look, reply, close = task.world["proof"]["solution"]
    days = int(task.world["goal"]["facts"][0])
    wrong = [f"reply: It comes in {days + at} days." for at in (1, 2, 3)]
    assert answers(support, task, [look, *wrong[:2], reply, close])[0]
    assert not answers(support, task, [look, *wrong, reply, close])[0]


def test_a_fact_is_known_from_whatever_shows_it(support: SupportEnvironment) -> None:
    task = request_of(support, "cancel", "NO + shipped")
    number, name = task.world["goal"]["promises"][0]["about"], task.world["customer"]["name"]
    told = ["reply: It has left our warehouse, so I can't cancel it.", "close_case"]
    assert not answers(support, task, told)[0]
    for look in (f"look_up_order: {number}", f"look_up_shipment: {number}", f"look_up_customer: {name}"):
        assert answers(support, task, [look, *told])[0]
    tried = [f"look_up_customer: {task.world['shop']['customers'][-1][0]}", f"cancel_order: {number}"]
    assert answers(support, task, [*tried, *told])[0]


def test_a_guessed_pin_is_refused_once_it_is_checked(support: SupportEnvironment) -> None:
    tasks = support.tasks("train", 30, families=["stranger"])
    task = next(task for task in tasks if "checked" in task.subgoals)
    ask, check, refuse, close = task.world["proof"]["solution"]
    assert not answers(support, task, [ask, refuse, close])[0]
    assert answers(support, task, [ask, check, refuse, close])[0]


@pytest.mark.parametrize(
    ("family", "fact", "said"),
    [
        ("refused_refund", "NO + already", "It has already been refunded in full, so I can't refund it a second time."),
        ("cancel", "cancelled", "Done: your order is cancelled and the money goes back to your card."),
        ("new_address", "", "Done, your new address is on file."),
    ],
)
def test_nothing_has_to_be_recited(support: SupportEnvironment, family: str, fact: str, said: str) -> None:
    task = next(
        task for task in support.tasks("train", 30, families=[family])
        if task.world["goal"]["facts"][0].startswith(fact) and (fact.startswith("NO") or task.world["goal"]["changes"])
    )  # fmt: skip
    *steps, _, close = task.world["proof"]["solution"]
    assert answers(support, task, [*steps, f"reply: {said}", close])[0]


def test_a_number_that_is_missing_is_asked_for(support: SupportEnvironment) -> None:
    task = task_of(support, "refund")
    *steps, reply, close = task.world["proof"]["solution"]
    vague = "reply: Your refund is on its way to your card."
    done, seen = answers(support, task, [*steps, vague, reply, close])
    assert done
    assert seen[len(steps)] == "customer: How much is it?"
    assert not answers(support, task, [*steps, vague, close])[0]
    handed = task_of(support, "damaged")
    *steps, reply, close = handed.world["proof"]["solution"]
    seen = answers(support, handed, [*steps, "reply: A colleague takes care of it."])[1]
    assert seen[-1] == "customer: What is the ticket number?"


@pytest.mark.parametrize("family", ["lost_and_found", "complaint", "late_and_sorry", "moving_house", "over_the_limit"])
def test_who_verifies_early_succeeds(support: SupportEnvironment, family: str) -> None:
    for task in support.tasks("train", 4, families=[family]):
        name, pin = task.world["customer"]["name"], task.world["shop"]["customers"][0][5]
        ask, check = "reply: Your PIN, please?", f"verify_identity: {name} | {pin}"
        rest = [step for step in task.world["proof"]["solution"] if step not in (ask, check)]
        assert answers(support, task, [ask, check, *rest])[0], task.instruction


def test_the_most_natural_question_for_a_pin_loses_nothing(support: SupportEnvironment) -> None:
    for task in support.tasks("train", 12, families=["new_address", "stranger"]):
        for asking in (
            "Happy to help. Please tell me your PIN so I can update the address for you.",
            "Of course, I can change that for you. What is your PIN?",
        ):
            steps = [
                f"reply: {asking}" if step == "reply: Your PIN, please?" else step
                for step in task.world["proof"]["solution"]
            ]
            assert answers(support, task, steps)[0], (task.instruction, asking)


def test_who_knows_nothing_and_agrees_or_tells_everything_wins_nowhere(support: SupportEnvironment) -> None:
    played = set()
    for task in [task for family in FAMILIES for task in drawn(family)]:
        found = {script.name: script for script in support.scripts(task)}
        for name, script in found.items():
            if "everything at once" in name or "agrees politely" in name:
                assert EventKind.SUCCESS not in kinds(play(support, task, script.texts)), (task.family, name)
                played.add(name)
        assert "tells everything at once" in found
        assert bool(task.world["goal"]["promises"]) == any("agrees politely" in name for name in found)
    assert played >= {"tells everything at once", "agrees politely", "gives in and agrees politely"}
