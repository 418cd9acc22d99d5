"""Check one shard: the shard, its index and its table, each against the others and against its checksum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from dataprep import storage
from dataprep.verify.check import ShardCheck
from dataprep.verify.problems import Problem, ProblemList
from dataprep.verify.record import first_difference
from dataprep.verify.records import check_records, read_index
from manifests.dali_index import format_index
from manifests.errors import DatasetError, TableError, UnreachableError
from manifests.files import INDEX, TABLE, FileKind
from manifests.process.text import plural
from manifests.schema import File, Manifest, Sample, Shard
from manifests.serialization import checksum_text
from manifests.store import read_manifest
from manifests.tables import read_table, samples


class VerifyTask(NamedTuple):
    """A shard to check.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        decode: whether to decode every image.
        max_pixels: images with more pixels are not valid; `None` uses the limit in the manifest.

    """

    folder: str
    shard: Shard
    decode: bool
    max_pixels: int | None = None


class VerifiedShard(NamedTuple):
    """A checked shard.

    Attributes:
        name: path of the shard, relative to the dataset folder.
        samples: number of samples, from the manifest.
        bytes: length in bytes, from the manifest.
        problems: the first problems of each file.
        counts: the number of all problems of each file, by its name.
        has_checksum: whether the manifest has a checksum for the shard.

    """

    name: str
    samples: int
    bytes: int
    problems: tuple[Problem, ...]
    counts: Mapping[str, int]
    has_checksum: bool


def verify_shard(task: VerifyTask) -> VerifiedShard:
    """Check one shard with its index and table."""
    shard = task.shard
    check = ShardCheck(task.folder, shard, manifest_of(task.folder), task.decode, task.max_pixels)
    problems = ProblemList()
    problems.add(check_file(task.folder, shard.index, INDEX, check.index_hint))
    table_problems = list(check_file(task.folder, shard.table, TABLE, check.index_hint))
    problems.add(table_problems)
    rows = _read_rows(check, problems) if not table_problems else []
    try:
        _check_shard_file(check, rows, problems)
    except UnreachableError:
        raise
    except DatasetError as error:
        problems.add([check.shard_problem(error.message)])
    return VerifiedShard(
        name=shard.name,
        samples=shard.samples,
        bytes=shard.file.bytes,
        problems=tuple(problems.kept),
        counts=problems.counts,
        has_checksum=shard.file.checksum is not None,
    )


@lru_cache(maxsize=1)
def manifest_of(folder: str) -> Manifest:
    """Read the manifest once per worker process, instead of sending its classes with every task."""
    return read_manifest(folder)


def check_file(folder: str, file: File, kind: FileKind, hint: str) -> Iterator[Problem]:
    """Compare the length and the checksum of a file with the manifest."""
    try:
        actual = storage.describe(folder, file.name, kind)
    except UnreachableError:
        raise
    except DatasetError as error:
        yield Problem(file.name, error.message, hint=hint)
        return
    if actual.bytes != file.bytes:
        message = f"the file has {actual.bytes} bytes, but the manifest states {file.bytes}"
        yield Problem(file.name, message, hint=hint)
    elif file.checksum is not None and actual.checksum != file.checksum:
        yield Problem(file.name, "the file does not match its checksum", hint=hint)


def _read_rows(check: ShardCheck, problems: ProblemList) -> list[Sample]:
    try:
        table = read_table(check.path(check.shard.table.name), label_type=check.manifest.label_type)
    except TableError as error:
        problems.add([check.table_problem(error.message)])
        return []
    if len(table) != check.shard.samples:
        message = (
            f"the table has {plural(len(table), 'row')}, but the manifest states"
            f" {check.shard.samples}"
        )
        problems.add([check.table_problem(message)])
    return list(samples(table))


def _check_shard_file(check: ShardCheck, rows: list[Sample], problems: ProblemList) -> None:
    file = check.shard.file
    with storage.open_view(check.path(file.name), span=1 << 20) as (view, size):
        if size != file.bytes:
            message = f"the shard has {size} bytes, but the manifest states {file.bytes}"
            problems.add([check.shard_problem(message, byte=min(size, file.bytes))])
        index_lines = check_records(check, view, size, rows, problems)
        checksum = checksum_text(view.checksum(size)) if file.checksum is not None else None
    # A damaged shard gives other index lines, so the index is compared only if everything else is
    # intact.
    if not problems.counts and index_lines:
        problems.add(_check_index(check, index_lines))
    if file.checksum != checksum and file.name not in problems.counts:
        problems.add(
            [
                check.shard_problem(
                    "the shard does not match its checksum, but every record in it is intact"
                )
            ]
        )


def _check_index(check: ShardCheck, lines: list[str]) -> Iterator[Problem]:
    actual = read_index(check.path(check.shard.index.name))
    expected = format_index(check.manifest.format, lines)
    if actual != expected:
        yield check.index_problem(
            "the index does not match the shard", byte=first_difference(actual, expected)
        )
