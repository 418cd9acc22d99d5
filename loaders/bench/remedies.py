"""Changes that could make a loader faster, each as a loader that can be measured."""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from loaders.bench.measure import Candidate, MakeSpec
from loaders.dataset.images import Encoded, MemoryImages, StoredImages
from loaders.dataset.tables import SampleTables
from loaders.memory import RESIZE_CHOICES
from loaders.options import BuildRequest
from loaders.ranks import usable_cores
from loaders.resolve import choose_pipelines, default_tuning, resolve
from loaders.samplers import ShuffledSampler
from loaders.spec import LoaderSpec
from loaders.transforms.base import ImageSpec
from loaders.transforms.fuse import fuse_recipe
from manifests.process.text import printable


def find_candidates(request: BuildRequest, stage: str, cached: float | None) -> Iterator[Candidate]:
    """Yield changes that may help if a stage limits the loader, the cheapest first.

    Args:
        request: the loader.
        stage: name of the stage; see `loaders.bench.results.STAGES`.
        cached: share of the shards that was in the page cache before the measurement; `None` if not
            known.

    """
    spec = resolve(request)
    if not spec.order.is_planned:
        # It starts a new pipeline for each epoch. Images in memory have no stored order, so the
        # changes below do not.
        yield Candidate(
            "with sampler=ShuffledSampler()",
            "pass sampler=loaders.ShuffledSampler() to loaders.build",
            lambda: resolve(replace(request, sampler=ShuffledSampler(), shuffle=None)),
        )
    elif stage == "augmentation" and spec.options.device.is_gpu and spec.options.pipelines == 1:
        yield _with_option(request, "pipelines", 2)
    elif stage == "decoding" and spec.may_choose_decoder and spec.options.decoder == "cpu":
        # The CPU is faster for small images only if it has enough cores.
        yield _with_option(request, "decoder", "gpu")
    if stage == "delivery":
        yield _with_option(request, "prefetch", min(64, 2 * spec.options.prefetch + 1))
    else:
        yield from with_other_images(request, spec, stage, cached)
    spec.close()


def disturbance_candidates(request: BuildRequest) -> Iterator[Candidate]:
    """Yield changes that may disturb a model less that runs beside the loader."""
    spec = resolve(request)
    spec.close()
    options = spec.options
    if options.decoder == "gpu" and options.hw_decoder_load < 1:
        yield _with_option(request, "hw_decoder_load", 1.0)
    if options.num_threads > 1:
        yield _with_option(request, "num_threads", options.num_threads // 2)


def _with_option(request: BuildRequest, name: str, value: Any) -> Candidate:
    argument = f"{name}={json.dumps(value)}"
    return Candidate(
        f"with {argument}",
        f"pass {argument} to loaders.build",
        lambda: resolve(replace(request, **{name: value})),
    )


#: Images that stand for all of a split, and the most bytes that they may take; at least one image
#: is used.
SAMPLE, _MAX_BYTES = 256, 256 << 20
#: Images whose shorter side is at most this many times the smaller one are not worth resizing.
_WORTHWHILE = 1.25
#: Quality of resized JPEG images, as `dataprep convert --resize-shorter` writes them.
_QUALITY = 90
#: A dataset of which more than this share is in the page cache is not limited by its disk.
_IN_MEMORY = 0.9

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM")


@dataclass(frozen=True, slots=True)
class _Resized:
    """An image in other sizes.

    Attributes:
        shorter: shorter side of the original in pixels.
        encoded: as JPEG.
        raw: as square pixels.

    """

    shorter: int
    encoded: Encoded
    raw: Encoded


def with_other_images(
    request: BuildRequest, spec: LoaderSpec, stage: str, cached: float | None
) -> Iterator[Candidate]:
    """Yield loaders over other images, the cheapest change first.

    Args:
        request: the loader.
        spec: its spec.
        stage: the stage that is the limit.
        cached: share of the shards that was in the page cache before the measurement; `None` if not
            known.

    """
    stored = _sample(spec)
    manifest = spec.split.manifest
    if stage == "reading" and (cached is None or cached < _IN_MEMORY):
        action = "put the dataset on a faster disk, or into memory"
        yield Candidate("with the images in memory", action, _replaced(request, stored))
    # Masks, depth maps and boxes belong to images of one size, which these would not have.
    if manifest.labels.is_placed or manifest.pixels is not None:
        return
    side = _useful_side(spec)
    # Pillow releases the interpreter lock.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        images = list(filter(None, pool.map(partial(_resize, side=side), stored)))
    if not images:
        return
    source = spec.split.folder.rstrip("/")
    if np.median([image.shorter for image in images]) > _WORTHWHILE * side:
        smaller = [image.encoded for image in images]
        action = _convert(source, f"--resize-shorter {side}", f"{source}-{side}")
        made = _replaced(request, smaller, side)
        yield Candidate(f"with shards at {side} px", action, made)
    if stage == "decoding":
        raw = _limited([image.raw for image in images])
        action = _convert(source, f"--store raw --raw-size {side}", f"{source}-raw")
        made = _replaced(request, raw, side, raw=True)
        yield Candidate(f"with raw pixels at {side} px", action, made)


def _convert(source: str, options: str, out: str) -> str:
    source = shlex.quote(printable(source))
    out = shlex.quote(printable(out))
    return f"run `dataprep convert --src {source} {options} --out {out}`"


def _useful_side(spec: LoaderSpec) -> int:
    """Return the smallest size that `loaders memory` suggests and the transforms need."""
    # Patches have the pixels of their budget, whatever the shape of the image.
    needed = max(
        max(output.size or (math.isqrt(output.pixels or 0),)) for output in spec.recipe.outputs
    )
    return next((side for side in sorted(RESIZE_CHOICES) if side >= needed), needed)


def _sample(spec: LoaderSpec) -> list[Encoded]:
    """Copy some images of a split, evenly spaced."""
    rows = np.unique(np.linspace(0, spec.split.samples - 1, SAMPLE).astype(np.int64))
    images = spec.images
    if images is None:
        images = StoredImages(spec.split, SampleTables(spec.split), mmap=spec.options.mmap)
    try:
        return [np.array(image) for image in _limited(images.images(rows))]
    finally:
        if spec.images is None:
            images.close()


def _limited(images: list[Encoded]) -> list[Encoded]:
    """Return the first images that take at most `_MAX_BYTES`, at least one."""
    ends = np.cumsum([len(image) for image in images])
    return images[: max(1, int(np.searchsorted(ends, _MAX_BYTES, side="right")))]


def _replaced(
    request: BuildRequest, images: list[Encoded], side: int | None = None, *, raw: bool = False
) -> MakeSpec:
    """Return a function that builds the spec of the same loader over other images."""

    def make_spec() -> LoaderSpec:
        spec = resolve(request)
        if not spec.order.is_planned:
            spec = resolve(replace(request, sampler=ShuffledSampler(), shuffle=None))
        spec.close()
        if side is not None:
            spec = _of_size(request, spec, side, raw=raw)
        return replace(spec, sizes=None, images=MemoryImages(images))

    return make_spec


def _of_size(request: BuildRequest, spec: LoaderSpec, side: int, *, raw: bool) -> LoaderSpec:
    """Return a spec for images of another size, with the options that `loaders.build` chooses."""
    recipe = spec.recipe
    options = spec.options
    sizes = spec.sizes
    if raw:
        recipe = replace(recipe, raw_size=(side, side))
    if sizes is not None:
        sizes = sizes.resized(side)
    fusion, *views = fuse_recipe(recipe)
    cores = usable_cores(options.ranks, 1)
    smooth = not options.shuffle
    pipelines = choose_pipelines(request, recipe, options.device, spec.order, sizes)
    if options.decoder == "cpu":
        sizes = None
    defaults = default_tuning(
        request,
        recipe,
        fusion,
        options.device,
        cores=cores,
        sizes=sizes,
        smooth=smooth,
        pipelines=pipelines,
    )
    options = replace(options, pipelines=pipelines)
    for name, value in asdict(defaults).items():
        if getattr(request, name) is None:
            options = replace(options, **{name: value})
    spec = replace(spec, recipe=recipe, fusion=fusion, view_fusions=tuple(views), options=options)
    return replace(spec, stored=ImageSpec())


def _resize(stored: Encoded, side: int) -> _Resized | None:
    """Resize an image; `None` if Pillow cannot decode it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged EXIF block, for example
            # Only formats that DALI also decodes.
            opened: Any = Image.open(io.BytesIO(stored.tobytes()), formats=_FORMATS)
            shorter = min(opened.size)
            # JPEG images are decoded at half size or less, if that is enough.
            opened.draft("RGB", (2 * side, 2 * side))
            image = opened.convert("RGB")
            return _Resized(
                shorter, _encode(image, side), np.asarray(image.resize((side, side))).reshape(-1)
            )
    except MemoryError:
        raise
    except Exception:  # damaged images raise many kinds
        return None


def _encode(image: Image.Image, side: int) -> Encoded:
    scale = min(1.0, side / min(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    out = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(out, "JPEG", quality=_QUALITY)
    return np.frombuffer(out.getvalue(), np.uint8)
