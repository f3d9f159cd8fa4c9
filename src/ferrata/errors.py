"""One exception tree; each class says whose fault it was.

FerrataError                 base of everything that we raise on purpose
├── UsageError               the person's input: one sentence, exit code 2, no traceback
│   ├── UnknownNameError     a name that is not in a table; carries the nearest known one
│   ├── RecipeError          a recipe key or value
│   ├── PolicyError          a folder that is not a policy, or a model that cannot be used
│   ├── RunFolderError       a run folder that is missing, foreign or in use
│   └── TaskError            task sets that overlap, or an environment that breaks its contract
├── EnvironmentFault         the environment failed: never trained as the agent's failure
├── JudgeFault               the judge failed: the episode is unscored
├── RolloutFault             too many rollouts failed: stop the run loudly
├── SamplerFault             a sampler failed, or does not hold the weights it was sent
├── CheckpointError          a checkpoint could not be written or is torn
├── AuditError               an action could not be logged, or a log was tampered with
└── Interrupted              the person asked to stop; everything up to here is saved
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

MAX_CHARACTERS = 2000
"""Longest text of an error of somebody else that we pass on."""


class FerrataError(Exception):
    """Base class: `str(error)` is a complete sentence for a person."""

    exit_code = 1


class UsageError(FerrataError):
    """What the person asked for cannot be done as asked."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name is not in a table of known names."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """Build the message: `kind` names the table, `known` its entries."""
        return cls(f"Unknown {kind} '{name}'. {nearest(name, known)}")


class RecipeError(UsageError):
    """A recipe cannot be read, or a key or value in it is wrong."""


class PolicyError(UsageError):
    """A folder or name does not hold a usable policy."""


class RunFolderError(UsageError):
    """A run folder is missing, foreign, or not in the state that the command needs."""


class TaskError(UsageError):
    """Tasks break a promise: splits overlap, a judge contradicts its own proof."""


class EnvironmentFault(FerrataError):
    """The environment failed; the trajectory is dropped and counted, never trained."""


class JudgeFault(FerrataError):
    """The judge failed; the trajectory is unscored (`reward is None`)."""


class RolloutFault(FerrataError):
    """So many rollouts failed that going on would train on nothing."""


class SamplerFault(FerrataError):
    """An engine that samples failed, stalled, or does not compute with the weights that it was sent."""


class CheckpointError(FerrataError):
    """A checkpoint could not be written, or what was found is not whole."""


class AuditError(FerrataError):
    """An action could not be written to the audit log, or a log does not hold together."""


class Interrupted(FerrataError):
    """The person interrupted the run after its state was saved."""

    exit_code = 130


def nearest(name: str, known: Iterable[str]) -> str:
    """Return 'Did you mean ...?' for the nearest known name, else the list of known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Known: {', '.join(names)}." if names else "None is known."


def safe_text(error: BaseException, most: int = MAX_CHARACTERS) -> str:
    """What an error says, as text that can be printed, stored and sent; never raises, whatever the error is made of.

    Half a character becomes its escape, and what is longer than `most` characters is cut with a note.
    """
    try:
        text = str.__str__(str(error))
    except BaseException as another:
        return f"(its text cannot be read: {type(another).__name__})"
    shown = text[:most].encode(errors="backslashreplace").decode()
    return shown if len(text) <= most else f"{shown}... ({len(text)} characters)"


def named(error: BaseException) -> str:
    """An error of somebody else as 'Kind: text'."""
    return f"{type(error).__name__}: {safe_text(error)}"


@contextmanager
def boundary(fault: type[FerrataError], doing: str) -> Iterator[None]:
    """Turn any unexpected exception inside the block into `fault`, naming what was being done.

    So is what is raised past `except Exception`, such as asyncio's cancellation. Our own errors pass through
    unchanged; KeyboardInterrupt, SystemExit and GeneratorExit are no failures in this sense and pass as well.
    """
    try:
        yield
    except (FerrataError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise fault(f"While {doing}: {named(error)}") from error
