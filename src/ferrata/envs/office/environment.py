"""The office environment: nine tools over a workspace, a database and a mailbox."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from ferrata.envs.audit import AuditLog
from ferrata.envs.base import Environment, Scorer
from ferrata.envs.database import Database
from ferrata.envs.faults import FaultRates
from ferrata.envs.mailbox import Mailbox
from ferrata.envs.observe import MAX_ROWS, rows_text
from ferrata.envs.office import demonstrations, families, proofs
from ferrata.envs.office.families import NEEDS, TIERS, TOOL_SETS
from ferrata.envs.office.goals import Part, of_kind, parts_of
from ferrata.envs.office.judge import (
    documents_as_asked,
    found,
    informed,
    mails_as_asked,
    misleads,
    same_address,
    states,
)
from ferrata.envs.office.language import MAIL_DOMAIN
from ferrata.envs.office.roles import Letter, answers, in_time
from ferrata.envs.scripts import Script
from ferrata.envs.tools import Effect, Refused, ToolError, tool
from ferrata.envs.workspace import Workspace
from ferrata.records import Task

AGENT_ADDRESS = "agent" + MAIL_DOMAIN
MAX_PATHS = 20
_MAIL_FOLDERS = ("inbox/", "outbox/")


class OfficeEnvironment(Environment):
    """Look up, compare, write the report, send the mail: the judge looks at what is there in the end."""

    name = "office"
    version = "3"
    families: ClassVar[dict[int, tuple[str, ...]]] = TIERS
    own_domains = (MAIL_DOMAIN.removeprefix("@"),)
    undo_turns = 8
    tool_sets: ClassVar[dict[str, tuple[str, ...]]] = TOOL_SETS
    needs: ClassVar[dict[str, tuple[str, ...]]] = NEEDS

    def __init__(
        self,
        tiers: Sequence[int] = (1, 2),
        score: Scorer | None = None,
        *,
        faults: FaultRates | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        super().__init__(tiers, score, faults=faults, audit=audit)
        self._workspace = Workspace()
        self._mailbox = Mailbox(self._workspace)
        self._database = Database()

    def generate(self, family: str, tier: int, stream: random.Random, split: str) -> Task:
        """One task of a family; names and numbers of the two splits are disjoint."""
        return families.generate(family, tier, stream, split)

    def begin(self, task: Task) -> None:
        """Fresh files, tables and mailbox."""
        self._parts = parts_of(task.world["goal"])
        self._workspace.reset(task.world["files"], self.guard)
        self._database.reset(task.world["tables"], self.guard)
        self._mailbox.reset(self.guard)
        self._documents: dict[str, str] = {}
        self._due: list[Letter] = []
        self._letters: list[str] = []
        self._shown: set[str] = set()
        self._misled = False
        for mail in task.world.get("inbox", ()):
            self._deliver(Letter(0, mail["from"], mail["subject"], mail["body"]))

    # Tools: read and ask ------------------------------------------------------------------------------------------

    @tool("Read one file of the workspace, for example notes/NAME.txt.")
    def read_file(self, path: str) -> str:
        """Content of a file."""
        if posixpath.normpath(path).startswith(_MAIL_FOLDERS):
            raise Refused("mail is no file to read", f"read:{posixpath.normpath(path)}")
        content = self._workspace.read(path)
        path = posixpath.normpath(path)
        for part in of_kind(self._parts, "read"):
            if part["path"] == path:
                self.reach(part["subgoal"])
        return content

    @tool("Run one SQL SELECT on the office database; tables are items and projects, both with a column name.")
    def query_database(self, sql: str) -> str:
        """Result rows as text."""
        columns, rows = self._database.query(sql)
        for part in of_kind(self._parts, "query"):
            if found(part, sql, self._database.reads, rows[:MAX_ROWS]):
                self.reach(part["subgoal"])
        return rows_text(columns, rows)

    # Tools: write, send, submit -----------------------------------------------------------------------------------

    @tool("Write a document, for example reports/NAME.md: the content replaces what it had.", Effect.WRITE)
    def edit_document(self, path: str, content: str) -> str:
        """Create or replace a document; notes and mail cannot be changed."""
        path = posixpath.normpath(path)
        if path.startswith(("../", "/")):
            raise Refused("the path leaves the workspace", f"escape:{path}")
        if not path.startswith("reports/"):
            raise Refused("only documents in reports/ can be edited", f"write:{path}")
        self._workspace.write(path, content)
        self._documents[path] = content
        for part in of_kind(self._parts, "write"):
            if path == part["path"] and states(content, part) and self._informed(part):
                self.reach(part["subgoal"])
        return "saved"

    @tool("Send a mail to one person at office.test. It cannot be taken back.", Effect.IRREVERSIBLE)
    def send_message(self, to: str, subject: str, body: str) -> str:
        """Send one message; an outside role may answer some steps later."""
        self._mailbox.send(AGENT_ADDRESS, to, subject, body)
        mine = [part for part in of_kind(self._parts, "send") if same_address(to, part["to"])]
        for part in mine:
            if states(body, part) and in_time(part, self.turn - self.lost_turns) and self._informed(part):
                self.reach(part["subgoal"])
        if not any(states(body, part) for part in mine):
            # What was told wrongly stays told: one cannot try until nobody objects, nor take the right mail back.
            self._misled = self._misled or any(misleads(body, part) for part in mine)
        coming = [*self._letters, *(letter.subgoal for letter in self._due)]
        self._due += answers(
            self._parts, to, body, self.turn, late=self.lost_turns, reached=self.reached, coming=coming
        )
        return "sent"

    @tool("Submit the result. This ends the task.")
    def submit_result(self, answer: str) -> str:
        """Judge the final state: everything asked for is there, and no message went astray."""
        for part in of_kind(self._parts, "submit"):
            if states(answer, part) and self._informed(part):
                self.reach(part["subgoal"])
        complete = set(self.reached) == set(self.task.subgoals)
        recipients = [mail.to for mail in self._mailbox.messages("outbox")]
        mailed = mails_as_asked(self._parts, recipients) and not self._misled
        self.finish(complete and mailed and documents_as_asked(self._parts, self._documents))
        return "submitted"

    # Tools that come later in the curriculum ----------------------------------------------------------------------

    @tool("List the files of a folder, for example notes.")
    def list_files(self, folder: str = "") -> str:
        """Paths of the files that the task may read, one a line."""
        prefix = posixpath.normpath(folder) + "/" if folder.strip("./") else ""
        return self._paths_text([path for path in self._files() if path.startswith(prefix)])

    @tool("Search the files for a text: the paths of those that hold it.")
    def search_files(self, text: str) -> str:
        """Paths of the files with the text in them, capitals or not, one a line."""
        if not text.strip():
            raise ToolError("say which text to search for")
        wanted = text.lower()
        return self._paths_text([path for path in self._files() if wanted in self._workspace.read(path).lower()])

    @tool("Read a mail of the inbox by its number; without a number, see who wrote.")
    def read_messages(self, number: int = 0) -> str:
        """One mail, or a list of all with their numbers."""
        mails = self._mailbox.messages("inbox")
        if number == 0:
            return "\n".join(f"mail {at} from {mail.sender}" for at, mail in enumerate(mails, 1)) or "no mail"
        if not 0 < number <= len(mails):
            raise ToolError("there is no mail with that number")
        mail = mails[int(number) - 1]
        self.reach(self._letters[int(number) - 1])
        for part in of_kind(self._parts, "mail"):
            if part["number"] == number:
                self.reach(part["subgoal"])
        return f"mail {int(number)} from {mail.sender}\n{mail.body}"

    @tool("See which step this is, how many there are, and what is due by when.")
    def calendar(self) -> str:
        """Steps and deadlines."""
        for part in of_kind(self._parts, "deadlines"):
            self.reach(part["subgoal"])
        due = [part for part in of_kind(self._parts, "send") if "deadline" in part]
        lines = [f"mail to {part['to']} by step {part['deadline'] + self.lost_turns}" for part in due]
        return "\n".join([f"step {self.turn} of {self.task.max_turns}", *lines])

    # What happens meanwhile ---------------------------------------------------------------------------------------

    def after_step(self) -> list[str]:
        """Deliver the letters that are due."""
        lines: list[str] = []
        for letter in sorted((letter for letter in self._due if letter.turn <= self.turn), key=lambda due: due.turn):
            self._due.remove(letter)
            lines += self._deliver(letter)
        return lines

    def _deliver(self, letter: Letter) -> list[str]:
        """Put a letter into the inbox; what the agent sees of it."""
        self._mailbox.deliver(letter.sender, AGENT_ADDRESS, letter.subject, letter.body)
        self._letters.append(letter.subgoal)
        if not letter.shown:
            return [f"new mail {len(self._letters)} from {letter.sender}"]
        self.reach(letter.subgoal)
        return [f"new mail from {letter.sender}", letter.body]

    # Proof and state ----------------------------------------------------------------------------------------------

    def scripts(self, task: Task) -> list[Script]:
        """The solution, and every way of going wrong that a demonstration may show."""
        return proofs.scripts(task)

    def demonstrate(self, task: Task, stream: random.Random, imperfection: float) -> Sequence[str]:
        """A demonstration with procedural errors at rates scaled by `imperfection`."""
        return demonstrations.demonstrate(task, stream, imperfection)

    def save_world(self) -> Any:
        """What the agent and the outside roles changed, what is on its way, and what was seen."""
        return {
            "workspace": self._workspace.save(),
            "mailbox": self._mailbox.save(),
            "documents": self._documents,
            "letters": self._letters,
            "due": msgspec.to_builtins(self._due),
            "shown": sorted(self._shown),
            "misled": self._misled,
        }

    def load_world(self, state: Any) -> None:
        """Files and mails are written again; the database is only ever read."""
        self._workspace.load(state["workspace"])
        self._mailbox.load(state["mailbox"])
        self._documents = state["documents"]
        self._letters = state["letters"]
        self._due = msgspec.convert(state["due"], list[Letter])
        self._shown = set(state["shown"])
        self._misled = state["misled"]

    def world_state(self) -> Any:
        """Documents, mails, what is still to come, and the steps that are left until it does.

        The steps that are left in all are no part of it: the same world at another time is the same state.
        """
        sent = [(mail.to, mail.body) for mail in self._mailbox.messages("outbox")]
        due = [(letter.turn - self.turn, letter.sender, letter.body) for letter in self._due]
        left = [max(0, part["deadline"] + self.lost_turns - self.turn) for part in self._parts if "deadline" in part]
        return (self._documents, sent, self._letters, due, left, sorted(self._shown), self._misled)

    def close(self) -> None:
        """Delete the workspace, close the database."""
        self._database.close()
        self._workspace.close()

    # Inside -------------------------------------------------------------------------------------------------------

    def _informed(self, part: Part) -> bool:
        return informed(self._parts, part, self.reached)

    def _files(self) -> list[str]:
        """The files that the task may read; mail is read in another way."""
        return [path for path in self._workspace.paths() if not path.startswith(_MAIL_FOLDERS)]

    def _paths_text(self, paths: Sequence[str]) -> str:
        """Paths for the agent, many as the first few."""
        self._show(paths[:MAX_PATHS])
        more = [f"... {len(paths)} files, the first {MAX_PATHS} shown"] if len(paths) > MAX_PATHS else []
        return "\n".join([*paths[:MAX_PATHS], *more]) or "no files"

    def _show(self, paths: Iterable[str]) -> None:
        """Note which of the paths that are to be found the agent has seen."""
        for part in of_kind(self._parts, "search", "listing"):
            self._shown.update(path for path in paths if path in part["paths"])
            if self._shown.issuperset(part["paths"]):
                self.reach(part["subgoal"])
