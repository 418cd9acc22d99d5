"""The job that the steps of a conversion share: what to write, without the samples.

`convert` builds a job from the plan in memory, `work` and `finish` from the files of `dataprep
plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import storage
from dataprep.labels.kinds import KINDS
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, PlannedShard, key_of
from dataprep.shards.write import ShardTask, divides
from dataprep.sources import Source
from manifests.labels import LabelType


@dataclass(frozen=True)
class Job:
    """What a conversion writes into one output folder.

    Attributes:
        out: the output folder.
        options: options of the conversion.
        fingerprint: fingerprint of the plan.
        classes: class names in label order.
        shards: all shards in the order of the plan.
        splits: names of the splits that have at least one shard, in order.
        images: number of images to read.
        bytes: total size of these images in bytes.
        rejected: rows for ``rejected.jsonl`` of the scan.
        revision: number of the revision that the shards are new in.
        label_type: what the labels are.
        check: looks whether the run still owns the output folder; see `dataprep.storage.guarded`.

    """

    out: str
    options: Options
    fingerprint: str
    classes: tuple[str, ...]
    shards: Sequence[PlannedShard]
    splits: tuple[str, ...]
    images: int
    bytes: int
    rejected: tuple[Mapping[str, str], ...]
    revision: int = 0
    label_type: LabelType = "class"
    check: storage.Check | None = None


def job_of(source: Source, plan: ConversionPlan, out: str, options: Options) -> Job:
    """Return the job of a plan that is in memory."""
    return Job(
        out=out,
        options=options,
        fingerprint=plan.fingerprint,
        classes=source.classes,
        shards=plan.shards,
        splits=plan.splits,
        images=len(source),
        bytes=source.bytes,
        rejected=source.rejected,
        label_type=source.label_type,
    )


@dataclass(frozen=True)
class SourceTasks(Sequence[ShardTask]):
    """The tasks of some shards, made from the source when they are needed.

    Attributes:
        source: the source of the plan.
        plan: the plan.
        job: the job of the plan.
        numbers: positions of the shards in the plan.
        workers: processes of the engine.

    """

    source: Source
    plan: ConversionPlan
    job: Job
    numbers: Sequence[int]
    workers: int

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> ShardTask:  # type: ignore[override]
        shard = self.plan.shards[self.numbers[at]]
        keys = [key_of(row, self.job.revision) for row in shard.rows.tolist()]
        task = shard_task(self.job, shard.name, self.source, shard.rows, keys)
        return replace(task, divided=divides(self.job.options, len(self) - at, self.workers))


def shard_task(
    job: Job, name: str, source: Source, rows: NDArray[np.int64], keys: list[str]
) -> ShardTask:
    """Return the task of one shard.

    Args:
        job: what the shard belongs to.
        name: name of the shard.
        source: a source that contains its samples.
        rows: rows of the source in stored order, int64 [N].
        keys: keys of the samples.

    """
    labels = source.label[rows].tolist() if KINDS[job.label_type].is_class else None
    extra = source.extra.take(rows) if source.extra.num_columns else None
    used = labels or []
    column = KINDS[job.label_type].class_lists
    if extra is not None and column is not None:
        used = pc.unique(pc.list_flatten(extra[column])).to_pylist()
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
