"""Run a loader's pipeline over a few samples, each several times, without touching the loader itself."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from loaders.dataset.fields import Fields
from loaders.dataset.images import open_images
from loaders.dataset.tables import SampleTables
from loaders.integers import require_int
from loaders.preview.preview import Draw, Group, Item, Pixels, Preview
from loaders.samplers.order import Batching, PlannedOrder
from loaders.spec import LoaderSpec
from loaders.transforms.base import ImageSpec, Operation, short_repr
from loaders.transforms.decode_normalize import Normalize, Rescale
from manifests.labels import LABELS
from manifests.process.text import cut_middle, plural, printable

#: Samples and draws of a preview, so that it stays a picture.
_MAX_SAMPLES, _MAX_DRAWS = 256, 64

#: Classes of a mixed label that are named.
_MIXED = 3


#: Opens a loader that is not compared with the loaders of other ranks.
OpenLoader = Callable[[LoaderSpec], AbstractContextManager[Iterable[Any]]]


def preview_spec(
    spec: LoaderSpec, open_loader: OpenLoader, *, samples: int, draws: int | None, epoch: int
) -> Preview:
    """Draw from the transforms of a loader.

    If the loader's sampler groups its batches by a column, the samples are those of its first
    batch, grouped. Otherwise they are random.

    Args:
        spec: what the loader is built from.
        open_loader: opens a second loader.
        samples: number of samples; with groups, of groups.
        draws: results per sample. `None` means 4; with groups, 1.
        epoch: epoch of the batch.

    Raises:
        CallError: a number is wrong.
        DamagedError: an image cannot be decoded.

    """
    samples = require_int("samples", samples, 1, maximum=_MAX_SAMPLES)
    by = spec.order.traits.by
    draws = require_int(
        "draws", (4 if by is None else 1) if draws is None else draws, 1, maximum=_MAX_DRAWS
    )
    tables = SampleTables(spec.split)
    if by is not None:
        rows, titles = _grouped_rows(spec, tables, by, samples, epoch)
    else:
        rows, titles = _random_rows(spec.split.samples, samples, spec.options.seed), []
    batch, originals = _run(spec, open_loader, tables, rows, draws)
    items = _items(spec, rows, batch, originals, draws)
    return Preview(
        title=f"{spec.split.title}, split {spec.split.name}",
        notes=(*_describe(spec, by), *batch.notes),
        groups=_group(items, titles),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """A plan of one batch. Implements `loaders.samplers.base.Plan`."""

    rows: NDArray[np.int64]
    lines: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        """Samples in an epoch."""
        return len(self.rows)

    def batch(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Return the rows."""
        del epoch, number
        return self.rows


@dataclass(frozen=True, slots=True)
class _Batch:
    """A finished batch that is made visible.

    Attributes:
        images: pictures of each drawn image.
        labels: int64 [B], or float32 [B, classes] if labels are mixed.
        names: ``"key"`` and ``"source"`` of each drawn image.
        notes: how values were made visible.

    """

    images: list[tuple[Draw, ...]]
    labels: NDArray[Any]
    names: dict[str, list[str]]
    notes: tuple[str, ...]


def _random_rows(count: int, samples: int, seed: int) -> NDArray[np.int64]:
    ranks = np.random.PCG64(seed).random_raw(min(count, 1 << 20))
    step = count / len(ranks)  # of a very large split, every n-th sample takes part
    chosen = np.argsort(ranks, kind="stable")[:samples]
    return np.sort((chosen * step).astype(np.int64))


def _grouped_rows(
    spec: LoaderSpec, tables: SampleTables, by: str, groups: int, epoch: int
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the rows of a batch by group, and for each row the title of its group."""
    upcoming = spec.order.upcoming(epoch, 0)
    if upcoming is None:
        raise TypeError("only a sampler groups samples")
    rows = upcoming.rank_rows(0)
    values = tables.columns([by], requested_by="a preview")[by][rows].tolist()
    classes = spec.split.manifest.classes if by == "label" else ()
    texts = [
        f"{class_name(value, classes)} (label {value})" if classes else f"{by} {value}"
        for value in values
    ]
    names = list(dict.fromkeys(texts))[:groups]
    place = {name: number for number, name in enumerate(names)}
    kept = sorted((place[text], number) for number, text in enumerate(texts) if text in place)
    return rows[[number for _, number in kept]], [names[group] for group, _ in kept]


def _run(
    spec: LoaderSpec,
    open_loader: OpenLoader,
    tables: SampleTables,
    rows: NDArray[np.int64],
    draws: int,
) -> tuple[_Batch, list[NDArray[np.uint8]]]:
    """Build a loader of one batch, which has each row `draws` times in succession."""
    from loaders.dali.drawn import describe_draws

    repeated = np.repeat(rows, draws)
    world = spec.options.ranks.world_size
    has_class = spec.split.manifest.labels.is_class
    names = ("image", *(("label",) if has_class else ()), "key", "source")
    options = replace(
        spec.options, batch_size=len(repeated), last_batch="pad", fields=names, prefetch=1, memory_limit=math.inf,
        on_error="raise",
    )  # fmt: skip
    plan = _Rows(np.tile(repeated, world))
    batching = Batching(len(repeated), "pad", options.ranks)
    order = PlannedOrder(spec.split.samples, batching, plan, text="a preview")
    stored = open_images(spec.split, tables, mmap=spec.options.mmap)
    changed = replace(
        spec, options=options, order=order, fields=Fields(spec.split, tables, names, planned=True),
        images=stored, settings=replace(spec.settings, batch_size=len(repeated), prefetch=1),
    )  # fmt: skip
    originals = [np.array(data) for data in stored.images(rows)]
    with open_loader(changed) as loader:
        images, *label, keys, sources = next(iter(loader))
        with closing(open_images(spec.split, tables, mmap=spec.options.mmap)) as again:
            drawn = describe_draws(replace(changed, images=again))
        shown, notes = _show(spec, images, drawn)
        labels = _array(label[0]) if label else np.zeros(len(repeated), np.int64)
        batch = _Batch(shown, labels, {"key": list(keys), "source": list(sources)}, notes)
    return batch, originals


def _show(
    spec: LoaderSpec, images: Any, drawn: Sequence[tuple[str, ...]]
) -> tuple[list[tuple[Draw, ...]], tuple[str, ...]]:
    """Make the images of a batch visible: those of every view, and every crop of an image.

    Args:
        spec: what the loader is built from.
        images: the tensor of the batch, or those of the views.
        drawn: what was drawn for each image and view.

    """
    recipe, layout = spec.recipe, spec.options.layout
    if recipe.views:
        views = [
            ((*recipe.operations, *view.operations), view.output, view.batch_functions)
            for view in recipe.views
        ]
        tensors, names = list(images), [f"view {number}" for number in range(1, len(views) + 1)]
    else:
        views, tensors, names = (
            [(recipe.operations, recipe.output, recipe.batch_functions)],
            [images],
            [""],
        )
    displays = [
        Display(operations, output, layout, functions) for operations, output, functions in views
    ]
    arrays = [_array(tensor) for tensor in tensors]
    shown = [
        tuple(
            Draw(display.pixels(picture), ", ".join(filter(None, [caption, text])))
            for display, array, name, text in zip(displays, arrays, names, texts, strict=True)
            for picture, caption in _crops(array[number], name)
        )
        for number, texts in enumerate(drawn)
    ]
    return shown, tuple(dict.fromkeys(display.note for display in displays))


def _crops(image: NDArray[Any], name: str) -> Iterator[tuple[NDArray[Any], str]]:
    if image.ndim == 3:
        yield image, name
        return
    for number, crop in enumerate(image, 1):
        yield crop, " ".join(filter(None, [name, f"crop {number}"]))


def _array(tensor: Any) -> NDArray[Any]:
    """Return a tensor of any framework as NumPy array. NumPy has no bfloat16."""
    library = type(tensor).__module__.partition(".")[0]
    if library == "torch":
        tensor = tensor.detach().cpu()
        return np.asarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())
    if library == "paddle":
        is_float = "float" in str(tensor.dtype)
        return np.asarray((tensor.astype("float32") if is_float else tensor).numpy())
    return np.asarray(tensor)


def _items(
    spec: LoaderSpec,
    rows: NDArray[np.int64],
    batch: _Batch,
    originals: Sequence[NDArray[np.uint8]],
    draws: int,
) -> list[Item]:
    classes, raw = spec.split.manifest.classes, spec.split.manifest.pixels
    tables = SampleTables(spec.split)
    shards = np.searchsorted(
        np.cumsum([shard.samples for shard in spec.split.shards]), rows, side="right"
    )
    labels = label_texts(tables, rows, shards, classes)
    lazy, columns = tables.lazy_columns(("width", "height"))
    lazy.load(shards)
    items = []
    for number, row in enumerate(rows.tolist()):
        own = range(number * draws, (number + 1) * draws)
        mixed = [
            _mixture(batch.labels[at], classes) if batch.labels.ndim == 2 else "" for at in own
        ]
        items.append(
            Item(
                key=short(batch.names["key"][own[0]]),
                label=labels[number],
                size=f"{columns['width'][row]} x {columns['height'][row]}",
                source=short(batch.names["source"][own[0]]),
                original=show_original(originals[number], raw),
                draws=tuple(
                    replace(draw, caption="; ".join(filter(None, [draw.caption, text])))
                    for at, text in zip(own, mixed, strict=True)
                    for draw in batch.images[at]
                ),
            )
        )
    return items


def _mixture(weights: NDArray[np.float32], classes: Sequence[str]) -> str:
    """Name the classes of a mixed label with their weights, the largest first."""
    order = np.argsort(-weights, kind="stable")[:_MIXED]
    return ", ".join(
        f"{weights[at]:.2f} {class_name(int(at), classes)}" for at in order if weights[at] >= 0.01
    )


def _group(items: list[Item], titles: list[str]) -> tuple[Group, ...]:
    if not titles:
        return (Group("", tuple(items)),)
    pairs = list(zip(titles, items, strict=True))
    names = dict.fromkeys(titles)
    return tuple(
        Group(short(name), tuple(item for title, item in pairs if title == name)) for name in names
    )


def _describe(spec: LoaderSpec, by: str | None) -> Iterator[str]:
    if by is not None:
        yield f"The first batch of {short(spec.order.text)}, grouped by {short(by)}."
    else:
        yield f"Random samples of {plural(spec.split.samples, 'sample')}."
    operations = [short_repr(each) for each in (*spec.recipe.operations, *spec.recipe.mixing)]
    yield f"Transforms: {cut_middle(printable(' > '.join(operations)), 900)}"
    for number, view in enumerate(spec.recipe.views, 1):
        yield (
            f"View {number}:"
            f" {cut_middle(printable(' > '.join(map(short_repr, view.operations))), 600)}"
        )


_Values = NDArray[np.float64]


class Display:
    """Turns images of a finished batch into pixels.

    Attributes:
        note: what is done, for people.

    """

    def __init__(
        self,
        operations: Sequence[Operation],
        output: ImageSpec,
        layout: str,
        functions: Sequence[Any],
    ) -> None:
        """Find out how values relate to brightness.

        Args:
            operations: all operations on each image, in order.
            output: spec of the finished images.
            layout: ``"NCHW"`` or ``"NHWC"``.
            functions: the user's functions of a batch, whose effect is not known.

        """
        self._factor, self._offset = _affine(operations)
        self._layout, self._space, self._unknown = layout, output.color_space, bool(functions)
        self.note = self._describe(functions)

    def pixels(self, image: NDArray[Any]) -> Pixels:
        """Convert one image, [C, H, W] or [H, W, C], to uint8 [H, W, 3]."""
        values = np.asarray(image, np.float64)
        if self._layout == "NCHW":
            values = values.transpose(1, 2, 0)
        values = values[..., :3]
        values = _stretched(values) if self._unknown else self._undo(values)
        if values.shape[2] < 3:
            values = np.repeat(values[..., :1], 3, axis=2)
        if self._space == "BGR":
            values = values[..., ::-1]
        return np.ascontiguousarray(np.nan_to_num(values).clip(0, 255).round().astype(np.uint8))

    def _undo(self, values: _Values) -> _Values:
        channels = values.shape[2]
        return (values - self._offset[:channels]) / self._factor[:channels]

    def _describe(self, functions: Sequence[Any]) -> str:
        if functions:
            names = ", ".join(getattr(each, "__name__", type(each).__name__) for each in functions)
            return (
                "Values are stretched from the smallest to the largest of each image, after"
                f" {names}."
            )
        space = (
            f" The channels are {self._space}." if self._space not in ("RGB", "BGR", "GRAY") else ""
        )
        if np.array_equal(self._factor, np.ones(3)) and not self._offset.any():
            return f"Values are shown as they are, from 0 to 255.{space}"
        return (
            "The normalization is undone for display: the model gets values of which"
            f" {_numbers(self._offset)} is black and {_numbers(255 * self._factor + self._offset)}"
            f" is white.{space}"
        )


def _affine(operations: Sequence[Operation]) -> tuple[_Values, _Values]:
    """Return factor and offset of each channel: a pixel value p from 0 to 255 has become ``p * factor + offset``."""
    factor, offset = np.ones(3), np.zeros(3)
    for operation in operations:
        if isinstance(operation, Rescale):
            factor, offset = factor / 255, offset / 255
        elif isinstance(operation, Normalize):
            mean, std = np.array(operation.mean), np.array(operation.std)
            factor, offset = factor * operation.scale / std, (offset * operation.scale - mean) / std
    return factor, offset


def _stretched(values: _Values) -> _Values:
    low, high = np.nanmin(values), np.nanmax(values)
    return (values - low) * (255 / (high - low) if high > low else 0.0)


def _numbers(values: _Values) -> str:
    return f"({', '.join(f'{value:.2f}' for value in values)})"


def label_texts(
    tables: SampleTables, rows: NDArray[np.int64], shards: NDArray[np.intp], classes: Sequence[str]
) -> list[str]:
    """Return the labels of some rows as text: names of classes, numbers, a caption.

    Empty if there are no labels.

    Args:
        tables: the sample tables.
        rows: the rows, int64 [n].
        shards: number of the shard of each row, [n].
        classes: class names in label order.

    """
    labels = LABELS[tables.label_type]
    if labels.is_class:
        lazy, columns = tables.lazy_columns(("label",))
        lazy.load(shards)
        return [class_name(int(label), classes) for label in columns["label"][rows]]
    column = labels.class_lists or labels.number_column or labels.text_column
    if column is None:
        return [""] * len(rows)
    values = tables.columns([column], requested_by="a preview")[column][rows].tolist()
    if labels.class_lists:
        texts = [
            ", ".join(class_name(label, classes) for label in dict.fromkeys(found))
            for found in values
        ]
    elif labels.number_column:
        texts = [", ".join(f"{number:g}" for number in numbers) for numbers in values]
    else:
        texts = values
    return [short(text) for text in texts]


def class_name(label: int, classes: Sequence[str]) -> str:
    """Return the name of a class, or its number if the dataset does not name it."""
    return short(classes[label]) if label < len(classes) else f"label {label}"


def short(text: object) -> str:
    """Return text of a dataset as it can be shown: printable, and not long."""
    return cut_middle(printable(cut_middle(str(text), 100)), 200)


#: Longest side of a shown original, in pixels.
MAX_SIDE = 320
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM")


def show_original(data: NDArray[np.uint8], raw: tuple[int, int, int] | None) -> Pixels | None:
    """Decode a stored image to uint8 [H, W, 3], upright, of at most `MAX_SIDE` per side.

    Args:
        data: the stored bytes.
        raw: height, width and channels if they are pixels; `None` for an encoded image.

    Returns:
        The pixels; `None` if Pillow cannot decode the image.

    """
    if raw is not None:
        return _small(Image.fromarray(data.reshape(raw)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged EXIF block, for example
            image: Any = Image.open(io.BytesIO(data.tobytes()), formats=_FORMATS)
            image.draft("RGB", (2 * MAX_SIDE, 2 * MAX_SIDE))
            return _small(ImageOps.exif_transpose(image))
    except MemoryError:
        raise
    except Exception:  # damaged images raise many kinds
        return None


def _small(image: Image.Image) -> Pixels:
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    image = image.convert("RGB")
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return np.asarray(image)
