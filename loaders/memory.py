"""Estimate the GPU memory that loading takes, from the sizes of the images.

Pure: never imports DALI.

The terms follow DALI's decoder and executor. Their factors were measured with DALI 2.4 on an H200,
and `tests/gpu/test_memory_gpu.py` compares them with the memory that a loader uses.
"""

from __future__ import annotations

import math
import weakref
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from loaders.arrays import Floats, Int32s, Ints
from manifests.errors import CallError

MIB = 2**20

#: Memory that CUDA, torch and DALI's libraries take before the first image: with a decoder, and for
#: raw pixels.
CONTEXT, CONTEXT_RAW = 940 * MIB, 675 * MIB

#: Buffers of one decoding thread, in decoded images.
_IMAGES_PER_THREAD = 2.3
#: Buffers of the hardware decoder, in decoded images: for whole images, and for crops.
_IMAGES_IN_HARDWARE, _IMAGES_IN_HARDWARE_FOR_CROPS = 21.0, 24.0
#: If the share of the hardware decoder is at least this, it decodes all images.
_ALL_HARDWARE = 0.9
#: Batches of decoded images in memory at a time when batches are prefetched: one is decoded while
#: another is resized.
_DECODED_BATCHES = 2
#: Standard deviations from the mean batch to the largest of approximately ten thousand random
#: batches.
_WORST_DEVIATIONS = 3.7

#: Above this mean size of a decoded image in bytes, the buffers of the threads take most of the
#: memory. Images of 3840x2160 per second on an H200, imagenet-train in batches of 32
#: (`scripts/bench tune --memory`): with the values below 1,826 in 2.22 GiB; with 4 threads and a
#: load of 0.65, 1,299 in 2.28; with 8 threads 1,831 in 2.42 and 1,804 in 2.61. With a load of 0.9,
#: the hardware decodes all: 1,506 in 2.04.
LARGE = 12 * 2**20
LARGE_THREADS, LARGE_LOAD = 4, 0.75

#: Up to this mean size of a decoded image in bytes, more threads of the GPU's decoder are slower,
#: because they wait for each other. Images of 341x256 per second, imagenet-train: on an H200 with 16
#: cores 42,000 with 8 threads and 36,500 with 16; on another machine 38,600 with 8 and 36,700 with 12.
SMALL = 384 * 2**10
SMALL_THREADS = 8
#: With a GPU, more threads do not decode faster, and every CPU operator waits for all of them.
#: Images per second on an H200 with 16 cores, imagenet-train: 19,100 with 8 threads, 20,600 with
#: 12, 19,300 with 16. If the CPU decodes, small images do not wait: see `TINY_SIDE`.
MAX_THREADS = 12
#: The CPU decodes faster up to the mean number of pixels of a square with this side. Images per second
#: on an H200 with 16 cores, imagenet-train, with the GPU's decoder, and with the CPU's in 8 and 12
#: threads: of 32x32 43,000, 79,000 and 84,000; of 128x128 37,000, 40,000 and 48,500; of 192x192
#: 31,000, 28,000 and 35,000.
TINY_SIDE = 128

#: Threads for raw pixels up to `TINY_SIDE`, of which nothing is decoded: more wait for each other. Images
#: per second on an H200 with 16 cores, batches of 256: of 64x64 131,000 with 2 threads, 133,000 with 4,
#: 122,000 with 12, 99,000 with 16; of 128x128 104,000 with 4, 91,000 with 12. Threads copy larger images:
#: of 256x256 36,000 with 2, 59,000 with 4, 78,000 with 12.
RAW_THREADS = 4

#: Share of JPEG images that the hardware decoder decodes: the fastest that was measured on an H200,
#: for crops that keep less than `_MOST_OF_IMAGE` on average, and for others. The time of the
#: hardware does not depend on the crop, the time of the CPU does. Images per second with 0.65, 0.75
#: and 0.8: imagenet-train 21,700, 20,700 and 20,000; bucket-train 17,700, 20,400 and 20,300, with
#: 40% less CPU time at 0.8 than at 0.65.
HW_DECODER_LOAD, WHOLE_LOAD = 0.65, 0.8
_MOST_OF_IMAGE = 0.75

#: Batches prepared in advance, for encoded images and for raw pixels. Raw images per second on an
#: H200, batches of 256: 102,000 with 2, 141,000 with 3, 165,000 with 5. On another: 127,000 with 5
#: and 121,000 with 8.
PREFETCH, PREFETCH_RAW = 2, 5

#: Default number of pipelines on a GPU if an operation has many operators, and of batches that each one
#: prepares of encoded images. With fewer batches, a pipeline sometimes waits for the other one: RandAugment
#: at full size made 15,900 to 18,500 images/s with 2 batches, and 22,700 with 4, of 21,000 and 24,000
#: without a policy.
PIPELINES_IN_TURN, PREFETCH_IN_TURN = 2, 4

#: So many operators take longer than decoding, for small images and for others: ColorJitter with
#: three adjustments, and a policy of one step.
_MANY_OPERATORS_SMALL, _MANY_OPERATORS = 18, 60

#: Values of ``dataprep convert --resize-shorter`` that estimates are given for, in pixels.
RESIZE_CHOICES = (1024, 512, 256)

#: Number of images for which random crops are simulated, and attempts per crop.
_SIMULATED = 2048
_ATTEMPTS = 10

#: Bytes of a float16 image of 224x224.
_IMAGENET_BYTES = 224 * 224 * 3 * 2


#: Bytes of GPU memory, by preset and by variant of the images.
Estimates: TypeAlias = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """The sizes of all images of a split.

    Attributes:
        widths: in pixels, int32 [samples].
        heights: in pixels, int32 [samples].

    """

    widths: Int32s
    heights: Int32s

    @property
    def decoded(self) -> Ints:
        """Bytes of each decoded image, int64 [samples]: three per pixel."""
        return 3 * self.widths.astype(np.int64) * self.heights

    @property
    def mean_pixels(self) -> float:
        """Mean number of pixels."""
        return float(self.decoded.mean()) / 3

    @property
    def large(self) -> bool:
        """Whether the images are so large, on average, that fewer threads save much memory."""
        return float(self.decoded.mean()) > LARGE

    @property
    def small(self) -> bool:
        """Whether the images are so small, on average, that more threads wait for each other."""
        return float(self.decoded.mean()) <= SMALL

    @property
    def tiny(self) -> bool:
        """Whether the images are so small, on average, that a CPU decodes them faster than a GPU."""
        # Sizes that are not known are 0.
        return 0 < self.mean_pixels <= TINY_SIDE**2

    @property
    def threads(self) -> int:
        """Best number of threads for these images, if a GPU decodes them."""
        if self.large:
            return LARGE_THREADS
        if self.small:
            return SMALL_THREADS
        return MAX_THREADS

    @property
    def largest(self) -> tuple[int, int]:
        """Width and height of the image with the most pixels."""
        index = int(self.decoded.argmax())
        return int(self.widths[index]), int(self.heights[index])

    def resized(self, shorter: int) -> ImageSizes:
        """Return the sizes after ``dataprep convert --resize-shorter``, which enlarges no image."""
        scale = np.minimum(1.0, shorter / np.minimum(self.widths, self.heights))
        sides = (
            np.maximum(1, np.rint(each * scale)).astype(np.int32)
            for each in (self.widths, self.heights)
        )
        return ImageSizes(*sides)


@dataclass(frozen=True, slots=True)
class CropWindow:
    """A random crop of an image, drawn as torchvision's RandomResizedCrop does.

    Attributes:
        area: smallest and largest share of the image's area.
        ratio: smallest and largest width / height.

    """

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How batches are made, as far as it affects memory.

    Attributes:
        batch_size: images per batch.
        image_bytes: bytes of an image in a finished batch.
        staged_bytes: bytes of an image as DALI returns it, if the framework converts it to another
            type; else 0.
        window: part of each image that is decoded. `None` decodes whole images.
        full_size_images: additional memory per image, in decoded images, for operations on whole
            images.
        threads: threads of each pipeline that decode.
        hardware_load: share of the images that the hardware decoder decodes.
        prefetch: batches that each pipeline prepares in advance.
        pipelines: pipelines that compute batches in turn.
        spread: whether large images are spread evenly over the batches.
        encoded: whether the images must be decoded.
        gpu_decodes: whether the GPU decodes them.

    """

    batch_size: int
    image_bytes: int
    window: CropWindow | None = CropWindow()
    full_size_images: float = 0.0
    threads: int = MAX_THREADS
    hardware_load: float = HW_DECODER_LOAD
    prefetch: int = PREFETCH
    pipelines: int = 1
    spread: bool = False
    encoded: bool = True
    gpu_decodes: bool = True
    staged_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """GPU memory of one process, in bytes.

    Attributes:
        context: CUDA, torch and the libraries.
        decoder: buffers of the decoder.
        images: decoded images and what is computed from them, for the largest batch.
        finished_batches: DALI's batches, and the one in use.

    """

    context: int
    decoder: int
    images: int
    finished_batches: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.context + self.decoder + self.images + self.finished_batches


def estimate_memory(sizes: ImageSizes, settings: LoadSettings) -> MemoryEstimate:
    """Estimate the GPU memory for loading images of these sizes."""
    decoded = sizes.decoded
    context = CONTEXT_RAW
    decoder = 0
    if settings.encoded:
        context = CONTEXT
    if settings.encoded and settings.gpu_decodes:
        decoder = round(_decoder_bytes(float(decoded.mean()), int(decoded.max()), settings))
    image_bytes = _decoded_bytes(sizes, settings.window)
    batch = worst_batch(image_bytes, settings.batch_size, spread=settings.spread)
    batches = min(_DECODED_BATCHES, settings.prefetch) + settings.full_size_images
    return MemoryEstimate(
        context=context,
        decoder=decoder * settings.pipelines,
        images=round(batches * batch) * settings.pipelines,
        finished_batches=settings.batch_size * _finished_bytes(settings),
    )


def estimate_presets(sizes: ImageSizes, batch_size: int, *, encoded: bool) -> Estimates:
    """Estimate the GPU memory of two presets, with default options.

    Args:
        sizes: sizes of the images.
        batch_size: images per batch.
        encoded: whether the images must be decoded.

    Returns:
        For ``imagenet-train`` and ``imagenet-eval``: bytes for the images ``as they are``, and
        resized to a shorter side of each of `RESIZE_CHOICES` that makes them smaller.

    """
    variants = {"as they are": sizes}
    for side in RESIZE_CHOICES:
        if encoded and side < min(sizes.largest):
            variants[str(side)] = sizes.resized(side)
    # Raw pixels are read whole.
    windows: dict[str, CropWindow | None] = {"imagenet-train": None, "imagenet-eval": None}
    if encoded:
        windows["imagenet-train"] = CropWindow()
    estimates: Estimates = {}
    for preset, window in windows.items():
        estimates[preset] = {}
        for name, each in variants.items():
            settings = default_settings(each, batch_size, window, encoded=encoded)
            estimates[preset][name] = estimate_memory(each, settings).total
    return estimates


def default_settings(
    sizes: ImageSizes, batch_size: int, window: CropWindow | None, *, encoded: bool = True
) -> LoadSettings:
    """Return the settings that `loaders.build` chooses by default for float16 images of 224x224."""
    prefetch = PREFETCH if encoded else PREFETCH_RAW
    settings = LoadSettings(batch_size, _IMAGENET_BYTES, window, encoded=encoded, prefetch=prefetch)
    if sizes.tiny:
        return replace(settings, gpu_decodes=False)
    return replace(settings, threads=sizes.threads, hardware_load=hardware_load(sizes, window))


def has_many_operators(sizes: ImageSizes | None, operators: int) -> bool:
    """Return whether the operators of an operation take longer than decoding.

    Args:
        sizes: sizes of the images; `None` if they are not known.
        operators: number of operators.

    """
    if sizes is not None and sizes.small:
        return operators >= _MANY_OPERATORS_SMALL
    return operators >= _MANY_OPERATORS


def hardware_load(
    sizes: ImageSizes | None, window: CropWindow | None, *, smooth: bool = True
) -> float:
    """Return the best share of the images for the hardware decoder.

    Args:
        sizes: sizes of the images; `None` if they are not known.
        window: part of each image that is decoded. `None` decodes whole images.
        smooth: whether the chroma of whole images is interpolated, which slows the hardware down:
            18,400 images per second with a load of 0.65, 15,300 with 0.8 and 9,600 with 0.9.

    """
    if sizes is not None and sizes.large:
        return LARGE_LOAD
    is_smooth = smooth and window is None
    kept = 1.0 if window is None else sum(window.area) / 2
    if is_smooth or kept < _MOST_OF_IMAGE:
        return HW_DECODER_LOAD
    return WHOLE_LOAD


def worst_batch(image_bytes: Floats, batch_size: int, *, spread: bool) -> float:
    """Estimate the bytes of the largest among many random batches.

    Args:
        image_bytes: bytes of each image, float64 [images].
        batch_size: images per batch.
        spread: whether large images are spread evenly over the batches.

    """
    mean = float(image_bytes.mean())
    deviation = float(image_bytes.std())
    if spread:
        return batch_size * mean
    worst = batch_size * mean + _WORST_DEVIATIONS * deviation * math.sqrt(batch_size)
    return min(worst, batch_size * float(image_bytes.max()))


def format_gib(count: float) -> str:
    """Format a number of bytes in GiB."""
    return f"{count / 2**30:.2f} GiB"


def _finished_bytes(settings: LoadSettings) -> int:
    """Return the bytes of one image in all finished batches: in DALI and in use."""
    batches = settings.prefetch * settings.pipelines + 1
    if not settings.staged_bytes:
        return settings.image_bytes * batches
    # The batch in use stays until the next one is converted.
    return settings.staged_bytes * batches + 2 * settings.image_bytes


def _decoder_bytes(mean: float, largest: int, settings: LoadSettings) -> float:
    load = settings.hardware_load
    total = 0.0
    if load and settings.window is None:
        total += _IMAGES_IN_HARDWARE * mean
    elif load:
        total += _IMAGES_IN_HARDWARE_FOR_CROPS * mean
    in_software = math.ceil((1 - load) * settings.batch_size)
    if in_software and load < _ALL_HARDWARE:
        total += _IMAGES_PER_THREAD * max(mean * min(settings.threads, in_software), largest)
    return total


def _decoded_bytes(sizes: ImageSizes, window: CropWindow | None) -> Floats:
    """Return the number of decoded bytes per image; with a window, for a sample of the images."""
    decoded = sizes.decoded
    if window is None:
        return decoded.astype(np.float64)
    simulated = np.linspace(0, len(decoded) - 1, _SIMULATED).astype(np.int64)
    aspect = sizes.widths[simulated] / sizes.heights[simulated]
    return decoded[simulated] * _crop_areas(aspect, window)


def _crop_areas(aspect: Floats, window: CropWindow) -> Floats:
    """Draw the share of the area that a random crop keeps.

    Args:
        aspect: width / height of each image, float64 [images].
        window: bounds of the crops.

    """
    random = np.random.default_rng(0)
    shape = (_ATTEMPTS, len(aspect))
    area = random.uniform(*window.area, shape)
    low, high = (math.log(bound) for bound in window.ratio)
    ratio = np.exp(random.uniform(low, high, shape))
    fits = (area * ratio <= aspect) & (area / ratio * aspect <= 1)
    first = fits.argmax(axis=0)
    # If no attempt fits: the largest crop of the nearest allowed ratio.
    nearest = np.clip(aspect, *window.ratio)
    fallback = np.minimum(aspect / nearest, nearest / aspect)
    return np.where(fits.any(axis=0), area[first, np.arange(len(aspect))], fallback)


# --- the option `memory_limit` --------------------------------------------------------------------


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


def check_estimate(
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
    others = ""
    changes = []
    if reserved:
        others = f", and the other open loaders of this process take {format_gib(reserved)}"
    if estimate <= limit:
        changes.append("close other loaders")
    given = limit
    limit -= reserved
    if most := largest_batch(sizes, settings, limit):
        changes.append(f"set batch_size={most}")
    if settings.pipelines > 1:
        one = replace(settings, pipelines=1, threads=settings.threads * settings.pipelines)
        if estimate_memory(sizes, one).total <= limit:
            changes.append("set pipelines=1")
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
    """Return the largest batch size, at most as in `settings`, that fits into `limit` bytes.

    0 if none fits.
    """
    # The estimate grows with the batch size.
    return bisect_right(
        range(1, settings.batch_size + 1),
        limit,
        key=lambda size: estimate_memory(sizes, replace(settings, batch_size=size)).total,
    )
