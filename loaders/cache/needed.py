"""Which images of a split a loader reads: of each sample, and the masks or depth maps if a field needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaders.cache.layout import Layout
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import MASK_DTYPES, SampleTables
from loaders.samplers.base import Upcoming

_COLUMNS = ("offset", "size", "crc32c")


def images_of(split: OpenSplit) -> int:
    """Return the number of images of each sample: 2 in datasets with masks or depth maps."""
    return 2 if split.manifest.labels.has_image else 1


def layout_of(split: OpenSplit, tables: SampleTables) -> Layout:
    """Return where the images of a split are.

    Raises:
        TableError: a table is missing or damaged.

    """
    images = images_of(split)
    kinds = (_COLUMNS, tuple(MASK_DTYPES))[:images]
    columns = tables.columns([name for names in kinds for name in names], requested_by="a sampler")
    offsets, sizes, checksums = (
        np.stack([columns[name] for name in names], axis=1).astype(np.int64).ravel()
        for names in zip(*kinds, strict=True)
    )
    ends = images * np.cumsum([shard.samples for shard in split.shards])
    return Layout(
        offsets, sizes, checksums, ends, [shard.file.bytes for shard in split.shards], images
    )


@dataclass(frozen=True, slots=True)
class Needed:
    """The rows of a layout that a loader reads.

    Attributes:
        images: images of each sample in the layout.
        with_label_images: whether the loader reads masks or depth maps too.

    """

    images: int
    with_label_images: bool

    def rows(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return all rows that are needed of samples, int64 [rows]."""
        if self.images == 1:
            return samples
        parts = np.arange(2 if self.with_label_images else 1)
        return (samples[:, None] * self.images + parts).ravel()

    def upcoming(self, upcoming: Upcoming) -> Upcoming:
        """Return the same batches, as rows of the layout."""
        if self.images == 1:
            return upcoming

        def rows_of(
            samples_of: Callable[[int], NDArray[np.int64]],
        ) -> Callable[[int], NDArray[np.int64]]:
            return lambda number: self.rows(samples_of(number))

        size = upcoming.batch_size * (2 if self.with_label_images else 1)
        return Upcoming(
            rows_of(upcoming.rank_rows), rows_of(upcoming.global_rows), upcoming.batches, size
        )
