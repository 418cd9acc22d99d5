"""Resolve the arguments of `loaders.build` against the dataset and the machine.

Never imports DALI.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np

from loaders.dataset.fields import Fields, image_fields, shadowed_columns
from loaders.dataset.images import Images, open_images
from loaders.dataset.orientation import turned
from loaders.dataset.split import OpenSplit, join_splits, open_split
from loaders.dataset.tables import MEAN_SHARDS, SampleTables
from loaders.devices import Device, find_device, find_gpus
from loaders.memory import (
    MAX_THREADS,
    PIPELINES_IN_TURN,
    PREFETCH,
    PREFETCH_IN_TURN,
    PREFETCH_RAW,
    RAW_THREADS,
    RESERVATIONS,
    TINY_SIDE,
    ImageSizes,
    LoadSettings,
    check_estimate,
    hardware_load,
    has_many_operators,
)
from loaders.options import (
    DTYPE_BYTES,
    LABEL_IMAGE_BYTES,
    BuildRequest,
    Decoder,
    DType,
    ResolvedOptions,
    first_given,
)
from loaders.ranks import usable_cores
from loaders.samplers.choose import ChosenOrder, choose_order, on_network
from loaders.samplers.order import Order
from loaders.spec import LoaderSpec
from loaders.transforms.argument import ParsedTransforms, parse_transforms, require_followed
from loaders.transforms.base import MAX_PIXELS, Adjustment, ImageSpec, Size, no_buckets
from loaders.transforms.combinators import Combinator
from loaders.transforms.crop_resize import RandomResizedCrop
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat
from loaders.transforms.fuse import (
    Fusion,
    decode_window,
    full_size_images,
    fuse_recipe,
    order_warnings,
    works_on_whole_images,
)
from loaders.transforms.parse import Recipe
from loaders.transforms.parse.recipe import adjusted
from loaders.transforms.parse.sequence import check_fits, depends_on_size
from loaders.transforms.patches import PATCH_FIELDS
from loaders.tuning import Tuning, tuning_key, use_tuning
from manifests.errors import CallError
from manifests.labels import CAPTION_FIELD
from manifests.pixels import RGB8
from manifests.remote.url import is_url, local_path

_log = logging.getLogger(__name__)

#: Types of 16 bits, which have fewer values than images of uint16 or float32.
_HALF = ("float16", "bfloat16")


def resolve(request: BuildRequest) -> LoaderSpec:
    """Resolve a request: open the split, fit the sampler, and replace every `None` by a value.

    Arguments of the call override a PaddleClas config, and both override the defaults for this
    dataset and machine.

    Raises:
        CallError: arguments contradict each other, the dataset or the machine.
        DamagedError: a file of the dataset is missing or damaged.

    """
    split = _open(request)
    tables = SampleTables(split)
    parsed = parse_transforms(
        request.transforms,
        split=request.split,
        views=request.views,
        image_size=lambda: one_size(split, tables, image_fields(split, request.fields)),
        batch_size=request.batch_size,
        kind=split.manifest.kind,
    )
    chosen = choose_order(request, parsed, split, tables)
    order = chosen.order
    recipe = _recipe(request, parsed, split, chosen.notes)
    _check_shapes(recipe, order)
    _check_crops(recipe, split, tables)
    fusion, *view_fusions = fuse_recipe(recipe)
    ranks = chosen.batching.ranks
    gpus = find_gpus(request.framework)
    device = find_device(request.device, request.device_id, ranks, gpus)
    cores = usable_cores(ranks, gpus.count)
    tuned = Tuning()
    tuning_warnings: tuple[str, ...] = ()
    if request.tuning is not None:
        key = tuning_key(device, cores, split, recipe)
        tuned, tuning_warnings = use_tuning(request.tuning, key, order.batch_size)
    # Reading the sizes takes time, so only what needs them reads them.
    whole_images = works_on_whole_images(fusion.operations)
    needs_sizes = device.is_gpu or whole_images or recipe.output.pixels is None
    # `_stored` needs the sizes of all images.
    is_cheap = tables.is_eager and len(split.shards) <= MEAN_SHARDS
    needs_sizes |= is_cheap and isinstance(fusion.operations[0], Decode)
    # The limit and the size of a batch depend on the largest images, too.
    is_bounded = request.memory_limit is not None or recipe.output.pixels is None
    most = None if is_bounded else MEAN_SHARDS
    sizes = tables.image_sizes(most) if needs_sizes else None
    pipelines = choose_pipelines(request, recipe, device, order, sizes)
    decoder = _decoder(request, recipe, device, sizes, tuned)
    on_gpu = sizes if decoder == "gpu" else None
    smooth = not chosen.shuffle
    defaults = default_tuning(
        request,
        recipe,
        fusion,
        device,
        cores=cores,
        sizes=on_gpu,
        smooth=smooth,
        pipelines=pipelines,
    )
    options = _options(
        request, split, chosen, device, pipelines, decoder=decoder, tuning=tuned, defaults=defaults
    )
    settings = _settings(recipe, fusion, options, sizes, order)
    slow_orders: tuple[str, ...] = ()
    if sizes and whole_images:
        slow_orders = order_warnings(recipe, fusion.operations, sizes, order.batch_size)
    batch_fields = _fields(split, tables, options, recipe, planned=order.is_planned)
    _check_captions(request, split, batch_fields)
    num_classes = 0
    if split.manifest.labels.is_class:
        num_classes = _num_classes(split, recipe)
    patch_fields = PATCH_FIELDS * (recipe.patchify[0] is not None)
    shadowed = shadowed_columns(tables, options.fields, patch_fields, split.manifest.arrays)
    # Opened last: what failed after this would leave the files open.
    images = None
    if order.is_planned:
        images = open_images(
            split,
            tables,
            mmap=options.mmap,
            tolerant=options.on_error != "raise",
            others=batch_fields.others,
        )
        _require_room(images, options)
    spec = LoaderSpec(
        split=split,
        recipe=recipe,
        fusion=fusion,
        view_fusions=tuple(view_fusions),
        options=options,
        order=order,
        num_classes=num_classes,
        fields=batch_fields,
        images=images,
        sizes=sizes if device.is_gpu else None,
        stored=_stored(sizes, split),
        settings=settings,
        order_warnings=slow_orders,
        warnings=(
            *chosen.warnings,
            *tuning_warnings,
            *slow_orders,
            *shadowed,
            *_other_warnings(recipe, images, split, options.fields),
        ),
        written=recipe,
    )
    tables.close()
    _log_spec(spec)
    return spec


def _check_shapes(recipe: Recipe, order: Order) -> None:
    """Check that the transforms fit the batches of buckets or of clips.

    Raises:
        CallError: transforms take the size of a bucket, and batches have none, or the reverse; or
            transforms mix the frames of clips, or cut them into patches.

    """
    if order.shaped is None and recipe.of_buckets:
        raise no_buckets()
    if order.shaped is not None and any(recipe.patchify):
        raise CallError(
            "BucketSampler and Patchify both give images their size", hint="remove one of them"
        )
    if order.shaped is not None and not recipe.of_buckets:
        raise CallError(
            "BucketSampler gives each batch the size of its bucket, but no transform takes it",
            hint=(
                'set transforms="bucket-train", or size="bucket" in RandomResizedCrop, RandomCrop,'
                " CenterCrop or Resize"
            ),
        )
    if order.clipped is not None and (recipe.mixing or any(recipe.patchify)):
        raise CallError(
            "ClipSampler gives batches of clips, whose frames cannot be mixed or cut into patches",
            hint="remove the transforms that do, and mix or cut the finished batch in your script",
        )


def _check_crops(recipe: Recipe, split: OpenSplit, tables: SampleTables) -> None:
    """Check that each image is large enough for the crops that must fit into it.

    Raises:
        CallError: an image is too small; the message names its key.

    """
    lists = [(*recipe.items, *view.items) for view in recipe.views] or [recipe.items]
    lists = [items for items in lists if depends_on_size(items)]
    if recipe.raw_size is not None:
        for items in lists:
            check_fits(items, recipe.raw_size)
        return
    # Reading the sizes takes time, so only a list that needs them reads them.
    sizes = tables.all_image_sizes() if lists else None
    if sizes is None:
        return
    different, rows = np.unique(
        np.stack([sizes.heights, sizes.widths], axis=1), axis=0, return_index=True
    )
    for (height, width), row in zip(different.tolist(), rows.tolist(), strict=True):
        for items in lists:
            try:
                check_fits(items, (height, width))
            except CallError as error:
                # The sample tables have the sizes before EXIF orientation, which can swap them. If
                # other images of the size are not turned, their batch raises an error.
                with suppress(CallError):
                    check_fits(items, (width, height))
                    if split.is_remote or turned(split, tables, np.array([row])).any():
                        continue
                key = tables.columns(["key"], requested_by="the transforms")["key"][row]
                raise CallError(
                    f"{error.message}, such as the one with the key {key!r}", hint=error.hint
                ) from None


def one_size(
    split: OpenSplit, tables: SampleTables, images: Mapping[str, str] | None = None
) -> Size | None:
    """Return the height and width of all images; `None` if they vary or are not known.

    `images` are the fields that are images, if there are others than the first image of each sample.
    """
    if split.manifest.pixels is not None:
        return split.manifest.pixels[:2]
    sizes = tables.all_image_sizes()
    if sizes is None:
        return None
    height = int(sizes.heights[0])
    width = int(sizes.widths[0])
    same = bool((sizes.heights == height).all() and (sizes.widths == width).all())
    if not same or min(height, width) == 0 or height * width > MAX_PIXELS:
        return None
    for other in filter(None, (images or {}).values()):
        names = (f"{other}_width", f"{other}_height")
        sides = np.stack([*tables.columns(names, requested_by="fields").values()])
        # Only square images have this size also if decoding turns them; 0 is a missing image.
        if height != width or not np.isin(sides, (0, width)).all():
            return None
    if height != width and turned(split, tables, np.array([0])).any():
        return width, height
    return height, width


def _recipe(
    request: BuildRequest, parsed: ParsedTransforms, split: OpenSplit, notes: tuple[str, ...]
) -> Recipe:
    recipe = replace(parsed.recipe, notes=(*parsed.recipe.notes, *notes))
    _check_dtype(request.dtype, recipe)
    if request.dtype == "uint8" and not all(output.is_uint8 for output in recipe.outputs):
        raise CallError(
            'dtype="uint8", but the transforms return normalized float values',
            hint="remove the normalization from the transforms, or choose another dtype",
        )
    if split.manifest.pixels is None:
        return recipe
    return replace(recipe, raw_size=split.manifest.pixels[:2])


def _check_dtype(dtype: DType, recipe: Recipe) -> None:
    """Check that a dtype has all values of the images of a batch.

    Raises:
        CallError: it has not; the values are not scaled to a range that it has.

    """
    own = recipe.kind.dtype
    operations = [each for item in recipe.all_items for each in item.operations]
    as_stored = not any(isinstance(each, (ToFloat, Normalize)) for each in operations)
    is_scaled = any(isinstance(each, (Rescale, Normalize)) for each in operations)
    if dtype == "uint16" and not (as_stored and own == "uint16"):
        message = 'dtype="uint16" is for datasets of uint16, without transforms that scale values'
        raise CallError(message, hint='set dtype="float32"')
    if own != "uint8" and (dtype == "uint8" or (dtype in _HALF and not is_scaled)):
        hint = 'set dtype="float32"'
        if as_stored and own == "uint16":
            hint = f'{hint} or dtype="uint16"'
        raise CallError(f'dtype="{dtype}" cannot store all values of {own}', hint=hint)


def _open(request: BuildRequest) -> OpenSplit:
    datasets = [local_path(dataset) for dataset in request.datasets]
    uses_cache = request.cache is not None or request.cache_limit is not None
    if uses_cache and not any(map(is_url, datasets)):
        folders = f"{datasets[0]} is a folder"
        urls = "the URL of the dataset"
        if request.joins:
            folders = "all datasets are folders"
            urls = "the URLs of datasets"
        raise CallError(
            f"cache and cache_limit are for datasets in an object store, but {folders}",
            hint=f"remove them, or pass {urls}",
        )
    splits = []
    for dataset, revision in zip(datasets, request.revisions, strict=True):
        splits.append(
            open_anywhere(
                dataset,
                request.split,
                request.cache,
                request.cache_limit,
                revision,
                fields=[*request.fields, *filter(None, [request.caption_weights])],
            )
        )
    return join_splits(splits) if request.joins else splits[0]


def open_anywhere(
    dataset: str,
    split: str,
    cache: str | None,
    limit: int | None,
    revision: int | None = None,
    *,
    fields: Sequence[str] = (),
) -> OpenSplit:
    """Open a split in a folder, or in an object store; see `loaders.cache.images.open_cached`."""
    if not is_url(dataset):
        return open_split(dataset, split, revision)
    # Only datasets in object stores need this package.
    from loaders.cache.images import open_cached

    return open_cached(dataset, split, cache, limit, revision, fields=fields)


def default_tuning(
    request: BuildRequest,
    recipe: Recipe,
    fusion: Fusion,
    device: Device,
    *,
    cores: int,
    sizes: ImageSizes | None,
    smooth: bool,
    pipelines: int = 1,
) -> Tuning:
    """Return the defaults; `sizes` are of images that the GPU decodes, `smooth` is as in `GraphContext`."""
    threads = MAX_THREADS
    prefetch = PREFETCH
    load = hardware_load(sizes, decode_window(fusion.operations), smooth=smooth)
    if not device.is_gpu:
        return Tuning(num_threads=cores, prefetch=prefetch, hw_decoder_load=load)
    if recipe.raw_size is not None:
        prefetch = PREFETCH_RAW
        # The threads copy larger images, and decode masks and depth maps.
        is_tiny = math.prod(recipe.raw_size) <= TINY_SIDE**2
        if is_tiny and not LABEL_IMAGE_BYTES.keys() & set(request.fields):
            threads = RAW_THREADS
    else:
        if pipelines > 1:
            prefetch = PREFETCH_IN_TURN
        if sizes is not None:
            threads = sizes.threads
    return Tuning(num_threads=min(cores, threads), prefetch=prefetch, hw_decoder_load=load)


def _decoder(
    request: BuildRequest, recipe: Recipe, device: Device, sizes: ImageSizes | None, tuned: Tuning
) -> Decoder:
    """Return what decodes the images; for raw pixels the CPU, as nothing is decoded.

    Raises:
        CallError: the GPU's decoder was given, and cannot decode them.

    """
    problem = ""  # why the GPU cannot decode
    if not device.is_gpu:
        problem = 'the device is "cpu"'
    elif recipe.raw_size is None and recipe.kind != RGB8:
        problem = f"the dataset has {recipe.kind}, which the CPU decodes"
    if problem and request.decoder == "gpu":
        raise CallError(f'decoder="gpu", but {problem}', hint="remove decoder")
    if problem or recipe.raw_size is not None:
        return "cpu"
    # A share of the hardware decoder that was given or measured is for the GPU's decoder.
    has_load = (request.hw_decoder_load, tuned.hw_decoder_load) != (None, None)
    if request.decoder is None and not has_load and sizes is not None and sizes.tiny:
        return "cpu"
    return request.decoder or "gpu"


def choose_pipelines(
    request: BuildRequest,
    recipe: Recipe,
    device: Device,
    order: Order,
    sizes: ImageSizes | None,
) -> int:
    """Return how many pipelines compute batches in turn.

    Raises:
        CallError: there are several, and DALI's own reader reads the split.

    """
    if request.pipelines is not None:
        if request.pipelines > 1 and not order.is_planned:
            raise CallError(
                f"pipelines={request.pipelines}, but DALI's own reader reads this split, in one pipeline"
                " only",
                hint="remove pipelines, or pass shuffle=True or a sampler",
            )
        return request.pipelines
    operations = [*recipe.operations]
    for view in recipe.views:
        operations += view.operations
    most = max(each.operators for each in operations)
    if device.is_gpu and order.is_planned and has_many_operators(sizes, most):
        return PIPELINES_IN_TURN
    return 1


def _options(
    request: BuildRequest,
    split: OpenSplit,
    chosen: ChosenOrder,
    device: Device,
    pipelines: int,
    *,
    decoder: Decoder,
    tuning: Tuning,
    defaults: Tuning,
) -> ResolvedOptions:
    """Return every option with its final value, which for most is the argument as given."""
    resolved: dict[str, Any] = {
        "batch_size": chosen.order.batch_size,
        "shuffle": chosen.shuffle,
        "device": device,
        "ranks": chosen.batching.ranks,
        "pipelines": pipelines,
        "decoder": decoder,
        "last_batch": chosen.batching.last_batch,
        "memory_limit": first_given(request.memory_limit, math.inf),
        "mmap": first_given(request.mmap, not on_network(split)),
        "cache": split.cache_folder,
        "cache_limit": first_given(request.cache_limit, math.inf),
        "tuning": first_given(request.tuning, ""),
        "metrics": first_given(request.metrics, ""),
        "caption": request.final_caption,
        "caption_weights": first_given(request.caption_weights, ""),
    }
    # The argument, else what `loaders tune` measured, else the default for these images.
    for name in ("num_threads", "prefetch", "hw_decoder_load"):
        values = [getattr(each, name) for each in (request, tuning, defaults)]
        resolved[name] = first_given(*values)
    # The other options need nothing but the checks of the call.
    for each in fields(ResolvedOptions):
        if each.name not in resolved:
            resolved[each.name] = getattr(request, each.name)
    return ResolvedOptions(**resolved)


#: Fields that say which sample a row of a batch is.
_OF_ONE_SAMPLE = ("index", "key", "source", "valid")


def _fields(
    split: OpenSplit,
    tables: SampleTables,
    options: ResolvedOptions,
    recipe: Recipe,
    *,
    planned: bool,
) -> Fields:
    """Find where each field comes from, and check that masks and boxes follow the transforms."""
    labels = split.manifest.labels
    names = options.fields
    patchify = recipe.patchify[0]
    if patchify is not None:
        # A mask of the dataset is refused, not replaced by the mask of the patches.
        others = set(PATCH_FIELDS)
        if labels.is_placed:
            others -= set(labels.fields)
        names = tuple(each for each in names if each not in others)
        if "segments" in options.fields and patchify.row_tokens is None:
            raise CallError(
                'the field "segments" says which image of a row a patch belongs to, but each row has'
                " one image",
                hint='set row_tokens of Patchify, or leave "segments" out of fields',
            )
    fields = Fields(
        split,
        tables,
        names,
        planned=planned,
        mmap=options.mmap,
        captions=(options.caption, options.caption_weights),
    )
    if len({*fields.images.values()}) > 1:
        _check_several(recipe, options, split, tables, fields)
    if fields.label_image:
        require_followed(recipe, "masks")
    if fields.has_boxes:
        require_followed(recipe, "boxes")
    return fields


def _check_captions(request: BuildRequest, split: OpenSplit, fields: Fields) -> None:
    """Check that there are captions to choose from.

    Raises:
        CallError: an argument is about captions, and no field has them.

    """
    if fields.captions is not None:
        return
    for name in ("caption", "caption_weights"):
        value = getattr(request, name)
        if value is not None:
            has = "each sample has one text at most"
            if CAPTION_FIELD not in request.fields:
                has = f'fields has no "{CAPTION_FIELD}"'
            raise CallError(
                f"{name}={value!r} chooses among several captions of {split.folder}, but {has}",
                hint=f'leave {name} out, or read a dataset with captions, with fields=("image",'
                f' "{CAPTION_FIELD}")',
            )


def _check_several(
    recipe: Recipe, options: ResolvedOptions, split: OpenSplit, tables: SampleTables, fields: Fields
) -> None:
    """Check that the transforms can be applied to several images of a sample.

    Raises:
        CallError: they cannot; the message names the transform.

    """
    for operation in (*recipe.mixing, *filter(None, recipe.patchify)):
        raise CallError(
            f"{type(operation).__name__} is for one image of each sample, but fields has"
            f" {', '.join(fields.images)}",
            hint="remove the transform, or read one of the images",
        )
    if not options.shared:
        return
    # DALI draws until a region fits, so images of two sizes would get other random values.
    for written in [view.operations for view in recipe.views] or [()]:
        spec = ImageSpec()
        for operation in (*recipe.operations, *written):
            tries = bool(getattr(operation, "attempts", False))
            if isinstance(operation, Combinator):
                tries = RandomResizedCrop.__name__ in repr(operation)
            if spec.size is None and tries:
                _check_equal_sizes(type(operation).__name__, split, tables, fields)
            spec = operation.output(spec)


def _check_equal_sizes(name: str, split: OpenSplit, tables: SampleTables, fields: Fields) -> None:
    for other in filter(None, fields.images.values()):
        names = ("width", "height", f"{other}_width", f"{other}_height")
        sizes = tables.columns(names, requested_by="fields")
        width, height, own_width, own_height = sizes.values()
        differ = ((width != own_width) | (height != own_height)) & (own_width > 0)
        if differ.any():
            row = int(differ.argmax())
            key = tables.columns(["key"], requested_by="fields")["key"][row]
            raise CallError(
                f"{name} cannot crop all images of a sample alike: in {split.folder}, the first"
                f" image of the sample {key!r} has {width[row]}x{height[row]} pixels, and the image"
                f" {other} has {own_width[row]}x{own_height[row]}",
                hint="set shared=False, or resize all images to one size before it",
            )


def _require_room(images: Images, options: ResolvedOptions) -> None:
    """Check that a batch fits into the cache; close the images otherwise."""
    try:
        images.require_room(options.batch_size * options.ranks.world_size)
    except BaseException:
        images.close()
        raise


def _other_warnings(
    recipe: Recipe, images: Images | None, split: OpenSplit, fields: Sequence[str]
) -> list[str]:
    """Return the warnings about the transforms and the cache."""
    labels = split.manifest.labels
    mixed = (*_OF_ONE_SAMPLE, "image", "label", labels.class_lists, labels.number_column)
    unmixed = [name for name in fields if name not in mixed]
    warnings = []
    if recipe.mixing and unmixed:
        warnings.append(
            "the transforms mix images and labels, but of"
            f" {', '.join(unmixed)} a mixed image has the value of its first image only"
        )
    if recipe.all_notes:
        warnings.append("the transforms are not exact: " + "; ".join(recipe.all_notes))
    if images is not None and images.warning is not None:
        warnings.append(images.warning)
    return warnings


def _num_classes(split: OpenSplit, recipe: Recipe) -> int:
    """Return the number of classes of a mixed label: from the recipe, else from the dataset."""
    given = recipe.num_classes
    named = len(split.manifest.classes)
    configured = recipe.config_num_classes or 0
    if named and configured > named:
        raise CallError(
            f"the config sets class_num to {configured}, but {split.folder} has {named} classes",
            hint=f"set class_num to {named}, or convert a dataset with all classes",
        )
    if recipe.mixing and not (given or named):
        raise CallError(
            f"{split.folder} does not name its classes, but mixed labels need their number",
            hint="set class_num or num_classes of the transform that mixes images",
        )
    if recipe.mixing and given and named > given:
        raise CallError(
            f"the transform that mixes images sets the number of classes to {given}, but"
            f" {split.folder} has {named}",
            hint="remove class_num or num_classes to use the number of classes of the dataset",
        )
    return given or named


def _log_spec(spec: LoaderSpec) -> None:
    split = spec.split
    order = spec.order
    options = spec.options
    _log.info(
        "%s, split %s: %d samples in %d shards; %d batches of %d for rank %d of %d (%s), on %s with"
        " %d threads",
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


def _stored(sizes: ImageSizes | None, split: OpenSplit) -> ImageSpec:
    """Return the spec of the first image of each sample before it is decoded.

    With their size, the graph needs no operators that wait for each image and compute with its
    sides. EXIF orientation cannot change the size of squares.
    """
    if sizes is None or len(sizes.widths) != split.samples:
        return ImageSpec()
    side = int(sizes.widths[0])
    same = bool((sizes.widths == side).all() and (sizes.heights == side).all())
    return ImageSpec((side, side) if same and 0 < side**2 <= MAX_PIXELS else None)


# --- changes of `Loader.set` ----------------------------------------------------------------------


def adjusted_spec(spec: LoaderSpec, adjustment: Adjustment) -> LoaderSpec:
    """Return a spec with another size of the images and another strength of the policies.

    Raises:
        CallError: no transform has a size or a strength to change, the value is not possible, or
            the images no longer fit into `memory_limit`.

    """
    recipe = adjusted(spec.written, adjustment)
    fusion, *view_fusions = fuse_recipe(recipe)
    warnings: tuple[str, ...] = ()
    if spec.sizes is not None:
        warnings = order_warnings(recipe, fusion.operations, spec.sizes, spec.options.batch_size)
    return replace(
        spec,
        recipe=recipe,
        fusion=fusion,
        view_fusions=tuple(view_fusions),
        settings=_settings(recipe, fusion, spec.options, spec.sizes, spec.order),
        order_warnings=warnings,
        adjustment=adjustment,
    )


# --- GPU memory -----------------------------------------------------------------------------------


def _settings(
    recipe: Recipe,
    fusion: Fusion,
    options: ResolvedOptions,
    sizes: ImageSizes | None,
    order: Order,
) -> LoadSettings:
    """Return how batches are made, for the estimate of memory, which the limit must allow."""
    # Batches of any size have at most the size of the largest stored image.
    largest = sizes.largest if sizes else (0, 0)
    if order.shaped is not None:
        largest = max(order.shaped.shapes, key=math.prod)
    values = pixels = moved = 0
    for output, patchify in zip(recipe.outputs, recipe.patchify, strict=True):
        size = output.pixels or math.prod(largest)
        values += max(1, output.crops) * output.channels * size
        pixels += size
        # The framework moves patches to their rows.
        if patchify is not None and patchify.rearranges:
            moved += (patchify.most_tokens + 1) * patchify.patch**2 * output.channels
    # Per pixel of a mask or depth map. They are decoded whole, and moved in a second copy.
    label_bytes = sum(LABEL_IMAGE_BYTES.get(name, 0) for name in options.fields)
    images = max(1, sum(name.partition(":")[0] == "image" for name in options.fields))
    values *= images
    # DALI has no bfloat16: it returns float32, which the framework converts.
    staged_bytes = values * DTYPE_BYTES["float32"] * (options.dtype == "bfloat16")
    staged_bytes += moved * DTYPE_BYTES[options.dtype]
    settings = LoadSettings(
        batch_size=options.batch_size,
        image_bytes=values * DTYPE_BYTES[options.dtype] + pixels * label_bytes,
        staged_bytes=staged_bytes,
        window=decode_window(fusion.operations),
        full_size_images=images * full_size_images(fusion.operations) + 2 * label_bytes / 3,
        threads=options.pipeline_threads,
        hardware_load=options.hw_decoder_load,
        prefetch=options.prefetch,
        pipelines=options.pipelines,
        spread=order.traits.spread,
        encoded=recipe.raw_size is None,
        gpu_decodes=options.decoder == "gpu",
    )
    if options.memory_limit != math.inf:
        _check_memory_limit(sizes, settings, options)
    return settings


def _check_memory_limit(
    sizes: ImageSizes | None, settings: LoadSettings, options: ResolvedOptions
) -> None:
    """Check that the estimates of all loaders of this process do not exceed `memory_limit`.

    Raises:
        CallError: it does, or the device or the tables do not allow an estimate.

    """
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
    check_estimate(
        sizes, settings, options.memory_limit, reserved=RESERVATIONS.total(options.device.index)
    )
