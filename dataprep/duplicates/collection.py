"""The images to compare, of one or several sources, as columns; and what is read of each image."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from dataprep import storage
from dataprep.duplicates.pixels import WORDS, parse_hashes
from dataprep.engines import LocalEngine
from dataprep.images.base import Rejected
from dataprep.images.perceptual_hash import hash_pixels, reduce_image
from dataprep.options import HASH_COLUMN, HASH_RECIPE, HASHES_NAME, Options, Raw
from dataprep.progress import Progress, divide
from dataprep.shards.read import Value, read_images
from dataprep.shards.source_image import LoadedImage
from dataprep.sources import Source
from dataprep.storage.partials import remove_leftovers
from manifests.errors import CallError, DamagedError, StoppedError
from manifests.files import TABLE, open_file
from manifests.json_members import parse_json
from manifests.parquet import BoundedParquet, ParquetError, parquet_bytes


class Content(NamedTuple):
    """What an image contains.

    Attributes:
        size: its bytes.
        crc32c: their checksum.
        shorter: the shorter side in pixels.
        hash: the perceptual hash; `None` if the image is too flat to have one, or cannot be
            decoded.
        problem: why it cannot be decoded; empty if it can.

    """

    size: int
    crc32c: int
    shorter: int
    hash: str | None
    problem: str = ""


def read(
    source: Source,
    rows: NDArray[np.int64],
    function: Callable[[LoadedImage], Value],
    engine: LocalEngine,
    progress: Progress,
) -> Iterator[tuple[int, Value | str]]:
    """Read images without checking them; see `read_images`."""
    raw = Raw(source.pixels[0]) if source.pixels else None
    options = Options(validate="none", raw=raw)
    return read_images(
        source.images, rows, function, options=options, engine=engine, progress=progress
    )


# --- functions for `read` ---------------------------------------------------------------------------


def describe(image: LoadedImage) -> Content:
    """Return the checksum and the perceptual hash of an image.

    One that does not decode has no hash.
    """
    info, checksum = image.info, crc32c(image.data)
    shorter = min(info.width, info.height)
    content = Content(size=len(image.data), crc32c=checksum, shorter=shorter, hash=None)
    try:
        return content._replace(hash=hash_pixels(reduce_image(image.data, info)))
    except Rejected as error:
        return content._replace(problem=f"{error.reason}: {error.detail}")


def digest(image: LoadedImage) -> bytes:
    """Return 16 bytes that are equal for equal images, and differ for others."""
    return hashlib.blake2b(image.data, digest_size=16).digest()


def reduced(image: LoadedImage) -> NDArray[np.uint8]:
    """Return the reduced pixels of an image, uint8 [32, 32]."""
    return reduce_image(image.data, image.info)


# --- hashes in a file of a prepared dataset ---------------------------------------------------------


_log = logging.getLogger(__name__)

_METADATA_KEY = b"dataprep"
_COLUMNS = {
    "shard": pa.string(),
    "offset": pa.int64(),
    "crc32c": pa.uint32(),
    "hash": pa.binary(8 * WORDS),
    "problem": pa.string(),
}

#: A row needs at least the four bytes of its checksum.
_ROWS_PER_BYTE = 0.25

#: Shards and offsets that fit into one number together: 16 million shards of a terabyte.
_MAX_SHARDS, _OFFSET_BITS = 1 << 24, 40


class Stored(NamedTuple):
    """What the file states about some samples.

    Attributes:
        rows: rows of the source, int64 [N].
        hashes: uint64 [N, 4]; zeros without a hash.
        has_hash: whether each image has a hash: one that is flat or does not decode has none.
        problems: why images do not decode, by row of the source.

    """

    rows: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    has_hash: NDArray[np.bool_]
    problems: dict[int, str]


_NOTHING = Stored(np.zeros(0, np.int64), np.zeros((0, WORDS), np.uint64), np.zeros(0, np.bool_), {})


def read_hashes(source: Source) -> Stored:
    """Return the hashes in the file of a prepared dataset, of the samples that have not changed."""
    path = os.path.join(source.root, HASHES_NAME)
    if source.location is None or not storage.is_file(path):
        return _NOTHING
    try:
        table = _read(path)
    except (OSError, ParquetError, DamagedError, ValueError) as error:
        _log.warning("%s: not used, because it cannot be read (%s)", path, error)
        return _NOTHING
    if table is None:
        return _NOTHING
    names = pc.unique(table["shard"].combine_chunks())
    own = _places(
        source.location["container"].cast(pa.string()), source.location["position"], names
    )
    stored = _places(table["shard"], table["offset"], names)
    order = np.argsort(stored, kind="stable")
    at = np.searchsorted(stored[order], own).clip(max=max(len(order) - 1, 0))
    rows = np.flatnonzero(own >= 0) if len(order) else np.zeros(0, np.int64)
    match = order[at[rows]] if len(order) else rows
    crc, own_crc = np.asarray(table["crc32c"]), source.location["crc32c"]
    same = (stored[match] == own[rows]) & np.asarray(pc.is_valid(own_crc))[rows]
    same &= crc[match] == np.asarray(pc.fill_null(own_crc, 0))[rows]
    rows, match = rows[same], match[same]
    found = table.take(pa.array(match))
    has_hash = np.asarray(pc.is_valid(found["hash"]))
    hashes = np.zeros((len(rows), WORDS), np.uint64)
    hashes[has_hash] = _words(found["hash"].drop_null())
    problems = dict(zip(rows.tolist(), found["problem"].to_pylist(), strict=True))
    return Stored(rows, hashes, has_hash, {row: why for row, why in problems.items() if why})


def write_hashes(
    source: Source,
    rows: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    has_hash: NDArray[np.bool_],
    problems: dict[int, str],
) -> None:
    """Write the file of a prepared dataset, with some of its samples, and replace the one that is there.

    Args:
        source: the samples.
        rows: the rows to write, int64 [N]. A row without a checksum in the sample table is left out.
        hashes: their hashes, uint64 [N, 4].
        has_hash: whether each has one, bool [N].
        problems: why images do not decode, by row of the source.

    Raises:
        StorageError: the dataset cannot be written to, or the disk is full.

    """
    location = source.location
    if location is None:
        return
    has_checksum = np.asarray(pc.is_valid(location["crc32c"]))[rows]
    rows, hashes, has_hash = rows[has_checksum], hashes[has_checksum], has_hash[has_checksum]
    taken = location.take(pa.array(rows))
    binary = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(8 * WORDS), len(rows), [None, pa.py_buffer(np.ascontiguousarray(hashes))]
    )
    table = pa.table({
        "shard": taken["container"].cast(pa.string()),
        "offset": taken["position"].cast(pa.int64()),
        "crc32c": taken["crc32c"],
        "hash": pc.if_else(pa.array(has_hash), binary, pa.scalar(None, binary.type)),
        "problem": pa.array([problems.get(row) for row in rows.tolist()], pa.string()),
    })  # fmt: skip
    note = {"recipe": HASH_RECIPE, "note": "written by `dataprep duplicates`; it can be removed"}
    table = table.replace_schema_metadata({_METADATA_KEY: json.dumps(note)})
    content = parquet_bytes(table, dictionaries=["shard", "problem"])
    with storage.partials([source.root], is_locked=False):
        storage.replace_file(os.path.join(source.root, HASHES_NAME), content)


def _read(path: str) -> pa.Table | None:
    """Read the file; `None` if it has another recipe.

    Raises:
        ParquetError, ValueError: it is damaged.

    """
    with open_file(path, TABLE) as file:
        parquet = BoundedParquet(file, rows_per_byte=_ROWS_PER_BYTE)
        recipe = parse_json(parquet.metadata.get(_METADATA_KEY, b"{}")).get("recipe")
        if recipe is None or recipe.value != HASH_RECIPE:
            return None
        table = parquet.read([*_COLUMNS])
    for name, kind in _COLUMNS.items():
        if table.schema.field(name).type != kind:
            raise ParquetError(f"column {name} has the type {table.schema.field(name).type}")
        if table[name].null_count and name not in ("hash", "problem"):
            raise ParquetError(f"column {name} has rows without a value")
    return table


def _places(shard: pa.ChunkedArray, offset: pa.ChunkedArray, names: pa.Array) -> NDArray[np.int64]:
    """Return a number for each place in one of the named shards, int64 [N].

    -1 for one that is not in them.
    """
    code = np.asarray(pc.fill_null(pc.index_in(shard, value_set=names), -1)).astype(np.int64)
    at = np.asarray(offset).astype(np.int64)
    is_valid = (code >= 0) & (code < _MAX_SHARDS) & (at >= 0) & (at < 1 << _OFFSET_BITS)
    return np.where(is_valid, (code << _OFFSET_BITS) | at, -1)


def _words(hashes: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return hashes without nulls as uint64 [N, 4]."""
    parts = []
    for chunk in hashes.chunks:
        data = (
            np.frombuffer(chunk.buffers()[1], np.uint64) if len(chunk) else np.zeros(0, np.uint64)
        )
        parts.append(data.reshape(-1, WORDS)[chunk.offset : chunk.offset + len(chunk)])
    return np.concatenate([np.zeros((0, WORDS), np.uint64), *parts])


# --- the images of all sources ----------------------------------------------------------------------


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
    columns = [_stated(source) for source in sources]
    unread = [int((~each.is_known).sum()) for each in columns]
    with divide(progress, unread) as shares, closing(LocalEngine(workers)) as engine:
        for source, each, share in zip(sources, columns, shares, strict=True):
            _read_unknown(source, each, engine, share)
    starts = np.cumsum([0, *map(len, sources)])
    first_part = np.cumsum([0, *(len(source.splits) for source in sources)])
    problems: dict[int, str] = {}
    part, label, computed = [], [], []
    numbers: dict[str, int] = {}
    for source, each, start, first in zip(sources, columns, starts, first_part, strict=False):
        names, positions = _labels(source)
        in_all = [numbers.setdefault(name, len(numbers)) for name in names]
        label.append(np.array(in_all, np.int32)[positions])
        part.append((first + source.split.astype(np.int64)).astype(np.int8))
        computed.append(start + each.computed)
        problems.update((int(start) + row, why) for row, why in each.problems.items())
    joined = {name: np.concatenate([each.arrays[name] for each in columns]) for name in _TYPES}
    return Collection(
        sources=tuple(sources),
        starts=starts,
        parts=tuple(parts),
        part=np.concatenate(part),
        labels=tuple(numbers),
        label=np.concatenate(label),
        **joined,
        problems=problems,
        computed=np.concatenate(computed),
        read=tuple(unread),
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


def _labels(source: Source) -> tuple[list[str], NDArray[np.int32]]:
    """Return the different labels as text, and the position among them of the label of each image."""
    if source.labels.is_class:
        return [*source.classes], source.label
    if not source.labels.copies_agree:
        return [""], np.zeros(len(source), np.int32)
    column = source.labels.number_column
    if column is None:
        texts = source.labels.texts(source.extra, source.classes).to_pylist()
    else:  # shown with all digits
        texts = (", ".join(map(str, numbers)) for numbers in source.extra[column].to_pylist())
    numbers: dict[str, int] = {}
    positions = [numbers.setdefault(text, len(numbers)) for text in texts]
    return [*numbers], np.array(positions, np.int32)


class _Columns(NamedTuple):
    """What is known about the images of one source.

    Attributes:
        arrays: arrays with the names in `_TYPES`.
        problems: why images cannot be read or decoded, by row.
        computed: rows whose hashes are not in the sample tables.
        is_known: images that need not be read, bool [n].

    """

    arrays: dict[str, NDArray[Any]]
    problems: dict[int, str]
    computed: NDArray[np.int64]
    is_known: NDArray[np.bool_]


def _stated(source: Source) -> _Columns:
    """Return what is known before any image is read."""
    arrays, is_known = _known(source)
    computed = np.flatnonzero(~is_known)
    problems = _fill_in_stored(source, arrays, is_known) if source.prepared else {}
    return _Columns(arrays, problems, computed, is_known)


def _read_unknown(
    source: Source, columns: _Columns, engine: LocalEngine, progress: Progress
) -> None:
    """Read the images that are not known, and fill in what they contain."""
    arrays, problems, _, is_known = columns
    rows = np.flatnonzero(~is_known)
    if not len(rows):
        return
    arrays["readable"][rows] = False
    hashed: dict[int, str] = {}
    for row, value in read(source, rows, describe, engine, progress):
        if isinstance(value, str):
            problems[row] = value
            continue
        if value.problem:
            problems[row] = value.problem
        if value.hash is not None:
            hashed[row] = value.hash
        for name in ("size", "crc32c", "shorter"):
            arrays[name][row] = getattr(value, name)
        arrays["readable"][row] = True
    at = np.fromiter(hashed, np.int64, len(hashed))
    arrays["hashes"][at] = parse_hashes("".join(hashed.values()).encode())
    arrays["has_hash"][at] = True


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
    return bool(_stated(source).is_known.all())


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
            # An earlier run may have been killed right after it stored the hashes.
            remove_leftovers(source.root)
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
