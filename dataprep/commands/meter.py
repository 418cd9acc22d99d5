"""How far a step is, how fast it is, and when it ends, computed from what `dataprep.progress` reports."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]

#: The rate is that of this many last seconds.
_WINDOW = 30.0

#: Seconds between two points that the rate is computed from.
_SPACING = 0.5


@dataclass(frozen=True, slots=True)
class State:
    """How far a step is.

    Attributes:
        done: images that are done, also by earlier runs.
        total: all images; `None` if their number is not known.
        is_estimate: whether `total` is estimated from the shards that are finished.
        rate: images per second that this run does; `None` before the first one.
        seconds_left: estimated time to the end; `None` if it cannot be estimated.
        elapsed: seconds since the start.

    """

    done: int
    total: int | None
    is_estimate: bool
    rate: float | None
    seconds_left: float | None
    elapsed: float

    @property
    def fraction(self) -> float | None:
        """The part of the images that is done, 0 to 1."""
        return (
            None
            if self.total is None
            else 1.0
            if self.total == 0
            else min(self.done / self.total, 1.0)
        )


class Meter:
    """Counts images. Shards of earlier runs are left out of the rate.

    The caller synchronizes threads.

    Args:
        images: number of images; `None` if it is not known.
        shards: number of shards.
        clock: the time in seconds.

    """

    def __init__(self, images: int | None, shards: int, clock: Clock = time.monotonic) -> None:
        self._images = images
        self._shards = shards
        self._clock = clock
        self._started = clock()
        self._points = deque([(self._started, 0)])
        self._new = self._old = 0
        self._parts: dict[str, int] = {}
        self.finished = 0

    def add_part(self, shard: str, images: int) -> None:
        """Count images of a shard that is not finished, until all shards are."""
        if self.finished == self._shards:
            return
        self._parts[shard] = self._parts.get(shard, 0) + images
        self._add(images)

    def add_shard(self, shard: str, images: int, *, resumed: bool) -> None:
        """Count the images of a finished shard, except those that were counted as parts."""
        self.finished += 1
        rest = images - self._parts.pop(shard, 0)
        if resumed:
            self._old += rest
        else:
            self._add(rest)

    def _add(self, images: int) -> None:
        self._new += images
        now = self._clock()
        if now - self._points[-1][0] >= _SPACING:
            self._points.append((now, self._new))
        while len(self._points) > 1 and self._points[1][0] <= now - _WINDOW:
            self._points.popleft()

    @property
    def state(self) -> State:
        """How far the step is now."""
        now, done = self._clock(), self._new + self._old
        total, is_estimate = self._images, False
        if total is None and self.finished:
            counted = done - sum(self._parts.values())
            is_estimate = self.finished < self._shards
            total = (
                max(round(counted / self.finished * self._shards), done) if is_estimate else done
            )
        since, before = self._points[0]
        rate = (self._new - before) / (now - since) if self._new > before and now > since else None
        left = None if total is None or rate is None else max(total - done, 0) / rate
        return State(
            done, total, is_estimate, rate, 0.0 if done == total else left, now - self._started
        )


#: Without a terminal, progress is reported after so many seconds, or as often as this in total.
_LINE_SECONDS, _LINES = 30.0, 10

#: But not more often than this, so a short run reports nothing.
_MIN_SECONDS = 5.0


class Cadence:
    """Decides when to report progress without a terminal: every 30 s or 10%, but at most every 5 s."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._part = 0

    def is_due(self, state: State) -> bool:
        """Return whether to report this state. If so, the next one is due 30 s or 10% later."""
        seconds, part = state.elapsed - self._elapsed, int((state.fraction or 0.0) * _LINES)
        if seconds < _MIN_SECONDS or (seconds < _LINE_SECONDS and part == self._part):
            return False
        self._elapsed, self._part = state.elapsed, part
        return True


def describe(state: State) -> str:
    """Describe a state in one line."""
    images = f"{state.done:,}"
    if state.total is not None and state.fraction is not None:
        about = "about " if state.is_estimate else ""
        images += f" of {about}{state.total:,} images ({state.fraction:.0%})"
    else:
        images += " images"
    return ", ".join([images, *describe_speed(state)])


def describe_speed(state: State) -> list[str]:
    """Describe the rate and the time left, as far as they are known."""
    rate = (
        [] if state.rate is None else [f"{state.rate:,.{0 if state.rate >= 10 else 1}f} images/s"]
    )
    return (
        rate
        if state.seconds_left is None
        else [*rate, f"{format_duration(state.seconds_left)} left"]
    )


def format_duration(seconds: float) -> str:
    """Format a time with its two largest units: ``45 s``, ``3 min 12 s``, ``2 h 5 min``, ``1 d 4 h``."""
    whole = round(seconds)
    for name, size, smaller, unit in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // unit} {smaller}"
    return f"{whole} s"
