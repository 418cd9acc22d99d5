"""Check one shard: the shard, its index and its table, each against the others and the manifest."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial

import numpy as np
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.formats import (
    FORMATS,
    ByteView,
    PendingSample,
    Record,
    RecordDamage,
    RecordFormat,
    ScanOptions,
    read_bytes,
)
from dataprep.images.base import (
    FAILED,
    FAILED_HINT,
    MAX_BYTES,
    ImageInfo,
    Rejected,
    check_pixel_kind,
)
from dataprep.images.validate import check_image, parse_header
from dataprep.labels.base import OtherImage
from dataprep.labels.kinds import kind_with
from dataprep.options import MAX_PIXELS, max_pixels_of
from dataprep.progress import REPORTED_IMAGES, report_images
from manifests.arrays import ArrayKind, array_file_name, array_in
from manifests.dali_index import format_index, record_starts
from manifests.errors import (
    DamagedError,
    DatasetError,
    ManifestError,
    ShardError,
    TableError,
    UnreachableError,
)
from manifests.files import ARRAY, INDEX, SHARD, FileKind, kind_of, read_file
from manifests.labels import LABEL_IMAGE, place_columns
from manifests.process.text import plural, shown
from manifests.schema import File, Manifest, Sample, Shard
from manifests.serialization import checksum_text, has_joined_table
from manifests.store import read_as_written, read_manifest
from manifests.tables import read_table, samples

#: A damaged table of a million rows has a million problems. The first ones of each file are kept,
#: the rest is counted.
MAX_PER_FILE = 100
MAX_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a dataset.

    Attributes:
        file: file with the problem, relative to the dataset folder.
        message: what is wrong.
        record: number of the record in the shard, from 0.
        byte: offset in the file.
        hint: how to fix it.

    """

    file: str
    message: str
    record: int | None = None
    byte: int | None = None
    hint: str = ""

    def __str__(self) -> str:
        return str(DamagedError(**asdict(self)))


class ProblemList:
    """Keeps the first problems of each file, and counts all.

    Attributes:
        kept: at most `MAX_PER_FILE` problems of each file, in the order in which they were found.
        counts: the number of all problems of each file, by its name.

    """

    def __init__(self) -> None:
        self.kept: list[Problem] = []
        self.counts: Counter[str] = Counter()

    def add(self, *problems: Problem) -> None:
        """Count problems, and keep the first ones of each file."""
        for problem in problems:
            self.counts[problem.file] += 1
            if self.counts[problem.file] <= MAX_PER_FILE:
                self.kept.append(problem)

    def join(self, lists: Iterable[ProblemList]) -> None:
        """Add the problems of other files."""
        for other in lists:
            self.kept += other.kept
            self.counts += other.counts


# --- what to check ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def manifest_of(folder: str) -> Manifest:
    """Read the manifest once per worker process, instead of sending its classes with every task.

    Records are compared with the tables that they were written with, before any join.
    """
    return read_as_written(folder, read_manifest(folder))


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """A shard to check.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        decode: whether to decode every image.
        given_max_pixels: images with more pixels are not valid; `None` uses the limit in the
            manifest, at most the default.

    """

    folder: str
    shard: Shard
    decode: bool
    given_max_pixels: int | None

    @property
    def manifest(self) -> Manifest:
        """The manifest of the dataset."""
        return manifest_of(self.folder)

    @property
    def format(self) -> RecordFormat:
        """The record format of the shard."""
        return FORMATS[self.manifest.format]

    @property
    def was_converted(self) -> bool:
        """Whether `dataprep convert` wrote the shard.

        If so, the table row determines every byte around an image.
        """
        return self.manifest.creator == "convert"

    @property
    def max_pixels(self) -> int:
        """Images with more pixels are not valid.

        The manifest is as untrusted as the images, so only the user can raise the limit above its
        default.
        """
        return self.given_max_pixels or min(max_pixels_of(self.manifest), MAX_PIXELS)

    @property
    def index_hint(self) -> str:
        """How to fix a damaged index or table."""
        if self.was_converted:
            return (
                f"run `dataprep repair {self.folder}`, which rebuilds it from its shard if possible"
            )
        return "run `dataprep index --overwrite` again"

    @property
    def label_key(self) -> str | None:
        """The member of a sample's ``.json`` that contains the label, if ``dataprep index`` was given one."""
        key = self.manifest.options.get("label_key")
        if key is not None and not isinstance(key, str):
            raise ManifestError(
                f"options.label_key of the manifest is not text, but {shown(key)}",
                hint="run `dataprep index --overwrite` again",
            )
        return key

    def path(self, name: str) -> str:
        """Return the path of a file of the dataset."""
        return os.path.join(self.folder, name)

    def shard_problem(
        self, message: str, record: int | None = None, byte: int | None = None
    ) -> Problem:
        """Return a problem of the shard itself."""
        hint = SHARD.hint
        if self.was_converted:
            hint = (
                f"run `dataprep repair {self.folder} --src SRC` with its source to make the shard"
                " again"
            )
        return Problem(self.shard.name, message, record, byte, hint)

    def table_problem(self, message: str, record: int | None = None) -> Problem:
        """Return a problem of the sample table."""
        return Problem(self.shard.table.name, message, record, hint=self.index_hint)


# --- one record -----------------------------------------------------------------------------------


def check_record(
    check: ShardCheck, view: ByteView, record: Record, row: Sample, number: int
) -> Iterator[Problem]:
    """Compare a record with its table row: label, size, checksum, image header, and the bytes around the image."""
    labels, classes = check.manifest.labels, check.manifest.classes
    lists = row.extra.get(labels.class_lists or "")
    # Labels of the table index the class names of the manifest.
    if labels.is_class:
        lists = [row.label]
    for label in lists or ():
        if label is None or not 0 <= label < len(classes):
            yield check.table_problem(
                f"the label {label} is out of range: the dataset has"
                f" {plural(len(classes), 'class')}",
                number,
            )
            return
    # Everything else compares with the row, so its size must be right first.
    if record.size != row.size:
        message = f"the image has {record.size} bytes, but the table states {row.size}"
        yield check.shard_problem(message, number, record.offset)
        return
    # The label in the record, which readers of the shard alone use.
    components = check.manifest.components
    if record.label is None and components.label is not None:
        yield check.shard_problem(
            f"the record has no integer label under {shown(components.label)}, which the manifest"
            " names",
            number,
            record.start,
        )
    elif record.label is not None and row.label is not None:
        stored = record.label + components.label_offset
        if stored != row.label:
            yield check.shard_problem(
                f"the label is {stored}, but the table states {row.label}", number, record.start
            )
    if problem := _check_image(check, view, record, row, number):
        yield problem


def _check_image(
    check: ShardCheck, view: ByteView, record: Record, row: Sample, number: int
) -> Problem | None:
    """Compare an image with its table row; return the first problem."""
    in_image = partial(check.shard_problem, record=number, byte=record.offset)
    if record.size > MAX_BYTES:
        return in_image(f"the image has {record.size} bytes, but the limit is {MAX_BYTES}")
    image = read_bytes(view, record.offset, record.size)
    # Shards that were indexed without reading them have no checksums.
    if row.crc32c is not None and crc32c(image) != row.crc32c:
        last = record.offset + record.size - 1
        return in_image(f"the image in bytes {record.offset} to {last} does not match its checksum")
    try:
        info = _image_info(image, check)
    except Rejected as error:
        return _invalid_image(check, record, number, error)
    # An image that decodes must be the one that the row describes.
    if (info.width, info.height) != (row.width, row.height):
        return check.table_problem(
            f"row {number} states {row.width}x{row.height} pixels, but the image has"
            f" {info.width}x{info.height} pixels"
        )
    if check.was_converted:
        return _check_envelope(check, view, record, row, number, info.format)
    return None


def _invalid_image(check: ShardCheck, record: Record, number: int, error: Rejected) -> Problem:
    message = f"the image is not valid ({error.reason}): {error.detail}"
    problem = check.shard_problem(message, number, record.offset)
    limit = max_pixels_of(check.manifest)
    # Not the data is wrong, but this program.
    if error.reason == FAILED:
        return replace(problem, hint=FAILED_HINT)
    if error.reason == "too-large" and limit > check.max_pixels:
        return replace(
            problem,
            hint=f"the dataset was converted with --max-pixels {limit}; if you trust it, verify it with"
            " this option, too",
        )
    return problem


def _image_info(image: bytes, check: ShardCheck) -> ImageInfo:
    pixels = check.manifest.pixels
    if pixels is None:
        if check.decode:
            return check_image(image, "decode", check.max_pixels, check.manifest.kind)
        info = parse_header(image)
        check_pixel_kind(info, check.manifest.kind)
        return info
    needed = check.manifest.raw_bytes
    if len(image) != needed:
        shape = "x".join(map(str, pixels))
        raise Rejected("corrupt", f"{len(image)} bytes, but {shape} pixels need {needed}")
    height, width, _ = pixels
    return ImageInfo("raw", width, height, check.manifest.kind)


def _check_envelope(  # noqa: PLR0917
    check: ShardCheck, view: ByteView, record: Record, row: Sample, number: int, image_format: str
) -> Problem | None:
    """Compare the bytes around the image with what `dataprep convert` writes for the table row."""
    manifest = check.manifest
    classes, labels = manifest.classes, kind_with(manifest.label_type, manifest.images)
    others: list[OtherImage] = []
    for name in labels.others:
        offset, size, _ = (row.extra[column] for column in place_columns(name))
        # A sample may not have an image besides the first one.
        if not size and name != LABEL_IMAGE:
            continue
        what = _NOUNS.get(name, f"image {name!r}")
        try:
            others.append(_read_other(check, view, row, name))
        except Rejected as error:
            message = f"the {what} is not valid ({error.reason}): {error.detail}"
            return check.shard_problem(message, number, offset)
        if not others[-1].columns.items() <= row.extra.items():
            return check.table_problem(f"the table states another size of the {what}", number)
    # The records do not have the values that were joined to the row.
    if has_joined_table(manifest, check.shard):
        return None
    # Write the record again from the row, and compare it.
    lists = row.extra.get(labels.class_lists or "", ())
    sample = PendingSample(
        key=row.key,
        label=row.label,
        class_name="" if row.label is None else classes[row.label],
        info=ImageInfo(image_format, row.width, row.height),
        size=row.size,
        crc32c=row.crc32c or 0,
        source=row.source,
        extra=row.extra,
        labels=labels,
        class_names=tuple(classes[label] for label in lists),
        others=others,
    )
    envelope = check.format.envelope(sample)
    start = record.offset - len(envelope.head)
    for other, at in zip(others, envelope.others, strict=True):
        if start + at != row.extra[place_columns(other.name)[0]]:
            what = _NOUNS.get(other.name, f"image {other.name!r}")
            return check.table_problem(f"the table states another place of the {what}", number)
    # The first difference is enough to find the damage.
    for at, expected in ((start, envelope.head), (record.offset + record.size, envelope.tail)):
        actual = read_bytes(view, max(at, 0), len(expected))
        if actual != expected:
            message = "a byte around the image differs from what `dataprep convert` writes"
            return check.shard_problem(message, number, at + _first_difference(actual, expected))
    return None


#: What a label image is called in problems.
_NOUNS = {LABEL_IMAGE: "mask or depth map"}


def _read_other(check: ShardCheck, view: ByteView, row: Sample, name: str) -> OtherImage:
    """Return an image of a sample beside the first one.

    Raises:
        Rejected: it is not the image that the table describes, or not valid.

    """
    offset, size, crc = (row.extra[column] for column in place_columns(name))
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    data = read_bytes(view, offset, size)
    if len(data) != size or crc32c(data) != crc:
        raise Rejected(
            "corrupt",
            f"bytes {offset} to {offset + size - 1} do not match the checksum in the table",
        )
    # The pixels of a label image have another type.
    info = parse_header(data) if name == LABEL_IMAGE else _image_info(data, check)
    return OtherImage(name, data, info)


def _first_difference(actual: bytes, expected: bytes) -> int:
    """Return the first position at which two different byte strings differ."""
    for at, (first, second) in enumerate(zip(actual, expected, strict=False)):
        if first != second:
            return at
    return min(len(actual), len(expected))


# --- all records of a shard -------------------------------------------------------------------------


def check_records(
    check: ShardCheck, view: ByteView, size: int, rows: Sequence[Sample], problems: ProblemList
) -> list[str]:
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
    damaged: set[int | None] = set()
    row_of_offset = {row.offset: row_number for row_number, row in enumerate(rows)}

    def report(*found: Problem) -> None:
        problems.add(*found)
        damaged.update(problem.record for problem in found)

    for record in scan_past_damage(check, view, size):
        if isinstance(record, Problem):
            report(record)
            continue
        row_number = row_of_offset.pop(record.offset, None)
        if row_number is not None:
            report(*check_record(check, view, record, rows[row_number], row_number))
            index_lines.append(record.index_line)
        else:
            # A record without a row, of a rejected image, is named by its place.
            row_number = number
            # Images that were rejected have a record and no row, if another tool made the shard.
            if rows and check.manifest.rejected is None:
                report(
                    check.shard_problem("the record has no row in the table", number, record.start)
                )
        if row_number not in damaged:
            report(*check_framing(check, view, record, row_number))
        number += 1
        if number % REPORTED_IMAGES == 0:
            report_images(check.shard.name, REPORTED_IMAGES)
    # What is left are rows whose record the scan has not found.
    for offset, row_number in row_of_offset.items():
        if row_number not in damaged:
            message = "the record is missing, but the table has a row for it"
            report(check.shard_problem(message, row_number, min(offset, size)))
    return index_lines


def check_framing(
    check: ShardCheck, view: ByteView, record: Record, number: int
) -> Iterator[Problem]:
    """Check the redundancy of the record format: the CRCs of TFRecord, the padding of tar."""
    damage: RecordDamage | ShardError | None
    try:
        damage = check.format.find_damage(view, record, check.shard.name)
    except ShardError as error:
        damage = error
    if damage is not None:
        yield check.shard_problem(damage.message, number, damage.byte or record.start)


def scan_past_damage(check: ShardCheck, view: ByteView, size: int) -> Iterator[Record | Problem]:
    """Scan a shard. After a damaged record, yield a problem and continue at the next record in the index."""
    options = ScanOptions(check.manifest.components, check.label_key, texts=False)
    # The index says where records begin after a damaged one.
    starts: Sequence[int] = []
    with suppress(DatasetError):
        starts = record_starts(check.manifest.format, _read_index(check))
    start = 0
    while start < size:
        try:
            yield from check.format.scan(view, size, check.shard.name, options, start)
        except ShardError as error:
            byte, number = error.byte, error.record
            if byte is None:
                byte = start
            next_index = bisect_right(starts, byte)
            # The scan counts only from where it began, the index from the first record.
            if starts:
                number = max(next_index - 1, 0)
            yield check.shard_problem(error.message, number, byte)
            if next_index >= len(starts):
                return
            start = starts[next_index]
        else:
            return


def _read_index(check: ShardCheck) -> bytes:
    """Read the DALI index of a shard.

    Raises:
        IndexFileError: it is not a regular file, or is too long.
        StorageError: it cannot be read.

    """
    path = check.path(check.shard.index.name)
    with storage.translate_errors(path, "the file cannot be read"):
        return read_file(path, INDEX)


# --- the files of a shard ---------------------------------------------------------------------------


def verify_shard(check: ShardCheck) -> tuple[Shard, ProblemList]:
    """Check one shard with its index and table."""
    shard, problems, rows = check.shard, ProblemList(), list[Sample]()
    for file in shard.files[1:]:
        problems.add(*check_file(check.folder, file, kind_of(file.name), check.index_hint))
    for file, kind in _written_arrays(check):
        if file.name not in problems.counts:
            problems.add(*_check_array(check, file, kind))
    # A damaged table says nothing about the shard.
    if shard.table.name not in problems.counts:
        rows = _read_rows(check, problems)
    try:
        _check_shard_file(check, rows, problems)
    except UnreachableError:
        raise
    except DatasetError as error:
        problems.add(check.shard_problem(error.message))
    return shard, problems


def _written_arrays(check: ShardCheck) -> Iterator[tuple[File, ArrayKind]]:
    """Yield the array files that a shard was written with; later ones were joined to it."""
    kinds, shard = check.manifest.arrays, check.shard
    if len(shard.arrays) == len(kinds):
        yield from zip(shard.arrays, kinds.values(), strict=True)
        return
    own = {file.name: file for file in shard.arrays}
    for name, kind in kinds.items():
        file = own.get(array_file_name(os.path.splitext(shard.name)[0], name))
        if file is not None:
            yield file, kind


def check_file(folder: str, file: File, kind: FileKind, hint: str) -> Iterator[Problem]:
    """Compare the length and the checksum of a file with the manifest."""
    try:
        actual = storage.describe(folder, file.name, kind)
    except UnreachableError:
        raise
    except DatasetError as error:
        message = error.message
    else:
        message = differences(actual, file)
    if message:
        yield Problem(file.name, message, hint=hint)


def _check_array(check: ShardCheck, file: File, kind: ArrayKind) -> Iterator[Problem]:
    """Check what an array file with the right checksum contains."""
    path = check.path(file.name)
    with storage.translate_errors(path, "the file cannot be read"):
        content = read_file(path, ARRAY)
    try:
        finite = np.isfinite(array_in(content, kind, check.shard.samples, path)).all(axis=1)
    except TableError as error:
        yield Problem(file.name, error.message, hint=check.index_hint)
        return
    if not finite.all():
        row = int(finite.argmin())
        yield Problem(file.name, "a value is not a finite number", row, hint=check.index_hint)


def differences(actual: File, stated: File) -> str:
    """Return what is wrong with a file; empty if it is as the manifest states."""
    if actual.bytes != stated.bytes:
        return f"the file has {actual.bytes} bytes, but the manifest states {stated.bytes}"
    if stated.checksum not in (None, actual.checksum):
        return "the file does not match its checksum"
    return ""


def _read_rows(check: ShardCheck, problems: ProblemList) -> list[Sample]:
    try:
        manifest = check.manifest
        table = read_table(
            check.path(check.shard.table.name),
            label_type=manifest.label_type,
            images=manifest.images,
        )
    except TableError as error:
        problems.add(check.table_problem(error.message))
        return []
    if len(table) != check.shard.samples:
        problems.add(
            check.table_problem(
                f"the table has {plural(len(table), 'row')}, but the manifest states"
                f" {check.shard.samples}"
            )
        )
    return list(samples(table))


def _check_shard_file(check: ShardCheck, rows: list[Sample], problems: ProblemList) -> None:
    file = check.shard.file
    with storage.open_view(check.path(file.name), span=1 << 20) as (view, size):
        if size != file.bytes:
            message = f"the shard has {size} bytes, but the manifest states {file.bytes}"
            problems.add(check.shard_problem(message, byte=min(size, file.bytes)))
        lines = check_records(check, view, size, rows, problems)
        checksum = checksum_text(view.checksum(size)) if file.checksum is not None else None
    # A damaged shard gives other index lines, so the index is compared only if everything else is
    # intact.
    if not problems.counts and lines:
        actual, expected = _read_index(check), format_index(check.manifest.format, lines)
        if actual != expected:
            message, byte = (
                "the index does not match the shard",
                _first_difference(actual, expected),
            )
            problems.add(Problem(check.shard.index.name, message, None, byte, check.index_hint))
    # Bytes that no record owns: the end of a tar file, for example.
    if file.checksum != checksum and file.name not in problems.counts:
        message = "the shard does not match its checksum, but every record in it is intact"
        problems.add(check.shard_problem(message))
