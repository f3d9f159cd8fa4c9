"""The office: tasks, tools, judge, replies, deadlines."""

import email
import email.policy
import random

import pytest

from ferrata.envs import call
from ferrata.envs.checker import check_environment, play, succeeded
from ferrata.envs.office import OfficeEnvironment
from ferrata.envs.office.language import names, numbers, reserved
from ferrata.errors import UsageError
from ferrata.records import EventKind, StepResult, Task
from ferrata.rewards import RewardSpec

SPEC = RewardSpec()


@pytest.fixture
def office():
    env = OfficeEnvironment(score=SPEC)
    yield env
    env.close()


def task_of(office: OfficeEnvironment, family: str, split: str = "train", seed: int = 0) -> Task:
    return office.tasks(split, 1, seed=seed, families=[family])[0]


def events_of(results: list[StepResult], kind: EventKind) -> list[str]:
    return [event.name for result in results for event in result.events if event.kind == kind]


def test_the_contract_holds(office: OfficeEnvironment) -> None:
    report = check_environment(office, 45, SPEC.check_dominance)
    assert report.ok, [check for check in report.checks if not check.ok]


def test_tiers_have_their_families_subgoals_and_caps(office: OfficeEnvironment) -> None:
    assert len(office.families[1]) >= 8
    assert len(office.families[2]) >= 5
    for task in office.tasks("train", 300):
        low, high, shortest, longest = {1: (2, 3, 10, 15), 2: (4, 6, 20, 30)}[task.tier]
        assert low <= len(task.subgoals) <= high, task.family
        assert shortest <= task.max_turns <= longest, task.family


def test_the_splits_share_no_fingerprint_no_name_and_no_number(office: OfficeEnvironment) -> None:
    train, unseen = office.tasks("train", 500), office.tasks("eval", 500)
    assert not {task.fingerprint for task in train} & {task.fingerprint for task in unseen}
    assert not set(names(True)) & set(names(False))
    assert not set(numbers(100, 1000, True)) & set(numbers(100, 1000, False))
    for task in unseen:
        for table in task.world["tables"].values():
            assert all(reserved(str(cell)) for row in table["rows"] for cell in row)
    for task in train:
        for table in task.world["tables"].values():
            assert not any(reserved(str(cell)) for row in table["rows"] for cell in row)


def test_tasks_depend_on_the_seed_alone(office: OfficeEnvironment) -> None:
    first = [task.fingerprint for task in office.tasks("train", 40, seed=3)]
    assert first == [task.fingerprint for task in office.tasks("train", 40, seed=3)]
    assert first != [task.fingerprint for task in office.tasks("train", 40, seed=4)]
    assert len(set(first)) == 40


def test_the_whole_chain_leaves_real_files_rows_and_messages(office: OfficeEnvironment) -> None:
    task = task_of(office, "compare_report")
    results = play(office, task, office.scripts(task)[0].texts)
    goal = task.world["goal"]
    assert succeeded(results)
    assert events_of(results, EventKind.SUBGOAL) == list(task.subgoals)
    assert office._workspace.read(goal["document"]["path"]) == goal["document"]["value"]
    raw = (office._workspace.root / "outbox" / "0001.eml").read_bytes()
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert message["To"] == goal["message"]["to"]
    assert message.get_content().strip() == goal["message"]["value"]
    assert not message.defects


def test_rewards_of_a_success_by_hand(office: OfficeEnvironment) -> None:
    task = task_of(office, "report")
    results = play(office, task, office.scripts(task)[0].texts)
    total = sum(result.reward for result in results if result.reward is not None)
    assert total == pytest.approx(5.0 + 4 * 0.08 - 4 * 0.01)
    assert results[-1].components["outcome"] == 5.0


def test_a_reply_comes_a_step_after_the_mail(office: OfficeEnvironment) -> None:
    task = task_of(office, "approval")
    code = task.world["goal"]["reply"]["code"]
    answers = [result.observation.text for result in play(office, task, office.scripts(task)[0].texts)]
    assert [code in answer for answer in answers] == [False, False, True, False]
    assert (office._workspace.root / "inbox" / "0002.eml").exists()


def test_a_mail_after_its_deadline_is_late(office: OfficeEnvironment) -> None:
    task = task_of(office, "send_to_owner")
    deadline = task.world["goal"]["message"]["deadline"]
    *before, send, submit = office.scripts(task)[0].texts
    waiting = ["hm"] * (deadline - len(before))
    late = play(office, task, [*before, *waiting, send, submit])
    assert not succeeded(late)
    assert "sent" not in events_of(late, EventKind.SUBGOAL)
    in_time = play(office, task, [*before, *waiting[:-1], send, submit])
    assert succeeded(in_time)


def test_a_message_to_somebody_else_spoils_the_task(office: OfficeEnvironment) -> None:
    task = task_of(office, "report")
    *before, submit = office.scripts(task)[0].texts
    stray = call("send_message", to="Somebody@office.test", subject="x", body="x", confirm=True)
    assert not succeeded(play(office, task, [*before, stray, submit]))


@pytest.mark.parametrize("family", ["report", "mail_note"])
def test_mail_to_an_outsider_is_refused_and_not_sent(office: OfficeEnvironment, family: str) -> None:
    task = task_of(office, family)
    *before, submit = office.scripts(task)[0].texts
    stray = call("send_message", to="Belvan@elsewhere.test", subject="x", body="x", confirm=True)
    results = play(office, task, [*before, stray, submit])
    assert "refused" in events_of(results, EventKind.INVALID)
    assert "not among the recipients" in results[len(before)].observation.text
    assert succeeded(results)


def test_an_address_is_the_same_in_any_case_of_letters(office: OfficeEnvironment) -> None:
    task = task_of(office, "mail_note")
    to = task.world["goal"]["message"]["to"]
    texts = [text.replace(to, to.upper()) for text in office.scripts(task)[0].texts]
    assert any(to.upper() in text for text in texts)
    assert succeeded(play(office, task, texts))


def test_listing_everything_is_no_answer(office: OfficeEnvironment) -> None:
    task = task_of(office, "read_value")
    path = task.world["goal"]["lookups"][0]["path"]
    everything = task.world["files"][path]
    assert not succeeded(play(office, task, [call("read_file", path=path), call("submit_result", answer=everything)]))
    value = task.world["goal"]["answer"]["value"]
    sentence = call("submit_result", answer=f"It is {value}.")
    assert succeeded(play(office, task, [call("read_file", path=path), sentence]))


def test_guessing_without_looking_fails(office: OfficeEnvironment) -> None:
    task = task_of(office, "check_level")
    right = call("submit_result", answer=task.world["goal"]["answer"]["value"])
    assert not succeeded(play(office, task, [right]))


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        (call("read_file", path="../../etc/passwd"), "error: the path leaves the workspace"),
        (call("read_file", path="/etc/passwd"), "error: the path leaves the workspace"),
        (call("read_file", path="notes"), "error: notes is not a file"),
        (call("read_file", path="notes/Nobody.txt"), "error: no file notes/Nobody.txt"),
        (call("read_file", path="a\0b"), "error: that is not a path"),
        (call("edit_document", path="notes/x.txt", content="x"), "error: only documents in reports/ can be edited"),
        (call("edit_document", path="reports/../notes/x", content="x"), "error: only documents in reports/"),
        (call("query_database", sql="DROP TABLE items"), "error: only SELECT on the office tables is allowed"),
        (call("query_database", sql="INSERT INTO items VALUES (1)"), "error: only SELECT"),
        (call("query_database", sql="ATTACH 'x.db' AS x"), "error: only SELECT"),
        (call("query_database", sql="PRAGMA table_info(items)"), "error: only SELECT"),
        (call("query_database", sql="SELECT * FROM sqlite_master"), "error: 'sqlite_master' is not a table"),
        (call("query_database", sql="SELECT load_extension('x')"), "error: the function load_extension is not"),
        (call("query_database", sql="SELECT 1; SELECT 2"), "error: SQL:"),
        (call("query_database", sql="SELECT price FROM nowhere"), "error: SQL: no such table"),
        (call("query_database", sql=""), "error: only SELECT"),
        (call("query_database", sql="SELECT 1 WHERE 1 = 0"), "no rows"),
        (
            call(
                "query_database",
                sql="WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
            ),
            "error: ",
        ),
        (call("send_message", to="nobody", subject="x", body="x", confirm=True), "error: 'nobody' is not a mail"),
        (
            call("send_message", to="a@office.test", subject="x\nBcc: b@office.test", body="x", confirm=True),
            "error: a subject is one line",
        ),
        (call("send_message", to="a@office.test", subject="x", body="x"), 'error: send_message needs "confirm": true'),
    ],
)
def test_what_must_not_or_cannot_be_done_is_answered(office: OfficeEnvironment, action: str, answer: str) -> None:
    office.reset(task_of(office, "report"))
    result = office.step(action)
    assert result.observation.text.startswith(answer)
    assert not result.terminated


def test_a_link_out_of_the_workspace_is_refused(office: OfficeEnvironment, tmp_path) -> None:
    (tmp_path / "secret").write_text("secret")
    office.reset(task_of(office, "report"))
    (office._workspace.root / "notes" / "link").symlink_to(tmp_path / "secret")
    assert "leaves the workspace" in office.step(call("read_file", path="notes/link")).observation.text


def test_repetition_is_noticed(office: OfficeEnvironment) -> None:
    office.reset(task_of(office, "report"))
    same = call("query_database", sql="SELECT 1")
    results = [office.step(same), office.step(same), office.step(call("query_database", sql="SELECT 2"))]
    assert events_of(results[1:2], EventKind.REPEAT) == ["query_database"]
    assert events_of(results[2:], EventKind.NEAR_REPEAT) == ["query_database"]
    assert results[1].components["repetition"] == pytest.approx(-0.1)


def test_long_results_are_summarised_and_strangers_masked(office: OfficeEnvironment) -> None:
    office.reset(task_of(office, "report"))
    many = "WITH n(i) AS (VALUES (1), (2), (3), (4), (5), (6), (7)) SELECT i FROM n"
    assert "7 rows, the first 5 shown" in office.step(call("query_database", sql=many)).observation.text
    secret = "SELECT 'x@home.example' AS mail, 'Belvan@office.test' AS colleague"
    assert office.step(call("query_database", sql=secret)).observation.text == (
        "mail: [mail]\ncolleague: Belvan@office.test"
    )


def test_demonstrations_without_imperfection_succeed_and_with_it_often_fail(office: OfficeEnvironment) -> None:
    stream = random.Random(0)
    tasks = office.tasks("train", 300)
    flawless = [succeeded(play(office, task, office.demonstrate(task, stream, 0.0))) for task in tasks]
    flawed = [succeeded(play(office, task, office.demonstrate(task, stream, 0.5))) for task in tasks]
    assert all(flawless)
    assert 0.25 < sum(flawed) / len(flawed) < 0.7


def test_the_state_hash_tells_states_apart(office: OfficeEnvironment) -> None:
    task = task_of(office, "report")
    office.reset(task)
    start = office.state_hash()
    office.step(call("query_database", sql="SELECT 1"))
    assert office.state_hash() == start
    office.step(call("edit_document", path="reports/x.md", content="x"))
    assert office.state_hash() != start


def test_wrong_use_is_one_sentence(office: OfficeEnvironment) -> None:
    with pytest.raises(UsageError, match="has no tier"):
        OfficeEnvironment(tiers=(9,))
    with pytest.raises(UsageError, match="Unknown split"):
        office.tasks("test", 1)
    with pytest.raises(UsageError, match="call reset"):
        office.step("x")
