"""The machine, and what else affects a measurement on it: the page cache, and programs that run beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass

from loaders.dataset.mapped_files import map_file, resident_bytes
from loaders.dataset.split import OpenSplit
from loaders.devices import Device, cpu_name, device_name, gpu_bus_id

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
    before, after = conditions.cached_before, conditions.cached_after
    cache = (
        "not known how much of the shards it contains"
        if before is None or after is None
        else f"{before:.0%} of the shards before, {after:.0%} after"
    )
    gpu = (
        ""
        if conditions.gpu_busy is None
        else f"; the GPU was {conditions.gpu_busy:.0%} busy before"
    )
    load = (
        "load not known"
        if conditions.other_cores is None
        else f"{conditions.other_cores:.1f} cores on average"
    )
    slower = ", so rates are lower than on an idle machine" if disturbed(conditions, cores) else ""
    return f"page cache: {cache}; other programs: {load}{gpu}{slower}"


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
        now_busy, elapsed = _busy_seconds(), time.monotonic() - start
        if busy is None or now_busy is None or elapsed <= 0:
            return None
        return max(0.0, (now_busy - busy) - (_own_seconds() - own)) / elapsed


def cached_share(split: OpenSplit) -> float | None:
    """Return the share of the shards of a split that is in the page cache.

    Of many shards, of some of them.

    `None` if the system does not say, which it does only for files that this user may write.
    """
    step = -(-len(split.shards) // _MAX_SHARDS)
    resident = total = 0
    for shard in split.shards[::step]:
        path = split.path(shard.file)
        if not os.access(path, os.W_OK):
            return None
        try:
            found = resident_bytes(map_file(path, shard.file.bytes))
        except (OSError, ValueError):
            return None
        resident, total = resident + found, total + shard.file.bytes
    return resident / total if total else None


def _busy_seconds() -> float | None:
    """Return how long the cores that this process may use have been busy, in seconds."""
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        with open("/proc/stat", encoding="ascii") as file:
            cores = [[*map(int, times)] for name, *times in map(str.split, file) if name in usable]
    except (OSError, ValueError):
        return None
    # user, nice, system, interrupts, soft interrupts
    return (
        sum(times[field] for times in cores for field in (0, 1, 2, 5, 6)) / _TICKS
        if cores
        else None
    )


def _own_seconds() -> float:
    return sum(os.times()[:4])


def _gpu_busy(device: Device) -> float | None:
    """Ask nvidia-smi how busy the GPU is. Without the program, it is not known."""
    program, bus_id = shutil.which("nvidia-smi"), gpu_bus_id(device.index)
    if program is None or not bus_id:
        return None
    query = [program, "-i", bus_id, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)  # noqa: S603
        return int(done.stdout.strip()) / 100
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
