"""What a loader measures while it is used: `Metrics`, given to a function, a file or Prometheus.

Imports neither torch nor DALI.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from loaders.ranks import Ranks, local_rank
from manifests.errors import CallError
from manifests.process.text import printable

if TYPE_CHECKING:
    from loaders.progress import Position

#: Seconds between two measurements. An epoch ends with one too.
INTERVAL = 10.0

PROMETHEUS = re.compile(r"prometheus:(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Metrics:
    """What happened since the last measurement, on this rank.

    Attributes:
        time: seconds since 1970.
        split: name of the split.
        rank: number of this process.
        epoch: number of the epoch.
        batch: batches of this epoch so far.
        seconds: how long it took.
        images: images that the training script received.
        wait_seconds: seconds that it waited for them.
        prepared: batches whose encoded images are ready for the pipeline that comes next, 0 to 2: 0
            again and again means that reading is too slow. `None` if DALI's own reader reads.
        decode_errors: images so far that could not be decoded.
        cache_hits: images of an object store that were on the disk when they were needed.
        cache_misses: images that were waited for.
        store_bytes: bytes that came from the store.

    """

    time: float
    split: str
    rank: int
    epoch: int
    batch: int
    seconds: float
    images: int
    wait_seconds: float
    prepared: int | None
    decode_errors: int
    cache_hits: int
    cache_misses: int
    store_bytes: int

    @property
    def images_per_second(self) -> float:
        """Images per second, including the time of the model."""
        return self.images / max(self.seconds, 1e-9)

    @property
    def wait_share(self) -> float:
        """Share of the time that the training script waited for images, 0 to 1."""
        return min(1.0, self.wait_seconds / max(self.seconds, 1e-9))

    def to_dict(self) -> dict[str, Any]:
        """Return all values as plain values."""
        derived = {"images_per_second": self.images_per_second, "wait_share": self.wait_share}
        return {**asdict(self), **derived}


Sink: TypeAlias = Callable[[Metrics], None]


def check_metrics(name: str, value: Any) -> Any:
    """Return the argument `metrics` of `loaders.build`: a function, or a text.

    Raises:
        CallError: it is neither.

    """
    if callable(value):
        return value
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        text = os.fspath(value)
        match = PROMETHEUS.fullmatch(text)
        if not text.startswith("prometheus:") or (match and 0 < int(match[1]) < 2**16):
            return text
    raise CallError(
        f"{name} must be a function, a path or 'prometheus:PORT', got {value!r}",
        hint='pass metrics="prometheus:9400", or metrics="metrics.jsonl"',
    )


class Meter:
    """Measures a loader, and gives its metrics to a sink every `INTERVAL` seconds."""

    def __init__(
        self, split: str, rank: int, sink: Sink, traffic: Callable[[], tuple[int, int, int]]
    ) -> None:
        """Begin to measure.

        Args:
            split: name of the split.
            rank: number of this process.
            sink: gets the metrics.
            traffic: returns cache hits, cache misses and bytes from the store so far.

        """
        self._split = split
        self._rank = rank
        self._sink = sink
        self._totals = traffic
        self.begin()
        self._before = self._totals()

    def begin(self) -> None:
        """Begin an epoch: what the script did before is not measured."""
        self._reset(time.perf_counter())

    def batch(
        self,
        began: float,
        images: int,
        at: Position,
        *,
        last: bool,
        prepared: int | None,
        errors: int,
    ) -> None:
        """Count a batch.

        Args:
            began: when the script asked for it, by `time.perf_counter`.
            images: its images.
            at: its place.
            last: whether it is the last one of the epoch.
            prepared: see `Metrics`.
            errors: images so far that could not be decoded.

        """
        now = time.perf_counter()
        self._images += images
        self._waited += now - began
        if now - self._since < INTERVAL and not last:
            return
        totals = self._totals()
        hits, misses, size = (new - old for new, old in zip(totals, self._before, strict=True))
        self._sink(
            Metrics(
                time.time(), self._split, self._rank, at.epoch,
                at.batch + 1, now - self._since, self._images, self._waited, prepared, errors,
                hits, misses, size,
            )
        )  # fmt: skip
        self._before = totals
        self._reset(now)

    def _reset(self, now: float) -> None:
        self._since = now
        self._images = 0
        self._waited = 0.0


def open_sink(target: Any, ranks: Ranks) -> Sink:
    """Return what takes the metrics of a loader; see `loaders.build`.

    Raises:
        CallError: the file cannot be written, the port is in use, or `prometheus_client` is missing.

    """
    if callable(target):
        function: Sink = target
        return function
    match = PROMETHEUS.fullmatch(target)
    if match:
        local = local_rank(ranks)
        return _prometheus(int(match[1]) + (ranks.rank if local is None else local))
    try:
        _append(target, "")
    except OSError as error:
        raise CallError(
            f"metrics: {printable(target)} cannot be written ({error.strerror})"
        ) from error
    return lambda metrics: _append(target, f"{json.dumps(metrics.to_dict())}\n")


def _append(path: str, line: str) -> None:
    # One write a line: several ranks may share the file.
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)


# --- Prometheus -----------------------------------------------------------------------------------

#: Values that only grow, and values of the last measurement.
_TOTALS = ("images", "wait_seconds", "seconds", "cache_hits", "cache_misses", "store_bytes")
_LAST = ("images_per_second", "wait_share", "prepared", "decode_errors", "epoch", "batch")

#: The sink of each port: loaders of one process share it.
_servers: dict[int, Sink] = {}


def _prometheus(port: int) -> Sink:
    if port in _servers:
        return _servers[port]
    try:
        import prometheus_client as client
    except ImportError:
        raise CallError(
            f'metrics="prometheus:{port}" needs prometheus_client, which is not installed',
            hint="pip install 'dataprep-loaders[prometheus]'",
        ) from None
    registry = client.CollectorRegistry()
    published: dict[str, Any] = {}
    for name in (*_TOTALS, *_LAST):
        kind = client.Counter if name in _TOTALS else client.Gauge
        text = f"{name.replace('_', ' ')}; see loaders.Metrics"
        published[name] = kind(f"loaders_{name}", text, ("split", "rank"), registry=registry)

    def publish(metrics: Metrics) -> None:
        values = metrics.to_dict()
        for name, each in published.items():
            if values[name] is None:
                continue
            of_rank = each.labels(metrics.split, str(metrics.rank))
            if name in _TOTALS:
                of_rank.inc(values[name])
            else:
                of_rank.set(values[name])

    try:
        client.start_http_server(port, addr="127.0.0.1", registry=registry)
    except (OSError, OverflowError) as error:  # a port above 65535 is an OverflowError
        raise CallError(
            f"metrics: port {port} of 127.0.0.1 cannot be used ({error})",
            hint="name a free port; each rank of a machine takes the next one",
        ) from error
    _servers[port] = publish
    return publish
