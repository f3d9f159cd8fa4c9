"""Everything a run measures, in one SQLite file: `RunStore`.

    metrics        one number per (stage, step, name)
    evaluations    one JSON document per (stage, step, kind, name)
    trajectories   whole episodes as msgpack, with the columns that lists are filtered by
    notes          what happened, in words: alarms, interruptions, ignored checkpoints

Steps count within a stage. Stages are ordered by when they first appear, so `truncate_after` can drop everything
newer than a checkpoint and the resumed curve continues as if the run had never been interrupted.
A writer commits at every call; readers may open the same file while the run goes on (write-ahead log).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ferrata.errors import CheckpointError, RunFolderError
from ferrata.records import Trajectory
from ferrata.runs.disk import free_bytes, human_size, is_full

_VERSION = 1
_SCHEMA = """
CREATE TABLE stages (position INTEGER PRIMARY KEY, stage TEXT NOT NULL UNIQUE);
CREATE TABLE metrics (
    stage TEXT NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL, value REAL, seconds REAL NOT NULL,
    PRIMARY KEY (name, stage, step)) WITHOUT ROWID;
CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY, stage TEXT NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    json TEXT NOT NULL, UNIQUE (stage, step, kind, name));
CREATE TABLE trajectories (
    id INTEGER PRIMARY KEY AUTOINCREMENT, stage TEXT NOT NULL, step INTEGER NOT NULL, group_index INTEGER NOT NULL,
    split TEXT NOT NULL, family TEXT NOT NULL, tier INTEGER NOT NULL, success INTEGER, reward REAL, stop TEXT NOT NULL,
    turns INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE notes (stage TEXT NOT NULL, step INTEGER NOT NULL, time REAL NOT NULL, kind TEXT NOT NULL,
    text TEXT NOT NULL);
"""
_TABLES = ("metrics", "evaluations", "trajectories", "notes")
_STAGE_ORDER = "(SELECT position FROM stages WHERE stages.stage = {table}.stage)"

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Trajectory)


class StoredEvaluation(msgspec.Struct, frozen=True):
    """One evaluation as it was stored."""

    stage: str
    step: int
    kind: str
    """On how many tasks: 'small' or 'full'."""
    name: str
    """How tokens were chosen: 'greedy' or 'sampled'."""
    content: dict[str, Any]
    """The whole result, JSON-ready."""


class StoredTrajectory(msgspec.Struct, frozen=True):
    """What a list shows of a stored trajectory; `RunStore.trajectory(id)` gives all of it."""

    id: int
    stage: str
    step: int
    group_index: int
    """Trajectories with the same stage, step, split and group index tried the same task."""
    split: str
    family: str
    tier: int
    success: bool | None
    """None when nobody knows."""
    reward: float | None
    """None when unscored."""
    stop: str
    turns: int


class Note(msgspec.Struct, frozen=True):
    """Something that happened, in words."""

    stage: str
    step: int
    time: float
    """Seconds since 1970."""
    kind: str
    text: str


class RunStore:
    """The store of one run. One connection, guarded by a lock: any thread may call any method."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open the file, or make a new one. Raises RunFolderError when it is missing or not a store."""
        if not create and not path.is_file():
            raise RunFolderError(f"{path} is missing, so this is not a complete run folder.")
        self.path = path
        self._lock = threading.RLock()
        self._connection = self._connect(path.as_posix())
        try:
            self._prepare(create)
        except RunFolderError:
            self.close()
            raise
        except sqlite3.Error as error:
            self.close()
            self._raise_full_disk(error)
            raise RunFolderError(f"{path} cannot be used as a Ferrata store: {error}.") from error
        self._started = time.monotonic() - (self._one("SELECT max(seconds) FROM metrics") or 0.0)

    def _connect(self, target: str) -> sqlite3.Connection:
        try:
            return sqlite3.connect(
                target, timeout=30.0, check_same_thread=False, isolation_level=None, uri=target.startswith("file:")
            )
        except sqlite3.Error as error:
            raise RunFolderError(f"{self.path} cannot be opened: {error}.") from error

    def _prepare(self, create: bool) -> None:
        """Set the connection up; make the tables, or check that the file's layout is ours."""
        self._connection.execute("PRAGMA busy_timeout = 30000")
        if create:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif self._version() != _VERSION:
            raise RunFolderError(f"{self.path} was not written by this version of Ferrata (layout {_VERSION}).")
        # Safe against a killed process; only a power cut can lose the last commits, and checkpoints are synced apart.
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _version(self) -> int:
        """The layout of the file. Where nothing may be written, the file is opened anew as one that nobody writes."""
        try:
            return int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.OperationalError:
            if os.access(self.path.parent, os.W_OK):
                raise
            self._connection.close()
            self._connection = self._connect(f"{self.path.resolve().as_uri()}?mode=ro&immutable=1")
            return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._connection.close()

    # Writing ------------------------------------------------------------------------------------------------

    def add_metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Store numbers of one step. A name that was already stored for this step is replaced."""
        seconds = time.monotonic() - self._started
        rows = [(stage, step, name, float(value), seconds) for name, value in values.items()]
        with self._writing(stage):
            self._connection.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)", rows)

    def add_evaluation(self, stage: str, step: int, kind: str, name: str, content: Mapping[str, Any]) -> None:
        """Store one evaluation; `content` is JSON-ready. The same (stage, step, kind, name) is replaced."""
        with self._writing(stage):
            self._connection.execute(
                "INSERT OR REPLACE INTO evaluations (stage, step, kind, name, json) VALUES (?, ?, ?, ?, ?)",
                (stage, step, kind, name, json.dumps(content)),
            )

    def drop_trajectories(self, stage: str, step: int, split: str) -> None:
        """Forget the trajectories of one step, so that writing them again does not double them."""
        with self._writing(stage):
            self._connection.execute(
                "DELETE FROM trajectories WHERE stage = ? AND step = ? AND split = ?", (stage, step, split)
            )

    def add_trajectories(self, stage: str, step: int, split: str, trajectories: Sequence[Trajectory]) -> list[int]:
        """Store whole episodes and return their ids. Those of the same task share a group index."""
        groups: dict[str, int] = {}
        with self._writing(stage):
            return [
                self._add_trajectory(
                    (stage, step, groups.setdefault(trajectory.task.fingerprint, len(groups)), split), trajectory
                )
                for trajectory in trajectories
            ]

    def _add_trajectory(self, place: tuple[str, int, int, str], trajectory: Trajectory) -> int:
        task = trajectory.task
        facts = (trajectory.success, trajectory.reward, trajectory.stop.value, len(trajectory.turns))
        cursor = self._connection.execute(
            "INSERT INTO trajectories (stage, step, group_index, split, family, tier, success, reward, stop, turns,"
            " record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, task.family, task.tier, *facts, _encoder.encode(trajectory)),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def add_note(self, stage: str, step: int, kind: str, text: str) -> None:
        """Store something that happened, in words."""
        with self._writing(stage):
            self._connection.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?)", (stage, step, time.time(), kind, text))

    def clear(self) -> None:
        """Drop every row, for a run that begins again."""
        with self._transaction():
            for table in (*_TABLES, "stages"):
                self._connection.execute(f"DELETE FROM {table}")

    def truncate_after(self, stage: str, step: int) -> None:
        """Drop every row newer than `step` of `stage`: later steps of it, and all stages that came after it."""
        with self._writing(stage):
            for table in _TABLES:
                order = _STAGE_ORDER.format(table=table)
                self._connection.execute(
                    f"DELETE FROM {table} WHERE (stage = ?1 AND step > ?2)"
                    f" OR {order} > (SELECT position FROM stages WHERE stage = ?1)",
                    (stage, step),
                )
            self._connection.execute(
                "DELETE FROM stages WHERE position > (SELECT position FROM stages WHERE stage = ?)", (stage,)
            )

    # Reading ------------------------------------------------------------------------------------------------

    def stages(self) -> list[str]:
        """Names of the stages, in the order in which they began."""
        return [row[0] for row in self._all("SELECT stage FROM stages ORDER BY position")]

    def metric_names(self, stage: str | None = None) -> list[str]:
        """Names of all metrics, of one stage or of the whole run."""
        sql = "SELECT DISTINCT name FROM metrics WHERE ?1 IS NULL OR stage = ?1 ORDER BY name"
        return [row[0] for row in self._all(sql, stage)]

    def metrics(self, name: str, stage: str | None = None) -> list[tuple[int, float]]:
        """The curve of one metric as (step, value), oldest first; stages follow one another."""
        sql = (
            "SELECT step, value FROM metrics WHERE name = ?1 AND (?2 IS NULL OR stage = ?2)"
            f" ORDER BY {_STAGE_ORDER.format(table='metrics')}, step"
        )
        return [(step, float("nan") if value is None else value) for step, value in self._all(sql, name, stage)]

    def latest(self, name: str, stage: str | None = None) -> float | None:
        """The newest value of one metric; None when it was never stored."""
        curve = self.metrics(name, stage)
        return curve[-1][1] if curve else None

    def seconds(self, stage: str | None = None) -> list[tuple[int, float]]:
        """When each step was stored, as (step, seconds of running since the run began)."""
        sql = (
            "SELECT step, max(seconds) FROM metrics WHERE ?1 IS NULL OR stage = ?1 GROUP BY stage, step"
            f" ORDER BY {_STAGE_ORDER.format(table='metrics')}, step"
        )
        return self._all(sql, stage)

    def evaluations(self, kind: str | None = None, stage: str | None = None) -> list[StoredEvaluation]:
        """Evaluations in the order in which they were made."""
        sql = (
            "SELECT stage, step, kind, name, json FROM evaluations"
            f" WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR stage = ?2)"
            f" ORDER BY {_STAGE_ORDER.format(table='evaluations')}, step, id"
        )
        rows = self._all(sql, kind, stage)
        return [StoredEvaluation(stage, step, kind, name, json.loads(text)) for stage, step, kind, name, text in rows]

    def trajectory(self, identifier: int) -> Trajectory:
        """One whole trajectory. Raises RunFolderError when there is none of this id."""
        rows = self._all("SELECT record FROM trajectories WHERE id = ?", identifier)
        if not rows:
            least, most = self._all("SELECT min(id), max(id) FROM trajectories")[0]
            known = "none is stored" if least is None else f"stored ones run from {least} to {most}"
            raise RunFolderError(f"There is no trajectory {identifier} in {self.path.parent}: {known}.")
        try:
            return _decoder.decode(rows[0][0])
        except msgspec.MsgspecError as error:
            raise RunFolderError(f"Trajectory {identifier} in {self.path} is damaged: {error}.") from error

    def list_trajectories(
        self,
        *,
        stage: str | None = None,
        step: int | None = None,
        split: str | None = None,
        family: str | None = None,
        tier: int | None = None,
        success: bool | None = None,
        limit: int | None = None,
    ) -> list[StoredTrajectory]:
        """Stored trajectories, oldest first; each filter that is not None must hold."""
        wanted = {"stage": stage, "step": step, "split": split, "family": family, "tier": tier, "success": success}
        filters = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in filters) or "TRUE"
        sql = (
            "SELECT id, stage, step, group_index, split, family, tier, success, reward, stop, turns"
            f" FROM trajectories WHERE {where} ORDER BY id LIMIT ?"
        )
        return [_stored(row) for row in self._all(sql, *filters.values(), -1 if limit is None else limit)]

    def notes(self, kind: str | None = None) -> list[Note]:
        """What happened, oldest first."""
        sql = "SELECT stage, step, time, kind, text FROM notes WHERE ?1 IS NULL OR kind = ?1 ORDER BY rowid"
        return [Note(*row) for row in self._all(sql, kind)]

    # Plumbing -----------------------------------------------------------------------------------------------

    def _all(self, sql: str, *arguments: Any) -> list[Any]:
        with self._lock:
            try:
                return self._connection.execute(sql, arguments).fetchall()
            except sqlite3.DatabaseError as error:
                raise RunFolderError(f"{self.path} cannot be read, it may be damaged: {error}.") from error

    def _one(self, sql: str) -> Any:
        return self._all(sql)[0][0]

    @contextmanager
    def _writing(self, stage: str) -> Iterator[None]:
        """A transaction of a stage, which is known afterwards."""
        with self._transaction():
            self._connection.execute("INSERT OR IGNORE INTO stages (stage) VALUES (?)", (stage,))
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of the block is stored, or nothing."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self._raise_full_disk(error)
                raise

    def _raise_full_disk(self, error: BaseException) -> None:
        """Raise a CheckpointError when `error` means that the disk is full."""
        if isinstance(error, OSError | sqlite3.Error) and is_full(error, self.path):
            free = human_size(free_bytes(self.path))
            raise CheckpointError(
                f"The disk is full: {self.path} could not be written ({free} free); what was stored before is intact, "
                "so make room and continue with --resume."
            ) from error


def _stored(row: Sequence[Any]) -> StoredTrajectory:
    """A row of the list as a record; SQLite knows no booleans."""
    *place, success, reward, stop, turns = row
    identifier, stage, step, group_index, split, family, tier = place
    known = None if success is None else bool(success)
    return StoredTrajectory(identifier, stage, step, group_index, split, family, tier, known, reward, stop, turns)
