"""Read sources in tests, and inspect the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataprep.containers import locations_of, read_location
from dataprep.images.base import Rejected
from dataprep.sources import Source, SourceOptions, read_source
from dataprep.sources.base import sample_table
from manifests.errors import DatasetError


def read(src: object, **options: object) -> Source:
    """Call `read_source` with the fields of `SourceOptions` as keywords."""
    return read_source(str(src), SourceOptions(**options))


def synthetic(
    count: int,
    columns: Mapping[str, Any] | None = None,
    *,
    classes: Sequence[str] = ("a",),
    splits: Sequence[str] = ("train",),
    label_type: str = "class",
    **properties: Any,
) -> Source:
    """Make a source of images that do not exist: extra columns, and other properties by their names."""
    paths = pa.array([f"{number}.jpg" for number in range(count)], pa.large_string())
    types = {"label": np.int32, "split": np.int8, "size": np.int64}
    arrays = {"size": np.ones(count, np.int64)}
    for name, values in properties.items():
        arrays[name] = np.asarray(values, types.get(name))
    table = sample_table(paths, **arrays, extra=pa.table(dict(columns or {})))
    return Source(
        "/x", "synthetic", table, tuple(classes), splits=tuple(splits), label_type=label_type
    )


def rows(source: Source) -> list[tuple[object, ...]]:
    """Return split, path, class name and the extra columns of every sample, in order."""
    found = []
    extra = source.extra.to_pylist() if source.extra.column_names else [{}] * len(source)
    for row, path in enumerate(source.path.to_pylist()):
        split, name = source.splits[source.split[row]], source.classes[source.label[row]]
        found.append((split, path, name, *extra[row].values()))
    return found


def load(source: Source) -> list[bytes | str]:
    """Read all images of a source from its containers; of one that is rejected, return the reason."""
    found: list[bytes | str] = []
    locations = locations_of(source.location, [*range(len(source))])
    for location, size in zip(locations, source.size.tolist(), strict=True):
        try:
            found.append(read_location(source.root, location, size))
        except Rejected as error:
            found.append(error.reason)
    return found


def refused(src: object, message: str, **options: object) -> DatasetError:
    """Check that a source is refused in one line with this pattern and a hint; return the error."""
    with pytest.raises(DatasetError, match=message) as caught:
        read(src, **options)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def has_notice(source: Source, *texts: str) -> bool:
    """Return whether one notice contains all of the texts."""
    return any(all(text in notice for text in texts) for notice in source.notices)


#: Files of re-identification datasets in their published layouts.
MARKET = (
    "bounding_box_train/0002_c1s1_000451_03.jpg", "bounding_box_train/0007_c3s3_077419_03.jpg",
    "bounding_box_test/-1_c1s1_000401_03.jpg", "bounding_box_test/0000_c1s1_000151_01.jpg",
    "bounding_box_test/0003_c6s3_070942_02.jpg", "query/0003_c1s6_015971_00.jpg",
)  # fmt: skip
DUKE = (
    "bounding_box_train/0001_c2_f0046182.jpg",
    "bounding_box_test/0002_c1_f0044158.jpg",
    "query/0002_c8_f0164567.jpg",
)
VERI = (
    "image_train/0001_c001_00016450_0.jpg",
    "image_test/0002_c002_00030600_0.jpg",
    "image_query/0002_c020_00084280_0.jpg",
)


def msmt17(train: str = "train", test: str = "test") -> dict[str, str]:
    """Return the files of MSMT17 with their contents, for given names of the two folders."""
    lists = {
        "train": ["0000/0000_000_01_0303morning_0008_0.jpg 0", "0001/0001_000_05_0303morning_0036_0.jpg 1"],
        "val": ["0000/0000_001_14_0303noon_0009_1.jpg 0"],
        "query": ["0000/0000_000_12_0303afternoon_0008_0.jpg 0"],
        "gallery": ["0000/0000_001_02_0303morning_0008_0.jpg 0", "0001/0001_000_03_0303morning_0008_0.jpg 1"],
    }  # fmt: skip
    files = {}
    for name, lines in lists.items():
        files[f"list_{name}.txt"] = "\n".join(lines) + "\n"
        for line in lines:
            files[f"{train if name in ('train', 'val') else test}/{line[:-2]}"] = "x"
    return files
