"""What travels between the collector's process and its workers: tagged records as MessagePack, never pickles back.

    to a worker      (ticket, Begin | Step | Cut | Release | Close)
    to the parent    (ticket, Begun | Stepped | CutShort | Failed | Overdue | Ready | Raised), or nothing at all: a
                     heartbeat

`pack` and `pack_report` make the bytes of a message, or say why it cannot travel.

A ticket names one playing of one episode in one worker. It is never used again, so that what a lost worker had still
to say is told apart from everything that came after.
"""

from __future__ import annotations

import msgspec

from ferrata import errors
from ferrata.errors import EnvironmentFault, FerrataError, named, safe_text
from ferrata.rollout.hosts import Begin, Begun, Cut, CutShort, Failed, Step, Stepped

HEARTBEAT = b""
MAX_BYTES = 2**26
"""Longest message (bytes). `pack` refuses one that is longer; it would end the connection."""
NO_TICKET = -1
"""Of messages that are about the worker itself."""
_CHARACTERS = 20_000
"""Longest text of an error of ours: it may tell the person long lists."""


class Setup(msgspec.Struct, frozen=True):
    """The first thing that a worker reads; after it comes the pickled maker of environments."""

    folder: str
    """Where temporary files of this process go; it is deleted in the end."""
    heartbeat_seconds: float
    """Between two heartbeats."""
    step_seconds: float
    """How long one step, or the beginning of an episode, may take."""


class Release(msgspec.Struct, frozen=True, tag=True):
    """The episode is over; a broken environment is closed."""

    broken: bool


class Close(msgspec.Struct, frozen=True, tag=True):
    """Close all environments and end."""


class Overdue(msgspec.Struct, frozen=True, tag=True):
    """Requests are still being performed, and their time is up."""

    tickets: list[int]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker has made its first environment."""


class Raised(msgspec.Struct, frozen=True, tag=True):
    """An error that is no matter of one episode, to be raised in the parent."""

    kind: str
    """Name of a class in `ferrata.errors`."""
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Our own errors as the nearest class of `ferrata.errors`, any other as an EnvironmentFault that names it."""
        for kind in type(error).__mro__:
            if issubclass(kind, FerrataError) and vars(errors).get(kind.__name__) is kind:
                return cls(kind.__name__, safe_text(error, _CHARACTERS))
        return cls(EnvironmentFault.__name__, f"A worker process failed: {named(error)}")

    def error(self) -> FerrataError:
        """The error to raise."""
        kind = vars(errors).get(self.kind)
        if isinstance(kind, type) and issubclass(kind, FerrataError):
            return kind(self.message)
        return EnvironmentFault(self.message)


Order = Begin | Step | Cut | Release | Close
Report = Begun | Stepped | CutShort | Failed | Overdue | Ready | Raised


def pack(ticket: int, message: Order | Report) -> bytes:
    """The bytes of a message. Raises EnvironmentFault when it cannot travel."""
    try:
        packed = encode((ticket, message))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _cannot_travel(message, named(error)) from error
    if len(packed) > MAX_BYTES:
        raise _cannot_travel(message, f"it has {len(packed)} bytes, and {MAX_BYTES} are the most")
    return packed


def pack_report(ticket: int, report: Report) -> bytes:
    """The bytes of a report that the other side can read. Raises EnvironmentFault when it cannot travel.

    What can be written is not always what can be read: values may have other types than they are declared with.
    """
    packed = pack(ticket, report)
    try:
        decode_report(packed)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _cannot_travel(report, named(error)) from error
    return packed


def _cannot_travel(message: Order | Report, reason: str) -> EnvironmentFault:
    return EnvironmentFault(f"A message ({type(message).__name__}) cannot travel between processes: {reason}.")


encode = msgspec.msgpack.Encoder().encode
"""(ticket, message) -> bytes. Raises TypeError, ValueError or OverflowError for what cannot travel."""
decode_order = msgspec.msgpack.Decoder(tuple[int, Order]).decode
"""Raises msgspec.MsgspecError for anything else."""
decode_report = msgspec.msgpack.Decoder(tuple[int, Report]).decode
"""Raises msgspec.MsgspecError for anything else."""
