"""Compare one record of a shard with its row of the sample table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from awscrt.checksums import crc32c

from dataprep.formats import PendingSample, Record, View
from dataprep.images.base import FAILED, FAILED_HINT, MAX_BYTES, ImageInfo, Rejected
from dataprep.images.validate import inspect, parse_header
from dataprep.verify.check import ShardCheck
from dataprep.verify.problems import Problem
from manifests.errors import ShardError
from manifests.labels import CLASS_COLUMNS, MASK_TYPES
from manifests.process.text import plural, shown
from manifests.schema import Manifest, Sample


def check_record(
    check: ShardCheck, view: View, record: Record, row: Sample, number: int
) -> Iterator[Problem]:
    """Compare a record with its table row: label, size, checksum, image header, and the bytes around the image."""
    if (message := _wrong_label(check.manifest, row)) is not None:
        yield check.table_problem(message, record=number)
        return
    if record.size != row.size:
        message = f"the image has {record.size} bytes, but the table states {row.size}"
        yield check.shard_problem(message, record=number, byte=record.offset)
        return
    components = check.manifest.components
    if record.label is None and components.label is not None:
        message = (
            f"the record has no integer label under {shown(components.label)}, which the manifest"
            " names"
        )
        yield check.shard_problem(message, record=number, byte=record.start)
    elif (
        record.label is not None
        and row.label is not None
        and record.label + components.label_offset != row.label
    ):
        message = (
            f"the label is {record.label + components.label_offset}, but the table states"
            f" {row.label}"
        )
        yield check.shard_problem(message, record=number, byte=record.start)
    if record.size > MAX_BYTES:
        message = f"the image has {record.size} bytes, but the limit is {MAX_BYTES}"
        yield check.shard_problem(message, record=number, byte=record.offset)
        return
    yield from _check_image(check, view, record, row, number)


def _wrong_label(manifest: Manifest, row: Sample) -> str | None:
    """Return what is wrong with the classes of a sample.

    `None` if each is a class of the dataset.
    """
    labels = (
        [row.label]
        if manifest.label_type == "class"
        else row.extra.get(CLASS_COLUMNS.get(manifest.label_type, ""))
    )
    for label in labels or ():
        if label is None or not 0 <= label < len(manifest.classes):
            classes = plural(len(manifest.classes), "class")
            return f"the label {label} is out of range: the dataset has {classes}"
    return None


def _check_image(
    check: ShardCheck, view: View, record: Record, row: Sample, number: int
) -> Iterator[Problem]:
    data, i = view(record.offset, record.size)
    image = bytes(data[i : i + record.size])
    if row.crc32c is not None and crc32c(image) != row.crc32c:
        last = record.offset + record.size - 1
        message = f"the image in bytes {record.offset} to {last} does not match its checksum"
        yield check.shard_problem(message, record=number, byte=record.offset)
        return
    try:
        info = _image_info(image, check)
    except Rejected as error:
        yield _invalid_image(check, record, number, error)
        return
    if (info.width, info.height) != (row.width, row.height):
        message = (
            f"row {number} states {row.width}x{row.height} pixels, but the image has"
            f" {info.width}x{info.height} pixels"
        )
        yield check.table_problem(message)
    elif check.was_converted:
        yield from _check_frame(check, view, record, row, (number, info.format))


def _invalid_image(check: ShardCheck, record: Record, number: int, error: Rejected) -> Problem:
    problem = check.shard_problem(
        f"the image is not valid ({error.reason}): {error.detail}",
        record=number,
        byte=record.offset,
    )
    if error.reason == FAILED:
        return replace(problem, hint=FAILED_HINT)
    if error.reason == "too-large" and check.converted_max_pixels > check.max_pixels:
        limit = check.converted_max_pixels
        hint = (
            f"the dataset was converted with --max-pixels {limit}; if you trust it, verify it with"
            " this option, too"
        )
        return replace(problem, hint=hint)
    return problem


def _image_info(image: bytes, check: ShardCheck) -> ImageInfo:
    pixels = check.manifest.pixels
    if pixels is None:
        return inspect(image, "decode", check.max_pixels) if check.decode else parse_header(image)
    if len(image) != math.prod(pixels):
        shape = "x".join(map(str, pixels))
        raise Rejected(
            "corrupt", f"{len(image)} bytes, but {shape} pixels need {math.prod(pixels)}"
        )
    height, width, _ = pixels
    return ImageInfo("raw", width, height)


def _check_frame(
    check: ShardCheck, view: View, record: Record, row: Sample, number_and_format: tuple[int, str]
) -> Iterator[Problem]:
    """Compare the bytes around the image with those that `dataprep convert` writes for the table row."""
    number, image_format = number_and_format
    manifest = check.manifest
    mask = b""
    if manifest.label_type in MASK_TYPES:
        try:
            mask = _read_mask(view, row)
        except Rejected as error:
            message = f"the mask or depth map is not valid ({error.reason}): {error.detail}"
            yield check.shard_problem(message, record=number, byte=row.extra["mask_offset"])
            return
    sample = PendingSample(
        key=row.key,
        label=row.label,
        class_name="" if row.label is None else manifest.classes[row.label],
        info=ImageInfo(image_format, row.width, row.height),
        size=row.size,
        crc32c=row.crc32c or 0,
        source=row.source,
        extra=row.extra,
        label_type=manifest.label_type,
        class_names=tuple(
            manifest.classes[label]
            for label in row.extra.get(CLASS_COLUMNS.get(manifest.label_type, ""), ())
        ),
        mask=mask,
    )
    head, tail = frame = check.format.frame(sample)
    if (
        mask
        and record.offset - len(head) + check.format.mask_start(sample, frame)
        != row.extra["mask_offset"]
    ):
        yield check.table_problem(
            "the table states another place of the mask or depth map", record=number
        )
        return
    for start, expected in ((record.offset - len(head), head), (record.offset + record.size, tail)):
        data, i = view(max(start, 0), len(expected))
        actual = data[i : i + len(expected)]
        if actual != expected:
            message = "a byte around the image differs from what `dataprep convert` writes"
            yield check.shard_problem(
                message, record=number, byte=start + first_difference(actual, expected)
            )
            return


def _read_mask(view: View, row: Sample) -> bytes:
    """Return the label image of a sample.

    Raises:
        Rejected: it is not the image that the table describes.

    """
    offset, size = row.extra["mask_offset"], row.extra["mask_size"]
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    data, i = view(offset, size)
    mask = bytes(data[i : i + size])
    if len(mask) != size or crc32c(mask) != row.extra["mask_crc32c"]:
        raise Rejected(
            "corrupt",
            f"bytes {offset} to {offset + size - 1} do not match the checksum in the table",
        )
    return mask


def first_difference(actual: bytes, expected: bytes) -> int:
    """Return the first position at which two different byte strings differ."""
    pairs = enumerate(zip(actual, expected, strict=False))
    return next(
        (at for at, (first, second) in pairs if first != second), min(len(actual), len(expected))
    )


def check_framing(check: ShardCheck, view: View, record: Record, number: int) -> Iterator[Problem]:
    """Check the redundancy of the record format: the CRCs of TFRecord, the padding of tar."""
    try:
        damage = check.format.find_damage(view, record, check.shard.name)
    except ShardError as error:
        yield check.shard_problem(error.message, record=number, byte=error.byte or record.start)
    else:
        if damage is not None:
            yield check.shard_problem(damage.message, record=number, byte=damage.byte)
