"""Run a loader's pipeline over a few samples, each several times, beside the loader itself."""

from __future__ import annotations

import io
import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from loaders.arrays import Array, Bools, Bytes, Float32s, Floats, Ints
from loaders.dataset.fields import Fields
from loaders.dataset.images import Images, open_images
from loaders.dataset.tables import SampleTables
from loaders.devices import CPU
from loaders.options import require_int
from loaders.preview.preview import Draw, Group, Item, Pixels, Preview
from loaders.progress import BatchShape
from loaders.samplers.order import Batching, PlannedOrder
from loaders.spec import LoaderSpec
from loaders.transforms.base import Size, short_repr
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, Unpack
from loaders.transforms.parse import Recipe, View
from manifests.errors import CallError
from manifests.labels import LABELS
from manifests.pixels import RGB8, show_bands
from manifests.process.text import cut_middle, plural, printable

#: Samples and draws of a preview, so that it stays a picture.
_MAX_SAMPLES, _MAX_DRAWS = 256, 64

#: Classes of a mixed label that are named, if their weight is at least this.
_MIXED, _LEAST_WEIGHT = 3, 0.01

#: Longest side of a shown original, in pixels.
_MAX_SIDE = 320
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM")

#: Opens a loader that is not compared with the loaders of other ranks.
OpenLoader = Callable[[LoaderSpec], AbstractContextManager[Iterable[Any]]]


def preview_spec(
    spec: LoaderSpec, open_loader: OpenLoader, *, samples: int, draws: int | None, epoch: int
) -> Preview:
    """Draw from the transforms of a loader.

    If the loader's sampler groups its batches by a column, the samples are its first batch,
    grouped. Otherwise they are random.

    Args:
        spec: what the loader is built from.
        open_loader: opens a second loader.
        samples: number of samples; with groups, of groups.
        draws: results per sample. `None` means 4; with groups, 1.
        epoch: epoch of the batch.

    Raises:
        CallError: a number is wrong, or the images are cut into patches.
        DamagedError: an image cannot be decoded.

    """
    if spec.recipe.patchify[0] is not None:
        raise CallError(
            "a preview shows images, but Patchify cuts them into patches",
            hint="preview the list without Patchify",
        )
    samples = require_int("samples", samples, 1, maximum=_MAX_SAMPLES)
    by = spec.order.traits.by
    upcoming = spec.order.upcoming(epoch, 0)
    if draws is None:
        draws = 4 if by is None else 1
    draws = require_int("draws", draws, 1, maximum=_MAX_DRAWS)
    tables = SampleTables(spec.split)
    shape = None
    if upcoming is not None and upcoming.shapes is not None:
        shape = upcoming.shapes.of_batch(0)
    titles: list[str] = []
    if upcoming is not None and by is not None:
        what = f"The first batch of {short(spec.order.text)}, grouped by {short(by)}."
        rows, titles = _grouped_rows(spec, tables, by, upcoming.rank_rows(0), samples)
    elif upcoming is not None and shape is not None:
        what = "The first samples of the first batch, which have one aspect bucket."
        rows = np.unique(upcoming.rank_rows(0)[:samples])
    else:
        what = f"Random samples of {plural(spec.split.samples, 'sample')}."
        every = range(spec.split.samples)
        chosen = random.Random(spec.options.seed).sample(every, min(samples, len(every)))  # noqa: S311
        rows = np.array(sorted(chosen), np.int64)
    shown = _run(spec, open_loader, tables, rows, draws, shape=shape, is_batch=bool(titles))
    return Preview(
        title=f"{spec.split.title}, split {spec.split.name}",
        notes=(what, *_transforms(spec), *shown.notes),
        groups=_group(_items(spec, tables, rows, shown), titles),
    )


# --- which samples --------------------------------------------------------------------------------


def _grouped_rows(
    spec: LoaderSpec, tables: SampleTables, by: str, rows: Ints, groups: int
) -> tuple[Ints, list[str]]:
    """Return the rows of a batch by group, and for each row the title of its group."""
    classes = spec.split.manifest.classes if by == "label" else ()
    by_title: dict[str, list[int]] = {}
    values = tables.columns([by], requested_by="a preview")[by][rows].tolist()
    for row, value in zip(rows.tolist(), values, strict=True):
        title = f"{class_name(value, classes)} (label {value})" if classes else f"{by} {value}"
        by_title.setdefault(title, []).append(row)
    # Groups in the order in which the batch has them.
    shown: list[int] = []
    titles: list[str] = []
    for title, own in list(by_title.items())[:groups]:
        shown += own
        titles += [title] * len(own)
    return np.array(shown, np.int64), titles


def _group(items: list[Item], titles: list[str]) -> tuple[Group, ...]:
    if not titles:
        return (Group("", tuple(items)),)
    places = iter(items)  # in the order of their titles
    return tuple(
        Group(short(title), tuple(islice(places, count)))
        for title, count in Counter(titles).items()
    )


# --- a loader of one batch ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OneBatch:
    """A plan of one batch. Implements `loaders.samplers.base.Plan`."""

    rows: Ints
    lines: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        """Samples in an epoch."""
        return len(self.rows)

    def batch(self, epoch: int, number: int) -> Ints:
        """Return the rows."""
        del epoch, number
        return self.rows


@dataclass(frozen=True, kw_only=True)
class _OneBatchOfBucket(_OneBatch):
    """The same, of one aspect bucket, with what a loader asks of a `ShapedPlan`."""

    shapes: tuple[Size]
    sides: Float32s
    wholes: tuple[int]
    batches: int = 1

    def bucket(self, *_: int) -> int:
        return 0

    def count(self, *_: int) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True)
class _OneBatchOfClips(_OneBatch):
    """The same, of clips. Implements `loaders.samplers.base.ClippedPlan`."""

    frames: int

    def present(self, *_: int) -> Bools:
        return np.ones(len(self.rows), np.bool_)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a preview shows of some samples.

    Attributes:
        draws: pictures of each sample: every result, view and crop.
        originals: the stored image of each sample; `None` if it cannot be decoded.
        notes: how values were made visible.

    """

    draws: list[list[Draw]]
    originals: list[Pixels | None]
    notes: Iterable[str]


def _run(
    spec: LoaderSpec,
    open_loader: OpenLoader,
    tables: SampleTables,
    rows: Ints,
    draws: int,
    *,
    shape: BatchShape | None,
    is_batch: bool,
) -> _Shown:
    """Build a loader of one batch, which has each row, or clip, `draws` times in succession.

    `is_batch` says that the rows are whole clips of a batch, if the loader has clips.
    """
    # DALI is imported where it is used.
    from loaders.dali.drawn import describe_draws

    # Frames of a clip stay together, because they share what is drawn.
    frames = 1
    if is_batch:
        frames = spec.order.unit
    repeated = np.repeat(rows.reshape(-1, frames), draws, axis=0).ravel()
    changed = _of_one_batch(spec, tables, repeated, frames, shape)
    classes = spec.split.manifest.classes
    with open_loader(changed) as loader:
        batch = next(iter(loader))
        # The loader closes its images.
        with closing(_open_images(changed, tables)) as again:
            drawn = describe_draws(replace(changed, images=again))
            originals = _originals(spec, again.images(rows))
        mixed = [""] * len(repeated)
        for weights in map(_array, batch[len(changed.fields.images) :]):
            if weights.ndim == 2:
                mixed = [_mixture(each, classes) for each in weights]
        shown, notes = _show(changed, batch[: len(changed.fields.images)], drawn, mixed)
    results = []
    places = np.arange(len(repeated)).reshape(-1, draws, frames).swapaxes(1, 2)
    for own in places.reshape(-1, draws):
        results.append(list(chain.from_iterable(map(shown.__getitem__, own))))
    return _Shown(results, originals, notes)


def _of_one_batch(
    spec: LoaderSpec, tables: SampleTables, rows: Ints, frames: int, shape: BatchShape | None
) -> LoaderSpec:
    """Return the spec of a loader of one batch, with images and classes as fields."""
    manifest = spec.split.manifest
    ranks = spec.options.ranks
    size = len(rows)
    # Images of several samples are mixed only for one image of each sample.
    names = () if spec.recipe.mixing else manifest.images
    fields: tuple[str, ...] = tuple(map("image:{}".format, names)) or ("image",)
    if manifest.labels.is_class and frames == 1:
        fields = (*fields, "label")
    options = replace(
        spec.options,
        batch_size=size,
        last_batch="pad",
        fields=fields,
        prefetch=1,
        pipelines=1,
        memory_limit=math.inf,
        on_error="raise",
    )
    # Each rank would read its own part, so every part is the whole batch.
    of_all = np.tile(rows, ranks.world_size)
    plan = _OneBatch(of_all)
    if shape is not None and spec.order.shaped is not None:
        plan = _OneBatchOfBucket(
            rows=of_all,
            shapes=((shape.height, shape.width),),
            sides=spec.order.shaped.sides,
            wholes=(len(of_all),),
        )
    if frames > 1:
        plan = _OneBatchOfClips(rows=of_all, frames=frames)
    changed = replace(
        spec,
        options=options,
        order=PlannedOrder(spec.split.samples, Batching(size, "pad", ranks), plan),
        fields=Fields(spec.split, tables, fields, planned=True),
        settings=replace(spec.settings, batch_size=size, prefetch=1, pipelines=1),
    )
    return replace(changed, images=_open_images(changed, tables))


def _open_images(spec: LoaderSpec, tables: SampleTables) -> Images:
    return open_images(spec.split, tables, mmap=spec.options.mmap, others=spec.fields.others)


def _originals(spec: LoaderSpec, stored: Sequence[Bytes]) -> list[Pixels | None]:
    """Return the stored images as pixels; `None` for images that cannot be decoded."""
    from loaders.dali.serving import decode_images

    manifest = spec.split.manifest
    first = spec.recipe.operations[0]
    if manifest.kind == RGB8 or not isinstance(first, (Decode, Unpack)):
        return [show_original(each, manifest.pixels) for each in stored]
    whole = decode_images(stored, first, CPU)
    return [_small(Image.fromarray(show_bands(each))) for each in whole]


def _show(
    spec: LoaderSpec, images: Sequence[Any], drawn: Sequence[tuple[str, ...]], mixed: Sequence[str]
) -> tuple[list[list[Draw]], Iterable[str]]:
    """Make the images of a batch visible: every view, and every crop of an image.

    Args:
        spec: what the loader is built from.
        images: for each image of a sample the tensor of the batch, or one for each view.
        drawn: what was drawn for each image and view.
        mixed: the mixed classes of each image.

    """
    recipe = spec.recipe
    displays = [Display(recipe, view, spec.options.layout) for view in recipe.views or [None]]
    names = [f"view {number}" for number in range(1, 1 + len(recipe.views))] or [""]
    shown: list[list[Draw]] = [[] for _ in drawn]
    for image, tensor in enumerate(images):
        own = ""
        if len(images) > 1:
            own = f"image {spec.split.manifest.images[image]}"
        arrays = list(map(_array, tensor if recipe.views else [tensor]))
        if spec.order.clipped is not None:
            arrays = [each.reshape(-1, *each.shape[2:]) for each in arrays]
        for number, texts in enumerate(drawn):
            for display, array, name, text in zip(displays, arrays, names, texts, strict=True):
                for picture, caption in _crops(array[number], _joined(" ", own, name)):
                    # What is drawn for each image is described for the first one.
                    is_described = spec.options.shared or image == 0
                    drawn_text = _joined(", ", caption, text * is_described)
                    whole = _joined("; ", drawn_text, mixed[number])
                    shown[number].append(Draw(display.pixels(picture), whole))
    return shown, dict.fromkeys(display.note for display in displays)


def _crops(image: Array, name: str) -> Iterator[tuple[Array, str]]:
    if image.ndim == 3:
        yield image, name
        return
    for number, crop in enumerate(image, 1):
        yield crop, _joined(" ", name, f"crop {number}")


def _joined(separator: str, *texts: str) -> str:
    """Join the texts that are not empty."""
    return separator.join(filter(None, texts))


def _array(tensor: Any) -> Array:
    """Return a tensor of any framework as NumPy array. NumPy has no bfloat16."""
    library = type(tensor).__module__.partition(".")[0]
    if library == "torch":
        tensor = tensor.detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.float()
    elif library == "paddle" and "float" in str(tensor.dtype):
        tensor = tensor.astype("float32")
    return np.asarray(tensor.numpy() if library in ("torch", "paddle") else tensor)


# --- values as pixels -----------------------------------------------------------------------------


class Display:
    """Turns images of a batch into pixels: undoes normalization and the order of axes and channels.

    Attributes:
        note: what is done, for people.

    """

    def __init__(self, recipe: Recipe, view: View | None, layout: str) -> None:
        """Find out how values relate to brightness.

        Args:
            recipe: what is done to all images.
            view: what is done to the shown view of them, if the recipe has views.
            layout: ``"NCHW"`` or ``"NHWC"``.

        """
        part = view or recipe
        operations = recipe.operations
        if view is not None:
            operations += view.operations
        self._layout = layout
        self._space = part.output.color_space
        # The effect of the user's functions is not known.
        self._unknown = bool(part.batch_functions)
        # Three bands of other pixels than RGB are stretched.
        self._bands = () if recipe.kind == RGB8 else recipe.kind.shown
        # A pixel value p from 0 to 255 has become p * factor + offset, by channel.
        self._factor = np.ones(3)
        self._offset = np.zeros(3)
        for operation in operations:
            if isinstance(operation, Rescale):
                self._scale(1 / 255, 0.0)
            elif isinstance(operation, Normalize) and not self._bands:
                std = np.array(operation.std)
                self._scale(operation.scale / std, -np.array(operation.mean) / std)
        self.note = self._describe(part.batch_functions)

    def _scale(self, factor: Any, offset: Any) -> None:
        self._factor = self._factor * factor
        self._offset = self._offset * factor + offset

    def pixels(self, image: Array) -> Pixels:
        """Convert one image, [C, H, W] or [H, W, C], to uint8 [H, W, 3]."""
        values = np.asarray(image, np.float64)
        if self._layout == "NCHW":
            values = values.transpose(1, 2, 0)
        if self._bands:
            return np.asarray(show_bands(values))
        # A fourth channel is padding.
        values = values[..., :3]
        channels = values.shape[2]
        if self._unknown:
            values = _stretched(values)
        else:
            values = (values - self._offset[:channels]) / self._factor[:channels]
        if channels < 3:
            values = np.repeat(values[..., :1], 3, axis=2)
        if self._space == "BGR":
            values = values[..., ::-1]
        return np.ascontiguousarray(np.nan_to_num(values).clip(0, 255).round().astype(np.uint8))

    def _describe(self, functions: Sequence[Any]) -> str:
        if self._bands:
            bands = ", ".join(map(str, dict.fromkeys(self._bands)))
            return f"Of each image the bands {bands} are shown, stretched between percentiles."
        if functions:
            names = ", ".join(getattr(each, "__name__", type(each).__name__) for each in functions)
            return (
                "Values are stretched from the smallest to the largest of each image, after"
                f" {names}."
            )
        space = ""
        if self._space not in ("RGB", "BGR", "GRAY"):
            space = f" The channels are {self._space}."
        if (self._factor == 1).all() and not self._offset.any():
            return f"Values are shown as they are, from 0 to 255.{space}"
        return (
            "The normalization is undone for display: the model gets values of which"
            f" {_numbers(self._offset)} is black and {_numbers(255 * self._factor + self._offset)}"
            f" is white.{space}"
        )


def _stretched(values: Floats) -> Floats:
    low = np.nanmin(values)
    high = np.nanmax(values)
    if high <= low:
        return np.zeros_like(values)
    return (values - low) * (255 / (high - low))


def _numbers(values: Floats) -> str:
    return f"({', '.join(map('{:.2f}'.format, values))})"


def show_original(data: Bytes, raw: tuple[int, int, int] | None) -> Pixels | None:
    """Decode a stored image to uint8 [H, W, 3], upright, of at most 320 pixels per side.

    Training decodes with DALI; this uses Pillow.

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
            image.draft("RGB", (2 * _MAX_SIDE, 2 * _MAX_SIDE))
            return _small(ImageOps.exif_transpose(image))
    except MemoryError:
        raise
    except Exception:  # damaged images raise many kinds
        return None


def _small(image: Image.Image) -> Pixels:
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    image = image.convert("RGB")
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    return np.asarray(image)


# --- what is written beside the pictures ----------------------------------------------------------


def _items(spec: LoaderSpec, tables: SampleTables, rows: Ints, shown: _Shown) -> list[Item]:
    # Only the tables of these rows are read.
    lazy, columns = tables.lazy_columns(("key", "source", "width", "height"))
    lazy.load_rows(rows)
    keys, sources, widths, heights = columns.values()
    labels = _label_texts(tables, rows, spec.split.manifest.classes)
    items = []
    for number, row in enumerate(rows.tolist()):
        items.append(
            Item(
                key=short(keys[row]),
                label=labels[number],
                size=f"{widths[row]} x {heights[row]}",
                source=short(sources[row]),
                original=shown.originals[number],
                draws=tuple(shown.draws[number]),
            )
        )
    return items


def _label_texts(tables: SampleTables, rows: Ints, classes: Sequence[str]) -> list[str]:
    """Return the labels of some rows as text: names of classes, numbers, a caption."""
    labels = LABELS[tables.label_type]
    if labels.is_class:
        lazy, columns = tables.lazy_columns(("label",))
        lazy.load_rows(rows)
        return [class_name(int(label), classes) for label in columns["label"][rows]]
    column = labels.class_lists or labels.number_column or labels.text_column
    if column is None:
        return [""] * len(rows)
    texts = []
    for value in tables.columns([column], requested_by="a preview")[column][rows].tolist():
        text = value
        if labels.class_lists:
            text = ", ".join(class_name(label, classes) for label in dict.fromkeys(value))
        elif labels.number_column:
            text = ", ".join(map("{:g}".format, value))
        elif isinstance(value, list):
            text = f"{value[0]} (and {len(value) - 1} more)" if len(value) > 1 else value[0]
        texts.append(short(text))
    return texts


def _mixture(weights: Array, classes: Sequence[str]) -> str:
    """Name the classes of a mixed label with their weights, the largest first."""
    texts = []
    for label in np.argsort(-weights, kind="stable")[:_MIXED].tolist():
        if weights[label] >= _LEAST_WEIGHT:
            texts.append(f"{weights[label]:.2f} {class_name(label, classes)}")
    return ", ".join(texts)


def class_name(label: int, classes: Sequence[str]) -> str:
    """Return the name of a class, or its number if the dataset does not name it."""
    return short(classes[label]) if label < len(classes) else f"label {label}"


def short(text: object) -> str:
    """Return text of a dataset as it can be shown: printable, and not long."""
    return cut_middle(printable(cut_middle(str(text), 100)), 200)


def _transforms(spec: LoaderSpec) -> Iterator[str]:
    recipe = spec.recipe
    yield f"Transforms: {_listed((*recipe.operations, *recipe.mixing), 900)}"
    for number, view in enumerate(recipe.views, 1):
        yield f"View {number}: {_listed(view.operations, 600)}"


def _listed(operations: Sequence[Any], length: int) -> str:
    return cut_middle(printable(" > ".join(map(short_repr, operations))), length)
