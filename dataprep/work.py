"""Write a share of the shards of a plan. Several processes, on several machines, can do this at the same time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

from dataprep import storage
from dataprep.attestation import check_canary
from dataprep.completion import mark_incomplete
from dataprep.engines import Engine, LocalEngine
from dataprep.finished import files_in_manifest, is_final, is_intact, lists_everything, read_finished
from dataprep.formats import FORMATS
from dataprep.job import Job
from dataprep.plan_files import StoredTasks, count_images, read_plan
from dataprep.progress import Progress
from dataprep.shards import ShardResult, useful_workers, write_shard
from dataprep.tasks import Share, record_tasks
from manifests.schema import File
from manifests.store import MANIFEST_NAME


@dataclass(frozen=True)
class WorkResult:
    """What one call of `work` did.

    Attributes:
        shards: number of shards in its share.
        written: the shards that it wrote.
        resumed: number of shards that were finished before.

    """

    shards: int
    written: tuple[ShardResult, ...]
    resumed: int


def work(
    out: str,
    share: Share,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress[ShardResult] | None = None,
) -> WorkResult:
    """Write the shards of a share that are not finished yet.

    Args:
        out: output folder with a plan.
        share: the shards to write.
        workers: number of processes; `None` means one per CPU.
        engine: runs the shard tasks instead of a new `LocalEngine`. It is closed at the end.
        progress: receives the number of images in the share, then each finished shard, also earlier ones.

    Raises:
        CallError: there is no plan.
        PlanError: the plan is damaged or was changed.
        StoppedError: this machine would write other bytes, the source is not here, or another problem outside of the
            program stopped the run; the same call resumes it.

    """
    engine = engine or LocalEngine(workers)
    with ExitStack() as stack:
        stack.enter_context(closing(engine))
        plan = read_plan(out)
        check_canary(plan.canary)
        job = plan.job(out)
        stack.enter_context(storage.locked(out, shared=True))
        storage.check_partials([out])
        numbers = share.numbers(len(job.shards))
        in_manifest = files_in_manifest(job.fingerprint, out)
        finished = {number: result for number in numbers if (result := _find_kept(job, number, in_manifest))}
        left = [number for number in numbers if number not in finished]
        if lists_everything(out, in_manifest):
            suffix = FORMATS[job.options.fmt].SUFFIX
            left = [number for number in left if job.shards[number].name + suffix in in_manifest]
        tasks = StoredTasks(plan, out, left, engine.workers)
        written = []
        if progress:
            progress.start(count_images(plan, out, numbers))
            for result in finished.values():
                progress.advance(result)
        if tasks.numbers:
            stack.enter_context(storage.shared_partials(out))
            record_tasks(out, share.tasks)
            if in_manifest:  # no reader may see a manifest next to shards that are about to change
                mark_incomplete(out, job, job.options)
                storage.remove(os.path.join(out, MANIFEST_NAME))
            useful = useful_workers(len(tasks), count_images(plan, out, tasks.numbers))
            with closing(engine.run_with_pool(write_shard, tasks, useful)) as results:
                for result in results:
                    written.append(result)
                    if progress:
                        progress.advance(result)
    return WorkResult(len(numbers), tuple(written), len(numbers) - len(written))


def _find_kept(job: Job, number: int, in_manifest: Mapping[str, File]) -> ShardResult | None:
    """Return a finished shard that need not be written again."""
    result = read_finished(job.fingerprint, job.out, job.shards[number].name, in_manifest)
    return result if result and is_final(result) and is_intact(job.out, result) else None
