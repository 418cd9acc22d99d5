"""Images that cannot be decoded: where they are, why they fail, and how a loader continues.

`loaders.dali.bad_images` decodes the images of a failed batch one by one. With `on_error="skip"` or
`"replace"`, `loaders.samplers.order` makes an order without them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loaders.dali.bad_images import DecodeMemoryError, UndecodableError, find_bad_images
from loaders.dataset.split import OpenSplit
from loaders.progress import Position
from loaders.spec import LoaderSpec
from manifests.errors import DamagedError
from manifests.process.text import plural, printable
from manifests.store import read_some_rows

#: Bad images to find for an error, which names the first one.
_FOR_AN_ERROR = 5


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample whose image cannot be decoded. `Loader.errors` lists them.

    Attributes:
        dataset: folder of the dataset, as the caller wrote it.
        split: name of the split.
        shard: file name of the shard.
        record: number of the sample in the shard, from 0.
        key: the sample's key.
        row: number of the sample in the split, from 0: what the field ``"index"`` contains.
        reason: why the image cannot be decoded, as DALI says it.

    """

    dataset: str
    split: str
    shard: str
    record: int
    key: str
    row: int
    reason: str

    def __str__(self) -> str:
        return f"{self.shard}, record {self.record}, key {self.key!r}: {self.reason}"


def describe_bad_samples(split: OpenSplit, reasons: Mapping[int, str]) -> tuple[BadSample, ...]:
    """Return where bad samples are, in the order of their rows.

    Args:
        split: the split.
        reasons: why each image cannot be decoded, by row.

    Raises:
        TableError: a sample table is missing or damaged.

    """
    if not reasons:
        return ()
    rows = np.array(sorted(reasons), np.int64)
    keys = read_some_rows(split.root, split.shards, ("key",), rows)["key"].to_pylist()
    described = []
    for row, key, number in zip(rows.tolist(), keys, split.shards_of(rows).tolist(), strict=True):
        shard = split.shards[number]
        record = row - int(split.ends[number]) + shard.samples
        reason = reasons[row]
        described.append(BadSample(split.folder, split.name, shard.name, record, key, row, reason))
    return tuple(described)


def located_error(
    bad: Sequence[BadSample], error: DamagedError, split: OpenSplit, *, complete: bool
) -> DamagedError:
    """Return an error that names the first of several bad samples.

    Args:
        bad: at least one.
        error: the error of the batch, which does not name a sample.
        split: the split.
        complete: whether these are all near the first one.

    """
    first, *others = bad
    shard = next(shard for shard in split.shards if shard.name == first.shard)
    more = ""
    if others:
        at_least = "" if complete else "at least "
        more = f"; {at_least}{plural(len(others), 'more image')} near it cannot be decoded either"
    return type(error)(
        f"the image with the key {printable(first.key)!r} cannot be decoded (DALI says:"
        f" {first.reason}){more}",
        file=split.path(shard.file),
        record=first.record,
        hint=(
            f"run `dataprep verify --decode {shlex.quote(split.folder)}` to find all of them, "
            'or build the loader with on_error="skip"'
        ),
    )


def new_bad_images(
    spec: LoaderSpec,
    position: Position,
    known: Mapping[int, str],
    error: UndecodableError | DecodeMemoryError,
) -> dict[int, str]:
    """Return why images of a failed batch cannot be decoded, by row, except known rows.

    Args:
        spec: what the loader is built from.
        position: position of the loader when the batch failed.
        known: rows that are known to be bad.
        error: the error of the batch.

    Raises:
        UndecodableError: no further image is bad, or ``on_error="raise"``.
        DecodeMemoryError: there is not enough memory, and no image's header is the reason.

    """
    raises = spec.options.on_error == "raise"
    try:
        bad = find_bad_images(spec, position, known, _FOR_AN_ERROR if raises else None)
    except (DamagedError, DecodeMemoryError):
        # What stops the search is another problem, and this error is the first one.
        raise error from None
    if not bad:
        raise error
    if raises:
        complete = len(bad) < _FOR_AN_ERROR
        unlocated = UndecodableError(error.message)
        raise located_error(
            describe_bad_samples(spec.split, bad), unlocated, spec.split, complete=complete
        ) from error
    return bad


def bad_images_message(spec: LoaderSpec, bad: Mapping[int, str]) -> str:
    """Return a sentence that says what happens to bad images, and names the first of them."""
    first = min(bad)
    try:
        (sample,) = map(str, describe_bad_samples(spec.split, {first: bad[first]}))
    except (DamagedError, OSError):  # training goes on, as without the message
        sample = f"row {first}: {bad[first]}"
    skipped = spec.options.on_error == "skip"
    done = "left out" if skipped else "replaced by other samples"
    if len(bad) == 1:
        done = done.replace("other samples", "another sample")
        return f"{spec.split.folder}: an image cannot be decoded and is {done}: {sample}"
    return (
        f"{spec.split.folder}: {len(bad)} images cannot be decoded and are {done}; loader.errors"
        f" lists them, the first is {sample}"
    )
