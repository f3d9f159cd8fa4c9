"""Another time of day: whoever reads the clock while an environment plays sees another one in another process."""

from __future__ import annotations

import datetime
import time
from typing import Any, Self

SHIFT = 1000 * 86_400 + 7 * 3_600 + 13 * 60 + 11
"""Seconds: another year, month, day, weekday, hour, minute and second."""


class _AlsoReal(type):
    """Dates that were made elsewhere are instances too."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])


class ShiftedDate(datetime.date, metaclass=_AlsoReal):
    """A date whose today is another day."""

    @classmethod
    def today(cls) -> Self:
        """The shifted day."""
        return cls.fromtimestamp(time.time())


class ShiftedDatetime(datetime.datetime, metaclass=_AlsoReal):
    """A time whose now is another moment."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        """The shifted moment."""
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls) -> Self:
        """The shifted moment."""
        return cls.now()

    @classmethod
    def utcnow(cls) -> Self:
        """The shifted moment, in UTC and without a zone."""
        return cls.now(datetime.UTC).replace(tzinfo=None)


def shift_clock() -> None:
    """Shift the clock of this process for all that is imported from here on. Durations stay what they are."""
    real = {name: getattr(time, name) for name in ("time", "time_ns", "localtime", "gmtime", "ctime", "strftime")}

    def at(seconds: float | None) -> float:
        return float(real["time"]()) + SHIFT if seconds is None else seconds

    def strftime(form: str, moment: Any = None) -> Any:
        return real["strftime"](form, real["localtime"](at(None)) if moment is None else moment)

    shifted = {
        "time": lambda: at(None),
        "time_ns": lambda: real["time_ns"]() + SHIFT * 10**9,
        "localtime": lambda seconds=None: real["localtime"](at(seconds)),
        "gmtime": lambda seconds=None: real["gmtime"](at(seconds)),
        "ctime": lambda seconds=None: real["ctime"](at(seconds)),
        "strftime": strftime,
    }
    vars(time).update(shifted)
    vars(datetime).update(date=ShiftedDate, datetime=ShiftedDatetime)
