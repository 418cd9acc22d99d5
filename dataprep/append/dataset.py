"""Append a source to a dataset: plan its new samples, write their shards, then the manifest of the next revision.

Until the new ``manifest.json`` replaces the old one, in one step, the dataset is the old revision. An append that is
killed leaves its shards and `mark.APPEND_MARK_NAME`; the same call resumes it and writes the same bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from dataprep import storage
from dataprep.append.base import Base, check_label_type, check_options, read_base
from dataprep.append.columns import check_columns
from dataprep.append.complete import finish_append
from dataprep.append.known import known_rows, revision_with
from dataprep.append.mark import Mark, create_mark, read_mark, remove_mark
from dataprep.convert.complete import ConvertResult
from dataprep.engines import Engine, LocalEngine
from dataprep.formats import FORMATS
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, fingerprint_of, make_plan, shard_name
from dataprep.plan.job import Job, SourceTasks, job_of
from dataprep.progress import Progress
from dataprep.resume.finished import is_final, is_intact, read_finished
from dataprep.resume.kept import says_what_is_kept
from dataprep.resume.output import check_output, refuse_folders
from dataprep.resume.stamps import stamps_of
from dataprep.shards.write import ShardResult, useful_workers, write_shard
from dataprep.sources import Source
from dataprep.sources.class_names import extended_classes, relabel
from dataprep.sources.select import take_rows
from manifests.errors import CallError
from manifests.revisions import APPEND_MARK_NAME, numbered, old_manifest_name
from manifests.schema import Manifest
from manifests.store import REJECTED_NAME, SHARD_LIST_NAME
from manifests.text import printable


@dataclass(frozen=True)
class AppendResult:
    """What an append did.

    Attributes:
        manifest: manifest of the newest revision.
        known: number of images of the source that were in the dataset before.
        revision: the revision that the whole source made or was appended in before; `None` if there is none.
        converted: what was written, with a manifest of only the new shards. `None` if nothing was to be done.
        new_classes: names of the classes that were added.

    """

    manifest: Manifest
    known: int
    revision: int | None
    converted: ConvertResult | None
    new_classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AppendPlan:
    """What an append writes.

    Attributes:
        base: the dataset.
        source: the new samples, with labels of the dataset.
        plan: their plan.
        job: the job of the plan.
        name: name of the source, for the manifest.
        source_digest: fingerprint of the whole source.
        known: number of samples that are in the dataset.

    """

    base: Base
    source: Source
    plan: ConversionPlan
    job: Job
    name: str
    source_digest: str
    known: int

    @property
    def new_classes(self) -> tuple[str, ...]:
        """Names of the classes that the dataset does not have yet."""
        return self.job.classes[len(self.base.manifest.classes) :]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files that the append may write, except ``manifest.json``."""
        suffixes = (FORMATS[self.job.options.fmt].SUFFIX, ".idx", ".parquet")
        number = self.job.revision
        lists = [numbered(name, number) for name in (REJECTED_NAME, SHARD_LIST_NAME)]
        shards = [shard.name + suffix for shard in self.plan.shards for suffix in suffixes]
        return (*shards, *lists, old_manifest_name(number - 1))


def append_dataset(
    source: Source,
    out: str,
    options: Options,
    *,
    name: str,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    check_progress: Progress | None = None,
) -> AppendResult:
    """Append the samples of a source that are not in a dataset yet, as its next revision.

    Args:
        source: the samples.
        out: folder or URL of a dataset that ``dataprep convert`` made.
        options: options of the conversion, see `dataprep.append.base.inherited_options`.
        name: name of the source, for the manifest.
        workers: number of processes; `None` means one per CPU.
        engine: runs the shard tasks instead of a new `LocalEngine`. It is closed at the end.
        progress: receives the finished shards.
        check_progress: receives the images that are compared with those of the dataset.

    Raises:
        CallError: `out` is not a complete dataset, or the source or the options do not fit it.
        SourceError: a class does not fit those of the dataset, or an image is in it in another class.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    engine = engine or LocalEngine(workers)
    reader = engine if engine.is_local else LocalEngine(workers)
    with ExitStack() as stack:
        stack.enter_context(closing(engine))
        stack.enter_context(closing(reader))
        check_output(source, out)
        read_base(out)  # there may be no folder to lock
        is_locked = stack.enter_context(storage.locked(out))
        storage.check_partials([out])
        base = read_base(out)
        mark = _checked_mark(base)
        planned = plan_append(source, base, options, name=name, reader=reader, progress=check_progress)
        if isinstance(planned, AppendResult):
            if mark or storage.has_partials(out):  # an append was killed after it wrote the manifest
                with storage.partials([out], is_locked=is_locked):
                    _remove_stale(base, mark)
            return planned
        stack.enter_context(storage.partials([out], is_locked=is_locked, keeps_proofs=False))
        finished = _begin(planned, mark)
        stack.enter_context(says_what_is_kept(out, [shard.name for shard in planned.plan.shards]))
        results = _write(planned, finished, engine, progress)
        manifest, converted = finish_append(planned.base, planned.job, results, planned.name, planned.source_digest)
        remove_mark(out)
    converted = replace(converted, notices=planned.plan.notices)
    return AppendResult(manifest, planned.known, None, converted, planned.new_classes)


# --- plan -----------------------------------------------------------------------------------------


def plan_append(
    source: Source, base: Base, options: Options, *, name: str, reader: Engine, progress: Progress | None = None
) -> AppendPlan | AppendResult:
    """Plan the samples that are not in the dataset; return an `AppendResult` if there are none. Writes nothing.

    Raises:
        CallError, SourceError: as `append_dataset`.

    """
    check_options(base, options)
    check_label_type(base, source)
    if (number := revision_with(base, source)) is not None:
        return AppendResult(base.manifest, len(source), number, None)
    check_columns(base, source, options)
    source_digest = fingerprint_of(source, options.as_json())
    classes = extended_classes(base.manifest.classes, source, printable(base.out))
    labelled = relabel(source, classes)
    known = known_rows(base, labelled, reader, progress)
    if known.all():
        return AppendResult(base.manifest, len(source), None, None)
    new = take_rows(labelled, np.flatnonzero(~known)) if known.any() else labelled
    made = make_plan(new, options)
    first = {split: base.next_number(split) for split in made.splits}
    seen: dict[str, int] = {}
    shards = []
    for shard in made.shards:
        count = seen[shard.split] = seen.get(shard.split, -1) + 1
        shards.append(replace(shard, name=shard_name(shard.split, first[shard.split] + count)))
    # The same samples make another plan in another revision: names, keys and labels depend on it.
    fingerprint = hashlib.sha256(f"{made.fingerprint} {base.digest}".encode()).hexdigest()[:32]
    plan = replace(made, shards=tuple(shards), fingerprint=fingerprint)
    job = replace(job_of(new, plan, base.out, options), revision=base.manifest.revision + 1)
    return AppendPlan(base, new, plan, job, name, source_digest, int(np.count_nonzero(known)))


# --- whose files are in the folder? ---------------------------------------------------------------


def _checked_mark(base: Base) -> Mark | None:
    """Return the mark of an append that has not ended.

    Raises:
        CallError: a removal has not ended.

    """
    mark = read_mark(base.out)
    if mark and mark.action == "revert":
        message = f"--append: `dataprep revert` of {printable(base.out)} was interrupted"
        raise CallError(message, hint=f"run `dataprep revert {base.out}` again first")
    return mark


def _remove_stale(base: Base, mark: Mark | None) -> None:
    """Remove the mark of an append that was killed after it wrote the manifest."""
    if mark and base.manifest.revisions and base.manifest.revisions[-1].options.get("plan") == mark.plan:
        remove_mark(base.out)


def _begin(planned: AppendPlan, mark: Mark | None) -> dict[str, ShardResult]:
    """Write the mark, or resume the append that it is of; return its finished shards and remove what is not finished.

    Raises:
        CallError: there is the mark of another append, or a file that is not of this append has one of its names.

    """
    out, base = planned.base.out, planned.base
    new = Mark("append", planned.plan.fingerprint, planned.files, stamps_of(planned.source, planned.plan))
    refuse_folders(out, (APPEND_MARK_NAME, *new.files))
    _remove_stale(base, mark)
    if mark is None or (base.manifest.revisions and base.manifest.revisions[-1].options.get("plan") == mark.plan):
        _refuse_files(out, new)
        if create_mark(out, new):
            return {}
        mark = read_mark(out)
    if mark is None or mark.plan != new.plan:
        raise CallError(
            f"--append: another append to {printable(out)} was interrupted, or is running",
            hint=f"run that command again to finish it, or `dataprep revert {out}` to remove what it wrote",
        )
    kept = _find_finished(planned, mark.stamps, new.stamps)
    names = [name for name in new.files if os.path.splitext(name)[0] not in kept and not name.startswith("manifest.")]
    for name in sorted(names, key=lambda name: name.endswith(".parquet")):
        storage.remove(os.path.join(out, name))
    return kept


def _refuse_files(out: str, mark: Mark) -> None:
    there = {entry.name for entry in storage.list_folder(out)}
    for name in mark.files:
        if name in there:
            raise CallError(
                f"--append: {printable(out)} contains {name!r}, which is not in its manifest",
                hint="move it away; an append needs this name",
            )


def _find_finished(planned: AppendPlan, before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, ShardResult]:
    out, fingerprint = planned.base.out, planned.plan.fingerprint
    names = [shard.name for shard in planned.plan.shards if before.get(shard.name) == now.get(shard.name)]
    found = storage.map_files(out, lambda name: read_finished(fingerprint, out, name, {}), names)
    return {result.name: result for result in found if result and is_final(result) and is_intact(out, result)}


# --- write ----------------------------------------------------------------------------------------


def _write(
    planned: AppendPlan, finished: Mapping[str, ShardResult], engine: Engine, progress: Progress | None
) -> list[ShardResult]:
    """Write the shards that are not finished; return all of them in the order of the plan."""
    shards = planned.plan.shards
    if progress:
        progress.start(len(planned.source), len(shards))
    if not engine.is_local:
        from dataprep.convert.machines import check_machines  # takes time, and a local engine needs no check

        check_machines(engine, planned.source, planned.base.out)
    left = [number for number, shard in enumerate(shards) if shard.name not in finished]
    tasks = SourceTasks(planned.source, planned.plan, planned.job, left, engine.workers)
    images = sum(len(shards[number].rows) for number in left)
    results: dict[str, ShardResult] = {}
    with closing(engine.run_with_pool(write_shard, tasks, useful_workers(len(tasks), images))) as written:
        for result in chain(finished.values(), written):
            results[result.name] = result
            if progress:
                progress.advance(result.name, result.conversion.images, resumed=result.resumed)
    return [results[shard.name] for shard in shards]
