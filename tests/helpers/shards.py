"""Read the images of a converted dataset back, from its files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from manifests.schema import Sample
from manifests.store import read_manifest
from manifests.tables import read_table, samples


def stored_samples(dataset: Path) -> Iterator[tuple[Sample, bytes]]:
    """Return every row of the sample tables with the bytes that it points at."""
    manifest = read_manifest(dataset)
    for split in manifest.splits:
        for shard in split.shards:
            data = (dataset / shard.name).read_bytes()
            for row in samples(
                read_table(dataset / shard.table.name, label_type=manifest.label_type)
            ):
                yield row, data[row.offset : row.offset + row.size]
