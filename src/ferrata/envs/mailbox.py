"""Real RFC 5322 messages in real files: an outbox that the agent fills, an inbox that outside roles fill."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.header import Header
from email.message import Message
from typing import Any

import msgspec

from ferrata.envs.permissions import Guard
from ferrata.envs.tools import Refused, ToolError
from ferrata.envs.workspace import Workspace

MAX_BODY_CHARACTERS = 20_000
MAX_SUBJECT_CHARACTERS = 500
MAX_PLAIN_CHARACTERS = 60
"""Of a header that is surely not folded."""
MAX_LINE_CHARACTERS = 998
"""Of a line in a message (RFC 5322, 2.1.1); a body with a longer one is encoded."""
_PLAIN = """\
From: {mail.sender}
To: {mail.to}
Subject: {mail.subject}
Date: Mon, 05 Jan 2026 09:{minute:02d}:00 +0000
Message-ID: <{mail.number}@office.test>
MIME-Version: 1.0
Content-Type: text/plain; charset="us-ascii"
Content-Transfer-Encoding: 7bit

{mail.body}"""
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,4}")


class Mail(msgspec.Struct, frozen=True):
    """One message."""

    number: int
    """Counts from 1 over both folders, in the order of writing."""
    folder: str
    """'outbox' or 'inbox'."""
    sender: str
    to: str
    subject: str
    body: str

    @property
    def path(self) -> str:
        """Its file in the workspace."""
        return f"{self.folder}/{self.number:04d}.eml"


class Mailbox:
    """Two folders of `.eml` files in a workspace.

    Args:
        workspace: where the files are.
        domains: where the agent may write to; empty means anywhere. A task may permit less.
    """

    def __init__(self, workspace: Workspace, domains: Sequence[str] = ()) -> None:
        self._workspace = workspace
        self._domains = tuple(domains)
        self._guard = Guard()
        self._mails: list[Mail] = []

    def reset(self, guard: Guard | None = None) -> None:
        """Start empty; the folders come into being with the first message. `guard` says whom the agent may write to."""
        self._guard = guard or Guard()
        self._mails = []

    def send(self, sender: str, to: str, subject: str, body: str) -> Mail:
        """The agent sends one message: `Refused` when it may not write to `to`, `ToolError` for what is no message."""
        _check(to, subject, body)
        if self._domains and _with_plain_domain(to).partition("@")[2] not in self._domains:
            raise Refused(f"mail goes to {' or '.join(self._domains)} only", f"recipient:{to.lower()}")
        self._guard.check("recipient", to)
        return self._post("outbox", sender, to, subject, body)

    def deliver(self, sender: str, to: str, subject: str, body: str) -> Mail:
        """An outside role writes to the agent."""
        _check(to, subject, body)
        return self._post("inbox", sender, to, subject, body)

    def messages(self, folder: str) -> list[Mail]:
        """The messages of a folder, oldest first."""
        return [mail for mail in self._mails if mail.folder == folder]

    def save(self) -> list[dict[str, Any]]:
        """All messages, JSON-ready. Their files are saved by the workspace."""
        return [msgspec.to_builtins(mail) for mail in self._mails]

    def load(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Bring back what `save` gave."""
        self._mails = msgspec.convert(state, list[Mail])

    def _post(self, folder: str, sender: str, to: str, subject: str, body: str) -> Mail:
        mail = Mail(len(self._mails) + 1, folder, sender, to, subject, body)
        self._workspace.put(mail.path, _content(mail))
        self._mails.append(mail)
        return mail


def _with_plain_domain(address: str) -> str:
    """Domains do not tell capitals from small letters."""
    name, _, domain = address.partition("@")
    return f"{name}@{domain.lower()}"


def _check(to: str, subject: str, body: str) -> None:
    """Refuse what would break a header, or what no message can carry."""
    if not _ADDRESS.fullmatch(to):
        raise ToolError(f"{to[:80]!r} is not a mail address")
    if not subject.isprintable() or len(subject) > MAX_SUBJECT_CHARACTERS:
        raise ToolError(f"a subject is one line of at most {MAX_SUBJECT_CHARACTERS} characters")
    if len(body) > MAX_BODY_CHARACTERS:
        raise ToolError(f"the body has {len(body)} characters, at most {MAX_BODY_CHARACTERS} are sent")
    if "\0" in body:
        raise ToolError("the body holds a NUL character, which no mail can carry")


def _content(mail: Mail) -> str:
    """The file's content. Its date is the episode's own clock, so that episodes replay exactly.

    Short lines of ASCII need no folding and no encoding; what `Message` would write is then written at once, for that
    takes a hundredth of the time.
    """
    short = max(len(mail.subject), len(mail.sender), len(mail.to)) <= MAX_PLAIN_CHARACTERS
    plain = short and mail.subject.isascii() and _is_plain(mail.body)
    return _plain(mail) if plain else _encoded(mail)


def _is_plain(body: str) -> bool:
    """True for what a message carries as it is: ASCII without a long line, or a carriage return that would end one."""
    short = len(body) <= MAX_LINE_CHARACTERS or max(map(len, body.split("\n"))) <= MAX_LINE_CHARACTERS
    return short and body.isascii() and "\r" not in body


def _plain(mail: Mail) -> str:
    return _PLAIN.format(mail=mail, minute=mail.number % 60)


def _encoded(mail: Mail) -> str:
    """By `Message` with its classic policy: the same headers as `EmailMessage`, eight times faster."""
    message = Message()
    message["From"] = mail.sender
    message["To"] = mail.to
    message["Subject"] = mail.subject if mail.subject.isascii() else Header(mail.subject, "utf-8").encode()
    message["Date"] = f"Mon, 05 Jan 2026 09:{mail.number % 60:02d}:00 +0000"
    message["Message-ID"] = f"<{mail.number}@office.test>"
    message.set_payload(mail.body, "us-ascii" if _is_plain(mail.body) else "utf-8")  # UTF-8 goes as base64
    return message.as_string()
