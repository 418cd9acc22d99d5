"""The images to compare, of one or several sources, as columns; and what is read of each image."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from dataprep import storage
from dataprep.arrays import AnyArray, BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array
from dataprep.duplicates.pixels import WORDS, parse_hashes
from dataprep.engines import LocalEngine
from dataprep.images.base import Rejected
from dataprep.images.perceptual_hash import hash_pixels, reduce_image
from dataprep.options import (
    HASH_COLUMN,
    HASH_RECIPE,
    HASHES_NAME,
    MAX_PIXELS,
    Options,
    Raw,
    max_pixels_of,
)
from dataprep.progress import Progress, divide
from dataprep.shards.source_image import LoadedImage, Value, read_images
from dataprep.sources import Source
from manifests.errors import CallError, DamagedError, StoppedError
from manifests.files import TABLE, ParquetError, open_file
from manifests.json_members import parse_json
from manifests.parquet import BoundedParquet, parquet_bytes
from manifests.records import record
from manifests.store import read_manifest

# --- functions for `read_some` --------------------------------------------------------------------


def describe(image: LoadedImage) -> tuple[int, int, int, str | None, str]:
    """Return what an image contains.

    Returns:
        The number of its bytes, their checksum, the shorter side in pixels, the perceptual hash, and
        why the image has no hash although it is not too flat: it cannot be decoded, or has other
        pixels than RGB of 8 bits.

    """
    info, code, problem = image.info, None, ""
    try:
        code = hash_pixels(reduce_image(image.data, info))
    except Rejected as error:
        problem = str(error)
    return len(image.data), crc32c(image.data), min(info.width, info.height), code, problem


def digest(image: LoadedImage) -> bytes:
    """Return 16 bytes that are equal for equal images, and differ for others."""
    return hashlib.blake2b(image.data, digest_size=16).digest()


def reduced(image: LoadedImage) -> UInt8Array:
    """Return the reduced pixels of an image, uint8 [32, 32]."""
    return reduce_image(image.data, image.info)


# --- hashes in a file of a prepared dataset -------------------------------------------------------


_log = logging.getLogger(__name__)

_METADATA_KEY = b"dataprep"
_NOTE = {"recipe": HASH_RECIPE, "note": "written by `dataprep duplicates`; it can be removed"}
_SCHEMA = pa.schema({
    "shard": pa.string(),
    "offset": pa.int64(),
    "crc32c": pa.uint32(),
    "hash": pa.binary(8 * WORDS),
    "problem": pa.string(),
})  # fmt: skip

#: A row needs at least the four bytes of its checksum.
_ROWS_PER_BYTE = 0.25


def _read_stored(source: Source, rows: Int64Array) -> pa.Table | None:
    """Return what the file states about some samples, if these have not changed.

    Returns:
        The columns ``row``, ``hash`` and ``problem``: the row of the source, the hash, which is null
        if the image is flat or does not decode, and why it does not decode. `None` if there is no
        file, or the file cannot be used.

    """
    path = os.path.join(source.root, HASHES_NAME)
    if not storage.is_file(path):
        return None
    try:
        with open_file(path, TABLE) as file:
            parquet = BoundedParquet(file, rows_per_byte=_ROWS_PER_BYTE)
            recipe = parse_json(parquet.metadata.get(_METADATA_KEY, b"{}")).get("recipe")
            if recipe is None or recipe.value != HASH_RECIPE:
                return None
            stored = parquet.read(_SCHEMA.names)
    except (OSError, ParquetError, DamagedError, ValueError) as error:
        _log.warning("%s: not used, because it cannot be read (%s)", path, error)
        return None
    if stored.schema != _SCHEMA:
        _log.warning("%s: not used, because a column has another type", path)
        return None
    keys = _keys(source, rows)
    found = keys.append_column("row", pa.array(rows)).join(
        stored, keys.column_names, join_type="inner"
    )
    return found.select(["row", "hash", "problem"])


def _keys(source: Source, rows: Int64Array) -> pa.Table:
    """Return ``shard``, ``offset`` and ``crc32c`` of some samples of a prepared dataset."""
    location = source.location
    if location is None:
        raise TypeError("only a prepared dataset has shards")
    taken = location.take(pa.array(rows))
    return pa.table({
        "shard": taken["container"].cast(pa.string()),
        "offset": taken["position"],
        "crc32c": taken["crc32c"],
    })  # fmt: skip


# --- the images of all sources --------------------------------------------------------------------


#: Splits of all sources together.
MAX_PARTS = 64


class Part(NamedTuple):
    """A split of a source.

    Attributes:
        source: number of the source.
        split: name of the split.

    """

    source: int
    split: str


@record
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
        computed: whether the hash is not in a sample table.
        unread: whether the image had to be read.
        problems: images that cannot be read or decoded, with the reason.
        max_pixels: images with more pixels are not decoded; `None` uses the limit that a prepared
            dataset was converted with, but at most the default.

    """

    sources: tuple[Source, ...]
    starts: Int64Array
    parts: tuple[Part, ...]
    part: NDArray[np.int8]
    labels: tuple[str, ...]
    label: Int32Array
    size: Int64Array
    crc32c: NDArray[np.uint32]
    readable: BoolArray
    hashes: UInt64Array
    has_hash: BoolArray
    shorter: Int32Array
    computed: BoolArray
    unread: BoolArray
    problems: dict[int, str]
    max_pixels: int | None = None

    def __len__(self) -> int:
        return len(self.part)

    def place(self, image: int) -> tuple[int, int]:
        """Return the number of an image's source, and its row there."""
        number = int(np.searchsorted(self.starts, image, side="right")) - 1
        return number, image - int(self.starts[number])


def read_some(
    images: Collection,
    numbers: Int64Array,
    function: Callable[[LoadedImage], Value],
    workers: int | None,
    progress: Progress | None,
) -> Iterator[tuple[int, Value | str]]:
    """Read images without checking them, and apply a function to each of them; see `read_images`.

    Args:
        images: the collection.
        numbers: numbers of the images, int64 [N], ascending.
        function: a function of this module.
        workers: number of processes; `None` means one per CPU.
        progress: receives the images that are read.

    Yields:
        The number of each image, and the result or else why the image cannot be read.

    """
    ends = np.searchsorted(numbers, images.starts)
    with (
        divide(progress, np.diff(ends).tolist()) as shares,
        closing(LocalEngine(workers)) as engine,
    ):
        for at, (source, share) in enumerate(zip(images.sources, shares, strict=True)):
            start = int(images.starts[at])
            raw = Raw(source.pixels[0]) if source.pixels else None
            limit = images.max_pixels or MAX_PIXELS
            channels, dtype = source.kind
            if source.prepared and not images.max_pixels:
                limit = min(limit, max_pixels_of(read_manifest(source.root)))
            results = read_images(
                source.images,
                numbers[ends[at] : ends[at + 1]] - start,
                function,
                options=Options(
                    validate="none", raw=raw, max_pixels=limit, channels=channels, dtype=dtype
                ),
                engine=engine,
                progress=share,
                any_pixels=True,
            )
            for row, value in results:
                yield start + row, value


def collect(
    sources: Sequence[Source],
    *,
    max_pixels: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Collection:
    """Gather checksums and perceptual hashes. Images without them in a sample table are read.

    Args:
        sources: the sources.
        max_pixels: see `Collection.max_pixels`.
        workers: number of processes; `None` means one per CPU.
        progress: receives the images that are read.

    Raises:
        CallError: the sources have too many splits.
        SourceVanishedError: an image is gone, or its size changed after the scan.

    """
    parts: list[Part] = []
    part, label = [], []
    for number, source in enumerate(sources):
        part.append(len(parts) + source.split.astype(np.int64))
        for split in source.splits:
            parts.append(Part(number, split))
    if len(parts) > MAX_PARTS:
        raise CallError(
            f"the datasets have {len(parts)} splits, but at most {MAX_PARTS} can be compared",
            hint="give fewer datasets, or join splits with `dataprep convert`",
        )
    known = list(map(_known, sources))
    starts = np.cumsum([0, *map(len, sources)])
    problems = {}
    numbers: dict[str, int] = {}
    for source, (_, own_problems), start in zip(sources, known, starts.tolist(), strict=False):
        names, positions = _labels(source)
        in_all = [numbers.setdefault(name, len(numbers)) for name in names]
        label.append(np.array(in_all, np.int32)[positions])
        for row, why in own_problems.items():
            problems[start + row] = why
    joined = {name: np.concatenate([arrays[name] for arrays, _ in known]) for name in _TYPES}
    images = Collection(
        sources=tuple(sources),
        starts=starts,
        parts=tuple(parts),
        part=np.concatenate(part).astype(np.int8),
        labels=tuple(numbers),
        label=np.concatenate(label),
        **joined,
        problems=problems,
        max_pixels=max_pixels,
    )
    if images.unread.any():
        _read_unknown(images, workers, progress)
    return images


def _labels(source: Source) -> tuple[Sequence[str], Int32Array]:
    """Return the different labels as text, and which of them each image has."""
    if source.labels.is_class:
        return source.classes, source.label
    if not source.labels.copies_agree:
        return [""], np.zeros(len(source), np.int32)
    column = source.labels.number_column
    if column is None:
        texts = source.labels.texts(source.extra, source.classes)
    else:  # shown with all digits
        texts = [", ".join(map(str, numbers)) for numbers in source.extra[column].to_pylist()]
    encoded = pa.array(texts, pa.large_string()).dictionary_encode("encode")
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices)


#: Columns of a source that are read from images or tables, with their types.
_TYPES = {
    "size": np.int64,
    "crc32c": np.uint32,
    "readable": np.bool_,
    "hashes": np.uint64,
    "has_hash": np.bool_,
    "shorter": np.int32,
    "computed": np.bool_,
    "unread": np.bool_,
}

_Arrays = dict[str, AnyArray]


def _known(source: Source) -> tuple[_Arrays, dict[int, str]]:
    """Return what tables and stored hashes state, and why images do not decode, by row."""
    count = len(source)
    arrays: _Arrays = {name: np.zeros(count, kind) for name, kind in _TYPES.items()}
    arrays["hashes"] = np.zeros((count, WORDS), np.uint64)
    arrays["size"] = source.size
    location, measured = source.location, source.measured
    if source.prepared and location is not None and measured is not None:
        arrays["crc32c"] = np.asarray(pc.fill_null(location["crc32c"], 0))
        arrays["readable"] = np.asarray(pc.is_valid(location["crc32c"]))
        arrays["shorter"] = np.minimum(measured["width"], measured["height"]).astype(np.int32)
        if HASH_COLUMN in source.extra.column_names:
            text = source.extra[HASH_COLUMN]
            # No hash means that the image is flat, or that the shard was appended without --hash.
            arrays["has_hash"] = np.asarray(pc.is_valid(text)).copy()
            arrays["hashes"][arrays["has_hash"]] = parse_hashes(
                "".join(text.drop_null().to_pylist())
            )
    arrays["computed"] = ~(arrays["readable"] & arrays["has_hash"])
    arrays["unread"] = arrays["computed"].copy()
    stored = _read_stored(source, np.flatnonzero(arrays["unread"])) if source.prepared else None
    if stored is None:
        return arrays, {}
    rows = np.asarray(stored["row"])
    arrays["unread"][rows] = False
    arrays["has_hash"][rows] = np.asarray(pc.is_valid(stored["hash"]))
    words = b"".join(stored["hash"].fill_null(bytes(8 * WORDS)).to_pylist())
    arrays["hashes"][rows] = np.frombuffer(words, np.uint64).reshape(-1, WORDS)
    damaged = stored.filter(pc.is_valid(stored["problem"]))
    return arrays, dict(
        zip(damaged["row"].to_pylist(), damaged["problem"].to_pylist(), strict=True)
    )


def _read_unknown(images: Collection, workers: int | None, progress: Progress | None) -> None:
    """Read the images that are not known, and fill in what they contain."""
    images.readable[images.unread] = False
    unread = np.flatnonzero(images.unread)
    for image, value in read_some(images, unread, describe, workers, progress):
        if isinstance(value, str):
            images.problems[image] = value
            continue
        images.readable[image] = True
        images.size[image], images.crc32c[image], images.shorter[image], code, problem = value
        if problem:
            images.problems[image] = problem
        if code is not None:
            images.hashes[image], images.has_hash[image] = parse_hashes(code), True


def has_all_hashes(source: Source) -> bool:
    """Return whether the hashes of all images of a prepared dataset are stored."""
    return not _known(source)[0]["unread"].any()


def store_hashes(images: Collection) -> dict[str, str]:
    """Store hashes that had to be computed beside the prepared datasets.

    Returns:
        Why it was not possible, by the folder of each dataset that cannot be written to.

    """
    failures = {}
    for number, source in enumerate(images.sources):
        start, stop = images.starts[number : number + 2].tolist()
        if not source.prepared:
            continue
        if not images.unread[start:stop].any():
            # An earlier run may have been killed right after it stored the hashes.
            storage.remove_partials(source.root, is_alone=False)
            continue
        is_new = images.computed[start:stop] & images.readable[start:stop]
        try:
            _write_stored(images, source, start, np.flatnonzero(is_new))
        except StoppedError as error:
            failures[source.root] = error.message
    return failures


def _write_stored(images: Collection, source: Source, start: int, rows: Int64Array) -> None:
    """Write the file of a prepared dataset, with some of its samples; replace an older file.

    Raises:
        StorageError: the dataset cannot be written to, or the disk is full.

    """
    words = pa.py_buffer(images.hashes[start + rows])
    hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8 * WORDS), len(rows), [None, words])
    has_hash = pa.array(images.has_hash[start + rows])
    problems = pa.array([images.problems.get(start + row) for row in rows.tolist()], pa.string())
    columns = [
        *_keys(source, rows).columns,
        pc.if_else(has_hash, hashes, pa.scalar(None, hashes.type)),
        problems,
    ]
    metadata = {_METADATA_KEY: json.dumps(_NOTE)}
    table = pa.table(columns, schema=_SCHEMA.with_metadata(metadata))
    # A sample without a checksum in its sample table may have changed.
    table = table.filter(table["crc32c"].is_valid())
    content = parquet_bytes(table, dictionaries=["shard", "problem"])
    with storage.partials(source.root, is_alone=False):
        storage.replace_file(os.path.join(source.root, HASHES_NAME), content)
