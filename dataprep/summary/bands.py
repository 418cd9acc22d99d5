"""Statistics of the bands of all images, from the columns that `convert --statistics` adds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataprep.options import STATISTICS_COLUMNS
from manifests.pixels import FULL_VALUES
from manifests.records import record
from manifests.schema import Manifest
from manifests.store import read_dataset


@record
class BandFacts:
    """One band of all images of a split, over the pixels that have data.

    Attributes:
        band: its number, from 1.
        minimum, maximum: smallest and largest value.
        mean: over all pixels, not over images.
        std: standard deviation, likewise.
        nodata: share of the pixels without data.

    """

    band: int
    minimum: float
    maximum: float
    mean: float
    std: float
    nodata: float


def read_bands(folder: str, manifest: Manifest) -> tuple[BandFacts, ...]:
    """Read the statistics of the first split, which is train if there is one.

    Empty if a table has no statistics, or if a band has no data.

    Raises:
        DatasetError: a sample table is damaged.

    """
    if not manifest.splits:
        return ()
    count = manifest.kind.channels
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    total = pixels = mean = squares = np.zeros(count)
    columns, split = ["width", "height"], manifest.splits[0].name
    batches = read_dataset(folder, columns, split, optional=STATISTICS_COLUMNS, manifest=manifest)
    for batch in batches:
        table = batch.table
        if not {*STATISTICS_COLUMNS} <= {*table.column_names}:
            return ()
        size = np.asarray(table["width"], np.float64) * np.asarray(table["height"])
        found = []
        for name in STATISTICS_COLUMNS:
            lists = table[name].to_pylist()
            if any(each is None or len(each) != count for each in lists):
                return ()
            found.append(np.array(lists, np.float64))
        least, most, means, deviations, nodata = found
        low, high = np.fmin(low, np.fmin.reduce(least)), np.fmax(high, np.fmax.reduce(most))
        # Bands without data count for nothing.
        weights, means = size[:, None] * (1 - nodata), np.nan_to_num(means)
        variances = np.nan_to_num(deviations) ** 2
        own = np.maximum(weights.sum(0), 1e-300)
        center = (weights * means).sum(0) / own
        inside = (weights * (variances + (means - center) ** 2)).sum(0)
        # Chan, Golub and LeVeque: add groups without losing digits.
        share = own / (total + own)
        squares = squares + inside + (center - mean) ** 2 * total * share
        mean, total = mean + (center - mean) * share, total + own
        pixels = pixels + size.sum()
    if not np.isfinite([low, high]).all():
        return ()
    values = np.stack([low, high, mean, np.sqrt(squares / total), 1 - total / pixels])
    return tuple(BandFacts(band, *each) for band, each in enumerate(values.T.tolist(), 1))


def normalize_line(bands: Sequence[BandFacts], manifest: Manifest) -> str:
    """Return the transform that makes the mean 0 and the standard deviation 1, after ToTensor.

    Empty without bands.
    """
    if not bands:
        return ""
    full = FULL_VALUES[manifest.kind.dtype]
    means, deviations = [], []
    for each in bands:
        means.append(f"{each.mean / full:.6g}")
        # A band of one value has no deviation to divide by.
        deviations.append(f"{each.std / full or 1:.6g}")
    return f"Normalize(mean=[{', '.join(means)}], std=[{', '.join(deviations)}])"
