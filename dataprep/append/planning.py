"""Plan an append: which samples of a source are new, and which shards they go to.

Nothing is written.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from dataprep.append.base import Base, check_label_type, check_options
from dataprep.append.columns import check_columns
from dataprep.append.known import find_known, revision_with
from dataprep.convert.complete import ConvertResult
from dataprep.engines import Engine
from dataprep.formats import FORMATS
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, fingerprint_of, make_plan, shard_name
from dataprep.plan.job import Job, job_of
from dataprep.progress import Progress
from dataprep.sources import Source
from dataprep.sources.base import take_rows
from dataprep.sources.merge import extended_classes, relabel
from manifests.errors import CallError
from manifests.labels import MASK_TYPES
from manifests.process.text import printable
from manifests.revisions import numbered, old_manifest_name
from manifests.schema import Manifest
from manifests.store import REJECTED_NAME, SHARD_LIST_NAME


@dataclass(frozen=True)
class AppendResult:
    """What an append did.

    Attributes:
        manifest: manifest of the newest revision.
        known: number of images of the source that were in the dataset before.
        revision: the revision that the whole source made or was appended in before; `None` if there
            is none.
        converted: what was written, with a manifest of only the new shards. `None` if there was
            nothing to append.
        new_classes: names of the classes that were added.
        notices: messages about the images that were in the dataset before, one line each.

    """

    manifest: Manifest
    known: int
    revision: int | None
    converted: ConvertResult | None
    new_classes: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class AppendPlan:
    """What an append writes.

    Attributes:
        base: the dataset.
        source: the new samples, with labels of the dataset.
        plan: their plan.
        job: the job of the plan.
        name: name of the source, for the manifest.
        source_digest: fingerprint of the whole source.
        known: number of samples that are in the dataset.
        notices: messages about them, one line each.

    """

    base: Base
    source: Source
    plan: ConversionPlan
    job: Job
    name: str
    source_digest: str
    known: int
    notices: tuple[str, ...] = ()

    @property
    def new_classes(self) -> tuple[str, ...]:
        """Names of the classes that the dataset does not have yet."""
        return self.job.classes[len(self.base.manifest.classes) :]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files that the append may write, except ``manifest.json``."""
        suffixes = (FORMATS[self.job.options.fmt].SUFFIX, ".idx", ".parquet")
        number = self.job.revision
        lists = [numbered(name, number) for name in (REJECTED_NAME, SHARD_LIST_NAME)]
        shards = [shard.name + suffix for shard in self.plan.shards for suffix in suffixes]
        return (*shards, *lists, old_manifest_name(number - 1))


def plan_append(
    source: Source,
    base: Base,
    options: Options,
    *,
    name: str,
    reader: Engine,
    progress: Progress | None = None,
) -> AppendPlan | AppendResult:
    """Plan the samples that are not in the dataset; return an `AppendResult` if there are none.

    Writes nothing.

    Raises:
        CallError, SourceError: as `append_dataset`.

    """
    check_options(base, options)
    check_label_type(base, source)
    number = revision_with(base, source)
    if (
        number is not None and source.label_type not in MASK_TYPES
    ):  # it does not say what masks contain
        return AppendResult(base.manifest, len(source), number, None)
    check_columns(base, source, options)
    source_digest = fingerprint_of(source, options.as_json())
    classes = extended_classes(base.manifest.classes, source, printable(base.out))
    labelled = relabel(source, classes)
    try:
        found = find_known(base, labelled, reader, progress)
    except CallError as error:
        if number is None:
            raise
        notice = (
            "the masks of these images were not compared with those of the dataset:"
            f" {error.message}"
        )
        return AppendResult(base.manifest, len(source), number, None, notices=(notice,))
    known = found.rows
    if known.all() or number is not None:
        return AppendResult(base.manifest, len(source), number, None, notices=found.notices)
    new = take_rows(labelled, np.flatnonzero(~known)) if known.any() else labelled
    made = make_plan(new, options)
    first = {split: base.next_number(split) for split in made.splits}
    seen: dict[str, int] = {}
    shards = []
    for shard in made.shards:
        count = seen[shard.split] = seen.get(shard.split, -1) + 1
        shards.append(replace(shard, name=shard_name(shard.split, first[shard.split] + count)))
    # The same samples make another plan in another revision: names, keys and labels depend on it.
    fingerprint = hashlib.sha256(f"{made.fingerprint} {base.digest}".encode()).hexdigest()[:32]
    plan = replace(made, shards=tuple(shards), fingerprint=fingerprint)
    job = replace(job_of(new, plan, base.out, options), revision=base.manifest.revision + 1)
    return AppendPlan(
        base, new, plan, job, name, source_digest, int(np.count_nonzero(known)), found.notices
    )
