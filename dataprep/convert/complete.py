"""Write what makes a dataset complete, after its last shard: ``rejected.jsonl`` and the manifest."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.formats import components
from dataprep.images.base import DUPLICATE, EXTENSIONS, FAILED
from dataprep.options import Options
from dataprep.plan.job import Job
from dataprep.resume.finished import has_checksum, read_rejected
from dataprep.shards.write import ShardResult
from dataprep.storage.completion import mark_complete, remove_mark
from manifests.schema import Components, File, Manifest, Split
from manifests.serialization import checksum_text
from manifests.store import REJECTED_NAME, read_manifest, rejected_bytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConvertResult:
    """The dataset in the output folder, and totals that include the shards of earlier runs.

    Attributes:
        manifest: manifest of the dataset.
        images: number of images in the source, including rejected ones.
        bytes: total size of the images that were read, in bytes.
        resumed: number of shards that earlier runs wrote.
        rejected: number of images that were not written, without `duplicates`.
        duplicates: number of images that were left out because they are copies.
        changes: for each value of the column ``change``: number of samples, their total size in
            bytes in the source, and as stored. Empty if the options store every image unchanged.
        notices: messages about the new splits, one line each.
        failed: the rows of ``rejected.jsonl`` with the reason ``"failed"``: dataprep itself failed
            on these images.

    """

    manifest: Manifest
    images: int
    bytes: int
    resumed: int
    rejected: int
    duplicates: int
    changes: Mapping[str, tuple[int, int, int]]
    failed: tuple[Mapping[str, str], ...] = ()
    notices: tuple[str, ...] = ()


def write_dataset(job: Job, results: Sequence[ShardResult]) -> ConvertResult:
    """Write ``rejected.jsonl`` and the manifest, the manifest last.

    Args:
        job: what was converted.
        results: all shards of the job, in its order.

    """
    file = _write_rejected(job.out, rejected_rows(job, results))
    mark_complete(job.out, _build_manifest(job, results, file), empty_tables(results))
    _log.info("%s: the manifest is written", job.out)
    return read_result(job, results)


def read_result(job: Job, results: Sequence[ShardResult]) -> ConvertResult:
    """Describe a complete dataset; `results` are its shards."""
    manifest = read_manifest(job.out)
    rejected = [*read_rejected(job.out)] if manifest.rejected else []
    return describe_result(job, results, manifest, rejected)


def describe_result(
    job: Job,
    results: Sequence[ShardResult],
    manifest: Manifest,
    rejected: Sequence[Mapping[str, str]],
) -> ConvertResult:
    """Describe what a job has made.

    Args:
        job: what was converted.
        results: its shards.
        manifest: what the shards are described by.
        rejected: all rows of the images that are in no shard.

    """
    return ConvertResult(
        manifest,
        images=job.images + len(job.rejected),
        bytes=job.bytes,
        resumed=sum(result.resumed for result in results),
        rejected=len(rejected) - count_duplicates(rejected),
        duplicates=count_duplicates(rejected),
        changes=summed_changes(results),
        failed=tuple(row for row in rejected if row["reason"] == FAILED),
    )


def rejected_rows(job: Job, results: Sequence[ShardResult]) -> list[Mapping[str, str]]:
    """Return a row for each image of a job that is in no shard."""
    return [*job.rejected, *(row for result in results for row in result.conversion.rejected)]


def empty_tables(results: Iterable[ShardResult]) -> list[str]:
    """Return the names of the tables of shards without images: they only recorded that all images were rejected."""
    return [result.table.name for result in results if result.shard is None]


def clean_up(out: str, results: Iterable[ShardResult]) -> None:
    """Remove what is left of a run that was killed after it wrote the manifest, and what a late worker wrote then.

    Args:
        out: the output folder.
        results: the finished shards, with those that have no images.

    """
    for name in empty_tables(results):
        storage.remove(os.path.join(out, name))
    remove_mark(out)


def count_duplicates(rejected: Iterable[Mapping[str, str]]) -> int:
    """Return the number of rows of ``rejected.jsonl`` with images that were left out because they are copies."""
    return sum(row["reason"] == DUPLICATE for row in rejected)


def _write_rejected(out: str, rows: Sequence[Mapping[str, str]]) -> File | None:
    path = os.path.join(out, REJECTED_NAME)
    if not rows:
        storage.remove(path)
        return None
    data = rejected_bytes(sorted(rows, key=lambda row: row["source"]))
    file = File(REJECTED_NAME, len(data), checksum_text(crc32c(data)))
    if not has_checksum(out, file):
        storage.replace_file(path, data)
    return file


def _build_manifest(job: Job, results: Sequence[ShardResult], rejected: File | None) -> Manifest:
    options = job.options
    shards = {result.name: result.shard for result in results}
    return Manifest(
        creator="convert",
        format=options.fmt,
        store=options.store,
        components=with_formats(
            components(options.fmt, options.store, job.label_type),
            options,
            {name for result in results for name in result.conversion.formats},
        ),
        classes=job.classes,
        splits=tuple(
            Split(
                name,
                tuple(
                    shard
                    for planned in job.shards
                    if planned.split == name and (shard := shards[planned.name])
                ),
            )
            for name in job.splits
        ),
        rejected=rejected,
        options={**options.as_json(), "plan": job.fingerprint},
        pixels=options.raw.pixels if options.raw else None,
        label_type=job.label_type,
    )


def with_formats(every: Components, options: Options, image_formats: set[str]) -> Components:
    """Return where records store image and label.

    Of the image extensions, only those that the shards contain.
    """
    if options.fmt != "webdataset" or options.store != "encoded":
        return every
    extensions = tuple(extension for name, extension in EXTENSIONS.items() if name in image_formats)
    return replace(every, image=extensions or ("jpg",))


def summed_changes(results: Iterable[ShardResult]) -> dict[str, tuple[int, int, int]]:
    """Return the totals of each kind of change over all shards; see `ConvertResult.changes`."""
    totals: dict[str, tuple[int, int, int]] = {}
    for result in results:
        for change, (samples, before, after) in (result.conversion.changes or {}).items():
            total = totals.get(change, (0, 0, 0))
            totals[change] = (total[0] + samples, total[1] + before, total[2] + after)
    return totals
