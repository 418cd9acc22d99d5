"""Repair a dataset: find damaged and missing files, rebuild them from the shards, or make them again from the source.

A file is replaced only by one with the length and the checksum in the manifest, so a repair can be
killed at any moment and run again. Intact files and the manifest are never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from dataprep import engines, storage
from dataprep.engines import LocalEngine
from dataprep.engines.local import InlinePool
from dataprep.formats import FORMATS
from dataprep.ledger.fence import check_manifest, replace_files
from dataprep.ledger.finished import read_conversion
from dataprep.ledger.state import Folder, State
from dataprep.plan.assign import ShardPlan, make_plan
from dataprep.plan.files import Job, job_of
from dataprep.progress import Progress
from dataprep.repair.rebuild import CheckTask, DamagedFile, check_shard, damage_of
from dataprep.run.base import options_of
from dataprep.run.convert import AppendPlan, plan_append
from dataprep.run.source import select_samples
from dataprep.run.work import planned_task
from dataprep.shards.segments import ShardTask
from dataprep.shards.write import write_files
from dataprep.sources import Source
from dataprep.verify.shard import manifest_of
from manifests.errors import CallError, DamagedError, SourceError, SourceVanishedError
from manifests.json_members import MemberError
from manifests.process.text import printable
from manifests.schema import File, Manifest, RejectedRow, Shard
from manifests.serialization import (
    file_of,
    manifest_digest,
    old_manifest_name,
    parts,
    revisions_of_shards,
)
from manifests.store import read_manifest, read_manifest_bytes, read_older, rejected_bytes

_SAME_SOURCE = (
    "set --src, and the options that say how to read it, as for the `dataprep convert` that made{}"
    " the dataset, or restore the file from a copy"
)


class RemakeTask(NamedTuple):
    """A shard to make again from the source.

    Attributes:
        task: the shard as ``dataprep convert`` writes it.
        shard: the shard in the manifest.
        names: the files to replace.

    """

    task: ShardTask
    shard: Shard
    names: set[str]


def remake_all(
    folder: str,
    manifest: Manifest,
    source: Source,
    found: dict[str, DamagedFile],
    check: storage.Check | None,
    *,
    workers: int,
) -> None:
    """Make the files that could not be rebuilt, and record in `found` what became of them.

    Args:
        folder: the dataset.
        manifest: its manifest.
        source: the source that it was made from.
        found: the damaged files, by name.
        check: see `dataprep.storage.guarded`; `None` to change nothing.
        workers: number of processes.

    """
    tasks = []
    suffix = FORMATS[manifest.format].SUFFIX
    # Each revision was planned on its own, with its own options.
    for number, part in enumerate(parts(manifest)):
        damaged = []
        for shard in part.shards:
            left = _unrepaired(shard, found)
            if left:
                damaged.append((shard, left))
        if not damaged:
            continue
        planned = _plan(folder, manifest, part, source, number, workers=workers)
        for shard, left in damaged:
            if isinstance(planned, str):
                which = f" revision {number} of" if manifest.revisions else ""
                _fail(found, left, planned, _SAME_SOURCE.format(which))
            elif check is None:
                _repair(found, left)
            else:
                samples, job, plans = planned
                own = plans[shard.name.removesuffix(suffix)]
                task = planned_task(replace(job, check=check), samples, own)
                tasks.append(RemakeTask(task, shard, left))
    if not tasks:
        return
    # Workers compare what they make with the checksums in the manifest.
    with closing(engines.run(remake, tasks, min(workers, len(tasks)))) as results:
        for shard, made, reason in results:
            _repair(found, made)
            _fail(found, _unrepaired(shard, found), reason, _SAME_SOURCE.format(""))


def _unrepaired(shard: Shard, found: Mapping[str, DamagedFile]) -> set[str]:
    """Return the damaged files of a shard that were not repaired."""
    return {file.name for file in shard.files if file.name in found and not found[file.name].repair}


def _repair(found: dict[str, DamagedFile], names: Iterable[str]) -> None:
    for name in names:
        found[name] = DamagedFile(name, found[name].damage, repair="made again from the source")


def _fail(found: dict[str, DamagedFile], names: Iterable[str], reason: str, hint: str) -> None:
    for name in names:
        found[name] = found[name]._replace(reason=reason, hint=hint)


def _plan(
    folder: str, manifest: Manifest, part: Manifest, source: Source, revision: int, *, workers: int
) -> tuple[Source, Job, dict[str, ShardPlan]] | str:
    """Return what a conversion or an append read, its job and its shards by name, or why they are not known."""
    planned = None
    try:
        # The same choice of samples as in the run that wrote the revision.
        options = options_of(part.options)
        source = select_samples(source, options, workers=workers)
        if revision:
            before, data = read_older(folder, manifest, revision - 1)
            base = Folder(out=folder, state=State.COMPLETE, data=data, newest=before)
            # An append planned only what the revision before did not have.
            with closing(LocalEngine(workers)) as engine:
                append = plan_append(source, base, options, name="", reader=engine, edits="ignore")
            if isinstance(append, AppendPlan):
                planned = append.source, append.job
        else:
            planned = source, job_of(source, make_plan(source, options), folder, options)
    except MemberError as error:
        return f"the options in the manifest are not options of this release ({error})"
    except (CallError, SourceError, SourceVanishedError) as error:
        return f"the source does not fit the options in the manifest ({error.message})"
    except DamagedError as error:
        return (
            "a file of an earlier revision, which has to be repaired first, is damaged"
            f" ({error.message})"
        )
    # The fingerprint of the plan tells whether the source is still the same.
    if planned is None or planned[1].fingerprint != part.plans[0]:
        versions = ", or other library versions made it" if options.changes_images else ""
        what = "the dataset" if not manifest.revisions else f"revision {revision}"
        return (
            f"{what} was not made from {printable(source.root)} ({source.layout}) as it is"
            f" now{versions}"
        )
    return *planned, {each.name: each for each in planned[1].shards}


def remake(task: RemakeTask) -> tuple[Shard, set[str], str]:
    """Make the files of a shard again, and replace damaged files whose new content has the right checksum.

    Returns:
        The shard, the files that were replaced, and why the others were not.

    """
    shard, folder = task.shard, task.task.out
    paths = [os.path.join(folder, file.name) for file in shard.files]
    try:
        # All three files are made: the table depends on the shard.
        conversion, table = write_files(task.task, InlinePool(), *paths)
        # Files that are intact are not replaced, not even by equal ones.
        names, pairs = set(), []
        made = (conversion.shard, conversion.index, table)
        for file, path in zip(shard.files, paths, strict=True):
            if file.name in task.names and file in made:
                names.add(file.name)
                pairs.append((storage.partial_path(path), path))
        with storage.guarded(folder, task.task.check):
            storage.publish_all(pairs)
    except SourceVanishedError as error:
        return shard, set(), error.message
    finally:
        storage.discard(paths)
    return shard, names, "images of the source were replaced since"


# --- all files of the dataset -----------------------------------------------------------------------


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
    # Before the manifest is parsed: one that replaces it meanwhile is noticed.
    check = partial(check_manifest, folder, [manifest_digest(read_manifest_bytes(folder))])
    manifest = read_manifest(folder)
    manifest_of.cache_clear()
    shards = manifest.shards
    workers = min(workers or engines.default_workers(), max(1, len(shards)))
    with ExitStack() as stack:
        if not dry_run:
            is_locked = stack.enter_context(storage.locked(folder))
            storage.check_partials([folder])
            stack.enter_context(storage.partials([folder], is_alone=is_locked, keeps_proofs=True))
            stack.enter_context(storage.guarded(folder, check))
        if progress:
            progress.start(sum(shard.samples for shard in shards), len(shards))
        found = {}
        # First what the shards themselves determine, then what needs the source.
        revisions = revisions_of_shards(manifest)
        tasks = [
            CheckTask(folder, shard, dry_run, check, revisions[shard.name]) for shard in shards
        ]
        with closing(engines.run(check_shard, tasks, workers)) as results:
            for shard, files in results:
                for file in files:
                    found[file.file] = file
                if progress:
                    progress.advance(shard.name, shard.samples)
        if source is not None and manifest.creator == "convert":
            fence = None if dry_run else check
            remake_all(folder, manifest, source, found, fence, workers=workers)
        # In the order of the manifest, not in which workers ended.
        damaged = [found[each.name] for each in manifest.shard_files if each.name in found]
        damaged += _repair_lists(folder, manifest, source, workers=workers, dry_run=dry_run)
    return RepairResult(tuple(damaged), len(shards))


def _repair_lists(
    folder: str, manifest: Manifest, source: Source | None, *, workers: int, dry_run: bool
) -> list[DamagedFile]:
    """Repair the lists of rejected images of all revisions; return the damaged lists and old manifests."""
    damaged = []
    # A revision may keep the list of the one before.
    lists = {}
    for revision in range(manifest.revision):
        try:
            old = read_older(folder, manifest, revision)[0]
            lists[old.rejected] = old
        except DamagedError as error:
            name, hint = old_manifest_name(revision), error.hint
            reason = "the newest manifest does not determine it"
            damaged.append(DamagedFile(name, error.message, reason=reason, hint=hint))
    lists[manifest.rejected] = manifest
    for rejected, each in lists.items():
        if rejected and (damage := damage_of(folder, rejected)):
            damaged.append(
                _repair_rejected(
                    folder, each, rejected, damage, source, workers=workers, dry_run=dry_run
                )
            )
    return damaged


def _repair_rejected(
    folder: str,
    manifest: Manifest,
    file: File,
    damage: str,
    source: Source | None,
    *,
    workers: int,
    dry_run: bool,
) -> DamagedFile:
    """Repair the list of rejected images from the source, and from the sample tables, which list the images of their shards."""
    rows: list[RejectedRow] = []
    for part in parts(manifest):
        if source and manifest.creator == "convert":
            # What the revision left out before any shard was written, if it was made from this source.
            with suppress(MemberError, CallError, SourceError, SourceVanishedError):
                rows += select_samples(source, options_of(part.options), workers=workers).rejected
        for shard in part.shards:
            table = os.path.join(folder, shard.table.name)
            conversion = read_conversion(part.plans[0], table)
            if conversion:
                rows += conversion.rejected
    # An image that several tables or the scan list is in the list once.
    unique = {tuple(sorted(row.items())): row for row in rows}
    data = rejected_bytes(sorted(unique.values(), key=lambda row: row["source"]))
    if file_of(file.name, data) == file:
        if not dry_run:
            replace_files(folder, [(file.name, data)])
        repair = "rebuilt from the sample tables" + " and the source" * bool(source)
        return DamagedFile(file.name, damage, repair)
    # What is left to do depends on how the dataset was made.
    hint = "restore the file from a copy"
    if not manifest.revision:
        hint = f"run the same `dataprep {manifest.creator}` again, or {hint}"
    if not source and manifest.creator != "index":
        hint = f"set --src to the source of the dataset, {hint}"
    return DamagedFile(
        file.name, damage, reason="the sample tables do not list all rejected images", hint=hint
    )
