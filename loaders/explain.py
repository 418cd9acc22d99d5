"""Describe what a loader does, as text for people. Never imports DALI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from loaders.devices import queues_note
from loaders.memory import (
    RESIZE_CHOICES,
    TINY_SIDE,
    ImageSizes,
    LoadSettings,
    estimate_memory,
    format_gib,
)
from loaders.transforms.base import ImageSpec, short_repr
from manifests.labels import LABELS
from manifests.process.text import one_line, plural

if TYPE_CHECKING:
    from loaders.options import ResolvedOptions
    from loaders.spec import LoaderSpec


#: Class names in the table of a notebook, and characters of each.
_NAMES, _NAME_LENGTH = 8, 40

#: The size of images that differ in it, in batches of one image.
_ANY_SIZE = ("height", "width")


def explain(spec: LoaderSpec) -> str:
    """Describe a loader: data, transforms as written and as run, why they differ, batches."""
    lines = [*_data_lines(spec), "", *_transforms_lines(spec), ""]
    if spec.fields.images:
        lines += [*_fusion_lines(spec), "", *_batch_lines(spec)]
    else:
        lines.append('As run: no image is decoded, because the fields do not contain "image".')
    return "\n".join(lines)


def html_table(spec: LoaderSpec, *, state: str) -> str:
    """Return a small table about a loader for a notebook, in the colors of its theme.

    Args:
        spec: what was decided for the loader.
        state: where the loader is, such as its epoch.

    """
    from markupsafe import Markup

    row = Markup(
        '<tr><th scope="row" style="text-align:left; vertical-align:top">{}</th>'
        '<td style="text-align:left; white-space:pre-line; overflow-wrap:anywhere">{}</td></tr>'
    )
    rows = Markup("").join(row.format(*each) for each in _html_rows(spec, state))
    return str(Markup("<table>{}</table>").format(rows))


def _html_rows(spec: LoaderSpec, state: str) -> Iterator[tuple[str, str]]:
    split = spec.split
    options = spec.options
    ranks = options.ranks
    yield "dataset", split.folder
    yield "split", f"{split.name}, {plural(split.samples, 'sample')}"
    if split.manifest.classes:
        names = [one_line(name, _NAME_LENGTH) for name in split.manifest.classes[:_NAMES]]
        if len(split.manifest.classes) > _NAMES:
            names.append("…")
        yield "classes", f"{len(split.manifest.classes):,}: {', '.join(names)}"
    yield (
        "batches",
        f"{spec.order.batches:,} per epoch, of {plural(options.batch_size, 'sample')} each"
        f" ({', '.join(options.fields)}), rank {ranks.rank} of {ranks.world_size}",
    )
    yield "sampler", spec.order.lines[0].removeprefix("planned by ")
    if spec.fields.images:
        yield "transforms", "\n".join(item.description for item in spec.recipe.all_items)
        batch, *_ = _batch_lines(spec)
        yield "images", batch.removeprefix("A batch: ")
    yield "device", str(options.device)
    yield "state", state


def _data_lines(spec: LoaderSpec) -> Iterator[str]:
    split = spec.split
    options = spec.options
    ranks = options.ranks
    revision = ""
    if any(split.revisions):
        revision = f" (revision {', '.join(map(str, split.revisions))})"
    shards = plural(len(split.shards), f"{split.manifest.format} shard")
    yield f"{split.folder}{revision}: {split.samples:,} samples in {shards}"
    if spec.images is not None:
        yield from spec.images.lines()
    order, *details = spec.order.lines
    yield (
        f"rank {ranks.rank} of {ranks.world_size}: {spec.order.batches:,} batches of"
        f" {options.batch_size:,} per epoch, {order}, last batch: {options.last_batch}"
    )
    yield from (f"  {line}" for line in details)


def _transforms_lines(spec: LoaderSpec) -> Iterator[str]:
    yield "As written:"
    for item in spec.recipe.all_items:
        yield f"  {item.location}  {item.description}"
        yield from (f"      note: {note}" for note in item.notes)
    yield from (f"  note: {note}" for note in spec.recipe.notes)
    if spec.adjustment.text:
        yield f"  set: {spec.adjustment.text}"


def _fusion_lines(spec: LoaderSpec) -> Iterator[str]:
    yield f"As run, on the {spec.options.device.kind.upper()}:"
    yield from (
        f"  {short_repr(operation)}" for operation in (*spec.fusion.operations, *spec.recipe.mixing)
    )
    for number, view in enumerate(spec.view_fusions):
        yield f"  views[{number}]:"
        yield from (f"    {short_repr(operation)}" for operation in view.operations)
    yield ""
    yield "Why:" if spec.fusion.reasons else "Nothing to fuse."
    yield from (f"  {reason}" for reason in spec.fusion.reasons)
    yield from (f"  warning: {warning}" for warning in spec.order_warnings)


def _batch_lines(spec: LoaderSpec) -> Iterator[str]:
    options = spec.options
    shapes = dict.fromkeys(
        " x ".join(map(str, _shape(each, options.layout))) for each in spec.recipe.outputs
    )
    tensors = ""
    if spec.recipe.views:
        tensors = f"{len(spec.recipe.views)} tensors of "
    images = f"{options.batch_size} x "
    if spec.order.clipped is not None:
        images = f"{options.batch_size // spec.order.unit} x {spec.order.unit} x "
    patchify = spec.recipe.patchify[0]
    if patchify is not None and patchify.row_tokens is not None:
        images = f"{options.batch_size} images in rows of "
    batch_bytes = options.batch_size * spec.settings.image_bytes
    hardware = ""
    if options.decoder == "gpu":
        share = f"{options.hw_decoder_load:.0%}"
        hardware = f"; the hardware decoder decodes {share} of the JPEG images"
    yield (
        f"A batch: {tensors}{images}{' and '.join(shapes)}"
        f" {options.dtype}{_placed(spec)}, {batch_bytes / 2**20:,.1f} MiB; prefetch:"
        f" {options.prefetch}{_in_turn(options)}; threads:"
        f" {options.num_threads}{hardware}"
    )
    if spec.may_choose_decoder:
        yield (
            f"Decoder: the {options.decoder.upper()}; by default, the CPU decodes images of at most"
            f" {TINY_SIDE} x {TINY_SIDE} pixels on average, else the GPU: pass"
            ' decoder="cpu" or "gpu" to choose'
        )
    note = queues_note() if options.device.is_gpu else None
    if note is not None:
        yield f"warning: {note}"
    if options.tuning:
        yield f"threads, prefetch and hardware decoder from {options.tuning}, unless given"
    if spec.sizes is not None:
        yield from _memory_lines(spec.sizes, spec.settings)


def _in_turn(options: ResolvedOptions) -> str:
    """Return how many pipelines prepare batches, if there are several."""
    if options.pipelines == 1:
        return ""
    return f" in each of {options.pipelines} pipelines"


def _placed(spec: LoaderSpec) -> str:
    """Return what follows the pixels of the images of a batch."""
    kind = spec.fields.label_image
    if kind is not None:
        sizes = dict.fromkeys(
            " x ".join(map(str, output.size or _ANY_SIZE)) for output in spec.recipe.outputs
        )
        labels = LABELS[kind]
        what = f"{labels.pixels} {labels.noun}s"
        return f" and {spec.options.batch_size} x {' and '.join(sizes)} {what}"
    if len(spec.fields.images) > 1:
        draws = "random values of its own"
        if spec.options.shared:
            draws = "the same random values"
        return f" for each of {', '.join(spec.fields.images)}, with {draws}"
    if spec.fields.has_boxes:
        return f" and their {spec.split.manifest.label_type}"
    return ""


def _shape(output: ImageSpec, layout: str) -> tuple[int | str, ...]:
    """Return the shape of an image in a batch."""
    if output.patches is not None:
        tokens, side = output.patches
        return tokens, side**2 * output.channels
    height, width = output.size or _ANY_SIZE
    shape: tuple[int | str, ...] = (output.channels, height, width)
    if layout == "NHWC":
        shape = (height, width, output.channels)
    if output.crops:
        return (output.crops, *shape)
    return shape


def _memory_lines(sizes: ImageSizes, settings: LoadSettings) -> Iterator[str]:
    estimate = estimate_memory(sizes, settings)
    yield (
        f"Estimated GPU memory: {format_gib(estimate.total)} ({format_gib(estimate.context)} CUDA"
        f" and libraries, {format_gib(estimate.decoder)} decoder, {format_gib(estimate.images)}"
        f" images of the largest batch, {format_gib(estimate.finished_batches)} finished batches)"
    )
    if settings.encoded:
        smaller = (
            (side, sizes.resized(side)) for side in RESIZE_CHOICES if side < min(sizes.largest)
        )
        totals = [
            f"{format_gib(estimate_memory(each, settings).total)} at {side}"
            for side, each in smaller
        ]
        if totals:
            yield (
                "With smaller images from `dataprep convert --resize-shorter PIXELS`:"
                f" {', '.join(totals)}"
            )
