"""MSMT17 (Wei et al., CVPR 2018): four lists of ``path identity`` next to the folders of training and test images."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.columns import number_labels
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.columns import check_paths, concat, file_stats
from dataprep.sources.lists import parse_lists
from dataprep.sources.patterns import INTEGER, parse_pattern, read_names, sorted_values
from manifests.errors import SourceError
from manifests.schema import split_order

#: The folder of the images of each split, as an index into a pair of `FOLDERS`: 0 is training, 1 is
#: test.
SPLITS = {"train": 0, "val": 0, "query": 1, "gallery": 1}
#: Names of the training and test folders: the first release, and the one with blurred faces.
FOLDERS = (("train", "test"), ("mask_train_v2", "mask_test_v2"))
#: ``0000_000_01_0303morning_0008_0``: identity, image number, camera, day and time of day.
FILE_NAMES = parse_pattern("*_*_{camera}_*", INTEGER)


def find_msmt17(src: str, folders: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the training and test folders, if all four lists are next to them."""
    if not all(storage.is_file(os.path.join(src, f"list_{split}.txt")) for split in SPLITS):
        return None
    return next((pair for pair in FOLDERS if {*pair} <= {*folders}), None)


def read_msmt17(src: str, train_and_test: tuple[str, str], options: SourceOptions) -> Source:
    """Read the images of all four lists.

    The test lists contain other people than the training lists, and number them from 0 again. Their
    identities are renumbered to follow those of training.

    Raises:
        SourceError: a line, an identity or a file name is not valid, or an image is missing or
            listed twice.

    """
    order = split_order({*SPLITS})
    paths, text, locate = parse_lists([os.path.join(src, f"list_{split}.txt") for split in order])
    wrong = pc.index(pc.match_substring_regex(text, r"^[0-9]{1,9}$"), False).as_py()
    if wrong >= 0:
        file, line = locate(wrong)
        raise SourceError(
            f"identity {text[wrong].as_py()!r} is not a number of 1 to 9 digits",
            file=file,
            line=line,
            hint="write each line as `path identity`",
        )
    split = np.repeat(np.arange(len(order), dtype=np.int8), [len(part) for part in paths])
    path = concat(
        [
            pa.array(
                [f"{train_and_test[SPLITS[split_name]]}/{name}" for name in part.to_pylist()],
                pa.large_string(),
            )
            for split_name, part in zip(order, paths, strict=True)
        ]
    )
    identity = np.array(text.cast(pa.int64()))
    in_test = np.array([SPLITS[name] for name in order], bool)[split]
    first = int(identity[~in_test].max(initial=-1)) + 1
    identity[in_test] += first
    names = pa.array([f"{number:04d}" for number in identity.tolist()], pa.large_string())
    label, classes = number_labels(names, options.classes or sorted_values(names), locate)
    camera = read_names(path, FILE_NAMES, src)["camera"].cast(pa.int64())
    stats = file_stats(src, path)
    source = Source(
        root=src,
        layout="MSMT17",
        classes=classes,
        splits=order,
        path=path,
        label=label,
        split=split,
        size=stats[:, 0],
        stamp=stats[:, 1:],
        extra=pa.table({"identity": pa.array(identity), "camera": camera}),
        notices=(
            (
                f"identities in {train_and_test[1]}/ are renumbered from {first}, after"
                f" {train_and_test[0]}/"
            ),
        ),
    )
    check_paths(source, locate)
    return source
