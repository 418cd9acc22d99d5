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
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.containers import ReaderName
from dataprep.containers.files import (
    IMAGE_HEADER,
    ContainerFile,
    Fragment,
    RecordIOError,
    open_listed_file,
    read_some,
    walk,
)
from dataprep.images.base import IncompleteHeader, Rejected
from dataprep.images.validate import parse_header
from dataprep.labels.columns import first_true, row_error
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Container,
    Kind,
    Names,
    Source,
    concat,
    image_table,
    in_split_order,
    one_array,
    stored_source,
    text_array,
    with_classes,
)
from dataprep.sources.joined import found, load_text, locate
from dataprep.sources.scan import stats_of, suffix_of
from manifests.errors import SourceError
from manifests.files import IMAGE_SUFFIXES
from manifests.parquet import read_varint
from manifests.process.text import plural
from manifests.schema import SPLIT_WORDS

DATA_NAME = "data.mdb"

_LSUN_NAME = re.compile(r"(?P<name>.+)_(?P<split>train|val|test)(_lmdb)?")
#: Bytes of a value that are read: of a ``Datum``, the fields before the image.
_PEEK = 64

_HINT = "export the images to folders, or to one of the sources that docs/sources.md lists"


def find_databases(src: str, folders: Names, _: SourceOptions) -> list[str]:
    """Return the databases: the folder itself, or folders in it, relative to it.

    Empty if there are none.
    """
    if storage.is_file(os.path.join(src, DATA_NAME)):
        return [""]
    databases = []
    for name in folders[:1000]:
        if name.endswith("_lmdb") and storage.is_file(f"{src}/{name}/{DATA_NAME}"):
            databases.append(name)
    return databases


def read_lmdb(src: str, databases: Names, options: SourceOptions) -> Source:
    """Read the keys, places and labels of the images.

    Labels are Caffe's, the names of LSUN's folders, or the folders in keys that are paths.

    Raises:
        SourceError: a database is damaged, or is of another kind.

    """
    files, makers = [], set()
    for name in databases:
        maker, file = _read_database(src, name)
        files.append(file)
        if len(file.images):
            makers.add(maker)
    if len(makers) > 1:
        raise SourceError(
            f"some of the databases are of {', others of '.join(sorted(makers))}",
            file=src,
            hint="give one of them",
        )
    layout = f"LMDB of {min(makers, default='LSUN')}"
    return _classified(src, layout, "range", files, options)


def _classified(
    root: str, layout: str, reader: ReaderName, files: Sequence[Container], options: SourceOptions
) -> Source:
    """Return a source whose classes are in the column ``label`` of the images."""
    files = in_split_order(files)
    text = concat([one_array(file.images["label"]) for file in files])
    return with_classes(stored_source(root, layout, reader, files), text, options)


def _key_text(key: bytes) -> str:
    """Return a key as text. A key that is not UTF-8 or contains a control character is escaped."""
    text = key.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return key.decode("ascii", "backslashreplace").encode("unicode_escape").decode()


def _read_database(src: str, name: str) -> tuple[str, Container]:
    """Return the program that made a database, and its images."""
    file = open_listed_file(os.path.join(src, name, DATA_NAME))
    folder = name or os.path.basename(os.path.abspath(src))
    maker, split, label = "", "train", folder
    match = _LSUN_NAME.fullmatch(folder)
    if match:
        split, label = SPLIT_WORDS[match["split"]], match["name"]
    keys, labels, places = [], [], array("q")
    forms: set[str] = set()
    try:
        for number, entry in enumerate(entries(file)):
            position, length, key = entry.position, entry.length, _key_text(entry.key)
            try:
                # Records of another kind have keys of another form: image-001, label-001.
                form = re.sub(r"[0-9a-f]+", "", key)
                if form not in forms and (maker != "Caffe" or not forms):
                    forms.add(form)
                    other = _maker_of(file, entry, is_named=match is not None)
                    maker = maker or other
                    _check_kind(maker, other)
                if maker == "Caffe":
                    position, length, label = _read_datum(file, entry)
                elif maker == "paths":
                    label = _class_of(key)
            except LmdbError as error:
                if not number:
                    raise
                shown = key[:80]
                raise LmdbError(f"record {number} with the key {shown}: {error}") from None
            keys.append(key)
            labels.append(label)
            places.extend((position, length, length))
    except LmdbError as error:
        raise SourceError(str(error), file=file.path, hint=_HINT) from None
    images = image_table(keys, places, label=text_array(labels))
    return maker, Container(os.path.join(name, DATA_NAME), split, stats_of(file.status)[1:], images)


#: A key of LSUN, a number, and a key that is the path of an image in the folder of its class.
_DIGEST = re.compile(r"[0-9a-f]{16,}")
_NUMBER_KEY = re.compile(r"[0-9]{1,15}")
_PATH_KEY = re.compile(r"(?:.*/)?(?P<name>[^/]+)/[^/]+")


def _class_of(key: str) -> str:
    """Return the class in a key that is a path.

    Raises:
        LmdbError: the key is no path, or begins with a split.

    """
    match = _PATH_KEY.fullmatch(key)
    if match is None:
        raise LmdbError("it is not a path CLASS/IMAGE, as the first key is")
    if key.count("/") > 1 and key.partition("/")[0].lower() in SPLIT_WORDS:
        raise LmdbError("it begins with a split, and a database of paths has one split")
    return match["name"]


def _check_kind(maker: str, other: str) -> None:
    if other != maker:
        raise LmdbError(f"it is a record of {other}, and the first one is of {maker}")


def _maker_of(file: ContainerFile, entry: Entry, *, is_named: bool) -> str:
    """Return who writes such a record: a ``Datum`` with an image in it, or an image with a digest or a path as its key.

    Args:
        file: the database.
        entry: the record.
        is_named: whether the folder has a name as of LSUN, whose keys can be other than digests.

    Raises:
        LmdbError: nobody does.

    """
    # A header that continues, or an image of another format, is an image as well.
    head = read_some(file, entry.position, min(entry.length, 1 << 16))
    try:
        parse_header(head)
        is_image = True
    except IncompleteHeader:
        is_image = True
    except Rejected as error:
        is_image = error.reason == "unsupported"
    if is_image:
        key = _key_text(entry.key)
        if _PATH_KEY.fullmatch(key) and suffix_of(key) in IMAGE_SUFFIXES:
            return "paths"
        if _DIGEST.fullmatch(key) or (is_named and not _NUMBER_KEY.fullmatch(key)):
            return "LSUN"
        raise LmdbError(
            f"the values are images, but the first key is {key[:80]}: keys are neither"
            " digests, as of LSUN, nor paths CLASS/IMAGE.jpg"
        )
    if head[:1] == b"\x80":
        raise LmdbError(
            "the values are pickled Python objects, which could run code when they are read"
        )
    try:
        _read_datum(file, entry)
    except LmdbError as error:
        raise LmdbError(
            f"the first value is neither an image nor a Datum of Caffe ({error})"
        ) from None
    return "Caffe"


# --- Caffe's Datum --------------------------------------------------------------------------------

#: Fields of the message: channels, height, width, data, label, float_data, encoded.
_DATA, _LABEL, _ENCODED = 4, 5, 7

#: Bytes of a field before its data, at most: two integers of variable length.
_FIELD_BYTES = 20


def _read_datum(file: ContainerFile, entry: Entry) -> tuple[int, int, str]:
    """Return the place and the label of the image in a ``Datum``, by the fields before and after its bytes."""
    fields = {}
    image: tuple[int, ...] = ()
    at = start = entry.position
    end = at + entry.length
    window = b""
    while at < end:
        # The bytes of the image are skipped, so the fields after it are read anew.
        if at + _FIELD_BYTES > start + len(window):
            start, window = at, read_some(file, at, min(end - at, _PEEK))
        try:
            tag, i = read_varint(window, at - start)
            value, i = read_varint(window, i)
        except (IndexError, ValueError):
            raise LmdbError("it is cut off") from None
        at = start + i
        number, wire = tag >> 3, tag & 7
        if wire == 2:
            if at + value > end:
                raise LmdbError("a field is longer than the value")
            if number == _DATA:
                image = at, value
            at += value
        elif wire == 0:
            fields[number] = value
        else:
            raise LmdbError("it has a field of an unknown type")
    if not image or _LABEL not in fields:
        raise LmdbError("it has no image or no label")
    if not fields.get(_ENCODED):
        raise LmdbError(
            "its image is stored as pixels; only encoded images (convert_imageset --encoded) are"
            " read"
        )
    position, length = image
    return position, length, str(fields[_LABEL])


# --- LMDB files -----------------------------------------------------------------------------------
# Without the LMDB library, which trusts the file: a damaged one can crash it. The layout is that
# of LMDB 0.9 (``mdb.c``, data version 1). A value is stored in one piece, in a leaf page or in
# overflow pages, so an image in a database is a range of bytes of the file.


_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_BIG_DATA, _SUB_DATA, _DUP_DATA = 1, 2, 4
_NO_PAGE = (1 << 64) - 1
#: Levels of the tree; LMDB itself allows no more.
_MAX_DEPTH = 32

#: Header of a page: its flags, and where its free space begins, after the pointers to its nodes.
_HEADER = struct.Struct("<10xHH2x")
#: A meta page: flags of the page; magic number and version; page size, from the database ``free``;
#: flags, number of entries and root page of the database ``main``; transaction.
_META_PAGE = struct.Struct("<10xH4x II16x I44x 4xH26xQQ 8xQ")
#: A node: length of its value, or number of its page; flags; length of its key.
_NODE = struct.Struct("<HHHH")


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
    _, page_size, *_ = first = _read_meta(file, 0)
    if page_size < 512 or page_size > 65536 or page_size & (page_size - 1):
        raise LmdbError(f"the page size is {page_size:,}")
    # The newest transaction that was committed counts.
    _, _, flags, count, root = max(first, _read_meta(file, page_size), key=lambda meta: meta[0])
    if flags & _DUP_DATA:
        raise LmdbError("the database has several values per key")
    number = 0
    if root != _NO_PAGE:
        for entry in _walk(file, page_size, root, set(), 0):
            number += 1
            yield entry
    if number != count:
        raise LmdbError(f"the database states {count:,} entries, but has {number:,}")


def _read_meta(file: ContainerFile, at: int) -> tuple[int, int, int, int, int]:
    """Return transaction and page size, and flags, number of entries and root page of the database."""
    page = read_some(file, at, _META_PAGE.size).ljust(_META_PAGE.size, b"\0")
    kind, magic, version, page_size, flags, count, root, transaction = _META_PAGE.unpack(page)
    if not kind & _META or magic != _MAGIC:
        raise LmdbError("the file is not an LMDB database")
    if version & 0xFF != _VERSION:
        raise LmdbError(
            f"the database has the data version {version}, but only {_VERSION} (LMDB 0.9) is read"
        )
    return transaction, page_size, flags, count, root


def _walk(
    file: ContainerFile, page_size: int, number: int, seen: set[int], depth: int
) -> Iterator[Entry]:
    if number in seen or depth > _MAX_DEPTH:
        raise LmdbError(f"page {number:,} is part of a cycle")
    seen.add(number)
    start = number * page_size
    if start + page_size > file.size:
        raise LmdbError(
            f"page {number:,} is behind the end of the file, which has {file.size:,} bytes"
        )
    page = read_some(file, start, page_size)
    damaged = LmdbError(f"page {number:,} is damaged")
    flags, lower = _HEADER.unpack_from(page)
    if not flags & (_BRANCH | _LEAF) or not _HEADER.size <= lower <= page_size:
        raise damaged
    for pointer in struct.unpack_from(f"<{(lower - _HEADER.size) // 2}H", page, _HEADER.size):
        if pointer + _NODE.size > page_size:
            raise damaged
        # In a branch, the length and the flags are the number of the page below.
        low, high, node_flags, key_length = _NODE.unpack_from(page, pointer)
        length = low | high << 16
        if flags & _BRANCH:
            yield from _walk(file, page_size, length | node_flags << 32, seen, depth + 1)
            continue
        if node_flags & (_SUB_DATA | _DUP_DATA):
            raise LmdbError("the database contains other databases")
        data = pointer + _NODE.size + key_length
        is_big = node_flags & _BIG_DATA
        if data + (8 if is_big else length) > page_size:
            raise damaged
        position = start + data
        # A large value has its own pages, and the node has the number of the first.
        if is_big:
            first = int.from_bytes(page[data : data + 8], "little")
            position = _overflow(file, page_size, first, length)
        yield Entry(page[pointer + _NODE.size : data], position, length)


def _overflow(file: ContainerFile, page_size: int, number: int, length: int) -> int:
    """Return where the data of overflow pages begins."""
    at = number * page_size
    if at + _HEADER.size + length > file.size:
        raise LmdbError(f"the value in page {number:,} continues after the end of the file")
    flags, _ = _HEADER.unpack(read_some(file, at, _HEADER.size))
    if not flags & _OVERFLOW:
        raise LmdbError(f"page {number:,} is not an overflow page")
    return at + _HEADER.size


# --- MXNet RecordIO -------------------------------------------------------------------------------


SUFFIX = ".rec"

_DAMAGED = "copy the file again, or make it again with im2rec"


def find_recordio(src: str, folders: Names, _: SourceOptions) -> list[str]:
    """Return the names of the RecordIO files in a folder, sorted; empty if it has folders."""
    if folders:
        return []
    names = sorted(storage.names_in(src))
    return [name for name in names if name.lower().endswith(SUFFIX) and name[0] != "."]


def read_recordio(src: str, files: Names, options: SourceOptions) -> Source:
    """Read the headers of all records.

    Class names are the labels, unless `options.classes` names them.

    Args:
        src: the folder.
        files: names of the RecordIO files in it.
        options: `classes` and `max_classes` apply.

    Raises:
        SourceError: a file is damaged, or an image has no label or several.

    """
    containers, empty = [], 0
    for name in files:
        container, without_image = _read_records(src, name)
        containers.append(container)
        empty += without_image
    source = _classified(src, "MXNet RecordIO", "recordio", containers, options)
    if empty:
        return source.with_notices(f"skipped {plural(empty, 'record')} without an image")
    return source


def _split_of(name: str) -> str:
    """Return the split that the first such word in the name of a file stands for."""
    for word in re.split(r"[-_.]", name.lower()):
        if word in SPLIT_WORDS:
            return SPLIT_WORDS[word]
    return "train"


def _read_records(src: str, name: str) -> tuple[Container, int]:
    """Return the images of a file, and the number of records without an image."""
    path = os.path.join(src, name)
    file = open_listed_file(path)
    starts, identifiers, labels, places = array("q"), array("Q"), [], array("q")
    try:
        for number, parts in enumerate(walk(file)):
            start = parts[0].position - 8
            starts.append(start)
            length, size, identifier, label = _read_header(file, number, parts)
            # InsightFace stores the ranges of its identities in records without an image.
            if size > 0:
                places.extend((start, length, size))
                identifiers.append(identifier)
                labels.append(label)
    except RecordIOError as error:
        raise SourceError(str(error), file=path, byte=error.byte, hint=_DAMAGED) from None
    if not file.size:
        raise SourceError("the file is empty", file=path, hint=_DAMAGED)
    stem, _ = os.path.splitext(path)
    _check_index(f"{stem}.idx", name, starts)
    images = image_table(_names_of(f"{stem}.lst", identifiers), places, label=text_array(labels))
    container = Container(name, _split_of(name), stats_of(file.status)[1:], images)
    return container, len(starts) - len(labels)


def _check_index(path: str, name: str, starts: Sequence[int]) -> None:
    """Check that the index, if there is one, has the records of the file: a file can be cut between two records.

    Raises:
        SourceError: it has other records, or is damaged.

    """
    if not storage.is_file(path):
        return
    hint = "copy both files again, or make the index again"
    index = load_text(path, ["number", "position"])
    found(index, "position", text_array(map(str, starts)), f"is no record of {name}", hint)
    if len(index) != len(starts):
        raise SourceError(
            f"the index has {plural(len(index), 'record')}, but {name} has {len(starts):,}",
            file=path,
            hint=hint,
        )


def _read_header(
    file: ContainerFile, number: int, parts: list[Fragment]
) -> tuple[int, int, int, str]:
    """Return the lengths of a record and of its image, and the identifier and the label of the image.

    Without an image, the length of it is at most 0.
    """
    first = parts[0]
    head = read_some(file, first.position, min(first.length, IMAGE_HEADER.size + 4))
    if len(head) < IMAGE_HEADER.size:
        raise SourceError(
            "the record has no header of an image", file=file.path, record=number, hint=_DAMAGED
        )
    count, label, identifier, _ = IMAGE_HEADER.unpack_from(head)
    # Between two parts, the reader inserts the magic number.
    length = sum(part.length for part in parts) + 4 * (len(parts) - 1)
    size = length - IMAGE_HEADER.size - 4 * count
    if size <= 0:
        return length, size, identifier, ""
    if count > 1:
        raise SourceError(
            f"the image has {count:,} labels, which is not a class",
            file=file.path,
            record=number,
            hint="make the file with one label per image (im2rec)",
        )
    if count == 1:
        (label,) = struct.unpack_from("<f", head, IMAGE_HEADER.size)
    if not label.is_integer():
        raise SourceError(
            f"the label {label:g} is not a class number",
            file=file.path,
            record=number,
            hint="make the file with class numbers from 0",
        )
    return length, size, identifier, str(int(label))


def _names_of(path: str, identifiers: Sequence[int]) -> list[str]:
    """Return the names of images in the ``.lst`` file, or else their numbers.

    Lines of the file have ``identifier, labels, path``, separated by tabs.
    """
    if storage.is_file(path):
        lines = load_text(path, ["text"])
        parts = pc.extract_regex(lines["text"], r"^(?P<number>\d+)\t(?:.*\t)?(?P<name>.*)$")
        wrong = first_true(pc.is_null(parts))
        if wrong >= 0:
            message = "the line does not have the form `number, label, path`, separated by tabs"
            raise row_error(locate(lines), wrong, message, "make the list again with im2rec")
        numbers = pc.struct_field(parts, "number").cast(pa.uint64())
        names = pc.struct_field(parts, "name")
        at = pc.index_in(pa.array(identifiers, pa.uint64()), one_array(numbers))
        # Names are of use only if every image has one of its own.
        if not at.null_count and len(pc.unique(at)) == len(at):
            return list(names.take(at).to_pylist())
    return [*map(str, range(len(identifiers)))]


KINDS = (
    Kind(
        "a folder of LMDB databases",
        find_databases,
        read_lmdb,
        in_archives=False,
        example="lsun/church_outdoor_train_lmdb/data.mdb",
    ),
    Kind(
        "a folder of RecordIO files",
        find_recordio,
        read_recordio,
        in_archives=False,
        example="faces/train.rec",
    ),
)
