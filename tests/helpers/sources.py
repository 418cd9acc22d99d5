"""Read sources in tests, and inspect the result."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import pytest

from dataprep.sources import Source, SourceOptions, read_source
from manifests.errors import DatasetError


def read(src: object, **options: object) -> Source:
    """Call `read_source` with the fields of `SourceOptions` as keywords."""
    return read_source(str(src), SourceOptions(**options))


def rows(source: Source) -> list[tuple[object, ...]]:
    """Return split, path, class name and the extra columns of every sample, in order."""
    return [
        (source.splits[split], path, source.classes[label], *extra.values())
        for split, path, label, extra in zip(
            source.split,
            source.path.to_pylist(),
            source.label,
            source.extra.to_pylist() if source.extra.column_names else [{}] * len(source),
            strict=True,
        )
    ]


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


class _Entries(list[os.DirEntry[str]]):
    def __enter__(self) -> Iterator[os.DirEntry[str]]:
        return iter(self)

    def __exit__(self, *_: object) -> None:
        pass


def shuffled_scandir(seed: int) -> Callable[[str], _Entries]:
    """Make a replacement for `os.scandir` that returns the entries in random order."""
    rng, scandir = random.Random(seed), os.scandir

    def shuffled(path: str) -> _Entries:
        entries = list(scandir(path))
        return _Entries(rng.sample(entries, len(entries)))

    return shuffled


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
    return {
        f"{train}/0000/0000_000_01_0303morning_0008_0.jpg": "x",
        f"{train}/0001/0001_000_05_0303morning_0036_0.jpg": "x",
        f"{train}/0000/0000_001_14_0303noon_0009_1.jpg": "x",
        f"{test}/0000/0000_000_12_0303afternoon_0008_0.jpg": "x",
        f"{test}/0000/0000_001_02_0303morning_0008_0.jpg": "x",
        f"{test}/0001/0001_000_03_0303morning_0008_0.jpg": "x",
        "list_train.txt": (
            "0000/0000_000_01_0303morning_0008_0.jpg 0\n0001/0001_000_05_0303morning_0036_0.jpg 1\n"
        ),
        "list_val.txt": "0000/0000_001_14_0303noon_0009_1.jpg 0\n",
        "list_query.txt": "0000/0000_000_12_0303afternoon_0008_0.jpg 0\n",
        "list_gallery.txt": (
            "0000/0000_001_02_0303morning_0008_0.jpg 0\n0001/0001_000_03_0303morning_0008_0.jpg 1\n"
        ),
    }
