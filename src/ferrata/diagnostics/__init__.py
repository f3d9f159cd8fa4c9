"""What goes wrong while a run trains, seen early."""

from ferrata.diagnostics.collapse import Collapse, find_collapse

__all__ = ["Collapse", "find_collapse"]
