"""People of the office who answer, object and are asked, and what counts as looked up before they are told."""

from __future__ import annotations

import re

import pytest

from ferrata.envs import call
from ferrata.envs.checker import play, succeeded
from ferrata.envs.faults import FaultRates
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.office.goals import parts_of
from ferrata.envs.office.solutions import solution
from ferrata.records import EventKind

from .office_play import events_of, mail, part_of, play_until, script_of, task_of, texts_of


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
