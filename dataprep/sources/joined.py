"""Join sources of one dataset, such as archives of train and val."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dataprep.sources.base import Source
from dataprep.sources.columns import concat


def join_sources(parts: Sequence[Source]) -> Source:
    """Return one source with the samples of all parts, in order.

    The parts have the same root, the same classes and no extra columns, and all of them or none
    have locations.
    """
    if len(parts) == 1:
        return parts[0]
    splits = tuple(dict.fromkeys(split for part in parts for split in part.splits))
    numbers = [
        np.array([splits.index(name) for name in part.splits], np.int8)[part.split]
        for part in parts
    ]
    locations = [part.location for part in parts if part.location is not None]
    stamps = [part.stamp for part in parts if part.stamp is not None]
    return replace(
        parts[0],
        splits=splits,
        path=concat([part.path for part in parts]),
        label=np.concatenate([part.label for part in parts]),
        split=np.concatenate(numbers),
        size=np.concatenate([part.size for part in parts]),
        stamp=np.concatenate(stamps) if len(stamps) == len(parts) else None,
        notices=tuple(notice for part in parts for notice in part.notices),
        rejected=tuple(row for part in parts for row in part.rejected),
        location=(
            pa.concat_tables(locations).unify_dictionaries().combine_chunks() if locations else None
        ),
    )
