"""Databases of images, read in place: LMDB as Caffe and LSUN write it, and MXNet RecordIO.

Caffe stores a ``Datum`` per image, with its label. LSUN stores the images themselves, in a database
for each class and split: ``bedroom_train_lmdb``. Values that contain pickled objects are never
read. ``im2rec`` writes ``train.rec`` with the images, and ``train.lst`` with their names.
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.containers import location_table
from dataprep.containers.files import ContainerFile, open_listed_file
from dataprep.containers.members import IMAGE_HEADER, Fragment, RecordIOError, walk
from dataprep.images.base import IncompleteHeader, Rejected
from dataprep.images.validate import parse_header
from dataprep.labels.columns import number_labels
from dataprep.options import SourceOptions
from dataprep.sources.base import Source, sample_table
from dataprep.sources.scan import stats_of
from manifests.errors import SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.process.text import plural, printable
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


def find_databases(src: str, folders: Sequence[str], _: SourceOptions) -> list[str]:
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
    location = location_table(
        pa.DictionaryArray.from_arrays(pa.array(container), pa.array(files, pa.large_string())),
        "range",
        position=np.array([image.position for image in images], np.int64),
        length=length,
    )
    split = np.array([splits.index(split_names[number]) for number in order], np.int8)
    stamps = np.array([read[number].stamp for number in order], np.int64).reshape(-1, 2)
    table = sample_table(
        pa.array(paths, pa.large_string()),
        label=label,
        split=np.repeat(split, rows),
        size=length,
        stamp=stamps[container],
        location=location,
    )
    return Source(
        root=src,
        layout=f"LMDB of {'Caffe' if any(in_values) else 'LSUN'}",
        table=table,
        classes=classes,
        splits=splits,
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


# --- Caffe's Datum --------------------------------------------------------------------------------

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


# --- LMDB files -----------------------------------------------------------------------------------
# Without the LMDB library, which trusts the file: a damaged one can crash it. The layout is that
# of LMDB 0.9 (``mdb.c``, data version 1). A value is stored in one piece, in a leaf page or in
# overflow pages, so an image in a database is a range of bytes of the file.


_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEADER = 16
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_BIG_DATA, _SUB_DATA, _DUP_DATA = 1, 2, 4
_NO_PAGE = (1 << 64) - 1
#: Levels of the tree; LMDB itself allows no more.
_MAX_DEPTH = 32

_NODE = struct.Struct("<HHHH")
_DATABASE = struct.Struct("<IHHQQQQQ")


class Entry(NamedTuple):
    """A key, and where its value is in the file."""

    key: bytes
    position: int
    length: int


class LmdbError(ValueError):
    """The file is not an LMDB database, is damaged, or is of a kind that is not read."""


def entries(file: ContainerFile) -> Iterator[Entry]:
    """Iterate over the entries of the main database in the order of their keys. No value is read.

    Raises:
        LmdbError: the file is damaged, or the database has several values per key or contains
            others.

    """
    page_size, flags, root, count = _newest_meta(file)
    if flags & _DUP_DATA:
        raise LmdbError("the database has several values per key")
    seen: set[int] = set()
    found = 0
    for entry in _walk(file, page_size, root, seen, 0) if root != _NO_PAGE else ():
        found += 1
        yield entry
    if found != count:
        raise LmdbError(f"the database states {count:,} entries, but has {found:,}")


def _newest_meta(file: ContainerFile) -> tuple[int, int, int, int]:
    """Return page size, flags, root page and number of entries, of the last transaction that was committed."""
    first = _meta(file, 0)
    page_size = first[1][0]
    if page_size < 512 or page_size > 65536 or page_size & (page_size - 1):
        raise LmdbError(f"the page size is {page_size:,}")
    metas = [first, _meta(file, page_size)]
    _, _, (_, flags, _, _, _, _, count, root) = max(metas, key=lambda meta: meta[0])
    return page_size, flags, root, count


def _meta(file: ContainerFile, at: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the transaction, and the records of the databases ``free`` and ``main``."""
    data, i = file(at, _HEADER + 136)
    page = bytes(data[i : i + _HEADER + 136])
    if len(page) < _HEADER + 136 or not int.from_bytes(page[10:12], "little") & _META:
        raise LmdbError("the file is not an LMDB database")
    magic, version = struct.unpack_from("<II", page, _HEADER)
    if magic != _MAGIC:
        raise LmdbError("the file is not an LMDB database")
    if version & 0xFF != _VERSION:
        raise LmdbError(
            f"the database has the data version {version}, but only {_VERSION} (LMDB 0.9) is read"
        )
    free, main = (
        _DATABASE.unpack_from(page, _HEADER + 24 + number * _DATABASE.size) for number in range(2)
    )
    transaction = int.from_bytes(page[_HEADER + 128 : _HEADER + 136], "little")
    return transaction, free, main


def _walk(
    file: ContainerFile, page_size: int, number: int, seen: set[int], depth: int
) -> Iterator[Entry]:
    if number in seen or depth > _MAX_DEPTH:
        raise LmdbError(f"page {number:,} is part of a cycle")
    seen.add(number)
    page = _page(file, page_size, number)
    flags, lower = (int.from_bytes(page[at : at + 2], "little") for at in (10, 12))
    if not flags & (_BRANCH | _LEAF) or not _HEADER <= lower <= page_size:
        raise LmdbError(f"page {number:,} is damaged")
    for pointer in struct.unpack_from(f"<{(lower - _HEADER) // 2}H", page, _HEADER):
        if pointer + _NODE.size > page_size:
            raise LmdbError(f"page {number:,} is damaged")
        low, high, node_flags, key_length = _NODE.unpack_from(page, pointer)
        if flags & _BRANCH:
            yield from _walk(file, page_size, low | high << 16 | node_flags << 32, seen, depth + 1)
            continue
        data = pointer + _NODE.size + key_length
        length = low | high << 16
        if node_flags & (_SUB_DATA | _DUP_DATA):
            raise LmdbError("the database contains other databases")
        if data + (8 if node_flags & _BIG_DATA else length) > page_size:
            raise LmdbError(f"page {number:,} is damaged")
        position = number * page_size + data
        if node_flags & _BIG_DATA:
            position = _overflow(
                file, page_size, int.from_bytes(page[data : data + 8], "little"), length
            )
        yield Entry(page[pointer + _NODE.size : data], position, length)


def _overflow(file: ContainerFile, page_size: int, number: int, length: int) -> int:
    """Return where the data of overflow pages begins."""
    at = number * page_size
    if at + _HEADER + length > file.size:
        raise LmdbError(f"the value in page {number:,} continues after the end of the file")
    data, i = file(at, _HEADER)
    header = data[i : i + _HEADER]
    if not int.from_bytes(header[10:12], "little") & _OVERFLOW:
        raise LmdbError(f"page {number:,} is not an overflow page")
    return at + _HEADER


def _page(file: ContainerFile, page_size: int, number: int) -> bytes:
    if (number + 1) * page_size > file.size:
        raise LmdbError(
            f"page {number:,} is behind the end of the file, which has {file.size:,} bytes"
        )
    data, i = file(number * page_size, page_size)
    return bytes(data[i : i + page_size])


# --- MXNet RecordIO -------------------------------------------------------------------------------


SUFFIX = ".rec"

_DAMAGED = "copy the file again, or make it again with im2rec"


@dataclass
class _Records:
    """The images of a RecordIO file, in stored order.

    Attributes:
        name: file name.
        split: name of the split.
        starts: first byte of each record.
        position: first byte of each record with an image.
        length: length of its data, with the header of the image.
        size: length of the image.
        identifier: identifier of the image, as in the ``.lst`` file.
        label: label of the image.
        empty: number of records without an image.
        stamp: modification time and inode of the file.

    """

    name: str
    split: str
    starts: array[int] = field(default_factory=lambda: array("q"))
    position: array[int] = field(default_factory=lambda: array("q"))
    length: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    identifier: array[int] = field(default_factory=lambda: array("Q"))
    label: list[str] = field(default_factory=list)
    empty: int = 0
    stamp: tuple[int, int] = (-1, -1)


def find_recordio(src: str, folders: Sequence[str], _: SourceOptions) -> list[str]:
    """Return the names of the RecordIO files in a folder, sorted; empty if it has folders."""
    if folders:
        return []
    names = (entry.name for entry in storage.list_folder(src))
    return sorted(
        name for name in names if name.lower().endswith(SUFFIX) and not name.startswith(".")
    )


def read_recordio(src: str, files: Sequence[str], options: SourceOptions) -> Source:
    """Read the headers of all records.

    Class names are the labels, unless `options.classes` names them.

    Args:
        src: the folder.
        files: names of the RecordIO files in it.
        options: `classes` and `max_classes` apply.

    Raises:
        SourceError: a file is damaged, or an image has no label or several.

    """
    read = [_read_records(src, name) for name in files]
    splits = split_order({records.split for records in read})
    read.sort(key=lambda records: splits.index(records.split))  # stable
    rows = np.array([len(records.position) for records in read], np.int64)
    number = np.repeat(np.arange(len(read), dtype=np.int32), rows)
    paths = [path for records in read for path in _paths(src, records)]
    text = pa.array([label for records in read for label in records.label], pa.large_string())
    label, classes = number_labels(
        text,
        options.classes,
        lambda row: (f"{src}/{paths[row]}", None),
        max_classes=options.max_classes,
    )
    empty = sum(records.empty for records in read)
    names = pa.array([records.name for records in read], pa.large_string())
    location = location_table(
        pa.DictionaryArray.from_arrays(pa.array(number), names),
        "recordio",
        position=np.concatenate([np.array(records.position, np.int64) for records in read]),
        length=np.concatenate([np.array(records.length, np.int64) for records in read]),
    )
    table = sample_table(
        pa.array(paths, pa.large_string()),
        label=label,
        split=np.array([splits.index(records.split) for records in read], np.int8)[number],
        size=np.concatenate([np.array(records.size, np.int64) for records in read]),
        stamp=np.array([records.stamp for records in read], np.int64).reshape(-1, 2)[number],
        location=location,
    )
    return Source(
        root=src,
        layout="MXNet RecordIO",
        table=table,
        classes=classes,
        splits=splits,
        notices=(f"skipped {plural(empty, 'record')} without an image",) if empty else (),
    )


def _split_of(name: str) -> str:
    words = re.split(r"[-_.]", os.path.splitext(name)[0].lower())
    return next((SPLIT_ALIASES[word] for word in words if word in SPLIT_ALIASES), "train")


def _read_records(src: str, name: str) -> _Records:
    path = os.path.join(src, name)
    file = open_listed_file(path)
    records = _Records(name, _split_of(name))
    try:
        for number, parts in enumerate(walk(file)):
            _add(
                records,
                number,
                parts,
                file(parts[0].position, min(parts[0].length, IMAGE_HEADER.size + 4)),
                path,
            )
    except RecordIOError as error:
        raise SourceError(str(error), file=path, byte=error.byte, hint=_DAMAGED) from None
    if not file.size:
        raise SourceError("the file is empty", file=path, hint=_DAMAGED)
    _check_index(f"{path[: -len(SUFFIX)]}.idx", records)
    _, *stamp = stats_of(file.status)
    records.stamp = (stamp[0], stamp[1])
    return records


def _check_index(path: str, records: _Records) -> None:
    """Check that the index, if there is one, has the records of the file: a file can be cut between two records.

    Raises:
        SourceError: it has other records, or is damaged.

    """
    if not storage.is_file(path):
        return
    starts = set(records.starts)
    count = 0
    for number, line in enumerate(read_lines(path, SOURCE_LIST), 1):
        fields = line.split()
        count += bool(fields)
        if fields and not (
            len(fields) == 2 and fields[1].isdigit() and int(fields[1][:20]) in starts
        ):
            message = f"the index states a record that {records.name} does not have"
            raise SourceError(
                message,
                file=path,
                line=number,
                hint="copy both files again, or make the index again",
            )
    if count != len(starts):
        message = f"the index has {plural(count, 'record')}, but {records.name} has {len(starts):,}"
        raise SourceError(message, file=path, hint="copy both files again, or make the index again")


def _add(
    records: _Records, number: int, parts: list[Fragment], head: tuple[bytes, int], path: str
) -> None:
    records.starts.append(parts[0].position - 8)
    data = bytes(head[0][head[1] : head[1] + IMAGE_HEADER.size + 4])
    # Between two parts, the reader inserts the magic number.
    length = sum(part.length for part in parts) + 4 * (len(parts) - 1)
    if len(data) < IMAGE_HEADER.size:
        raise SourceError(
            "the record has no header of an image", file=path, record=number, hint=_DAMAGED
        )
    labels, label, identifier, _ = IMAGE_HEADER.unpack_from(data)
    if length <= IMAGE_HEADER.size + 4 * labels:
        records.empty += 1  # InsightFace stores the ranges of its identities like this
        return
    if labels > 1:
        message = f"the image has {labels:,} labels, which is not a class"
        raise SourceError(
            message,
            file=path,
            record=number,
            hint="make the file with one label per image (im2rec)",
        )
    if labels == 1:
        (label,) = struct.unpack_from("<f", data, IMAGE_HEADER.size)
    if not label.is_integer():
        message = f"the label {label:g} is not a class number"
        raise SourceError(
            message, file=path, record=number, hint="make the file with class numbers from 0"
        )
    records.position.append(parts[0].position - 8)
    records.length.append(length)
    records.size.append(length - IMAGE_HEADER.size - 4 * labels)
    records.identifier.append(identifier)
    records.label.append(str(int(label)))


def _paths(src: str, records: _Records) -> list[str]:
    """Return the names of the images in the ``.lst`` file, or else the numbers of the records."""
    names = _read_list(os.path.join(src, f"{records.name[: -len(SUFFIX)]}.lst"))
    found = [names.get(identifier) for identifier in records.identifier]
    if names and None not in found and len({*found}) == len(found):
        return [f"{records.name}/{name}" for name in found]
    return [f"{records.name}/{number}" for number in range(len(found))]


def _read_list(path: str) -> dict[int, str]:
    """Return the path of each image by its identifier.

    Lines have ``identifier, labels, path``, separated by tabs.
    """
    names: dict[int, str] = {}
    if not storage.is_file(path):
        return names
    for number, line in enumerate(read_lines(path, SOURCE_LIST), 1):
        fields = line.strip().split(b"\t")
        if not line.strip():
            continue
        try:
            names[int(fields[0])] = fields[-1].decode()
        except ValueError:
            message = "the line does not have the form `number, label, path`, separated by tabs"
            raise SourceError(
                message, file=path, line=number, hint="make the list again with im2rec"
            ) from None
    return names
