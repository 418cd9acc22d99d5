"""Prepare the output folder of a conversion, also after a kill at any moment.

`dataprep.ledger.state` says what a kill leaves. `prepared` does these steps, in this order:

1. Lock the folder, if it is on a file system.
2. `inspect` it.
3. `find_resumable`: find the finished shards. A shard is finished when its sample table has its
   final name and lists a shard and an index that are intact (`dataprep.ledger.finished`). If the
   times of source images changed, or if the user asks for it, shards and their source images (the
   images of the samples, and their masks or depth maps) are read again. A shard for which an image
   could not be read is not finished: the image is tried again. Files of others are refused.
4. If the dataset is complete, remove what a run wrote that was killed after the manifest, or that
   had lost a folder in an object store. Else write the journal, and remove the files that this run
   writes again, the manifest first.
5. Write the stamps of the source images, and remove temporary files that dead processes left.

Every kill in between leaves a folder that the same call resumes. Then `convert` writes the shards
that are not finished and the manifest; `plan` writes the plan, for `work` and `finish`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow.compute as pc
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.engines import Engine
from dataprep.images.base import Rejected
from dataprep.ledger.fence import begin_conversion, check_owner, owned
from dataprep.ledger.finished import (
    STAMPS_NAME,
    check_output,
    dataset_files,
    foreign_files,
    has_all_of,
    is_final,
    is_intact,
    listed_files,
    lists_everything,
    read_finished,
    read_rejected,
    read_stamps,
    refuse_folders,
    shard_of_file,
    stamps_of,
    write_stamps,
)
from dataprep.ledger.state import Folder, State, inspect, refuse_appended
from dataprep.options import Options
from dataprep.plan.assign import make_plan
from dataprep.plan.files import (
    Job,
    check_plan,
    foreign_file_error,
    job_of,
    remove_empty_plan_folder,
    remove_plan,
)
from dataprep.progress import REPORTED_IMAGES, Progress, report_images
from dataprep.run.commit import clean_up, has_ended, remove_ended
from dataprep.run.inputs import options_members
from dataprep.run.work import Prepared, planned_task
from dataprep.shards.source_image import load_image, load_others
from dataprep.shards.write import ShardResult, ShardTask, names_of_shard
from dataprep.sources import Source
from dataprep.storage.temporary import JOURNAL_NAME
from manifests.errors import CallError, TableError
from manifests.labels import place_columns
from manifests.process.text import plural, printable
from manifests.records import keyword_record
from manifests.schema import Conversion
from manifests.store import MANIFEST_NAME
from manifests.tables import read_table

_log = logging.getLogger(__name__)


@keyword_record
class Resumable(Prepared):
    """A conversion, and what it finds in the output folder.

    Attributes:
        folder: what the folder contains.
        outdated: names of files to remove before shards are written, the manifest first.
        stamps: what `ledger.finished.write_stamps` is to record; empty if nothing new is known.

    """

    folder: Folder
    outdated: tuple[str, ...] = ()
    stamps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rereading:
    """How thoroughly to check finished shards.

    Their indexes and tables are always compared with their checksums.

    Attributes:
        shards: read the shards too; a shard with another checksum is written again.
        engine: reads shards and source images. `None` means this process.
        progress: receives the shards that are read again, with their source images.

    """

    shards: bool = False
    engine: Engine | None = None
    progress: Progress | None = None


@contextmanager
def prepared(
    source: Source,
    out: str,
    options: Options,
    *,
    overwrite: bool,
    rereading: Rereading = Rereading(),
    always_writes: bool = False,
) -> Iterator[Resumable]:
    """Plan a conversion, lock its output folder, and prepare it as the docstring of this module says.

    Args:
        source: the samples to convert.
        out: output folder.
        options: everything that determines the bytes.
        overwrite: start over.
        rereading: what to read again of finished shards.
        always_writes: the caller writes files even if the dataset is complete.

    Raises:
        CallError: the options do not fit the source, `out` cannot be used or contains another
            dataset, or its dataset is complete and images were replaced since.
        StoppedError: a problem outside of the program, for example another run in the folder.

    """
    check_output(source, out)
    job = job_of(source, make_plan(source, options), out, options)
    try:
        storage.make_folder(out)
    except OSError as error:
        raise CallError(
            f"--out {printable(out)}: the folder cannot be made ({error.strerror})",
            hint="make its parent writable for this user, or choose another folder with --out",
        ) from None
    with ExitStack() as stack:
        is_locked = stack.enter_context(storage.locked(out))
        # The list of an append without a new image does not outlive the dataset that it is of.
        has_ended_append = overwrite and has_ended(out)
        has_other_plan = check_plan(job, overwrite=overwrite)
        remove_empty_plan_folder(out)
        # In an object store, one listing tells what each of many small questions would ask.
        with storage.remember(out):
            run = find_resumable(source, job, overwrite=overwrite, rereading=rereading)
        stack.enter_context(owned(out, job.fingerprint))
        # From here on, files change.
        if run.is_complete:
            clean_up(run.folder, run.finished.values())
        is_unchanged = run.is_complete and not (has_other_plan or always_writes or run.stamps)
        if not is_unchanged or storage.has_partials(out):
            stack.enter_context(storage.partials(out, is_alone=is_locked, keeps_proofs=True))
            _replace_outdated(run, overwrite=overwrite)
            # Last, because a table among the temporary files can prove which run wrote an outdated
            # shard.
            storage.sweep(out, is_alone=is_locked)
        if has_other_plan:
            remove_plan(out)
            remove_empty_plan_folder(out)
        if has_ended_append:
            remove_ended(out)
        yield run


def _replace_outdated(run: Resumable, *, overwrite: bool) -> None:
    """Write the journal, and remove what this run replaces."""
    job, removing = run.job, overwrite and bool(run.outdated)
    if not run.is_complete:
        begin_conversion(run.folder, job.options, overwrite=overwrite and not removing)
    remove_outdated(run)
    if removing:  # from now on, the same call resumes this run
        check_owner(job.out, job.fingerprint)
        begin_conversion(inspect(job.out, job.fingerprint), job.options, overwrite=True)
    if run.stamps:  # after the old shards are gone, which have other stamps
        write_stamps(job, run.stamps)


def remove_outdated(run: Resumable) -> None:
    """Remove the files that this run writes again."""
    storage.remove_all(run.job.out, run.outdated)


# --- what earlier runs left -----------------------------------------------------------------------


def find_resumable(
    source: Source, job: Job, *, overwrite: bool, rereading: Rereading = Rereading()
) -> Resumable:
    """Find the shards of this plan that are finished. Nothing in the folder is changed.

    Args:
        source: the source of the plan.
        job: the plan to resume; its output folder may not exist yet.
        overwrite: keep nothing, except what an interrupted run with `overwrite` has written.
        rereading: what to read again.

    Raises:
        CallError: the run would replace a file that does not belong to this plan, or a folder; or
            the dataset is complete, but images of the source were replaced since.

    """
    out, options = job.out, job.options
    now = stamps_of(source, job)
    run = Resumable(
        source=source,
        job=job,
        folder=Folder(out=out, plan=job.fingerprint, state=State.EMPTY),
        stamps=now,
    )
    if not storage.is_folder(out):
        return run
    # Before anything is decided: what no run may touch.
    names = dataset_files(job.splits, out)
    refuse_folders(out, (MANIFEST_NAME, JOURNAL_NAME, STAMPS_NAME, *names))
    folder = inspect(out, job.fingerprint)
    if not overwrite:
        refuse_appended(folder)
        _refuse_grown(source, folder, options)
    # Finished shards, without shards whose source images may have been replaced since.
    kept = _intact_shards(job, folder, overwrite=overwrite)
    before = read_stamps(job)
    changed = {name for name in kept if now and now[name] != before.get(name)}
    run = replace(run, folder=folder, finished=kept)
    for result in _reread(run, changed, rereading):
        if result.replaced is not None and folder.files and not overwrite:
            raise _replaced_error(out, result.replaced, options)
        if result.is_damaged or result.replaced is not None:
            _log.info(
                "%s: written again, because its shard is damaged or a source image was replaced",
                result.name,
            )
            del kept[result.name]
    # What is left to write; if nothing is, whether the manifest is there.
    missing = [shard.name for shard in job.shards if shard.name not in kept]
    # The manifest lists no shard whose images are all rejected.
    is_finished = not missing or lists_everything(out, folder.files)
    for name in missing:
        if names_of_shard(options.fmt, name, ())[0] in folder.files or now.get(name) != before.get(
            name
        ):
            is_finished = False
    if not is_finished:
        return replace(run, outdated=_outdated(names, kept, out))
    if not has_all_of(out, folder.files):
        return run
    # Equal stamps need not be written again.
    return replace(run, is_complete=True, stamps={} if now == before else now)


def _refuse_grown(source: Source, folder: Folder, options: Options) -> None:
    """Check that a source has not grown since the dataset was made from it.

    Raises:
        CallError: it has.

    """
    if folder.state is not State.COMPLETE or folder.files:
        return
    manifest = folder.manifest
    shards = manifest.shards
    if options_members(manifest.options) != options.as_json() or not shards:
        return
    # The same options, more images, and every image of the first shard is still there.
    before = sum(shard.samples for shard in shards)
    if manifest.rejected:
        before += sum(1 for _ in read_rejected(folder.out))
    now = len(source) + len(source.rejected)
    path = os.path.join(folder.out, shards[0].table.name)
    if now <= before or not storage.is_file(path):
        return
    try:
        stored = read_table(path, ["source"], label_type=manifest.label_type)["source"]
    except TableError:
        return
    if pc.all(pc.is_in(stored.cast(source.path.type), source.path)).as_py():
        raise CallError(
            f"--out {printable(folder.out)} is complete, but the source has grown since: from"
            f" {before:,} to {plural(now, 'image')}",
            hint=(
                "set --append to add the new images, choose another folder, or make the dataset"
                " again with --overwrite"
            ),
        )


def _intact_shards(job: Job, folder: Folder, *, overwrite: bool) -> dict[str, ShardResult]:
    """Return the finished shards of the plan whose files are as their sample tables say, by name.

    Raises:
        CallError: a file belongs to something else, and `overwrite` does not allow to replace it.

    """
    out, names = job.out, [shard.name for shard in job.shards]
    find = partial(read_finished, job.fingerprint, out, in_manifest=folder.files)
    tables = list(storage.map_files(out, find, names))
    listed = listed_files(folder, names, tables)
    foreign = next(foreign_files(job, folder, listed), None)
    if foreign and not overwrite:
        raise foreign_file_error(out, foreign, job.options)
    # An interrupted run with `overwrite` is resumed; a new one keeps nothing.
    journal = folder.journal
    resumes = folder.state is State.WRITING and journal is not None and journal.overwrite
    if foreign or (overwrite and not resumes):
        return {}
    final = []
    for result in tables:
        if result and is_final(result):
            final.append(result)
    intact = storage.map_files(out, partial(is_intact, out), final)
    kept = {}
    for result, is_kept in zip(final, intact, strict=True):
        if is_kept:
            kept[result.name] = result
        else:
            _log.info("%s: written again, because its files are missing or damaged", result.name)
    return kept


def _outdated(names: Sequence[str], kept: Collection[str], out: str) -> tuple[str, ...]:
    """Return the files to remove.

    A kill in between must leave neither a manifest, nor a shard without its table.
    """
    outdated = []
    for name in (MANIFEST_NAME, STAMPS_NAME):
        if storage.exists(os.path.join(out, name)):
            outdated.append(name)
    # The tables last.
    for name in sorted(names, key=lambda name: name.endswith(".parquet")):
        if shard_of_file(name) not in kept:
            outdated.append(name)
    return tuple(outdated)


def _replaced_error(out: str, path: str, options: Options) -> CallError:
    if options.changes_images:
        message = (
            f"images of the source, {printable(path)} or others of its shard, may have been"
            " replaced"
        )
    else:
        message = f"image {printable(path)} of the source was replaced"
    return CallError(
        f"--out {printable(out)} is complete, but {message} since",
        hint="make the dataset again with --overwrite, or choose another folder",
    )


# --- finished shards that are read again ----------------------------------------------------------


class RereadTask(NamedTuple):
    """A finished shard to read again.

    Attributes:
        shard: the task that wrote it.
        conversion: the metadata in its sample table.
        compares_shard: whether to compare the shard with its checksum.
        compares_source: whether to compare the source images with their checksums.

    """

    shard: ShardTask
    conversion: Conversion
    compares_shard: bool
    compares_source: bool


class Reread(NamedTuple):
    """What was found.

    Attributes:
        name: the shard's file name without extension.
        is_damaged: whether the shard has another checksum.
        replaced: a source image, mask or depth map that is not the one in the shard; `None` if all
            are.

    """

    name: str
    is_damaged: bool = False
    replaced: str | None = None


def _reread_tasks(
    run: Resumable, changed: Collection[str], rereading: Rereading, names: Container[str]
) -> Iterator[RereadTask]:
    """Yield what to read again of each shard with one of these names."""
    for shard in run.job.shards:
        if shard.name in names:
            before = run.finished[shard.name]
            yield RereadTask(
                planned_task(run.job, run.source, shard),
                before.conversion,
                rereading.shards and before.shard is not None,
                shard.name in changed,
            )


def _reread(run: Resumable, changed: Collection[str], rereading: Rereading) -> Iterator[Reread]:
    """Read shards again, or the source images of shards that changed, or both.

    Yield what was found in each.
    """
    engine, progress = rereading.engine, rereading.progress
    images = {}
    for shard in run.job.shards:
        if shard.name in changed or (rereading.shards and shard.name in run.finished):
            images[shard.name] = len(shard.rows)
    if not images:
        return
    tasks = _reread_tasks(run, changed, rereading, images)
    if progress:
        progress.start(sum(images.values()), len(images))
    # Without an engine, the shards are read in this process.
    results: Iterable[Reread] = map(reread, tasks)
    if engine:
        results = engine.run(reread, tasks, len(images))
    for result in results:
        yield result
        if progress:
            progress.advance(result.name, images[result.name])


def reread(task: RereadTask) -> Reread:
    """Compare a shard with its checksum, and the source images with theirs.

    Raises:
        SourceVanishedError: an image is gone.

    """
    shard, file = task.shard, task.conversion.shard
    if task.compares_shard and storage.describe(shard.out, file.name) != file:
        return Reread(shard.name, is_damaged=True)
    return Reread(shard.name, replaced=_find_replaced(task) if task.compares_source else None)


def _find_replaced(task: RereadTask) -> str | None:
    """Return the path of the first image, mask or depth map that is not the one in the shard.

    `None` if all are.

    If the options change images, return the first path: the checksums in the table are then not
    checksums of the source.
    """
    shard, paths = task.shard, task.shard.images.paths
    if shard.options.changes_images:
        return paths[0]
    labels = [None] * len(paths)
    if shard.kind.others and shard.extra is not None:
        labels = shard.extra.to_pylist()
    try:
        stored = _stored_checksums(shard)
    except TableError:
        return paths[0]
    # A rejected image must be rejected again, for the same reason.
    reasons = {row["source"]: row["reason"] for row in task.conversion.rejected}
    # Only the bytes matter of an image that was valid.
    unchecked = replace(shard.options, validate="none")
    for at, (path, label) in enumerate(zip(paths, labels, strict=True)):
        if at % REPORTED_IMAGES == REPORTED_IMAGES - 1:
            report_images(shard.name, REPORTED_IMAGES)
        try:
            options = unchecked if path in stored else shard.options
            found = _checksums(shard, at, label, options)
        except Rejected as error:
            is_same = path not in stored and error.reason == reasons.get(path)
        else:
            is_same = stored.get(path) == found
            if label is not None and not is_same and stored.get(path, ())[:1] == found[:1]:
                # The first of the other images that differs.
                others = zip(shard.kind.other_sources, stored[path][1:], found[1:], strict=True)
                return str(next(label[source] for source, old, new in others if old != new))
        if not is_same:
            return path
    return None


def _stored_checksums(shard: ShardTask) -> dict[str, tuple[int, ...]]:
    """Return the checksum of each image in the shard, and of its mask or depth map, by the path of the image."""
    columns = ["crc32c"]
    columns += [place_columns(name)[2] for name in shard.kind.others]
    path = os.path.join(shard.out, f"{shard.name}.parquet")
    table = read_table(path, ["source", *columns], label_type=shard.label_type)
    values = table.select(columns).to_pydict().values()
    return dict(zip(table["source"].to_pylist(), zip(*values, strict=True), strict=True))


def _checksums(
    shard: ShardTask, at: int, label: Mapping[str, Any] | None, options: Options
) -> tuple[int, ...]:
    """Return the checksum of an image of a shard, and of its mask or depth map."""
    root, paths, sizes, locations = shard.images
    location, kind = locations[at], shard.kind
    data, *_, placement = load_image(
        root, paths[at], sizes[at], options, location, placed=kind.has_image
    )
    if label is None:
        return (crc32c(data),)
    others = load_others(root, label, placement, options, location, kind=kind)
    checksums = {other.name: crc32c(other.data) for other in others}
    return crc32c(data), *(checksums.get(name, 0) for name in kind.others)
