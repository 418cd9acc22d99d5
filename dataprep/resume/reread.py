"""Read a finished shard and its source images again, to see whether both are what the sample table says."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.containers import Location
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.progress import REPORTED_IMAGES, report_images
from dataprep.shards.source_image import load_image
from manifests.errors import TableError
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

    """

    root: str
    paths: list[str]
    sizes: list[int]
    locations: list[Location | None] | None = None


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
        replaced: a source image that is not the one in the shard; `None` if all are.

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
    """Return the path of the first image that is not the one in the shard; `None` if all are.

    If the options change images, return the first path: the checksums in the table are then not those of the source.
    """
    if task.options.changes_images:
        return images.paths[0]
    try:
        table = read_table(os.path.join(task.out, f"{task.name}.parquet"), ["source", "crc32c"])
    except TableError:
        return images.paths[0]
    stored = dict(zip(table["source"].to_pylist(), table["crc32c"].to_pylist(), strict=True))
    reasons = {row["source"]: row["reason"] for row in task.conversion.rejected}
    unchecked = replace(task.options, validate="none")  # only the bytes matter of an image that was valid
    locations = images.locations or [None] * len(images.paths)
    for number, (path, size, location) in enumerate(zip(images.paths, images.sizes, locations, strict=True)):
        if number % REPORTED_IMAGES == REPORTED_IMAGES - 1:
            report_images(task.name, REPORTED_IMAGES)
        options = unchecked if path in stored else task.options
        try:
            data = load_image(images.root, path, size, options, location).data
        except Rejected as error:
            is_same = path not in stored and error.reason == reasons.get(path)
        else:
            is_same = stored.get(path) == crc32c(data)
        if not is_same:
            return path
    return None
