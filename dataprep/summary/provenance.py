"""Where the images come from and what may be done with them, as columns of the samples say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pyarrow.compute as pc

from dataprep.summary.diff import value_texts
from manifests.errors import TableError
from manifests.records import record
from manifests.schema import Manifest, Shard
from manifests.store import read_dataset

#: Names of the columns.
COLUMNS = ("license", "origin", "consent")

#: Values that are counted separately; all others count as one.
_MAX_VALUES, _OTHER = 1000, "(others)"


@record
class ProvenanceFacts:
    """What a column says.

    Attributes:
        values: number of samples by value, the most frequent first.
        missing: samples without a value.
        missing_share: their share of all samples.

    """

    values: Mapping[str, int]
    missing: int
    missing_share: float


def count_provenance(
    folder: str, manifest: Manifest, on_error: Callable[[Shard, TableError], None] | None = None
) -> dict[str, ProvenanceFacts]:
    """Count the values of each of `COLUMNS` that a dataset has; see `read_dataset`."""
    counts: dict[str, Counter[str]] = {}
    total = 0
    for batch in read_dataset(
        folder, ["width"], optional=COLUMNS, manifest=manifest, on_error=on_error
    ):
        total += len(batch.table)
        for name in COLUMNS:
            if name in batch.table.column_names:
                count = counts.setdefault(name, Counter())
                for chunk in batch.table[name].chunks:
                    _count(value_texts(chunk.filter(pc.is_valid(chunk))), count)
    found = {}
    for name, count in counts.items():
        blank = total - (count.total() - count.pop("", 0))
        values = dict(sorted(count.items(), key=lambda each: (-each[1], each[0])))
        found[name] = ProvenanceFacts(values, blank, round(blank / max(total, 1), 6))
    return found


def _count(texts: object, counts: Counter[str]) -> None:
    for each in pc.value_counts(texts).to_pylist():
        value = each["values"].strip()
        if value not in counts and len(counts) >= _MAX_VALUES:
            value = _OTHER
        counts[value] += each["counts"]


def common_license(folder: str, manifest: Manifest) -> str | None:
    """Return the license that the column has for all samples; `None` if they have several or none."""
    column = count_provenance(folder, manifest).get("license")
    if column is None or column.missing or len(column.values) != 1:
        return None
    return next(iter(column.values))
