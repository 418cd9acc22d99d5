"""Which samples of a source are in a dataset: the same path in the source and the same content."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.arrays import BoolArray, Int64Array
from dataprep.containers import Location, locations_of
from dataprep.engines import Engine
from dataprep.images.base import Rejected
from dataprep.images.validate import check_image
from dataprep.labels.base import LabelKind
from dataprep.labels.kinds import kind_with
from dataprep.ledger.finished import read_rejected
from dataprep.ledger.removed import read_removed
from dataprep.ledger.state import Folder
from dataprep.options import CHANGING_OPTIONS, Options, library_versions
from dataprep.plan.assign import fingerprint_of
from dataprep.progress import Progress, divide
from dataprep.run.inputs import options_members, options_of
from dataprep.shards.source_image import LoadedImage, load_image, load_others, read_images
from dataprep.sources import Source
from dataprep.sources.base import CLIP, first_names
from dataprep.summary.diff import hash_texts
from manifests.errors import CallError, SourceError
from manifests.json_members import MemberError
from manifests.labels import LABEL_IMAGE, place_columns
from manifests.process.text import agree, cut_middle, plural, printable
from manifests.remote.url import absolute
from manifests.schema import UNREADABLE, Manifest
from manifests.serialization import parts
from manifests.store import RowBatch, read_dataset

#: Begins the text of labels that would be rejected.
REJECTED = "one that is rejected"


class StoredOthers(NamedTuple):
    """The images of a sample in a shard, beside the first one.

    Attributes:
        number: number of the comparison.
        columns: the columns ``crc32c``, ``shard``, the path of the shard, and `place_columns` of
            each image.

    """

    number: int
    columns: Mapping[str, Any]


class Content(NamedTuple):
    """What was read of an image.

    Attributes:
        crc32c: CRC-32C of the image as it is stored.
        label: its label as text, as it is stored, if it refers to places in the image; else an empty
            text. A text that begins with `REJECTED` says why the label would be rejected.
        equal: numbers of the comparisons in which all images are the same, and both masks have the
            same pixels.

    """

    crc32c: int
    label: str = ""
    equal: tuple[int, ...] = ()


def read_contents(
    source: Source, options: Options, pairs: pa.Table, engine: Engine, progress: Progress
) -> Iterator[tuple[int, Content | str]]:
    """Read the images of some rows of a source in worker processes.

    Args:
        source: the samples.
        options: how the dataset stores them.
        pairs: a row of the source and a sample each, in ascending order of the rows: the columns
            ``row``, ``crc32c``, and, if there are other images, where they are in the shards.
        engine: runs the workers.
        progress: receives the images that are read.

    Returns:
        The row of each image, and what was read or else why the image would be rejected.

    """
    kind = source.labels
    pair_rows = np.asarray(pairs["row"])
    read = partial(
        read_images,
        source.images,
        np.unique(pair_rows),
        options=options,
        engine=engine,
        progress=progress,
    )
    if not (kind.is_placed or kind.others):
        return read(content_of)
    needed = (*kind.placed_columns, *kind.other_sources)
    extra = source.extra.select([name for name in needed if name in source.extra.column_names])

    def labels_in(some: Int64Array) -> list[tuple[dict[str, Any], Location | None, Any]]:
        stored: list[list[StoredOthers]] = [[] for _ in some]
        if kind.others:
            first, stop = np.searchsorted(pair_rows, [some[0], some[-1] + 1]).tolist()
            at = np.searchsorted(some, pair_rows[first:stop]).tolist()
            columns = ["crc32c", "shard", *kind.placed_columns]
            rows = pairs.select(columns).slice(first, stop - first).to_pylist()
            for number, row in enumerate(rows):
                stored[at[number]].append(StoredOthers(first + number, row))
        locations = locations_of(source.location, some)
        return [*zip(extra.take(some).to_pylist(), locations, stored, strict=True)]

    function = partial(
        labeled_content,
        root=source.root,
        options=options,
        kind=kind,
        classes=source.classes,
    )
    return read(function, arguments_in=labels_in)


def content_of(image: LoadedImage) -> Content:
    """Return the checksum of an image."""
    return Content(crc32c(image.data))


def labeled_content(
    image: LoadedImage,
    extra: dict[str, Any],
    location: Location | None,
    stored: list[StoredOthers],
    *,
    root: str,
    options: Options,
    kind: LabelKind,
    classes: tuple[str, ...],
) -> Content:
    """Return the checksum of an image with labels that refer to places in it, and compare other images.

    Args:
        image: the image, with its placement.
        extra: the columns of its labels.
        location: where the image is inside a container.
        stored: the other images in the dataset to compare.
        root: folder that relative paths start from.
        options: how the dataset stores images.
        kind: what the labels are, and which other images there are.
        classes: class names in label order.

    """
    checksum = crc32c(image.data)
    placement: Any = image.placement
    same = [each for each in stored if each.columns["crc32c"] == checksum]
    try:
        if not kind.others:
            return Content(checksum, kind.text(kind.place(extra, placement), classes))
        if not same:  # the other images of another image do not matter
            return Content(checksum)
        others = load_others(root, extra, placement, options, location, kind=kind)
    except Rejected as error:
        return Content(checksum, f"{REJECTED} ({error.detail})")
    row: dict[str, Any] = dict.fromkeys(kind.image_columns, 0)
    for other in others:
        row |= other.columns
    equal = []
    for each in same:
        different = [name for name in kind.others if not _has_same_bytes(name, row, each)]
        # The same bytes, or of a label image at least the same pixels.
        if different == [LABEL_IMAGE] and _has_same_pixels(
            others[0].data, each, options.max_pixels
        ):
            different = []
        if not different:
            equal.append(each.number)
    return Content(checksum, kind.text(row, classes) if kind.has_image else "", tuple(equal))


def _has_same_bytes(name: str, row: Mapping[str, Any], stored: StoredOthers) -> bool:
    return all(row[column] == stored.columns[column] for column in place_columns(name)[1:])


def _has_same_pixels(mask: bytes, stored: StoredOthers, max_pixels: int) -> bool:
    """Return whether a mask has the pixels of one in a dataset.

    Masks that are not stored as they are were encoded again, and libraries of another version give
    other bytes.
    """
    from dataprep.labels.images import label_values  # imports imaging libraries

    shard = absolute(stored.columns["shard"])
    offset, size, checksum = (stored.columns[name] for name in place_columns(LABEL_IMAGE))
    place = Location(shard, "range", offset, size, crc32c=checksum)
    unchanged = Options(validate="none", max_pixels=max_pixels)
    try:
        there = load_image(
            os.path.dirname(shard), shard, size, unchanged, place, any_pixels=True
        ).data
        a, b = (
            label_values(data, check_image(data, "none", max_pixels, None))
            for data in (mask, there)
        )
    except Rejected:
        return False
    return a.dtype == b.dtype and np.array_equal(a, b)


# --- the same image with another label or split ---------------------------------------------------


def own_texts(source: Source, rows: Int64Array) -> pa.Array:
    """Return the labels of some samples as text, if they do not refer to places in the image."""
    columns: dict[str, Any] = {"row": rows}
    for name in source.labels.columns:
        columns[name] = (source.label if name == "label" else source.extra[name]).take(rows)
    return source.labels.texts(pa.table(columns), source.classes)


def check_labels(
    source: Source,
    rows: Int64Array,
    stored: pa.Array,
    own: pa.Array,
    is_equal: BoolArray,
) -> None:
    """Refuse samples that are in the dataset with other labels.

    Args:
        source: the samples.
        rows: their rows, which can repeat: the dataset can have one image in several classes, int64
            [n].
        stored: the labels in the dataset as text.
        own: the labels in the source as text.
        is_equal: which labels are equal, bool [n]. One label of each sample must be.

    Raises:
        SourceError: a sample has another label.

    """
    moved = np.flatnonzero(~is_equal & ~np.isin(rows, rows[is_equal]))
    if not len(moved):
        return
    first, kind = int(moved[0]), source.labels
    row = int(rows[first])
    noun = changed = kind.noun
    if kind.others and (kind.has_image or own[first] == stored[first]):
        if not kind.has_image:
            noun, changed = f"image {' or '.join(kind.others)}", "image"
        others = source.extra.select(kind.other_sources).slice(row, 1).to_pylist()[0]
        paths = map(printable, filter(None, others.values()))
        where = f"with another {noun} than {' and '.join(paths) or 'none'}"
        text = _shown(own[first])
        if text.startswith(REJECTED):
            where += f", which is rejected{text.removeprefix(REJECTED)}"
    else:
        before, now = _shown(stored[first], 80), _shown(own[first], 80)
        where = f"with the label {before}, but here with {now}"
        if kind.is_class:
            where = f"in class {before}, but here in class {now}"
    if count := len(np.unique(rows[moved])) - 1:
        has = agree(count, "has", "have")
        where += f", and {plural(count, 'other image')} also {has} another {noun}"
    raise SourceError(
        f"the image is in the dataset {where}; --append only adds images",
        file=source.path[row].as_py(),
        hint=f"make the dataset again to change {changed}s",
    )


def _shown(text: pa.Scalar, length: int = 200) -> str:
    return cut_middle(printable(text.as_py()), length)


def is_in_split(source: Source, options: Options, pairs: pa.Table) -> BoolArray:
    """Return which samples are in the split that the source names, or were moved by the options, bool [n]."""
    stored = np.asarray(pairs["split"].to_pylist(), str)
    own = np.asarray(source.splits, str)[source.split[np.asarray(pairs["row"])]]
    shares = {"val": options.val_fraction, "test": options.test_fraction}
    made = [name for name, share in shares.items() if share]
    moved = (own == "train") & np.isin(stored, made)
    same: BoolArray = (own == stored) | moved | (options.duplicates == "same-split")
    return same


def describe_splits(out: str, source: Source, pairs: pa.Table) -> tuple[str, ...]:
    """Return a message about the samples that are in another split of the dataset `out`, if there are any.

    Args:
        out: folder or URL of the dataset.
        source: the samples.
        pairs: the same images, with the columns ``row``, ``split``, and ``same``, whether the split
            is the same; the newest revision last.

    """
    rows, same = np.asarray(pairs["row"]), np.asarray(pairs["same"])
    others = pairs.filter(pa.array(~np.isin(rows, rows[same])))
    moved = pc.unique(others["row"]).sort()
    if not len(moved):
        return ()
    row = moved[0].as_py()
    stored = others.filter(pc.equal(others["row"], row))["split"][-1].as_py()
    # One image is enough as an example.
    more = ""
    if len(moved) > 1:
        more = ", ..."
    are, they = agree(len(moved), "is", "are"), agree(len(moved), "it stays", "they stay")
    return (
        (
            f"{plural(len(moved), 'image')} of the source {are} in {printable(out)} in another"
            f" split, where {they}: {_shown(source.path[row])} is in {printable(stored)}, not in"
            f" {printable(source.splits[source.split[row]])}{more}"
        ),
    )


# --- which samples are in the dataset -------------------------------------------------------------


def describe_clips(base: Folder, new: Source) -> tuple[str, ...]:
    """Return a note if clips of the dataset get frames of a source, by their names."""
    if CLIP not in new.extra.column_names:
        return ()
    stored: set[Any] = set()
    for batch in read_dataset(base.out, ["key"], optional=[CLIP], manifest=base.manifest):
        if CLIP in batch.table.column_names:
            stored.update(pc.unique(batch.table[CLIP]).to_pylist())
    stored.discard(None)
    shared = [name for name in pc.unique(new.extra[CLIP]).to_pylist() if name in stored]
    if not shared:
        return ()
    get = agree(len(shared), "gets", "get")
    return (
        f"{plural(len(shared), 'clip')} of the dataset {get} frames of this source, because"
        f" {agree(len(shared), 'it has the name', 'they have the names')} of its clips:"
        f" {first_names(shared)}; if these are other clips, name them apart",
    )


def revision_with(base: Folder, source: Source) -> int | None:
    """Return the revision that this source made or was appended in; `None` if there is none.

    Reads no image.
    """
    manifest = base.manifest
    digests = [manifest.plans[0], *(revision.source_digest for revision in manifest.revisions)]
    for number, part in enumerate(parts(manifest)):
        if fingerprint_of(source, options_members(part.options)) == digests[number]:
            return number
    return None


#: Options that let a run take images that were unsupported without them.
_WIDENING = ("transcode", "window", "page", "to_rgb8")


def find_retried(
    base: Folder, source: Source, before: Mapping[str, object], options: Options
) -> BoolArray:
    """Return which samples were left out because they could not be read, and can be read now, bool [n].

    Args:
        base: the dataset.
        source: the samples.
        before: the options, as JSON, of the revision that left them out.
        options: the options of this append.

    """
    is_wider = False
    for name in _WIDENING:
        is_wider |= getattr(options, name) not in (None, False, before.get(name))
    rejected = base.manifest.rejected
    retried = np.zeros(len(source), np.bool_)
    unreadable = set()
    if rejected is None:
        return retried
    for row in read_rejected(base.out, rejected.name):
        if row["reason"] == "unreadable" or (is_wider and row["reason"] == "unsupported"):
            unreadable.add(row["source"])
    if not unreadable:
        return retried
    places = source.path if source.location is None else source.location["container"]
    for at in np.flatnonzero(pc.is_in(source.path, pa.array(unreadable, source.path.type))):
        place = os.path.join(source.root, str(places[int(at)].as_py()))
        is_permitted = storage.has_latency(place) or os.access(place, os.R_OK)
        retried[at] = is_permitted and storage.is_file(place)
    return retried


class Known(NamedTuple):
    """The samples of a source that are in the dataset.

    Attributes:
        rows: whether each sample is, bool [n].
        pairs: the samples that are in each revision, by the number of the revision: the columns
            ``row``, and ``source``, the path in the dataset.
        notices: messages for the user, one line each.

    """

    rows: BoolArray
    pairs: Mapping[int, pa.Table]
    notices: tuple[str, ...] = ()


def find_known(
    base: Folder, source: Source, engine: Engine, progress: Progress | None = None
) -> Known:
    """Find the samples of a source that are in the dataset.

    Only images with the file name and the folder of a sample are read, and if the dataset stores
    images as they are, only images that also have its length.

    Args:
        base: the dataset.
        source: the samples, with labels of the dataset.
        engine: reads images.
        progress: receives the number of images that are read.

    Raises:
        CallError: the images cannot be compared, because other libraries resized the images of the
            dataset.
        SourceError: an image is in the dataset with another label.

    """
    known = np.zeros(len(source), np.bool_)
    own = pa.table({"source": source.path, "size": source.size})
    pending = []
    manifest = base.manifest
    columns = ["source", *manifest.labels.stored_columns, "size", "crc32c"]
    for number, part in enumerate(parts(manifest)):
        batches = read_dataset(base.out, columns, manifest=part)
        tables = [_with_texts(base.out, manifest, rows) for rows in batches]
        if not tables:
            continue
        stored = pa.concat_tables(tables).replace_schema_metadata(None)
        stored = stored.set_column(0, "source", stored["source"].cast(pa.large_string()))
        is_unchanged = not part.options.keys() & CHANGING_OPTIONS
        pairs = _pairs(own, stored, by_size=is_unchanged and source.location is None)
        if len(pairs):
            pending.append((number, comparable(base, part.options, pairs), pairs))
    removed = read_removed(base.out, manifest)["crc32c"]
    # Read the images of each revision, with the options that it was stored with.
    found = [pa.table({"row": pa.array([], pa.int64()), "split": pa.array([], pa.string())})]
    same, in_revisions = [np.zeros(0, np.bool_)], {}
    with divide(progress, [len(pc.unique(pairs["row"])) for *_, pairs in pending]) as shares:
        for (number, options, pairs), share in zip(pending, shares, strict=True):
            equal = _compare(source, options, pairs, known, engine, share, removed)
            same.append(is_in_split(source, options, equal))
            found.append(equal.select(["row", "split"]))
            in_revisions[number] = equal.select(["row", "source"])
    every = pa.concat_tables(found).append_column("same", pa.array(np.concatenate(same)))
    return Known(known, in_revisions, describe_splits(base.out, source, every))


#: More pairs than this for each sample of both sides would take too much memory.
_MOST_PAIRS = 20

#: Odd, so that sizes that differ give numbers that differ.
_FACTOR = 0x9E3779B97F4A7C15


def _pairs(own: pa.Table, stored: pa.Table, *, by_size: bool) -> pa.Table:
    """Return the images of the source and the samples that may be the same.

    They have the same file name in a folder of the same name: the folders above it depend on what
    else was given as ``--src``. If that is so for too many, as for frames of videos, the whole path
    counts.

    Args:
        own: path and size of each image of the source.
        stored: path, size and others of each sample.
        by_size: whether the same image has the same size.

    """
    for shortens in (True, False):
        hashes = []
        for table in (own, stored):
            paths = table["source"]
            if shortens:  # to the file name, with the folder that it is in
                paths = pc.replace_substring_regex(paths, r"^.*/([^/]*/[^/]*)$", r"\1")
            # Int64Array with different keys can have the same hash, but not the same checksum too.
            hashes.append(hash_texts(paths))
            if by_size:
                hashes[-1] ^= np.uint64(_FACTOR) * np.asarray(table["size"]).astype(np.uint64)
        first, second = hashes
        order = np.argsort(second)
        start = np.searchsorted(second, first, "left", order)
        counts = np.searchsorted(second, first, "right", order) - start
        if counts.sum() <= _MOST_PAIRS * (len(own) + len(stored)):
            break
    # One pair for each image and each sample with the same key.
    rows = np.repeat(np.arange(len(own)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = stored.take(order[np.repeat(start, counts) + within])
    return found.append_column("row", pa.array(rows))


def comparable(base: Folder, members: Mapping[str, object], pairs: pa.Table) -> Options:
    """Return the options to read images with, so that they have the checksums in the tables."""
    made_by = members.get("made_by")
    reason = f"they were stored with {made_by}"
    try:
        options = options_of(members)
        if not options.changes_images:
            return replace(options, validate="none")
        if made_by == library_versions(transcodes=options.transcode is not None):
            return options
    except MemberError as error:
        reason = str(error)
    path = printable(pairs["source"][0].as_py())
    raise CallError(
        f"--append: {plural(len(pairs), 'image')} of the source, such as {path}, may"
        f" already be in {printable(base.out)}, but cannot be compared with it: {reason}",
        hint="leave them out with --where, or install these versions",
    )


def _compare(  # noqa: PLR0917
    source: Source,
    options: Options,
    pairs: pa.Table,
    known: BoolArray,
    engine: Engine,
    progress: Progress,
    removed: pa.ChunkedArray,
) -> pa.Table:
    """Read the images of pairs of which none is known yet, mark the rows that are the same, and return their pairs."""
    # Images that an earlier revision has are known already, and another size is another image.
    rows = np.asarray(pairs["row"])
    candidates = ~known[rows]
    if not options.changes_images and source.location is None:
        size = source.size[rows]
        candidates &= (size == np.asarray(pairs["size"])) | (size == UNREADABLE)
    pairs, rows = pairs.filter(pa.array(candidates)), rows[candidates]
    checksums = np.full(len(source), -1, np.int64)
    labels = {}
    is_equal = np.zeros(len(rows), np.bool_)
    for row, found in read_contents(source, options, pairs, engine, progress):
        if isinstance(found, Content):
            checksums[row], labels[row] = found.crc32c, found.label
            is_equal[list(found.equal)] = True
    # The same content: the labels must be the same too.
    same = checksums[rows] == np.asarray(pairs["crc32c"].cast(pa.int64()).fill_null(-2))
    pairs, rows, is_equal = pairs.filter(pa.array(same)), rows[same], is_equal[same]
    stored = pairs["label"].combine_chunks()
    if source.labels.is_placed:
        own = pa.array([labels[row] for row in rows.tolist()], pa.large_string())
    else:
        own = own_texts(source, rows)
    if not source.labels.has_image:
        is_same = np.asarray(pc.equal(own, stored))
        is_equal = is_same & is_equal if source.labels.others else is_same
    # A removed copy, with another label, of an image that stays: `find_removed` leaves it out.
    was_removed = np.asarray(pc.is_in(pairs["crc32c"], removed.combine_chunks()))
    kept = ~was_removed | np.isin(rows, rows[is_equal])
    pairs, rows, is_equal = pairs.filter(pa.array(kept)), rows[kept], is_equal[kept]
    stored, own = stored.filter(pa.array(kept)), own.filter(pa.array(kept))
    check_labels(source, rows, stored, own, is_equal)
    known[rows] = True
    return pairs


def _with_texts(out: str, manifest: Manifest, rows: RowBatch) -> pa.Table:
    """Return the columns ``source``, ``label`` and ``split`` as text, ``size`` and ``crc32c``.

    And where other images are.
    """
    table, count = rows.table, len(rows.table)
    columns = {name: table[name] for name in ("source", "size", "crc32c")}
    kind = kind_with(manifest.label_type, manifest.images)
    columns["label"] = kind.texts(table, manifest.classes)
    columns["split"] = pa.repeat(pa.scalar(rows.split), count)
    if kind.others:
        columns["shard"] = pa.repeat(pa.scalar(os.path.join(out, rows.shard.name)), count)
        columns |= {name: table[name] for name in kind.placed_columns}
    return pa.table(columns)
