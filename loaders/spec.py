"""What a loader is built from (`LoaderSpec`), and how `Loader.set` changes it.

Never imports DALI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from loaders.dataset.fields import Fields
from loaders.dataset.images import Images
from loaders.dataset.split import OpenSplit
from loaders.memory import RESERVATIONS, ImageSizes, LoadSettings, check_estimate
from loaders.options import DTYPE_BYTES, LABEL_IMAGE_BYTES, ResolvedOptions
from loaders.samplers.base import Order
from loaders.transforms.base import AS_WRITTEN, Adjustment, Size
from loaders.transforms.fuse import (
    Fusion,
    decode_window,
    full_size_images,
    fuse_recipe,
    order_warnings,
)
from loaders.transforms.parse import Recipe
from loaders.transforms.parse.recipe import adjusted
from manifests.errors import CallError


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
        images: random access to the encoded images, and to masks or depth maps if a field needs
            them. `None` if DALI's own readers read them.
        num_classes: columns of a mixed label. 0 if the dataset does not name its classes.
        sizes: sizes of the images. `None` on the CPU, or if the sample tables do not have them.
        settings: how batches are made, for the estimate of GPU memory.
        order_warnings: operations that cost memory because of their place in the list.
        warnings: all warnings of `loaders.build`.
        written: the transforms as the user passed them, before `Loader.set` changed sizes or
            strengths.
        adjustment: what `Loader.set` has changed: how `recipe` differs from `written`.

    """

    split: OpenSplit
    recipe: Recipe
    fusion: Fusion
    view_fusions: tuple[Fusion, ...]
    options: ResolvedOptions
    order: Order
    fields: Fields
    images: Images | None
    num_classes: int
    sizes: ImageSizes | None
    settings: LoadSettings
    order_warnings: tuple[str, ...]
    warnings: tuple[str, ...]
    written: Recipe
    adjustment: Adjustment = AS_WRITTEN


def adjusted_spec(spec: LoaderSpec, adjustment: Adjustment) -> LoaderSpec:
    """Return a spec with another size of the images and another strength of the policies.

    Raises:
        CallError: no transform has a size or a strength to change, the value is not possible, or
            the images no longer fit into `memory_limit`.

    """
    recipe = adjusted(spec.written, adjustment)
    fusion, *view_fusions = fuse_recipe(recipe)
    settings = load_settings(
        recipe,
        fusion,
        spec.options,
        spread=spec.settings.spread,
        largest=spec.sizes.largest if spec.sizes else (0, 0),
    )
    check_memory_limit(spec.sizes, settings, spec.options)
    return replace(
        spec,
        recipe=recipe,
        fusion=fusion,
        view_fusions=tuple(view_fusions),
        settings=settings,
        order_warnings=(
            ()
            if spec.sizes is None
            else order_warnings(recipe, fusion.operations, spec.sizes, spec.options.batch_size)
        ),
        adjustment=adjustment,
    )


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
    check_estimate(
        sizes, settings, options.memory_limit, reserved=RESERVATIONS.total(options.device.index)
    )
