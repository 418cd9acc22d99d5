"""Repair a dataset: find damaged and missing files, rebuild them from the shards, or make them again from the source.

A file is replaced only by one with the length and the checksum in the manifest, so a repair can be
killed at any moment and run again. Intact files and the manifest are never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from awscrt.checksums import crc32c

from dataprep import engines, storage
from dataprep.engines import LocalEngine
from dataprep.engines.local import InlinePool
from dataprep.formats import FORMATS
from dataprep.ledger.fence import check_manifest
from dataprep.ledger.finished import read_conversion
from dataprep.ledger.state import Folder, State
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, make_plan
from dataprep.plan.files import Job, job_of
from dataprep.progress import Progress
from dataprep.repair.rebuild import CheckTask, DamagedFile, check_shard, damage_of
from dataprep.run.append import plan_append
from dataprep.run.base import options_of
from dataprep.run.commit import AppendResult
from dataprep.run.source import select_samples
from dataprep.run.tasks import planned_task
from dataprep.shards.write import ShardTask, write_files
from dataprep.sources import Source
from dataprep.verify.check import manifest_of
from manifests.errors import CallError, DamagedError, SourceError, SourceVanishedError
from manifests.json_members import MemberError
from manifests.process.text import printable
from manifests.schema import File, Manifest, Shard
from manifests.serialization import (
    checksum_text,
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
        check: looks whether the dataset is still the same; see `dataprep.storage.guarded`.

    """

    task: ShardTask
    shard: Shard
    names: frozenset[str]
    check: storage.Check


def remake_all(  # noqa: PLR0917
    folder: str,
    manifest: Manifest,
    shards: Sequence[Shard],
    found: Mapping[str, list[DamagedFile]],
    source: Source,
    check: storage.Check,
    *,
    workers: int,
    dry_run: bool,
) -> dict[str, list[DamagedFile]]:
    """Make the files of shards that could not be rebuilt; return what became of them."""
    remade: dict[str, list[DamagedFile]] = {}
    tasks: list[RemakeTask] = []
    revisions = revisions_of_shards(manifest)
    for number in sorted({revisions[shard.name] for shard in shards}):
        own = [shard for shard in shards if revisions[shard.name] == number]
        planned = _plan(folder, manifest, number, source, workers)
        if isinstance(planned, str):
            which = f" revision {number} of" if manifest.revisions else ""
            hint = _SAME_SOURCE.format(which)
            remade |= {shard.name: _failed(found[shard.name], planned, hint) for shard in own}
        elif dry_run:
            remade |= {
                shard.name: _made(found[shard.name], {file.file for file in found[shard.name]})
                for shard in own
            }
        else:
            tasks += _tasks(own, found, *planned, check)
    if not tasks:
        return remade
    with closing(engines.run(remake, tasks, min(workers, len(tasks)))) as results:
        for shard_name, names, reason in results:
            files = _made(found[shard_name], names)
            remade[shard_name] = (
                _failed(files, reason, _SAME_SOURCE.format("")) if reason else files
            )
    return remade


def _tasks(  # noqa: PLR0917
    shards: Sequence[Shard],
    found: Mapping[str, list[DamagedFile]],
    source: Source,
    plan: ConversionPlan,
    job: Job,
    check: storage.Check,
) -> Iterator[RemakeTask]:
    planned = {each.name: each for each in plan.shards}
    suffix = FORMATS[job.options.fmt].SUFFIX
    for shard in shards:
        task = planned_task(job, source, planned[shard.name.removesuffix(suffix)])
        names = frozenset(file.file for file in found[shard.name] if not file.repair)
        yield RemakeTask(task, shard, names, check)


def _plan(
    folder: str, manifest: Manifest, revision: int, source: Source, workers: int
) -> tuple[Source, ConversionPlan, Job] | str:
    """Return what a conversion or an append read, its plan and its job, or why they are not known."""
    part = parts(manifest)[revision]
    try:
        options = options_of(part.options)
        source = select_samples(source, options, workers=workers)
        if revision:
            before, data = read_older(folder, manifest, revision - 1)
            planned = _plan_append(
                Folder(out=folder, state=State.COMPLETE, data=data, newest=before),
                source,
                options,
                workers,
            )
        else:
            plan = make_plan(source, options)
            planned = source, plan, job_of(source, plan, folder, options)
    except MemberError as error:
        return f"the options in the manifest are not those of this release ({error})"
    except (CallError, SourceError, SourceVanishedError) as error:
        return f"the source does not fit the options in the manifest ({error.message})"
    except DamagedError as error:
        return (
            "a file of an earlier revision, which has to be repaired first, is damaged"
            f" ({error.message})"
        )
    if planned is None or planned[1].fingerprint != part.plans[0]:
        versions = ", or other library versions made it" if options.changes_images else ""
        what = "the dataset" if not manifest.revisions else f"revision {revision}"
        return (
            f"{what} was not made from {printable(source.root)} ({source.layout}) as it is"
            f" now{versions}"
        )
    return planned


def listed_rejected(
    manifest: Manifest, source: Source, workers: int
) -> Iterator[Mapping[str, str]]:
    """Yield the images that each revision left out before any shard was written, if the source is that of it."""
    for part in parts(manifest):
        try:
            yield from select_samples(source, options_of(part.options), workers=workers).rejected
        except (MemberError, CallError, SourceError, SourceVanishedError):
            continue


def _plan_append(
    base: Folder, source: Source, options: Options, workers: int
) -> tuple[Source, ConversionPlan, Job] | None:
    with closing(LocalEngine(workers)) as engine:
        planned = plan_append(source, base, options, name="", reader=engine)
    return (
        None if isinstance(planned, AppendResult) else (planned.source, planned.plan, planned.job)
    )


def remake(task: RemakeTask) -> tuple[str, frozenset[str], str]:
    """Make the files of a shard again, and replace those that are damaged if the new ones have the right checksums.

    Returns:
        The name of the shard, the files that were replaced, and why the others were not.

    """
    shard, folder = task.shard, task.task.out
    paths = [os.path.join(folder, file.name) for file in (shard.file, shard.index, shard.table)]
    try:
        conversion, table = write_files(task.task, InlinePool(), *paths)
        made = {
            file.name for file in (conversion.shard, conversion.index, table) if file in shard.files
        }
        names = task.names & made
        pairs = [
            (storage.partial_path(path), path) for path in paths if os.path.basename(path) in names
        ]
        with storage.guarded(folder, task.check):
            storage.publish_all(pairs)
    except SourceVanishedError as error:
        return shard.name, frozenset(), str(error.message)
    finally:
        storage.discard(paths)
    missing = task.names - names
    return (
        shard.name,
        frozenset(names),
        "images of the source were replaced since" if missing else "",
    )


def _made(files: Sequence[DamagedFile], names: frozenset[str] | set[str]) -> list[DamagedFile]:
    return [
        (
            DamagedFile(file.file, file.damage, repair="made again from the source")
            if file.file in names and not file.repair
            else file
        )
        for file in files
    ]


def _failed(files: Sequence[DamagedFile], reason: str, hint: str) -> list[DamagedFile]:
    return [file if file.repair else file._replace(reason=reason, hint=hint) for file in files]


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
    check = partial(check_manifest, folder, manifest_digest(read_manifest_bytes(folder)))
    manifest = read_manifest(folder)
    manifest_of.cache_clear()
    shards = manifest.shards
    workers = min(workers or engines.default_workers(), max(1, len(shards)))
    with ExitStack() as stack:
        if not dry_run:
            is_locked = stack.enter_context(storage.locked(folder))
            storage.check_partials([folder])
            stack.enter_context(storage.partials([folder], is_locked=is_locked, keeps_proofs=True))
            stack.enter_context(storage.guarded(folder, check))
        if progress:
            progress.start(sum(shard.samples for shard in shards), len(shards))
        found: dict[str, list[DamagedFile]] = {}
        samples = {shard.name: shard.samples for shard in shards}
        revisions = revisions_of_shards(manifest)
        tasks = [
            CheckTask(folder, shard, dry_run, check, revisions[shard.name]) for shard in shards
        ]
        with closing(engines.run(check_shard, tasks, workers)) as results:
            for name, files in results:
                found[name] = files
                if progress:
                    progress.advance(name, samples[name])
        broken = [shard for shard in shards if any(not file.repair for file in found[shard.name])]
        if broken and source is not None and manifest.creator == "convert":
            found |= remake_all(
                folder, manifest, broken, found, source, check, workers=workers, dry_run=dry_run
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
        for shard in part.shards:
            table = os.path.join(folder, shard.table.name)
            conversion = read_conversion(part.plans[0], table)
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
