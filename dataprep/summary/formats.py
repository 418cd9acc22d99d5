"""Which formats a dataset's images have: it reads a sample of them, from their shards."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from dataprep import storage
from dataprep.images.base import MAX_BYTES, IncompleteHeader, Rejected
from dataprep.images.validate import name_format, parse_header
from manifests.errors import DatasetError
from manifests.schema import Manifest
from manifests.store import read_dataset

#: Number of images that are read.
SAMPLED = 256

#: What counts an image that cannot be read, or is not one.
_UNREADABLE = "unreadable"


def count_formats(folder: str, manifest: Manifest) -> Mapping[str, int]:
    """Return the number of images of each format, most frequent first, in an even sample of the dataset.

    A JPEG counts as its kind, because a GPU's hardware decoder takes baseline ones only.
    """
    samples = sum(split.samples for split in manifest.splits)
    step = max(1, -(-samples // SAMPLED))
    counts: Counter[str] = Counter()
    for path, places in _places(folder, manifest, step):
        counts.update(_formats(path, places))
    return dict(counts.most_common())


def _places(
    folder: str, manifest: Manifest, step: int
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield a shard, and first byte and length of every `step`-th image of it."""
    seen = 0
    for batch in read_dataset(folder, ["offset", "size"], manifest=manifest):
        rows = np.arange(-seen % step, len(batch.table), step)
        seen += len(batch.table)
        if len(rows):
            chosen = batch.table.take(rows)
            places = zip(*(chosen[name].to_pylist() for name in ("offset", "size")), strict=True)
            yield os.path.join(folder, batch.shard.name), list(places)


def _formats(path: str, places: list[tuple[int, int]]) -> Iterator[str]:
    """Yield the format of images of a shard."""
    found = 0
    try:
        with storage.open_view(path) as (view, length):
            for offset, size in places:
                name = _UNREADABLE
                if size <= MAX_BYTES and offset + size <= length:
                    buffer, at = view(offset, size)
                    name = _format(bytes(memoryview(buffer)[at : at + size]))
                yield name
                found += 1
    except DatasetError:
        yield from [_UNREADABLE] * (len(places) - found)


def _format(data: bytes) -> str:
    try:
        return name_format(data, parse_header(data))
    except (Rejected, IncompleteHeader):
        return _UNREADABLE
