"""Write what makes an append complete, after its last shard: the lists and manifests of the next revision."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.append.base import Base
from dataprep.append.mark import Mark, remove_mark, unlisted_files
from dataprep.append.rejected_only import write_ended
from dataprep.convert.complete import ConvertResult, describe_result, rejected_rows, with_formats
from dataprep.formats import FORMATS
from dataprep.images.base import EXTENSIONS
from dataprep.plan.job import Job
from dataprep.resume.finished import read_conversion, read_rejected
from dataprep.shards.write import ShardResult
from manifests.errors import StorageError
from manifests.files import MANIFEST, read_file
from manifests.revisions import numbered, old_manifest_name, part_of
from manifests.schema import Added, File, Manifest, Revision, Shard, Split, split_order
from manifests.serialization import checksum_text
from manifests.store import MANIFEST_NAME, REJECTED_NAME, manifest_files, rejected_bytes


def finish_append(
    base: Base, job: Job, results: Sequence[ShardResult], name: str, source_digest: str
) -> tuple[Manifest, ConvertResult]:
    """Write ``rejected.N.jsonl``, the old manifest under its new name, and ``manifest.json``, in this order.

    Then remove the tables of shards without images, and the mark; after a kill, `end_committed`
    does it.

    If every image was rejected, there is no new revision; see `dataprep.append.rejected_only`.

    Args:
        base: the dataset.
        job: what was written.
        results: all shards of the job, in its order.
        name: name of the source.
        source_digest: fingerprint of the whole source.

    Returns:
        The manifest of the newest revision, and what was appended.

    Raises:
        StorageError: another append has ended since this one began.

    """
    rejected = rejected_rows(job, results)
    shards = {result.name: shard for result in results if (shard := result.shard)}
    if not shards:
        write_ended(base.out, job.fingerprint, rejected)
    manifest = base.manifest
    if shards:
        manifest = _next_manifest(
            base, job, shards, {each for r in results for each in r.conversion.formats}
        )
        manifest = replace(
            manifest,
            rejected=_write_rejected(base, job.revision, rejected),
            revisions=(*base.manifest.revisions, _revision(base, job, shards, name, source_digest)),
        )
        _publish(base, manifest)
    # Not before: until the manifest is there, another `finish` needs these tables.
    remove_empty_shards(
        base, job.fingerprint, [result.table.name for result in results if not result.shard]
    )
    remove_mark(base.out, job.fingerprint)
    described = part_of(manifest, job.revision) if shards else replace(manifest, splits=())
    return manifest, describe_result(job, results, described, rejected)


def end_committed(base: Base, mark: Mark) -> None:
    """End an append that was killed after it wrote the manifest, or the list of one that rejected every image.

    Args:
        base: the dataset as it is now.
        mark: the mark of the append.

    """
    remove_empty_shards(base, mark.plan, unlisted_files(mark, base.manifest))
    remove_mark(base.out, mark.plan)


def remove_empty_shards(base: Base, plan: str, names: Iterable[str]) -> None:
    """Remove those of the named tables that only record, for a resumed run, that all images of a shard were rejected.

    Other files of such a shard are from a run that was killed when its images were valid.
    """
    for table in names:
        path, suffix = os.path.splitext(os.path.join(base.out, table))
        conversion = read_conversion(plan, path + suffix) if suffix == ".parquet" else None
        if (
            conversion and not conversion.samples
        ):  # else the next append has a shard of this name already
            for each in (FORMATS[base.manifest.format].SUFFIX, ".idx", suffix):
                storage.remove(path + each)


def _next_manifest(
    base: Base, job: Job, shards: Mapping[str, Shard], formats: set[str]
) -> Manifest:
    old = base.manifest
    new = {
        name: tuple(
            shards[each.name] for each in job.shards if each.split == name and each.name in shards
        )
        for name in job.splits
    }
    before = {split.name: split.shards for split in old.splits}
    names = split_order({*before, *(name for name, added in new.items() if added)})
    return replace(
        old,
        components=with_formats(old.components, job.options, formats | _formats(old)),
        classes=job.classes,
        splits=tuple(Split(name, (*before.get(name, ()), *new.get(name, ()))) for name in names),
    )


def _formats(manifest: Manifest) -> set[str]:
    """Return the image formats that a manifest names, by their extensions in WebDataset shards."""
    return {
        name for name, extension in EXTENSIONS.items() if extension in manifest.components.image
    }


def _revision(
    base: Base, job: Job, shards: Mapping[str, Shard], name: str, source_digest: str
) -> Revision:
    added = []
    for split in job.splits:
        own = [
            shards[each.name] for each in job.shards if each.split == split and each.name in shards
        ]
        if own:
            added.append((split, Added(len(own), sum(shard.samples for shard in own))))
    options = {**job.options.as_json(), "plan": job.fingerprint}
    return Revision(base.digest, name, source_digest, tuple(added), len(job.classes), options)


def _write_rejected(base: Base, revision: int, rows: Iterable[Mapping[str, str]]) -> File | None:
    """Write the list of all rejected images, unless the old list is also the new one.

    Return the list.
    """
    old = base.manifest.rejected
    before = [*read_rejected(base.out, old.name)] if old else []
    known = {tuple(sorted(row.items())) for row in before}
    new = [dict(row) for row in rows if tuple(sorted(row.items())) not in known]
    name = numbered(REJECTED_NAME, revision)
    if not new:
        storage.remove(
            os.path.join(base.out, name)
        )  # from a killed run that rejected images which are valid now
        return old
    data = rejected_bytes(sorted([*before, *new], key=lambda row: row["source"]))
    storage.replace_file(os.path.join(base.out, name), data)
    return File(name, len(data), checksum_text(crc32c(data)))


def _publish(base: Base, manifest: Manifest) -> None:
    path = os.path.join(base.out, MANIFEST_NAME)
    *others, (_, data) = manifest_files(manifest).items()
    if read_file(path, MANIFEST) == data:
        return  # another process has ended the same append; the next one may replace the manifest at any moment
    for name, content in (*others, (old_manifest_name(base.manifest.revision), base.data)):
        storage.replace_file(os.path.join(base.out, name), content)
    if not storage.replace_unchanged(path, data, base.data):
        raise changed_error(base.out)


def changed_error(out: str) -> StorageError:
    """Return the error that the dataset is not as it was when an append began."""
    return StorageError(
        "another program has changed the dataset since this append began",
        file=os.path.join(out, MANIFEST_NAME),
        hint="run the same command again",
    )
