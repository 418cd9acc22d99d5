"""An append in three steps: `plan`, `work` and `finish`, as for a conversion, give the bytes of `append_dataset`.

`plan` writes the mark of the append and the folder ``plan``. While both are there, any number of
processes can write the shards; `finish` writes the manifest of the next revision and removes the
mark.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from dataprep import storage
from dataprep.append.base import Base, read_base
from dataprep.append.complete import end_committed, finish_append
from dataprep.append.mark import read_mark
from dataprep.append.planning import AppendPlan, AppendResult
from dataprep.append.prepare import prepared_append
from dataprep.append.rejected_only import describe_ended, has_ended
from dataprep.canary import check_canary
from dataprep.convert.finish import check_shards, missing_error
from dataprep.engines import Engine, LocalEngine
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan
from dataprep.plan.files import read_plan, write_plan
from dataprep.plan.stored import PlannedAppend, StoredPlan
from dataprep.progress import Progress
from dataprep.sources import Source
from dataprep.sources.base import take_rows
from manifests.errors import CallError, StorageError
from manifests.process.text import printable


@dataclass(frozen=True)
class PlannedSteps:
    """The plan of an append in an output folder.

    Attributes:
        planned: what it appends; an `AppendResult` if there is nothing to append.
        resumed: number of shards of this plan that are finished.

    """

    planned: AppendPlan | AppendResult
    resumed: int


def write_append_plan(
    source: Source,
    out: str,
    options: Options,
    *,
    name: str,
    workers: int | None = None,
    progress: Progress | None = None,
) -> PlannedSteps:
    """Write the plan of an append into ``out/plan``.

    The arguments and the errors are those of `dataprep.append.dataset.append_dataset`. If there is
    nothing to append, the plan has no shards, so `work` and `finish` have nothing to do.
    """
    with (
        closing(LocalEngine(workers)) as reader,
        prepared_append(source, out, options, name=name, reader=reader, progress=progress) as (
            planned,
            finished,
        ),
    ):
        if isinstance(planned, AppendPlan):
            appended = _planned_append(planned.base, name, planned.source_digest, planned.known)
            write_plan(planned.source, planned.plan, out, planned.job.options, appended)
        elif (
            read_mark(out) is None
        ):  # else the folder has the plan of an append that is in progress
            _write_empty_plan(source, read_base(out), options, name)
        return PlannedSteps(planned, len(finished))


def _planned_append(base: Base, name: str, source_digest: str, known: int) -> PlannedAppend:
    return PlannedAppend(base.digest, base.manifest.revision + 1, name, source_digest, known)


def _write_empty_plan(source: Source, base: Base, options: Options, name: str) -> None:
    digest = hashlib.sha256(base.digest.encode()).hexdigest()[:32]
    nothing = replace(
        take_rows(source, np.zeros(0, np.int64)), rejected=(), classes=base.manifest.classes
    )
    with storage.partials([base.out], is_locked=True):
        plan = ConversionPlan((), digest)
        write_plan(
            nothing, plan, base.out, options, _planned_append(base, name, digest, len(source))
        )


def is_appended(plan: StoredPlan, out: str) -> bool:
    """Return whether everything in the plan of an append is in the dataset, or was rejected.

    Raises:
        CallError: it is not, and the append is not in progress any more, or the dataset has changed
            since.

    """
    mark = read_mark(
        out
    )  # before the manifest: another process may finish meanwhile, and removes the mark last
    base = read_base(out, option="")
    if not plan.shards or any(
        each.options.get("plan") == plan.fingerprint for each in base.manifest.revisions
    ):
        return True
    if has_ended(out):
        return True
    is_planned = mark is not None and mark.action == "append" and mark.plan == plan.fingerprint
    if not is_planned or plan.append is None or plan.append.parent != base.digest:
        raise CallError(
            f"the plan in {printable(out)} is of an append that was reverted, or that ended without"
            " a new image",
            hint="run `dataprep plan --append` again",
        )
    return False


def finish_planned_append(
    out: str,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> AppendResult:
    """Check that every shard of the plan of an append is there, then write the manifest of the next revision.

    It can be called any number of times, also by several processes at once.

    Args:
        out: folder or URL of the dataset.
        workers: number of processes; `None` means one per CPU.
        engine: checks the shards instead of a new `LocalEngine`. It is closed at the end.
        progress: receives the shards; those that are missing have no images.

    Raises:
        CallError: there is no such plan, or its append is not in progress any more.
        PlanError: the plan is damaged or was changed.
        StoppedError: shards are missing, or another problem outside of the program.

    """
    plan = read_plan(out)
    if plan.append is None:
        raise CallError(
            f"the plan in {printable(out)} appends nothing", hint=f"run `dataprep finish {out}`"
        )
    check_canary(plan.canary)
    job = plan.job(out)
    with storage.locked(out, shared=True):
        storage.check_partials([out])
        if not is_appended(plan, out):
            results = check_shards(job, {}, engine or LocalEngine(workers), progress)
            missing = [
                number for number, shard in enumerate(job.shards) if results[shard.name] is None
            ]
            if missing and not is_appended(
                plan, out
            ):  # else another process has finished it meanwhile
                storage.sweep_dead(out)
                raise missing_error(job, missing)
            base = read_base(out, option="")
            if base.digest == plan.append.parent:
                found = [result for shard in job.shards if (result := results[shard.name])]
                try:
                    with storage.partials(
                        [out], is_locked=True
                    ):  # all shards are there: nobody needs another
                        appended = finish_append(
                            base, job, found, plan.append.source, plan.append.source_digest
                        )
                except (
                    StorageError
                ):  # another process that finished the append removes the files of all
                    if not is_appended(plan, out):
                        raise
                    return _describe_finished(plan, out)
                manifest, converted = appended
                new = job.classes[len(base.manifest.classes) :]
                return AppendResult(
                    manifest, plan.append.known, None, replace(converted, resumed=0), new
                )
        return _describe_finished(plan, out)


def _describe_finished(plan: StoredPlan, out: str) -> AppendResult:
    """Describe an append that has ended.

    If it was killed before it removed its last files, remove them.
    """
    base, mark = read_base(out, option=""), read_mark(out)
    plans = [None, *(revision.options.get("plan") for revision in base.manifest.revisions)]
    revision = plans.index(plan.fingerprint) if plan.fingerprint in plans else None
    is_rejected = revision is None and has_ended(out)
    if mark is not None and mark.plan == plan.fingerprint and (is_rejected or revision is not None):
        end_committed(base, mark)
        mark = None
    if mark is None:  # else the temporary files belong to the append of the mark
        storage.remove_partials(out)
    if is_rejected:
        converted = describe_ended(plan, out, replace(base.manifest, splits=()))
        return AppendResult(base.manifest, plan.append.known if plan.append else 0, None, converted)
    images = (
        sum(split.images for split in plan.splits)
        + len(plan.rejected)
        + (plan.append.known if plan.append else 0)
    )
    return AppendResult(base.manifest, images, revision, None)
