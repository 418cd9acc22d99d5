"""Turn DALI's outputs into a batch: a tuple of a framework's tensors, one for each field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.frameworks import Framework
from loaders.progress import Position
from loaders.samplers.order import PlannedOrder
from loaders.spec import LoaderSpec
from loaders.transforms.mixing import mixed_labels, mixed_values
from manifests.errors import CallError


def make_batch(
    outputs: Sequence[Any], spec: LoaderSpec, framework: Framework, position: Position
) -> tuple[Any, ...]:
    """Return the fields of a batch.

    Args:
        outputs: DALI's outputs, in the order that `loaders.dali.pipeline.make_pipeline` documents.
        spec: what the loader is built from.
        framework: converts to tensors.
        position: position before the batch.

    Raises:
        CallError: a user's function returns another number of images.
        DamagedError: a label is missing, not a number, or not a class of the dataset.

    """
    names, outputs, size = spec.options.fields, list(outputs), spec.order.size(position)
    images = [outputs.pop(0) for _ in spec.recipe.outputs] if "image" in names else []
    label_images = [outputs.pop(0) for _ in spec.recipe.outputs] if spec.fields.label_image else []
    arrays = [np.asarray(each.as_tensor()) for each in outputs]
    stored_label = arrays.pop(0) if spec.fields.stored_label else None
    rows = _take_rows(arrays, spec)
    values = spec.fields.values(stored_label, rows)
    boxes = (
        [spec.fields.boxes(rows, arrays.pop(0)) for _ in spec.recipe.outputs]
        if spec.fields.has_boxes
        else []
    )
    if "valid" in names:
        values["valid"] = spec.order.valid(position)
    if arrays and "label" in values and spec.split.manifest.labels.is_class:
        labels = np.asarray(values["label"])
        values["label"] = mixed_labels(
            labels, arrays[0], arrays[1], spec.num_classes, spec.recipe.smoothing
        )
    for name, smoothing in {"labels": spec.recipe.smoothing, "values": 0.0}.items():
        if arrays and name in values and name in spec.split.manifest.labels.fields:
            values[name] = mixed_values(np.asarray(values[name]), arrays[0], arrays[1], smoothing)

    def of_views(found: Sequence[Any]) -> Any:
        return tuple(found) if spec.recipe.views else found[0]

    def value(name: str) -> Any:
        if name == "image":
            return _all_images(images, spec, framework, size)
        if name == spec.fields.label_image:
            return of_views(
                [
                    framework.images(each, "uint8", spec.options.device)[:size]
                    for each in label_images
                ]
            )
        if boxes and name in boxes[0]:
            return of_views(
                [framework.numbers(each[name][:size], spec.options.device) for each in boxes]
            )
        first = values[name][:size]
        return first if isinstance(first, list) else framework.numbers(first, spec.options.device)

    return tuple(_named(name, value) for name in names)


def _named(name: str, value: Callable[[str], Any]) -> Any:
    """Return the value of a field; an error, such as about a number that the framework does not have, names it."""
    try:
        return value(name)
    except CallError as error:
        raise CallError(f"field {name!r}: {error.message}", hint=error.hint) from None


def _take_rows(arrays: list[NDArray[Any]], spec: LoaderSpec) -> NDArray[np.int64] | None:
    """Remove the output that has the rows of a batch, or the origin of its records, and return the rows."""
    if isinstance(spec.order, PlannedOrder):
        return arrays.pop(0)
    return spec.fields.rows(arrays.pop(0)) if spec.fields.source else None


def _all_images(images: Sequence[Any], spec: LoaderSpec, framework: Framework, size: int) -> Any:
    """Return the batch of images, or a tuple of one batch for each view."""
    recipe = spec.recipe
    if not recipe.views:
        return _images(images[0], spec, framework, size, recipe.batch_functions)
    pairs = zip(images, recipe.views, strict=True)
    return tuple(_images(each, spec, framework, size, view.batch_functions) for each, view in pairs)


def _images(
    outputs: Any,
    spec: LoaderSpec,
    framework: Framework,
    size: int,
    functions: Sequence[Callable[[Any], Any]],
) -> Any:
    # The last batch of a rank may be empty, and functions need not handle that. They get one image
    # of those that fill DALI's batch, so that the empty result has the shape and the type of the
    # other batches.
    given = max(size, 1)
    tensor = framework.images(outputs, spec.options.dtype, spec.options.device)
    if given < spec.options.batch_size:
        tensor = tensor[:given]
    for function in functions:
        kind = f"{getattr(tensor, 'dtype', type(tensor))} {tuple(getattr(tensor, 'shape', ()))}"
        try:
            tensor = function(tensor)
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            error.add_note(f"loaders called the function {name} with the finished batch, {kind}")
            raise
        if not hasattr(tensor, "__len__") or len(tensor) != given:
            name = getattr(function, "__name__", type(function).__name__)
            raise CallError(
                f"the function {name} in transforms must return a tensor of {given} images",
                hint="change the batch that the function receives, and return all of its images",
            )
    return tensor if size else tensor[:0]
