"""What is known about an image that cannot be decoded: where it is, what it is called, and why."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loaders.dataset.split import OpenSplit
from manifests.errors import DamagedError
from manifests.process.text import plural, printable
from manifests.tables import SampleTable


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample whose image cannot be decoded. `Loader.errors` lists them.

    Attributes:
        dataset: folder of the dataset, as the caller wrote it.
        split: name of the split.
        shard: file name of the shard.
        record: number of the sample in the shard, from 0.
        key: the sample's key.
        row: number of the sample in the split, from 0: what the field ``"index"`` contains.
        reason: why the image cannot be decoded, as DALI says it.

    """

    dataset: str
    split: str
    shard: str
    record: int
    key: str
    row: int
    reason: str

    def __str__(self) -> str:
        return f"{self.shard}, record {self.record}, key {self.key!r}: {self.reason}"


def describe_bad_samples(split: OpenSplit, reasons: Mapping[int, str]) -> tuple[BadSample, ...]:
    """Return where bad samples are, in the order of their rows.

    Args:
        split: the split.
        reasons: why each image cannot be decoded, by row.

    Raises:
        TableError: a sample table is missing or damaged.

    """
    ends = np.cumsum([shard.samples for shard in split.shards])
    keys: dict[int, list[str]] = {}
    described = []
    for row, reason in sorted(reasons.items()):
        number = int(np.searchsorted(ends, row, side="right"))
        shard = split.shards[number]
        if number not in keys:
            table = SampleTable(split.path(shard.table), shard)
            keys[number] = table.read(("key",))["key"].to_pylist()
        record = row - int(ends[number]) + shard.samples
        key = keys[number][record]
        described.append(BadSample(split.folder, split.name, shard.name, record, key, row, reason))
    return tuple(described)


def located_error(
    bad: Sequence[BadSample], error: DamagedError, split: OpenSplit, *, complete: bool
) -> DamagedError:
    """Return an error that names the first of several bad samples.

    Args:
        bad: at least one.
        error: the error of the batch, which does not name a sample.
        split: the split.
        complete: whether these are all near the first one.

    """
    first, *others = bad
    shard = next(shard for shard in split.shards if shard.name == first.shard)
    count = f"{'' if complete else 'at least '}{plural(len(others), 'more image')}"
    more = f"; {count} near it cannot be decoded either" if others else ""
    return type(error)(
        f"the image with the key {printable(first.key)!r} cannot be decoded (DALI says:"
        f" {first.reason}){more}",
        file=split.path(shard.file),
        record=first.record,
        hint=(
            f"run `dataprep verify --decode {shlex.quote(split.folder)}` to find all of them, "
            'or build the loader with on_error="skip"'
        ),
    )
