"""MXNet RecordIO as ``im2rec`` writes it: ``train.rec``, and ``train.lst`` with the names of the images."""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.containers import location_table
from dataprep.containers.files import open_listed_file
from dataprep.containers.recordio import IMAGE_HEADER, Part, RecordIOError, walk
from dataprep.labels.columns import number_labels
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.columns import stats_of
from manifests.errors import SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.process.text import plural
from manifests.schema import SPLIT_ALIASES, split_order

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


def find_recordio(src: str) -> list[str]:
    """Return the names of the RecordIO files in a folder, sorted."""
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
    return Source(
        root=src,
        layout="MXNet RecordIO",
        classes=classes,
        splits=splits,
        path=pa.array(paths, pa.large_string()),
        label=label,
        split=np.array([splits.index(records.split) for records in read], np.int8)[number],
        size=np.concatenate([np.array(records.size, np.int64) for records in read]),
        extra=pa.table({}),
        notices=(f"skipped {plural(empty, 'record')} without an image",) if empty else (),
        stamp=np.array([records.stamp for records in read], np.int64).reshape(-1, 2)[number],
        location=location_table(
            pa.DictionaryArray.from_arrays(pa.array(number), names),
            "recordio",
            position=np.concatenate([np.array(records.position, np.int64) for records in read]),
            length=np.concatenate([np.array(records.length, np.int64) for records in read]),
        ),
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
    records: _Records, number: int, parts: list[Part], head: tuple[bytes, int], path: str
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
