"""Write what makes a revision complete, after its last shard: rejected images and the manifest. Undo an append."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from dataprep import storage
from dataprep.formats import FORMATS
from dataprep.images.base import DUPLICATE, EXTENSIONS, FAILED
from dataprep.labels.kinds import KINDS
from dataprep.ledger.fence import (
    begin_revision,
    check_owner,
    owned,
    owner_text,
    read_existing,
    replace_files,
    take_removal_over,
)
from dataprep.ledger.finished import (
    has_checksum,
    read_conversion,
    read_rejected,
    refuse_folders,
    stale_files,
)
from dataprep.ledger.state import (
    Folder,
    Journal,
    State,
    names_of_dataset,
    read_journal,
    remove_journal,
    unlisted_files,
)
from dataprep.plan.files import (
    ENDED_NAME,
    Job,
    PlannedAppend,
    StoredPlan,
    has_append_plan,
    plan_folder,
    read_plan,
    remove_empty_plan_folder,
    remove_plan,
)
from dataprep.run.inputs import read_base
from dataprep.shards.write import ShardResult, names_of_shard
from dataprep.storage.temporary import JOURNAL_NAME
from manifests.errors import CallError, StoppedError, StorageError
from manifests.files import MANIFEST, read_file
from manifests.process.text import printable
from manifests.schema import Added, File, Manifest, RejectedRow, Revision, Shard, Split, split_order
from manifests.serialization import file_of, numbered, old_manifest_name, parts
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    manifest_files,
    read_manifest,
    read_older,
    rejected_bytes,
)
from manifests.tables import SHARD_LIST_NAME, read_table

_log = logging.getLogger(__name__)


class ConvertResult(NamedTuple):
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
    failed: tuple[RejectedRow, ...] = ()
    notices: tuple[str, ...] = ()


class AppendResult(NamedTuple):
    """What an append did.

    Attributes:
        manifest: manifest of the newest revision.
        known: number of images of the source that were in the dataset before.
        revision: the revision that the whole source made or was appended in before; `None` if there
            is none.
        converted: what was written, with a manifest of only the new shards. `None` if there was
            nothing to append.
        new_classes: names of the classes that were added.
        notices: messages about the images that were in the dataset before, one line each.

    """

    manifest: Manifest
    known: int
    revision: int | None
    converted: ConvertResult | None
    new_classes: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


def write_dataset(job: Job, results: Sequence[ShardResult]) -> ConvertResult:
    """Write ``rejected.jsonl`` and the manifest, the manifest last.

    Args:
        job: what was converted.
        results: all shards of the job, in its order.

    """
    options = job.options
    nothing = Manifest(
        creator="convert",
        format=options.fmt,
        store=options.store,
        components=FORMATS[options.fmt].components(options.store, KINDS[job.label_type]),
        classes=job.classes,
        splits=(),
        rejected=_write_rejected(job.out, REJECTED_NAME, rejected_rows(job, results)),
        options={**options.as_json(), "plan": job.fingerprint},
        pixels=options.raw_pixels,
        label_type=job.label_type,
        images=job.image_names,
        kind=options.pixels,
        arrays=job.arrays,
    )
    manifest = _with_shards(nothing, job, results, job.splits)
    publish_manifest(job.out, manifest, empty_tables(results))
    _log.info("%s: the manifest is written", job.out)
    return read_result(job, results)


def publish_manifest(out: str, manifest: Manifest, obsolete: Iterable[str] = ()) -> None:
    """Write ``manifest.json``, unless it already exists, and remove the journal and files that are obsolete then.

    On a file system, the manifest is renamed twice: first to the name of the journal, then to its
    own name. So a kill never leaves a complete dataset with a journal or obsolete files, or an
    incomplete dataset without a journal. In an object store, a kill may leave all of them; see
    `clean_up`.
    """
    path, journal = os.path.join(out, MANIFEST_NAME), os.path.join(out, JOURNAL_NAME)
    # The list of shards, if the manifest has one, before the manifest that names it.
    *others, (_, data) = manifest_files(manifest).items()
    replace_files(out, others)
    if not others:
        storage.remove(os.path.join(out, SHARD_LIST_NAME))
    # In an object store, the manifest replaces nothing: it is written once all objects are right.
    is_written = read_existing(out, MANIFEST_NAME) == data
    if not is_written and not storage.has_locks(out):
        check_objects(out, manifest.plans[0], manifest.shards)
        storage.replace_file(path, data)
        is_written = True
    if not is_written:
        storage.write_partial(path, data)
        storage.publish_all([(storage.partial_path(path), journal)])
    # On a file system, the manifest has the name of the journal while obsolete files are removed.
    storage.remove_all(out, obsolete)
    if is_written:
        remove_journal(out, manifest.plans[0])
        return
    try:
        storage.publish_all([(journal, path)])
    except StorageError:
        # Another process that finishes the same dataset may have been faster.
        if read_existing(out, MANIFEST_NAME) != data:
            raise


def check_objects(out: str, plan: str, shards: Sequence[Shard]) -> None:
    """Look at every object of some shards, before a manifest in an object store lists them.

    Raises:
        LostFolderError: the folder does not belong to a run of this plan any more.
        StorageError: one is missing or has other content.

    """
    there = {entry.name: entry.stat().st_size for entry in storage.list_folder(out)}
    wrong, small = [], []
    # A listing tells the lengths. Indexes and tables are short: their checksums are compared too.
    for shard in shards:
        small += [shard.index, shard.table]
        for file in shard.files:
            if there.get(file.name) != file.bytes:
                wrong.append(file.name)
    if not wrong:
        found = storage.map_files(out, partial(has_checksum, out), small)
        for file, is_right in zip(small, found, strict=True):
            if not is_right:
                wrong.append(file.name)
    if wrong:
        check_owner(out, plan)
        raise StorageError(
            "the object is not as this run has written it",
            file=os.path.join(out, wrong[0]),
            hint="run the same command again: it writes the shard again",
        )


def read_result(job: Job, results: Sequence[ShardResult]) -> ConvertResult:
    """Describe a complete dataset; `results` are its shards."""
    manifest = read_manifest(job.out)
    rejected: list[RejectedRow] = []
    if manifest.rejected:
        rejected += read_rejected(job.out)
    return describe_result(job, results, manifest, rejected)


def describe_result(
    job: Job,
    results: Sequence[ShardResult],
    manifest: Manifest,
    rejected: Sequence[RejectedRow],
) -> ConvertResult:
    """Describe what a job has made.

    Args:
        job: what was converted.
        results: its shards.
        manifest: what the shards are described by.
        rejected: all rows of the images that are in no shard.

    """
    # Images that are in no shard, by reason.
    failed, copies = [], 0
    for row in rejected:
        copies += row["reason"] == DUPLICATE
        if row["reason"] == FAILED:
            failed.append(row)
    changes: dict[str, tuple[int, int, int]] = {}
    for result in results:
        for change, counts in (result.conversion.changes or {}).items():
            total = changes.get(change, (0, 0, 0))
            changes[change] = (total[0] + counts[0], total[1] + counts[1], total[2] + counts[2])
    return ConvertResult(
        manifest,
        images=job.images + len(job.rejected),
        bytes=job.bytes,
        resumed=sum(result.resumed for result in results),
        rejected=len(rejected) - copies,
        duplicates=copies,
        changes=changes,
        failed=tuple(failed),
        notices=job.notices,
    )


def rejected_rows(job: Job, results: Sequence[ShardResult]) -> list[RejectedRow]:
    """Return a row for each image of a job that is in no shard."""
    rows = [*job.rejected]
    for result in results:
        rows += result.conversion.rejected
    return rows


def empty_tables(results: Iterable[ShardResult]) -> list[str]:
    """Return the tables of shards without images, which only say that all were rejected."""
    return [result.table.name for result in results if result.shard is None]


def clean_up(folder: Folder, results: Iterable[ShardResult]) -> None:
    """Remove what a killed run left after it wrote the manifest, and what a late worker wrote then.

    Args:
        folder: a complete dataset.
        results: the finished shards, also without images.

    """
    storage.remove_all(folder.out, [*empty_tables(results), *stale_files(folder)])
    remove_journal(folder.out, folder.plan)


def _write_rejected(out: str, name: str, rows: Iterable[RejectedRow]) -> File | None:
    """Write a list of rejected images, if there are any; remove the list of a killed run if not."""
    path, in_order = os.path.join(out, name), sorted(rows, key=lambda row: row["source"])
    if not in_order:
        storage.remove(path)
        return None
    data = rejected_bytes(in_order)
    file = file_of(name, data)
    if not has_checksum(out, file):
        storage.replace_file(path, data)
    return file


def _shards_of(job: Job, results: Iterable[ShardResult]) -> dict[str, list[Shard]]:
    """Return the shards of a job that have images, by split, in the order of the plan."""
    # Shards whose images are all rejected have none here.
    shards = {result.name: result.shard for result in results}
    found: dict[str, list[Shard]] = {}
    for planned in job.shards:
        if shard := shards.get(planned.name):
            found.setdefault(planned.split, []).append(shard)
    return found


def _with_shards(
    old: Manifest, job: Job, results: Sequence[ShardResult], splits: Iterable[str]
) -> Manifest:
    """Return a manifest with the shards, the classes and the image extensions of a job.

    Args:
        old: the manifest, without them.
        job: what was converted.
        results: all shards of the job.
        splits: names of the splits of the new manifest, in order.

    """
    before, added = {split.name: split.shards for split in old.splits}, _shards_of(job, results)
    parts = []
    for name in splits:
        parts.append(Split(name, (*before.get(name, ()), *added.get(name, ()))))
    names = old.components
    if job.options.fmt == "webdataset" and job.options.store == "encoded":
        # Only the image extensions of these shards and of the dataset before.
        formats: set[str] = set()
        for result in results:
            formats.update(result.conversion.formats)
        found = []
        for name, extension in EXTENSIONS.items():
            if name in formats or (job.revision and extension in names.image):
                found.append(extension)
        names = replace(names, image=tuple(found) or ("jpg",))
    # The splits, classes and extensions replace the ones of the manifest before.
    return replace(old, components=names, classes=job.classes, splits=tuple(parts))


# --- an append without a new image ----------------------------------------------------------------


def write_ended(out: str, fingerprint: str, rows: Sequence[RejectedRow]) -> None:
    """Write the list of an append that rejected every new image.

    Remove the plan of another append, if there is one.

    Args:
        out: folder or URL of the dataset.
        fingerprint: fingerprint of the plan of the append.
        rows: the rows of the list.

    """
    if has_append_plan(out) and read_plan(out).fingerprint != fingerprint:
        remove_plan(out)
    folder = plan_folder(out)
    with storage.translate_errors(folder, "the folder cannot be made"):
        storage.make_folder(folder)
    data = rejected_bytes(sorted(rows, key=lambda row: row["source"]))
    storage.replace_file(os.path.join(folder, ENDED_NAME), data)


def has_ended(out: str) -> bool:
    """Return whether the append that is planned ended without a new image."""
    return storage.is_file(os.path.join(plan_folder(out), ENDED_NAME))


def remove_ended(out: str) -> None:
    """Remove the list, because another append begins."""
    storage.remove(os.path.join(plan_folder(out), ENDED_NAME))


# --- the next revision ----------------------------------------------------------------------------


def finish_append(
    base: Folder, job: Job, results: Sequence[ShardResult], append: PlannedAppend
) -> tuple[Manifest, ConvertResult]:
    """Write ``rejected.N.jsonl``, the old manifest under its new name, and ``manifest.json``, in this order.

    Then remove the tables of shards without images, and the mark; after a kill, `end_committed`
    does it.

    If every image was rejected, there is no new revision; see `dataprep.run.commit`.

    Args:
        base: the dataset.
        job: what was written.
        results: all shards of the job, in its order.
        append: what the job appends.

    Returns:
        The manifest of the newest revision, and what was appended.

    Raises:
        StorageError: another append has ended since this one began.

    """
    rejected, shards = rejected_rows(job, results), _shards_of(job, results)
    manifest = base.manifest
    # The next revision, or only the list of its images if every one was rejected.
    if shards:
        added = {}
        for split, own in shards.items():
            images = sum(shard.samples for shard in own)
            added[split] = Added(len(own), images)
        revision = Revision(
            parent=base.digest,
            source=append.source,
            source_digest=append.source_digest,
            splits=added,
            classes=len(job.classes),
            options={**job.options.as_json(), "plan": job.fingerprint},
        )
        names = split_order({*shards, *(split.name for split in manifest.splits)})
        manifest = replace(
            _with_shards(manifest, job, results, names),
            rejected=_write_all_rejected(base, job.revision, rejected, shards),
            revisions=(*manifest.revisions, revision),
        )
        publish_revision(base, manifest, parts(manifest)[-1].shards)
        _log.info("%s: the manifest of revision %d is written", base.out, job.revision)
    else:
        write_ended(base.out, job.fingerprint, rejected)
    # Not before: until the manifest is there, another `finish` needs these tables.
    remove_empty_shards(base, job.fingerprint, empty_tables(results))
    remove_journal(base.out, job.fingerprint)
    described = replace(manifest, splits=())
    if shards:
        described = parts(manifest)[job.revision]
    return manifest, describe_result(job, results, described, rejected)


def end_committed(base: Folder) -> None:
    """End an append that was killed after it wrote the manifest, or the list of its images."""
    if base.journal is not None:
        plan = base.journal.plan
        with owned(base.out, plan):
            remove_empty_shards(base, plan, unlisted_files(base.journal, base.manifest))
            if base.journal.action == "remove":
                remove_unlisted(base.out, base.journal, base.manifest)
        remove_journal(base.out, plan)


def remove_unlisted(out: str, journal: Journal, manifest: Manifest) -> None:
    """Remove the files of a journal that do not belong to the dataset any more."""
    there = storage.names_in(out)
    storage.remove_all(out, [name for name in unlisted_files(journal, manifest) if name in there])


def end_conversion(base: Folder) -> Folder:
    """Remove the journal of a conversion that was killed after the manifest, and stale files."""
    with owned(base.out, base.manifest.plans[-1]):
        storage.remove_all(base.out, stale_files(base))
    if base.journal is None or base.journal.action != "convert":
        return base
    remove_journal(base.out, base.journal.plan)
    return replace(base, journal=None)


def remove_empty_shards(base: Folder, plan: str, names: Iterable[str]) -> None:
    """Remove each of these tables that only records, for a resumed run, that all images of a shard were rejected.

    Other files of such a shard are from a run that was killed when its images were valid.
    """
    for table in names:
        shard, suffix = os.path.splitext(table)
        if suffix != ".parquet":
            continue
        conversion = read_conversion(plan, os.path.join(base.out, table))
        # If it has samples, the next append has a shard of this name already.
        if conversion and not conversion.samples:
            storage.remove_all(
                base.out, names_of_shard(base.manifest.format, shard, base.manifest.arrays)
            )


def _write_all_rejected(
    base: Folder,
    revision: int,
    rows: Iterable[RejectedRow],
    shards: Mapping[str, list[Shard]],
) -> File | None:
    """Write the list of all rejected images, unless the old list is also the new one; return the list.

    Images that could not be read before, and are in the new shards, are rejected no longer.
    """
    old = base.manifest.rejected
    # The old list, without images that could be read this time.
    listed: list[RejectedRow] = []
    if old:
        listed += read_rejected(base.out, old.name)
    before = listed
    if any(row["reason"] == "unreadable" for row in listed):
        written = set()
        for shard in chain.from_iterable(shards.values()):
            table = read_table(os.path.join(base.out, shard.table.name), ["source"])
            written.update(table["source"].to_pylist())
        before = []
        for row in listed:
            if row["reason"] != "unreadable" or row["source"] not in written:
                before.append(row)
    # With the new rows; an image that is tried again may be in the list already.
    known = {tuple(sorted(row.items())) for row in before}
    new = []
    for each in rows:
        if tuple(sorted(each.items())) not in known:
            new.append(each)
    name = numbered(REJECTED_NAME, revision)
    if new or before != listed:
        return _write_rejected(base.out, name, [*before, *new])
    # The list of a killed run goes.
    _write_rejected(base.out, name, ())
    return old


def publish_revision(base: Folder, manifest: Manifest, added: Sequence[Shard]) -> None:
    """Write the manifest of the next revision, after its shards and tables.

    Args:
        base: the dataset.
        manifest: the manifest of the next revision.
        added: its shards that have new files.

    Raises:
        StorageError: another program has changed the dataset since.

    """
    path = os.path.join(base.out, MANIFEST_NAME)
    *others, (_, data) = manifest_files(manifest).items()
    # Another process has ended the same append; the next one may replace the manifest at any moment.
    if read_file(path, MANIFEST) == data:
        return
    if not storage.has_locks(base.out):
        check_objects(base.out, manifest.plans[-1], added)
    replace_files(base.out, (*others, (old_manifest_name(base.manifest.revision), base.data)))
    if not storage.replace_unchanged(path, data, base.data):
        raise changed_error(base.out)


#: What a journal is of, for messages.
_ACTIONS: Mapping[str, str] = {"join": "join", "append": "append", "remove": "removal"}


def begin_in_place(base: Folder, journal: Journal, old: Collection[str] = ()) -> None:
    """Write the journal of a revision that adds no shards, or continue the same one.

    After a kill, the next run writes every file of the journal again, with the same bytes.

    Args:
        base: the dataset.
        journal: the journal.
        old: the files of the journal that the dataset has now, and will not have any more.

    Raises:
        CallError: another command is changing the dataset, or a file has one of the names.

    """
    out, what = base.out, _ACTIONS[journal.action]
    refuse_folders(out, (JOURNAL_NAME, *journal.files))
    mark = base.journal
    if base.state is State.COMPLETE:
        end_committed(base)
        there = storage.names_in(out).intersection(journal.files).difference(old)
        if there and read_journal(out) is None:
            raise CallError(
                f"{printable(out)} contains {min(there)!r}, which is not in its manifest",
                hint=f"move it away; a {what} needs this name",
            )
        if begin_revision(base, journal):
            return
        mark = read_journal(out)
    if mark is None or mark.plan != journal.plan:
        other = "another command"
        if mark is not None and mark.action == journal.action:
            other = f"another {what}"
        elif mark is not None and mark.action in _ACTIONS:
            article = "an" if mark.action == "append" else "a"
            other = f"{article} {_ACTIONS[mark.action]}"
        raise CallError(
            f"{other} has not ended in {printable(out)}: it was interrupted, or is running",
            hint=f"run the same command again, or `dataprep revert {out}` to undo what it wrote",
        )


def changed_error(out: str) -> StorageError:
    """Return the error that the dataset is not as it was when an append or a join began."""
    return StorageError(
        f"another program has changed the dataset since this command began{owner_text(out)}",
        file=os.path.join(out, MANIFEST_NAME),
        hint="run the same command again",
    )


def is_appended(plan: StoredPlan, out: str) -> bool:
    """Return whether everything in the plan of an append is in the dataset, or was rejected.

    Raises:
        CallError: it is not, and the append is not in progress any more, or the dataset has changed
            since.

    """
    base = read_base(out, option="")
    if not plan.shards or plan.fingerprint in base.manifest.plans or has_ended(out):
        return True
    is_planned = base.journal is not None and base.journal.plan == plan.fingerprint
    if not is_planned or plan.append is None or plan.append.parent != base.digest:
        raise CallError(
            f"the plan in {printable(out)} is of an append that was reverted, or that ended without"
            " a new image",
            hint="run `dataprep plan --append` again",
        )
    return False


# --- undo an append -------------------------------------------------------------------------------


class RevertResult(NamedTuple):
    """What `revert_dataset` did.

    Attributes:
        manifest: manifest of the revision that the dataset is at.
        removed: number of samples that were removed; 0 unless an append was undone.
        files: number of files that were removed.
        joined: columns of the join that was undone. Empty if none was.
        restored: number of samples that are back, because their removal was undone.

    """

    manifest: Manifest
    removed: int
    files: int
    joined: tuple[str, ...] = ()
    restored: int = 0


def revert_dataset(out: str) -> RevertResult:
    """Remove the files of an interrupted append; if there is none, the files of the newest revision.

    ``manifest.json`` is the old or the new one at any moment. After an interruption, the same call
    continues.

    Args:
        out: folder or URL of the dataset.

    Raises:
        CallError: `out` is not a complete dataset, or nothing was ever appended to it.
        ManifestError: a manifest is missing or damaged.
        StoppedError: another run is working in the folder, or a disk or a server fails.

    """
    base = read_base(out, option="")
    with storage.locked(out) as is_locked, storage.partials(out, is_alone=is_locked):
        base = end_conversion(read_base(out, option=""))
        journal = base.journal
        if journal and base.state is not State.COMPLETE and journal.plan != base.digest:
            if journal.action != "revert":
                journal = take_removal_over(out, journal)
            return _remove_files(base.manifest, journal, out, removed=0)
        if base.state is State.COMPLETE:
            end_committed(base)
        return _revert_newest(base)


def _revert_newest(base: Folder) -> RevertResult:
    manifest, out = base.manifest, base.out
    if not manifest.revisions:
        raise CallError(
            f"{printable(out)} is at revision 0: nothing was appended or joined to it",
            hint="only an append, a join or a removal can be reverted",
        )
    number = manifest.revision - 1
    if number < manifest.oldest:
        raise CallError(
            f"revision {manifest.revision} of {printable(out)} has scrubbed removed samples, so the"
            " older revisions are gone",
            hint="restore the dataset from a copy",
        )
    old, data = read_older(out, manifest, number)
    every = tuple(names_of_dataset(manifest))
    mark = Journal(action="revert", plan=base.digest, files=every)
    mark = replace(mark, files=tuple(unlisted_files(mark, old)))
    if base.state is not State.REVERTING and not begin_revision(base, mark):
        raise StoppedError(
            "another command is changing the revision", file=out, hint="wait until it ends"
        )
    with owned(out, mark.plan):
        is_replaced = storage.replace_unchanged(os.path.join(out, MANIFEST_NAME), data, base.data)
    if not is_replaced:
        raise StoppedError(
            f"another command has changed the revision since this revert began{owner_text(out)}",
            file=out,
            hint="see with `dataprep info` what is the newest one now, before you revert it",
        )
    removed = parts(manifest)[-1].shards
    result = _remove_files(old, mark, out, removed=sum(shard.samples for shard in removed))
    newest = manifest.revisions[-1]
    return result._replace(joined=newest.joined, restored=sum(newest.removed.values()))


def _remove_files(manifest: Manifest, mark: Journal, out: str, *, removed: int) -> RevertResult:
    there = storage.names_in(out)
    names = [name for name in unlisted_files(mark, manifest) if name in there]
    with owned(out, mark.plan):
        storage.remove_all(out, names)
    if has_append_plan(out):
        remove_plan(out)
    remove_empty_plan_folder(out)
    remove_journal(out, mark.plan)
    return RevertResult(manifest, removed, len(names))
