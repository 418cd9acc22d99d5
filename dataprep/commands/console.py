"""What a command prints on stderr: text for people, or with ``--log-json`` one JSON object per line for schedulers.

Libraries use `logging` without handlers; `Console.begin` attaches the only one.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Self

from dataprep.progress import PartOfShard, listen
from manifests.errors import DatasetError
from manifests.process.interrupts import on_interrupt
from manifests.process.text import format_duration, one_line
from manifests.records import record

#: Loggers of the packages that commands use.
_LOGGERS = ("dataprep", "manifests")


class Console:
    """Prints events, in the way that the common options of all commands choose.

    Attributes:
        quiet: whether to print nothing but results and errors.
        verbose: whether to print what `logging` receives with the level ``INFO``, too.
        is_json: whether events are JSON.
        messages: what the command has found and noted, also if it is quiet.
        bar: the progress bar on the terminal, if there is one.

    """

    def __init__(self) -> None:
        self.begin("")

    def begin(self, command: str, *, is_json: bool = False) -> None:
        """Start a command. This process may have run another one before."""
        self.quiet = self.verbose = False
        self.is_json = is_json
        self.messages: list[str] = []
        self.bar: Any = None
        self._command = command
        self._started = time.monotonic()
        on_interrupt(kept=_KEPT.get(command), render=self._render_interrupt if is_json else None)

    def configure(self, *, quiet: bool, verbose: bool) -> None:
        """Set how much to print, and attach a handler to the loggers of the packages."""
        self.quiet, self.verbose = quiet, verbose
        level = logging.WARNING
        if verbose:
            level = logging.INFO
        elif quiet:
            level = logging.ERROR
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(_handler)
            logger.setLevel(level)

    def event(self, kind: str, text: str, **fields: Any) -> None:
        """Print an event: the text, or a JSON object with the fields, in which the text is the default message."""
        if self.bar is not None:
            self.bar.clear()
        message = {} if kind == "progress" else {"message": text}
        self._write(self._json(kind, message | fields) if self.is_json else one_line(text))

    def info(self, message: str) -> None:
        """Print what the command has found."""
        self.messages.append(message)
        if not self.quiet:
            self.event("info", message)

    def note(self, message: str) -> None:
        """Print a notice for the user."""
        self.messages.append(message)
        if not self.quiet:
            self.event("warning", message if self.is_json else f"note: {message}")

    def notes(self, messages: Iterable[str]) -> None:
        """Print several notices."""
        for message in messages:
            self.note(message)

    def error(self, message: str, **fields: Any) -> None:
        """Print an error."""
        self.event("error", message if self.is_json else f"dataprep: {message}", **fields)

    def show_error(self, text: str, error: BaseException) -> None:
        """Print the error that ended the command; `text` is the whole line for people."""
        if not self.is_json:
            self.event("error", text)
        elif isinstance(error, DatasetError):
            self.error(error.message, file=error.file or None, hint=error.hint or None)
        else:
            self.error(text.removeprefix("dataprep: "))

    def end(self, status: int) -> None:
        """Print the last event, if events are JSON."""
        if self.is_json:
            self._write(self._end(status))

    def _write(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def _end(self, status: int) -> str:
        seconds = round(time.monotonic() - self._started, 3)
        return self._json("result", {"status": int(status), "seconds": seconds})

    def _render_interrupt(self, message: str, status: int) -> str:
        return f"{self._json('error', {'message': message})}\n{self._end(status)}\n"

    def _json(self, kind: str, fields: dict[str, Any]) -> str:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        head = {"time": now, "event": kind, "command": self._command}
        return json.dumps(head | fields, default=str)


class _Handler(logging.Handler):
    """Prints log records."""

    def emit(self, record: logging.LogRecord) -> None:
        message = one_line(record.getMessage())
        if not console.is_json:
            console.event("log", f"{record.name}: {message}")
            return
        kind = "log"
        if record.levelno >= logging.ERROR:
            kind = "error"
        elif record.levelno >= logging.WARNING:
            kind = "warning"
        console.event(kind, message, logger=record.name)


_handler = _Handler()

#: What is kept if a command is interrupted before it knows more.
_KEPT = {
    "convert": "finished shards are kept",
    "work": "finished shards are kept",
    "finish": "the shards are kept",
    "plan": "finished shards are kept",
    "index": "the shards are unchanged",
    "verify": "the dataset is unchanged",
    "info": "the dataset is unchanged",
    "repair": "files that were repaired are kept",
    "report": "the dataset is unchanged",
    "duplicates": "the shards are unchanged",
    "diff": "the datasets are unchanged",
}

console = Console()


# --- how far a step is ----------------------------------------------------------------------------


Clock = Callable[[], float]

#: Seconds before now in which the rate is measured.
_WINDOW = 30.0

#: Seconds between two points that the rate is computed from.
_SPACING = 0.5


@record
class StepState:
    """How far a step is.

    Attributes:
        done: images that are done, also by earlier runs.
        total: all images; `None` if their number is not known.
        total_is_estimate: whether `total` is estimated from the shards that are finished.
        images_per_second: images that this run does in a second; `None` before the first one.
        seconds_left: estimated time to the end; `None` if it cannot be estimated.
        seconds: time since the start.

    """

    done: int
    total: int | None
    total_is_estimate: bool
    images_per_second: float | None
    seconds_left: float | None
    seconds: float

    @property
    def fraction(self) -> float | None:
        """The part of the images that is done, 0 to 1."""
        if self.total is None:
            return None
        return min(self.done / self.total, 1.0) if self.total else 1.0


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
        self._parts = Counter[str]()
        self.finished = 0

    def add_part(self, shard: str, images: int) -> None:
        """Count images of a shard that is not finished, until all shards are."""
        if self.finished == self._shards:
            return
        self._parts[shard] += images
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
    def state(self) -> StepState:
        """How far the step is now."""
        now, done = self._clock(), self._new + self._old
        total, is_estimate = self._images, False
        if total is None and self.finished:
            total, is_estimate = done, self.finished < self._shards
            # The other shards are likely to have as many images as the finished ones.
            if is_estimate:
                counted = done - self._parts.total()
                total = max(round(counted / self.finished * self._shards), done)
        # The rate of the last seconds, without the shards of earlier runs.
        since, before = self._points[0]
        rate = left = None
        if self._new > before and now > since:
            rate = (self._new - before) / (now - since)
        if done == total:
            left = 0.0
        elif total is not None and rate is not None:
            left = max(total - done, 0) / rate
        return StepState(done, total, is_estimate, rate, left, now - self._started)


#: Without a terminal, progress is reported after so many seconds, or as often as this in total.
_LINE_SECONDS, _LINES = 30.0, 10

#: But not more often than this, so a short run reports nothing.
_MIN_SECONDS = 5.0


class Cadence:
    """Decides when to report progress without a terminal: every 30 s or 10%, but at most every 5 s."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._part = 0

    def is_due(self, state: StepState) -> bool:
        """Return whether to report this state. If so, the next one is due 30 s or 10% later."""
        seconds, part = state.seconds - self._elapsed, int((state.fraction or 0.0) * _LINES)
        if seconds < _MIN_SECONDS or (seconds < _LINE_SECONDS and part == self._part):
            return False
        self._elapsed, self._part = state.seconds, part
        return True


def describe(state: StepState) -> str:
    """Describe a state in one line."""
    images = f"{state.done:,} images"
    if state.fraction is not None:
        about = ""
        if state.total_is_estimate:
            about = "about "
        images = f"{state.done:,} of {about}{state.total:,} images ({state.fraction:.0%})"
    return ", ".join([images, *describe_speed(state)])


def describe_speed(state: StepState) -> list[str]:
    """Describe the rate and the time left, as far as they are known."""
    parts, rate = [], state.images_per_second
    if rate is not None:
        parts.append(f"{rate:,.{0 if rate >= 10 else 1}f} images/s")
    if state.seconds_left is not None:
        parts.append(f"{format_duration(state.seconds_left)} left")
    return parts


# --- progress bars --------------------------------------------------------------------------------


#: Seconds after which the display changes even if nothing was done.
_TICK = 1.0

#: Seconds between two displays of parts of shards: a display takes as long as to write an image.
_PART_SECONDS = 0.1


class ProgressBar:
    """Implements `dataprep.progress.Progress`, and closes at the end of a ``with`` block.

    Args:
        step: what the command does meanwhile.

    """

    #: Counts what arrives before `start`.
    _meter = Meter(None, 0)

    def __init__(self, step: str) -> None:
        self._step = step
        self._display: _Bar | _Lines | None = None
        self._shown = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self, images: int | None, shards: int) -> None:
        """Show the beginning.

        A step can have several parts: each is shown from its own beginning to its end.
        """
        with self._lock:
            is_first = self._display is None
            self._close()
            self._meter = Meter(images, shards)
            self._display = _make_display(self._step, self._meter.state)
        # The display of the first part ticks for the other parts, too.
        if self._display is not None and is_first:
            listen(self._add_part)
            threading.Thread(target=self._tick, daemon=True).start()

    def advance(self, shard: str, images: int, *, resumed: bool = False) -> None:
        """Count a finished shard."""
        with self._lock:
            self._meter.add_shard(shard, images, resumed=resumed)
        self._show()

    def _add_part(self, part: PartOfShard) -> None:
        with self._lock:
            self._meter.add_part(*part)
        if time.monotonic() - self._shown >= _PART_SECONDS:
            self._show()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK):
            self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        with self._lock:
            if self._display is not None and not self._ended.is_set():
                self._display.show(self._meter.state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        listen(None)
        self._close()

    def _close(self) -> None:
        if self._display is not None:
            self._display.close(self._meter.state)


def _make_display(step: str, state: StepState) -> _Bar | _Lines | None:
    if console.quiet:
        return None
    if not console.is_json and sys.stderr.isatty():
        return _Bar(step, state)
    return _Lines(step, state)


#: What tqdm shows with and without a total.
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} images [{elapsed}{postfix}]"
_COUNTER = "{desc}: {n_fmt} images [{elapsed}{postfix}]"


class _Bar:
    """A bar on a terminal."""

    def __init__(self, step: str, state: StepState) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(
            desc=step,
            total=state.total,
            dynamic_ncols=True,
            bar_format=_BAR if state.total is not None else _COUNTER,
            file=sys.stderr,
        )
        console.bar = self._bar

    def show(self, state: StepState) -> None:
        bar = self._bar
        # The total may become known when the first shard is finished.
        if bar.total is None and state.total is not None:
            bar.bar_format = _BAR
        bar.total = state.total
        bar.set_postfix_str(", ".join(describe_speed(state)), refresh=False)
        bar.update(state.done - bar.n)

    def close(self, state: StepState) -> None:
        self.show(state)
        self._bar.refresh()
        console.bar = None
        self._bar.close()


class _Lines:
    """Lines in a log: text, or JSON objects."""

    def __init__(self, step: str, state: StepState) -> None:
        self._step = step
        self._cadence = Cadence()
        if console.is_json:
            self._write(state)

    def show(self, state: StepState) -> None:
        if self._cadence.is_due(state):
            self._write(state)

    def close(self, state: StepState) -> None:
        if console.is_json:
            self._write(state)

    def _write(self, state: StepState) -> None:
        # Readers of the log need no more digits.
        fields = asdict(state)
        for name, value in fields.items():
            if isinstance(value, float):
                fields[name] = round(value, 1)
        console.event("progress", f"{self._step}: {describe(state)}", step=self._step, **fields)
