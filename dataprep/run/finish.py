"""Finish a dataset whose shards `work` has written: check all of them, write the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from dataprep import storage
from dataprep.canary import check_canary
from dataprep.engines import Engine, LocalEngine
from dataprep.ledger.fence import check_owner, owned
from dataprep.ledger.finished import find_shard, has_all_of, read_rejected
from dataprep.ledger.state import Files, Folder, inspect, refuse_appended
from dataprep.plan.files import ENDED_NAME, Job, PlannedAppend, StoredPlan, plan_folder, read_plan
from dataprep.progress import Progress
from dataprep.run.commit import (
    AppendResult,
    ConvertResult,
    clean_up,
    describe_result,
    end_committed,
    finish_append,
    has_ended,
    is_appended,
    publish_manifest,
    read_result,
    write_dataset,
)
from dataprep.run.inputs import read_base
from dataprep.run.work import recorded_tasks
from dataprep.shards.write import ShardResult, names_of_shard
from manifests.errors import StoppedError, StorageError
from manifests.process.text import agree, plural, printable

#: The arguments of `find_shard`, with the files of only this shard in the manifest, if there is one.
_CheckTask = tuple[str, str, str, Files]


def check_shard(task: _CheckTask) -> tuple[str, ShardResult | None]:
    """Look for a shard: its table must be whole, the index have its checksum and the shard its length."""
    return task[2], find_shard(*task)


def finish(
    out: str,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> ConvertResult | AppendResult:
    """Check that every shard of a plan is there, then write ``rejected.jsonl`` and the manifest.

    It can be called any number of times, also by several processes at once.

    Args:
        out: output folder with a plan.
        workers: number of processes; `None` means one per CPU.
        engine: checks the shards instead of a new `LocalEngine`. It is closed at the end.
        progress: receives the shards; a missing shard has no images.

    Raises:
        CallError: there is no plan, or its append is not in progress any more.
        PlanError: the plan is damaged or was changed.
        StoppedError: shards are missing, or another problem outside of the program.

    """
    plan = read_plan(out)
    check_canary(plan.machine)  # tables are compared with the bytes that this machine would write
    engine = engine or LocalEngine(workers)
    with storage.locked(out, shared=True), owned(out, plan.fingerprint), closing(engine):
        if plan.append is None:
            return _finish_conversion(plan.job(out), engine, progress)
        return _finish_append(plan, plan.append, out, engine, progress)


def _finish_conversion(job: Job, engine: Engine, progress: Progress | None) -> ConvertResult:
    out = job.out
    folder = inspect(out, job.fingerprint)
    refuse_appended(folder)
    if folder.pending_files and has_all_of(out, folder.pending_files):
        folder = _complete_interrupted(folder)
    # All shards are looked for, also after another process has finished the dataset.
    found, missing = check_shards(job, folder.files, engine, progress)
    # Tables of shards without images are removed at the end, so a complete dataset lacks them.
    if missing:  # another process may have finished the dataset meanwhile
        folder = inspect(out, job.fingerprint)
    fmt = job.options.fmt
    files = [names_of_shard(fmt, job.shards[number].name, ())[0] for number in missing]
    if folder.files.keys().isdisjoint(files) and has_all_of(out, folder.files):
        clean_up(folder, found)
        storage.remove_partials(out, is_alone=True)
        return read_result(job, found)
    if missing:
        storage.sweep(out, is_alone=False)
        raise missing_error(job, missing)
    try:
        # All shards are there: nobody needs another temporary file.
        with storage.partials(out, is_alone=True):
            return write_dataset(job, found)
    except StorageError:  # another process that finished the dataset removes the files of all
        if not has_all_of(out, inspect(out, job.fingerprint).files):
            raise
        return read_result(job, found)


def _complete_interrupted(folder: Folder) -> Folder:
    """Complete a dataset whose `finish` was killed between the two renames of the manifest.

    The tables of shards without images are gone then, so these shards would count as missing. See
    `publish_manifest`.
    """
    if folder.journal and folder.journal.manifest:
        with storage.partials(folder.out, is_alone=True):
            publish_manifest(folder.out, folder.journal.manifest)
    return inspect(folder.out, folder.plan)


def check_shards(
    job: Job, in_manifest: Files, engine: Engine, progress: Progress | None
) -> tuple[list[ShardResult], list[int]]:
    """Look for all shards of a job; return the shards in order, and the numbers of missing or damaged ones."""

    def tasks() -> Iterator[_CheckTask]:
        for shard in job.shards:
            names = names_of_shard(job.options.fmt, shard.name, job.arrays)
            listed = {}
            for name in names:
                if name in in_manifest:
                    listed[name] = in_manifest[name]
            yield job.fingerprint, job.out, shard.name, listed

    if progress:
        progress.start(job.images, len(job.shards))
    results = {}
    with closing(engine.run(check_shard, tasks(), len(job.shards))) as checked:
        for name, result in checked:
            results[name] = result
            if progress:
                progress.advance(name, result.conversion.images if result else 0)
    found, missing = [], []
    for number, shard in enumerate(job.shards):
        if result := results[shard.name]:
            found.append(result)
        else:
            missing.append(number)
    return found, missing


def missing_error(job: Job, missing: Sequence[int]) -> StoppedError:
    """Return the error that names missing shards, by their numbers in the job, and the tasks that write them."""
    names, count = [job.shards[number].name for number in missing[:5]], len(missing)
    more = ""
    if count > 5:
        more = f" and {count - 5:,} more"
    out = printable(job.out)
    all_left = f"`dataprep work {out}{' --claim' * storage.has_locks(job.out)}`"
    again = f"{all_left}, or all tasks again"
    if tasks := recorded_tasks(job.out):
        numbers = sorted({number % tasks for number in missing})
        shown = ",".join(map(str, numbers[:50])) + ",..." * (len(numbers) > 50)
        again = (
            f"{agree(len(numbers), 'task', 'tasks')} {shown} of {tasks} again (`dataprep work"
            f" {out} --task {numbers[0]}/{tasks}`), or {all_left}"
        )
    return StoppedError(
        f"{plural(count, 'shard')} of {len(job.shards):,} {agree(count, 'is', 'are')} missing or"
        f" damaged: {', '.join(names)}{more}",
        file=job.out,
        hint=f"run {again}, then `dataprep finish {out}`",
    )


# --- appends --------------------------------------------------------------------------------------


def _finish_append(
    plan: StoredPlan,
    append: PlannedAppend,
    out: str,
    engine: Engine,
    progress: Progress | None,
) -> AppendResult:
    """Check that every shard of the plan of an append is there, then write the manifest of the next revision."""
    if is_appended(plan, out):
        return _describe_finished(plan, append, out)
    job = plan.job(out)
    found, missing = check_shards(job, {}, engine, progress)
    # Another process may have finished it meanwhile.
    if missing and not is_appended(plan, out):
        storage.sweep(out, is_alone=False)
        raise missing_error(job, missing)
    # All shards are there. The dataset must still be the one that the append was planned for.
    base = read_base(out, option="")
    if base.digest != append.parent:
        return _describe_finished(plan, append, out)
    try:
        # All shards are there: nobody needs another temporary file.
        with storage.partials(out, is_alone=True):
            manifest, converted = finish_append(base, job, found, append)
    except StorageError:
        # Another process that finished the append removes the files of all.
        if not storage.has_locks(out):
            check_owner(out, plan.fingerprint)
        if not is_appended(plan, out):
            raise
        return _describe_finished(plan, append, out)
    new = job.classes[len(base.manifest.classes) :]
    return AppendResult(manifest, append.known, None, converted._replace(resumed=0), new)


def _describe_finished(plan: StoredPlan, append: PlannedAppend, out: str) -> AppendResult:
    """Describe an append that has ended.

    If it was killed before it removed its last files, remove them.
    """
    base = read_base(out, option="")
    manifest, mark = base.manifest, base.journal
    is_committed = plan.fingerprint in manifest.plans
    is_rejected = not is_committed and has_ended(out)
    if mark is not None and mark.plan == plan.fingerprint and (is_rejected or is_committed):
        end_committed(base)
        mark = None
    if mark is None:  # else the temporary files belong to the append of the journal
        storage.remove_partials(out, is_alone=True)
    # Describe it: every image was rejected, or some were appended.
    if is_rejected:
        rows = [*read_rejected(plan_folder(out), ENDED_NAME)]
        converted = describe_result(plan.job(out), (), replace(manifest, splits=()), rows)
        return AppendResult(manifest, append.known, None, converted)
    images = plan.job(out).images + len(plan.rejected) + append.known
    revision = None
    if is_committed:
        revision = manifest.plans.index(plan.fingerprint)
    return AppendResult(manifest, images, revision, None)
