"""Folders with a table of labels beside the images, as Hugging Face and Roboflow have them.

``metadata.csv``, ``.jsonl`` or ``.parquet`` of the loader ``imagefolder`` of Hugging Face, and
``_classes.csv`` of Roboflow: one for each folder of a split, or one for all images.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dataprep import storage
from dataprep.labels.boxes import BoxList
from dataprep.labels.columns import Locate, is_text, row_error
from dataprep.labels.kinds import OTHER_LABEL_COLUMNS
from dataprep.options import SourceOptions
from dataprep.sources.base import LABEL_COLUMN_NAMES, Kind, Names, Source, joined_paths, text_array
from dataprep.sources.box_tables import find_boxes
from dataprep.sources.boxed import with_named_boxes
from dataprep.sources.paired import check_boxes
from dataprep.sources.scan import Scan, list_folders, plain_split_of
from dataprep.sources.tables import columns_of, load_table, table_source
from manifests.errors import SourceError
from manifests.json_members import shorten
from manifests.process.text import plural
from manifests.schema import COLUMN_PREFIX

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_CLASSES = ("_classes.csv",)

#: The column of paths: of Hugging Face, and of Roboflow.
_FILE_NAME, _ROBOFLOW = "file_name", "filename"

#: Columns of objects and of captions, and the names of the classes of objects.
_OBJECTS = "objects"
_TEXT = "text"
_CATEGORIES = ("categories", "category", "labels", "label")


def _find(src: str, folders: Names, wanted: Names) -> list[str]:
    """Return the files of some names in a folder, in its folders of splits, and in ``data/``."""
    places = ["", *filter(plain_split_of, folders)]
    if "data" in folders:
        inside = list_folders(f"{src}/data")
        places += ["data", *(f"data/{name}" for name in filter(plain_split_of, inside))]
    paths = [os.path.join(place, name) for place in places for name in wanted]
    return [path for path in paths if storage.is_file(os.path.join(src, path))]


def find_metadata(src: str, folders: Names, _: SourceOptions) -> list[str]:
    """Return the tables of Hugging Face's ``imagefolder``, if they name files."""
    found = _find(src, folders, _METADATA)
    if found and _FILE_NAME not in columns_of(os.path.join(src, found[0])):
        return []
    return found


def find_classes(src: str, folders: Names, _: SourceOptions) -> list[str]:
    """Return the tables with a column for each class that Roboflow writes beside the images."""
    return _find(src, folders, _CLASSES)


def read_metadata(src: str, files: Names, options: SourceOptions) -> Source:
    """Read the images that the tables of Hugging Face's ``imagefolder`` list.

    Raises:
        CallError, SourceError: as `table_source`; or the files do not fit together.

    """
    objects: dict[str, list[Any]] = {_OBJECTS: []}
    options = replace(options, path_column=options.path_column or _FILE_NAME)
    read = _load(src, files, str(options.path_column), objects)
    columns = {*read[0].column_names}
    if not any(objects[_OBJECTS]) or _OBJECTS in columns:
        # As in the guide, captions are in a column of this name.
        has_text = _TEXT in columns
        has_text &= columns.isdisjoint((*LABEL_COLUMN_NAMES, *OTHER_LABEL_COLUMNS))
        if has_text and not (options.label_column or options.label_type):
            options = replace(options, label_column=_TEXT)
        source = _source(src, read, files[0], options)
        if find_boxes(os.path.join(src, files[0]), (), replace(options, label_column=None)):
            source = source.with_notices(f"{files[0]} has boxes; give it as --src to read them")
        return source
    check_boxes(options, f"the column {_OBJECTS} has boxes")
    unlabelled = replace(options, label_type="none", label_column=None)
    source = _source(src, read, files[0], unlabelled)
    return _with_objects(source, objects[_OBJECTS], read[1], options)


def read_classes(src: str, files: Names, options: SourceOptions) -> Source:
    """Read the images of Roboflow's tables, which have a column of 0 and 1 for each class.

    Raises:
        CallError, SourceError: as `table_source`; or the files do not fit together.

    """
    read = _load(src, files, _ROBOFLOW, {})
    names = [name for name in read[0].column_names if name not in (_ROBOFLOW, "split")]
    # Several columns of numbers would be a regression otherwise, if one is neither 0 nor 1.
    label_type = options.label_type or ("multi-label" if len(names) > 1 else None)
    options = replace(options, path_column=_ROBOFLOW, label_type=label_type)
    return _source(src, read, files[0], options, names)


def _load(
    src: str, files: Names, column: str, aside: Mapping[str, list[Any]]
) -> tuple[pa.Table, Locate]:
    """Return the rows of all tables, with paths relative to `src` and the split of each folder.

    The paths are in the column of this name, and a function locates a row.
    """
    tables, places = [], []
    if len({os.path.splitext(path)[1] for path in files}) > 1:
        raise SourceError(
            f"there are several tables of the same images: {', '.join(files)}",
            file=src,
            hint="keep one kind of them",
        )
    for path in files:
        file = os.path.join(src, path)
        table, lines = load_table(file, aside)
        # Roboflow writes blanks around the names.
        table = table.rename_columns([*map(str.strip, table.column_names)])
        if column not in table.column_names:
            raise SourceError(
                f"the table has no column {column!r}",
                file=file,
                hint=f"add it, with the paths of the images relative to {path}; the columns are"
                f" {', '.join(table.column_names)}",
            )
        folder = os.path.dirname(path)
        if folder and is_text(table[column].type):
            paths = joined_paths(pa.array([folder] * len(table)), table[column])
            table = table.set_column(table.column_names.index(column), column, paths)
        split = plain_split_of(os.path.basename(folder))
        if split:
            # A column of this name stays beside it.
            own = {"split": f"{COLUMN_PREFIX}split"}
            table = table.rename_columns([own.get(name, name) for name in table.column_names])
            table = table.append_column("split", pa.array([split] * len(table)))
        tables.append(table)
        places += [(file, int(line)) for line in lines]
    return pa.concat_tables(tables, promote_options="permissive"), places.__getitem__


def _source(
    src: str,
    read: tuple[pa.Table, Locate],
    file: str,
    options: SourceOptions,
    label_names: Names | None = None,
) -> Source:
    """Return the images that a table lists, with their paths in `options.path_column`."""
    (table, locate), column = read, str(options.path_column)
    names = table[column].to_pylist() if is_text(table[column].type) else []
    notices = []
    # A table of all images may list them in the folders of splits.
    splits = [plain_split_of(str(name).partition("/")[0]) for name in names]
    if names and all(splits) and "split" not in table.column_names and not options.split_column:
        table = table.append_column("split", pa.array(splits, pa.string()))
        notices.append("the folders of splits in the paths are the splits")
    first = os.path.join(src, file)
    source = table_source(table, src, options, first, locate, label_names=label_names)
    scan = Scan(src)
    scan.add("")
    others = len(scan.path) - len(names)
    if others > 0:
        notices.append(f"skipped {plural(others, 'image')} that no table lists")
    return replace(source, layout=f"{os.path.basename(file)} beside images").with_notices(*notices)


def _with_objects(
    source: Source, values: Sequence[Any], locate: Locate, options: SourceOptions
) -> Source:
    """Return a source with the boxes of a column of objects, which are x, y, width and height."""
    boxes = BoxList()
    categories: list[str] = []
    for row, value in enumerate(values):
        try:
            names = next(filter(value.__contains__, _CATEGORIES)) if value else ""
            pairs = zip(value["bbox"], value[names], strict=True) if value else ()
            for at, (box, category) in enumerate(pairs):
                x, y, width, height = map(float, box)
                boxes.add(row, 0, (x, y, x + width, y + height), at)
                categories.append(str(category))
        except (AttributeError, KeyError, StopIteration, TypeError, ValueError):
            raise row_error(
                locate,
                row,
                f"{_OBJECTS} must be {{'bbox': [[x, y, width, height]], 'categories': [...]}}, not"
                f" {shorten(value)}",
                "write the boxes as Hugging Face's guide of imagefolder has them",
            ) from None
    boxes.label, image = text_array(categories), boxes.image
    source = replace(source, label_origin="column 'objects'")
    return with_named_boxes(
        source,
        boxes,
        options,
        lambda at: locate(image[at]),
        where=lambda _, at: f"objects.bbox[{at}]",
    )


KINDS = (
    Kind(
        "a folder of images with metadata of Hugging Face",
        find_metadata,
        read_metadata,
        ("path_column", "label_column", "split_column"),
        """
pets/train/metadata.csv                      # file_name,label; or metadata.jsonl, metadata.parquet
pets/train/0001.jpg                          # one file for each split, or one for all images
""",
    ),
    Kind(
        "a folder of images with _classes.csv of Roboflow",
        find_classes,
        read_classes,
        example="""
pets/train/_classes.csv                      # filename, cat, dog: 0 or 1 for each class
pets/train/0001.jpg
""",
    ),
)
