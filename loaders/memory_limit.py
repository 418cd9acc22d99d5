"""The option `memory_limit`: compare the estimate of a loader, and of the others of this process, with it."""

from __future__ import annotations

import weakref
from dataclasses import replace

from loaders.memory import RESIZE_CHOICES, ImageSizes, LoadSettings, MemoryEstimate, estimate_memory, format_gib
from manifests.errors import CallError


def check_memory_limit(sizes: ImageSizes, settings: LoadSettings, limit: float, *, reserved: int = 0) -> None:
    """Check that the estimate does not exceed a limit.

    Args:
        sizes: sizes of the images.
        settings: how batches are made.
        limit: in bytes.
        reserved: estimated bytes of the other open loaders of this process on the same GPU.

    Raises:
        CallError: the estimate exceeds the limit. The hint lists changes, each of which is enough.

    """
    estimate = estimate_memory(sizes, settings).total
    if estimate + reserved <= limit:
        return
    others = f", and the other open loaders of this process take {format_gib(reserved)}" if reserved else ""
    changes = ["close other loaders"] if estimate <= limit else []
    given, limit = limit, limit - reserved
    if most := largest_batch(sizes, settings, limit):
        changes.append(f"set batch_size={most}")
    if not settings.spread and estimate_memory(sizes, replace(settings, spread=True)).total <= limit:
        changes.append("set sampler=loaders.ShuffledSampler(spread=True)")
    for side in RESIZE_CHOICES:
        smaller = estimate_memory(sizes.resized(side), settings).total
        if settings.encoded and smaller <= limit:
            changes.append(f"shrink the images with `dataprep convert --resize-shorter {side}` ({format_gib(smaller)})")
            break
    raise CallError(
        f"memory_limit is {format_gib(given)}, but batches of {settings.batch_size} take an estimated "
        f"{format_gib(estimate)} of GPU memory{others}",
        hint="; or ".join(changes) or "raise the limit: CUDA and the decoder alone exceed it",
    )


class Reservations:
    """Estimates of the open loaders of this process, which share its GPU memory. CUDA's own memory counts once."""

    def __init__(self) -> None:
        self._bytes: weakref.WeakKeyDictionary[object, tuple[int, int]] = weakref.WeakKeyDictionary()

    def add(self, loader: object, gpu: int, estimate: MemoryEstimate) -> None:
        """Count a loader until it is removed or no longer exists."""
        self._bytes[loader] = (gpu, estimate.total - estimate.context)

    def remove(self, loader: object) -> None:
        """Count a loader no longer."""
        self._bytes.pop(loader, None)

    def total(self, gpu: int) -> int:
        """Return the bytes of all loaders on a GPU."""
        return sum(count for each, count in self._bytes.values() if each == gpu)


RESERVATIONS = Reservations()


def largest_batch(sizes: ImageSizes, settings: LoadSettings, limit: float) -> int:
    """Return the largest batch size, up to that of `settings`, that fits into `limit` bytes. 0 if none fits."""
    low, high = 0, settings.batch_size
    while low < high:
        middle = (low + high + 1) // 2
        fits = estimate_memory(sizes, replace(settings, batch_size=middle)).total <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
