"""ImageNet as it is distributed: the original archives with the development kit, or Kaggle's layout.

The ground truth of the validation images is a number from 1 to 1,000, ``ILSVRC2012_ID``. It is not
the position of the class among the sorted WordNet IDs: ``meta.mat`` of the development kit says
which class it is. Kaggle's ``ILSVRC/Data/CLS-LOC`` has a flat ``val/`` with its labels in a CSV
file.
"""

from __future__ import annotations

import csv
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.archives import Listing, archive_source, list_archive, read_archive
from dataprep.sources.base import Source, join_sources
from dataprep.sources.folders import read_class_folders
from dataprep.sources.scan import Scan, has_folders, is_folder
from manifests.errors import SourceError
from manifests.files import SOURCE_ARCHIVE, SOURCE_LIST, open_file, read_lines
from manifests.json_members import shorten
from manifests.process.text import plural
from manifests.remote.url import absolute, parent_folder

TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12"
_META, _TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
_VAL_NAME = re.compile(r"(?:.*/)?ILSVRC2012_val_(\d{8})\.JPEG")

#: Bytes of the development kit that are read. It has 2.5 MB.
_MAX_DEVKIT_BYTES = 256 << 20

_DEVKIT_HINT = (
    f"put {DEVKIT}.tar.gz next to the archive, or move the archive of val away to convert only"
    " train"
)


def find_imagenet_tars(src: str, folders: Sequence[str], _: SourceOptions) -> bool:
    """Return whether a folder contains ImageNet's archives, and they are not unpacked beside them."""
    return {"train", "val"}.isdisjoint(folders) and any(
        storage.is_file(os.path.join(src, name)) for name in (TRAIN, VAL)
    )


def read_imagenet_tars(src: str, _: Any, options: SourceOptions) -> Source:
    """Read the archives of a folder in place: train, val, or both.

    Raises:
        SourceError: an archive or the development kit is missing or damaged, or they do not fit
            together.

    """
    layout = "ImageNet in its original archives"
    train, val = (os.path.join(src, name) for name in (TRAIN, VAL))
    parts = []
    if storage.is_file(train):
        parts.append(read_archive(train, None, options))
    if storage.is_file(val):
        classes = options.classes or (parts[0].classes if parts else None)
        parts.append(read_val(val, None, replace(options, classes=classes)))
        parts = [replace(part, classes=parts[-1].classes) for part in parts]
    names = sorted(entry.name for entry in storage.list_folder(src))
    skipped = [name for name in names if re.fullmatch(r"ILSVRC2012_img_test.*\.tar", name)]
    notices = [f"skipped {name}: it has no labels" for name in skipped]
    source = join_sources(parts)
    return replace(source, layout=layout, notices=(*source.notices, *notices))


def read_val(path: str, _: Any, options: SourceOptions) -> Source:
    """Read the archive of validation images, with the labels from the development kit next to it.

    Args:
        path: the archive.
        options: `classes` applies; by default, the classes are the sorted WordNet IDs of the
            development kit.

    Raises:
        SourceError: the archive or the development kit is damaged, or the development kit is
            missing.

    """
    listing = list_archive(path)
    meta, truth, place = _read_devkit(parent_folder(path) or ".")
    wnids = _read_meta(meta, place)
    ids = _read_truth(truth, place, wnids)
    classes = options.classes or tuple(sorted(wnids.values()))
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    labels = np.empty(len(listing.names), np.int32)
    for row, number in enumerate(_image_numbers(listing, len(ids)).tolist()):
        wnid = wnids[ids[number - 1]]
        if wnid not in label_of:
            message = (
                f"the class {wnid} of {listing.names[row]} is not a class of train, or not in"
                " --classes"
            )
            raise SourceError(
                message, file=path, hint="give the archive of train of the same release"
            )
        labels[row] = label_of[wnid]
    source = archive_source(listing, np.arange(len(labels), dtype=np.int64), label=labels)
    return replace(source, layout="ImageNet's validation images", classes=classes, splits=("val",))


def _image_numbers(listing: Listing, count: int) -> NDArray[np.int64]:
    """Return the number of each image, from 1."""
    numbers = []
    for name in listing.names:
        match = _VAL_NAME.fullmatch(name)
        if match is None or not 1 <= int(match[1]) <= count:
            message = f"{name} is not one of the {count:,} images of the ground truth"
            raise SourceError(message, file=listing.path, hint="download the archive again")
        numbers.append(int(match[1]))
    if len({*numbers}) < count:
        missing = min({*range(1, count + 1)} - {*numbers})
        message = (
            f"{plural(count - len({*numbers}), 'image')} missing, the first is"
            f" ILSVRC2012_val_{missing:08d}.JPEG"
        )
        raise SourceError(message, file=listing.path, hint="download the archive again")
    return np.array(numbers, np.int64)


# --- development kit ------------------------------------------------------------------------------


def _read_devkit(folder: str) -> tuple[bytes, bytes, str]:
    """Return the content of ``meta.mat`` and of the ground truth, and the name of the development kit."""
    unpacked = os.path.join(folder, DEVKIT)
    if storage.is_folder(unpacked):
        found = {
            name: _read_small(os.path.join(unpacked, "data", name)) for name in (_META, _TRUTH)
        }
        place = unpacked
    else:
        place = f"{unpacked}.tar.gz"
        if not storage.is_file(place):
            message = (
                "the labels of the validation images are in the development kit, which does not"
                " exist"
            )
            raise SourceError(message, file=place, hint=_DEVKIT_HINT)
        found = _read_members(place)
    for name in (_META, _TRUTH):
        if name not in found:
            raise SourceError(
                f"the development kit has no file {name}", file=place, hint="download it again"
            )
    return found[_META], found[_TRUTH], place


def _read_small(path: str) -> bytes:
    with open_file(path, SOURCE_ARCHIVE) as file:
        return file.read(MAX_BYTES)


def _read_members(path: str) -> dict[str, bytes]:
    """Read the two files from the compressed archive, as a stream of bounded length."""
    import tarfile  # takes time, and most sources do not need it

    found: dict[str, bytes] = {}
    total = 0
    try:
        with (
            open_file(path, SOURCE_ARCHIVE) as file,
            tarfile.open(fileobj=file, mode="r|gz") as archive,
        ):
            for member in archive:
                total += member.size
                if total > _MAX_DEVKIT_BYTES:
                    raise SourceError(
                        f"the development kit has more than {_MAX_DEVKIT_BYTES:,} bytes",
                        file=path,
                        hint="download it again",
                    )
                name = os.path.basename(member.name)
                if name in (_META, _TRUTH) and member.isreg() and member.size <= MAX_BYTES:
                    content = archive.extractfile(member)
                    found[name] = content.read(MAX_BYTES) if content else b""
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        message = f"the development kit cannot be read ({error})"
        raise SourceError(message, file=path, hint="download it again") from None
    return found


def _read_meta(content: bytes, place: str) -> dict[int, str]:
    """Return the WordNet ID of each of the classes with images, by ``ILSVRC2012_ID``."""
    try:
        # Synsets above the leaves of the hierarchy have larger numbers, and children.
        return dict(
            _class_of(fields) for fields in read_structs(content) if not fields.get("num_children")
        )
    except ValueError as error:
        raise SourceError(
            f"{_META} is damaged: {error}", file=place, hint="download it again"
        ) from None


def _class_of(fields: Mapping[str, Value]) -> tuple[int, str]:
    number, wnid = fields.get("ILSVRC2012_ID"), fields.get("WNID")
    if (
        not isinstance(number, (int, float))
        or not isinstance(wnid, str)
        or not re.fullmatch(r"n\d{8}", wnid)
    ):
        raise ValueError("a class has no ILSVRC2012_ID or no WNID")
    return int(number), wnid


def _read_truth(content: bytes, place: str, wnids: dict[int, str]) -> list[int]:
    """Return the ``ILSVRC2012_ID`` of each validation image."""
    ids = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip().isdigit() or len(line) > 9 or int(line) not in wnids:
            message = f"{_TRUTH} has no known class in line {number}"
            raise SourceError(message, file=place, hint="download the development kit again")
        ids.append(int(line))
    return ids


# --- Kaggle ---------------------------------------------------------------------------------------


def find_kaggle_imagenet(src: str, _: Sequence[str], __: SourceOptions) -> str | None:
    """Return the folder CLS-LOC, `src` or a folder in it, if its ``val/`` has no class folders."""
    folder = _find_cls_loc(src)
    return None if folder is None or has_folders(f"{folder}/val") else folder


def find_sorted_kaggle(src: str, _: Sequence[str], __: SourceOptions) -> str | None:
    """Return the folder CLS-LOC in `src`, of which ``val/`` has class folders, too."""
    folder = _find_cls_loc(src)
    return None if folder == src else folder


def _find_cls_loc(src: str) -> str | None:
    for folder in (
        src,
        os.path.join(src, "Data/CLS-LOC"),
        os.path.join(src, "ILSVRC/Data/CLS-LOC"),
    ):
        if os.path.basename(absolute(folder)) == "CLS-LOC" and storage.is_folder(f"{folder}/train"):
            return folder
    return None


def read_kaggle_imagenet(_: str, root: str, options: SourceOptions) -> Source:
    """Read the class folders of train/, and the flat val/ with the labels from LOC_val_solution.csv.

    Raises:
        SourceError: a label file is missing or damaged, or does not match the images.

    """
    with storage.scan_folder(f"{root}/train") as entries:
        train = sorted(entry.name for entry in entries if is_folder(entry))
    classes = _read_classes(root, train)
    source = read_class_folders(
        root,
        {"train": {f"train/{name}": name for name in train}},
        "ImageNet in Kaggle's layout",
        replace(options, classes=options.classes or classes),
    )
    notices = ["skipped test/: it has no labels"] if storage.is_folder(f"{root}/test") else []
    if not storage.is_folder(f"{root}/val"):
        return replace(source, notices=(*source.notices, *notices))
    scan = Scan(root)
    scan.add("val")
    label_of = {name: label for label, name in enumerate(source.classes)}
    val = scan.source("", ["val"], label=_read_val_labels(root, scan.path, label_of))
    joined = join_sources([source, val])
    return replace(joined, notices=(*joined.notices, *notices))


def _find_upward(root: str, name: str) -> str | None:
    """Find a file in a folder or in one of the three folders above it, where Kaggle's archive puts it."""
    folder = absolute(root)
    for _ in range(4):
        if storage.is_file(os.path.join(folder, name)):
            return os.path.join(folder, name)
        folder = parent_folder(folder)
    return None


def _lines(file: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(file, SOURCE_LIST), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise SourceError(
                "the line is not valid UTF-8", file=file, line=number, hint="save the file as UTF-8"
            ) from None


def _read_classes(root: str, train: Sequence[str]) -> tuple[str, ...]:
    mapping = _find_upward(root, "LOC_synset_mapping.txt")
    if mapping is None:
        return tuple(train)
    synsets = sorted({line.split(maxsplit=1)[0] for line in _lines(mapping) if line.strip()})
    if unknown := sorted(set(train) - set(synsets)):
        raise SourceError(
            f"the file does not name {unknown[0]!r}, a folder of train/",
            file=mapping,
            hint="unpack Kaggle's file again",
        )
    return tuple(synsets)


def _read_val_labels(root: str, path: pa.Array, label_of: dict[str, int]) -> NDArray[np.int32]:
    """Return the labels of the images in val/, int32 [n]."""
    solution = _find_upward(root, "LOC_val_solution.csv")
    if solution is None:
        raise SourceError(
            "the folder has no class folders, and the file with its labels, LOC_val_solution.csv,"
            " does not exist",
            file=f"{root}/val",
            hint="put Kaggle's file next to ILSVRC/, or move val/ away to convert only train/",
        )
    labels = _read_solution(solution, label_of)
    stems = [os.path.splitext(os.path.basename(name))[0] for name in path.to_pylist()]
    if missing := next((stem for stem in stems if stem not in labels), None):
        raise SourceError(
            f"the file has no label for val/{missing}",
            file=solution,
            hint="add a line for the image",
        )
    if len(labels) > len(stems):
        missing_images = sorted(set(labels) - set(stems))
        raise SourceError(
            f"image val/{missing_images[0]}.JPEG is missing ({len(missing_images):,} in total)",
            file=solution,
            hint="unpack val/ again",
        )
    return np.array([labels[stem] for stem in stems], np.int32)


def _read_solution(solution: str, label_of: dict[str, int]) -> dict[str, int]:
    """Return the label of each image in LOC_val_solution.csv, by its name without extension."""
    labels: dict[str, int] = {}
    rows = csv.reader(_lines(solution), strict=True)
    try:
        for row in rows:
            if not row or (rows.line_num == 1 and row[0] == "ImageId"):
                continue
            synset = row[1].split(maxsplit=1)[:1] if len(row) > 1 else []
            if not synset or synset[0] not in label_of:
                raise SourceError(
                    f"the line {shorten(','.join(row))} has no known class",
                    file=solution,
                    line=rows.line_num,
                    hint="write each line as `ImageId,synset x y x y`",
                )
            if row[0] in labels:
                message = f"image {shorten(row[0])} is listed twice"
                raise SourceError(
                    message, file=solution, line=rows.line_num, hint="remove one of the lines"
                )
            labels[row[0]] = label_of[synset[0]]
    except csv.Error as error:
        raise SourceError(
            f"the line is not valid CSV: {error}",
            file=solution,
            line=rows.line_num,
            hint="unpack Kaggle's file again",
        ) from None
    return labels


# --- MAT files ------------------------------------------------------------------------------------
# `meta.mat` is a struct array in a MAT file of level 5. Only numbers and text are read.
# Format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf.


#: Bytes of the file after decompression.
MAX_BYTES = 64 << 20

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _CHAR = 2, 4
#: Python's format of each numeric type.
_NUMBERS = {
    1: "b",
    2: "B",
    3: "h",
    4: "H",
    5: "i",
    6: "I",
    7: "f",
    9: "d",
    12: "q",
    13: "Q",
    16: "B",
    17: "H",
}
_MAX_STRUCTS = 100_000

Value = str | float | None


class _Element(NamedTuple):
    kind: int
    data: bytes
    end: int


def read_structs(content: bytes) -> list[dict[str, Value]]:
    """Return the first struct array of a MAT file: for each struct its fields, text or a number.

    `None` for others.

    Raises:
        ValueError: the file is damaged, or contains no struct array.

    """
    if content[126:128] != b"IM" or len(content) < _HEADER_BYTES:
        raise ValueError("it is not a MAT file of level 5 in little-endian order")
    at = _HEADER_BYTES
    while at < len(content):
        element = _element(content, at)
        at = element.end
        if element.kind == _COMPRESSED:
            inflater = zlib.decompressobj()
            try:
                data = inflater.decompress(element.data, MAX_BYTES)
            except zlib.error as error:
                raise ValueError(f"it cannot be decompressed: {error}") from None
            if inflater.unconsumed_tail:
                raise ValueError(f"it has more than {MAX_BYTES:,} bytes after decompression")
            element = _element(data, 0)
        if element.kind == _MATRIX and (structs := _structs(element.data)) is not None:
            return structs
    raise ValueError("it contains no struct array")


def _element(data: bytes, at: int) -> _Element:
    """Return the data element at a byte: a small one of 8 bytes, or a tag of 8 bytes with the data behind it."""
    if at + 8 > len(data):
        raise ValueError(f"it ends within an element at byte {at}")
    kind, length = struct.unpack_from("<II", data, at)
    if kind >> 16:
        return _Element(kind & 0xFFFF, data[at + 4 : at + 4 + min(4, kind >> 16)], at + 8)
    if at + 8 + length > len(data):
        raise ValueError(f"it ends within an element at byte {at}")
    padded = length if kind == _COMPRESSED else (length + 7) // 8 * 8
    return _Element(kind, data[at + 8 : at + 8 + length], at + 8 + padded)


def _structs(matrix: bytes) -> list[dict[str, Value]] | None:
    flags = _element(matrix, 0)
    dimensions = _element(matrix, flags.end)
    if not flags.data or flags.data[0] != _STRUCT:
        return None
    count = 1
    for size in _numbers(dimensions):
        count *= int(size)
    name = _element(matrix, dimensions.end)
    width = _element(matrix, name.end)
    names = _element(matrix, width.end)
    length = int(next(iter(_numbers(width)), 0))
    if not 0 < length <= 64 or not 0 <= count <= _MAX_STRUCTS:
        raise ValueError("its struct array has an implausible size")
    fields = [
        names.data[start : start + length].split(b"\0", 1)[0].decode("ascii", "replace")
        for start in range(0, len(names.data), length)
    ]
    structs: list[dict[str, Value]] = []
    at = names.end
    for _ in range(count):
        values: dict[str, Value] = {}
        for field in fields:
            cell = _element(matrix, at)
            values[field], at = _value(cell.data), cell.end
        structs.append(values)
    return structs


def _value(matrix: bytes) -> Value:
    """Return the text or the first number of a matrix; `None` if it is empty or of another kind."""
    if not matrix:
        return None
    flags = _element(matrix, 0)
    dimensions = _element(matrix, flags.end)
    name = _element(matrix, dimensions.end)
    if name.end >= len(matrix) or not flags.data:
        return None
    content = _element(matrix, name.end)
    if flags.data[0] == _CHAR:
        return "".join(map(chr, map(int, _numbers(content))))
    return next(iter(_numbers(content)), None)


def _numbers(element: _Element) -> tuple[float, ...]:
    code = _NUMBERS.get(element.kind)
    if code is None:
        return ()
    size = struct.calcsize(code)
    return struct.unpack(
        f"<{len(element.data) // size}{code}", element.data[: len(element.data) // size * size]
    )
