"""Resolve the arguments of `loaders.build` against the dataset and the machine. Never imports DALI."""

from __future__ import annotations

import logging
import math
import os
from dataclasses import replace

from loaders.cache.images import CachedImages
from loaders.cache.joined import open_images
from loaders.cache.open import open_cached
from loaders.dataset.fields import Fields, shadowed_columns
from loaders.dataset.joined import JoinedSplit, join_splits
from loaders.dataset.split import OpenSplit, open_split
from loaders.dataset.tables import SampleTables
from loaders.devices import find_device, find_gpus
from loaders.integers import require_int
from loaders.memory import HW_DECODER_LOAD, MAX_THREADS, PREFETCH, PREFETCH_RAW, ImageSizes
from loaders.options import BuildRequest, ResolvedOptions, first_given
from loaders.ranks import usable_cores
from loaders.samplers.choose import choose_order, on_network
from loaders.samplers.order import PlannedOrder
from loaders.spec import Images, LoaderSpec, check_limit, fused, load_settings
from loaders.transforms.argument import ParsedTransforms, parse_transforms
from loaders.transforms.base import Size
from loaders.transforms.cost import computes_on_cpu, order_warnings, works_on_whole_images
from loaders.transforms.fuse import Fusion
from loaders.transforms.limits import MAX_PIXELS
from loaders.transforms.parse import Recipe
from loaders.transforms.targets import require_followed
from loaders.tune.use import UNTUNED, tuning_key, use_tuning
from manifests.errors import CallError
from manifests.remote import is_url, local_path
from manifests.text import parse_bytes

_log = logging.getLogger(__name__)

#: Most threads by default with a GPU and operators on the CPU, which wait for all threads. Images per second on an H200
#: with 16 cores, a PaddleClas list that computes its crop on the CPU: 19,500 with 8 threads, 15,500 with 12, 14,500
#: with 16.
MAX_THREADS_COMPUTING = 8

#: Largest `memory_limit` and `cache_limit`, in bytes.
_MAX_SIZE = 2**60


def resolve(request: BuildRequest) -> LoaderSpec:
    """Resolve a request: open the split, fit the sampler, and replace every `None` by a value.

    Arguments of the call override those of a PaddleClas config, and those override the defaults for this dataset and
    machine.

    Raises:
        CallError: arguments contradict each other, the dataset or the machine.
        DamagedError: a file of the dataset is missing or damaged.

    """
    split = _open(request)
    tables = SampleTables(split)
    parsed = parse_transforms(
        request.transforms, split=request.split, views=request.views, image_size=lambda: one_size(split, tables)
    )
    chosen = choose_order(request, parsed, split, tables)
    order, batching = chosen.order, chosen.batching
    recipe = _recipe(request, parsed, split, chosen.notes)
    fusion, *view_fusions = fused(recipe)

    gpus = find_gpus(request.framework)
    device = find_device(request.device, request.device_id, batching.ranks, gpus)
    cores = usable_cores(batching.ranks, gpus.count)
    tuned = UNTUNED
    if request.tuning is not None:
        tuned = use_tuning(request.tuning, tuning_key(device, cores, split, recipe), order.batch_size)
    whole_images = works_on_whole_images(fusion.operations)
    sizes = tables.image_sizes() if device.is_gpu or whole_images else None
    decoded_sizes = sizes if device.is_gpu and recipe.raw_size is None else None
    options = ResolvedOptions(
        batch_size=order.batch_size,
        shuffle=chosen.shuffle,
        device=device,
        ranks=batching.ranks,
        seed=request.seed,
        num_threads=first_given(
            request.num_threads,
            tuned.options.num_threads,
            _default_threads(fusion, decoded_sizes, cores, gpu=device.is_gpu),
        ),
        dtype=request.dtype,
        layout=request.layout,
        last_batch=batching.last_batch,
        fields=tuple(request.fields),
        framework=request.framework,
        prefetch=first_given(
            request.prefetch, tuned.options.prefetch, PREFETCH_RAW if device.is_gpu and recipe.raw_size else PREFETCH
        ),
        hw_decoder_load=first_given(
            request.hw_decoder_load,
            tuned.options.hw_decoder_load,
            decoded_sizes.hardware_load if decoded_sizes else HW_DECODER_LOAD,
        ),
        memory_limit=_size("memory_limit", request.memory_limit),
        mmap=first_given(request.mmap, not on_network(split)),
        cache=_cache_of(split),
        cache_limit=_size("cache_limit", request.cache_limit),
        on_error=request.on_error,
        tuning="" if request.tuning is None else os.fspath(request.tuning),
    )
    settings = load_settings(recipe, fusion, options, spread=isinstance(order, PlannedOrder) and order.spread)
    planned = isinstance(order, PlannedOrder)
    if options.memory_limit < math.inf:
        check_limit(sizes, settings, options)
    slow_orders = order_warnings(recipe, fusion.operations, sizes, order.batch_size) if sizes and whole_images else ()
    deviations = ("the transforms are not exact: " + "; ".join(recipe.all_notes),) if recipe.all_notes else ()
    fields = Fields(split, tables, options.fields, planned=planned)
    if fields.label_image:
        require_followed(recipe, "masks")
    if fields.has_boxes:
        require_followed(recipe, "boxes")
    records, seconds = _images(split, tables, fields, request, options) if planned else (None, None)
    cache_warning = records.warning if isinstance(records, CachedImages) else None
    spec = LoaderSpec(
        split=split,
        recipe=recipe,
        fusion=fusion,
        view_fusions=tuple(view_fusions),
        options=options,
        order=order,
        num_classes=_num_classes(split, recipe) if split.manifest.label_type == "class" else 0,
        fields=fields,
        records=records,
        label_images=seconds,
        sizes=sizes if device.is_gpu else None,
        settings=settings,
        order_warnings=slow_orders,
        warnings=(
            *chosen.warnings,
            *tuned.warnings,
            *slow_orders,
            *shadowed_columns(tables, options.fields),
            *deviations,
            *filter(None, [cache_warning]),
        ),
        written=recipe,
    )
    tables.close()
    _log.info(
        "%s, split %s: %d samples in %d shards; %d batches of %d for rank %d of %d (%s), on %s with %d threads",
        split.folder,
        split.name,
        split.samples,
        len(split.shards),
        order.batches,
        order.batch_size,
        options.ranks.rank,
        options.ranks.world_size,
        options.ranks.origin,
        options.device.kind,
        options.num_threads,
    )
    return spec


def one_size(split: OpenSplit, tables: SampleTables) -> Size | None:
    """Return the height and width of all images; `None` if they vary or are not known."""
    if split.manifest.pixels is not None:
        return split.manifest.pixels[:2]
    sizes = tables.all_image_sizes()
    if sizes is None:
        return None
    height, width = int(sizes.heights[0]), int(sizes.widths[0])
    same = bool((sizes.heights == height).all() and (sizes.widths == width).all())
    return (height, width) if same and min(height, width) > 0 and height * width <= MAX_PIXELS else None


def default_threads(cores: int, max_threads: int, *, gpu: bool, computing: bool) -> int:
    """Return the default number of CPU threads that read and decode.

    Args:
        cores: cores that this process can use.
        max_threads: with a GPU, the largest useful number of threads for these images.
        gpu: whether images are decoded on the GPU.
        computing: whether the transforms compute much on the CPU even with a GPU.

    """
    if not gpu:
        return cores
    return min(cores, max_threads, MAX_THREADS_COMPUTING) if computing else min(cores, max_threads)


def _recipe(request: BuildRequest, parsed: ParsedTransforms, split: OpenSplit, notes: tuple[str, ...]) -> Recipe:
    recipe = replace(parsed.recipe, notes=(*parsed.recipe.notes, *notes))
    if request.dtype == "uint8" and not all(output.is_uint8 for output in recipe.outputs):
        raise CallError(
            'dtype="uint8", but the transforms return normalized float values',
            hint="remove the normalization from the transforms, or choose another dtype",
        )
    return recipe if split.manifest.pixels is None else replace(recipe, raw_size=split.manifest.pixels[:2])


def _open(request: BuildRequest) -> OpenSplit:
    limit = _size("cache_limit", request.cache_limit)
    most = None if limit == math.inf else int(limit)
    if isinstance(request.dataset, (str, os.PathLike)):
        dataset = local_path(os.fspath(request.dataset))
        if is_url(dataset):
            return open_cached(dataset, request.split, request.cache, most, request.revisions[0])
        if request.cache is not None or most is not None:
            raise CallError(
                f"cache and cache_limit are for datasets in an object store, but {dataset} is a folder",
                hint="remove them, or pass the URL of the dataset",
            )
        return open_split(dataset, request.split, request.revisions[0])
    datasets = [local_path(os.fspath(dataset)) for dataset in request.dataset]
    if not any(map(is_url, datasets)) and (request.cache is not None or most is not None):
        raise CallError(
            "cache and cache_limit are for datasets in an object store, but all datasets are folders",
            hint="remove them, or pass the URLs of datasets",
        )
    return join_splits(
        [
            open_cached(dataset, request.split, request.cache, most, revision)
            if is_url(dataset)
            else open_split(dataset, request.split, revision)
            for dataset, revision in zip(datasets, request.revisions, strict=True)
        ]
    )


def _cache_of(split: OpenSplit) -> str:
    """Return the cache folder of a split; empty if it is on disk."""
    parts = split.parts if isinstance(split, JoinedSplit) else (split,)
    return next((part.cached.dataset.cache for part in parts if part.cached is not None), "")


def _images(
    split: OpenSplit, tables: SampleTables, fields: Fields, request: BuildRequest, options: ResolvedOptions
) -> tuple[Images, Images | None]:
    """Return random access to the images of a split, and to its masks or depth maps if a field needs them."""
    tolerant, second = request.on_error != "raise", fields.label_image is not None
    images, seconds = open_images(split, tables, mmap=options.mmap, tolerant=tolerant, second=second)
    if isinstance(images, CachedImages):
        images.require_room(options.batch_size * options.ranks.world_size)
    return images, seconds


def _default_threads(fusion: Fusion, decoded_sizes: ImageSizes | None, cores: int, *, gpu: bool) -> int:
    max_threads = decoded_sizes.threads if decoded_sizes else MAX_THREADS
    return default_threads(cores, max_threads, gpu=gpu, computing=computes_on_cpu(fusion.operations))


def _size(name: str, limit: int | str | None) -> float:
    """Return an argument that is a size in bytes; `math.inf` if it is not given."""
    if limit is None:
        return math.inf
    if not isinstance(limit, str):
        return require_int(name, limit, 1, most=_MAX_SIZE)
    try:
        return require_int(name, parse_bytes(limit), 1, most=_MAX_SIZE)
    except CallError:
        raise
    except ValueError:
        raise CallError(f"{name}={limit!r} is not a size in bytes", hint='pass for example "4GiB"') from None


def _num_classes(split: OpenSplit, recipe: Recipe) -> int:
    """Return the number of classes of a mixed label: that of the recipe, else of the dataset."""
    given, named = recipe.num_classes, len(split.manifest.classes)
    if recipe.mixing and not (given or named):
        raise CallError(
            f"{split.folder} does not name its classes, but mixed labels need their number",
            hint="set class_num or num_classes of the transform that mixes images",
        )
    if recipe.mixing and given and named > given:
        raise CallError(
            f"the transform that mixes images sets the number of classes to {given}, but {split.folder} has {named}",
            hint="remove class_num or num_classes to use the number of classes of the dataset",
        )
    return given or named
