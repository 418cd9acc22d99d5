"""Append a source to a dataset: plan its new samples, write their shards, then the manifest of the next revision.

Until the new ``manifest.json`` replaces the old one, in one step, the dataset is the old revision.
An append that is killed leaves its shards and `mark.APPEND_MARK_NAME`; the same call resumes it and
writes the same bytes. The module `steps` does the same in separate processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import chain

from dataprep.append.complete import finish_append
from dataprep.append.planning import AppendPlan, AppendResult
from dataprep.append.prepare import prepared_append
from dataprep.engines import Engine, LocalEngine
from dataprep.options import Options
from dataprep.plan.job import SourceTasks
from dataprep.progress import Progress
from dataprep.resume.kept import says_what_is_kept
from dataprep.shards.write import ShardResult, useful_workers, write_shard
from dataprep.sources import Source


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
        SourceError: a class does not fit those of the dataset, or an image is in it in another
            class.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    engine = engine or LocalEngine(workers)
    reader = engine if engine.is_local else LocalEngine(workers)
    with (
        closing(engine),
        closing(reader),
        prepared_append(
            source, out, options, name=name, reader=reader, progress=check_progress
        ) as (planned, finished),
    ):
        if isinstance(planned, AppendResult):
            return planned
        with says_what_is_kept(out, [shard.name for shard in planned.plan.shards]):
            results = _write(planned, finished, engine, progress)
            manifest, converted = finish_append(
                planned.base, planned.job, results, planned.name, planned.source_digest
            )
    converted = replace(converted, notices=planned.plan.notices)
    return AppendResult(
        manifest, planned.known, None, converted, planned.new_classes, planned.notices
    )


def _write(
    planned: AppendPlan,
    finished: Mapping[str, ShardResult],
    engine: Engine,
    progress: Progress | None,
) -> list[ShardResult]:
    """Write the shards that are not finished; return all of them in the order of the plan."""
    shards = planned.plan.shards
    if progress:
        progress.start(len(planned.source), len(shards))
    if not engine.is_local:
        from dataprep.convert.machines import (
            check_machines,
        )  # takes time, and a local engine needs no check

        check_machines(engine, planned.source, planned.base.out)
    left = [number for number, shard in enumerate(shards) if shard.name not in finished]
    tasks = SourceTasks(planned.source, planned.plan, planned.job, left, engine.workers)
    images = sum(len(shards[number].rows) for number in left)
    results: dict[str, ShardResult] = {}
    with closing(
        engine.run_with_pool(write_shard, tasks, useful_workers(len(tasks), images))
    ) as written:
        for result in chain(finished.values(), written):
            results[result.name] = result
            if progress:
                progress.advance(result.name, result.conversion.images, resumed=result.resumed)
    return [results[shard.name] for shard in shards]
