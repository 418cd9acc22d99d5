"""Shows the progress of a command on stderr: a bar on a terminal, else a line from time to time."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any, Protocol, Self

from dataprep.commands.console import console
from dataprep.commands.meter import Cadence, Meter, State, describe, describe_speed
from dataprep.progress import PartOfShard, listen

#: Seconds after which the display changes even if nothing was done.
_TICK = 1.0


class _Display(Protocol):
    def show(self, state: State) -> None:
        """Receive the state whenever it has changed, and every second."""

    def close(self, state: State) -> None:
        """Receive the state at the end."""


class ProgressBar:
    """Implements `dataprep.progress.Progress`, and closes at the end of a ``with`` block.

    Args:
        step: what the command does meanwhile.

    """

    def __init__(self, step: str) -> None:
        self._step = step
        self._meter: Meter | None = None
        self._display: _Display | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def start(self, images: int | None, shards: int) -> None:
        """Show the beginning.

        A step can have several parts: each is shown from its own beginning to its end.
        """
        with self._lock:
            is_first = self._meter is None
            self._close()
            self._meter = Meter(images, shards)
            self._display = _make_display(self._step, self._meter.state)
        if self._display is not None and is_first:
            listen(self._add_part)
            threading.Thread(target=self._tick, daemon=True).start()

    def advance(self, shard: str, images: int, *, resumed: bool = False) -> None:
        """Count a finished shard."""
        if self._meter is not None:
            with self._lock:
                self._meter.add_shard(shard, images, resumed=resumed)
            self._show()

    def _add_part(self, part: PartOfShard) -> None:
        if self._meter is not None:
            with self._lock:
                self._meter.add_part(*part)
            self._show()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK):
            self._show()

    def _show(self) -> None:
        with self._lock:
            if self._display is not None and self._meter is not None and not self._ended.is_set():
                self._display.show(self._meter.state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        listen(None)
        self._close()

    def _close(self) -> None:
        if self._display is not None and self._meter is not None:
            self._display.close(self._meter.state)


def _make_display(step: str, state: State) -> _Display | None:
    if console.quiet:
        return None
    if not console.is_json and sys.stderr.isatty():
        return _Bar(step, state)
    return _Lines(step, state)


class _Bar:
    """A bar on a terminal."""

    def __init__(self, step: str, state: State) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(
            desc=step,
            total=state.total,
            dynamic_ncols=True,
            bar_format=(
                "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} images [{elapsed}{postfix}]"
                if state.total is not None
                else "{desc}: {n_fmt} images [{elapsed}{postfix}]"
            ),
            file=sys.stderr,
        )
        console.bar = self._bar

    def show(self, state: State) -> None:
        bar = self._bar
        if bar.total is None and state.total is not None:
            bar.bar_format = (
                "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} images [{elapsed}{postfix}]"
            )
        bar.total = state.total
        bar.set_postfix_str(", ".join(describe_speed(state)), refresh=False)
        bar.update(state.done - bar.n)

    def close(self, state: State) -> None:
        self.show(state)
        self._bar.refresh()
        console.bar = None
        self._bar.close()


class _Lines:
    """Lines in a log: text, or JSON objects."""

    def __init__(self, step: str, state: State) -> None:
        self._step = step
        self._cadence = Cadence()
        if console.is_json:
            self._write(state)

    def show(self, state: State) -> None:
        if self._cadence.is_due(state):
            self._write(state)

    def close(self, state: State) -> None:
        if console.is_json:
            self._write(state)

    def _write(self, state: State) -> None:
        console.event(
            "progress", f"{self._step}: {describe(state)}", step=self._step, **_fields(state)
        )


def _fields(state: State) -> dict[str, Any]:
    return {
        "done": state.done,
        "total": state.total,
        "total_is_estimate": state.is_estimate,
        "images_per_second": None if state.rate is None else round(state.rate, 1),
        "seconds_left": None if state.seconds_left is None else round(state.seconds_left, 1),
        "seconds": round(state.elapsed, 1),
    }
