"""Repair a dataset: find damaged and missing files, rebuild them from the shards, or make them again from the source.

A file is replaced only by one with the length and the checksum in the manifest, so a repair can be killed at any moment
and run again. Intact files and the manifest are never changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import NamedTuple

from awscrt.checksums import crc32c

from dataprep import engines, storage
from dataprep.engines.inline import InlinePool
from dataprep.formats import FORMATS
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, key_of, make_plan
from dataprep.plan.job import job_of, shard_task
from dataprep.plan.stored import options_from_json
from dataprep.plan.where import filter_source
from dataprep.progress import Progress
from dataprep.repair.rebuild import rebuild
from dataprep.resume.finished import read_conversion
from dataprep.shards.write import ShardTask, write_files
from dataprep.sources import Source
from dataprep.verify.shard import manifest_of
from manifests.errors import CallError, DamagedError, DatasetError, SourceVanishedError, StoppedError, StorageError
from manifests.members import MemberError, parse_json
from manifests.schema import File, Manifest, Shard
from manifests.store import checksum_text, read_manifest, rejected_bytes
from manifests.text import printable

_SET_SRC = "set --src to the source of the dataset to make the file again, or restore it from a copy"
_SAME_SOURCE = (
    "set --src, and the options that say how to read it, as for the `dataprep convert` that made the dataset, or "
    "restore the file from a copy"
)


class DamagedFile(NamedTuple):
    """A damaged or missing file, and what `repair_dataset` did about it.

    Attributes:
        file: path relative to the dataset folder.
        damage: what is wrong with it.
        repair: how it was repaired, or will be without `dry_run`; empty if it cannot be.
        reason: why it cannot be repaired.
        hint: what to do instead.

    """

    file: str
    damage: str
    repair: str = ""
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What `repair_dataset` found.

    Attributes:
        files: the damaged files, in the order of the manifest.
        shards: number of shards of the dataset.

    """

    files: tuple[DamagedFile, ...]
    shards: int


class CheckTask(NamedTuple):
    """A shard to repair from its own bytes.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        dry_run: change nothing.

    """

    folder: str
    shard: Shard
    dry_run: bool


class RemakeTask(NamedTuple):
    """A shard to make again from the source.

    Attributes:
        task: the shard as ``dataprep convert`` writes it.
        shard: the shard in the manifest.
        names: the files to replace.

    """

    task: ShardTask
    shard: Shard
    names: frozenset[str]


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
        source: the source that the dataset was made from; needed for shards, and for tables that a shard does not
            determine.
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
        tasks = [CheckTask(folder, shard, dry_run) for shard in shards]
        with closing(engines.run(check_shard, tasks, workers)) as results:
            for name, files in results:
                found[name] = files
                if progress:
                    progress.advance(name, samples[name])
        broken = [shard for shard in shards if any(not file.repair for file in found[shard.name])]
        if broken and source is not None and manifest.creator == "convert":
            found |= _remake_all(folder, manifest, broken, found, source, workers=workers, dry_run=dry_run)
        files = [file for shard in shards for file in found[shard.name]]
        files += _repair_rejected(folder, manifest, source, dry_run=dry_run)
    return RepairResult(tuple(files), len(shards))


# --- from the shard -----------------------------------------------------------------------------


def check_shard(task: CheckTask) -> tuple[str, list[DamagedFile]]:
    """Check the files of one shard, and rebuild index and table if the shard is intact; return what was found."""
    manifest, shard = manifest_of(task.folder), task.shard
    damages = {file.name: _damage(task.folder, file) for file in (shard.file, shard.index, shard.table)}
    damages = {name: damage for name, damage in damages.items() if damage}
    is_intact = shard.name not in damages
    rebuilt: Mapping[str, bytes] = {}
    reason = "the shard itself is damaged"
    if damages and is_intact:
        reason = "what the shard contains does not determine its content"
        try:
            rebuilt = rebuild(task.folder, manifest, shard)
        except StoppedError:
            raise
        except DatasetError as error:
            reason = f"the shard cannot be read ({error.message})"
    hint = _SET_SRC if manifest.creator == "convert" else "restore the file from a copy, or run `dataprep index` again"
    files = []
    for name, damage in damages.items():
        if name in rebuilt:
            if not task.dry_run:
                storage.replace_file(os.path.join(task.folder, name), rebuilt[name])
            files.append(DamagedFile(name, damage, repair=f"rebuilt from {shard.name}"))
        elif name == shard.name:
            files.append(DamagedFile(name, damage, reason="a shard can only be made from its source", hint=hint))
        else:
            files.append(DamagedFile(name, damage, reason=reason, hint=hint))
    return shard.name, files


def _damage(folder: str, file: File) -> str:
    """Return what is wrong with a file; empty if it is as the manifest says.

    Raises:
        StorageError: it exists, but cannot be read.

    """
    path = os.path.join(folder, file.name)
    try:
        actual = storage.describe(folder, file.name)
    except StorageError:
        if storage.file_length(path) >= 0:
            raise
        return "the file is missing"
    except DamagedError as error:
        return error.message
    if actual.bytes != file.bytes:
        return f"the file has {actual.bytes} bytes, but the manifest states {file.bytes}"
    return "the file does not match its checksum" if file.checksum not in (None, actual.checksum) else ""


# --- from the source ----------------------------------------------------------------------------


def _remake_all(
    folder: str,
    manifest: Manifest,
    shards: Sequence[Shard],
    found: Mapping[str, list[DamagedFile]],
    source: Source,
    *,
    workers: int,
    dry_run: bool,
) -> dict[str, list[DamagedFile]]:
    """Make the files of shards that could not be rebuilt; return what became of them."""
    planned = _plan(manifest, source)
    if isinstance(planned, str):
        return {shard.name: _failed(found[shard.name], planned, _SAME_SOURCE) for shard in shards}
    source, options, plan = planned
    if dry_run:
        return {shard.name: _made(found[shard.name], {file.file for file in found[shard.name]}) for shard in shards}
    job = job_of(source, plan, folder, options)
    rows = {planned.name: planned.rows for planned in plan.shards}
    suffix = FORMATS[options.fmt].SUFFIX
    tasks = []
    for shard in shards:
        name = shard.name.removesuffix(suffix)
        keys = [key_of(row) for row in rows[name].tolist()]
        names = frozenset(file.file for file in found[shard.name] if not file.repair)
        tasks.append(RemakeTask(shard_task(job, name, source, rows[name], keys), shard, names))
    remade = {}
    with closing(engines.run(remake, tasks, min(workers, len(tasks)))) as results:
        for shard_name, names, reason in results:
            files = _made(found[shard_name], names)
            remade[shard_name] = _failed(files, reason, _SAME_SOURCE) if reason else files
    return remade


def _plan(manifest: Manifest, source: Source) -> tuple[Source, Options, ConversionPlan] | str:
    """Return what the conversion read, its options and its plan, or why they are not known."""
    members = {name: value for name, value in manifest.options.items() if name != "plan"}
    try:
        options = options_from_json(parse_json(json.dumps(members).encode()))
        if options.where is not None:
            source = filter_source(source, options.where)
        plan = make_plan(source, options)
    except MemberError as error:
        return f"the options in the manifest are not those of this release ({error})"
    except CallError as error:
        return f"the source does not fit the options in the manifest ({error.message})"
    if plan.fingerprint != manifest.options.get("plan"):
        versions = ", or other library versions made it" if options.changes_images else ""
        return f"the dataset was not made from {printable(source.root)} as it is now{versions}"
    return source, options, plan


def remake(task: RemakeTask) -> tuple[str, frozenset[str], str]:
    """Make the files of a shard again, and replace those that are damaged if the new ones have the right checksums.

    Returns:
        The name of the shard, the files that were replaced, and why the others were not.

    """
    shard, folder = task.shard, task.task.out
    paths = [os.path.join(folder, file.name) for file in (shard.file, shard.index, shard.table)]
    try:
        conversion, table = write_files(task.task, InlinePool(), *paths)
        made = {file.name for file in (conversion.shard, conversion.index, table) if file in _files(shard)}
        names = task.names & made
        pairs = [(storage.partial_path(path), path) for path in paths if os.path.basename(path) in names]
        storage.publish_all(pairs)
    except SourceVanishedError as error:
        return shard.name, frozenset(), str(error.message)
    finally:
        storage.discard(paths)
    missing = task.names - names
    return shard.name, frozenset(names), "images of the source were replaced since" if missing else ""


def _files(shard: Shard) -> tuple[File, ...]:
    return shard.file, shard.index, shard.table


def _made(files: Sequence[DamagedFile], names: frozenset[str] | set[str]) -> list[DamagedFile]:
    return [
        DamagedFile(file.file, file.damage, repair="made again from the source")
        if file.file in names and not file.repair
        else file
        for file in files
    ]


def _failed(files: Sequence[DamagedFile], reason: str, hint: str) -> list[DamagedFile]:
    return [file if file.repair else file._replace(reason=reason, hint=hint) for file in files]


# --- rejected.jsonl -----------------------------------------------------------------------------


def _repair_rejected(folder: str, manifest: Manifest, source: Source | None, *, dry_run: bool) -> Iterator[DamagedFile]:
    """Repair the list of rejected images from the sample tables, which list those of their shards."""
    file = manifest.rejected
    if file is None or not (damage := _damage(folder, file)):
        return
    path = os.path.join(folder, file.name)
    rows = [dict(row) for row in source.rejected] if source else []
    for split in manifest.splits:
        for shard in split.shards:
            table = os.path.join(folder, shard.table.name)
            conversion = read_conversion(str(manifest.options.get("plan")), table)
            rows += [dict(row) for row in conversion.rejected] if conversion else []
    data = rejected_bytes(sorted(rows, key=lambda row: row["source"]))
    if File(file.name, len(data), checksum_text(crc32c(data))) == file:
        if not dry_run:
            storage.replace_file(path, data)
        yield DamagedFile(file.name, damage, repair="rebuilt from the sample tables")
        return
    again = "dataprep index" if manifest.creator == "index" else "dataprep convert"
    yield DamagedFile(
        file.name,
        damage,
        reason="the sample tables do not list all rejected images",
        hint=f"run the same `{again}` again, or restore the file from a copy",
    )
