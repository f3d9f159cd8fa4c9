"""The office environment: five tools over a workspace, a database and a mailbox (SPEC ENV-4)."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Sequence
from typing import Any, ClassVar

from ferrata.envs.base import Environment, Scorer
from ferrata.envs.database import Database
from ferrata.envs.mailbox import Mailbox
from ferrata.envs.observe import MAX_ROWS, rows_text
from ferrata.envs.office import demonstrations, families
from ferrata.envs.office.judge import shows, states
from ferrata.envs.office.language import MAIL_DOMAIN
from ferrata.envs.scripts import Script
from ferrata.envs.tools import Effect, Refused, tool
from ferrata.envs.workspace import Workspace
from ferrata.records import Task

AGENT_ADDRESS = "agent" + MAIL_DOMAIN


class OfficeEnvironment(Environment):
    """Look up, compare, write the report, send the mail: the judge looks at what is there in the end."""

    name = "office"
    version = "2"
    families: ClassVar[dict[int, tuple[str, ...]]] = families.TIERS
    own_domains = (MAIL_DOMAIN.removeprefix("@"),)

    def __init__(self, tiers: Sequence[int] = (1, 2), score: Scorer | None = None) -> None:
        super().__init__(tiers, score)
        self._workspace = Workspace()
        self._mailbox = Mailbox(self._workspace.root)
        self._database = Database()

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        """One task of a family; names and numbers of the two splits are disjoint."""
        return families.generate(family, tier, stream, split)

    def begin(self, task: Task) -> None:
        """Fresh files, tables and mailbox."""
        self._goal: families.Goal = task.world["goal"]
        self._workspace.reset(task.world["files"])
        self._database.reset(task.world["tables"])
        self._mailbox.reset()
        self._documents: dict[str, str] = {}
        self._sent: list[tuple[str, str]] = []
        self._due: int | None = None

    @tool("Read one file of the workspace, for example notes/NAME.txt.")
    def read_file(self, path: str) -> str:
        """Content of a file."""
        content = self._workspace.read(path)
        path = posixpath.normpath(path)
        for lookup in self._goal["lookups"]:
            if lookup.get("path") == path:
                self.reach(lookup["subgoal"])
        return content

    @tool("Run one SQL SELECT on the office database; tables are items and projects, both with a column name.")
    def query_database(self, sql: str) -> str:
        """Result rows as text."""
        columns, rows = self._database.query(sql)
        for lookup in self._goal["lookups"]:
            if "table" in lookup and shows(rows[:MAX_ROWS], lookup["value"]):
                self.reach(lookup["subgoal"])
        return rows_text(columns, rows)

    @tool("Write a document, for example reports/NAME.md: the content replaces what it had.", Effect.WRITE)
    def edit_document(self, path: str, content: str) -> str:
        """Create or replace a document; notes and mail cannot be changed."""
        path = posixpath.normpath(path)
        if not path.startswith("reports/"):
            raise Refused("only documents in reports/ can be edited")
        self._workspace.write(path, content)
        self._documents[path] = content
        wanted = self._goal.get("document")
        if wanted and path == wanted["path"] and states(content, wanted) and self._informed():
            self.reach(wanted["subgoal"])
        return "saved"

    @tool("Send a mail to one person at office.test. It cannot be taken back.", Effect.IRREVERSIBLE)
    def send_message(self, to: str, subject: str, body: str) -> str:
        """Send one message; an outside role may answer a step later."""
        self._mailbox.post("outbox", AGENT_ADDRESS, to, subject, body)
        self._sent.append((to, body))
        wanted = self._goal.get("message")
        if wanted and self._on_time(wanted) and _same(to, wanted["to"]) and states(body, wanted) and self._informed():
            self.reach(wanted["subgoal"])
            if "reply" in self._goal and self._due is None and "answered" not in self.reached:
                self._due = self.turn + self._goal["reply"]["delay"]
        return "sent"

    @tool("Submit the result. This ends the task.")
    def submit_result(self, answer: str) -> str:
        """Judge the final state: everything asked for is there, and no message went astray."""
        wanted = self._goal["answer"]
        if states(answer, wanted) and self._informed():
            self.reach(wanted["subgoal"])
        complete = set(self.reached) == set(self.task.subgoals)
        self.finish(complete and len(self._sent) == ("message" in self._goal) and self._final_document())
        return "submitted"

    def after_step(self) -> list[str]:
        """Deliver the reply that is due."""
        if self._due is None or self.turn < self._due:
            return []
        self._due = None
        reply, sender = self._goal["reply"], self._goal["message"]["to"]
        self._mailbox.post("inbox", sender, AGENT_ADDRESS, "approved", f"code: {reply['code']}")
        self.reach(reply["subgoal"])
        return [f"new mail from {sender}", f"code: {reply['code']}"]

    def scripts(self, task: Task) -> list[Script]:
        """The solution, and every way of going wrong that a demonstration may show."""
        return demonstrations.scripts(task)

    def demonstrate(self, task: Task, stream: random.Random, imperfection: float) -> Sequence[str]:
        """A demonstration with procedural errors at rates scaled by `imperfection`."""
        return demonstrations.demonstrate(task, stream, imperfection)

    def world_state(self) -> Any:
        """Documents, sent messages and what is still to come."""
        due = None if self._due is None else self._due - self.turn
        deadline = self._goal.get("message", {}).get("deadline")
        left = None if deadline is None else max(0, deadline - self.turn)
        return (sorted(self._documents.items()), self._sent, due, left)

    def close(self) -> None:
        """Delete the workspace, close the database."""
        self._database.close()
        self._workspace.close()

    def _on_time(self, wanted: dict[str, Any]) -> bool:
        return self.turn <= int(wanted.get("deadline", self.turn))

    def _informed(self) -> bool:
        """True when everything that had to be looked up was looked up: what is stated before that is a guess."""
        return all(lookup["subgoal"] in self.reached for lookup in self._goal["lookups"])

    def _final_document(self) -> bool:
        """The document's last content counts, and no other document was touched."""
        wanted = self._goal.get("document")
        if wanted is None:
            return not self._documents
        return set(self._documents) == {wanted["path"]} and states(self._documents[wanted["path"]], wanted)


def _same(address: str, other: str) -> bool:
    """Mail addresses do not tell capitals from small letters."""
    return address.casefold() == other.casefold()
