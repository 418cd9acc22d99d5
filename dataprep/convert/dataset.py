"""Convert a source into a dataset: make the plan, write its shards in parallel, then write the manifest.

Every step can be interrupted and resumed. A shard is done when its sample table has its final name, and the dataset
is complete when ``manifest.json`` exists. `planning`, `work` and `finish` are the same steps in separate processes.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from itertools import chain

from dataprep.convert.complete import ConvertResult, read_result, write_dataset
from dataprep.convert.prepare import prepared
from dataprep.engines import Engine, LocalEngine
from dataprep.options import Options
from dataprep.plan.job import SourceTasks
from dataprep.progress import Progress
from dataprep.resume.kept import says_what_is_kept
from dataprep.resume.leftovers import Rereading
from dataprep.shards.write import ShardResult, log_shard, useful_workers, write_shard
from dataprep.sources import Source

__all__ = ["ConvertResult", "convert_dataset"]

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

    Shards that an earlier run with the same source and options finished are kept. The bytes of every file depend
    neither on the number of workers nor on interruptions, except for `stamps.STAMPS_NAME`.

    Args:
        source: the samples to convert.
        out: output folder; created if it does not exist.
        options: everything that determines the bytes.
        workers: number of processes; `None` means one per CPU.
        engine: runs the shard tasks instead of a new `LocalEngine`. Its workers may already be running; the thread
            that started them must live until this call returns. The engine is closed at the end. Finished shards are
            read again on this machine.
        overwrite: start over, and replace a dataset in `out` that was made from another source or with other options.
            Resumes only a run that was itself started with `overwrite`.
        check_shards: read the shards that an earlier run finished, and write those with another checksum again. The
            checksums of indexes and tables are always compared.
        progress: receives the finished shards, including those of earlier runs.
        check_progress: receives the finished shards that are read again: all with `check_shards`, and those whose
            source images have other times than in the earlier run.

    Raises:
        CallError: the options do not fit the source, `out` cannot be used or contains another dataset, or its dataset
            is complete and images were replaced since.
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
        if progress:
            progress.start(len(source), len(run.plan.shards))
        if not run.is_complete and not engine.is_local:
            from dataprep.convert.machines import check_machines  # takes time, and a local engine needs no check

            check_machines(engine, source, out)
        left = [n for n, shard in enumerate(run.plan.shards) if not run.is_complete and shard.name not in run.finished]
        tasks = SourceTasks(source, run.plan, run.job, left, engine.workers)
        images = sum(len(run.plan.shards[number].rows) for number in left)
        results: dict[str, ShardResult] = {}
        with closing(engine.run_with_pool(write_shard, tasks, useful_workers(len(tasks), images))) as written:
            for result in chain(run.finished.values(), written):
                log_shard(_log, result)
                results[result.name] = result
                if progress:
                    progress.advance(result.name, result.conversion.images, resumed=result.resumed)
        in_order = [results[shard.name] for shard in run.plan.shards if shard.name in results]
        dataset = read_result(run.job, in_order) if run.is_complete else write_dataset(run.job, in_order)
    return replace(dataset, notices=run.plan.notices)
