"""The office beyond its first families: tier 3, the later tools, people who answer, traps, saved worlds."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from ferrata.envs import Script, call
from ferrata.envs.checker import play, succeeded
from ferrata.envs.faults import FaultRates
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.office.demonstrations import LONG_RATES, RATES
from ferrata.envs.office.families import TOOL_SETS
from ferrata.envs.office.goals import Part, of_kind, parts_of
from ferrata.envs.office.language import FIRST_SYLLABLES, SECOND_SYLLABLES, names, namesakes, reserved
from ferrata.envs.office.solutions import solution
from ferrata.envs.tools import tools_of
from ferrata.models.chat import token_chat
from ferrata.models.tokenizer import CHAT, build_tokenizer
from ferrata.records import EventKind, StepResult, Task
from ferrata.rewards import RewardSpec
from ferrata.training.base_corpus import vocabulary

SPEC = RewardSpec()
NAME = re.compile(f"(?:{'|'.join(FIRST_SYLLABLES)})(?:{'|'.join(SECOND_SYLLABLES)})")
LONG = OfficeEnvironment.families[3]


@pytest.fixture(scope="module")
def office() -> Iterator[OfficeEnvironment]:
    env = OfficeEnvironment(tiers=(1, 2, 3), score=SPEC)
    yield env
    env.close()


def task_of(office: OfficeEnvironment, family: str, split: str = "train", seed: int = 0) -> Task:
    return office.tasks(split, 1, seed=seed, families=[family])[0]


def texts_of(task: Task) -> list[str]:
    return [text for _, text in solution(task)]


def part_of(task: Task, subgoal: str) -> Part:
    return next(part for part in parts_of(task.world["goal"]) if part["subgoal"] == subgoal)


def script_of(office: OfficeEnvironment, task: Task, name: str) -> Script:
    return next(script for script in office.scripts(task) if script.name == name)


def events_of(results: list[StepResult], kind: EventKind) -> list[str]:
    return [event.name for result in results for event in result.events if event.kind == kind]


def play_until(office: OfficeEnvironment, task: Task, subgoal: str) -> StepResult:
    """Play the solution up to the step that reaches a subgoal."""
    office.reset(task)
    for text in texts_of(task):
        result = office.step(text)
        if subgoal in events_of([result], EventKind.SUBGOAL):
            return result
    raise AssertionError(f"the solution never reaches {subgoal}")


def mail(part: Part, body: str) -> str:
    return call("send_message", to=part["to"], subject="x", body=body, confirm=True)


# Families -------------------------------------------------------------------------------------------------------


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


# People who answer ----------------------------------------------------------------------------------------------


def test_a_reply_must_be_read_to_count(office: OfficeEnvironment) -> None:
    task = task_of(office, "approved_choice")
    reply = part_of(task, "answered")
    results = play(office, task, texts_of(task))
    seen = [at for at, result in enumerate(results) if reply["value"] in result.observation.text]
    arrived = [at for at, result in enumerate(results) if "new mail 1 from" in result.observation.text]
    sent = next(at for at, (name, _) in enumerate(solution(task)) if name == "sent")
    assert arrived == [sent + reply["delay"]]
    assert len(seen) == 1
    assert seen[0] > arrived[0]
    assert "answered" in events_of(results[seen[0] : seen[0] + 1], EventKind.SUBGOAL)
    raw = (office._workspace.root / "inbox" / "0002.eml").read_text()
    assert f"code: {reply['value']}" in raw


def test_a_correction_changes_the_report(office: OfficeEnvironment) -> None:
    task = task_of(office, "correction")
    first, last = part_of(task, "written"), part_of(task, "corrected")
    assert first["path"] == last["path"]
    assert first["value"] in last["decoys"]
    assert succeeded(play(office, task, texts_of(task)))
    assert office._workspace.read(last["path"]) == last["value"]


@pytest.mark.parametrize(
    ("body", "answer"),
    [("none", "missing: {field}"), ("{decoy}", "wrong: {field}"), ("{value} {decoy}", "too much")],
)
def test_somebody_objects_to_a_wrong_mail_and_takes_a_second_one(
    office: OfficeEnvironment, body: str, answer: str
) -> None:
    task = task_of(office, "one_more_number")
    part = part_of(task, "sent")
    play_until(office, task, "written")
    words = {"value": part["value"], "decoy": part["decoys"][0], "field": part["subject"]}
    wrong = office.step(mail(part, body.format(**words)))
    assert wrong.observation.text == f"sent\nnew mail 1 from {part['to']}"
    assert not events_of([wrong], EventKind.SUBGOAL)
    read = office.step(call("read_messages", number=1))
    assert read.observation.text.endswith(answer.format(**words))
    assert events_of([office.step(mail(part, part["value"]))], EventKind.SUBGOAL) == ["sent"]


@pytest.mark.parametrize(("body", "verdict"), [("hm", True), ("{value} {decoy}", True), ("{decoy}", False)])
@pytest.mark.parametrize("family", ["policy_source", "approved_choice", "inventory"])
def test_a_wrong_mail_cannot_be_taken_back(office: OfficeEnvironment, family: str, body: str, verdict: bool) -> None:
    """Otherwise whoever objects could be asked what is right."""
    task = task_of(office, family)
    at = [name for name, _ in solution(task)].index("sent")
    texts, part = texts_of(task), part_of(task, "sent")
    first = mail(part, body.format(value=part["value"], decoy=part["decoys"][0]))
    later = [re.sub(r'(?<="number": )\d+', lambda found: str(int(found[0]) + 1), text) for text in texts[at:]]
    assert succeeded(play(office, task, [*texts[:at], first, *later])) == verdict


@pytest.mark.parametrize(
    ("family", "sql", "found"),
    [
        ("query_value", "SELECT * FROM {table}", True),
        ("query_value", "SELECT name || ': ' || {field} AS x FROM {table} WHERE name = '{x}'", True),
        ("query_value", "SELECT avg(t.{field}) FROM {table} AS t WHERE name = '{x}'", True),
        ("query_value", "WITH a AS (SELECT * FROM {table}) SELECT {field} FROM a WHERE name LIKE '{x}%'", True),
        ("query_value", "SELECT {value}", False),
        ("query_value", "SELECT {value}, name FROM {table} WHERE name = '{x}'", False),
        ("query_value", "SELECT {field} FROM {table} WHERE name = 'Nobody'", False),
        ("query_value", "SELECT {field} FROM {table} WHERE name = '{x}' AND 0", False),
        ("query_value", "SELECT count(*) FROM {table} WHERE name = '{x}'", False),
    ],
)
def test_which_queries_are_look_ups(office: OfficeEnvironment, family: str, sql: str, found: bool) -> None:
    task = task_of(office, family)
    part = part_of(task, "found")
    words = {"table": part["table"], "field": part["field"], "x": part["name"], "value": part["value"]}
    for _ in range(2):
        # A second episode on the same connection: what was read is known from the query, not from memory.
        results = play(office, task, [call("query_database", sql=sql.format(**words))] * 2)
        assert events_of(results[:1], EventKind.SUBGOAL) == ["found"] * found


@pytest.mark.parametrize("family", ["mail_query", "two_numbers", "approved_choice", "correction"])
def test_the_right_mail_cannot_be_taken_back(office: OfficeEnvironment, family: str) -> None:
    task = task_of(office, family)
    part = next(part for part in parts_of(task.world["goal"]) if part["do"] == "send")
    *before, end = texts_of(task)
    again = mail(part, f"Correction: my last mail was wrong, it is {part['decoys'][0]}.")
    assert not succeeded(play(office, task, [*before, again, end]))


def test_one_query_can_compare(office: OfficeEnvironment) -> None:
    task = task_of(office, "compare_rows")
    one, other = part_of(task, "found_1"), part_of(task, "found_2")
    order = "" if task.world["goal"]["compare"] == "lower" else "DESC"
    sql = (
        f"SELECT name FROM {one['table']} WHERE name IN ('{one['name']}', '{other['name']}') "
        f"ORDER BY {one['field']} {order} LIMIT 1"
    )
    results = play(office, task, [call("query_database", sql=sql), texts_of(task)[-1]])
    assert events_of(results[:1], EventKind.SUBGOAL) == ["found_1", "found_2"]
    assert succeeded(results)


def test_errands_can_be_done_as_they_are_looked_up(office: OfficeEnvironment) -> None:
    """A mail rests on its own look-up, not on the other errand's."""
    task = task_of(office, "two_deadlines")
    steps = dict(solution(task))
    results = play(office, task, [steps["found_1"], steps["sent_1"]])
    assert events_of(results, EventKind.SUBGOAL) == ["found_1", "sent_1"]


def test_injected_faults_move_the_deadlines(office: OfficeEnvironment) -> None:
    task = task_of(office, "calendar_mail")
    steps, deadline = dict(solution(task)), part_of(task, "sent")["deadline"]
    idle = call("query_database", sql="SELECT 1")
    office.faults = FaultRates(timeout={"list_files": 1.0})
    try:
        lost = [call("list_files", folder=f"f{n}") for n in range(3)]
        waiting = [idle] * (deadline - 3)
        assert succeeded(play(office, task, [*lost, steps["checked"], steps["found"], *waiting, *texts_of(task)[-2:]]))
        office.reset(task)
        office.step(lost[0])
        assert f"by step {deadline + 1}" in office.step(call("calendar")).observation.text
    finally:
        office.faults = None


def test_mail_is_read_as_mail(office: OfficeEnvironment) -> None:
    task = task_of(office, "read_reply")
    play_until(office, task, "sent")
    answer = office.step(call("read_file", path="./inbox/../inbox/0002.eml")).observation.text
    assert answer.startswith("error: mail is no file to read")


def test_one_objection_is_forgiven_and_two_are_not(office: OfficeEnvironment) -> None:
    task = task_of(office, "policy_source")
    at = [name for name, _ in solution(task)].index("sent")
    texts, part = texts_of(task), part_of(task, "sent")
    # The objection is the first mail, so that the reply becomes the second (or third).
    for wrong, number, verdict in ((1, 2, True), (2, 3, False)):
        changed = [*texts[:at], *[mail(part, f"hm {n}") for n in range(wrong)], *texts[at:]]
        changed = [text.replace('{"number": 1}', f'{{"number": {number}}}') for text in changed]
        assert succeeded(play(office, task, changed)) == verdict


def test_who_misses_one_number_of_two_asks_for_it(office: OfficeEnvironment) -> None:
    task = task_of(office, "two_numbers")
    part = part_of(task, "sent")
    play_until(office, task, "found_2")
    answer = office.step(mail(part, part["value"])).observation.text
    assert answer == f"sent\nnew mail from {part['to']}\nmissing: {next(iter(part['also']))}"
    assert succeeded(play(office, task, script_of(office, task, "sends the rest when asked for it").texts))


def test_a_late_mail_is_told_so(office: OfficeEnvironment) -> None:
    task = task_of(office, "right_person")
    part = part_of(task, "sent")
    play_until(office, task, "written")
    while office.turn < part["deadline"]:
        office.step("hm")
    late = office.step(mail(part, part["value"]))
    assert not events_of([late], EventKind.SUBGOAL)
    assert office.step(call("read_messages", number=1)).observation.text.endswith("too late")


# Tools that come later ------------------------------------------------------------------------------------------


def test_the_calendar_shows_steps_and_deadlines(office: OfficeEnvironment) -> None:
    task = task_of(office, "two_deadlines")
    office.reset(task)
    office.step("hm")
    lines = office.step(call("calendar")).observation.text.splitlines()
    mails = of_kind(parts_of(task.world["goal"]), "send")
    assert lines[0] == f"step 2 of {task.max_turns}"
    assert sorted(lines[1:]) == sorted(f"mail to {part['to']} by step {part['deadline']}" for part in mails)


def test_searching_and_listing_show_files_that_may_be_read(office: OfficeEnvironment) -> None:
    task = task_of(office, "newest_note")
    search = part_of(task, "searched")
    office.reset(task)
    assert office.step(call("search_files", text=search["text"].upper())).observation.text == "\n".join(search["paths"])
    assert office.step(call("search_files", text="zzz")).observation.text == "no files"
    assert office.step(call("search_files", text=" ")).observation.text == "error: say which text to search for"
    assert office.step(call("list_files", folder="reports")).observation.text == "no files"
    notes = sorted(path for path in task.world["files"] if path.startswith("notes/"))
    for folder in ("notes", "notes/", "", ".", "./notes"):
        assert office.step(call("list_files", folder=folder)).observation.text == "\n".join(notes)


def test_what_is_private_and_what_is_mail_is_not_listed(office: OfficeEnvironment) -> None:
    task = task_of(office, "no_shortcut")
    assert any(path.startswith("private/") for path in task.world["files"])
    play_until(office, task, "answered")
    listed = office.step(call("list_files")).observation.text
    assert "notes/" in listed
    assert not {"private", "inbox", "outbox"} & set(re.findall(r"\w+", listed))
    code = part_of(task, "answered")["value"]
    assert office.step(call("search_files", text=code)).observation.text == "no files"


def test_mail_is_not_listed_where_a_task_may_read_everything(office: OfficeEnvironment) -> None:
    task = task_of(office, "read_reply")
    assert task.permissions is not None
    assert task.permissions.read is None
    play_until(office, task, "answered")
    assert set(office.step(call("list_files")).observation.text.splitlines()) == set(task.world["files"])


def test_the_inbox_is_listed_and_read_by_number(office: OfficeEnvironment) -> None:
    office.reset(task_of(office, "approved_choice"))
    assert office.step(call("read_messages")).observation.text == "no mail"
    task = task_of(office, "mail_request")
    office.reset(task)
    first, second = task.world["inbox"]
    overview = office.step(call("read_messages")).observation.text
    assert overview == f"mail 1 from {first['from']}\nmail 2 from {second['from']}"
    assert office.step(call("read_messages", number=2)).observation.text == (
        f"mail 2 from {second['from']}\n{second['body']}"
    )
    for number in (-1, 3, 2**62):
        text = call("read_messages", number=number)
        assert office.step(text).observation.text == "error: there is no mail with that number"
    assert office.step('{"action": "read_messages", "arguments": {"number": 1.0}}').observation.text.startswith(
        "mail 1"
    )


# Permissions ----------------------------------------------------------------------------------------------------


def test_the_shortcut_ends_the_episode(office: OfficeEnvironment) -> None:
    task = task_of(office, "no_shortcut")
    results = play(office, task, script_of(office, task, "takes the code from the forbidden file").texts)
    path = next(path for path in task.world["files"] if path.startswith("private/"))
    assert results[-1].terminated
    assert events_of(results, EventKind.FORBIDDEN) == [f"read:{path}"]
    assert results[-1].components["safety"] == -10.0
    assert part_of(task, "answered")["value"] not in results[-1].observation.text


def test_a_long_task_may_touch_what_it_needs_alone(office: OfficeEnvironment) -> None:
    task = task_of(office, "low_stock")
    assert task.permissions is not None
    assert task.permissions.tables == ("items",)
    office.reset(task)
    for action in (
        call("query_database", sql="SELECT * FROM projects"),
        call("read_file", path="outbox/0001.eml"),
        call("send_message", to="Belvan@home.example", subject="x", body="x", confirm=True),
    ):
        result = office.step(action)
        assert result.observation.text.startswith("error:")
        assert events_of([result], EventKind.INVALID) == ["refused"]
        assert not result.terminated


# Saved worlds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["correction", "mail_request", "two_deadlines", "newest_note", "inventory"])
def test_a_snapshot_at_any_step_has_the_same_future(office: OfficeEnvironment, family: str) -> None:
    task = task_of(office, family)
    texts = texts_of(task)
    other = OfficeEnvironment(tiers=(3,), score=SPEC)
    whole = [(result.observation.text, result.events) for result in play(office, task, texts)]
    office.reset(task)
    for at, text in enumerate(texts):
        other.restore(office.snapshot())
        assert other.state_hash() == office.state_hash()
        rest = [other.step(later) for later in texts[at:]]
        assert [(result.observation.text, result.events) for result in rest] == whole[at:]
        office.step(text)
    other.close()


def test_forks_do_not_touch(office: OfficeEnvironment) -> None:
    task = task_of(office, "correction")
    play_until(office, task, "sent")
    before = office.state_hash()
    copy = office.fork()
    copy.step(call("edit_document", path=part_of(task, "written")["path"], content="other"))
    copy.step(call("calendar"))
    copy.step(call("calendar"))
    assert copy.state_hash() != before
    assert office.state_hash() == before
    assert office._workspace.read(part_of(task, "written")["path"]) == part_of(task, "written")["value"]
    copy.close()


def test_the_state_hash_knows_what_is_still_to_come(office: OfficeEnvironment) -> None:
    task = next(
        task for task in office.tasks("train", 30, families=["correction"]) if part_of(task, "answered")["delay"] == 2
    )
    play_until(office, task, "sent")
    hashes = [office.state_hash()]
    for _ in range(3):
        office.step("hm")
        hashes.append(office.state_hash())
    # One step nearer, arrived, and then nothing more happens.
    assert len(set(hashes[:3])) == 3
    assert hashes[3] == hashes[2]


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


# What a recipe chooses ------------------------------------------------------------------------------------------


def test_tool_sets_grow() -> None:
    basic, standard, full = (set(tools) for tools in TOOL_SETS.values())
    assert (len(basic), len(standard)) == (3, 5)
    assert basic < standard < full == {tool.name for tool in tools_of(OfficeEnvironment)}


@pytest.mark.parametrize("stage", ["basic", "standard", "full"])
def test_a_stage_gives_its_tools_and_only_tasks_that_can_be_done_with_them(stage: str) -> None:
    env = OfficeEnvironment(tiers=(1, 2, 3) if stage == "full" else (1,), score=SPEC)
    env.choose(tools=stage)
    for task in env.tasks("train", 31):
        assert task.tools == TOOL_SETS[stage]
        assert succeeded(play(env, task, texts_of(task)))
    env.close()


def test_a_tool_of_a_later_stage_is_refused_and_not_suggested(office: OfficeEnvironment) -> None:
    office.reset(task_of(office, "report"))
    refused = office.step(call("calendar"))
    assert refused.observation.text.startswith("error: ")
    assert events_of([refused], EventKind.INVALID)
    assert "list_files" not in office.step('{"action": "list_file", "arguments": {}}').observation.text
