"""Repair a dataset: find damaged and missing files, rebuild them from the shards, or make them again from the source.

A file is replaced only by one with the length and the checksum in the manifest, so a repair can be
killed at any moment and run again. Intact files and the manifest are never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

from awscrt.checksums import crc32c

from dataprep import engines, storage
from dataprep.ledger.finished import read_conversion
from dataprep.progress import Progress
from dataprep.repair.check import CheckTask, DamagedFile, check_shard, damage_of
from dataprep.repair.remake import listed_rejected, remake_all
from dataprep.sources import Source
from dataprep.verify.shard import manifest_of
from manifests.errors import DamagedError
from manifests.revisions import old_manifest_name, parts, revisions_of_shards
from manifests.schema import File, Manifest
from manifests.serialization import checksum_text
from manifests.store import read_manifest, read_older, rejected_bytes


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What `repair_dataset` found.

    Attributes:
        files: the damaged files, in the order of the manifest.
        shards: number of shards of the dataset.

    """

    files: tuple[DamagedFile, ...]
    shards: int


def repair_dataset(
    folder: str,
    source: Source | None = None,
    *,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> RepairResult:
    """Find damaged files by their checksums, and replace them.

    Args:
        folder: the dataset.
        source: the source that the dataset was made from; needed for shards, and for tables that a
            shard does not determine.
        dry_run: change nothing. Files that would be made from the source are not made.
        workers: number of processes. Default: the number of CPUs.
        progress: receives the checked shards.

    Raises:
        CallError: the folder does not exist.
        ManifestError: the manifest is missing or damaged.
        StoppedError: a file cannot be read or written, or another run is working in the folder.

    """
    manifest = read_manifest(folder)
    manifest_of.cache_clear()
    shards = [shard for split in manifest.splits for shard in split.shards]
    workers = min(workers or engines.default_workers(), max(1, len(shards)))
    with ExitStack() as stack:
        if not dry_run:
            is_locked = stack.enter_context(storage.locked(folder))
            storage.check_partials([folder])
            stack.enter_context(storage.partials([folder], is_locked=is_locked, keeps_proofs=True))
        if progress:
            progress.start(sum(shard.samples for shard in shards), len(shards))
        found: dict[str, list[DamagedFile]] = {}
        samples = {shard.name: shard.samples for shard in shards}
        revisions = revisions_of_shards(manifest)
        tasks = [CheckTask(folder, shard, dry_run, revisions[shard.name]) for shard in shards]
        with closing(engines.run(check_shard, tasks, workers)) as results:
            for name, files in results:
                found[name] = files
                if progress:
                    progress.advance(name, samples[name])
        broken = [shard for shard in shards if any(not file.repair for file in found[shard.name])]
        if broken and source is not None and manifest.creator == "convert":
            found |= remake_all(
                folder, manifest, broken, found, source, workers=workers, dry_run=dry_run
            )
        files = [file for shard in shards for file in found[shard.name]]
        old, damaged = _read_old_manifests(folder, manifest)
        files += damaged
        by_list = {
            each.rejected: each for each in (*old, manifest)
        }  # a revision may keep the list of the one before
        for each in by_list.values():
            files += _repair_rejected(folder, each, source, workers, dry_run=dry_run)
    return RepairResult(tuple(files), len(shards))


def _read_old_manifests(
    folder: str, manifest: Manifest
) -> tuple[list[Manifest], list[DamagedFile]]:
    """Return the manifests of the older revisions, and those that cannot be read."""
    old, damaged = [], []
    for revision in range(manifest.revision):
        try:
            old.append(read_older(folder, manifest, revision)[0])
        except DamagedError as error:
            name, reason = old_manifest_name(revision), "the newest manifest does not determine it"
            damaged.append(DamagedFile(name, error.message, reason=reason, hint=error.hint or ""))
    return old, damaged


def _repair_rejected(
    folder: str, manifest: Manifest, source: Source | None, workers: int, *, dry_run: bool
) -> Iterator[DamagedFile]:
    """Repair the list of rejected images from the sample tables, which list those of their shards, and the source."""
    file = manifest.rejected
    if file is None or not (damage := damage_of(folder, file)):
        return
    path = os.path.join(folder, file.name)
    found = (
        [*listed_rejected(manifest, source, workers)]
        if source and manifest.creator == "convert"
        else []
    )
    for part in parts(manifest):
        for shard in (shard for split in part.splits for shard in split.shards):
            table = os.path.join(folder, shard.table.name)
            conversion = read_conversion(str(part.options.get("plan")), table)
            found += conversion.rejected if conversion else []
    rows = {tuple(sorted(row.items())): dict(row) for row in found}
    data = rejected_bytes(sorted(rows.values(), key=lambda row: row["source"]))
    if File(file.name, len(data), checksum_text(crc32c(data))) == file:
        if not dry_run:
            storage.replace_file(path, data)
        yield DamagedFile(
            file.name,
            damage,
            repair="rebuilt from the sample tables" + " and the source" * bool(source),
        )
        return
    again = (
        f"run the same `dataprep {manifest.creator}` again, or " if not manifest.revision else ""
    )
    yield DamagedFile(
        file.name,
        damage,
        reason="the sample tables do not list all rejected images",
        hint=(
            ""
            if source or manifest.creator == "index"
            else "set --src to the source of the dataset, "
        )
        + f"{again}restore the file from a copy",
    )
