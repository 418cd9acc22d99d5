"""Images of a source that are in the dataset already: refuse another label, and report another split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.append.reading import REJECTED
from dataprep.datasets.label_texts import label_columns, label_texts
from dataprep.options import Options
from dataprep.sources import Source
from manifests.errors import SourceError
from manifests.labels import MASK_SOURCE, MASK_TYPES, LabelType
from manifests.process.text import agree, cut_middle, plural, printable

_NOUNS: Mapping[LabelType, str] = {"mask": "mask", "depth": "depth map"}


def own_texts(source: Source, rows: NDArray[np.int64]) -> pa.Array:
    """Return the labels of some samples as text, if they do not refer to places in the image."""
    table = pa.table({"label": source.label[rows], **_columns(source, rows)})
    return label_texts(table, source.label_type, source.classes)


def check_labels(
    source: Source,
    rows: NDArray[np.int64],
    stored: pa.Array,
    own: pa.Array,
    is_equal: NDArray[np.bool_],
) -> None:
    """Refuse samples that are in the dataset with other labels.

    Args:
        source: the samples.
        rows: their rows, which can repeat: the dataset can have one image in several classes, int64
            [n].
        stored: the labels in the dataset as text.
        own: those of the source.
        is_equal: which labels are equal, bool [n]. One of those of each sample must be.

    Raises:
        SourceError: a sample has another label.

    """
    moved = np.flatnonzero(~is_equal & ~np.isin(rows, rows[is_equal]))
    if not len(moved):
        return
    first, what = int(rows[moved[0]]), _NOUNS.get(source.label_type, "label")
    if source.label_type in MASK_TYPES:
        path = cut_middle(printable(source.extra[MASK_SOURCE][first].as_py()), 200)
        text = cut_middle(printable(own[int(moved[0])].as_py()), 200)
        rejected = (
            f", which is rejected{text.removeprefix(REJECTED)}" if text.startswith(REJECTED) else ""
        )
        where = f"with another {what} than {path}{rejected}"
    else:
        before, now = (
            cut_middle(printable(texts[int(moved[0])].as_py()), 80) for texts in (stored, own)
        )
        is_class = source.label_type == "class"
        where = (
            f"in class {before}, but here in class {now}"
            if is_class
            else f"with the label {before}, but here with {now}"
        )
    count = len(np.unique(rows[moved])) - 1
    others = (
        f", and {plural(count, 'other image')} also {agree(count, 'has', 'have')} another {what}"
        if count
        else ""
    )
    raise SourceError(
        f"the image is in the dataset {where}{others}; --append only adds images",
        file=source.path[first].as_py(),
        hint=f"make the dataset again to change {what}s",
    )


def _columns(source: Source, rows: NDArray[np.int64]) -> dict[str, pa.ChunkedArray]:
    names = [name for name in label_columns(source.label_type) if name != "label"]
    return {name: source.extra[name].take(pa.array(rows)) for name in names}


@dataclass(frozen=True, slots=True)
class Splits:
    """Samples of the source in the split that the source names, and the others with the split that they are in."""

    same: NDArray[np.int64]
    other: NDArray[np.int64]
    names: tuple[str, ...]


def compare_splits(source: Source, options: Options, pairs: pa.Table) -> Splits:
    """Compare the splits of the same images.

    Those that the options of the dataset moved count as the same.
    """
    rows = np.asarray(pairs["row"])
    stored = np.array(pairs["split"].to_pylist(), object)
    own = np.array(source.splits, object)[source.split[rows]]
    made = [
        name
        for name, share in (("val", options.val_fraction), ("test", options.test_fraction))
        if share
    ]
    is_same = (own == stored) | ((own == "train") & np.isin(stored.astype(str), made))
    is_same |= options.duplicates == "same-split"
    return Splits(rows[is_same], rows[~is_same], tuple(stored[~is_same].tolist()))


def describe_splits(out: str, source: Source, splits: Sequence[Splits]) -> tuple[str, ...]:
    """Return a message about the samples that are in another split of the dataset `out`, if there are any.

    Args:
        out: folder or URL of the dataset.
        source: the samples.
        splits: what `compare_splits` returned for each revision of the dataset.

    """
    same = np.concatenate([np.zeros(0, np.int64), *(each.same for each in splits)])
    stored = {
        int(row): name for each in splits for row, name in zip(each.other, each.names, strict=True)
    }
    moved = sorted({*stored}.difference(same.tolist()))
    if not moved:
        return ()
    row = moved[0]
    own, path = (
        source.splits[source.split[row]],
        cut_middle(printable(source.path[row].as_py()), 200),
    )
    are, they = agree(len(moved), "is", "are"), agree(len(moved), "it stays", "they stay")
    return (
        (
            f"{plural(len(moved), 'image')} of the source {are} in {printable(out)} in another"
            f" split, where {they}: {path} is in {printable(stored[row])}, not in"
            f" {printable(own)}{', ...' if len(moved) > 1 else ''}"
        ),
    )
