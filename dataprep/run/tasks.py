"""The tasks of shards: made when they are needed, from the source in memory or from the files of a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.labels.kinds import KINDS
from dataprep.plan.assign import ShardPlan, key_of
from dataprep.plan.files import Job, StoredPlan, read_planned_rows
from dataprep.shards.segments import ShardTask
from dataprep.shards.write import divides
from dataprep.sources import Source


@dataclass(frozen=True)
class ShardTasks(Sequence[ShardTask]):
    """The tasks of some shards.

    Attributes:
        job: the job of the plan.
        numbers: positions of the shards in the plan.
        workers: processes of the engine.
        read: returns the task of a shard; see `ShardTask.divided`.

    """

    job: Job
    numbers: Sequence[int]
    workers: int
    read: Callable[[int], ShardTask]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> ShardTask:  # type: ignore[override]
        divided = divides(self.job.options, len(self) - at, self.workers)
        return self.read(self.numbers[at])._replace(divided=divided)


def source_task(job: Job, source: Source, shards: Sequence[ShardPlan], number: int) -> ShardTask:
    """Return the task of a shard, made from the source; `shards` are all shards of the plan."""
    return planned_task(job, source, shards[number])


def stored_tasks(job: Job, numbers: Sequence[int], workers: int, plan: StoredPlan) -> ShardTasks:
    """Return the tasks of shards that are read from the files of a plan when they are needed."""
    return ShardTasks(job, numbers, workers, partial(stored_task, job, plan))


def stored_task(job: Job, plan: StoredPlan, number: int) -> ShardTask:
    """Return the task of a shard, read from the files of a plan.

    Raises:
        PlanError: its rows are missing, damaged or were changed.

    """
    name = job.shards[number].name
    keys, samples = read_planned_rows(plan, job.out, number, name)
    return shard_task(job, name, keys, samples, np.arange(len(keys)))


def planned_task(job: Job, source: Source, shard: ShardPlan) -> ShardTask:
    """Return the task of a shard of a plan that is in memory."""
    keys = [key_of(row, job.revision) for row in shard.rows.tolist()]
    return shard_task(job, shard.name, keys, source, shard.rows)


def shard_task(
    job: Job, name: str, keys: list[str], source: Source, rows: NDArray[np.int64]
) -> ShardTask:
    """Return the task of one shard, whose samples are these rows of a source, in stored order."""
    kind = KINDS[job.label_type]
    labels = source.label[rows].tolist() if kind.is_class else None
    extra = source.extra.take(rows) if source.extra.num_columns else None
    used = labels or []
    if extra is not None and kind.class_lists is not None:
        used = pc.unique(pc.list_flatten(extra[kind.class_lists])).to_pylist()
    return ShardTask(
        out=job.out,
        name=name,
        images=source.images(rows),
        options=job.options,
        fingerprint=job.fingerprint,
        keys=keys,
        labels=labels,
        class_names={label: job.classes[label] for label in used},
        extra=extra,
        label_type=job.label_type,
        check=job.check,
    )
