"""A snapshot: the whole state of one episode as one record.

snapshot = env.snapshot()               cheap: the world is kept as JSON, and nothing can change it later
env.restore(snapshot)                   here or in another instance: the same future as when it was taken
Snapshot.from_bytes(snapshot.to_bytes())
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferrata.envs.faults import FaultState
from ferrata.errors import TaskError, UsageError
from ferrata.records import Task

RandomState = tuple[int, tuple[int, ...], float | None]
"""What `random.Random.getstate` gives."""


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that decides how an episode goes on."""

    env: str
    """Name of the environment."""
    version: str
    """Its version: a snapshot of another one is refused."""
    task: Task
    seed: int
    """The episode's own seed."""
    turn: int
    """Turns taken."""
    reached: tuple[str, ...]
    """Subgoals, in the order in which they were reached."""
    paid: tuple[str, ...]
    """Those that were rewarded: after a rollback they may be more than `reached`."""
    history: tuple[tuple[str, str], ...]
    """Tool and digest of every turn's call, for the rules about repetition."""
    over: bool
    """True when the episode has ended."""
    world: msgspec.Raw
    """What `save_world` gave, as JSON."""
    random: RandomState | None = None
    """State of the episode's own random numbers; None when none was drawn."""
    faults: FaultState | None = None
    """Rates and state of injected faults; None without any."""

    def to_bytes(self) -> bytes:
        """The snapshot as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """Read what `to_bytes` wrote. Raises UsageError for anything else."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"This is not a snapshot: {error}.") from error
        return msgspec.structs.replace(found, world=found.world.copy())


class UnsavableWorld(TaskError):
    """The world cannot be kept as JSON."""

    def __init__(self, what: str, remedy: str, attribute: str = "", method: str = "") -> None:
        super().__init__(f"{what}: {remedy}.")
        self.what = what
        self.remedy = remedy
        self.attribute = attribute
        """The author's attribute that cannot be saved; empty where one of their methods gave something else."""
        self.method = method
        """That method."""


def encode_world(env: str, world: Any, method: str = "save_world") -> msgspec.Raw:
    """A world as JSON. Raises UnsavableWorld when `method` gave something that JSON cannot hold."""
    try:
        return msgspec.Raw(msgspec.json.encode(world))
    except (TypeError, ValueError, RecursionError) as error:
        what = f"{method}() of environment '{env}' must give JSON-ready content"
        raise UnsavableWorld(what, str(error).rstrip("."), method=method) from error


def plain_world(env: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """The default world: an environment's own attributes, if each is of a kind that JSON brings back unchanged.

    Raises UnsavableWorld for the first that is not.
    """
    for name, value in attributes.items():
        if not _is_plain(value):
            what = f"Environment '{env}' keeps a {type(value).__name__} in '{name}', which cannot be saved by itself"
            raise UnsavableWorld(what, "write save_world() and load_world()", name)
    return attributes


def _is_plain(value: Any) -> bool:
    """True for JSON's own kinds; tuples, sets and other keys than texts would come back as something else."""
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(_is_plain(inner) for inner in value)
    return value is None or type(value) in (str, int, float, bool)
