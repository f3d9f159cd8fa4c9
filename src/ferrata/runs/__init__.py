"""The run folder and everything a run keeps in it.

    folder       the folder itself: layout, creation, opening, the lock of the process that writes
    store        metrics, evaluations, trajectories and notes in one SQLite file
    checkpoints  whole-or-ignored checkpoints with a manifest
    interrupt    Ctrl-C once saves, twice stops
    view         what a running pipeline tells whoever watches
    disk         recognising a full disk, whoever reports it

Nothing here imports torch: reading a run is cheap.
"""

from ferrata.runs.checkpoints import Checkpoint, Checkpoints, broken, seal
from ferrata.runs.folder import RunFolder
from ferrata.runs.interrupt import Interrupts, graceful_interrupts
from ferrata.runs.store import Note, RunStore, StoredEvaluation, StoredTrajectory
from ferrata.runs.view import RunView, Score, SilentView

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Interrupts",
    "Note",
    "RunFolder",
    "RunStore",
    "RunView",
    "Score",
    "SilentView",
    "StoredEvaluation",
    "StoredTrajectory",
    "broken",
    "graceful_interrupts",
    "seal",
]
