"""Parquet files with the images in them, as Hugging Face distributes datasets.

The column of images has the type ``struct<bytes: binary, path: string>``, or is binary, and is not
read. Class names are in the metadata of the schema.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import spool, storage
from dataprep.labels.columns import Labels
from dataprep.labels.kinds import CAPTION, OTHER_LABEL_COLUMNS
from dataprep.labels.tables import labels_of
from dataprep.options import SourceOptions
from dataprep.sources.arrays import named_columns
from dataprep.sources.base import (
    LABEL_COLUMN_NAMES,
    Container,
    Kind,
    Names,
    Source,
    Texts,
    first_names,
    in_split_order,
    stored_source,
)
from dataprep.sources.columns import (
    extra_columns,
    is_readable_type,
    joined_columns,
)
from dataprep.sources.scan import is_folder, stats_of, suffix_of
from dataprep.sources.several import MISSING_HINT, image_names, with_images
from dataprep.sources.tables import (
    PATH_COLUMNS,
    check_split_names,
    label_columns,
    not_kept,
    opened_parquet,
    with_labels,
)
from dataprep.spool import is_numeric_list
from manifests.errors import CallError, SourceError
from manifests.files import IMAGE_SUFFIXES, ParquetError
from manifests.json_members import Member, parse_json, shorten
from manifests.parquet import BoundedParquet, GroupSize, is_list, shorten_type
from manifests.process.text import agree, missing_parts, plural, printable, suggest
from manifests.records import record
from manifests.schema import SPLIT_ALIASES, SPLIT_WORDS, split_order

#: ``train-00000-of-00005.parquet``, perhaps with the name of a configuration before it and a
#: fingerprint behind it.
_SHARD_NAME = re.compile(r"(?P<name>.+)-\d{5,}-of-\d{5,}(?:-[0-9a-f]+)?")

#: Columns of images and of labels by the names that are common on Hugging Face, preferred if there
#: are several.
_IMAGE_COLUMNS = ("image", "img", "images", "picture", "photo", "jpg")
_LABEL_COLUMNS = ("labels", "fine_label")

_AGAIN = "download or write the file again"


@record
class _File(Container):
    """A Parquet file: its columns without images, the row groups of its images, and its class names."""

    table: pa.Table
    groups: Sequence[GroupSize]
    features: Mapping[str, Texts]


def read_hugging_face(root: str, files: Names, options: SourceOptions) -> Source:
    """Read Parquet files with images.

    The labels, the extra columns and the footers are read, the images are not.

    Args:
        root: the folder that `files` are relative to.
        files: the Parquet files, in order.
        options: `path_column` names the column of images; `label_column` and `classes` apply.

    Raises:
        CallError: a column does not exist.
        SourceError: a file is damaged, or the files do not fit together.

    """
    _check_configurations(root, files)
    first = f"{root}/{files[0]}"
    images = image_names(options)
    image = _image_column(first, images[0] if images else options.path_column)
    with opened_parquet(first, _AGAIN) as parquet:
        features = _features(parquet)
        leaf = image if image in parquet.binary_leaves() else f"{image}.bytes"
        schema = parquet.schema
    # All columns of images have one type, so the path of the first one says how others are read.
    others = [name + leaf.removeprefix(image) for name in images[1:]]
    # Lists are read only if they are labels or arrays.
    readable, lists, skipped, named = [], [], [], named_columns(options)
    for field in schema:
        is_array = is_numeric_list(field.type, fixed=field.name not in named)
        is_array &= field.name not in OTHER_LABEL_COLUMNS
        if is_list(field.type) and not is_array:
            lists.append(field.name)
        elif (is_array or is_readable_type(field.type)) and field.name not in (image, *images):
            readable.append(field.name)
    _check_label(schema, options, first)
    also = (*_LABEL_COLUMNS, *features, *OTHER_LABEL_COLUMNS, *CAPTION.column_names)
    label_names = label_columns([*readable, *lists], options, first, also)
    columns = {*readable, *label_names}
    for name in schema.names:
        if name not in (*columns, image, *images):
            skipped.append(name)
    notices = _column_notices(skipped, label_names, features, options)
    columns_in_order = [name for name in schema.names if name in columns]
    read = [_read_file(root, file, (leaf, *others), columns_in_order) for file in files]
    if len(label_names) == 1:
        read = _without_unlabelled(read, label_names[0], notices)
    check_split_names({file.split for file in read}, root)
    read = in_split_order(read)
    groups = [group for file in read for group in file.groups]
    number = np.repeat(np.arange(len(groups)), [group.rows for group in groups])
    source = stored_source(
        root,
        f"Parquet with images in column {printable(image)}",
        "parquet",
        read,
        key=leaf.encode(),
        group=number,
    )

    def locate(row: int) -> tuple[str, int | None]:
        place, _, position = source.path[row].as_py().rpartition("/")
        return f"{root}/{place}, row {position}", None

    table = _concat(root, read)
    labels = Labels("none", np.zeros(len(source), np.int32))
    if label_names:
        names_of = _class_names(root, read, label_names[0])
        labels = labels_of(table, label_names, options, locate, names_of)
    extra = extra_columns(table, not_kept(table, label_names, labels), root, labels, locate)
    source = replace(source.with_columns(extra=extra), notices=(*notices, *missing_parts(files)))
    if images:
        paths = {column_of(other): _other_paths(source, read, other, options) for other in others}
        source = with_images(source, images, paths, {})
    return with_labels(source, labels)


def _other_paths(
    source: Source, files: Sequence[_File], leaf: str, options: SourceOptions
) -> pa.Array:
    """Return the path of another image of each sample: the path of the first one and its column."""
    name, text = column_of(leaf), pa.large_string()
    parts: list[NDArray[np.bool_]] = []
    for file in files:
        with opened_parquet(f"{source.root}/{file.name}", _AGAIN) as parquet:
            for number, group in enumerate(parquet.binary_leaves()[leaf]):
                has = np.ones(group.rows, np.bool_)
                # A group that does not state how many values it lacks is read.
                if group.nulls != 0:
                    has = np.asarray(parquet.read_group(number, leaf).is_valid())
                parts.append(has)
    has_image = np.concatenate(parts)
    if not has_image.all() and options.missing_images is None:
        count = int((~has_image).sum())
        raise SourceError(
            f"{plural(count, 'sample')} {agree(count, 'has', 'have')} no image {name}:"
            f" {source.path[int(has_image.argmin())].as_py()}",
            file=source.root,
            hint=MISSING_HINT,
        )
    paths = pc.binary_join_element_wise(source.path, pa.scalar(name, text), pa.scalar("/", text))
    return pc.if_else(pa.array(has_image), paths, pa.scalar(None, text))


def _check_label(schema: pa.Schema, options: SourceOptions, file: str) -> None:
    """Check that the labels are not in a struct, whose members can be a number and a name, or boxes."""
    names: Names = LABEL_COLUMN_NAMES
    if options.label_column or options.unlabelled:
        names = [options.label_column or ""]
    for field in schema:
        if field.name in names and pa.types.is_struct(field.type):
            raise SourceError(
                f"column {shorten(field.name)} has the type {shorten_type(field.type)}, and not"
                " numbers, text or lists of them",
                file=file,
                hint="write one of its members as a column, and name it with --label-column",
            )


def _column_notices(
    skipped: Names,
    label_names: Names,
    features: Mapping[str, Texts],
    options: SourceOptions,
) -> list[str]:
    """Return messages about columns that are skipped, and about a choice among columns of classes."""
    notices = []
    if skipped:
        notices.append(
            f"skipped columns that are not text, numbers or booleans: {first_names(skipped)}"
        )
    others = [name for name in features if name not in label_names]
    if label_names and others and options.label_column is None:
        notices.append(
            f"the labels are column {label_names[0]}; {first_names(others)} also"
            f" {agree(len(others), 'has', 'have')} names of classes: choose with --label-column"
        )
    return notices


# --- files ----------------------------------------------------------------------------------------


def _check_configurations(root: str, files: Names) -> None:
    """Check that the files are not several configurations of a dataset, which contain the same images."""
    folders = sorted({file.split("/")[0] for file in files if "/" in file})
    if len(folders) > 1 and not all(folder.lower() in SPLIT_WORDS for folder in folders):
        shown = first_names([f"{name}/" for name in folders])
        raise SourceError(
            f"the folder has Parquet files in several folders ({shown}), which may be versions of"
            " one dataset",
            file=root,
            hint=f"give one of them, for example {root}/{folders[0]}",
        )


def _split_of(file: str) -> str:
    """Return the split of a file: the exact name that ``datasets`` writes, or else a word of a known split.

    Before ``-00000-of-00005``, the name of the split follows the last hyphen: ``train_small`` is not
    ``train``. Other names are searched for the last such word, and then for the name of the folder.
    """
    folder, name = os.path.split(os.path.splitext(file)[0])
    match = _SHARD_NAME.fullmatch(name)
    if match:
        exact = match["name"].rpartition("-")[2]
        return SPLIT_ALIASES.get(exact.lower(), exact)
    split = "train"
    for word in (os.path.basename(folder), *re.split(r"[-_.0-9]+", name)):
        split = SPLIT_WORDS.get(word.lower(), split)
    return split


def _read_file(root: str, file: str, images: Names, columns: Names) -> _File:
    path = f"{root}/{file}"
    with opened_parquet(path, _AGAIN) as parquet:
        leaves, leaf = parquet.binary_leaves(), images[0]
        for name in (*images, *columns):
            if name not in (leaves if name in images else parquet.names):
                raise SourceError(
                    f"the file has no column {shorten(column_of(name))}",
                    file=path,
                    hint="give files of one dataset",
                )
        groups = leaves[leaf]
        if parquet.rows and sum(group.nulls or 0 for group in groups) == parquet.rows:
            raise SourceError(
                f"column {shorten(column_of(leaf))} contains no images, only paths (all of its bytes"
                " are null)",
                file=path,
                hint=(
                    "give a table with a column of paths, or write the images into the file"
                    " (embed_external_files)"
                ),
            )
        row = np.arange(parquet.rows)
        # The size of an image is estimated as the mean of its row group.
        means = np.array([group.bytes // max(group.rows, 1) for group in groups], np.int64)
        size = np.repeat(means, [group.rows for group in groups])
        return _File(
            name=file,
            split=_split_of(file),
            stamp=stats_of(storage.stat(path))[1:],
            images=pa.table({"name": row, "position": row, "size": size}),
            table=spool.read_columns(parquet, columns, varying=False),
            groups=groups,
            features=_features(parquet),
        )


def _class_names(root: str, files: Sequence[_File], column: str) -> Texts | None:
    """Return the class names of a column, the same in all files that state them."""
    # A file without metadata has the numbers of the others.
    stated = [file for file in files if column in file.features]
    for file in stated:
        if file.features[column] != stated[0].features[column]:
            raise SourceError(
                f"column {shorten(column)} has other class names, or in another order, than in"
                f" {stated[0].name}",
                file=f"{root}/{file.name}",
                hint="convert the files one by one",
            )
    return stated[0].features[column] if stated else None


def _concat(root: str, files: Sequence[_File]) -> pa.Table:
    tables = {f"{root}/{file.name}": file.table.replace_schema_metadata(None) for file in files}
    joined = joined_columns(tables, "give files of one dataset")
    return spool.combine(pa.concat_tables(joined, promote_options="default"))


# --- columns --------------------------------------------------------------------------------------


def _image_column(file: str, given: str | None) -> str:
    found = image_columns(file)
    if given is not None and given not in found:
        raise CallError(
            f"--path-column {given}: {file} has no such column of images",
            hint=suggest(given, found),
        )
    if not found:
        raise SourceError(
            "the file has no column of images (binary, or a struct with bytes)",
            file=file,
            hint="give a table with a column of paths as --src, or a file with the images",
        )
    known = [name for name in _IMAGE_COLUMNS if name in found]
    if given is None and len(found) > 1 and not known:
        names = ", ".join(found[:10])
        raise CallError(
            f"{file} has several columns of images: {names}", hint="choose one with --path-column"
        )
    return given or (known or found)[0]


def _features(parquet: BoundedParquet) -> dict[str, Texts]:
    """Return the class names of the columns that the metadata calls a ``ClassLabel``, or a list of them."""
    names = {}
    try:
        info = parse_json(parquet.metadata.get(b"huggingface", b"{}")).get("info")
        features = info and info.get("features")
        if features:
            for name, member in features.members().items():
                label = _class_label(member)
                if label:
                    names[name] = label["names"].texts()
    except ValueError as error:
        raise ParquetError(f"the metadata of Hugging Face in it: {error}") from None
    return names


#: Types of columns of lists in the metadata: `Sequence` of older versions of ``datasets``, the
#: others of 4.0 and newer.
_LIST_TYPES = ("Sequence", "List", "LargeList")


def _class_label(feature: Member) -> Member | None:
    """Return the ``ClassLabel`` that describes a column, or the items of a column of lists.

    `None` if nothing does.
    """
    if isinstance(feature.value, list) and len(feature.value) == 1:  # an older way to write a list
        (feature,) = feature.items()
    elif isinstance(feature.value, Mapping) and feature.value.get("_type") in _LIST_TYPES:
        feature = feature["feature"]
    is_label = isinstance(feature.value, Mapping) and feature.value.get("_type") == "ClassLabel"
    return feature if is_label else None


def _without_unlabelled(files: Sequence[_File], label: str, notices: list[str]) -> list[_File]:
    """Leave out splits without labels: Hugging Face writes -1 or null for all labels of a test split."""
    kept = []
    for split in split_order({file.split for file in files}):
        members = [file for file in files if file.split == split]
        if any(_has_labels(file.table[label]) for file in members):
            kept += members
        else:
            notices.append(f"skipped {split}: its images have no labels")
    if not kept:
        raise SourceError(
            "no image has a label", file=files[0].name, hint="set --label-column to another column"
        )
    return kept


def _has_labels(column: pa.ChunkedArray) -> bool:
    if column.null_count == len(column):
        return False
    return not pa.types.is_integer(column.type) or pc.max(column).as_py() >= 0


# --- columns of images ----------------------------------------------------------------------------


def find_parquet_files(src: str, folders: Names, _: SourceOptions) -> list[str]:
    """Return the Parquet files with images in a folder, relative to it and sorted.

    Empty if there are other images.

    They are in the folder itself, in its folders, or in the folders of these.

    Raises:
        SourceError: a Parquet file is damaged.

    """
    files = _parquet_files(src, "")
    if not files and len(folders) <= _MAX_FOLDERS:
        inner = []
        for folder in folders:
            inner += [f"{folder}/{name}" for name in _peek(src, folder, folders=True)]
        # Look at the first files of each folder; the folder of a split may be in a folder.
        places = []
        for place in [*folders, *inner[:_MAX_FOLDERS]]:
            suffixes = {*map(suffix_of, _peek(src, place))}
            if suffixes & IMAGE_SUFFIXES:
                return []
            if ".parquet" in suffixes:
                places.append(place)
        for place in places:
            files += _parquet_files(src, place)
        files.sort()
    return files if files and image_columns(f"{src}/{files[0]}") else []


#: Folders and entries of a folder to look at: class folders can have millions of images.
_MAX_FOLDERS, _MAX_PEEKED = 100, 50


_SHARDS = (".tar", ".tfrecord", ".tfrecords")


def _peek(src: str, folder: str, *, folders: bool = False) -> list[str]:
    with storage.scan_folder(os.path.join(src, folder)) as entries:
        return [entry.name for entry in islice(entries, _MAX_PEEKED) if is_folder(entry) == folders]


def _parquet_files(src: str, folder: str) -> list[str]:
    files = []
    for name in storage.names_in(os.path.join(src, folder)):
        suffix = suffix_of(name)
        if name.startswith("."):
            continue
        # The Parquet files beside shards are their tables.
        if suffix in _SHARDS:
            return []
        if suffix == ".parquet":
            files.append(os.path.join(folder, name))
    return sorted(files)


def image_columns(file: str) -> list[str]:
    """Return the columns of a Parquet file that contain images: structs with the member ``bytes``, or binary.

    In a table with a column of paths, binary columns are not images.

    Raises:
        SourceError: the file is damaged.

    """
    found, texts = [], set()
    with opened_parquet(file, _AGAIN) as parquet:
        for field in parquet.schema:
            leaf, values = field.name, field.type
            if pa.types.is_struct(values) and values.get_field_index("bytes") >= 0:
                leaf, values = f"{leaf}.bytes", values.field("bytes").type
            if values in (pa.binary(), pa.large_binary()) and "." not in field.name:
                found.append(leaf)
            if values == pa.string():
                texts.add(field.name)
    has_paths = not texts.isdisjoint(PATH_COLUMNS)
    return [column_of(leaf) for leaf in found if not has_paths or leaf.endswith(".bytes")]


def column_of(leaf: str) -> str:
    """Return the column that the bytes at a path such as ``image.bytes`` are in."""
    return leaf.removesuffix(".bytes")


KINDS = (
    Kind(
        "a folder of Parquet files with images",
        find_parquet_files,
        read_hugging_face,
        ("path_column", "label_column", "image_columns", "missing_images"),
        in_archives=False,
        example="beans/data/train-00000-of-00001.parquet",
    ),
)
