"""Compare the records of one shard with the rows of its sample table.

If the header of a record is damaged, the position of the next record is read from the DALI index, so one damaged record
does not hide another.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.formats import FORMATS, PendingSample, Record, RecordFormat, ScanOptions, View
from dataprep.images.base import FAILED, FAILED_HINT, MAX_BYTES, MAX_PIXELS, ImageInfo, Rejected
from dataprep.images.validate import inspect, parse_header
from dataprep.progress import REPORTED_IMAGES, report_images
from dataprep.verify.problems import Problem, ProblemList
from manifests.dali_index import record_starts
from manifests.errors import DatasetError, ManifestError, ShardError
from manifests.files import INDEX, read_file
from manifests.labels import CLASS_COLUMNS, MASK_TYPES
from manifests.schema import Manifest, Sample, Shard
from manifests.text import plural, shown


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """A shard to check.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        manifest: the manifest of the dataset.
        decode: whether to decode every image.
        given_max_pixels: images with more pixels are not valid; `None` uses the limit in the manifest.

    """

    folder: str
    shard: Shard
    manifest: Manifest
    decode: bool
    given_max_pixels: int | None

    @property
    def format(self) -> RecordFormat:
        """The record format of the shard."""
        return FORMATS[self.manifest.format]

    @property
    def was_converted(self) -> bool:
        """Whether `dataprep convert` wrote the shard. If so, the table row determines every byte around an image."""
        return self.manifest.creator == "convert"

    @property
    def converted_max_pixels(self) -> int:
        """The limit that the dataset was converted with, as the manifest states it."""
        limit = self.manifest.options.get("max_pixels")
        return limit if isinstance(limit, int) else MAX_PIXELS

    @property
    def max_pixels(self) -> int:
        """Images with more pixels are not valid.

        The manifest is as untrusted as the images, so only the user can raise the limit above its default.
        """
        return self.given_max_pixels or min(self.converted_max_pixels, MAX_PIXELS)

    @property
    def shard_hint(self) -> str:
        """How to fix a damaged shard."""
        if self.was_converted:
            return f"remove {self.shard.table.name} and run the same `dataprep convert` again to write this shard again"
        return "restore the shard from a copy, or make it again"

    @property
    def index_hint(self) -> str:
        """How to fix a damaged index or table."""
        return self.shard_hint if self.was_converted else "run `dataprep index --overwrite` again"

    @property
    def label_key(self) -> str | None:
        """The member of a sample's ``.json`` that contains the label, if ``dataprep index`` was told so."""
        key = self.manifest.options.get("label_key")
        if key is not None and not isinstance(key, str):
            raise ManifestError(f"options.label_key of the manifest is not text, but {shown(key)}")
        return key

    def path(self, name: str) -> str:
        """Return the path of a file of the dataset."""
        return os.path.join(self.folder, name)

    def shard_problem(self, message: str, *, record: int | None = None, byte: int | None = None) -> Problem:
        """Return a problem of the shard itself."""
        return Problem(self.shard.name, message, record, byte, self.shard_hint)

    def index_problem(self, message: str, *, byte: int | None = None) -> Problem:
        """Return a problem of the DALI index."""
        return Problem(self.shard.index.name, message, None, byte, self.index_hint)

    def table_problem(self, message: str, *, record: int | None = None) -> Problem:
        """Return a problem of the sample table."""
        return Problem(self.shard.table.name, message, record, None, self.index_hint)


def check_records(check: ShardCheck, view: View, size: int, rows: Sequence[Sample], problems: ProblemList) -> list[str]:
    """Compare every record with its table row, and add what is wrong to `problems`.

    Args:
        check: the shard.
        view: the bytes of the shard.
        size: its length in bytes.
        rows: the rows of its table. Empty if the table is damaged.
        problems: receives the problems.

    Returns:
        The index lines of the records that have a table row.

    """
    index_lines: list[str] = []
    number = 0
    damaged: set[int] = set()
    row_of_offset = {row.offset: row_number for row_number, row in enumerate(rows)}

    def report(*new_problems: Problem) -> None:
        problems.add(new_problems)
        damaged.update(problem.record for problem in new_problems if problem.record is not None)

    for record in scan_past_damage(check, view, size):
        if isinstance(record, Problem):
            report(record)
            continue
        row_number = row_of_offset.pop(record.offset, None)
        if row_number is not None:
            report(*check_record(check, view, record, rows[row_number], row_number))
            index_lines.append(record.index_line)
        elif rows and check.manifest.rejected is None:
            report(check.shard_problem("the record has no row in the table", record=number, byte=record.start))
        reported_number = number if row_number is None else row_number
        if reported_number not in damaged:
            report(*check_framing(check, view, record, reported_number))
        number += 1
        if number % REPORTED_IMAGES == 0:
            report_images(check.shard.name, REPORTED_IMAGES)
    for offset, row_number in row_of_offset.items():
        if row_number not in damaged:
            message = "the record is missing, but the table has a row for it"
            report(check.shard_problem(message, record=row_number, byte=min(offset, size)))
    return index_lines


def scan_past_damage(check: ShardCheck, view: View, size: int) -> Iterator[Record | Problem]:
    """Scan a shard. After a damaged record, yield a problem and continue at the next record in the index."""
    options = ScanOptions(check.manifest.components, check.label_key, texts=False)
    starts = _starts_in_index(check)
    start = 0
    while start < size:
        try:
            yield from check.format.scan(view, size, check.shard.name, options, start)
        except ShardError as error:
            byte = start if error.byte is None else error.byte
            next_index = bisect_right(starts, byte)
            number = max(next_index - 1, 0) if starts else error.record
            yield check.shard_problem(error.message, record=number, byte=byte)
            if next_index >= len(starts):
                return
            start = starts[next_index]
        else:
            return


def _starts_in_index(check: ShardCheck) -> Sequence[int]:
    try:
        return record_starts(check.manifest.format, read_index(check.path(check.shard.index.name)))
    except DatasetError:
        return []


def read_index(path: str) -> bytes:
    """Read a DALI index.

    Raises:
        IndexFileError: it is not a regular file, or is too long.
        StorageError: it cannot be read.

    """
    with storage.translate_errors(path, "the file cannot be read"):
        return read_file(path, INDEX)


# --- one record ---------------------------------------------------------------------------------


def check_record(check: ShardCheck, view: View, record: Record, row: Sample, number: int) -> Iterator[Problem]:
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
        message = f"the record has no integer label under {shown(components.label)}, which the manifest names"
        yield check.shard_problem(message, record=number, byte=record.start)
    elif record.label is not None and row.label is not None and record.label + components.label_offset != row.label:
        message = f"the label is {record.label + components.label_offset}, but the table states {row.label}"
        yield check.shard_problem(message, record=number, byte=record.start)
    if record.size > MAX_BYTES:
        message = f"the image has {record.size} bytes, but the limit is {MAX_BYTES}"
        yield check.shard_problem(message, record=number, byte=record.offset)
        return
    yield from _check_image(check, view, record, row, number)


def _wrong_label(manifest: Manifest, row: Sample) -> str | None:
    """Return what is wrong with the classes of a sample; `None` if each is a class of the dataset."""
    labels = (
        [row.label] if manifest.label_type == "class" else row.extra.get(CLASS_COLUMNS.get(manifest.label_type, ""))
    )
    for label in labels or ():
        if label is None or not 0 <= label < len(manifest.classes):
            classes = plural(len(manifest.classes), "class")
            return f"the label {label} is out of range: the dataset has {classes}"
    return None


def _check_image(check: ShardCheck, view: View, record: Record, row: Sample, number: int) -> Iterator[Problem]:
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
            f"row {number} states {row.width}x{row.height} pixels, but the image has {info.width}x{info.height} pixels"
        )
        yield check.table_problem(message)
    elif check.was_converted:
        yield from _check_frame(check, view, record, row, (number, info.format))


def _invalid_image(check: ShardCheck, record: Record, number: int, error: Rejected) -> Problem:
    problem = check.shard_problem(
        f"the image is not valid ({error.reason}): {error.detail}", record=number, byte=record.offset
    )
    if error.reason == FAILED:
        return replace(problem, hint=FAILED_HINT)
    if error.reason == "too-large" and check.converted_max_pixels > check.max_pixels:
        limit = check.converted_max_pixels
        hint = f"the dataset was converted with --max-pixels {limit}; if you trust it, verify it with this option, too"
        return replace(problem, hint=hint)
    return problem


def _image_info(image: bytes, check: ShardCheck) -> ImageInfo:
    pixels = check.manifest.pixels
    if pixels is None:
        return inspect(image, "decode", check.max_pixels) if check.decode else parse_header(image)
    if len(image) != math.prod(pixels):
        shape = "x".join(map(str, pixels))
        raise Rejected("corrupt", f"{len(image)} bytes, but {shape} pixels need {math.prod(pixels)}")
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
            message = f"the second image is not valid ({error.reason}): {error.detail}"
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
            manifest.classes[label] for label in row.extra.get(CLASS_COLUMNS.get(manifest.label_type, ""), ())
        ),
        mask=mask,
    )
    head, tail = frame = check.format.frame(sample)
    if mask and record.offset - len(head) + check.format.mask_start(sample, frame) != row.extra["mask_offset"]:
        yield check.table_problem("the table states another place of the second image", record=number)
        return
    for start, expected in ((record.offset - len(head), head), (record.offset + record.size, tail)):
        data, i = view(max(start, 0), len(expected))
        actual = data[i : i + len(expected)]
        if actual != expected:
            message = "a byte around the image differs from what `dataprep convert` writes"
            yield check.shard_problem(message, record=number, byte=start + first_difference(actual, expected))
            return


def _read_mask(view: View, row: Sample) -> bytes:
    """Return the second image of a sample.

    Raises:
        Rejected: it is not the image that the table describes.

    """
    offset, size = row.extra["mask_offset"], row.extra["mask_size"]
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    data, i = view(offset, size)
    mask = bytes(data[i : i + size])
    if len(mask) != size or crc32c(mask) != row.extra["mask_crc32c"]:
        raise Rejected("corrupt", f"bytes {offset} to {offset + size - 1} do not match the checksum in the table")
    return mask


def first_difference(actual: bytes, expected: bytes) -> int:
    """Return the first position at which two different byte strings differ."""
    pairs = enumerate(zip(actual, expected, strict=False))
    return next((at for at, (first, second) in pairs if first != second), min(len(actual), len(expected)))


def check_framing(check: ShardCheck, view: View, record: Record, number: int) -> Iterator[Problem]:
    """Check the redundancy of the record format: the CRCs of TFRecord, the padding of tar."""
    try:
        damage = check.format.find_damage(view, record, check.shard.name)
    except ShardError as error:
        yield check.shard_problem(error.message, record=number, byte=error.byte or record.start)
    else:
        if damage is not None:
            yield check.shard_problem(damage.message, record=number, byte=damage.byte)
