"""What loading takes of a GPU's memory, foretold from the sizes of the images. Pure; it must never know DALI.

The terms are those of DALI's decoder and executor; their factors were measured with DALI 2.4 on an H200
(`tests/gpu/test_memory_gpu.py` holds them to what is taken).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

MIB = 2**20

#: What CUDA, torch and DALI's libraries take before the first image, with a decoder's and without.
CONTEXT, CONTEXT_RAW = 940 * MIB, 675 * MIB

#: Images in memory that a decoding thread works with.
_OF_A_THREAD = 2.3
#: Images in memory that the hardware decoder works with, where whole images and where parts of them come out.
_OF_THE_HARDWARE, _OF_THE_HARDWARE_FOR_PARTS = 21.0, 33.0
#: Above this share the hardware decoder takes all.
_ALL_HARDWARE = 0.9
#: Batches of decoded images at once, where batches are made ahead: one is decoded while another is resized.
_AT_ONCE = 2
#: Standard deviations from the mean of a random batch to the worst of some ten thousand.
_WORST = 3.7

#: Of images larger than this, decoded, in bytes, each thread's buffers take much of the GPU. Images of 3840x2160 a
#: second on an H200, imagenet-train in batches of 32: with 12 threads and a load of 0.65 2,330 in 2.84 GiB, with these
#: 1,905 in 2.31 GiB.
LARGE = 12 * 2**20
LARGE_THREADS, LARGE_LOAD = 4, 0.75

#: Of images that take no more than this, decoded, many threads wait for each other. Images of 341x256 a second on an
#: H200 with 16 cores, imagenet-train: 42,000 with 8 threads, 36,500 with 16; on another 38,600 with 8, 36,700 with 12.
SMALL = 384 * 2**10
SMALL_THREADS = 8
#: With a GPU more threads decode no faster, and every operator on the processor waits for all of them. Images a second
#: on an H200 with 16 cores, with 8, 12 and 16 threads: imagenet-train 19,100, 20,600 and 19,300.
MAX_THREADS = 12

#: Share of the JPEGs that the GPU's own decoder takes; the fastest of those measured on an H200.
HW_DECODER_LOAD = 0.65

#: Batches made ahead of the one in use. Of raw pixels a loader gives so many that it is not worth while to wait: on an
#: H200, in batches of 256, 102,000 images a second with 2, 141,000 with 3, 165,000 with 5; on another 127,000 with 5
#: and 121,000 with 8.
PREFETCH, PREFETCH_RAW = 2, 5

#: ImageSizes of the shorter side to resize to that are worth telling of.
SHORTER = (1024, 512, 256)

#: Images that are looked at to find what random crops keep of them.
_LOOKED_AT = 2048
_ATTEMPTS = 10

_HELD = 224 * 224 * 3 * 2


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """The images of a split.

    Attributes:
        widths: in pixels, int32 [samples].
        heights: in pixels, int32 [samples].

    """

    widths: NDArray[np.int32]
    heights: NDArray[np.int32]

    @property
    def decoded(self) -> NDArray[np.int64]:
        """Bytes of each image, decoded: three a pixel."""
        return 3 * self.widths.astype(np.int64) * self.heights

    @property
    def large(self) -> bool:
        """Whether they are so large, on average, that a loader does with fewer threads."""
        return float(self.decoded.mean()) > LARGE

    @property
    def threads(self) -> int:
        """How many threads decode them best, where a GPU does the rest."""
        if self.large:
            return LARGE_THREADS
        return SMALL_THREADS if float(self.decoded.mean()) <= SMALL else MAX_THREADS

    @property
    def hardware_load(self) -> float:
        """Share of them that the GPU's own decoder takes best."""
        return LARGE_LOAD if self.large else HW_DECODER_LOAD

    @property
    def largest(self) -> tuple[int, int]:
        """Width and height of the image with most pixels."""
        at = int(self.decoded.argmax())
        return int(self.widths[at]), int(self.heights[at])

    def resized(self, shorter: int) -> ImageSizes:
        """Return them as `dataprep convert --resize-shorter` would make them: none is enlarged."""
        scale = np.minimum(1.0, shorter / np.minimum(self.widths, self.heights))
        sides = (np.maximum(1, np.rint(each * scale)).astype(np.int32) for each in (self.widths, self.heights))
        return ImageSizes(*sides)


@dataclass(frozen=True, slots=True)
class CropWindow:
    """A random part of an image, as torchvision's RandomResizedCrop draws it.

    Attributes:
        area: least and greatest share of the image's area.
        ratio: least and greatest width / height.

    """

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What is done with a batch.

    Attributes:
        batch_size: images.
        held: bytes of an image in a finished batch.
        window: what is decoded of an image; none for all.
        whole_steps: how many images in memory each whole image costs besides, where work is done before it shrinks.
        threads: that decode.
        hardware_load: share of the images that the hardware decoder takes.
        prefetch: batches made ahead of the one in use.
        spread: whether large images are spread over the batches.
        encoded: whether there is anything to decode.

    """

    batch_size: int
    held: int
    window: CropWindow | None = CropWindow()
    whole_steps: float = 0.0
    threads: int = MAX_THREADS
    hardware_load: float = HW_DECODER_LOAD
    prefetch: int = PREFETCH
    spread: bool = False
    encoded: bool = True


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a process takes of a GPU, in bytes.

    Attributes:
        context: CUDA, torch and the libraries.
        decoder: the decoder's own buffers.
        images: decoded images and what is computed from them, of the worst batch.
        batches: finished batches.

    """

    context: int
    decoder: int
    images: int
    batches: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.context + self.decoder + self.images + self.batches


def default_settings(
    sizes: ImageSizes, batch_size: int, window: CropWindow | None, *, encoded: bool = True
) -> LoadSettings:
    """Return what a loader does unless it is told otherwise, to end with float16 images of 224x224."""
    prefetch = PREFETCH if encoded else PREFETCH_RAW
    work = LoadSettings(batch_size, _HELD, window, encoded=encoded, prefetch=prefetch)
    return replace(work, threads=sizes.threads, hardware_load=sizes.hardware_load)


def estimate_memory(sizes: ImageSizes, work: LoadSettings) -> MemoryEstimate:
    """Return what loading images of these sizes takes."""
    decoded = sizes.decoded
    most = int(decoded.max())
    steps = min(_AT_ONCE, work.prefetch) + work.whole_steps
    return MemoryEstimate(
        context=CONTEXT if work.encoded else CONTEXT_RAW,
        decoder=round(_decoder(float(decoded.mean()), most, work)) if work.encoded else 0,
        images=round(steps * worst_batch(_kept(sizes, work.window), work.batch_size, spread=work.spread)),
        batches=work.batch_size * work.held * (work.prefetch + 1),
    )


def largest_batch(sizes: ImageSizes, work: LoadSettings, limit: int) -> int:
    """Return how many images a batch may have to stay within `limit` bytes; 0 where none fits."""
    low, high = 0, work.batch_size
    while low < high:
        middle = (low + high + 1) // 2
        fits = estimate_memory(sizes, replace(work, batch_size=middle)).total <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def worst_batch(each: NDArray[np.float64], batch_size: int, *, spread: bool) -> float:
    """Return the bytes of the worst batch among many that are drawn of images of so many bytes `each`."""
    mean, deviation = float(each.mean()), float(each.std())
    if spread:
        return batch_size * mean
    worst = batch_size * mean + _WORST * deviation * math.sqrt(batch_size)
    return min(worst, batch_size * float(each.max()))


def _decoder(mean: float, most: int, work: LoadSettings) -> float:
    hardware = _OF_THE_HARDWARE if work.window is None else _OF_THE_HARDWARE_FOR_PARTS
    busy = 0 if work.hardware_load >= _ALL_HARDWARE else math.ceil((1 - work.hardware_load) * work.batch_size)
    of_threads = max(mean * min(work.threads, busy), most) if busy else 0.0
    return (hardware * mean if work.hardware_load else 0.0) + _OF_A_THREAD * of_threads


def _kept(sizes: ImageSizes, window: CropWindow | None) -> NDArray[np.float64]:
    """Return bytes that are decoded of each image, or of some of them where a window is drawn."""
    decoded = sizes.decoded
    if window is None:
        return decoded.astype(np.float64)
    looked_at = np.linspace(0, len(decoded) - 1, _LOOKED_AT).astype(np.int64)
    aspect = sizes.widths[looked_at] / sizes.heights[looked_at]
    return decoded[looked_at] * _shares(aspect, window)


def _shares(aspect: NDArray[np.float64], window: CropWindow) -> NDArray[np.float64]:
    """Draw what a window keeps of the area of images of these ratios of width to height."""
    draw = np.random.default_rng(0)
    shape = (_ATTEMPTS, len(aspect))
    area = draw.uniform(*window.area, shape)
    low, high = (math.log(bound) for bound in window.ratio)
    ratio = np.exp(draw.uniform(low, high, shape))
    fits = (area * ratio <= aspect) & (area / ratio * aspect <= 1)
    first = fits.argmax(axis=0)
    # Where none fits, the greatest part of a ratio that is allowed.
    nearest = np.clip(aspect, *window.ratio)
    fallback = np.minimum(aspect / nearest, nearest / aspect)
    return np.where(fits.any(axis=0), area[first, np.arange(len(aspect))], fallback)
