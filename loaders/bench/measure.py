"""Measure how many images per second each stage of a loader gives, and what else affects that.

A rate has a warm-up, repeats and their spread.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, get_args

from loaders.dali.pipeline import Stage, release_memory, start_stage, take_batch
from loaders.dataset.files import map_file, resident_bytes
from loaders.dataset.split import OpenSplit
from loaders.devices import Device, cpu_name, device_name, gpu_bus_id
from loaders.loader import Loader
from loaders.ranks import imported
from loaders.spec import LoaderSpec

#: Minimum number of batches in a repeat. Of a source that prefetches more, at least as many as it
#: prefetches: torchvision's 16 workers finish 16 batches at about the same time, and a repeat must
#: contain whole bursts.
_LEAST_BATCHES = 2

#: Differences below this share are noise, whatever the spread of a few repeats says.
LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Method:
    """How to measure.

    Attributes:
        seconds: minimum duration of the warm-up and of each repeat.
        repeats: number of repeats.

    """

    seconds: float = 1.0
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Rate:
    """Images per second.

    Attributes:
        repeats: images per second in each repeat, at least one.

    """

    repeats: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.repeats)

    @property
    def noise(self) -> float:
        """Uncertainty of the median as a share of it: half of the range of the repeats."""
        return max(LEAST_NOISE, (max(self.repeats) - min(self.repeats)) / 2 / self.median)

    def beats(self, other: Rate) -> bool:
        """Return whether this rate is higher by more than the noise of both."""
        return self.median > other.median * (1 + max(self.noise, other.noise))


@dataclass(frozen=True, slots=True)
class Source:
    """A source of images to measure.

    Attributes:
        batch: takes a batch, and returns its number of images.
        prefetched: batches that the source may have ready, at least 1.

    """

    batch: Callable[[], int]
    prefetched: int


def measure(source: Source, method: Method) -> Rate:
    """Measure a source; see `measure_in_turn`."""
    return measure_in_turn({"": source}, method)[""]


def measure_in_turn(sources: Mapping[str, Source], method: Method) -> dict[str, Rate]:
    """Measure sources in turn, so that a slow moment of the machine affects all of them.

    Args:
        sources: the sources by name.
        method: how long and how often.

    """
    # The first batches of a pipeline are slower than the others.
    times = {name: _warm_up(source, method.seconds) for name, source in sources.items()}
    repeats: dict[str, list[float]] = {name: [] for name in sources}
    previous = [*sources][-1]
    for _ in range(method.repeats):
        for name, source in sources.items():
            if len(sources) > 1:
                # The previous source prefetches, on the same cores.
                time.sleep(sources[previous].prefetched * times[previous])
                # What is ready was made while another source was measured.
                _take(source, source.prefetched + 1)
                wait_for_device()
            batches = _batches(source, method.seconds / times[name])
            start = time.perf_counter()
            images = _take(source, batches)
            wait_for_device()
            repeats[name].append(images / (time.perf_counter() - start))
            previous = name
    return {name: Rate(tuple(rates)) for name, rates in repeats.items()}


def _warm_up(source: Source, seconds: float) -> float:
    """Take batches for some time, and return how many seconds one takes."""
    _take(source, 1)  # of a new pipeline, it takes longer than the others
    wait_for_device()
    start = time.perf_counter()
    taken = 0
    least = max(_LEAST_BATCHES, 2 * source.prefetched)
    while taken < least or time.perf_counter() - start < seconds:
        _take(source, 1)
        taken += 1
    wait_for_device()
    return max(1e-9, (time.perf_counter() - start) / taken)


def _batches(source: Source, least: float) -> int:
    """Return the batches of a repeat: a multiple of the batches that become ready together."""
    batches = max(_LEAST_BATCHES, math.ceil(least))
    return math.ceil(batches / source.prefetched) * source.prefetched


def _take(source: Source, batches: int) -> int:
    return sum(source.batch() for _ in range(batches))


#: Builds the spec of a loader. A loader closes what its spec has opened, so each one needs a new
#: spec.
MakeSpec = Callable[[], LoaderSpec]

#: Trains on a batch, and returns its number of images.
Step = Callable[[tuple[Any, ...]], int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that may help; see `loaders.bench.results.Remedy`.

    Attributes:
        text: the change in words.
        action: what the user does for it.
        make_spec: builds the spec of a loader with the change.

    """

    text: str
    action: str
    make_spec: MakeSpec


def measure_stages(make_spec: MakeSpec, method: Method) -> dict[str, Rate]:
    """Measure a pipeline that ends after each stage, and the loader, in turn.

    See `loaders.bench.results.STAGES`.
    """
    with ExitStack() as stack:
        sources = {}
        for name in get_args(Stage):
            sources[name] = stack.enter_context(_pipeline(make_spec(), name))
        sources["delivery"] = _source_of(stack.enter_context(Loader[Any](make_spec())))
        return measure_in_turn(sources, method)


def measure_loader(make_spec: MakeSpec, method: Method, model: Step | None = None) -> Rate:
    """Measure a loader: the whole pipeline, and the delivery to the framework, or to a model."""
    with Loader[Any](make_spec()) as loader:
        return measure(_source_of(loader, model or _images), method)


def measure_model(make_spec: MakeSpec, model: Step, method: Method) -> Rate:
    """Measure a model with one batch that is in memory: its limit."""
    with Loader[Any](make_spec()) as loader:
        # The batch stays valid after the loader is closed.
        cached = next(iter(loader))
    return measure(Source(lambda: model(cached), 1), method)


def wait_for_device() -> None:
    """Wait until the GPUs have finished all work, of DALI too."""
    # A program without torch has no GPU work of its own.
    torch = imported("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def _pipeline(spec: LoaderSpec, stage: Stage) -> Iterator[Source]:
    pipelines = [start_stage(spec, stage)]

    def batch() -> int:
        take_batch(pipelines[0], spec.split, None)
        return spec.options.batch_size

    try:
        yield Source(batch, spec.options.prepared_batches)
    finally:
        pipelines.clear()  # `batch` must not keep it
        spec.close()
        release_memory()


def _images(batch: tuple[Any, ...]) -> int:
    return len(batch[-1])


def _source_of(loader: Loader[Any], step: Step = _images) -> Source:
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    return Source(lambda: step(next(batches)), loader.options.prepared_batches)


#: Maximum number of shards whose cached pages are counted, evenly spaced.
_MAX_SHARDS = 64

#: Other programs that use more than this share of the cores or of the GPU make rates unreliable.
_BUSY = 0.2

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a measurement ran on.

    Attributes:
        device: name of the GPU, or of the CPU if that transforms the images.
        cpu: name of the CPU.
        cores: cores that this process may use.

    """

    device: str
    cpu: str
    cores: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """What else affected a measurement.

    Attributes:
        cached_before: share of the shards that was in the page cache before, from 0 to 1. `None` if
            not known.
        cached_after: the same after the measurement.
        other_cores: average number of this process's cores that other programs used in the
            meantime. `None` if not known.
        gpu_busy: how busy the GPU was before the measurement, from 0 to 1. `None` if not known.

    """

    cached_before: float | None
    cached_after: float | None
    other_cores: float | None
    gpu_busy: float | None


def find_machine(device: Device, cores: int) -> Machine:
    """Return what this process runs on."""
    return Machine(device_name(device), cpu_name(), cores)


def disturbed(conditions: Conditions, cores: int) -> bool:
    """Return whether other programs took so much of the machine that rates may mislead.

    Args:
        conditions: what was found.
        cores: cores that this process may use.

    """
    return (conditions.other_cores or 0.0) > _BUSY * cores or (conditions.gpu_busy or 0.0) > _BUSY


def describe_conditions(conditions: Conditions, cores: int) -> str:
    """Return a line that says what else affected a measurement.

    See `disturbed` for the arguments.
    """
    before = conditions.cached_before
    after = conditions.cached_after
    cache = "not known how much of the shards it contains"
    load = "load not known"
    if before is not None and after is not None:
        cache = f"{before:.0%} of the shards before, {after:.0%} after"
    if conditions.other_cores is not None:
        load = f"{conditions.other_cores:.1f} cores on average"
    text = f"page cache: {cache}; other programs: {load}"
    if conditions.gpu_busy is not None:
        text += f"; the GPU was {conditions.gpu_busy:.0%} busy before"
    if disturbed(conditions, cores):
        text += ", so rates are lower than on an idle machine"
    return text


class Watch:
    """Watches what else affects a measurement: call it before and `conditions` after."""

    def __init__(self, split: OpenSplit, device: Device) -> None:
        self._split = split
        self.cached_before = cached_share(split)
        self._gpu_busy = _gpu_busy(device) if device.is_gpu else None
        self._start = (time.monotonic(), _busy_seconds(), _own_seconds())

    def conditions(self) -> Conditions:
        """Return the conditions since the beginning."""
        return Conditions(
            self.cached_before, cached_share(self._split), self._other_cores(), self._gpu_busy
        )

    def _other_cores(self) -> float | None:
        start, busy, own = self._start
        now_busy = _busy_seconds()
        elapsed = time.monotonic() - start
        if busy is None or now_busy is None or elapsed <= 0:
            return None
        return max(0.0, (now_busy - busy) - (_own_seconds() - own)) / elapsed


def cached_share(split: OpenSplit) -> float | None:
    """Return the share of the shards of a split that is in the page cache.

    `None` if the system does not say, which it does only for files that this user may write.
    """
    step = -(-len(split.shards) // _MAX_SHARDS)  # of many shards, some
    resident = total = 0
    for shard in split.shards[::step]:
        path = split.path(shard.file)
        if not os.access(path, os.W_OK):
            return None
        try:
            found = resident_bytes(map_file(path, shard.file.bytes))
        except (OSError, ValueError):
            return None
        resident += found
        total += shard.file.bytes
    return resident / total if total else None


def _busy_seconds() -> float | None:
    """Return how long the cores that this process may use have been busy, in seconds."""
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    try:
        with open("/proc/stat", encoding="ascii") as file:
            for name, *times in map(str.split, file):
                if name in usable:
                    usable.remove(name)
                    user, nice, system, _, _, interrupts, soft_interrupts = map(int, times[:7])
                    ticks += user + nice + system + interrupts + soft_interrupts
    except (OSError, ValueError):
        return None
    # A container may hide the cores of this process.
    return None if usable else ticks / _TICKS


def _own_seconds() -> float:
    return sum(os.times()[:4])


def _gpu_busy(device: Device) -> float | None:
    """Ask nvidia-smi how busy the GPU is. Without the program, it is not known."""
    program = shutil.which("nvidia-smi")
    bus_id = gpu_bus_id(device.index)
    if program is None or not bus_id:
        return None
    query = [program, "-i", bus_id, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)  # noqa: S603
        return int(done.stdout.strip()) / 100
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
