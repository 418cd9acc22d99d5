"""Datasets as they are published: images in folders, and labels and splits in files beside them.

`_DATASETS` has a record for each dataset: which files it is recognized by, and which files make one
table of its images. `_read` makes a `Source` of the table and of the images that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.boxes import BoxList
from dataprep.labels.kinds import KINDS as LABELS
from dataprep.labels.tables import labels_of
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Kind,
    Names,
    Source,
    Texts,
    first_names,
    one_array,
    sample_table,
    text_array,
)
from dataprep.sources.boxed import numbers_in, with_boxes
from dataprep.sources.columns import extra_columns, find_columns
from dataprep.sources.joined import (
    TEXT,
    check_once,
    found,
    in_folders,
    joined,
    load,
    locate,
    substitute,
    with_columns,
)
from dataprep.sources.scan import Scan, list_folders, stray_notices
from dataprep.sources.tables import number_splits, with_labels
from manifests.errors import CallError, SourceError

#: Columns that are no labels and are not kept: what leads from one file to another, and more.
_INTERNAL = {"path", "split", "file", "line", "id", "number", "box", "breed", "image"}

#: Columns of the box of an image: two corners, or a corner and the size.
_CORNERS, _SIZES = ("x1", "y1", "x2", "y2"), ("x", "y", "width", "height")


class Part(NamedTuple):
    """A file with a row for each image of a split.

    Alternative names of a file or a folder are separated by ``|``.

    Attributes:
        file: a text, CSV or MAT file, as `load` reads it; or a pattern of the paths of images that
            begins with ``^``, whose groups are columns.
        columns: the names of its columns, separated by blanks.
        split: the split; empty if a column has it.
        folder: the folder of the images, which the paths of a file are relative to.
        suffix: what is missing at the end of each path.

    """

    file: str
    columns: str = "path"
    split: str = ""
    folder: str = ""
    suffix: str = ""


class Published(NamedTuple):
    """A published dataset. Alternative names of a file or a folder are separated by ``|``.

    Attributes:
        name: its name.
        marks: files and folders that no other source has all of.
        needs: what a complete copy also has.
        parts: the files that name the images. ``{n}`` and ``{nn}`` are the number of a partition.
        example: as in `Kind`.
        joins: files with more columns, each with the names of its columns; several files are
            separated by ``+``. Rows are joined by the first column that both have. A file that is
            not needed may be missing.
        label: a pattern whose first group is the label in a path; empty if a column has it.
        labels: the columns of labels that are read by default; if empty, all of `parts`.
        values: what the values of a column stand for.
        classes: the file with the class names in their order, by the column of labels.
        notices: messages for the user, by the file or folder that they are about.
        boxes: a file with the box of each image, in columns of `_CORNERS` or `_SIZES`.
        boxed: the parts that have boxes, if they are others.
        first: the number of the first pixel.

    """

    name: str
    marks: Names
    needs: Names
    parts: Iterable[Part]
    example: str
    joins: Mapping[str, str] = {}
    label: str = ""
    labels: Names = ("label",)
    values: Mapping[str, Mapping[str, str]] = {}
    classes: Mapping[str, str] = {}
    notices: Mapping[str, str] = {}
    boxes: str = ""
    boxed: Iterable[Part] = ()
    first: int = 0


# --- recognize ------------------------------------------------------------------------------------

#: A folder with more folders is not one around a dataset.
_MAX_WRAPPED = 4


def _find(dataset: Published, src: str, folders: Names, options: SourceOptions) -> str | None:
    """Return the folder of a dataset: `src`, or one in it as archives unpack to.

    Raises:
        SourceError: a part of the dataset is missing.

    """
    needs = dataset.needs
    if options.label_type and LABELS[options.label_type].is_placed:
        if options.label_type != "boxes" or not dataset.boxes:
            return None
        needs = (*needs, dataset.boxes)
    for root in _places(src, folders):
        if all(_first(root, names) for names in dataset.marks):
            missing = [names for names in needs if not _first(root, names)]
            # Without labels, any folder of images can be read.
            if missing and options.unlabelled:
                return None
            if missing:
                raise SourceError(
                    f"this looks like {dataset.name}, but {_either(missing[0])} does not exist",
                    file=root,
                    hint="unpack all files of the dataset into this folder, or set --label-type"
                    " none to convert the images alone",
                )
            return root
    return None


def _places(src: str, folders: Names) -> Iterator[str]:
    """Yield the folders in which a dataset may be: archives contain one folder, perhaps twice."""
    yield src
    if len(folders) <= _MAX_WRAPPED:
        for name in folders:
            yield f"{src}/{name}"
            for inside in (name, "data", f"{name}/data"):
                # In an object store, no folder is listed that does not exist.
                if _first(f"{src}/{name}", inside):
                    yield f"{src}/{name}/{inside}"


def _first(root: str, names: str) -> str | None:
    """Return the first of some alternative files or folders that exists in a folder."""
    for name in names.split("|"):
        # In an object store, a folder is listed once, and only if it exists.
        folder = root
        for part in name.split("/"):
            storage.prefetch_folders([folder])
            folder = f"{folder}/{part}"
            if not (storage.is_file(folder) or storage.is_folder(folder)):
                break
        else:
            return name
    return None


# --- read -----------------------------------------------------------------------------------------


def _read(dataset: Published, src: str, root: str, options: SourceOptions) -> Source:
    """Read a dataset from the folder that `_find` returned.

    Raises:
        CallError: a column or a partition does not exist.
        SourceError: a file of the dataset is damaged, an image is missing or listed twice, or a
            label is not valid.

    """
    scan = Scan(root)
    folders, notices = _image_folders(root, dataset.parts)
    notices += [dataset.notices[names] for names in dataset.notices if _first(root, names)]
    is_boxes = options.label_type == "boxes"
    if is_boxes:
        # The class of each image is the class of its box.
        options = replace(options, label_type="class")
        dataset = dataset._replace(parts=dataset.boxed or dataset.parts)
    else:
        file = _first(root, dataset.boxes) if dataset.boxes else None
        if file:
            notices.append(f"{file} has boxes; --label-type boxes reads them")
        dataset = dataset._replace(boxes="")
    scan.add(*folders)
    table = _table(dataset, root, scan.path, options, notices)
    # Each row has an image, and no two rows have the same.
    check_once(table, "path")
    image = np.asarray(found(table, "path", scan.path, "does not exist", "unpack the images again"))
    splits, split, _ = number_splits(one_array(table["split"]), "split", root)
    # By split, and in the order of the paths.
    order = np.lexsort((image, split))
    table, image = table.take(pa.array(order)).combine_chunks(), image[order]
    is_listed = np.zeros(len(scan.path), np.bool_)
    is_listed[image] = True
    unlisted = scan.path.filter(pa.array(~is_listed)).to_pylist()
    notices += stray_notices(unlisted, f"that {dataset.name} does not list")
    internal = _INTERNAL.union(_CORNERS, _SIZES).intersection(table.column_names)
    columns = table.drop_columns([*internal])
    names = _label_columns(dataset, columns.column_names, root, options)
    classes = None
    kind = LABELS[options.label_type or "class"]
    if len(names) == 1 and kind.class_column and not options.label_separator:
        classes = _classes(dataset, root, table, names[0])
        known = text_array(options.classes or classes)
        found(table, names[0], known, "is not one of the classes", "correct the line")
    labels = labels_of(table, names, options, locate(table), classes)
    stats = scan.stats[image]
    source = Source(
        root=root,
        layout=dataset.name,
        table=sample_table(
            one_array(table["path"]),
            size=stats[:, 0],
            stamp=stats[:, 1:],
            split=split[order],
            extra=extra_columns(columns, {*names}, root, labels, locate(table)),
        ),
        splits=splits,
        notices=(*_wrapped(src, root), *notices, *scan.notices),
        rejected=tuple(scan.rejected),
        folders=frozenset(scan.folders),
    )
    source = with_labels(source, labels)
    return _with_boxes(source, table, dataset.first) if is_boxes else source


def _with_boxes(source: Source, table: pa.Table, first: int) -> Source:
    """Return a source with the box of each image, whose class is the class of the image."""
    names = _CORNERS if _CORNERS[0] in table.column_names else _SIZES
    corners = numbers_in(table, names, SourceOptions(), locate(table))
    if names == _SIZES:
        corners[:, 2:] += corners[:, :2]
    # If the first pixel is 1, edges are pixels of the object.
    corners[:, :2] -= first
    rows = np.arange(len(source))
    boxes = BoxList(rows, source.label, corners, rows)
    unlabelled = source.with_columns(label=np.zeros(len(rows), np.int32))
    sizes = np.zeros((len(rows), 2), np.int64)
    return with_boxes(unlabelled, boxes, source.classes, sizes, lambda *_: "its box")


def _image_folders(root: str, parts: Iterable[Part]) -> tuple[list[str], list[str]]:
    """Return the folders of images that exist, and messages about other copies of them."""
    present, notices = [], []
    for names in dict.fromkeys(part.folder for part in parts if part.folder):
        copies = [name for name in names.split("|") if _first(root, name)]
        present += copies[:1]
        # A folder around the first one is no copy.
        others = [name for name in copies[1:] if not copies[0].startswith(f"{name}/")]
        if others:
            notices.append(
                f"skipped {first_names(others)}, other copies of the images in {copies[0]}; move"
                " this folder away to read them"
            )
    return present or [""], notices


def _wrapped(src: str, root: str) -> list[str]:
    """Return a message about the folder that a dataset was found in, and the folders beside it."""
    if root == src:
        return []
    inside = root.removeprefix(f"{src}/")
    others = [name for name in list_folders(src) if name != inside.split("/")[0]]
    skipped = f"; skipped {first_names(others)} beside it: give others as another --src"
    return [f"read the folder {inside}{skipped if others else ''}"]


def _label_columns(dataset: Published, columns: Names, root: str, options: SourceOptions) -> Texts:
    """Return the columns of labels that an option names, or that are read by default."""
    if options.unlabelled:
        return ()
    given = find_columns("--label-column", options.label_column, (), columns, root)
    # The columns of other files are other labels.
    joined = " ".join(dataset.joins.values()).split()
    own = dataset.labels or [name for name in columns if name not in joined]
    return given or tuple(own)


def _classes(dataset: Published, root: str, table: pa.Table, column: str) -> Texts:
    """Return the class names in their order: of a file, of their numbers, or of the names."""
    names: list[str]
    if column in dataset.classes:
        names = load(root, dataset.classes[column], column)[column].to_pylist()
    elif column == "label" and "number" in table.column_names:
        order = pc.sort_indices(pc.utf8_lpad(one_array(table["number"]), 20, "0"))
        names = pc.unique(table[column].take(order)).to_pylist()
        count = pc.count_distinct(table["number"]).as_py()
        if count != len(names):
            hint = "unpack the files of the classes again, or rename one of two equal names"
            message = f"the dataset has {count:,} numbers of classes, but {len(names):,} names"
            raise SourceError(message, file=root, hint=hint)
    else:
        names = _in_order(pc.unique(table[column]).to_pylist())
    if len({*names}) < len(names):
        hint = "rename one of them in the file of the classes"
        raise SourceError("two classes have the same name", file=root, hint=hint)
    return tuple(names)


def _in_order(names: list[str]) -> list[str]:
    """Sort numbers by their values, and names as text."""
    if all(map(str.isdecimal, names)):
        return sorted(names, key=lambda name: (len(name), name))
    return sorted(names)


# --- the table of the images ----------------------------------------------------------------------


def _table(
    dataset: Published, root: str, path: pa.Array, options: SourceOptions, notices: list[str]
) -> pa.Table:
    """Return a row for each image; add messages to `notices`."""
    number = _partition(options) if "split_column" in _takes(dataset) else 0
    if number:
        notices.append(
            f"the splits are partition {number} of 10; --split-column split2 takes the second"
        )
    read = partial(_load_files, root, path, dataset.values)
    tables: list[pa.Table] = []
    for part in dataset.parts:
        file = part.file.replace("{nn}", f"{number:02}").replace("{n}", str(number))
        folder = part.folder and _first(root, part.folder)
        if folder and "*" in file and not file.startswith("^"):
            rows = _in_each(f"{root}/{folder}", file, part.columns)
        else:
            rows = read(file, part.columns)
        if rows is None or folder is None:
            missing = part.file if rows is None else part.folder
            notices.append(f"skipped {part.split}: {_either(missing)} does not exist")
            continue
        # Paths that match a pattern are whole; the parts of some datasets have more columns.
        before = "" if part.file.startswith("^") else f"{folder}/".lstrip("/")
        rows = _of_part(part, dataset.label, before, rows)
        tables.append(rows.select(tables[0].column_names if tables else rows.column_names))
    if not tables:
        raise SourceError(f"this is {dataset.name} without images", file=root, hint=notices[-1])
    table = pa.concat_tables(tables)
    for files, names in dataset.joins.items():
        if not (dataset.boxes or {_CORNERS[0], _SIZES[0]}.isdisjoint(names.split())):
            continue
        other = read(files, names)
        if other is not None:
            what = f"is not in {_either(files)}"
            if files.startswith("^"):
                what = "has no image"
            table = joined(table, other, what)
    return with_columns(table, path=table["image" if "image" in table.column_names else "path"])


def _load_files(
    root: str, path: pa.Array, values: Mapping[str, Mapping[str, str]], files: str, columns: str
) -> pa.Table | None:
    """Return the rows of files, or of images whose paths match; `None` if a file does not exist."""
    if files.startswith("^"):
        return in_folders(root, path, files)
    tables = []
    for file in files.split("+"):
        name = _first(root, file)
        if name is None:
            return None
        table = load(root, name, columns)
        for column in values.keys() & {*table.column_names}:
            names = values[column]
            what = f"is not {' or '.join(names)}"
            at = found(table, column, text_array(names), what, "correct the line")
            table = with_columns(table, **{column: text_array(names.values()).take(at)})
        tables.append(table)
    return pa.concat_tables(tables)


def _in_each(root: str, file: str, columns: str) -> pa.Table:
    """Return the rows of a file in each folder, of which ``*`` in its name is the name."""
    tables = []
    for name in list_folders(root):
        table = load(f"{root}/{name}", file.replace("*", name), columns)
        tables.append(with_columns(table, path=substitute(table["path"], "^", f"{name}/")))
    return pa.concat_tables(tables)


def _of_part(part: Part, label: str, folder: str, table: pa.Table) -> pa.Table:
    """Return the rows of a part with its split, the labels, and the paths of the images as `image`."""
    if part.split:
        table = with_columns(table, split=pa.repeat(pa.scalar(part.split, TEXT), len(table)))
    if label:
        table = with_columns(table, label=substitute(table["path"], label, r"\1"))
    if "path" in table.column_names:
        image = substitute(table["path"], "^/?(.*)$", rf"{folder}\1{part.suffix}")
        table = with_columns(table, image=image)
    return table


def _takes(dataset: Published) -> Names:
    options = ["label_column"]
    if any("{n" in part.file for part in dataset.parts):
        options.append("split_column")
    return options


def _partition(options: SourceOptions) -> int:
    """Return the number of the partition into splits, 1 to 10."""
    given = options.split_column or "split1"
    number = re.fullmatch(r"split([1-9]|10)", given)
    if number is None:
        message = f"--split-column {given}: the dataset has the columns split1 to split10"
        raise CallError(message, hint="give one of them")
    return int(number[1])


def _either(names: str) -> str:
    return names.replace("|", " or ")


# --- datasets -------------------------------------------------------------------------------------

_FOOD_MARKS = (
    "meta/classes.txt|meta/labels.txt|meta/train.json|meta/test.json|meta/meta/classes.txt"
)
_FOOD_TRAIN = "meta/train.txt|meta/meta/train.txt"
_FOOD_TEST = "meta/test.txt|meta/meta/test.txt"
_PETS_TRAIN = "annotations/trainval.txt|annotations/annotations/trainval.txt"
_PETS_TEST = "annotations/test.txt|annotations/annotations/test.txt"
_PETS_IMAGES = "images/images|images"
_CELEBA = "img_align_celeba/img_align_celeba|img_align_celeba|Img/img_align_celeba"
_ATTRIBUTES = "list_attr_celeba.txt|list_attr_celeba.csv|Anno/list_attr_celeba.txt"
_IDENTITIES = "identity_CelebA.txt|Anno/identity_CelebA.txt"
_PARTITION = "list_eval_partition.txt|list_eval_partition.csv|Eval/list_eval_partition.txt"
_PLACES_TRAIN = (
    "data_large_standard|data_256_standard|data_large_challenge|data_256_challenge|data_large"
    "|data_256"
)
_PLACES_VAL = "val_large|val_256"
_GTSRB_TRAIN = "GTSRB/Training|GTSRB/Final_Training/Images|Training|Final_Training/Images"
_GTSRB_TEST = "GTSRB/Final_Test/Images|Final_Test/Images"
_GTSRB_TRUTH = (
    "GT-final_test.csv|GTSRB/GT-final_test.csv|GTSRB/Final_Test/Images/GT-final_test.csv"
    "|Final_Test/Images/GT-final_test.csv"
)
_ROI = "label=ClassId x1=Roi.X1 y1=Roi.Y1 x2=Roi.X2 y2=Roi.Y2"
_CARS_BOX = "x1=bbox_x1 y1=bbox_y1 x2=bbox_x2 y2=bbox_y2"
_CARS_META = "devkit/cars_meta.mat|car_devkit/devkit/cars_meta.mat"
_CARS_TRAIN = "devkit/cars_train_annos.mat|car_devkit/devkit/cars_train_annos.mat"
_CLASS_FOLDER = "^(?:[0-9]+_ObjectCategories/|2750/|EuroSAT_RGB/)+(?P<label>[^/]+)/[^/]+$"
_NO_LABELS = "the images of test have no labels, so they are not read"

_DATASETS = (
    Published(
        "CUB-200-2011 or NABirds",
        ("image_class_labels.txt|train_test_split.txt", "images|images.txt"),
        (
            "images.txt",
            "image_class_labels.txt",
            "classes.txt",
            "train_test_split.txt",
            "images",
        ),
        (Part("images.txt", "id path", folder="images"),),
        "CUB_200_2011/images.txt, image_class_labels.txt, train_test_split.txt, classes.txt,"
        " images/CLASS/*.jpg",
        {
            "train_test_split.txt": "id split",
            "image_class_labels.txt": "id number",
            "classes.txt": "number label",
            "bounding_boxes.txt": "id x y width height",
        },
        values={"split": {"1": "train", "0": "test"}},
        boxes="bounding_boxes.txt",
    ),
    Published(
        "Food-101",
        ("images", _FOOD_MARKS),
        (_FOOD_TRAIN, _FOOD_TEST),
        (
            Part(_FOOD_TRAIN, "path", "train", "images", ".jpg"),
            Part(_FOOD_TEST, "path", "test", "images", ".jpg"),
        ),
        "food-101/images/CLASS/*.jpg, meta/train.txt, meta/test.txt, meta/classes.txt",
        label="^([^/]*)/.*",
    ),
    Published(
        "Tiny ImageNet",
        ("val/images", "wnids.txt|val/val_annotations.txt"),
        ("train", "val/val_annotations.txt"),
        (
            Part("^train/(?P<label>[^/]+)/", "", "train", "train"),
            Part("val/val_annotations.txt", "path label box", "val", "val/images"),
        ),
        "tiny-imagenet-200/train/WNID/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt",
        notices={"test": _NO_LABELS},
    ),
    Published(
        "Caltech-101",
        ("101_ObjectCategories",),
        (),
        (
            Part(
                "^(?:101_ObjectCategories/)+(?P<label>[^B/][^/]*|B[^A/][^/]*)/[^/]+$",
                "",
                "train",
                "101_ObjectCategories",
            ),
        ),
        "caltech101/101_ObjectCategories/CLASS/*.jpg",
        notices={
            "101_ObjectCategories/BACKGROUND_Google": "BACKGROUND_Google is no class, as in"
            " torchvision; give 101_ObjectCategories/ as --src to convert it too"
        },
    ),
    Published(
        "Caltech-256",
        ("256_ObjectCategories",),
        (),
        (Part(_CLASS_FOLDER, "", "train", "256_ObjectCategories"),),
        "caltech256/256_ObjectCategories/CLASS/*.jpg",
    ),
    Published(
        "SUN397 with partitions",
        ("ClassName.txt", "a", "Partitions/Training_01.txt|Training_01.txt"),
        ("Partitions/Testing_01.txt|Testing_01.txt",),
        (
            Part("Partitions/Training_{nn}.txt|Training_{nn}.txt", split="train"),
            Part("Partitions/Testing_{nn}.txt|Testing_{nn}.txt", split="test"),
        ),
        "SUN397/ClassName.txt, a/abbey/*.jpg, Partitions/Training_01.txt, Testing_01.txt, ...",
        label="^/?./(.*)/[^/]*$",
        classes={"label": "ClassName.txt"},
    ),
    Published(
        "SUN397",
        ("ClassName.txt", "a"),
        (),
        (Part("^./(?P<label>.+)/[^/]+$", split="train"),),
        "SUN397/ClassName.txt, a/abbey/*.jpg",
        classes={"label": "ClassName.txt"},
        notices={
            "ClassName.txt": "all images are in train; the lists of the splits, Training_01.txt and"
            " others, belong into Partitions/"
        },
    ),
    Published(
        "EuroSAT with lists of its splits",
        ("AnnualCrop", "train.csv|test.csv"),
        ("train.csv", "validation.csv", "test.csv"),
        (
            Part("train.csv", "path=Filename label=ClassName", "train"),
            Part("validation.csv", "path=Filename label=ClassName", "val"),
            Part("test.csv", "path=Filename label=ClassName", "test"),
        ),
        "EuroSAT/CLASS/*.jpg, train.csv, validation.csv, test.csv",
    ),
    Published(
        "EuroSAT",
        ("2750/AnnualCrop|EuroSAT_RGB/AnnualCrop",),
        (),
        (Part(_CLASS_FOLDER, "", "train", "2750|EuroSAT_RGB"),),
        "eurosat/2750/CLASS/*.jpg",
    ),
    Published(
        "the Describable Textures Dataset (DTD)",
        ("images", "labels/labels_joint_anno.txt|labels/train10.txt"),
        ("labels/train1.txt", "labels/val1.txt", "labels/test1.txt"),
        (
            Part("labels/train{n}.txt", "path", "train", "images"),
            Part("labels/val{n}.txt", "path", "val", "images"),
            Part("labels/test{n}.txt", "path", "test", "images"),
        ),
        "dtd/images/CLASS/*.jpg, labels/train1.txt, val1.txt, test1.txt, ...",
        {"labels/labels_joint_anno.txt": "path joint"},
        label="^([^/]*)/.*",
        notices={
            "labels/labels_joint_anno.txt": "--label-column joint --label-separator ' ' reads all"
            " labels of an image"
        },
    ),
    Published(
        "GTSRB",
        (
            "GTSRB/Training/00000|GTSRB/Final_Training/Images/00000|Training/00000"
            "|Final_Training/Images/00000",
            "GTSRB|Final_Test|Final_Training",
        ),
        (),
        (
            Part(r"^.*/0*(?P<label>\d+)/", "", "train", _GTSRB_TRAIN),
            Part(_GTSRB_TRUTH, "path=Filename label=ClassId", "test", _GTSRB_TEST),
        ),
        "GTSRB/Training/00000/*.ppm, Final_Test/Images/*.ppm, GT-final_test.csv",
        boxes="|".join(f"{name}/00000/GT-00000.csv" for name in _GTSRB_TRAIN.split("|")),
        boxed=(
            Part("GT-*.csv", f"path=Filename {_ROI}", "train", _GTSRB_TRAIN),
            Part(_GTSRB_TRUTH, f"path=Filename {_ROI}", "test", _GTSRB_TEST),
        ),
    ),
    Published(
        "GTSRB in Kaggle's layout",
        ("Train.csv|Test.csv", "Train", "Meta.csv|Meta"),
        ("Train.csv", "Test.csv", "Test"),
        (
            Part("Train.csv", "path=Path label=ClassId", "train"),
            Part("Test.csv", "path=Path label=ClassId", "test"),
        ),
        "GTSRB/Train/0/*.png, Test/*.png, Train.csv, Test.csv, Meta.csv",
        boxes="Train.csv",
        boxed=(
            Part("Train.csv", f"path=Path {_ROI}", "train"),
            Part("Test.csv", f"path=Path {_ROI}", "test"),
        ),
    ),
    Published(
        "Stanford Cars",
        (f"{_CARS_META}|{_CARS_TRAIN}",),
        (_CARS_META, _CARS_TRAIN, "cars_train"),
        (
            Part(
                _CARS_TRAIN,
                f"path=fname number=class {_CARS_BOX}",
                "train",
                "cars_train/cars_train|cars_train",
            ),
            Part(
                "cars_test_annos_withlabels.mat|devkit/cars_test_annos_withlabels.mat",
                f"path=fname number=class {_CARS_BOX}",
                "test",
                "cars_test/cars_test|cars_test",
            ),
        ),
        "stanford_cars/cars_train/*.jpg, cars_test/*.jpg, devkit/cars_meta.mat,"
        " cars_train_annos.mat, cars_test_annos_withlabels.mat",
        {_CARS_META: "label=class_names number"},
        boxes=_CARS_TRAIN,
        first=1,
    ),
    Published(
        "Stanford Cars in one folder",
        ("cars_annos.mat",),
        ("car_ims",),
        (Part("cars_annos.mat", f"path=relative_im_path number=class split=test {_CARS_BOX}"),),
        "stanford_cars/car_ims/*.jpg, cars_annos.mat",
        {"cars_annos.mat": "label=class_names number"},
        values={"split": {"0": "train", "1": "test"}},
        boxes="cars_annos.mat",
        first=1,
    ),
    Published(
        "Oxford Flowers 102",
        ("imagelabels.mat|setid.mat",),
        ("imagelabels.mat", "setid.mat", "jpg"),
        (
            Part("setid.mat", "id=trnid", "train", "jpg"),
            Part("setid.mat", "id=valid", "val", "jpg"),
            Part("setid.mat", "id=tstid", "test", "jpg"),
        ),
        "flowers-102/jpg/*.jpg, imagelabels.mat, setid.mat",
        {
            "imagelabels.mat": "label=labels id",
            r"^jpg/image_0*(?P<id>\d+)\.jpg$": "",
        },
        notices={
            "jpg": "the classes are numbers in the dataset; give their names with --rename-classes,"
            " a file of lines such as `1,pink primrose`"
        },
    ),
    Published(
        "Oxford-IIIT Pets",
        ("images", f"annotations/list.txt|annotations/annotations/list.txt|{_PETS_TRAIN}"),
        (_PETS_TRAIN, _PETS_TEST),
        (
            Part(_PETS_TRAIN, "path number species breed", "train", _PETS_IMAGES, ".jpg"),
            Part(_PETS_TEST, "path number species breed", "test", _PETS_IMAGES, ".jpg"),
        ),
        "oxford-iiit-pet/images/*.jpg, annotations/trainval.txt, test.txt, list.txt",
        label=r"^(.*)_\d+$",
        values={"species": {"1": "cat", "2": "dog"}},
        notices={
            "annotations": "trainval.txt is the split train; --label-column species reads cat and"
            " dog",
            "annotations/trimaps": "--label-type mask reads trimaps/",
        },
    ),
    Published(
        "FGVC-Aircraft",
        ("images_variant_train.txt",),
        ("images_variant_val.txt", "images_variant_test.txt", "variants.txt", "images"),
        (
            Part("images_variant_train.txt", "path variant", "train", "images", ".jpg"),
            Part("images_variant_val.txt", "path variant", "val", "images", ".jpg"),
            Part("images_variant_test.txt", "path variant", "test", "images", ".jpg"),
        ),
        "fgvc-aircraft-2013b/data/images/*.jpg, images_variant_train.txt, variants.txt, ...",
        {
            "images_family_train.txt+images_family_val.txt+images_family_test.txt": "path family",
            "images_manufacturer_train.txt+images_manufacturer_val.txt"
            "+images_manufacturer_test.txt": "path manufacturer",
            "images_box.txt": "path x1 y1 x2 y2",
        },
        boxes="images_box.txt",
        first=1,
        labels=("variant",),
        classes={
            "variant": "variants.txt",
            "family": "families.txt",
            "manufacturer": "manufacturers.txt",
        },
        notices={
            "variants.txt": "--label-column family or manufacturer reads other labels than variant"
        },
    ),
    Published(
        "CelebA",
        (f"{_ATTRIBUTES}|{_IDENTITIES}|{_CELEBA}",),
        (_ATTRIBUTES, _PARTITION, _CELEBA),
        (Part(_ATTRIBUTES, "path *", folder=_CELEBA),),
        "celeba/img_align_celeba/*.jpg, list_attr_celeba.txt, list_eval_partition.txt,"
        " identity_CelebA.txt",
        {_PARTITION: "path split", _IDENTITIES: "path identity"},
        labels=(),
        values={"split": {"0": "train", "1": "val", "2": "test"}},
        notices={
            _IDENTITIES: "the labels are the attributes; --label-column identity reads the persons"
        },
    ),
    Published(
        "Places365",
        ("categories_places365.txt",),
        ("places365_train_standard.txt|places365_train_challenge.txt|places365_val.txt",),
        (
            Part(
                "places365_train_standard.txt|places365_train_challenge.txt",
                "path number",
                "train",
                _PLACES_TRAIN,
            ),
            Part("places365_val.txt", "path number", "val", _PLACES_VAL),
        ),
        "places365/data_256_standard/a/airfield/*.jpg, val_256/*.jpg, places365_val.txt,"
        " places365_train_standard.txt, categories_places365.txt",
        {"categories_places365.txt": "label number"},
        notices={"test_large|test_256": _NO_LABELS},
    ),
)


def _kinds() -> Iterator[Kind]:
    for dataset in _DATASETS:
        yield Kind(
            f"a folder of {dataset.name}",
            partial(_find, dataset),
            partial(_read, dataset),
            _takes(dataset),
            dataset.example,
        )


KINDS = (*_kinds(),)
