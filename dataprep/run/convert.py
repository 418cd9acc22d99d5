"""Convert a source into a dataset, or append it: plan, write the shards, then the manifest.

Every step can be interrupted and resumed; `dataprep.run.prepare` says how.

An append plans the new samples of the source. Until the new ``manifest.json`` replaces the old one,
in one step, the dataset is the old revision. An append that is killed leaves its shards and its
mark; the same call resumes it and writes the same bytes. ``plan --append``, ``work`` and ``finish``
do the same in separate processes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from dataprep import storage
from dataprep.engines import Engine
from dataprep.ledger.fence import begin_revision, check_owner, owned
from dataprep.ledger.finished import (
    check_output,
    find_final,
    refuse_folders,
    shard_of_file,
    stamps_of,
)
from dataprep.ledger.state import Folder, Journal, State, read_journal
from dataprep.options import Edits, Options
from dataprep.plan.assign import (
    ConversionPlan,
    ShardPlan,
    fingerprint_of,
    make_plan,
    shard_name,
    shard_number,
)
from dataprep.plan.files import PlannedAppend, has_plan, job_of, read_plan, remove_plan, write_plan
from dataprep.plan.splits import EmptySplitError
from dataprep.progress import Progress
from dataprep.run.commit import (
    AppendResult,
    ConvertResult,
    changed_error,
    end_committed,
    end_conversion,
    finish_append,
    read_result,
    remove_empty_shards,
    remove_ended,
    write_dataset,
)
from dataprep.run.edited import check_edits
from dataprep.run.inputs import check_columns, check_label_type, check_options, read_base
from dataprep.run.known import Known, describe_clips, find_known, find_retried, revision_with
from dataprep.run.prepare import Rereading, Resumable, prepared
from dataprep.run.removed import find_removed
from dataprep.run.work import Prepared, opened, says_what_is_kept, write_shards
from dataprep.shards.write import ShardResult, names_of_shard
from dataprep.sources import Source
from dataprep.sources.base import take_rows
from dataprep.sources.merge import extended_classes, relabel
from dataprep.storage.temporary import JOURNAL_NAME
from manifests.errors import CallError, LostFolderError
from manifests.process.text import printable
from manifests.records import keyword_record
from manifests.schema import Manifest
from manifests.serialization import numbered, of_revision, old_manifest_name, parts
from manifests.store import REJECTED_NAME
from manifests.tables import SHARD_LIST_NAME


def convert_dataset(
    source: Source,
    out: str,
    options: Options,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    check_shards: bool = False,
    progress: Progress | None = None,
    check_progress: Progress | None = None,
) -> ConvertResult:
    """Write the images of a source into shards, with indexes, sample tables and a manifest, in the folder `out`.

    Shards that an earlier run with the same source and options finished are kept. The bytes of
    every file depend neither on the number of workers nor on interruptions, except for
    `ledger.finished.STAMPS_NAME`.

    Args:
        source: the samples to convert.
        out: output folder; created if it does not exist.
        options: everything that determines the bytes.
        workers: number of processes; `None` means one per CPU.
        engine: runs the shard tasks instead of a new `LocalEngine`. Its workers may already be
            running; the thread that started them must live until this call returns. The engine is
            closed at the end. Finished shards are read again on this machine.
        overwrite: start over, and replace a dataset in `out` that was made from another source or
            with other options. Resumes only a run that was itself started with `overwrite`.
        check_shards: read the shards that an earlier run finished, and write one with another
            checksum again. The checksums of indexes and tables are always compared.
        progress: receives the finished shards, also the shards of earlier runs.
        check_progress: receives the finished shards that are read again: all with `check_shards`,
            and shards whose source images have other times than in the earlier run.

    Raises:
        CallError: the options do not fit the source, `out` cannot be used or contains another
            dataset, or its dataset is complete and images were replaced since.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    with opened(engine, workers) as (writer, reader):
        rereading = Rereading(check_shards, reader, check_progress)
        with (
            prepared(source, out, options, overwrite=overwrite, rereading=rereading) as run,
            says_what_is_kept(out, run.job.shards),
        ):
            results = write_shards(run, writer, progress)
            # A complete dataset is only described.
            describe = write_dataset
            if run.is_complete:
                describe = read_result
            return describe(run.job, results)


# --- plan, the first of three steps ---------------------------------------------------------------


def plan_dataset(
    source: Source, out: str, options: Options, *, overwrite: bool = False
) -> Resumable:
    """Write a plan into its folder; see `convert_dataset` for the arguments.

    Raises:
        CallError: the options do not fit the source, or `out` cannot be used, or contains another
            dataset or plan.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    with prepared(source, out, options, overwrite=overwrite, always_writes=True) as run:
        write_plan(source, run.job)
    try:
        if not storage.has_locks(out):
            check_owner(out, run.job.fingerprint)
    except LostFolderError:
        # Another run took the folder over while the last file was on its way.
        if has_plan(out) and read_plan(out).fingerprint == run.job.fingerprint:
            remove_plan(out)
        raise
    return run


# --- append: what its plan contains ---------------------------------------------------------------

#: Finds the samples of a source that are in a dataset, or are left out, as `find_known` does.
Find = Callable[[Folder, Source, Engine, Progress | None], Known]


@keyword_record
class AppendPlan(Prepared):
    """What an append writes: the new samples, with labels of the dataset.

    Attributes:
        base: the dataset.
        append: what the append adds, for the manifest.
        notices: messages about the samples that are in the dataset, one line each.

    """

    base: Folder
    append: PlannedAppend
    notices: tuple[str, ...] = ()

    @property
    def new_classes(self) -> tuple[str, ...]:
        """Names of the classes that the dataset does not have yet."""
        return self.job.classes[len(self.base.manifest.classes) :]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files that the append may write, except ``manifest.json``."""
        number, fmt = self.job.revision, self.job.options.fmt
        names = [numbered(name, number) for name in (REJECTED_NAME, SHARD_LIST_NAME)]
        names.append(old_manifest_name(number - 1))
        for shard in self.job.shards:
            names += names_of_shard(fmt, shard.name, self.job.arrays)
        return tuple(names)


def plan_append(
    source: Source,
    base: Folder,
    options: Options,
    *,
    name: str,
    reader: Engine,
    edits: Edits = "refuse",
    find: Find = find_known,
    progress: Progress | None = None,
) -> AppendPlan | AppendResult:
    """Plan the samples that are not in the dataset; return an `AppendResult` if there are none.

    Writes nothing. `edits` is what to do if images of the dataset are not in the source as they
    were. `find` finds the samples that are in the dataset.

    Raises:
        CallError, SourceError: as `append_dataset`.

    """
    # What fits the dataset at all; no image is read.
    check_options(base, options)
    check_label_type(base, source)
    number = revision_with(base, source)
    # Some of its samples may be removed since, or replaced by images of the same length.
    if base.manifest.removals or find is not find_known:
        number = None
    nothing = AppendResult(base.manifest, len(source), number, None)
    may_be_new = np.ones(len(source), np.bool_)
    if number is not None:
        before = parts(base.manifest)[number].options
        may_be_new = find_retried(base, source, before, options)
        # The digest of a source does not say what masks and other images contain.
        if not may_be_new.any() and not source.labels.others:
            return nothing
    # Which samples are new: images with the paths of known ones are read and compared.
    check_columns(base, source, options)
    classes = extended_classes(base.manifest.classes, source, printable(base.out))
    labelled = relabel(source, classes)
    try:
        found = find(base, labelled, reader, progress)
    except CallError as error:
        if number is None:
            raise
        return nothing._replace(
            notices=(
                f"the {source.labels.shown_others} of these images were not compared with the"
                f" {source.labels.shown_others} of the dataset: {error.message}",
            )
        )
    notices = (*found.notices, *check_edits(base, labelled, found, edits, reader))
    known = found.rows | ~may_be_new
    removed, left_out = find_removed(base, labelled, ~known, reader, progress)
    known |= removed
    notices = (*notices, *left_out)
    if known.all():
        return nothing._replace(notices=notices)
    # Plan the new samples. A split that would be empty is not made.
    new = take_rows(labelled, np.flatnonzero(~known)) if known.any() else labelled
    notices = (*notices, *describe_clips(base, new))
    try:
        made = make_plan(new, options)
    except EmptySplitError as error:
        notices = (*notices, f"{error.message}, so the new images stay in the splits of the source")
        options = replace(options, val_fraction=0.0, test_fraction=0.0)
        if options.duplicates != "same-split":
            options = replace(options, split_by=None)
        made = make_plan(new, options)
    # Their shards are numbered after the shards that the dataset has.
    shards = _numbered(base.manifest, made)
    # The same samples make another plan in another revision: names, keys and labels depend on it.
    fingerprint = hashlib.sha256(f"{made.fingerprint} {base.digest}".encode()).hexdigest()[:32]
    digest = fingerprint_of(source, options.as_json())
    append = _describe(base, name, digest, int((known & ~removed).sum()))
    job = replace(job_of(new, made, base.out, options), shards=shards, fingerprint=fingerprint)
    return AppendPlan(
        source=new,
        job=replace(job, revision=append.revision),
        base=base,
        append=append,
        notices=notices,
    )


def _describe(base: Folder, name: str, source_digest: str, known: int) -> PlannedAppend:
    return PlannedAppend(
        parent=base.digest,
        revision=base.manifest.revision + 1,
        source=name,
        source_digest=source_digest,
        known=known,
    )


def _numbered(manifest: Manifest, plan: ConversionPlan) -> tuple[ShardPlan, ...]:
    """Return the shards of a plan with names that follow the names in a dataset."""
    first: dict[str, int] = {}
    # The number of the next shard of each split.
    for split in manifest.splits:
        for listed in split.shards:
            number = shard_number(os.path.splitext(of_revision(listed.name, 0))[0])
            first[split.name] = max(first.get(split.name, 0), number + 1)
    shards = []
    for shard in plan.shards:
        number = first.get(shard.split, 0)
        first[shard.split] = number + 1
        shards.append(replace(shard, name=shard_name(shard.split, number)))
    return tuple(shards)


# --- prepare the folder of an append --------------------------------------------------------------


@contextmanager
def prepared_append(
    source: Source,
    out: str,
    options: Options,
    *,
    name: str,
    reader: Engine,
    edits: Edits = "refuse",
    find: Find = find_known,
    progress: Progress | None = None,
) -> Iterator[AppendPlan | AppendResult]:
    """Plan an append, lock the dataset, and write the mark.

    Args:
        source: the samples.
        out: folder or URL of a dataset that ``dataprep convert`` made.
        options: options of the conversion.
        name: name of the source, for the manifest.
        reader: reads images to compare them with the images of the dataset.
        edits: see `plan_append`.
        find: see `plan_append`.
        progress: receives these images.

    Yields:
        The plan, or an `AppendResult` if there is nothing to append.

    Raises:
        CallError, SourceError, StoppedError: as `append_dataset`.

    """
    with ExitStack() as stack:
        check_output(source, out)
        read_base(out)  # there may be no folder to lock
        is_locked = stack.enter_context(storage.locked(out))
        base = end_conversion(read_base(out))
        if base.state is State.REVERTING:
            raise CallError(
                f"--append: `dataprep revert` of {printable(out)} was interrupted",
                hint=f"run `dataprep revert {out}` again first",
            )
        planned = plan_append(
            source, base, options, name=name, reader=reader, edits=edits, find=find, progress=progress
        )  # fmt: skip
        if isinstance(planned, AppendPlan):
            stack.enter_context(storage.partials(out, is_alone=is_locked))
            planned = replace(planned, finished=_begin(planned))
            stack.enter_context(owned(out, planned.job.fingerprint))
            remove_ended(out)
        elif base.journal or storage.has_partials(out):
            with storage.partials(out, is_alone=is_locked):
                if base.state is State.COMPLETE:  # killed after it wrote the manifest
                    end_committed(base)
        yield planned


def _begin(planned: AppendPlan) -> dict[str, ShardResult]:
    """Write the journal, or resume its append: return the finished shards and remove what is not finished.

    Raises:
        CallError: there is the journal of another append, or a file that is not of this append has one
            of its names.

    """
    out, base = planned.base.out, planned.base
    new = Journal(
        action="append",
        plan=planned.job.fingerprint,
        files=planned.files,
        stamps=stamps_of(planned.source, planned.job),
    )
    refuse_folders(out, (JOURNAL_NAME, *new.files))
    # Begin: the journal is written while no file has one of the names.
    mark = base.journal
    if base.state is State.COMPLETE:
        end_committed(base)
        _refuse_files(base, new)
        if begin_revision(base, new):
            return {}
        mark = read_journal(out)
    if mark is None or mark.plan != new.plan:
        raise CallError(
            f"--append: another {mark.action if mark else 'append'} to {printable(out)} was"
            " interrupted, or is running",
            hint=(
                "run that command again to finish it (after `dataprep plan`: `dataprep work"
                f" {out}`, `dataprep finish {out}`), or `dataprep revert {out}` to remove what it"
                " wrote"
            ),
        )
    # Resume. The names are listed first: what appears later is of an equal append.
    there = storage.names_in(out)
    kept = _find_finished(planned, mark.stamps, new.stamps)
    is_locked = storage.has_locks(out)
    names = []
    for name in new.files:
        if shard_of_file(name) in kept or name.startswith("manifest."):
            continue
        # Without a lock, an equal append on another machine may write these files. Only a table that
        # is not valid has to go, because tables are not replaced as other files are.
        if is_locked or (name in there and name.endswith(".parquet")):
            names.append(name)
    if not is_locked:
        # The equal append may have ended meanwhile.
        now = read_base(out)
        if now.journal != mark or now.digest != base.digest:
            raise changed_error(out)
    with owned(out, new.plan):
        storage.remove_all(out, sorted(names, key=lambda name: name.endswith(".parquet")))
    return kept


def _refuse_files(base: Folder, mark: Journal) -> None:
    out = base.out
    if there := _present(out, mark.files):
        # A late `work` of an earlier append may have written tables of shards without images after
        # its end.
        for plan in base.manifest.plans[1:]:
            remove_empty_shards(base, plan, there)
        for name in _present(out, mark.files):
            now = read_base(out)
            if now.journal is not None:  # another machine has begun meanwhile
                return
            if now.digest != base.digest:
                raise changed_error(out)
            raise CallError(
                f"--append: {printable(out)} contains {name!r}, which is not in its manifest",
                hint="move it away; an append needs this name",
            )


def _present(out: str, names: Iterable[str]) -> list[str]:
    there = storage.names_in(out)
    return [name for name in names if name in there]


def _find_finished(
    planned: AppendPlan, before: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, ShardResult]:
    names = []
    for shard in planned.job.shards:
        # Another stamp: images of the shard may have been replaced since it was written.
        if before.get(shard.name) == now.get(shard.name):
            names.append(shard.name)
    return find_final(planned.job, names, {})


# --- append in one command ------------------------------------------------------------------------


def append_dataset(
    source: Source,
    out: str,
    options: Options,
    *,
    name: str,
    workers: int | None = None,
    engine: Engine | None = None,
    edits: Edits = "refuse",
    find: Find = find_known,
    progress: Progress | None = None,
    check_progress: Progress | None = None,
) -> AppendResult:
    """Append the samples of a source that are not in a dataset yet, as its next revision.

    Args:
        source: the samples.
        out: folder or URL of a dataset that ``dataprep convert`` made.
        options: options of the conversion, see `dataprep.run.inputs.inherited_options`.
        name: name of the source, for the manifest.
        workers: number of processes; `None` means one per CPU.
        engine: runs the shard tasks instead of a new `LocalEngine`. It is closed at the end.
        edits: what to do if images of the dataset are not in the source as they were.
        find: see `plan_append`.
        progress: receives the finished shards.
        check_progress: receives the images that are compared with images of the dataset.

    Raises:
        CallError: `out` is not a complete dataset, or the source or the options do not fit it.
        SourceError: a class does not fit the classes of the dataset, an image is in it in another
            class, or images of the dataset were moved, replaced or removed in the source.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    with (
        opened(engine, workers) as (writer, reader),
        prepared_append(
            source,
            out,
            options,
            name=name,
            reader=reader,
            edits=edits,
            find=find,
            progress=check_progress,
        ) as planned,
    ):
        if isinstance(planned, AppendResult):
            return planned
        with says_what_is_kept(out, planned.job.shards):
            results = write_shards(planned, writer, progress)
            manifest, converted = finish_append(planned.base, planned.job, results, planned.append)
    return AppendResult(
        manifest,
        planned.append.known,
        None,
        converted,
        planned.new_classes,
        planned.notices,
    )


# --- append in three steps ------------------------------------------------------------------------


def write_append_plan(
    source: Source,
    out: str,
    options: Options,
    *,
    name: str,
    workers: int | None = None,
    edits: Edits = "refuse",
    progress: Progress | None = None,
) -> AppendPlan | AppendResult:
    """Write the plan of an append into its folder.

    Takes the arguments of `append_dataset`, and raises its errors. If there is
    nothing to append, the plan has no shards, so `work` and `finish` have nothing to do.
    """
    with (
        opened(None, workers) as (_, reader),
        prepared_append(
            source, out, options, name=name, reader=reader, edits=edits, progress=progress
        ) as planned,
    ):
        if isinstance(planned, AppendPlan):
            write_plan(planned.source, planned.job, planned.append)
        else:
            base = read_base(out)
            if base.journal is None:  # else the folder has the plan of an append in progress
                _write_empty_plan(source, base, options, name)
        return planned


def _write_empty_plan(source: Source, base: Folder, options: Options, name: str) -> None:
    digest = hashlib.sha256(base.digest.encode()).hexdigest()[:32]
    nothing = replace(
        take_rows(source, np.zeros(0, np.int64)), rejected=(), classes=base.manifest.classes
    )
    plan, append = ConversionPlan((), digest), _describe(base, name, digest, len(source))
    with storage.partials(base.out, is_alone=True):
        write_plan(nothing, job_of(nothing, plan, base.out, options), append)
