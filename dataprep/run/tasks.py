"""The tasks of shards: made when they are needed, from the source in memory or from the files of a plan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

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

    """

    job: Job
    numbers: Sequence[int]
    workers: int

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> ShardTask:  # type: ignore[override]
        return self.task(self.numbers[at], len(self) - at)

    def task(self, number: int, left: int) -> ShardTask:
        """Return the task of a shard, if `left` shards are to write from this one on."""
        divided = divides(self.job.options, left, self.workers)
        return self.read(number)._replace(divided=divided)

    @abstractmethod
    def read(self, number: int) -> ShardTask:
        """Return the task of a shard; see `ShardTask.divided`."""


@dataclass(frozen=True)
class SourceTasks(ShardTasks):
    """Tasks that are made from the source.

    Attributes:
        source: the source of the plan.
        shards: all shards of the plan.

    """

    source: Source
    shards: Sequence[ShardPlan]

    def read(self, number: int) -> ShardTask:
        """Return the task of a shard."""
        return planned_task(self.job, self.source, self.shards[number])


@dataclass(frozen=True)
class StoredTasks(ShardTasks):
    """Tasks that are read from the files of a plan."""

    plan: StoredPlan

    def read(self, number: int) -> ShardTask:
        """Return the task of a shard.

        Raises:
            PlanError: its rows are missing, damaged or were changed.

        """
        name = self.job.shards[number].name
        keys, samples = read_planned_rows(self.plan, self.job.out, number, name)
        return shard_task(self.job, name, keys, samples, np.arange(len(keys)))


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
