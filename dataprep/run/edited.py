"""Images of a dataset that its source has now in another folder, with other content, or not at all."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.arrays import Int64Array
from dataprep.engines import Engine
from dataprep.ledger.state import Folder
from dataprep.options import Edits
from dataprep.progress import divide
from dataprep.run.known import Content, Known, comparable, content_of
from dataprep.shards.source_image import read_images
from dataprep.sources import Source
from manifests.errors import CallError, SourceError
from manifests.process.text import plural, printable
from manifests.serialization import parts
from manifests.store import read_dataset

#: Paths to compare, to find out how they begin.
_MOST_COMPARED = 1000

#: Pairs of an image and a removed sample that are compared.
_MOST_PAIRS = 100_000


class _Place(NamedTuple):
    """How paths of the source and of the dataset begin where the rest is equal."""

    own: str
    stored: str


def check_edits(
    base: Folder, source: Source, known: Known, edits: Edits, engine: Engine
) -> tuple[str, ...]:
    """Refuse a source in which images of the dataset were moved, replaced or removed.

    A source that has less than half of the paths of a revision, or no image of it, is another source.

    Args:
        base: the dataset.
        source: the samples, with labels of the dataset.
        known: which samples are in the dataset.
        edits: what to do.
        engine: reads images that may have been moved.

    Returns:
        Messages for the user.

    Raises:
        SourceError: images were moved, replaced or removed.

    """
    if edits == "ignore":
        return ()
    edited = _find_edits(base, source, known, engine)
    changes = []
    for verb, examples in edited.items():
        if examples:
            first = printable(examples[0]) + ", ..." * (len(examples) > 1)
            changes.append(f"{plural(len(examples), 'image')} {verb} ({first})")
    if not changes:
        return ()
    what = f"the source has changed since {printable(base.out)} was made: {', '.join(changes)}"
    only_removed = not edited["moved"] and not edited["replaced"]
    if edits == "keep removed" and only_removed:
        return (f"{what}; removed images stay in the dataset",)
    hint = (
        "--append adds images only: run `dataprep sync`, or convert the source again, with --overwrite"
        " or to another --out"
    )
    if only_removed:
        hint += "; with --keep-removed, removed images stay in the dataset"
    raise SourceError(what, file=source.root, hint=hint)


def _find_edits(base: Folder, source: Source, known: Known, engine: Engine) -> dict[str, list[str]]:
    """Return the paths of images that were moved, replaced and removed; of moved ones, old and new path."""
    own, replaced = source.path, []
    in_dataset = np.zeros(len(source), np.bool_)
    gone = []
    for number, part in enumerate(parts(base.manifest)):
        same = known.pairs.get(number)
        if same is None or not len(same):
            continue
        place = _place_of(own, same)
        tables = []
        for batch in read_dataset(base.out, ["source", "size", "crc32c"], manifest=part):
            stored = batch.table.filter(pc.starts_with(batch.table["source"], place.stored))
            ends = pc.utf8_slice_codeunits(stored["source"], len(place.stored)).cast(own.type)
            begin, nothing = pa.scalar(place.own, own.type), pa.scalar("", own.type)
            path = pc.binary_join_element_wise(begin, ends, nothing)
            tables.append(stored.append_column("path", path))
        stored = pa.concat_tables(tables)
        row = pc.index_in(stored["path"], own)
        rows = np.asarray(row.drop_null())
        if 2 * len(rows) < len(stored):
            continue  # another source, which shares some images
        in_dataset[rows] = True
        replaced += own.take(pa.array(rows[~known.rows[rows]])).to_pylist()
        # An image in a folder of another split is known, and stays where it is.
        is_known = pc.is_in(stored["source"], same["source"].cast(stored["source"].type))
        gone.append(stored.filter(pc.invert(pc.or_(row.is_valid(), is_known))))
    if not gone:
        return {}
    removed = pa.concat_tables(gone)
    new = np.flatnonzero(~known.rows & ~in_dataset)
    moved = _find_moved(base, source, new, removed, engine)
    rest = [name for name in removed["path"].to_pylist() if name not in moved]
    return {
        "moved": [f"{old} is now {now}" for old, now in moved.items()],
        "replaced": replaced,
        "removed": rest,
    }


def _place_of(own: pa.Array, same: pa.Table) -> _Place:
    """Return how most paths of the same images begin, before the common end in whole folders."""
    places: Counter[_Place] = Counter()
    some = same.slice(0, _MOST_COMPARED)
    for path, stored in zip(
        own.take(some["row"]).to_pylist(), some["source"].to_pylist(), strict=True
    ):
        first, second = path.split("/"), stored.split("/")
        while first and second and first[-1] == second[-1]:
            first.pop()
            second.pop()
        # Whole folders, each with a slash behind it.
        place = _Place(own="/".join([*first, ""]), stored="/".join([*second, ""]))
        places[place] += 1
    return places.most_common(1)[0][0]


def _find_moved(
    base: Folder, source: Source, new: Int64Array, removed: pa.Table, engine: Engine
) -> dict[str, str]:
    """Return where removed images are now: images with the same file name and content, by their old paths."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(removed["path"].to_pylist()):
        by_name[os.path.basename(name)].append(number)
    rows, numbers = [], []
    for row in new.tolist():
        for number in by_name.get(os.path.basename(source.path[row].as_py()), ()):
            rows.append(row)
            numbers.append(number)
    if not 0 < len(rows) <= _MOST_PAIRS:
        return {}
    pairs = removed.take(pa.array(numbers)).append_column("row", pa.array(rows, pa.int64()))
    try:
        options = comparable(base, base.manifest.options, pairs)
    except CallError:
        return {}  # libraries of other versions make other bytes
    checksums = {}
    with divide(None, [1]) as (progress,):
        for row, content in read_images(
            source.images,
            np.unique(rows),
            content_of,
            options=options,
            engine=engine,
            progress=progress,
        ):
            if isinstance(content, Content):
                checksums[row] = content.crc32c
    moved = {}
    for row, old, crc in zip(
        rows, pairs["path"].to_pylist(), pairs["crc32c"].to_pylist(), strict=True
    ):
        if checksums.get(row) == crc:
            moved[old] = source.path[row].as_py()
    return moved
