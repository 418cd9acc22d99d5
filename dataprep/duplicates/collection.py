"""The images to compare, of one or several sources, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.duplicates.content import Content, describe, map_images
from dataprep.duplicates.stored import read_hashes, write_hashes
from dataprep.duplicates.symmetries import WORDS, parse_hashes
from dataprep.options import HASH_COLUMN
from dataprep.progress import Progress, divide
from dataprep.sources import Source
from dataprep.storage.partials import remove_leftovers
from manifests.errors import CallError, StoppedError
from manifests.labels import LABEL_COLUMNS, LabelType

#: Splits of all sources together.
MAX_PARTS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """A split of a source.

    Attributes:
        source: number of the source.
        split: name of the split.

    """

    source: int
    split: str


@dataclass(frozen=True)
class Collection:
    """Images of several sources, one source after the other. Every array is [images].

    Attributes:
        sources: the sources.
        starts: the first image of each source, and the number of images.
        parts: all splits.
        part: position in `parts` of each image, int8.
        labels: the labels of all sources as text: names of classes; empty for labels that cannot
            conflict.
        label: position in `labels` of each image, int32.
        size: bytes, int64.
        crc32c: checksum, uint32.
        readable: whether the image could be read, and has a checksum.
        hashes: perceptual hashes, uint64 [images, 4].
        has_hash: whether the image has one.
        shorter: the shorter side in pixels, int32.
        problems: images that cannot be read or decoded, with the reason.
        computed: images whose hashes are not in sample tables, int64.
        read: number of images of each source that were read.

    """

    sources: tuple[Source, ...]
    starts: NDArray[np.int64]
    parts: tuple[Part, ...]
    part: NDArray[np.int8]
    labels: tuple[str, ...]
    label: NDArray[np.int32]
    size: NDArray[np.int64]
    crc32c: NDArray[np.uint32]
    readable: NDArray[np.bool_]
    hashes: NDArray[np.uint64]
    has_hash: NDArray[np.bool_]
    shorter: NDArray[np.int32]
    problems: dict[int, str]
    computed: NDArray[np.int64]
    read: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.part)

    def place(self, image: int) -> tuple[int, int]:
        """Return the number of an image's source, and its row there."""
        number = int(np.searchsorted(self.starts, image, side="right")) - 1
        return number, image - int(self.starts[number])


def collect(
    sources: Sequence[Source], *, workers: int | None = None, progress: Progress | None = None
) -> Collection:
    """Gather checksums and perceptual hashes. Images without them in a sample table are read.

    Args:
        sources: the sources.
        workers: number of processes; `None` means one per CPU.
        progress: receives the images that are read.

    Raises:
        CallError: the sources have too many splits.
        SourceVanishedError: an image is gone, or its size changed after the scan.

    """
    parts = [
        Part(number, split) for number, source in enumerate(sources) for split in source.splits
    ]
    if len(parts) > MAX_PARTS:
        raise CallError(
            f"the datasets have {len(parts)} splits, but at most {MAX_PARTS} can be compared",
            hint="give fewer datasets, or join splits with `dataprep convert`",
        )
    known = [_stated(source) for source in sources]
    with divide(progress, [int((~each.is_known).sum()) for each in known]) as shares:
        columns = [
            _columns(source, each, workers, share)
            for source, each, share in zip(sources, known, shares, strict=True)
        ]
    counts = [len(source) for source in sources]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    first_part = np.cumsum([0, *(len(source.splits) for source in sources)])
    labels = [_labels(source) for source in sources]
    numbers = {
        name: number
        for number, name in enumerate(dict.fromkeys(name for names, _ in labels for name in names))
    }
    joined: dict[str, NDArray[Any]] = {
        name: np.concatenate([each.arrays[name] for each in columns]) for name in _TYPES
    }
    return Collection(
        sources=tuple(sources),
        starts=starts,
        parts=tuple(parts),
        part=np.concatenate(
            [first_part[n] + s.split.astype(np.int64) for n, s in enumerate(sources)]
        ).astype(np.int8),
        labels=tuple(numbers),
        label=np.concatenate(
            [np.array([numbers[name] for name in names], np.int32)[at] for names, at in labels]
        ),
        **joined,
        problems={
            int(starts[n]) + row: why
            for n, each in enumerate(columns)
            for row, why in each.problems.items()
        },
        computed=np.concatenate([starts[n] + each.computed for n, each in enumerate(columns)]),
        read=tuple(each.read for each in columns),
    )


#: Columns that are read from images or tables, with their types.
_TYPES = {
    "size": np.int64,
    "crc32c": np.uint32,
    "readable": np.bool_,
    "hashes": np.uint64,
    "has_hash": np.bool_,
    "shorter": np.int32,
}


#: Label types other than classes of which a copy must have the same. Two captions of one image may
#: differ.
_COMPARED: tuple[LabelType, ...] = ("multi-label", "regression")


def _labels(source: Source) -> tuple[list[str], NDArray[np.int32]]:
    """Return the different labels as text, and the position among them of the label of each image."""
    if source.label_type == "class":
        return [*source.classes], source.label
    if source.label_type not in _COMPARED:
        return [""], np.zeros(len(source), np.int32)
    (column,) = LABEL_COLUMNS[source.label_type]
    values = source.extra[column].to_pylist()
    if source.label_type == "multi-label":
        values = [sorted(source.classes[number] for number in value) for value in values]
    texts = [", ".join(map(str, value)) for value in values]
    names = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return [*names], np.array([names[text] for text in texts], np.int32)


class _Columns(NamedTuple):
    """What is known about the images of one source.

    Attributes:
        arrays: arrays with the names in `_TYPES`.
        problems: why images cannot be read or decoded, by row.
        computed: rows whose hashes are not in the sample tables.
        read: number of images that were read.

    """

    arrays: dict[str, NDArray[Any]]
    problems: dict[int, str]
    computed: NDArray[np.int64]
    read: int


class _Stated(NamedTuple):
    """What is known about the images of one source before any of them is read.

    Attributes:
        arrays: arrays with the names in `_TYPES`.
        problems: why images do not decode, by row.
        computed: rows whose hashes are not in the sample tables.
        is_known: images that need not be read, bool [n].

    """

    arrays: dict[str, NDArray[Any]]
    problems: dict[int, str]
    computed: NDArray[np.int64]
    is_known: NDArray[np.bool_]


def _stated(source: Source) -> _Stated:
    arrays, is_known = _known(source)
    computed = np.flatnonzero(~is_known)
    problems = _fill_in_stored(source, arrays, is_known) if source.prepared else {}
    return _Stated(arrays, problems, computed, is_known)


def _columns(source: Source, stated: _Stated, workers: int | None, progress: Progress) -> _Columns:
    arrays, problems, computed, is_known = stated
    rows = np.flatnonzero(~is_known)
    if not len(rows):
        return _Columns(arrays, problems, computed, 0)
    arrays["readable"][rows] = False
    found = map_images(source, rows, describe, workers=workers, progress=progress)
    problems |= {row: why for row, value in found.items() if (why := _problem(value))}
    contents = {row: value for row, value in found.items() if isinstance(value, Content)}
    at = np.fromiter(contents, np.int64, len(contents))
    for name in ("size", "crc32c", "shorter"):
        arrays[name][at] = [getattr(content, name) for content in contents.values()]
    arrays["readable"][at] = True
    hashed = {row: content.hash for row, content in contents.items() if content.hash is not None}
    at = np.fromiter(hashed, np.int64, len(hashed))
    arrays["hashes"][at] = parse_hashes("".join(hashed.values()).encode())
    arrays["has_hash"][at] = True
    return _Columns(arrays, problems, computed, len(rows))


def _problem(value: Content | str) -> str:
    return value if isinstance(value, str) else value.problem


def _known(source: Source) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Return what the sample tables of a prepared dataset state, and for which images that is everything."""
    count = len(source)
    arrays: dict[str, NDArray[Any]] = {
        name: np.zeros((count, WORDS) if name == "hashes" else count, kind)
        for name, kind in _TYPES.items()
    }
    arrays["size"] = source.size.copy()
    if not source.prepared or source.location is None or source.measured is None:
        return arrays, np.zeros(count, np.bool_)
    crc = source.location["crc32c"]
    arrays["crc32c"] = np.asarray(pc.fill_null(crc, 0)).astype(np.uint32)
    arrays["readable"] = np.asarray(pc.is_valid(crc))
    width, height = (np.asarray(source.measured[name]) for name in ("width", "height"))
    arrays["shorter"] = np.minimum(width, height).astype(np.int32)
    if HASH_COLUMN not in source.extra.column_names:
        return arrays, np.zeros(count, np.bool_)
    text = source.extra[HASH_COLUMN]
    hashed = np.asarray(pc.is_valid(text))
    arrays["hashes"][hashed] = parse_hashes("".join(text.drop_null().to_pylist()).encode())
    arrays["has_hash"] = hashed
    # No hash means that the image is flat, or that the shard was appended without --hash.
    return arrays, arrays["readable"] & hashed


def _fill_in_stored(
    source: Source, arrays: dict[str, NDArray[Any]], is_known: NDArray[np.bool_]
) -> dict[int, str]:
    """Add the hashes that `duplicates` stored before; return why images do not decode, by row."""
    stored = read_hashes(source)
    new = ~is_known[stored.rows]
    rows = stored.rows[new]
    arrays["hashes"][rows], arrays["has_hash"][rows] = stored.hashes[new], stored.has_hash[new]
    is_known[rows] = True
    return {row: stored.problems[row] for row in rows.tolist() if row in stored.problems}


def has_all_hashes(source: Source) -> bool:
    """Return whether the hashes of all images of a prepared dataset are stored, in its tables or beside them."""
    arrays, is_known = _known(source)
    _fill_in_stored(source, arrays, is_known)
    return bool(is_known.all())


def store_hashes(images: Collection) -> dict[str, str]:
    """Store hashes that had to be computed beside the prepared datasets, so that nobody computes them again.

    Returns:
        Why it was not possible, by the folder of each dataset that cannot be written to.

    """
    failures = {}
    for number, source in enumerate(images.sources):
        if not source.prepared:
            continue
        if not images.read[number]:
            remove_leftovers(
                source.root
            )  # an earlier run may have been killed right after it stored the hashes
            continue
        start, stop = images.starts[number : number + 2].tolist()
        rows = images.computed[(images.computed >= start) & (images.computed < stop)]
        rows = rows[images.readable[rows]]
        problems = {
            image - start: why for image, why in images.problems.items() if start <= image < stop
        }
        try:
            write_hashes(source, rows - start, images.hashes[rows], images.has_hash[rows], problems)
        except StoppedError as error:
            failures[source.root] = error.message
    return failures
