"""The audit log: every action, one chain a file; a change, a cut and an addition are found, with file and line."""

from __future__ import annotations

import json
import os
from collections.abc import Container
from contextlib import closing
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest
from typer.testing import CliRunner

from ferrata.cli.main import app
from ferrata.envs import Environment, Refused, Task, ToolError, audit, audit_chain, call, tool
from ferrata.envs.audit import MAX_ACTION_CHARACTERS, SEAL, AuditLog, digest, outcome_of, verify
from ferrata.errors import AuditError, UsageError
from ferrata.recipe import Recipe
from ferrata.records import Event, EventKind
from ferrata.runs import RunFolder


class Door(Environment):
    """A door that does all that can happen to an action."""

    name = "door"
    families: ClassVar = {1: ("open",)}
    undo_turns = 4

    def generate(self, family: str, tier: int, stream: Random, split: str) -> Task:
        return Task("door", family, tier, split, "Open.", {"n": stream.random()}, (), 50)

    @tool("Push.")
    def push(self, how: str) -> str:
        match how:
            case "stuck":
                raise ToolError("stuck")
            case "locked":
                raise Refused("locked")
            case "alarm":
                self.forbid("alarm")
            case "break":
                raise RuntimeError("off its hinges")
        return "open"


def lines_of(log: AuditLog) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.path.read_bytes().split(b"\n")[:-1]]


def filled(folder: Path, lines: int = 5) -> Path:
    log = AuditLog(folder)
    for turn in range(lines):
        log.write("episode", turn, f"action {turn}", "ok")
    log.close()
    return log.path


def test_every_action_is_logged_with_its_outcome(tmp_path: Path) -> None:
    with closing(AuditLog(tmp_path)) as log:
        env = Door(audit=log)
        task = env.tasks("train", 1)[0]
        env.reset(task, seed=5)
        for how in ("hard", "stuck", "locked"):
            env.step(call("push", how=how))
        env.step("no action")
        env.rollback(2)
        with pytest.raises(RuntimeError):
            env.step(call("push", how="break"))
        env.reset(task, seed=5)
        env.step(call("push", how="alarm"))
        found = lines_of(log)
    assert [line["outcome"] for line in found] == [
        "ok", "tool error:push", "refused", "invalid:no_json", "rolled back:2", "failed:RuntimeError",
        "forbidden:alarm",
    ]  # fmt: skip
    assert [line["turn"] for line in found] == [1, 2, 3, 4, 2, 3, 1]
    assert {line["episode"] for line in found} == {f"{task.fingerprint}-5"}
    assert found[3]["action"] == "no action"
    assert verify(tmp_path).fault == ""


def test_restores_are_logged_and_a_fork_writes_the_same_log(tmp_path: Path) -> None:
    with closing(AuditLog(tmp_path)) as log:
        env = Door(audit=log)
        env.reset(env.tasks("train", 1)[0])
        env.fork().step(call("push", how="hard"))
        env.restore(env.snapshot())
        assert [line["outcome"] for line in lines_of(log)] == ["restored", "ok", "restored"]


@pytest.mark.parametrize("text", ["x" * (MAX_ACTION_CHARACTERS + 1), "\ud800 lone"])
def test_long_and_undecodable_actions_are_kept_by_digest(tmp_path: Path, text: str) -> None:
    with closing(AuditLog(tmp_path)) as log:
        log.write("e", 1, text, "ok")
        log.write("e", 2, "x" * MAX_ACTION_CHARACTERS, "ok")
        first, second = lines_of(log)
    assert first["digest"] == digest(text)
    assert first["characters"] == len(text)
    assert "action" not in first
    assert second["action"] == "x" * MAX_ACTION_CHARACTERS


def test_a_log_that_holds(tmp_path: Path) -> None:
    filled(tmp_path)
    filled(tmp_path, 0)
    report = verify(tmp_path)
    assert (report.ok, report.files, report.lines, report.torn, report.unfinished) == (True, 2, 5, 0, 0)
    assert report.sentence == f"The audit log holds: 5 lines in 2 files; seal {report.seal}."
    filled(tmp_path, 1)
    assert verify(tmp_path).seal != report.seal


def invoke(run: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify-audit", str(run), *options])
    return result.exit_code, result.output


def change(path: Path, number: int, old: bytes, new: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new)
    path.write_bytes(b"".join(lines))


def move(path: Path, order: list[int]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[number - 1] for number in order))


@pytest.mark.parametrize(
    ("order", "fault"),
    [
        ([1, 2, 4, 5], "line 3: the line does not follow"),
        ([2, 3, 4, 5], "line 1: the line does not follow"),
        ([1, 2, 3, 3, 4, 5], "line 4: the line does not follow"),
        ([1, 3, 2, 4, 5], "line 2: the line does not follow"),
        ([1, 2, 3], "line 4: 2 lines were cut off the end"),
        ([], "line 1: 5 lines were cut off the end"),
    ],
)
def test_lines_removed_moved_and_cut_off(tmp_path: Path, order: list[int], fault: str) -> None:
    path = filled(tmp_path)
    move(path, order)
    assert f"{path.name}, {fault}" in verify(tmp_path).sentence


@pytest.mark.parametrize("lines", [[], [1], [1, 2, 4], [1, 2, 3, 4, 5]])
def test_changes_anywhere(tmp_path: Path, lines: list[int]) -> None:
    path = filled(tmp_path)
    for number in lines:
        change(path, number, b'"ok"', b'"no"')
    expected = f"The audit log was tampered with: {path.name}, line {min(lines, default=0)}: the line was changed."
    report = verify(tmp_path)
    assert report.ok == (not lines)
    assert not lines or report.sentence == expected


def test_lines_written_anew_do_not_fit_the_recorded_head(tmp_path: Path) -> None:
    folder, other = tmp_path / "a", tmp_path / "b"
    path = filled(folder)
    path.write_bytes(filled(other, 6).read_bytes())
    assert "line 6: something was added after the file was closed" in verify(folder).fault
    path.write_bytes(filled(other, 5).read_bytes())
    assert not verify(folder).ok


def test_a_line_cut_within_a_closed_file(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    assert "line 5: 1 lines were cut off" in verify(tmp_path).fault


def test_a_removed_file_and_a_changed_head(tmp_path: Path) -> None:
    path = filled(tmp_path)
    content = path.read_bytes()
    path.unlink()
    assert verify(tmp_path).fault == f"{path.name} was removed"
    path.write_bytes(content)
    assert verify(tmp_path).ok
    change(tmp_path / "heads.jsonl", 1, b'"lines":5', b'"lines":4')
    assert verify(tmp_path).fault == "heads.jsonl, line 1: the line was changed"


def test_a_torn_last_line_is_no_tampering_and_is_recorded_by_the_next_writer(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for turn in range(3):
        log.write("e", turn, "x", "ok")
    open_report = verify(tmp_path)
    assert (open_report.ok, open_report.unfinished) == (True, 1)
    assert "1 not closed" in open_report.sentence
    log._chain.close()  # as a kill does: without a head
    log.path.write_bytes(log.path.read_bytes()[:-20])
    torn = verify(tmp_path)
    assert (torn.ok, torn.torn, torn.lines, torn.unfinished) == (True, 1, 2, 1)
    assert "1 torn at the last line by a kill" in torn.sentence
    AuditLog(tmp_path).close()
    assert (verify(tmp_path).ok, verify(tmp_path).unfinished) == (True, 0)
    move(log.path, [1])
    assert "line 2: 1 lines were cut off" in verify(tmp_path).fault


def test_a_file_that_is_being_written_is_not_recorded_by_another_writer(tmp_path: Path) -> None:
    with closing(AuditLog(tmp_path)) as log:
        AuditLog(tmp_path).close()
        log.write("e", 1, "x", "ok")
        assert verify(tmp_path).unfinished == 1
    assert verify(tmp_path).ok


def test_a_child_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    with closing(AuditLog(tmp_path)) as log:
        log.write("e", 1, "parent", "ok")
        child = os.fork()
        if child == 0:
            log.write("e", 2, "child", "ok")
            log.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        log.write("e", 2, "parent", "ok")
    report = verify(tmp_path)
    assert (report.ok, report.files, report.lines, report.unfinished) == (True, 2, 3, 0)


def test_what_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(AuditError, match=r"cannot be written: Not a directory|File exists"):
        AuditLog(blocked)
    log = AuditLog(tmp_path / "log")
    log.close()
    log.close()
    with pytest.raises(AuditError, match="is closed"):
        log.write("e", 1, "x", "ok")


def test_a_full_disk_ends_the_chain_before_the_lost_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = AuditLog(tmp_path), os.write
    log.write("e", 1, "x", "ok")
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:10]))
        with pytest.raises(AuditError, match="part of the line"):
            log.write("e", 2, "x", "ok")
    with pytest.raises(AuditError):
        log.write("e", 3, "x", "ok")
    report = verify(tmp_path)
    assert (report.ok, report.torn, report.lines) == (True, 1, 1)


def test_the_command_says_one_sentence_and_fails_on_tampering(tmp_path: Path) -> None:
    path = filled(tmp_path / "audit")
    result = CliRunner().invoke(app, ["verify-audit", str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.startswith("The audit log holds: 5 lines in 1 files; seal ")
    change(path, 2, b"action 1", b"action 7")
    result = CliRunner().invoke(app, ["verify-audit", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output == f"The audit log was tampered with: {path.name}, line 2: the line was changed.\n"


@pytest.mark.parametrize("closed", [True, False])
def test_a_seal_finds_what_the_folder_alone_cannot(tmp_path: Path, closed: bool) -> None:
    filled(tmp_path)
    log = AuditLog(tmp_path)
    for turn in range(4):
        log.write("e", turn, "x", "ok")
    if closed:
        log.close()
    seal = log.seal()
    assert seal == verify(tmp_path).seal
    log.close()
    filled(tmp_path, 2)
    assert verify(tmp_path, [seal]).ok  # it stays true as the log grows
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    heads, files = tmp_path / "heads.jsonl", sorted(kept)

    def cut_and_forget() -> None:
        move(log.path, [1, 2])
        move(heads, [1])
        filled(tmp_path, 3)  # a new writer records the cut file as it finds it

    def remove_newest() -> None:
        for path in files[1:]:
            path.unlink()
        heads.write_bytes(kept[heads].splitlines(keepends=True)[0])

    def remove_all() -> None:
        for path in tmp_path.iterdir():
            path.unlink()

    for harm in (cut_and_forget, remove_newest, remove_all):
        harm()
        report = verify(tmp_path, [seal])
        assert not report.ok, harm
        assert "removed, cut or written anew" in report.fault
        for path in tmp_path.iterdir():
            path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
        assert verify(tmp_path, [seal]).ok


def test_a_copy_of_a_file_is_found(tmp_path: Path) -> None:
    path = filled(tmp_path)
    copy = tmp_path / "20990101-000000-1-0.jsonl"
    copy.write_bytes(path.read_bytes())
    assert verify(tmp_path).fault == f"{copy.name} is a copy of {path.name}"
    copy.write_bytes(b"")
    assert verify(tmp_path).ok


@pytest.mark.parametrize("seal", ["", "x", "1", "1.00", "1.0000000000000000+", "-1.0000000000000000"])
def test_what_is_no_seal(tmp_path: Path, seal: str) -> None:
    with pytest.raises(UsageError, match="is no seal"):
        verify(tmp_path, [seal])


def test_a_trained_run_must_have_its_log(tmp_path: Path) -> None:
    """Removing every file, or the newest with its head, is found by what the run keeps in its store."""
    run, audit = tmp_path / "run", tmp_path / "run" / "audit"
    with RunFolder.create(Recipe(name="x"), run) as folder:
        audit.mkdir()
        assert invoke(run)[0] == 0  # nothing was trained yet
        folder.store.add_metrics("sft", 1, {"loss": 1.0})
        with closing(AuditLog(audit)) as log:
            log.write("e", 1, "x", "ok")
            folder.store.add_note("sft", 0, SEAL, log.seal())
    code, text = invoke(run)
    assert code == 0, text
    seal = text.split()[-1].rstrip(".")
    assert invoke(run, "--seal", seal)[0] == invoke(run, "--seal", f"{seal}.")[0] == 0
    assert invoke(run, "--seal", "2" + seal[1:])[0] == 1
    assert invoke(run, "--seal", "nonsense")[0] == 2
    log.path.unlink()
    (audit / "heads.jsonl").unlink()
    assert invoke(run) == (1, "The audit log was tampered with: all of it was removed.\n")
    filled(audit, 1)
    assert "removed, cut or written anew" in invoke(run)[1]
    for path in audit.iterdir():
        path.unlink()
    audit.rmdir()
    assert invoke(run)[0] == 1


def test_no_log_is_a_persons_mistake(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["verify-audit", str(tmp_path)]).exit_code == 2
    with pytest.raises(UsageError, match="no audit log"):
        verify(tmp_path / "none")


def test_outcomes_name_the_gravest_event() -> None:
    step, repeat = Event(EventKind.STEP), Event(EventKind.REPEAT, "x")
    assert outcome_of([step, repeat]) == "ok"
    assert outcome_of([step, Event(EventKind.TOOL_FAULT, "timeout")]) == "fault:timeout"
    assert (
        outcome_of([Event(EventKind.INVALID, "refused"), Event(EventKind.FORBIDDEN, "sql:drop")])
        == "forbidden:sql:drop"
    )


def test_a_run_that_ends_while_its_log_is_checked_was_not_tampered_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was recorded is read before the files are: a file that grows and is closed meanwhile is not cut."""
    log = AuditLog(tmp_path)
    log.write("episode", 1, "said", "ok")
    walk = audit.walk

    def slow(path: Path, wanted: Container[int] = ()) -> audit_chain.Walk:
        found = walk(path, wanted)
        if path == log.path:
            log.write("episode", 2, "said", "ok")
            log.close()
        return found

    monkeypatch.setattr(audit, "walk", slow)
    report = verify(tmp_path)
    assert report.ok, report.sentence
    assert (report.lines, report.unfinished) == (1, 1)
    monkeypatch.undo()
    assert (verify(tmp_path).lines, verify(tmp_path).unfinished) == (2, 0)
