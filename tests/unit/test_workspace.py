"""The workspace: real files, and on disk exactly what it should hold, with as little writing as that takes."""

from __future__ import annotations

import email
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ferrata.envs import Refused, ToolError
from ferrata.envs.mailbox import Mailbox
from ferrata.envs.workspace import Workspace

FILES = {"notes/a.txt": "one", "notes/b.txt": "two"}


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with closing(Workspace()) as workspace:
        workspace.reset(FILES)
        yield workspace


def on_disk(workspace: Workspace) -> dict[str, str]:
    root = workspace.root
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_the_folder_holds_what_was_written(workspace: Workspace) -> None:
    workspace.write("reports/deep/er.md", "x" * 10)
    workspace.write("reports/deep/er.md", "é")
    assert on_disk(workspace) == workspace.listing() == {**FILES, "reports/deep/er.md": "é"}
    assert workspace.save() == {"reports/deep/er.md": "é"}
    assert workspace.paths() == ["notes/a.txt", "notes/b.txt", "reports/deep/er.md"]


def test_what_stays_the_same_is_not_written_again(workspace: Workspace) -> None:
    workspace.write("notes/b.txt", "changed")
    workspace.write("reports/c.md", "new")
    before = {path: os.stat(workspace.root / path).st_ino for path in on_disk(workspace)}
    times = {path: os.stat(workspace.root / path).st_mtime_ns for path in before}
    workspace.reset(FILES)
    workspace.load({"reports/c.md": "new"})
    assert on_disk(workspace) == {**FILES, "reports/c.md": "new"}
    for path in ("notes/a.txt", "reports/c.md"):
        assert os.stat(workspace.root / path).st_ino == before[path]
        assert os.stat(workspace.root / path).st_mtime_ns == times[path]


def test_what_somebody_else_changed_is_put_right(workspace: Workspace, tmp_path: Path) -> None:
    root = workspace.root
    (root / "notes/a.txt").write_text("else")
    (root / "notes/b.txt").unlink()
    (root / "planted.txt").write_text("x")
    (root / "folder/deep").mkdir(parents=True)
    os.symlink(tmp_path, root / "link")
    workspace.reset(FILES)
    assert on_disk(workspace) == FILES
    assert not (root / "link").is_symlink()


def test_folders_of_an_earlier_episode_are_as_if_they_were_not_there(workspace: Workspace) -> None:
    with pytest.raises(ToolError, match="no file plans"):
        workspace.read("plans")
    workspace.write("plans/x.md", "x")
    with pytest.raises(ToolError, match="plans is not a file"):
        workspace.read("plans")
    with pytest.raises(ToolError, match="plans is not a file"):
        workspace.write("plans", "x")
    workspace.reset(FILES)
    with pytest.raises(ToolError, match="no file plans"):
        workspace.read("plans")
    workspace.write("plans", "a file now")
    assert workspace.read("plans") == "a file now"


def test_a_full_disk_is_no_fault_of_the_agent(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    assert workspace.read("notes/a.txt")
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="No space left"):
        workspace.write("reports/a.md", "x")


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x"])
def test_a_saved_state_cannot_name_a_path_outside(workspace: Workspace, path: str) -> None:
    with pytest.raises(Refused, match="leaves the workspace"):
        workspace.load({path: "x"})


def test_mails_are_files_and_come_back_with_them(workspace: Workspace) -> None:
    mailbox = Mailbox(workspace, ("office.test",))
    mailbox.send("agent@office.test", "Ada@office.test", "Übung", "Grüße\n")
    mailbox.deliver("Ada@office.test", "agent@office.test", "re", "fine")
    with pytest.raises(Refused, match=r"mail goes to office\.test only"):
        mailbox.send("agent@office.test", "x@evil.test", "s", "b")
    files, mails, disk = workspace.save(), mailbox.save(), on_disk(workspace)
    assert sorted(files) == ["inbox/0002.eml", "outbox/0001.eml"]
    workspace.reset(FILES)
    mailbox.reset()
    assert mailbox.messages("inbox") == []
    workspace.load(files)
    mailbox.load(mails)
    assert on_disk(workspace) == disk
    assert [mail.body for mail in mailbox.messages("inbox")] == ["fine"]
    assert mailbox.send("agent@office.test", "Ada@office.test", "s", "b").number == 3


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        ("short", "7bit"),
        ("y" * 998 + "\n" + "z" * 998, "7bit"),
        ("y" * 999, "base64"),
        ("ok\n" + "y" * 19_000 + "\n end ", "base64"),
        ("one\rtwo\x0cthree\n", "base64"),
        ("Grüße", "base64"),
    ],
)
def test_a_mail_keeps_the_line_limit_and_carries_its_body_exactly(
    workspace: Workspace, body: str, encoding: str
) -> None:
    mail = Mailbox(workspace).send("agent@office.test", "Ada@office.test", "s", body)
    raw = (workspace.root / mail.path).read_bytes()
    read = email.message_from_bytes(raw)
    payload = read.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert max(map(len, raw.split(b"\n"))) <= 998
    assert (read["Content-Transfer-Encoding"], payload.decode()) == (encoding, body)
