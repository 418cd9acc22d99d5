"""Resolve the arguments of `loaders.build` against the dataset and the machine. Never imports DALI."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from loaders.dataset.fields import Fields, shadowed_columns
from loaders.dataset.filesystem import network_filesystem
from loaders.dataset.index_check import check_indexes
from loaders.dataset.joined import JoinedSplit, join_splits, mix_weights
from loaders.dataset.records import Records
from loaders.dataset.split import OpenSplit, open_split
from loaders.dataset.tables import SampleTables
from loaders.devices import find_device, find_gpus
from loaders.memory import (
    HW_DECODER_LOAD,
    MAX_THREADS,
    PREFETCH,
    PREFETCH_RAW,
    RESERVATIONS,
    ImageSizes,
    LoadSettings,
    check_memory_limit,
)
from loaders.options import DTYPE_BYTES, BuildRequest, LastBatch, ResolvedOptions, Shuffle, require_int
from loaders.ranks import find_ranks, usable_cores
from loaders.samplers import Sampler, SequentialSampler, ShuffledSampler, WeightedSampler
from loaders.samplers.from_config import configured_sampler
from loaders.samplers.order import Batching, PlannedOrder, StoredOrder, planned_order, sampler_warnings, stored_order
from loaders.samplers.tolerant import tolerant_order
from loaders.transforms.adjust import AS_WRITTEN, Adjustment
from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.cost import (
    computes_on_cpu,
    decode_window,
    full_size_images,
    order_warnings,
    works_on_whole_images,
)
from loaders.transforms.fuse import Fusion, fuse
from loaders.transforms.limits import MAX_PIXELS
from loaders.transforms.parse import Recipe, read_recipe, read_views
from loaders.transforms.parse.adjusted import adjusted
from loaders.transforms.parse.paddleclas import read_config
from loaders.transforms.parse.torchvision_objects import composed
from loaders.transforms.presets import PRESETS, get_preset
from manifests.errors import CallError
from manifests.text import parse_bytes, shown

T = TypeVar("T")

#: Most threads by default with a GPU and operators on the CPU, which wait for all threads. Images per second on an H200
#: with 16 cores, a PaddleClas list that computes its crop on the CPU: 19,500 with 8 threads, 15,500 with 12, 14,500
#: with 16.
MAX_THREADS_COMPUTING = 8

#: Largest `memory_limit`, in bytes.
_MAX_MEMORY = 2**60


@dataclass(frozen=True, slots=True)
class LoaderSpec:
    """Everything that is decided before DALI starts. A `Loader` is built from it.

    Attributes:
        split: the split to read.
        recipe: the transforms.
        fusion: the operations that DALI runs, and why they differ from the recipe.
        view_fusions: the same for each view of the recipe.
        options: every option with its final value.
        order: which samples a batch contains.
        fields: where labels and table columns come from.
        records: random access to the encoded images. `None` if DALI's own readers read them.
        num_classes: columns of a mixed label. 0 if the dataset does not name its classes.
        sizes: sizes of the images. `None` on the CPU, or if the sample tables do not have them.
        settings: how batches are made, for the estimate of GPU memory.
        order_warnings: operations that cost memory because of their place in the list.
        warnings: all warnings of `loaders.build`.
        written: the transforms as the user wrote them, from which `adjusted_spec` starts.
        adjustment: how `recipe` differs from `written`.

    """

    split: OpenSplit
    recipe: Recipe
    fusion: Fusion
    view_fusions: tuple[Fusion, ...]
    options: ResolvedOptions
    order: StoredOrder | PlannedOrder
    fields: Fields
    records: Records | None
    num_classes: int
    sizes: ImageSizes | None
    settings: LoadSettings
    order_warnings: tuple[str, ...]
    warnings: tuple[str, ...]
    written: Recipe
    adjustment: Adjustment = AS_WRITTEN


@dataclass(frozen=True, slots=True)
class ParsedTransforms:
    """What the argument `transforms` contains: a recipe, and with a PaddleClas config, what it says about batches.

    Attributes:
        recipe: the operations.
        batch_size: batch_size of the config. `None` if not given.
        drop_last: drop_last of the config. `None` if not given.
        shuffle: shuffle of the config. `None` if not given.
        sampler: section of the config. `None` if not given.

    """

    recipe: Recipe
    batch_size: int | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None
    sampler: Mapping[str, Any] | None = None


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
        request.transforms, split=request.split, views=request.views, image_size=lambda: _one_size(split, tables)
    )
    batching = _batching(request, parsed)
    recipe, sampler = _recipe_and_sampler(request, parsed, batching.batch_size)
    if split.manifest.pixels is not None:
        recipe = replace(recipe, raw_size=split.manifest.pixels[:2])
    shuffle = _shuffle(request, parsed, split)
    sampler = _chosen_sampler(split, request, sampler, shuffle)
    fusion, *view_fusions = map(fuse, (recipe.operations, *(view.operations for view in recipe.views)))

    order: StoredOrder | PlannedOrder
    notes: tuple[str, ...] = ()
    if sampler is None:
        check_indexes(split)  # only DALI's readers, which read the stored order, use them
        order = stored_order(split, batching, shuffle=bool(shuffle))
    else:
        order = planned_order(split, tables, batching, sampler)
        notes = sampler_warnings(split, tables, sampler, order)
        if request.on_error != "raise":
            order = tolerant_order(order, tables, sampler, mode=request.on_error, seed=request.seed)

    gpus = find_gpus(request.framework)
    device = find_device(request.device, request.device_id, batching.ranks, gpus)
    cores = usable_cores(batching.ranks, gpus.count)
    whole_images = works_on_whole_images(fusion.operations)
    sizes = tables.image_sizes() if device.is_gpu or whole_images else None
    decoded_sizes = sizes if device.is_gpu and recipe.raw_size is None else None
    options = ResolvedOptions(
        batch_size=order.batch_size,
        shuffle=shuffle,
        device=device,
        ranks=batching.ranks,
        seed=request.seed,
        num_threads=_first(request.num_threads, _default_threads(fusion, decoded_sizes, cores, gpu=device.is_gpu)),
        dtype=request.dtype,
        layout=request.layout,
        last_batch=batching.last_batch,
        fields=tuple(request.fields),
        framework=request.framework,
        prefetch=_first(request.prefetch, PREFETCH_RAW if device.is_gpu and recipe.raw_size else PREFETCH),
        hw_decoder_load=_first(
            request.hw_decoder_load, decoded_sizes.hardware_load if decoded_sizes else HW_DECODER_LOAD
        ),
        memory_limit=_memory_limit(request.memory_limit),
        mmap=_first(request.mmap, not _on_network(split)),
        on_error=request.on_error,
    )
    settings = load_settings(recipe, fusion, options, spread=isinstance(order, PlannedOrder) and order.spread)
    if options.memory_limit < math.inf:
        _check_limit(sizes, settings, options)
    slow_orders = order_warnings(recipe, fusion.operations, sizes, order.batch_size) if sizes and whole_images else ()
    deviations = ("the transforms are not exact: " + "; ".join(recipe.all_notes),) if recipe.all_notes else ()
    return LoaderSpec(
        split=split,
        recipe=recipe,
        fusion=fusion,
        view_fusions=tuple(view_fusions),
        options=options,
        order=order,
        num_classes=_num_classes(split, recipe),
        fields=Fields(split, tables, options.fields, planned=sampler is not None),
        records=None
        if sampler is None
        else Records(split, tables, mmap=options.mmap, tolerant=request.on_error != "raise"),
        sizes=sizes if device.is_gpu else None,
        settings=settings,
        order_warnings=slow_orders,
        warnings=(*notes, *slow_orders, *shadowed_columns(tables, options.fields), *deviations),
        written=recipe,
    )


def adjusted_spec(spec: LoaderSpec, adjustment: Adjustment) -> LoaderSpec:
    """Return a spec with another size of the images and another strength of the policies.

    Raises:
        CallError: no transform has a size or a strength to change, the value is not possible, or the images no longer
            fit into `memory_limit`.

    """
    recipe = adjusted(spec.written, adjustment)
    fusion, *view_fusions = map(fuse, (recipe.operations, *(view.operations for view in recipe.views)))
    settings = load_settings(recipe, fusion, spec.options, spread=spec.settings.spread)
    if spec.options.memory_limit < math.inf:
        _check_limit(spec.sizes, settings, spec.options)
    return replace(
        spec,
        recipe=recipe,
        fusion=fusion,
        view_fusions=tuple(view_fusions),
        settings=settings,
        order_warnings=()
        if spec.sizes is None
        else order_warnings(recipe, fusion.operations, spec.sizes, spec.options.batch_size),
        adjustment=adjustment,
    )


def _records(split: OpenSplit, tables: SampleTables, options: ResolvedOptions) -> Records:
    return Records(split, tables, mmap=options.mmap, tolerant=options.on_error != "raise")


def _one_size(split: OpenSplit, tables: SampleTables) -> Size | None:
    """Return the height and width of all images; `None` if they vary or are not known."""
    if split.manifest.pixels is not None:
        return split.manifest.pixels[:2]
    sizes = tables.image_sizes()
    if sizes is None or not len(sizes.widths):
        return None
    height, width = int(sizes.heights[0]), int(sizes.widths[0])
    same = bool((sizes.heights == height).all() and (sizes.widths == width).all())
    return (height, width) if same and min(height, width) > 0 and height * width <= MAX_PIXELS else None


def parse_transforms(
    transforms: Any,
    *,
    split: str,
    views: Sequence[Any] | None = None,
    image_size: Callable[[], Size | None] = lambda: None,
) -> ParsedTransforms:
    """Parse the name of a preset, a list of transforms, a torchvision `Compose`, or the path of a YAML file.

    Args:
        transforms: the argument of `loaders.build`.
        split: selects the section of a PaddleClas config.
        views: lists of transforms, one for each view of the images; `None` for one tensor of images.
        image_size: returns the height and width of all images of the dataset, or `None` if they vary.

    Raises:
        CallError: the preset or the file does not exist, or a transform is unknown or wrong.

    """
    parts = composed(transforms)
    if parts is not None:
        transforms = parts
    if isinstance(transforms, (list, tuple)):
        presets = [item for item in transforms if isinstance(item, str) and item in PRESETS]
        if presets:
            raise CallError(
                f"transforms is a list that contains the preset {presets[0]!r}", hint=f"write transforms={presets[0]!r}"
            )
        if views is not None:
            return ParsedTransforms(read_views(transforms, views, image_size=image_size))
        return ParsedTransforms(read_recipe(transforms, image_size=image_size))
    if views is not None:
        raise CallError(
            f"views needs a list as transforms, got {shown(transforms)}",
            hint="pass the transforms that all views share, or an empty list",
        )
    if not isinstance(transforms, (str, os.PathLike)):
        raise CallError(
            "transforms must be the name of a preset, a list, a torchvision Compose or a YAML file, got "
            f"{shown(transforms)}",
            hint='pass for example "imagenet-train" or [{"CropImage": {"size": 224}}]',
        )
    path = os.fspath(transforms)
    if path.endswith((".yaml", ".yml")) or os.path.isfile(path):
        config = read_config(path, split)
        recipe = read_recipe(
            config.transforms,
            source=f"{path}: transform_ops",
            batch=config.batch_transforms,
            num_classes=config.num_classes,
            notes=config.notes,
            image_size=image_size,
        )
        return ParsedTransforms(recipe, config.batch_size, config.drop_last, config.shuffle, config.sampler)
    items, batch = get_preset(path)
    return ParsedTransforms(read_recipe(items, source=f"{path}: transforms", batch=batch, image_size=image_size))


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


def _values(output: ImageSpec) -> int:
    """Return the number of values of an image in a finished batch."""
    height, width = output.size or (0, 0)
    return max(1, output.crops) * output.channels * height * width


def load_settings(recipe: Recipe, fusion: Fusion, options: ResolvedOptions, *, spread: bool) -> LoadSettings:
    """Return how batches are made, for the estimate of GPU memory."""
    values = sum(map(_values, recipe.outputs))
    return LoadSettings(
        batch_size=options.batch_size,
        image_bytes=values * DTYPE_BYTES[options.dtype],
        # DALI has no bfloat16: it returns float32, which the framework converts.
        staged_bytes=values * DTYPE_BYTES["float32"] if options.dtype == "bfloat16" else 0,
        window=decode_window(fusion.operations),
        full_size_images=full_size_images(fusion.operations),
        threads=options.num_threads,
        hardware_load=options.hw_decoder_load,
        prefetch=options.prefetch,
        spread=spread,
        encoded=recipe.raw_size is None,
    )


def _open(request: BuildRequest) -> OpenSplit:
    if isinstance(request.dataset, (str, os.PathLike)):
        return open_split(request.dataset, request.split)
    return join_splits([open_split(dataset, request.split) for dataset in request.dataset])


def _chosen_sampler(
    split: OpenSplit, request: BuildRequest, sampler: Sampler | None, shuffle: Shuffle
) -> Sampler | None:
    """Return the sampler that reads the split; `None` for DALI's own readers."""
    if sampler is not None:
        return sampler
    if isinstance(split, JoinedSplit) and request.mix is not None:
        return WeightedSampler(mix_weights(split.parts, request.mix), replacement=False)
    if shuffle is True:
        return ShuffledSampler()
    if not _needs_sampler(request):
        return None
    if shuffle == "buffer":
        raise CallError(
            'shuffle="buffer" reads with DALI\'s own reader, which reads one dataset and cannot leave out an image',
            hint="set shuffle=True",
        )
    return SequentialSampler()


def _needs_sampler(request: BuildRequest) -> bool:
    return request.on_error != "raise" or not isinstance(request.dataset, (str, os.PathLike))


def _is_training(request: BuildRequest) -> bool:
    return request.split == "train"


def _on_network(split: OpenSplit) -> bool:
    parts = split.parts if isinstance(split, JoinedSplit) else (split,)
    return any(network_filesystem(part.root) for part in parts)


def _shuffle(request: BuildRequest, parsed: ParsedTransforms, split: OpenSplit) -> Shuffle:
    shuffle: Shuffle = _first(request.shuffle, parsed.shuffle, _is_training(request))
    native = request.shuffle is None and not _needs_sampler(request)
    if shuffle is True and native and _on_network(split):
        # Each image would be a request of its own.
        return "buffer"
    return shuffle


def _batching(request: BuildRequest, parsed: ParsedTransforms) -> Batching:
    batch_size = parsed.batch_size if request.batch_size is None else request.batch_size
    if batch_size is None:
        raise CallError("batch_size is missing", hint="pass the number of samples per batch")
    drop_last = _first(parsed.drop_last, _is_training(request))
    default: LastBatch = "drop" if drop_last else "partial"
    return Batching(
        batch_size=require_int("batch_size", batch_size, 1),
        last_batch=_first(request.last_batch, default),
        ranks=find_ranks(request.rank, request.world_size),
        seed=request.seed,
    )


def _recipe_and_sampler(
    request: BuildRequest, parsed: ParsedTransforms, batch_size: int
) -> tuple[Recipe, Sampler | None]:
    """Return the recipe, and the sampler that was given or that the config names."""
    recipe, sampler = parsed.recipe, request.sampler
    if sampler is None and parsed.sampler is not None:
        sampler, notes = configured_sampler(parsed.sampler, batch_size)
        recipe = replace(recipe, notes=(*recipe.notes, *notes))
    if sampler is not None and request.shuffle is not None:
        raise CallError(
            f"shuffle={request.shuffle} cannot be combined with a sampler, which decides the order",
            hint="remove shuffle, or pass sampler=loaders.ShuffledSampler() to read every sample once per epoch",
        )
    if request.dtype == "uint8" and not all(output.is_uint8 for output in recipe.outputs):
        raise CallError(
            'dtype="uint8", but the transforms return normalized float values',
            hint="remove the normalization from the transforms, or choose another dtype",
        )
    return recipe, sampler


def _default_threads(fusion: Fusion, decoded_sizes: ImageSizes | None, cores: int, *, gpu: bool) -> int:
    max_threads = decoded_sizes.threads if decoded_sizes else MAX_THREADS
    return default_threads(cores, max_threads, gpu=gpu, computing=computes_on_cpu(fusion.operations))


def _memory_limit(limit: int | str | None) -> float:
    if limit is None:
        return math.inf
    if not isinstance(limit, str):
        return require_int("memory_limit", limit, 1, most=_MAX_MEMORY)
    try:
        return require_int("memory_limit", parse_bytes(limit), 1, most=_MAX_MEMORY)
    except CallError:
        raise
    except ValueError:
        raise CallError(f"memory_limit={limit!r} is not a size in bytes", hint='pass for example "4GiB"') from None


def _check_limit(sizes: ImageSizes | None, settings: LoadSettings, options: ResolvedOptions) -> None:
    if not options.device.is_gpu:
        raise CallError(
            'memory_limit limits GPU memory, but the device is "cpu"', hint='remove memory_limit, or set device="gpu"'
        )
    if sizes is None:
        raise CallError(
            "memory_limit needs the sizes of all images, but the sample tables do not have them",
            hint="remove memory_limit, or run `dataprep index --overwrite --validate header` if the shards were made "
            "by another tool",
        )
    reserved = RESERVATIONS.total(options.device.index)
    check_memory_limit(sizes, settings, options.memory_limit, reserved=reserved)


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


def _first(*values: T | None) -> T:
    """Return the first value that is not `None`."""
    return next(value for value in values if value is not None)
