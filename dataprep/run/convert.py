"""Convert a source into a dataset: plan, prepare the folder, write the shards, then the manifest.

Every step can be interrupted and resumed. A shard is done when its sample table has its final name,
and the dataset is complete when ``manifest.json`` exists.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

from dataprep import storage
from dataprep.engines import Engine, LocalEngine
from dataprep.ledger.fence import Fence, Seen, look, write_conversion
from dataprep.ledger.finished import write_stamps
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, make_plan
from dataprep.plan.files import StoredPlan, job_of, write_plan
from dataprep.progress import Progress
from dataprep.run.commit import ConvertResult, clean_up, read_result, write_dataset
from dataprep.run.prepare import Rereading, Resumable, find_resumable, remove_outdated
from dataprep.run.source import check_output
from dataprep.run.work import Prepared, says_what_is_kept, write_shards
from dataprep.sources import Source
from manifests.errors import CallError
from manifests.process.text import printable

_log = logging.getLogger(__name__)


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
        check_shards: read the shards that an earlier run finished, and write those with another
            checksum again. The checksums of indexes and tables are always compared.
        progress: receives the finished shards, including those of earlier runs.
        check_progress: receives the finished shards that are read again: all with `check_shards`,
            and those whose source images have other times than in the earlier run.

    Raises:
        CallError: the options do not fit the source, `out` cannot be used or contains another
            dataset, or its dataset is complete and images were replaced since.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    engine = engine or LocalEngine(workers)
    reader = engine if engine.is_local else LocalEngine(workers)
    rereading = Rereading(check_shards, reader, check_progress)
    with (
        closing(engine),
        closing(reader),
        prepared(source, out, options, overwrite=overwrite, rereading=rereading) as run,
        says_what_is_kept(out, [shard.name for shard in run.plan.shards]),
    ):
        results = write_shards(run, engine, progress)
        dataset = (read_result if run.is_complete else write_dataset)(run.job, results)
    return replace(dataset, notices=run.plan.notices)


@contextmanager
def prepared(
    source: Source,
    out: str,
    options: Options,
    *,
    overwrite: bool,
    rereading: Rereading = Rereading(),  # noqa: B008  (it is frozen)
    always_writes: bool = False,
) -> Iterator[Prepared]:
    """Plan a conversion and lock its output folder.

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
    plan = make_plan(source, options)
    _make_folder(out)
    with ExitStack() as stack:
        is_locked = stack.enter_context(storage.locked(out))
        storage.check_partials([out])
        seen = look(out)
        has_other_plan = has_ended_append = False
        if storage.is_folder(os.path.join(out, storage.PLAN_FOLDER)):
            from dataprep.plan.files import check_plan, remove_empty_plan_folder, remove_plan
            from dataprep.run.commit import (  # take time, and most runs have no plan
                has_ended,
                remove_ended,
            )

            has_ended_append = overwrite and has_ended(out)
            has_other_plan = check_plan(out, plan.fingerprint, options, overwrite=overwrite)
            remove_empty_plan_folder(out)
        with storage.remember(out):
            resumable = find_resumable(
                source, plan, out, options, overwrite=overwrite, rereading=rereading
            )
        stack.enter_context(storage.guarded(out, Fence(out, plan.fingerprint)))
        if resumable.is_complete:
            clean_up(out, plan.fingerprint, resumable.shards.values())
        if (
            has_other_plan
            or always_writes
            or not resumable.is_complete
            or resumable.stamps
            or storage.has_partials(out)
        ):
            stack.enter_context(storage.partials([out], is_locked=is_locked, keeps_proofs=True))
            _prepare_folder(
                out, plan, options, resumable, seen, overwrite=overwrite, is_locked=is_locked
            )
        if has_other_plan:
            remove_plan(out)
            remove_empty_plan_folder(out)
        if has_ended_append:
            remove_ended(out)
        yield Prepared(
            source=source,
            plan=plan,
            job=job_of(source, plan, out, options),
            finished=resumable.shards,
            is_complete=resumable.is_complete,
        )


def _make_folder(out: str) -> None:
    try:
        storage.make_folder(out)
    except OSError as error:
        hint = "make its parent writable for this user, or choose another folder with --out"
        raise CallError(
            f"--out {printable(out)}: the folder cannot be made ({error.strerror})", hint=hint
        ) from None


def _prepare_folder(
    out: str,
    plan: ConversionPlan,
    options: Options,
    resumable: Resumable,
    seen: Seen,
    *,
    overwrite: bool,
    is_locked: bool,
) -> None:
    """Remove what this run replaces.

    Every kill in between leaves a folder that the same call can resume.
    """
    removing = overwrite and bool(resumable.outdated)
    if not resumable.is_complete:
        write_conversion(
            out, plan.fingerprint, options, seen, overwrite=overwrite, removing=removing
        )
    remove_outdated(out, resumable)
    if removing:
        seen = look(out)
        Fence(out, plan.fingerprint)()
        write_conversion(out, plan.fingerprint, options, seen, overwrite=overwrite)
    if resumable.stamps:  # after the old shards are gone, which have other stamps
        write_stamps(out, plan, resumable.stamps)
    # Last, because a table among the temporary files can prove which run wrote an outdated shard.
    storage.sweep(out, is_locked=is_locked)


# --- the first of three steps ---------------------------------------------------------------------


@dataclass(frozen=True)
class PlanResult:
    """The plan in an output folder.

    Attributes:
        plan: the plan.
        resumed: number of shards of this plan that are finished.
        notices: messages about the new splits, one line each.

    """

    plan: StoredPlan
    resumed: int
    notices: tuple[str, ...]


def plan_dataset(
    source: Source, out: str, options: Options, *, overwrite: bool = False
) -> PlanResult:
    """Write a plan into its folder; see `convert_dataset` for the arguments.

    Raises:
        CallError: the options do not fit the source, or `out` cannot be used, or contains another
            dataset or plan.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    with prepared(source, out, options, overwrite=overwrite, always_writes=True) as run:
        stored = write_plan(source, run.plan, out, options)
        return PlanResult(stored, len(run.finished), run.plan.notices)
