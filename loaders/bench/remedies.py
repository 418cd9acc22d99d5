"""Changes that could make a loader faster, each as a loader that can be measured."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from loaders.bench.sources import MakeSpec
from loaders.dataset.memory_images import MemoryImages
from loaders.dataset.records import Records
from loaders.dataset.tables import SampleTables
from loaders.memory import PREFETCH_RAW, RESIZE_CHOICES, ImageSizes
from loaders.options import BuildRequest, ResolvedOptions
from loaders.resolve import default_threads, resolve
from loaders.samplers import ShuffledSampler
from loaders.samplers.order import StoredOrder
from loaders.spec import LoaderSpec, fused
from loaders.transforms.base import BatchOperation, ImageSpec, Size
from loaders.transforms.cost import computes_on_cpu
from loaders.transforms.decode_normalize import Decode
from loaders.transforms.fuse import Fusion
from loaders.transforms.parse import Recipe
from manifests.text import cut_middle, printable

#: Images that stand for all of a split when a remedy changes them.
SAMPLE = 256
#: Most transforms that are left out one by one.
_MAX_LEFT_OUT = 6
#: Images whose shorter side is at most this many times the smaller one are not worth resizing.
_WORTHWHILE = 1.25
#: Quality of resized JPEG images, as `dataprep convert --resize-shorter` writes them.
_QUALITY = 90
#: A dataset of which more than this share is in the page cache is not limited by its disk.
_IN_MEMORY = 0.9

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")

#: An encoded image or raw pixels, uint8 [bytes].
_Stored = NDArray[np.uint8]


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


def find_candidates(request: BuildRequest, stage: str, cached: float | None) -> Iterator[Candidate]:
    """Yield changes that may help if a stage limits the loader, the cheapest first.

    Args:
        request: the loader.
        stage: name of the stage; see `loaders.bench.results.STAGES`.
        cached: share of the shards that was in the page cache before the measurement; `None` if not known.

    """
    spec = resolve(request)
    if stage == "delivery":
        prefetch = min(64, 2 * spec.options.prefetch + 1)
        action = f"pass prefetch={prefetch} to loaders.build"
        yield Candidate(f"with prefetch={prefetch}", action, lambda: resolve(replace(request, prefetch=prefetch)))
    else:
        yield from _with_other_images(request, spec, stage, cached)
    if stage == "augmentation":
        yield from _without_transforms(request, spec)
    close(spec)


def close(spec: LoaderSpec) -> None:
    """Close what a spec has opened, if no loader is built from it."""
    if spec.records is not None:
        spec.records.close()


def disturbance_candidates(request: BuildRequest) -> Iterator[Candidate]:
    """Yield changes that may disturb a model less that runs beside the loader."""
    spec = resolve(request)
    close(spec)
    options = spec.options
    if options.device.is_gpu and spec.recipe.raw_size is None and options.hw_decoder_load < 1:
        yield Candidate(
            "with hw_decoder_load=1.0",
            "pass hw_decoder_load=1.0 to loaders.build",
            lambda: resolve(replace(request, hw_decoder_load=1.0)),
        )
    if options.num_threads > 1:
        threads = options.num_threads // 2
        yield Candidate(
            f"with num_threads={threads}",
            f"pass num_threads={threads} to loaders.build",
            lambda: resolve(replace(request, num_threads=threads)),
        )


# --- other images -------------------------------------------------------------------------------


def _with_other_images(
    request: BuildRequest, spec: LoaderSpec, stage: str, cached: float | None
) -> Iterator[Candidate]:
    stored = _sample(spec)
    pixels = spec.split.manifest.pixels
    if stage == "reading" and (cached is None or cached < _IN_MEMORY):
        action = "put the dataset on a faster disk, or into memory"
        yield Candidate("with the images in memory", action, _replaced(request, stored, None, None))
    # Masks, depth maps and boxes belong to images of one size, which these would not have.
    placed = spec.split.manifest.label_type in ("mask", "depth", "boxes")
    images = [] if placed or pixels is not None else list(filter(None, _parallel(_decoded, stored)))
    if not images:
        return
    side = _useful_side(spec)
    source = printable(spec.split.folder).rstrip("/")
    if np.median([min(image.size) for image in images]) > _WORTHWHILE * side:
        smaller = _parallel(lambda image: _encode(image, side), images)
        action = f"run `dataprep convert --src {source} --resize-shorter {side} --out {source}-{side}`"
        yield Candidate(f"with shards at {side} px", action, _replaced(request, smaller, side, None))
    if stage == "decoding":
        raw = _parallel(lambda image: np.asarray(image.resize((side, side))).reshape(-1), images)
        action = f"run `dataprep convert --src {source} --store raw --raw-size {side} --out {source}-raw`"
        yield Candidate(f"with raw pixels at {side} px", action, _replaced(request, raw, side, (side, side)))


def _useful_side(spec: LoaderSpec) -> int:
    """Return the smallest size that `loaders memory` suggests and the transforms need."""
    needed = max(max(output.size or (0, 0)) for output in spec.recipe.outputs)
    return next((side for side in sorted(RESIZE_CHOICES) if side >= needed), needed)


def _sample(spec: LoaderSpec) -> list[_Stored]:
    """Copy some images of a split, evenly spaced."""
    rows = np.unique(np.linspace(0, spec.split.samples - 1, SAMPLE).astype(np.int64))
    if spec.records is not None:
        return [np.array(image) for image in spec.records.images(rows)]
    records = Records(spec.split, SampleTables(spec.split), mmap=spec.options.mmap)
    try:
        return [np.array(image) for image in records.images(rows)]
    finally:
        records.close()


def _replaced(request: BuildRequest, images: list[_Stored], side: int | None, raw: Size | None) -> MakeSpec:
    """Return a function that builds the spec of the same loader over other images."""

    def make_spec() -> LoaderSpec:
        spec = resolve(request)
        if isinstance(spec.order, StoredOrder):
            spec = resolve(replace(request, sampler=ShuffledSampler(), shuffle=None))
        close(spec)
        recipe = spec.recipe if raw is None else replace(spec.recipe, raw_size=raw)
        fusion, *views = fused(recipe)
        sizes = None if spec.sizes is None or side is None else spec.sizes.resized(side)
        options = _options_for(request, spec.options, fusion, None if raw else sizes, raw=raw is not None)
        return replace(
            spec, recipe=recipe, fusion=fusion, view_fusions=tuple(views), options=options, sizes=None,
            records=MemoryImages(images),
        )  # fmt: skip

    return make_spec


def _options_for(
    request: BuildRequest, options: ResolvedOptions, fusion: Fusion, sizes: ImageSizes | None, *, raw: bool
) -> ResolvedOptions:
    """Return the options that `loaders.build` chooses by default for other images."""
    if not options.device.is_gpu:
        return options
    if raw and request.prefetch is None:
        options = replace(options, prefetch=PREFETCH_RAW)
    if sizes is not None and request.num_threads is None:
        cores = len(os.sched_getaffinity(0))
        computing = computes_on_cpu(fusion.operations)
        options = replace(options, num_threads=default_threads(cores, sizes.threads, gpu=True, computing=computing))
    if sizes is not None and request.hw_decoder_load is None:
        options = replace(options, hw_decoder_load=sizes.hardware_load)
    return options


def _decoded(stored: _Stored) -> Image.Image | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged EXIF block, for example
            image: Any = Image.open(io.BytesIO(stored.tobytes()), formats=_FORMATS)
            image.draft("RGB", (1024, 1024))
            return image.convert("RGB")  # type: ignore[no-any-return]
    except MemoryError:
        raise
    except Exception:  # damaged images raise many kinds
        return None


def _encode(image: Image.Image, side: int) -> _Stored:
    scale = min(1.0, side / min(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    out = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(out, "JPEG", quality=_QUALITY)
    return np.frombuffer(out.getvalue(), np.uint8)


def _parallel(function: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # Pillow releases the interpreter lock
        return list(pool.map(function, values))


# --- fewer transforms ---------------------------------------------------------------------------


def _without_transforms(request: BuildRequest, spec: LoaderSpec) -> Iterator[Candidate]:
    """Yield the loader without each of its transforms that change neither the size nor the type of the images."""
    for number in _removable(spec.recipe)[:_MAX_LEFT_OUT]:
        name = cut_middle(printable(spec.recipe.items[number].description), 80)
        yield Candidate(f"without {name}", "leave it out, or choose a cheaper one", _left_out(request, number))


def _removable(recipe: Recipe) -> list[int]:
    found, spec = [], ImageSpec()
    for number, item in enumerate(recipe.items):
        before = spec
        for operation in item.operations:
            if not isinstance(operation, BatchOperation):
                spec = operation.output(spec)
        own = [each for each in item.operations if not isinstance(each, (BatchOperation, Decode))]
        if own and spec == before and len(own) == len(item.operations):
            found.append(number)
    return found


def _left_out(request: BuildRequest, number: int) -> MakeSpec:
    def make_spec() -> LoaderSpec:
        spec = resolve(request)
        items = spec.recipe.items
        recipe = replace(spec.recipe, items=(*items[:number], *items[number + 1 :]))
        fusion, *views = fused(recipe)
        return replace(spec, recipe=recipe, fusion=fusion, view_fusions=tuple(views))

    return make_spec
