"""Turn DALI's outputs into a batch: a tuple with one value for each field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loaders.arrays import Array
from loaders.devices import Framework
from loaders.progress import Position
from loaders.spec import LoaderSpec, draw_budgets, draw_captions, draw_dropout
from loaders.transforms.mixing import mixed_labels, mixed_values
from loaders.transforms.patches import PATCH_FIELDS, Places, place_patches
from manifests.errors import CallError
from manifests.labels import CAPTION_FIELD

#: Rows and columns of patches as DALI returns them, among the values of the views.
_GRIDS = "grids from DALI"


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
        CallError: a user's function returns another number of images, or the framework does not
            have a number.
        DamagedError: a label is missing, not a number, or not a class of the dataset.

    """
    # One value for each view, by field; and one value, by field.
    of_views, values = _take_apart(outputs, spec, position.epoch)
    places = _place_patches(of_views, spec, position)
    if "valid" in spec.options.fields:
        values["valid"] = spec.order.valid(position)
    size = spec.order.size(position)
    batch = []
    for name in spec.options.fields:
        given = of_views[name] if name in of_views else [values[name]]
        try:
            tensors = []
            for view, value in enumerate(given):
                tensors.append(
                    _tensor(name, value, spec, framework, view=view, size=size, places=places[view])
                )
        except CallError as error:  # such as a number that the framework does not have
            raise CallError(f"field {name!r}: {error.message}", hint=error.hint) from None
        if spec.recipe.views and name in of_views:
            batch.append(tuple(tensors))
        else:
            batch.append(tensors[0])
    return tuple(batch)


def _take_apart(
    outputs: Sequence[Any], spec: LoaderSpec, epoch: int
) -> tuple[dict[str, Sequence[Any]], dict[str, Any]]:
    """Return the outputs of each view by field, and the values of the other fields."""
    fields = spec.fields
    views = len(spec.recipe.outputs)
    rest = outputs
    of_views: dict[str, Sequence[Any]] = {}
    for name in fields.images:
        of_views[name], rest = rest[:views], rest[views:]
    if fields.label_image:
        of_views[fields.label_image], rest = rest[:views], rest[views:]
    # What follows is on the CPU; `make_pipeline` documents the order.
    arrays = [np.asarray(each.as_tensor()) for each in rest]
    stored_label = arrays.pop(0) if fields.stored_label else None
    # DALI's own readers return the origin of each record instead of its row.
    rows = None
    if spec.order.is_planned:
        rows = arrays.pop(0)
    elif fields.source:
        rows = fields.rows(arrays.pop(0))
    values = fields.values(stored_label, rows)
    if fields.captions is not None and rows is not None:
        draws = draw_captions(spec.options.seed, epoch, rows)
        values[CAPTION_FIELD] = fields.captions.take(rows, draws)
    if fields.has_boxes:
        boxes = [fields.boxes(rows, arrays.pop(0)) for _ in range(views)]
        for name in boxes[0]:
            of_views[name] = [each[name] for each in boxes]
    if spec.recipe.patchify[0] is not None:
        of_views[_GRIDS], arrays = arrays[:views], arrays[views:]
    if arrays:
        _mix_labels(values, spec, *arrays)
    return of_views, values


def _place_patches(
    of_views: dict[str, Sequence[Any]], spec: LoaderSpec, position: Position
) -> list[Places | None]:
    """Return where the patches of each view go, and add the fields that say it to `of_views`.

    A view whose images stay where they are has `None`.
    """
    options = spec.options
    found = []
    names = set(PATCH_FIELDS).intersection(options.fields)
    places: list[Places | None] = [None] * len(spec.recipe.outputs)
    all_grids = of_views.pop(_GRIDS, ())
    for view, (grids, operation) in enumerate(zip(all_grids, spec.recipe.patchify, strict=False)):
        rearranges = operation is not None and operation.rearranges
        if operation is None or not (rearranges or names):
            continue
        # An empty batch gets one image; see `_images`.
        size = max(spec.order.size(position), 1)
        at = (options, position.epoch, position.batch)
        budget = int(draw_budgets(operation, *at)[0])
        words = draw_dropout(operation, *at, view)[:size]
        found.append(place_patches(operation, grids[:size].astype(np.int64), budget, words))
        if rearranges:
            places[view] = found[-1]
    for name in names:
        if found:
            of_views[name] = [each.field(name) for each in found]
    return places


def _tensor(
    name: str,
    value: Any,
    spec: LoaderSpec,
    framework: Framework,
    *,
    view: int,
    size: int,
    places: Places | None = None,
) -> Any:
    """Return the value of a field, or of one view, as a tensor of `size` samples, or as a list."""
    recipe = spec.recipe
    device = spec.options.device
    if name in spec.fields.images:
        functions = recipe.batch_functions
        if recipe.views:
            functions = recipe.views[view].batch_functions
        images = framework.images(value, spec.options.dtype, device)
        # The last batch of a rank may be empty, and functions need not handle that. They get one of
        # the images that fill DALI's batch, so that the empty result has the shape and the type of
        # the other batches.
        if places is not None:
            # The patches of all images as rows of one matrix.
            patches = images.reshape((-1, images.shape[2]))
            images = patches[framework.numbers(places.sources(images.shape[1]), device)]
        elif size < spec.options.batch_size:
            images = images[: max(size, spec.order.unit)]
        images = _changed(_by_clip(name, images, spec), functions)
        return images if size else images[:0]
    if name == spec.fields.label_image:
        return _by_clip(name, framework.images(value, "uint8", device)[:size], spec)
    value = _by_clip(name, value[:size], spec)
    return value if isinstance(value, list) else framework.numbers(value, device)


def _by_clip(name: str, value: Any, spec: LoaderSpec) -> Any:
    """Return the value of a field by clip and frame; a label by clip. Without clips, as it is.

    Raises:
        CallError: the frames of a clip have different labels.

    """
    if spec.order.clipped is None:
        return value
    frames = spec.order.unit
    if isinstance(value, list):
        starts = range(0, len(value), frames)
        return [value[start : start + frames] for start in starts]
    clips = value.reshape((len(value) // frames, frames, *value.shape[1:]))
    if name != "label":
        return clips
    several = np.flatnonzero((clips != clips[:, :1]).any(axis=1))
    if len(several):
        labels = np.unique(clips[several[0]]).tolist()
        raise CallError(
            f"a clip has frames with the labels {', '.join(map(str, labels))}, but the field"
            ' "label" is the label of a whole clip',
            hint="name the clips apart with by=, or leave the field out",
        )
    return clips[:, 0]


def _mix_labels(values: dict[str, Any], spec: LoaderSpec, partners: Array, weights: Array) -> None:
    """Replace the labels of a batch by the labels of mixed images."""
    labels = spec.split.manifest.labels
    smoothing = spec.recipe.smoothing
    if "label" in values and labels.is_class:
        values["label"] = mixed_labels(
            np.asarray(values["label"]), partners, weights, spec.num_classes, smoothing
        )
    # Of classes only, a share may go to all others.
    for name, smooth in ((labels.class_lists, smoothing), (labels.number_column, 0.0)):
        if name in values:
            values[name] = mixed_values(np.asarray(values[name]), partners, weights, smooth)


def _changed(tensor: Any, functions: Sequence[Callable[[Any], Any]]) -> Any:
    """Return the images of a batch after the user's functions."""
    count = len(tensor)
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        kind = f"{getattr(tensor, 'dtype', type(tensor))} {tuple(getattr(tensor, 'shape', ()))}"
        try:
            tensor = function(tensor)
        except Exception as error:
            error.add_note(f"loaders called the function {name} with the finished batch, {kind}")
            raise
        if not hasattr(tensor, "__len__") or len(tensor) != count:
            raise CallError(
                f"the function {name} in transforms must return a tensor of {count} images",
                hint="change the batch that the function receives, and return all of its images",
            )
    return tensor
