"""How commands learn about progress: finished shards through `Progress`, and parts of shards through `report_images`.

Everything is counted in images, because shards differ in size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple, Protocol


class Progress(Protocol):
    """Receives the progress of one step of a command.

    Both methods run in the thread that called the command.
    """

    def start(self, images: int | None, shards: int) -> None:
        """Receive the amount of work before it begins; `images` is `None` if it is not known."""

    def advance(self, shard: str, images: int, *, resumed: bool = False) -> None:
        """Receive each shard as soon as it is finished.

        Args:
            shard: its name.
            images: the number of its images, including rejected ones.
            resumed: whether it took no time, because an earlier run or another process finished it.

        """


@contextmanager
def divide(progress: Progress | None, shares: Sequence[int]) -> Iterator[tuple[Progress, ...]]:
    """Show several parts of a step as one: as many images as all shares together.

    The parts follow each other in this order. Each can count other images than its share, and can
    start again, which divides the rest of its share.

    Args:
        progress: receives the progress of the step; `None` if nothing does.
        shares: for each part, the images by which it advances the step.

    Yields:
        What receives the progress of each part.

    """
    step, total = _Step(progress), sum(shares)
    if progress:
        progress.start(total, 1)
    # Each part advances the step from the end of the part before.
    ends = list(accumulate(shares))
    yield tuple(_Part(step, end - share, end) for end, share in zip(ends, shares, strict=True))
    step.move_to(total, resumed=True)


class _Step:
    """A step whose parts `divide` shows as one."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.done = 0

    def move_to(self, done: int, *, resumed: bool = False) -> None:
        """Advance. What takes no time is `resumed`, so that it does not count for the rate."""
        if self._progress and done > self.done:
            self._progress.advance(f"image {done}", done - self.done, resumed=resumed)
        self.done = max(self.done, done)


class _Part:
    """Implements `Progress` for one part of a step."""

    def __init__(self, step: _Step, begin: int, end: int) -> None:
        self._step, self._begin, self._end = step, begin, end
        self._total: int | None = None
        self._count = 0

    def start(self, images: int | None, shards: int) -> None:  # noqa: ARG002
        self._step.move_to(self._begin, resumed=True)
        self._begin, self._total, self._count = self._step.done, images, 0

    def advance(self, shard: str, images: int, *, resumed: bool = False) -> None:  # noqa: ARG002
        self._count += images
        if self._total:
            share = (self._end - self._begin) * min(self._count, self._total) // self._total
            self._step.move_to(self._begin + share)


#: Tasks that read one image after the other report this many at once.
REPORTED_IMAGES = 64


class PartOfShard(NamedTuple):
    """Images of a shard that is not finished.

    Attributes:
        shard: name of the shard, as `Progress.advance` receives it later.
        images: how many images are done since the last report.

    """

    shard: str
    images: int


#: Receives parts of shards. It may be called in any thread.
Listener = Callable[[PartOfShard], None]

_listeners: list[Listener] = []


def listen(listener: Listener | None) -> None:
    """Send the parts of shards that this process and its workers report to a listener.

    `None` drops them.
    """
    _listeners[:] = [listener] if listener else []


def report_images(shard: str, images: int) -> None:
    """Report images of a shard that are done.

    A task may call this; what it does not report counts at its end.
    """
    for listener in _listeners:
        listener(PartOfShard(shard, images))
