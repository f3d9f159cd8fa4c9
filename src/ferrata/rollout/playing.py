"""What the host of the workers knows about an episode, and how it finds out which one brings workers down.

    Playing    one episode: what was asked, what was answered, where it is played
    Trials     suspects, one at a time in each worker

When a worker dies, every episode that it was working on may be the cause. Each of them goes on as a trial: no second
suspect is in the same worker at the time, so that one more death has one cause. A request that is answered clears
its episode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ferrata.rollout.hosts import Begin, Failed, Past, Request
from ferrata.rollout.worker_handle import WorkerHandle


@dataclass(eq=False)
class Playing:
    """One episode that is under way."""

    key: int
    begin: Begin
    pending: Request | None
    """The request that waits for its answer."""
    worker: WorkerHandle | None = None
    """None while it waits for its trial, and once it is over."""
    ticket: int = -1
    past: list[Past] = field(default_factory=list)
    """The turns that were answered."""
    returning: bool = False
    """True while another worker plays the turns so far again."""
    losses: int = 0
    """Workers that died while they worked on the pending request."""
    failure: Failed | None = None
    """Why it is over, though its owner may not know yet: the answer to whatever is asked next."""


class Trials:
    """Episodes that may have brought a worker down."""

    def __init__(self) -> None:
        self._waiting: deque[Playing] = deque()
        self._under_way: dict[WorkerHandle, Playing] = {}

    def accuse(self, worker: WorkerHandle, working: Sequence[Playing]) -> None:
        """A worker died while it worked on these: it was the one on trial, or any of them."""
        accused = self._under_way.get(worker)
        for playing in working if accused is None else [accused]:
            playing.losses += 1

    def add(self, playing: Playing) -> None:
        """An accused episode waits for its trial."""
        self._waiting.append(playing)

    def begin(self, workers: Sequence[WorkerHandle]) -> Iterator[tuple[Playing, WorkerHandle]]:
        """The trials that can begin now, each with its worker: the least busy of those without one."""
        while self._waiting:
            free = [worker for worker in workers if worker not in self._under_way]
            if not free:
                return
            worker, playing = min(free, key=lambda worker: worker.episodes), self._waiting.popleft()
            self._under_way[worker] = playing
            yield playing, worker

    def end(self, playing: Playing) -> None:
        """The episode was answered, or is over: it has to do with no trial any more."""
        playing.losses = 0
        if playing in self._waiting:
            self._waiting.remove(playing)
        self._under_way = {worker: other for worker, other in self._under_way.items() if other is not playing}

    def forget(self, worker: WorkerHandle) -> None:
        """The worker is gone."""
        self._under_way.pop(worker, None)
