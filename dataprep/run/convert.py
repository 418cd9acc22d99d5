"""Convert a source into a dataset: plan, prepare the folder, write the shards, then the manifest.

Every step can be interrupted and resumed; `dataprep.run.prepare` says how.
"""

from __future__ import annotations

from dataprep import storage
from dataprep.engines import Engine
from dataprep.ledger.fence import check_owner
from dataprep.options import Options
from dataprep.plan.files import has_plan, read_plan, remove_plan, write_plan
from dataprep.progress import Progress
from dataprep.run.commit import ConvertResult, read_result, write_dataset
from dataprep.run.prepare import Rereading, Resumable, prepared
from dataprep.run.work import opened, says_what_is_kept, write_shards
from dataprep.sources import Source
from manifests.errors import LostFolderError


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
            says_what_is_kept(out, run.plan.shards),
        ):
            results = write_shards(run, writer, progress)
            dataset = (read_result if run.is_complete else write_dataset)(run.job, results)
    return dataset._replace(notices=run.plan.notices)


# --- the first of three steps ---------------------------------------------------------------------


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
        write_plan(source, run.plan, out, options)
    plan = run.plan.fingerprint
    try:
        if not storage.has_locks(out):
            check_owner(out, plan)
    except LostFolderError:
        # Another run took the folder over while the last file was on its way.
        if has_plan(out) and read_plan(out).fingerprint == plan:
            remove_plan(out)
        raise
    return run
