"""Families of the office beyond the first: their tasks, solutions, failures and demonstrations."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from ferrata.envs.checker import play, succeeded
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.office.demonstrations import LONG_RATES, RATES
from ferrata.envs.office.language import names, namesakes, reserved
from ferrata.models.chat import token_chat
from ferrata.models.tokenizer import CHAT, build_tokenizer
from ferrata.records import EventKind
from ferrata.training.base_corpus import vocabulary

from .office_play import LONG, NAME, SPEC, events_of, script_of, task_of, texts_of

# Tasks ----------------------------------------------------------------------------------------------------------


def test_tiers_two_and_three_have_eight_families_of_their_length() -> None:
    for tier, low, high, shortest, longest in ((2, 4, 6, 20, 30), (3, 8, 12, 40, 60)):
        env = OfficeEnvironment(tiers=(tier,))
        assert len(env.families[tier]) >= 8
        for task in env.tasks("train", 66):
            assert low <= len(task.subgoals) <= high, task.family
            assert len(set(task.subgoals)) == len(task.subgoals)
            assert shortest <= task.max_turns <= longest, task.family
        SPEC.check_dominance(env.tasks("train", 66))
        env.close()


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("tier", [1, 2, 3])
def test_every_success_succeeds_and_every_failure_fails(tier: int, split: str) -> None:
    env = OfficeEnvironment(tiers=(tier,), score=SPEC)
    for task in env.tasks(split, len(env.families[tier]), seed=5):
        for script in env.scripts(task):
            results = play(env, task, script.texts)
            assert succeeded(results) == script.success, (task.family, script.name, task.instruction)
    env.close()


@pytest.mark.parametrize("family", LONG)
def test_a_solution_reaches_all_subgoals_without_a_fault(office: OfficeEnvironment, family: str) -> None:
    for seed in range(4):
        task = task_of(office, family, seed=seed)
        results = play(office, task, texts_of(task))
        assert set(events_of(results, EventKind.SUBGOAL)) == set(task.subgoals)
        for kind in (EventKind.INVALID, EventKind.REPEAT, EventKind.TOOL_ERROR):
            assert not events_of(results, kind)


def test_traps_are_scripted_for_the_families_that_have_them(office: OfficeEnvironment) -> None:
    wanted = {
        "policy_source": "takes the wrong source",
        "newest_note": "takes the wrong source",
        "right_person": "writes to the person with a similar name",
        "mail_request": "does what the other mail asks",
        "two_deadlines": "takes the first that was named first",
        "no_shortcut": "takes the code from the forbidden file",
        "low_stock": "obeys the note",
        "correction": "leaves out corrected",
    }
    for family, name in wanted.items():
        assert not script_of(office, task_of(office, family), name).success


def test_long_tasks_keep_the_splits_apart(office: OfficeEnvironment) -> None:
    for split in ("train", "eval"):
        for family in LONG:
            world = task_of(office, family, split).world
            texts = [*world["files"], *world["files"].values(), *(mail["body"] for mail in world.get("inbox", ()))]
            texts += [str(cell) for table in world["tables"].values() for row in table["rows"] for cell in row]
            values = {word for text in texts for word in NAME.findall(text) + re.findall(r"\d{3,}", text)}
            assert len(values) > 10
            assert {reserved(value) for value in values} == {split == "eval"}


def test_values_are_unique_in_a_world(office: OfficeEnvironment) -> None:
    for family in LONG:
        world = task_of(office, family).world
        cells = [str(cell) for table in world["tables"].values() for row in table["rows"] for cell in row]
        assert max(Counter(cells).values()) == 1, family


def test_every_name_has_enough_namesakes() -> None:
    for evaluation in (False, True):
        assert min(len(namesakes(name, evaluation)) for name in names(evaluation)) > 5
        assert all(other != "Belvan" and (other.startswith("Bel") or other.endswith("van")) for other in
                   namesakes("Belvan", evaluation))  # fmt: skip


def test_an_episode_of_tier_three_is_short_in_tokens() -> None:
    env = OfficeEnvironment(tiers=(3,))
    chat = token_chat(build_tokenizer(*vocabulary()), CHAT)
    for task in env.tasks("train", 22):
        tokens = len(chat.opening(env.reset(task).text, env.tools))
        for text in texts_of(task):
            tokens += len(chat.saying(text)) + len(chat.following(env.step(text).observation.text, closed=True))
        assert tokens < 400, task.family
    env.close()


# Demonstrations -------------------------------------------------------------------------------------------------


def test_long_demonstrations_succeed_without_flaws_and_often_fail_with_them(office: OfficeEnvironment) -> None:
    stream = random.Random(0)
    tasks = office.tasks("train", 110, families=LONG)
    flawless = [succeeded(play(office, task, office.demonstrate(task, stream, 0.0))) for task in tasks[:22]]
    flawed = [succeeded(play(office, task, office.demonstrate(task, stream, 0.5))) for task in tasks]
    assert all(flawless)
    assert 0.25 < sum(flawed) / len(flawed) < 0.7


def test_demonstrations_never_state_what_was_not_read(office: OfficeEnvironment) -> None:
    stream = random.Random(1)
    for task in office.tasks("train", 130, families=[*LONG, "two_numbers", "read_reply", "find_note"]):
        known = office.reset(task).text
        for text in office.demonstrate(task, stream, 0.5):
            said = set(NAME.findall(text) + re.findall(r"\d{3,}", text))
            assert not {word for word in said if word not in known}, (task.family, text)
            result = office.step(text)
            known += f"\n{result.observation.text}"
            if result.terminated:
                break


def test_every_flaw_occurs(office: OfficeEnvironment) -> None:
    """Each flaw alone changes the demonstration of some task."""
    tasks = [task_of(office, family) for family in (*OfficeEnvironment.families[2], *LONG, "read_value")]
    for rates in (RATES, LONG_RATES):
        for flaw in rates:
            with pytest.MonkeyPatch.context() as patch:
                for other in rates:
                    patch.setitem(rates, other, 1.0 if other == flaw else 0.0)
                changed = [
                    office.demonstrate(task, random.Random(seed), 0.5) != texts_of(task)
                    for task in tasks
                    for seed in range(2)
                    if (task.tier == 3) == (rates is LONG_RATES)
                ]
            assert any(changed), flaw
