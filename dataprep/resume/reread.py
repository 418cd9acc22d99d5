"""Read a finished shard and its source images again, to see whether both are what the sample table says.

Source images are those of the samples, and their masks or depth maps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.containers import Location
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.progress import REPORTED_IMAGES, report_images
from dataprep.shards.source_image import load_image, load_label_image
from manifests.errors import TableError
from manifests.labels import MASK_SOURCE, LabelType
from manifests.schema import Conversion, File
from manifests.tables import read_table


@dataclass(frozen=True, slots=True)
class SourceImages:
    """The source images of a shard, in the order of the plan.

    Attributes:
        root: folder that relative `paths` start from.
        paths: their paths.
        sizes: their sizes in bytes, when the source was scanned.
        locations: where they are inside containers; `None` if every image is a file of its own.
        label_type: what the labels are.
        label_images: the columns that say where the masks or depth maps are, if the samples have
            some.

    """

    root: str
    paths: list[str]
    sizes: list[int]
    locations: list[Location | None] | None = None
    label_type: LabelType = "class"
    label_images: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class RereadTask:
    """A finished shard to read again.

    Attributes:
        out: the output folder.
        name: the shard's file name without extension.
        file: the shard, if its checksum is to be compared.
        images: the source images, if they are to be compared.
        conversion: the metadata in the shard's sample table.
        options: options of the conversion.

    """

    out: str
    name: str
    file: File | None
    images: SourceImages | None
    conversion: Conversion
    options: Options


@dataclass(frozen=True, slots=True)
class Reread:
    """What was found.

    Attributes:
        name: the shard's file name without extension.
        is_damaged: whether the shard has another checksum.
        replaced: a source image, mask or depth map that is not the one in the shard; `None` if all
            are.

    """

    name: str
    is_damaged: bool = False
    replaced: str | None = None


def reread(task: RereadTask) -> Reread:
    """Compare a shard with its checksum, and the source images with theirs.

    Raises:
        SourceVanishedError: an image is gone.

    """
    if task.file is not None and storage.describe(task.out, task.file.name) != task.file:
        return Reread(task.name, is_damaged=True)
    return Reread(task.name, replaced=_find_replaced(task, task.images) if task.images else None)


def _find_replaced(task: RereadTask, images: SourceImages) -> str | None:
    """Return the path of the first image, mask or depth map that is not the one in the shard.

    `None` if all are.

    If the options change images, return the first path: the checksums in the table are then not
    those of the source.
    """
    if task.options.changes_images:
        return images.paths[0]
    try:
        stored = _stored(task, images)
    except TableError:
        return images.paths[0]
    reasons = {row["source"]: row["reason"] for row in task.conversion.rejected}
    unchecked = replace(
        task.options, validate="none"
    )  # only the bytes matter of an image that was valid
    locations = images.locations or [None] * len(images.paths)
    nothing: list[dict[str, Any] | None] = [None] * len(images.paths)
    label_images: Sequence[dict[str, Any] | None] = images.label_images or nothing
    samples = zip(images.paths, images.sizes, locations, label_images, strict=True)
    for number, (path, size, location, label_image) in enumerate(samples):
        if number % REPORTED_IMAGES == REPORTED_IMAGES - 1:
            report_images(task.name, REPORTED_IMAGES)
        options = unchecked if path in stored else task.options
        try:
            found = _checksums(images, path, size, options, location, label_image)
        except Rejected as error:
            is_same = path not in stored and error.reason == reasons.get(path)
        else:
            is_same = stored.get(path) == found
            if label_image is not None and not is_same and stored.get(path, ())[:1] == found[:1]:
                return str(label_image[MASK_SOURCE])
        if not is_same:
            return path
    return None


def _stored(task: RereadTask, images: SourceImages) -> dict[str, tuple[int, ...]]:
    """Return the checksum of each image in the shard, and of its mask or depth map, by the path of the image."""
    columns = ["crc32c", *(["mask_crc32c"] if images.label_images else [])]
    path = os.path.join(task.out, f"{task.name}.parquet")
    table = read_table(path, ["source", *columns], label_type=images.label_type)
    values = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return dict(zip(table["source"].to_pylist(), values, strict=True))


def _checksums(  # noqa: PLR0917
    images: SourceImages,
    path: str,
    size: int,
    options: Options,
    location: Location | None,
    label_image: Mapping[str, Any] | None,
) -> tuple[int, ...]:
    data, *_, placement = load_image(
        images.root, path, size, options, location, placed=label_image is not None
    )
    if label_image is None or placement is None:
        return (crc32c(data),)
    mask = load_label_image(
        images.root, label_image, placement, options, location, label_type=images.label_type
    )
    return crc32c(data), crc32c(mask)
