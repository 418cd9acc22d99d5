"""The option `memory_limit`: compare the estimate of a loader, and of the others of this process, with it."""

from __future__ import annotations

import math
import weakref
from dataclasses import replace

from loaders.memory import (
    RESIZE_CHOICES,
    ImageSizes,
    LoadSettings,
    MemoryEstimate,
    estimate_memory,
    format_gib,
)
from loaders.options import DTYPE_BYTES, LABEL_IMAGE_BYTES, ResolvedOptions
from loaders.transforms.base import Size
from loaders.transforms.fuse import Fusion, decode_window, full_size_images
from loaders.transforms.parse import Recipe
from manifests.errors import CallError


class Reservations:
    """Estimates of the open loaders of this process, which share its GPU memory.

    CUDA's own memory counts once.
    """

    def __init__(self) -> None:
        self._bytes: weakref.WeakKeyDictionary[object, tuple[int, int]] = (
            weakref.WeakKeyDictionary()
        )

    def add(self, loader: object, gpu: int, estimate: MemoryEstimate) -> None:
        """Count a loader until it is removed or no longer exists."""
        self._bytes[loader] = (gpu, estimate.total - estimate.context)

    def remove(self, loader: object) -> None:
        """Stop counting a loader."""
        self._bytes.pop(loader, None)

    def total(self, gpu: int) -> int:
        """Return the bytes of all loaders on a GPU."""
        return sum(count for each, count in self._bytes.values() if each == gpu)


RESERVATIONS = Reservations()


def load_settings(
    recipe: Recipe, fusion: Fusion, options: ResolvedOptions, *, spread: bool, largest: Size
) -> LoadSettings:
    """Return how batches are made, for the estimate of GPU memory.

    `largest` is the height and width of the largest stored image, for batches of any size.
    """
    sizes = [output.size or largest for output in recipe.outputs]
    values = 0
    for output, size in zip(recipe.outputs, sizes, strict=True):
        values += max(1, output.crops) * output.channels * math.prod(size)
    # Per pixel of a mask or depth map. They are decoded whole, and moved in a second copy.
    label_bytes = sum(LABEL_IMAGE_BYTES.get(name, 0) for name in options.fields)
    pixels = sum(map(math.prod, sizes))
    return LoadSettings(
        batch_size=options.batch_size,
        image_bytes=values * DTYPE_BYTES[options.dtype] + pixels * label_bytes,
        # DALI has no bfloat16: it returns float32, which the framework converts.
        staged_bytes=values * DTYPE_BYTES["float32"] if options.dtype == "bfloat16" else 0,
        window=decode_window(fusion.operations),
        full_size_images=full_size_images(fusion.operations) + 2 * label_bytes / 3,
        threads=options.num_threads,
        hardware_load=options.hw_decoder_load,
        prefetch=options.prefetch,
        spread=spread,
        encoded=recipe.raw_size is None,
    )


def check_memory_limit(
    sizes: ImageSizes | None, settings: LoadSettings, options: ResolvedOptions
) -> None:
    """Check that the estimated memory of all loaders of this process does not exceed `memory_limit`.

    Raises:
        CallError: it does, or the device or the tables do not allow an estimate.

    """
    if options.memory_limit == math.inf:
        return
    if not options.device.is_gpu:
        raise CallError(
            'memory_limit limits GPU memory, but the device is "cpu"',
            hint='remove memory_limit, or set device="gpu"',
        )
    if sizes is None:
        raise CallError(
            "memory_limit needs the sizes of all images, but the sample tables do not have them",
            hint=(
                "remove memory_limit, or run `dataprep index --overwrite --validate header` if the"
                " shards were made by another tool"
            ),
        )
    _check_estimate(
        sizes, settings, options.memory_limit, reserved=RESERVATIONS.total(options.device.index)
    )


def _check_estimate(
    sizes: ImageSizes, settings: LoadSettings, limit: float, *, reserved: int
) -> None:
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
    others = (
        f", and the other open loaders of this process take {format_gib(reserved)}"
        if reserved
        else ""
    )
    changes = ["close other loaders"] if estimate <= limit else []
    given, limit = limit, limit - reserved
    if most := largest_batch(sizes, settings, limit):
        changes.append(f"set batch_size={most}")
    if (
        not settings.spread
        and estimate_memory(sizes, replace(settings, spread=True)).total <= limit
    ):
        changes.append("set sampler=loaders.ShuffledSampler(spread=True)")
    for side in RESIZE_CHOICES:
        smaller = estimate_memory(sizes.resized(side), settings).total
        if settings.encoded and smaller <= limit:
            changes.append(
                f"shrink the images with `dataprep convert --resize-shorter {side}`"
                f" ({format_gib(smaller)})"
            )
            break
    raise CallError(
        f"memory_limit is {format_gib(given)}, but batches of {settings.batch_size} take an"
        f" estimated {format_gib(estimate)} of GPU memory{others}",
        hint="; or ".join(changes) or "raise the limit: CUDA and the decoder alone exceed it",
    )


def largest_batch(sizes: ImageSizes, settings: LoadSettings, limit: float) -> int:
    """Return the largest batch size, up to that of `settings`, that fits into `limit` bytes.

    0 if none fits.
    """
    low, high = 0, settings.batch_size
    while low < high:
        middle = (low + high + 1) // 2
        fits = estimate_memory(sizes, replace(settings, batch_size=middle)).total <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
