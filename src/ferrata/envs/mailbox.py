"""Real RFC 5322 messages in real files: an outbox that the agent fills, an inbox that outside roles fill."""

from __future__ import annotations

import os
import re
from email.header import Header
from email.message import Message
from pathlib import Path

from ferrata.envs.tools import ToolError

MAX_BODY_CHARACTERS = 20_000
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,4}")


class Mailbox:
    """Two folders of `.eml` files. Message numbers count from 1 in the order of writing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._count = 0

    def reset(self) -> None:
        """Start empty; the folders come into being with the first message."""
        self._count = 0

    def post(self, folder: str, sender: str, to: str, subject: str, body: str) -> Path:
        """Write one message into `outbox` or `inbox` and return its file."""
        if not _ADDRESS.fullmatch(to):
            raise ToolError(f"{to[:80]!r} is not a mail address")
        if any(ord(character) < 32 or character == "\x7f" for character in subject) or len(subject) > 500:
            raise ToolError("a subject is one line of at most 500 characters")
        if len(body) > MAX_BODY_CHARACTERS:
            raise ToolError(f"the body has {len(body)} characters, at most {MAX_BODY_CHARACTERS} are sent")
        self._count += 1
        path = self.root / folder / f"{self._count:04d}.eml"
        os.makedirs(path.parent, exist_ok=True)
        path.write_bytes(_message(self._count, sender, to, subject, body))
        return path


def _message(number: int, sender: str, to: str, subject: str, body: str) -> bytes:
    """The bytes of one message. Its date is the episode's own clock, so that episodes replay exactly.

    `Message` with its classic policy writes the same headers as `EmailMessage`, eight times faster.
    """
    message = Message()
    message["From"] = sender
    message["To"] = to
    message["Subject"] = subject if subject.isascii() else Header(subject, "utf-8").encode()
    message["Date"] = f"Mon, 05 Jan 2026 09:{number % 60:02d}:00 +0000"
    message["Message-ID"] = f"<{number}@office.test>"
    message.set_payload(body, "us-ascii" if body.isascii() else "utf-8")
    return message.as_bytes()
