"""MSMT17 (Wei et al., CVPR 2018): four lists of ``path identity`` beside the folders of training and test."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.sources.columns import Source, SourceOptions, checked, concat, number_labels, sizes
from dataprep.sources.lists import join_lists
from dataprep.sources.patterns import NUMBER, fit, in_order, parse_pattern
from manifests.errors import SourceError
from manifests.schema import split_order

#: Each split, and which of the two folders its list is of.
LISTS = {"train": 0, "val": 0, "query": 1, "gallery": 1}
#: The folders of training and of test, and those of the version with blurred faces.
FOLDERS = (("train", "test"), ("mask_train_v2", "mask_test_v2"))
#: ``0000_000_01_0303morning_0008_0``: identity, count, camera, day and hour.
NAMES = parse_pattern("*_*_{camera}_*", NUMBER)


def find_msmt17(src: str, folders: Sequence[str]) -> tuple[str, str] | None:
    """Give the folders of training and of test, where all four lists are beside them."""
    if not all(os.path.isfile(os.path.join(src, f"list_{split}.txt")) for split in LISTS):
        return None
    return next((pair for pair in FOLDERS if {*pair} <= {*folders}), None)


def read_msmt17(src: str, train_and_test: tuple[str, str], options: SourceOptions) -> Source:
    """Read the images of all four lists.

    The lists of test count other people from 0 anew; they are numbered on after those of training.

    Raises:
        SourceError: a line, a name or an image is wrong.

    """
    order = split_order({*LISTS})
    paths, text, where = join_lists([os.path.join(src, f"list_{split}.txt") for split in order])
    wrong = pc.index(pc.match_substring_regex(text, r"^[0-9]{1,9}$"), False).as_py()
    if wrong >= 0:
        file, line = where(wrong)
        raise SourceError(f"identity {text[wrong].as_py()!r} is no number from 0", file=file, line=line)
    split = np.repeat(np.arange(len(order), dtype=np.int8), [len(part) for part in paths])
    path = concat(
        [pa.array([f"{train_and_test[LISTS[name]]}/{below}" for below in part.to_pylist()], pa.large_string())
         for name, part in zip(order, paths, strict=True)]
    )  # fmt: skip
    identity = np.array(text.cast(pa.int64()))
    of_test = np.array([LISTS[name] for name in order], bool)[split]
    first = int(identity[~of_test].max(initial=-1)) + 1
    identity[of_test] += first
    names = pa.array([f"{number:04d}" for number in identity.tolist()], pa.large_string())
    label, classes = number_labels(names, options.classes or in_order(names), where)
    source = Source(
        root=src,
        layout="laid out as MSMT17",
        classes=classes,
        splits=order,
        path=path,
        label=label,
        split=split,
        size=sizes(src, path),
        extra=pa.table({"identity": pa.array(identity), "camera": fit(path, NAMES, src)["camera"].cast(pa.int64())}),
        notices=(f"identities of {train_and_test[1]}/ count from {first} on, after those of {train_and_test[0]}/",),
    )
    return checked(source, where)
