"""LMDB databases of images, as Caffe and LSUN write them, read in place.

Caffe stores a ``Datum`` per image, with its label. LSUN stores the images themselves, in a database
for each class and
split: ``bedroom_train_lmdb``. Values that contain pickled objects are never read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.containers import location_table
from dataprep.containers.files import ContainerFile, open_listed_file
from dataprep.images.base import IncompleteHeader, Rejected
from dataprep.images.validate import parse_header
from dataprep.labels.columns import number_labels
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.columns import stats_of
from dataprep.sources.lmdb_file import Entry, LmdbError, entries
from manifests.errors import SourceError
from manifests.process.text import printable
from manifests.schema import SPLIT_ALIASES, split_order

DATA_NAME = "data.mdb"

_LSUN_NAME = re.compile(r"(?P<name>.+)_(?P<split>train|val|test)(_lmdb)?")
#: Bytes of a value that are read: of a ``Datum``, the fields before the image.
_PEEK = 64

_HINT = "export the images to folders, or to one of the sources that docs/sources.md lists"


class _Image(NamedTuple):
    """An image: its key, its place in the file, and its label if the value states it."""

    key: bytes
    position: int
    length: int
    label: int | None


class _Database(NamedTuple):
    """A database: its file, relative to the root, and its images."""

    file: str
    images: list[_Image]
    stamp: tuple[int, int]


def find_databases(src: str, folders: Sequence[str]) -> list[str]:
    """Return the databases: the folder itself, or folders in it, relative to it.

    Empty if there are none.
    """
    if storage.is_file(os.path.join(src, DATA_NAME)):
        return [""]
    return [
        name
        for name in folders[:1000]
        if name.endswith("_lmdb") and storage.is_file(f"{src}/{name}/{DATA_NAME}")
    ]


def read_lmdb(src: str, databases: Sequence[str], options: SourceOptions) -> Source:
    """Read the keys, places and labels of the images.

    Labels are Caffe's, or the names of LSUN's folders.

    Raises:
        SourceError: a database is damaged, or is of another kind.

    """
    read = [_read_database(src, name) for name in databases]
    in_values = [database.images[0].label is not None for database in read if database.images]
    if len(set(in_values)) > 1:
        raise SourceError(
            "some of the databases are of Caffe, others of LSUN", file=src, hint="give one of them"
        )
    folders = [name or os.path.basename(os.path.abspath(src)) for name in databases]
    matches = [_LSUN_NAME.fullmatch(folder) for folder in folders]
    split_names = [SPLIT_ALIASES[match["split"]] if match else "train" for match in matches]
    splits = split_order(set(split_names))
    order = sorted(range(len(read)), key=lambda number: splits.index(split_names[number]))  # stable
    rows = np.array([len(read[number].images) for number in order], np.int64)
    images = [image for number in order for image in read[number].images]
    text = pa.array(
        [
            str(image.label) if image.label is not None else (match["name"] if match else folder)
            for folder, match, database in ((folders[n], matches[n], read[n]) for n in order)
            for image in database.images
        ],
        pa.large_string(),
    )
    files = [read[number].file for number in order]
    paths = [
        f"{files[number]}/{_key_text(image.key)}"
        for number, image in zip(_repeat(rows), images, strict=True)
    ]
    label, classes = number_labels(
        text,
        options.classes,
        lambda row: (f"{src}/{paths[row]}", None),
        max_classes=options.max_classes,
    )
    container = np.repeat(np.arange(len(order), dtype=np.int32), rows)
    length = np.array([image.length for image in images], np.int64)
    return Source(
        root=src,
        layout=f"LMDB of {'Caffe' if any(in_values) else 'LSUN'}",
        classes=classes,
        splits=splits,
        path=pa.array(paths, pa.large_string()),
        label=label,
        split=np.repeat(
            np.array([splits.index(split_names[number]) for number in order], np.int8), rows
        ),
        size=length,
        extra=pa.table({}),
        stamp=np.array([read[number].stamp for number in order], np.int64).reshape(-1, 2)[
            container
        ],
        location=location_table(
            pa.DictionaryArray.from_arrays(pa.array(container), pa.array(files, pa.large_string())),
            "range",
            position=np.array([image.position for image in images], np.int64),
            length=length,
        ),
    )


def _repeat(rows: np.ndarray) -> Iterator[int]:
    return (number for number, count in enumerate(rows.tolist()) for _ in range(count))


def _key_text(key: bytes) -> str:
    """Return a key as text. A key that is not UTF-8 or contains a control character is escaped."""
    text = key.decode("utf-8", "backslashreplace")
    return (
        text
        if text.isprintable()
        else key.decode("ascii", "backslashreplace").encode("unicode_escape").decode()
    )


def _read_database(src: str, name: str) -> _Database:
    file_name = os.path.join(name, DATA_NAME)
    path = os.path.join(src, file_name)
    file = open_listed_file(path)
    images = []
    try:
        kind = None
        for number, entry in enumerate(entries(file)):
            head, i = file(entry.position, min(entry.length, _PEEK))
            head = bytes(head[i : i + min(entry.length, _PEEK)])
            kind = kind or _kind_of(file, entry, head)
            try:
                images.append(
                    _datum(file, entry, head) if kind == "datum" else _Image(*entry, None)
                )
            except LmdbError as error:
                key = printable(_key_text(entry.key)[:80])
                raise LmdbError(f"record {number} with the key {key}: {error}") from None
    except LmdbError as error:
        raise SourceError(str(error), file=path, hint=_HINT) from None
    _, *stamp = stats_of(file.status)
    return _Database(file_name, images, (stamp[0], stamp[1]))


def _kind_of(file: ContainerFile, entry: Entry, head: bytes) -> str:
    """Return what the first value is: an image, or a ``Datum`` with an image in it."""
    if _is_image(file, entry.position, entry.length):
        return "image"
    if head[:1] == b"\x80":
        raise LmdbError(
            "the values are pickled Python objects, which could run code when they are read"
        )
    try:
        _datum(file, entry, head)
    except LmdbError as error:
        raise LmdbError(
            f"the first value is neither an image nor a Datum of Caffe ({error})"
        ) from None
    return "datum"


def _is_image(file: ContainerFile, position: int, length: int) -> bool:
    data, i = file(position, min(length, 1 << 16))
    try:
        parse_header(bytes(data[i : i + min(length, 1 << 16)]))
    except IncompleteHeader:
        return True
    except Rejected as error:
        return error.reason == "unsupported"
    return True


# --- Caffe's Datum ------------------------------------------------------------------------------

#: Fields of the message: channels, height, width, data, label, float_data, encoded.
_DATA, _LABEL, _ENCODED = 4, 5, 7


def _datum(file: ContainerFile, entry: Entry, head: bytes) -> _Image:
    """Return the image in a ``Datum``, by the fields before and after its bytes."""
    fields: dict[int, int] = {}
    image: tuple[int, int] | None = None
    at = 0
    while at < entry.length:
        if at + 20 > len(head) and len(head) - at < min(20, entry.length - at):
            data, i = file(entry.position + at, min(entry.length - at, _PEEK))
            window, base = bytes(data[i : i + min(entry.length - at, _PEEK)]), at
        else:
            window, base = head[at:], at
        tag, used = _varint(window, 0)
        number, wire = tag >> 3, tag & 7
        value, used = _varint(window, used)
        if wire == 2:
            if base + used + value > entry.length:
                raise LmdbError("a field is longer than the value")
            if number == _DATA:
                image = (entry.position + base + used, value)
            at = base + used + value
        elif wire == 0:
            fields[number] = value
            at = base + used
        else:
            raise LmdbError("it has a field of an unknown type")
    if image is None or _LABEL not in fields:
        raise LmdbError("it has no image or no label")
    if not fields.get(_ENCODED):
        raise LmdbError(
            "its image is stored as pixels; only encoded images (convert_imageset --encoded) are"
            " read"
        )
    return _Image(entry.key, *image, fields[_LABEL])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
        shift += 7
    raise LmdbError("it is cut off")
