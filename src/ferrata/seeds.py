"""Where randomness comes from: every stream is named, and its seed is derived from the run's seed and its name.

`stream(seed, "tasks", update)` depends on these three alone, never on what ran before it or beside it. So an
episode, a batch or a task order can be drawn again after a restart without saving any generator's state.
"""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed that depends on the root seed and every element of the path."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stream(seed: int, *path: str | int) -> random.Random:
    """The random stream of this name."""
    return random.Random(derive(seed, *path))
