"""How commands learn about progress: finished shards through `Progress`, and parts of shards through `report_images`.

Everything is counted in images, because shards differ in size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Progress(Protocol):
    """Receives the progress of one step of a command. Both methods run in the thread that called the command."""

    def start(self, images: int | None, shards: int) -> None:
        """Receive the amount of work before it begins; `images` is `None` if it is not known."""

    def advance(self, shard: str, images: int, *, resumed: bool = False) -> None:
        """Receive each shard as soon as it is finished.

        Args:
            shard: its name.
            images: the number of its images, including rejected ones.
            resumed: whether it took no time, because an earlier run or another process finished it.

        """


#: Tasks that read one image after the other report this many at once.
REPORTED_IMAGES = 64


class PartOfShard(NamedTuple):
    """Images of a shard that is not finished.

    Attributes:
        shard: name of the shard, as `Progress.advance` receives it later.
        images: how many images are done in addition to those that were reported before.

    """

    shard: str
    images: int


#: Receives parts of shards. It may be called in any thread.
Listener = Callable[[PartOfShard], None]

_listeners: list[Listener] = []


def listen(listener: Listener | None) -> None:
    """Send the parts of shards that this process and its workers report to a listener; `None` drops them."""
    _listeners[:] = [listener] if listener else []


def report_images(shard: str, images: int) -> None:
    """Report images of a shard that are done. A task may call this; what it does not report counts at its end."""
    for listener in _listeners:
        listener(PartOfShard(shard, images))
