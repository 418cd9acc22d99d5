"""Datasets as they are published: images in folders, and labels and splits in files beside them.

Each dataset has a function that makes one table of its images from its files: path, split, and a
column for each kind of label. `_read` makes a `Source` of the table and of the images that are
there. `_DATASETS` has a record for each dataset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.columns import Locate, first_true, row_error
from dataprep.labels.kinds import KINDS as LABELS
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    Kind,
    Names,
    Source,
    first_names,
    one_array,
    sample_table,
    text_array,
)
from dataprep.sources.columns import extra_columns, find_columns
from dataprep.sources.mat_file import MAX_BYTES, read_mat
from dataprep.sources.scan import Scan, list_folders, stray_notices
from dataprep.sources.tables import labels_of, number_splits, with_labels
from dataprep.sources.text_tables import load_csv, text_lines
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_ANNOTATIONS, SOURCE_LIST, read_file
from manifests.json_members import shorten
from manifests.process.text import printable
from manifests.remote.url import parent_folder

_TEXT = pa.large_string()


class Listing(NamedTuple):
    """What the files of a dataset say about its images.

    Attributes:
        table: the columns `path`, `split`, the labels, and the file and the line of each row.
        labels: the columns of labels that are read by default.
        classes: class names in label order, by the column of labels.
        notices: messages for the user, one line each.

    """

    table: pa.Table
    labels: Names = ("label",)
    classes: Mapping[str, Names] = {}
    notices: Names = ()


class Published(NamedTuple):
    """A published dataset. Alternative names of a file or a folder are separated by ``|``.

    Attributes:
        name: its name.
        marks: files and folders that no other source has all of.
        needs: what a complete copy also has.
        folders: folders of images, with alternatives; all of the dataset if there are none.
        rows: returns the listing, by the folder of the dataset, the paths of the images that are
            there, and the options.
        takes: as in `Kind`.
        example: as in `Kind`.

    """

    name: str
    marks: Names
    needs: Names
    folders: Names
    rows: Callable[[str, pa.Array, SourceOptions], Listing]
    example: str
    takes: Names = ("label_column",)


# --- recognize ------------------------------------------------------------------------------------

#: A folder with more folders is not one around a dataset.
_MAX_WRAPPED = 4


def _find(dataset: Published, src: str, folders: Names, options: SourceOptions) -> str | None:
    """Return the folder of a dataset: `src`, or one in it as archives unpack to.

    Raises:
        SourceError: a part of the dataset is missing.

    """
    if options.label_type and LABELS[options.label_type].is_placed:
        return None
    for root in _places(src, folders):
        if all(_first(root, names) for names in dataset.marks):
            missing = [names for names in dataset.needs if not _first(root, names)]
            # Without labels, any folder of images can be read.
            if missing and options.unlabelled:
                return None
            if missing:
                raise SourceError(
                    f"this looks like {dataset.name}, but {missing[0].replace('|', ' or ')} does"
                    " not exist",
                    file=root,
                    hint="unpack all files of the dataset into this folder, or set --label-type none"
                    " to convert the images alone",
                )
            return root
    return None


def _places(src: str, folders: Names) -> Iterator[str]:
    """Yield the folders in which a dataset may be: archives contain one folder, perhaps twice."""
    yield src
    if len(folders) <= _MAX_WRAPPED:
        for name in folders:
            for inside in ("", f"/{name}", f"/{name.upper()}", "/data"):
                yield f"{src}/{name}{inside}"


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
        CallError: a column does not exist.
        SourceError: a file of the dataset is damaged, an image is missing or listed twice, or a
            label is not valid.

    """
    scan = Scan(root)
    folders, notices = _image_folders(root, dataset.folders)
    scan.add(*folders)
    listing = dataset.rows(root, scan.path, options)
    table = listing.table
    # Each row has an image, and no two rows have the same.
    _check_once(table, "path")
    at = pc.index_in(table["path"], scan.path).combine_chunks()
    missing = first_true(pc.is_null(at))
    if missing >= 0:
        raise row_error(
            _locate(table),
            missing,
            f"image {shorten(table['path'][missing].as_py(), 300)} does not exist"
            f" ({at.null_count:,} in total)",
            "unpack the images again, or remove the lines of images that are not there",
        )
    splits, split = number_splits(one_array(table["split"]), "split", root)
    # By split, and in the order of the paths.
    image = np.asarray(at)
    order = np.lexsort((image, split))
    table, image = table.take(pa.array(order)).combine_chunks(), image[order]
    columns = table.drop_columns(["path", "split", "file", "line"])
    names: Names = ()
    if not options.unlabelled:
        names = find_columns("--label-column", options.label_column, (), columns.column_names, root)
        names = names or listing.labels
    classes = listing.classes.get(",".join(names))
    if classes:
        _check_classes(table, names[0], classes, options.classes or classes)
    labels = labels_of(table, names, options, _locate(table), tuple(classes or ()) or None)
    notices += [*listing.notices, *scan.notices]
    unlisted = scan.path.take(pa.array(np.setdiff1d(np.arange(len(scan.path)), image)))
    notices += stray_notices(unlisted.to_pylist(), f"that {dataset.name} does not list")
    stats = scan.stats[image]
    source = Source(
        root=root,
        layout=dataset.name,
        table=sample_table(
            one_array(table["path"]),
            size=stats[:, 0],
            stamp=stats[:, 1:],
            split=split[order],
            extra=extra_columns(columns, {*names}, root, labels),
        ),
        splits=splits,
        notices=(*_wrapped(src, root), *notices),
        rejected=tuple(scan.rejected),
        folders=frozenset(scan.folders),
    )
    return with_labels(source, labels)


def _image_folders(root: str, folders: Names) -> tuple[list[str], list[str]]:
    """Return the folders of images that exist, and messages about other copies of them."""
    found, notices = [], []
    for names in folders:
        copies = [name for name in names.split("|") if _first(root, name)]
        found += copies[:1]
        # A folder around the first one is no copy.
        copies = [name for name in copies if not copies[0].startswith(f"{name}/")]
        if len(copies) > 1:
            notices.append(
                f"skipped {first_names(copies[1:])}: the images are read from {copies[0]}; move"
                " this folder away to read others"
            )
    return found or [""], notices


def _wrapped(src: str, root: str) -> list[str]:
    """Return a message about the folder that a dataset was found in, and the folders beside it."""
    if root == src:
        return []
    inside = root.removeprefix(f"{src}/")
    others = [name for name in list_folders(src) if name != inside.split("/")[0]]
    skipped = f"; skipped {first_names(others)} beside it" if others else ""
    return [f"read the folder {printable(inside)}{skipped}"]


def _check_classes(table: pa.Table, name: str, own: Names, classes: Names) -> None:
    """Check that each label is one of the class names, and that the names of the dataset differ."""
    known = text_array(classes)
    row = first_true(pc.invert(pc.is_in(table[name], known)))
    if len({*own}) < len(own):
        raise row_error(_locate(table), 0, "two classes have the same name", "rename one of them")
    if row >= 0:
        what = f"{shorten(table[name][row].as_py(), 80)} is not one of the {len(known)} classes"
        raise row_error(_locate(table), row, what, "correct the line, or the names of the classes")


# --- tables of the files --------------------------------------------------------------------------


def _locate(table: pa.Table) -> Locate:
    return lambda row: (table["file"][row].as_py(), table["line"][row].as_py())


def _placed(table: pa.Table, file: str, line: Any = None) -> pa.Table:
    """Return a table with the columns `file` and `line`, for errors."""
    lines = pa.nulls(len(table), pa.int64()) if line is None else pa.array(line, pa.int64())
    files = pa.repeat(pa.scalar(file, _TEXT), len(table))
    return table.append_column("file", files).append_column("line", lines)


def _lines(file: str, *names: str, skip: int = 0) -> pa.Table:
    """Return the lines of a text file in columns, separated by blanks; the last is the rest of the line.

    The first `skip` lines, empty lines, and lines that begin with ``#`` are left out.
    """
    try:
        text = read_file(file, SOURCE_LIST).decode("utf-8-sig")
    except UnicodeDecodeError:
        hint = "save the file as UTF-8"
        raise SourceError("the file is not valid UTF-8", file=file, hint=hint) from None
    lines = pc.list_flatten(pc.split_pattern(text_array([text]), "\n"))
    lines = pc.ascii_trim_whitespace(lines).slice(skip)
    kept = pc.invert(pc.match_substring_regex(lines, "^(#|$)"))
    number = pa.array(np.flatnonzero(np.asarray(kept)) + skip + 1)
    parts = pc.ascii_split_whitespace(lines.filter(kept), max_splits=len(names) - 1)
    short = first_true(pc.less(pc.list_value_length(parts), len(names)))
    if short >= 0:
        raise SourceError(
            f"the line does not have the form `{' '.join(names)}`",
            file=file,
            line=number[short].as_py(),
            hint="unpack the file again, or correct the line",
        )
    columns = {}
    for at, name in enumerate(names):
        columns[name] = pc.list_element(parts, at)
    return _placed(pa.table(columns), file, number)


def _csv(file: str, **columns: str) -> pa.Table:
    """Return columns of a CSV file by other names: ``path="Filename"``."""
    table, lines = load_csv(file)
    for column in columns.values():
        find_columns("the column", column, (), table.column_names, file)
    return _placed(table.select([*columns.values()]).rename_columns([*columns]), file, lines)


def _mat(file: str, *names: str) -> list[Any]:
    """Return variables of a MAT file.

    Raises:
        SourceError: the file is damaged, or has no such variable.

    """
    try:
        variables = read_mat(read_file(file, SOURCE_ANNOTATIONS)[:MAX_BYTES])
        return [variables[name] for name in names]
    except (ValueError, KeyError) as error:
        raise SourceError(
            f"the file is damaged: {error}", file=file, hint="download it again"
        ) from None


def _split_lists(root: str, files: Mapping[str, str], *names: str) -> pa.Table:
    """Return the lines of a list for each split (split -> file), with the column `split`."""
    tables = []
    for split, file in files.items():
        table = _lines(f"{root}/{file}", *names)
        tables.append(_constant(table, "split", split))
    return pa.concat_tables(tables)


def _split_csvs(root: str, files: Mapping[str, str], **columns: str) -> pa.Table:
    """Do the same with CSV files; `columns` as in `_csv`."""
    tables = []
    for split, file in files.items():
        tables.append(_constant(_csv(f"{root}/{file}", **columns), "split", split))
    return pa.concat_tables(tables)


def _in_folders(root: str, path: pa.Array, pattern: str, split: str = "train") -> pa.Table:
    """Return the images whose paths match a pattern, with its named groups as columns."""
    groups = pc.extract_regex(path, pattern)
    found = pc.is_valid(groups)
    path, groups = path.filter(found), groups.filter(found)
    table = _with(pa.Table.from_struct_array(groups), path=path)
    return _placed(_constant(table, "split", split), root)


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    """Return a table with columns that are new or replace others."""
    kept = dict(zip(table.column_names, table.columns, strict=True))
    return pa.table({**kept, **columns})


def _constant(table: pa.Table, column: str, text: str) -> pa.Table:
    return _with(table, **{column: pa.repeat(pa.scalar(text, _TEXT), len(table))})


def _around(table: pa.Table, before: str, after: str = "") -> pa.Table:
    """Return a table with text around each path."""
    parts = (pa.scalar(before, _TEXT), table["path"], pa.scalar(after, _TEXT))
    return _with(table, path=pc.binary_join_element_wise(*parts, pa.scalar("", _TEXT)))


def _in_order(column: Any) -> list[str]:
    """Return the different values of a column, in the order of their numbers or of their text."""
    names: list[str] = pc.unique(column).to_pylist()
    if all(map(str.isdecimal, names)):
        return sorted(names, key=lambda name: (len(name), name))
    return sorted(names)


def _sub(column: Any, pattern: str, text: str) -> Any:
    return pc.replace_substring_regex(column, pattern, text)


def _joined(table: pa.Table, key: str, other: pa.Table) -> pa.Table:
    """Return a table with the columns of another, in which each value of `key` is once."""
    _check_once(other, key)
    at = pc.index_in(table[key], one_array(other[key])).combine_chunks()
    row = first_true(pc.is_null(at))
    if row >= 0:
        raise row_error(
            _locate(table),
            row,
            f"{key} {shorten(table[key][row].as_py(), 80)} is not in {_file_of(other)}",
            "unpack both files again, or remove the line",
        )
    added = other.take(at)
    new = [name for name in other.column_names if name not in table.column_names]
    return _with(table, **{name: added[name] for name in new})


def _file_of(table: pa.Table) -> str:
    return os.path.basename(table["file"][0].as_py()) if len(table) else "an empty file"


def _check_once(table: pa.Table, key: str) -> None:
    """Check that no value of a column occurs twice."""
    _, first = np.unique(
        np.asarray(table[key].combine_chunks().dictionary_encode().indices), return_index=True
    )
    if len(first) < len(table):
        row = int(np.setdiff1d(np.arange(len(table)), first)[0])
        what = f"{key} {shorten(table[key][row].as_py(), 300)} is listed twice"
        raise row_error(_locate(table), row, what, "remove one of the lines")


def _replaced(table: pa.Table, column: str, names: Mapping[str, str]) -> pa.Table:
    """Return a table with the values of a column replaced, all of which must be keys of `names`."""
    at = pc.index_in(table[column], text_array(names)).combine_chunks()
    row = first_true(pc.is_null(at))
    if row >= 0:
        what = f"{column} is {shorten(table[column][row].as_py(), 80)}, not {' or '.join(names)}"
        raise row_error(_locate(table), row, what, "correct the line")
    return _with(table, **{column: text_array(names.values()).take(at)})


# --- datasets -------------------------------------------------------------------------------------


def _cub(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    table = _lines(f"{root}/images.txt", "id", "path")
    splits = _lines(f"{root}/train_test_split.txt", "id", "split")
    table = _joined(table, "id", _replaced(splits, "split", {"1": "train", "0": "test"}))
    table = _joined(table, "id", _lines(f"{root}/image_class_labels.txt", "id", "class"))
    classes = _lines(f"{root}/classes.txt", "class", "label")
    table = _joined(table, "class", classes)
    # The classes of NABirds have others above them, which have no images of their own.
    used = classes.filter(pc.is_in(classes["class"], one_array(table["class"])))
    table = _around(table, "images/").drop_columns(["id", "class"])
    return Listing(table, classes={"label": used["label"].to_pylist()})


def _food(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    table = _split_lists(root, {"train": "meta/train.txt", "test": "meta/test.txt"}, "path")
    label = _sub(table["path"], "/.*", "")
    return Listing(_around(_with(table, label=label), "images/", ".jpg"))


def _tiny_imagenet(root: str, path: pa.Array, _: SourceOptions) -> Listing:
    train = _in_folders(root, path, r"^train/(?P<label>[^/]+)/")
    val = _split_lists(root, {"val": "val/val_annotations.txt"}, "path", "label", "box")
    table = pa.concat_tables([train, _around(val, "val/images/").select(train.column_names)])
    notices = []
    if storage.is_folder(f"{root}/test"):
        notices.append("skipped test/: it has no labels")
    return Listing(table, classes={"label": _in_order(train["label"])}, notices=notices)


def _class_folders(pattern: str, root: str, path: pa.Array, _: SourceOptions) -> Listing:
    table = _in_folders(root, path, pattern)
    return Listing(table, classes={"label": _in_order(table["label"])})


def _caltech101(root: str, path: pa.Array, _: SourceOptions) -> Listing:
    table = _in_folders(root, path, r"^101_ObjectCategories/(?P<label>[^/]+)/[^/]+$")
    table = table.filter(pc.not_equal(table["label"], "BACKGROUND_Google"))
    notice = (
        "BACKGROUND_Google is no class, as in torchvision; give 101_ObjectCategories/ as --src to"
        " convert it too"
    )
    return Listing(table, classes={"label": _in_order(table["label"])}, notices=[notice])


_SUN_LISTS = "Partitions/Training_01.txt|Training_01.txt"


def _sun397(root: str, path: pa.Array, options: SourceOptions) -> Listing:
    classes = _lines(f"{root}/ClassName.txt", "label")["label"]
    names = {"label": _sub(classes, "^/./", "").to_pylist()}
    first = _first(root, _SUN_LISTS)
    if first is None:
        table = _in_folders(root, path, r"^./(?P<label>.+)/[^/]+$")
        notice = f"all images are in train: the lists of the splits, {_SUN_LISTS}, are not here"
        return Listing(table, classes=names, notices=[notice])
    number, notices = _partition(options)
    folder = os.path.dirname(first)
    files = {}
    for split, name in (("train", "Training"), ("test", "Testing")):
        files[split] = os.path.join(folder, f"{name}_{number:02d}.txt")
    table = _split_lists(root, files, "path")
    path = _sub(table["path"], "^/", "")
    table = _with(table, path=path, label=_sub(path, "^./(.*)/[^/]*$", r"\1"))
    return Listing(table, classes=names, notices=notices)


def _partition(options: SourceOptions) -> tuple[int, list[str]]:
    """Return the number of the partition into splits, 1 to 10, and a message about it."""
    given = options.split_column or "split1"
    number = re.fullmatch(r"split([1-9]|10)", given)
    if number is None:
        message = f"--split-column {given}: the dataset has the columns split1 to split10"
        raise CallError(message, hint="give one of them")
    notice = f"the splits are partition {number[1]} of 10; --split-column split2 takes the second"
    return int(number[1]), [notice]


def _eurosat(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    files = {"train": "train.csv", "val": "validation.csv", "test": "test.csv"}
    return Listing(_split_csvs(root, files, path="Filename", label="ClassName"))


def _dtd(root: str, _: pa.Array, options: SourceOptions) -> Listing:
    number, notices = _partition(options)
    files = {split: f"labels/{split}{number}.txt" for split in ("train", "val", "test")}
    table = _split_lists(root, files, "path")
    joint = f"{root}/labels/labels_joint_anno.txt"
    if storage.is_file(joint):
        table = _joined(table, "path", _lines(joint, "path", "joint"))
        notices.append("--label-column joint --label-separator ' ' reads all labels of each image")
    return Listing(
        _around(_with(table, label=_sub(table["path"], "/.*", "")), "images/"), notices=notices
    )


def _gtsrb(root: str, path: pa.Array, _: SourceOptions) -> Listing:
    table = _in_folders(root, path, r"^(?:Training|Final_Training/Images)/(?P<label>[^/]+)/")
    classes = {"label": _in_order(table["label"])}
    for folder in (root, parent_folder(root), f"{root}/Final_Test/Images"):
        if storage.is_file(f"{folder}/GT-final_test.csv"):
            test = _csv(f"{folder}/GT-final_test.csv", path="Filename", label="ClassId")
            test = _with(test, label=pc.utf8_lpad(test["label"], 5, "0"))
            test = _around(_constant(test, "split", "test"), "Final_Test/Images/")
            table = pa.concat_tables([table, test.select(table.column_names)])
            return Listing(table, classes=classes)
    notice = "skipped Final_Test/: its labels are in GT-final_test.csv, which is not here"
    return Listing(table, classes=classes, notices=[notice])


def _gtsrb_of_kaggle(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    files = {"train": "Train.csv", "test": "Test.csv"}
    return Listing(_split_csvs(root, files, path="Path", label="ClassId"))


_TEST_CARS = "cars_test_annos_withlabels.mat|devkit/cars_test_annos_withlabels.mat"


def _cars(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    names_file, notices = f"{root}/devkit/cars_meta.mat", []
    tables = []
    for split, file in (
        ("train", "devkit/cars_train_annos.mat"),
        ("test", _first(root, _TEST_CARS)),
    ):
        if file is None:
            notices.append(f"skipped cars_test/: its labels, {_TEST_CARS}, are not here")
            continue
        table = _structs(f"{root}/{file}", path="fname", number="class")
        # Kaggle's archive has each folder twice.
        folder = _first(root, f"cars_{split}/cars_{split}|cars_{split}")
        tables.append(_around(_constant(table, "split", split), f"{folder}/"))
    (names,) = _mat(names_file, "class_names")
    return _numbered(pa.concat_tables(tables), names_file, names)._replace(notices=notices)


def _all_cars(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    file = f"{root}/cars_annos.mat"
    table = _structs(file, path="relative_im_path", number="class", split="test")
    (names,) = _mat(file, "class_names")
    return _numbered(_replaced(table, "split", {"0": "train", "1": "test"}), file, names)


def _structs(file: str, **fields: str) -> pa.Table:
    """Return fields of the structs called annotations in a MAT file as columns of text, by other names."""
    (structs,) = _mat(file, "annotations")
    columns = {}
    try:
        for name, field in fields.items():
            columns[name] = text_array(str(each[field]) for each in structs)
    except (TypeError, KeyError):
        message = f"annotations have no field {field}"
        raise SourceError(message, file=file, hint="download the file again") from None
    return _placed(pa.table(columns), file)


def _numbered(table: pa.Table, file: str, names: Names) -> Listing:
    """Return the listing of images whose column `number` counts the classes from 1."""
    numbers = text_array(map(str, range(1, len(names) + 1)))
    classes = _placed(pa.table({"number": numbers, "label": text_array(names)}), file)
    table = _joined(table, "number", classes).drop_columns(["number"])
    return Listing(table, classes={"label": names})


def _flowers(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    ids_file, labels_file = f"{root}/setid.mat", f"{root}/imagelabels.mat"
    ids = _mat(ids_file, "trnid", "valid", "tstid")
    (label,) = _mat(labels_file, "labels")
    tables = []
    for split, numbers in zip(("train", "val", "test"), ids, strict=True):
        image = pa.array(np.atleast_1d(numbers)).cast(pa.int64()).cast(_TEXT)
        tables.append(_constant(_placed(pa.table({"image": image}), ids_file), "split", split))
    numbers = pa.array(np.atleast_1d(label)).cast(pa.int64()).cast(_TEXT)
    images = text_array(map(str, range(1, len(numbers) + 1)))
    labels = _placed(pa.table({"image": images, "label": numbers}), labels_file)
    table = _joined(pa.concat_tables(tables), "image", labels)
    table = _around(_with(table, path=pc.utf8_lpad(table["image"], 5, "0")), "jpg/image_", ".jpg")
    notice = "the classes have no names in the dataset: give them with --rename-classes"
    classes = {"label": _in_order(numbers)}
    return Listing(table.drop_columns(["image"]), classes=classes, notices=[notice])


def _pets(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    files = {"train": "annotations/trainval.txt", "test": "annotations/test.txt"}
    table = _split_lists(root, files, "path", "number", "species", "breed")
    table = _with(table, label=_sub(table["path"], r"_\d+$", ""))
    # The names of the classes are in the names of the images only.
    pairs = table.select(["number", "label"]).group_by(["number", "label"]).aggregate([])
    _check_once(_placed(pairs, f"{root}/annotations"), "number")
    names = dict(zip(*pairs.to_pydict().values(), strict=True))
    classes = [names[number] for number in _in_order(table["number"])]
    table = _replaced(table, "species", {"1": "cat", "2": "dog"})
    table = _around(table, "images/", ".jpg").drop_columns(["number", "breed"])
    return Listing(
        table,
        classes={"label": classes},
        notices=[
            "trainval.txt is the split train; --label-column species reads cat and dog, and"
            " --label-type mask reads trimaps/"
        ],
    )


_LEVELS = {"variant": "variants", "family": "families", "manufacturer": "manufacturers"}


def _aircraft(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    table, classes = None, {}
    for level, file in _LEVELS.items():
        files = {split: f"images_{level}_{split}.txt" for split in ("train", "val", "test")}
        lists = _split_lists(root, files, "path", level)
        table = lists if table is None else _joined(table, "path", lists)
        classes[level] = _lines(f"{root}/{file}.txt", level)[level].to_pylist()
    notice = "--label-column family or manufacturer reads other labels than variant"
    table = _around(table, "images/", ".jpg")
    return Listing(table, ("variant",), classes=classes, notices=[notice])


_CELEBA = "img_align_celeba/img_align_celeba|img_align_celeba|Img/img_align_celeba"
_ATTRIBUTES = "list_attr_celeba.txt|list_attr_celeba.csv|Anno/list_attr_celeba.txt"
_PARTITION = "list_eval_partition.txt|list_eval_partition.csv|Eval/list_eval_partition.txt"
_IDENTITIES = "identity_CelebA.txt|Anno/identity_CelebA.txt"


def _celeba(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    table = _celeba_table(root, _ATTRIBUTES)
    attributes = [*table.drop_columns(["path", "file", "line"]).column_names]
    splits = _celeba_table(root, _PARTITION, "split")
    splits = _replaced(splits, "split", {"0": "train", "1": "val", "2": "test"})
    table = _joined(table, "path", splits)
    classes, notices = {}, []
    if _first(root, _IDENTITIES):
        table = _joined(table, "path", _celeba_table(root, _IDENTITIES, "identity"))
        classes["identity"] = _in_order(table["identity"])
        notices.append("the labels are the attributes; --label-column identity reads the persons")
    table = _around(table, f"{_first(root, _CELEBA)}/")
    return Listing(table, attributes, classes=classes, notices=notices)


def _celeba_table(root: str, files: str, *columns: str) -> pa.Table:
    """Return the table of CelebA, or Kaggle's CSV file of it, whose first column is the name of the image.

    Without `columns`, their names are in the second line.
    """
    file = f"{root}/{_first(root, files)}"
    if file.endswith(".csv"):
        table, lines = load_csv(file)
        _, *names = table.column_names
        return _placed(table.rename_columns(["path", *(columns or names)]), file, lines)
    if columns:
        return _lines(file, "path", *columns)
    header = [*islice(text_lines(file, SOURCE_LIST), 2)]
    return _lines(file, "path", *header[-1].split(), skip=2)


_PLACES_TRAIN = (
    "data_large_standard|data_256_standard|data_large_challenge|data_256_challenge|data_large"
    "|data_256"
)
_PLACES_VAL = "val_large|val_256"


def _places365(root: str, _: pa.Array, __: SourceOptions) -> Listing:
    classes = _lines(f"{root}/categories_places365.txt", "label", "number")
    classes = _with(classes, label=_sub(classes["label"], "^/./", ""))
    tables, notices = [], ["skipped the test images: they have no labels"]
    for split, folders in (("train", _PLACES_TRAIN), ("val", _PLACES_VAL)):
        folder = _first(root, folders)
        if folder is None:
            notices.append(f"there are no images of {split}: {folders} does not exist")
            continue
        name = split
        if split == "train":
            name = f"train_{'challenge' if 'challenge' in folder else 'standard'}"
        table = _split_lists(root, {split: f"places365_{name}.txt"}, "path", "number")
        table = _around(_with(table, path=_sub(table["path"], "^/", "")), f"{folder}/")
        tables.append(_joined(table, "number", classes).drop_columns(["number"]))
    return Listing(
        pa.concat_tables(tables), classes={"label": classes["label"].to_pylist()}, notices=notices
    )


_DATASETS = (
    Published(
        "CUB-200-2011 or NABirds",
        ("image_class_labels.txt",),
        ("images.txt", "classes.txt", "train_test_split.txt", "images"),
        ("images",),
        _cub,
        "CUB_200_2011/images.txt, image_class_labels.txt, train_test_split.txt, classes.txt,"
        " images/CLASS/*.jpg",
    ),
    Published(
        "Food-101",
        ("images", "meta/classes.txt|meta/labels.txt|meta/train.json|meta/test.json"),
        ("meta/train.txt", "meta/test.txt"),
        ("images",),
        _food,
        "food-101/images/CLASS/*.jpg, meta/train.txt, meta/test.txt, meta/classes.txt",
    ),
    Published(
        "Tiny ImageNet",
        ("val/images", "wnids.txt|val/val_annotations.txt"),
        ("train", "val/val_annotations.txt"),
        ("train", "val/images"),
        _tiny_imagenet,
        "tiny-imagenet-200/train/WNID/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt",
    ),
    Published(
        "Caltech-101",
        ("101_ObjectCategories",),
        (),
        ("101_ObjectCategories",),
        _caltech101,
        "caltech101/101_ObjectCategories/CLASS/*.jpg",
    ),
    Published(
        "Caltech-256",
        ("256_ObjectCategories",),
        (),
        ("256_ObjectCategories",),
        partial(_class_folders, r"^256_ObjectCategories/(?P<label>[^/]+)/[^/]+$"),
        "caltech256/256_ObjectCategories/CLASS/*.jpg",
    ),
    Published(
        "SUN397",
        ("ClassName.txt", "a"),
        (),
        (),
        _sun397,
        "SUN397/ClassName.txt, a/abbey/*.jpg, Partitions/Training_01.txt, Testing_01.txt, ...",
        ("label_column", "split_column"),
    ),
    Published(
        "EuroSAT with lists of its splits",
        ("AnnualCrop", "train.csv|test.csv"),
        ("train.csv", "validation.csv", "test.csv"),
        (),
        _eurosat,
        "EuroSAT/CLASS/*.jpg, train.csv, validation.csv, test.csv",
    ),
    Published(
        "EuroSAT",
        ("2750/AnnualCrop|EuroSAT_RGB/AnnualCrop",),
        (),
        ("2750|EuroSAT_RGB",),
        partial(_class_folders, r"^[^/]+/(?P<label>[^/]+)/[^/]+$"),
        "eurosat/2750/CLASS/*.jpg",
    ),
    Published(
        "the Describable Textures Dataset (DTD)",
        ("images", "labels/labels_joint_anno.txt|labels/train10.txt"),
        ("labels/train1.txt", "labels/val1.txt", "labels/test1.txt"),
        ("images",),
        _dtd,
        "dtd/images/CLASS/*.jpg, labels/train1.txt, val1.txt, test1.txt, ...",
        ("label_column", "split_column"),
    ),
    Published(
        "GTSRB",
        ("Training/00000|Final_Training/Images/00000", "Final_Test|Final_Training"),
        (),
        ("Training|Final_Training/Images", "Final_Test/Images"),
        _gtsrb,
        "GTSRB/Training/00000/*.ppm, Final_Test/Images/*.ppm, GT-final_test.csv",
    ),
    Published(
        "GTSRB in Kaggle's layout",
        ("Train.csv", "Test.csv", "Train", "Meta.csv|Meta"),
        ("Test",),
        ("Train", "Test"),
        _gtsrb_of_kaggle,
        "GTSRB/Train/0/*.png, Test/*.png, Train.csv, Test.csv, Meta.csv",
    ),
    Published(
        "Stanford Cars",
        ("devkit/cars_meta.mat|devkit/cars_train_annos.mat",),
        ("devkit/cars_meta.mat", "devkit/cars_train_annos.mat", "cars_train"),
        ("cars_train", "cars_test"),
        _cars,
        "stanford_cars/cars_train/*.jpg, cars_test/*.jpg, devkit/cars_meta.mat,"
        " cars_train_annos.mat, cars_test_annos_withlabels.mat",
    ),
    Published(
        "Stanford Cars in one folder",
        ("cars_annos.mat",),
        ("car_ims",),
        ("car_ims",),
        _all_cars,
        "stanford_cars/car_ims/*.jpg, cars_annos.mat",
    ),
    Published(
        "Oxford Flowers 102",
        ("imagelabels.mat",),
        ("setid.mat", "jpg"),
        ("jpg",),
        _flowers,
        "flowers-102/jpg/*.jpg, imagelabels.mat, setid.mat",
    ),
    Published(
        "Oxford-IIIT Pets",
        ("images", "annotations/list.txt|annotations/trainval.txt"),
        ("annotations/trainval.txt", "annotations/test.txt"),
        ("images",),
        _pets,
        "oxford-iiit-pet/images/*.jpg, annotations/trainval.txt, test.txt, list.txt",
    ),
    Published(
        "FGVC-Aircraft",
        ("images_variant_train.txt",),
        ("images_variant_val.txt", "images_variant_test.txt", "variants.txt", "images"),
        ("images",),
        _aircraft,
        "fgvc-aircraft-2013b/data/images/*.jpg, images_variant_train.txt, variants.txt, ...",
    ),
    Published(
        "CelebA",
        (_ATTRIBUTES,),
        (_PARTITION, _CELEBA),
        (_CELEBA,),
        _celeba,
        "celeba/img_align_celeba/*.jpg, list_attr_celeba.txt, list_eval_partition.txt,"
        " identity_CelebA.txt",
    ),
    Published(
        "Places365",
        ("categories_places365.txt",),
        ("places365_train_standard.txt|places365_train_challenge.txt|places365_val.txt",),
        (_PLACES_TRAIN, _PLACES_VAL),
        _places365,
        "places365/data_256_standard/a/airfield/*.jpg, val_256/*.jpg, places365_val.txt,"
        " places365_train_standard.txt, categories_places365.txt",
    ),
)


def _kinds() -> Iterator[Kind]:
    for dataset in _DATASETS:
        yield Kind(
            f"a folder of {dataset.name}",
            partial(_find, dataset),
            partial(_read, dataset),
            dataset.takes,
            dataset.example,
        )


KINDS = (*_kinds(),)
