"""Where images of a collection are, for people: dataset, split, path, key and label."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dataprep.duplicates.collection import Collection
from manifests.store import read_manifest
from manifests.tables import read_table


class Place(NamedTuple):
    """Where an image is.

    Attributes:
        dataset: as the command line names it.
        split: name of the split.
        path: where the image came from; in a source, its path.
        key: key of the sample; `None` in a source that is not a prepared dataset.
        label: the label as text, usually the name of the class.

    """

    dataset: str
    split: str
    path: str
    key: str | None
    label: str


def find_places(
    images: Collection, datasets: Sequence[str], numbers: Iterable[int]
) -> dict[int, Place]:
    """Describe some images, by their numbers in the collection."""
    places: dict[int, Place] = {}
    by_source: dict[int, list[int]] = {}
    for number in sorted(numbers):
        by_source.setdefault(images.place(number)[0], []).append(number)
    for at, some in by_source.items():
        source, rows = images.sources[at], [images.place(number)[1] for number in some]
        keys = _keys(datasets[at], rows) if source.prepared else dict.fromkeys(rows)
        for number, row in zip(some, rows, strict=True):
            split = source.splits[source.split[row]]
            path = source.path[row].as_py()
            places[number] = Place(
                datasets[at], split, path, keys[row], images.labels[images.label[number]]
            )
    return places


def _keys(folder: str, rows: Sequence[int]) -> dict[int, str | None]:
    """Read the keys of some samples, counted over all shards.

    Only the tables that contain them are read again.
    """
    shards = [shard for split in read_manifest(folder).splits for shard in split.shards]
    starts = np.concatenate([[0], np.cumsum([shard.samples for shard in shards])])
    wanted = np.unique(np.array(rows, np.int64))
    keys: dict[int, str | None] = {}
    for number in np.unique(np.searchsorted(starts, wanted, side="right") - 1).tolist():
        inside = wanted[(wanted >= starts[number]) & (wanted < starts[number + 1])]
        table = read_table(os.path.join(folder, shards[number].table.name), ["key"])
        keys |= zip(
            inside.tolist(), table["key"].take(inside - starts[number]).to_pylist(), strict=True
        )
    return keys
