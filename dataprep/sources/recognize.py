"""Read what ``--src`` names: recognize what it is, and read it with the module for that kind of source."""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dataprep import storage
from dataprep.containers import forget_readers
from dataprep.options import SourceOptions
from dataprep.sources.archives import is_archive, read_archive, read_unlabelled_archive
from dataprep.sources.base import NamedSource, Source
from dataprep.sources.coco import is_coco, read_coco, read_coco_file
from dataprep.sources.databases import (
    SUFFIX,
    find_databases,
    find_recordio,
    read_lmdb,
    read_recordio,
)
from dataprep.sources.folders import (
    read_image_folders,
    read_unlabelled,
    refuse_other_layouts,
)
from dataprep.sources.imagenet import VAL as IMAGENET_VAL
from dataprep.sources.imagenet import (
    find_imagenet_tars,
    find_kaggle_imagenet,
    read_imagenet_tars,
    read_kaggle_imagenet,
    read_val,
)
from dataprep.sources.merge import (
    class_notices,
    read_renames,
    relabel,
    rename_classes,
    used_names,
)
from dataprep.sources.parquet import find_parquet_files, image_columns, read_hugging_face
from dataprep.sources.patterns import (
    add_columns,
    find_msmt17,
    find_reid_layout,
    has_class_folders,
    has_label,
    parse_pattern,
    read_by_pattern,
    read_msmt17,
    read_reid_folders,
)
from dataprep.sources.prepared import is_prepared, read_prepared
from dataprep.sources.scan import has_folders, list_folders, suffix_of
from dataprep.sources.segmentation import read_segmentation
from dataprep.sources.tables import TABLE_SUFFIXES, read_lists, read_table, with_label_type
from dataprep.sources.voc import read_voc
from manifests.errors import CallError, SourceError, raise_machine_fault
from manifests.files import IMAGE_SUFFIXES, SOURCE_LIST, open_file
from manifests.process.text import printable
from manifests.remote.url import is_read_only, parent_folder

_log = logging.getLogger(__name__)

LIST_NAMES = ("train_list.txt", "val_list.txt", "test_list.txt")


def read_source(src: str, options: SourceOptions | None = None) -> Source:
    """Recognize the layout of `src` and list its samples. No image is opened.

    Args:
        src: a folder, a list file, or a table (CSV, TSV, JSON Lines, Parquet).
        options: how to read a source that does not follow the defaults.

    Raises:
        CallError: `src` does not exist, or an option does not apply to it.
        SourceError: the layout is not known, or a line, a label or an image is not valid.

    """
    options = options or SourceOptions()
    started = time.monotonic()
    forget_readers()
    try:
        with storage.remember(src):
            is_folder = stat.S_ISDIR(storage.stat(src).st_mode)
            if is_folder and options.pattern is not None:
                kinds: Sequence[Kind] = (_FILE_NAMES,)
            else:
                kinds = FOLDERS if is_folder else FILES
            source = with_label_type(_read_first(kinds, src, options), options)
    except FileNotFoundError as error:
        raise missing_source(src, str(error.filename or src)) from None
    except OSError as error:
        raise_machine_fault(error)
        raise SourceError(
            f"the path cannot be read ({error.strerror})",
            file=str(error.filename or src),
            hint="check its permissions",
        ) from None
    if not len(source):
        raise SourceError(
            "the source contains no images",
            file=src,
            hint="check --src, or --image-root for a list",
        )
    _log.info(
        "%s: %d images, %d bytes, in %d splits, found in %.1f s",
        src,
        len(source),
        source.bytes,
        len(source.splits),
        time.monotonic() - started,
    )
    notices = [*source.notices]
    has_separator = options.label_separator is not None
    if has_separator and not source.labels.is_separable:
        notices.append(
            f"--label-separator has no effect: the labels of {printable(src)} are of the type"
            f" {source.label_type}"
        )
    return replace(source, notices=(*notices, *class_notices(source)))


def read_sources(srcs: Sequence[str], options: SourceOptions) -> list[NamedSource]:
    """Read one or more sources, and rename classes.

    Args:
        srcs: what `read_source` reads.
        options: how to read each of them. If they rename classes, `options.classes` are the new
            names.

    Raises:
        CallError, SourceError: as `read_source`, `read_renames` and `rename_classes`.

    """
    renames = options.rename_classes
    if renames is None:
        return list(map(NamedSource, srcs, _read_each(srcs, options)))
    table = read_renames(renames)
    sources = _read_each(srcs, replace(options, classes=None))
    named = []
    for src, source in zip(srcs, rename_classes(sources, table, renames), strict=True):
        if options.classes is not None:
            _check_classes(src, source, options.classes)
            source = relabel(source, options.classes)  # noqa: PLW2901
        named.append(NamedSource(src, source))
    return named


def _read_each(srcs: Sequence[str], options: SourceOptions) -> list[Source]:
    """Read sources. If there are several, an error names the one that it is about."""
    sources = []
    for src in srcs:
        try:
            sources.append(read_source(src, options))
        except (CallError, SourceError) as error:
            if len(srcs) > 1 and src not in str(error):
                error.file = error.file or src
            raise
    return sources


def _check_classes(src: str, source: Source, classes: tuple[str, ...]) -> None:
    for name in used_names(source):
        if name not in classes:
            raise SourceError(
                f"class {printable(name)} is not in --classes",
                file=src,
                hint="add it to the class names, or rename it",
            )


# --- kinds ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    Attributes:
        is_instead: what the source is, to refuse options: ``"contains archives"``.
        find: looks at a path; returns what `read` needs, false if the source is of another kind.
        read: lists the samples of a path, with what `find` returned.
        needs: what the options that do not apply need instead, by their names.

    """

    is_instead: str
    find: Callable[[str, SourceOptions], Any]
    read: Callable[[str, Any, SourceOptions], Source]
    needs: Mapping[str, str]


def _read_first(kinds: Sequence[Kind], src: str, options: SourceOptions) -> Source:
    """Read a source as the first kind that it is of; the last kind takes everything.

    Raises:
        CallError: an option does not apply.
        SourceError: the layout is not known, or a label or an image is not valid.

    """
    for kind in kinds[:-1]:
        found = kind.find(src, options)
        if found:
            return _read_as(kind, src, found, options)
    return _read_as(kinds[-1], src, kinds[-1].find(src, options), options)


def _read_as(kind: Kind, src: str, found: Any, options: SourceOptions) -> Source:
    for name, needed in kind.needs.items():
        if getattr(options, name) is not None:
            raise CallError(
                f"--{name.replace('_', '-')} needs {needed}, but {src} {kind.is_instead}",
                hint="remove the option",
            )
    return kind.read(src, found, options)


_COLUMN_OPTIONS = dict.fromkeys(("path_column", "label_column", "split_column"), "a table")
_OF_TABLES = {"image_root": "a table", **_COLUMN_OPTIONS}
_PATHS = dict.fromkeys(("image_root", "path_column", "split_column"), "a list or a table")


# --- folders --------------------------------------------------------------------------------------


def _find_lists(src: str, _: SourceOptions) -> list[str]:
    paths = (os.path.join(src, name) for name in LIST_NAMES)
    return [*filter(storage.is_file, paths)]


def _read_kaggle(_: str, folder: str, options: SourceOptions) -> Source:
    """Read Kaggle's ImageNet with its flat ``val/``; if that has class folders, it is an ImageFolder."""
    if not has_folders(f"{folder}/val"):
        return read_kaggle_imagenet(folder, options)
    return _read_first((_LISTS, _IMAGE_FOLDERS), folder, options)


#: Folders with annotations, in the order in which they are tried.
_ANNOTATED = (read_coco, read_voc, read_segmentation)


def _read_image_folders(src: str, _: Any, options: SourceOptions) -> Source:
    folders = list_folders(src)
    if options.unlabelled:
        return read_unlabelled(src, folders)
    if (train_and_test := find_msmt17(src, folders)) is not None:
        return read_msmt17(src, train_and_test, options)
    if (layout := find_reid_layout(src, folders)) is not None:
        return read_reid_folders(src, folders, layout, options)
    if options.label_type != "class":
        for read in _ANNOTATED:
            if (annotated := read(src, folders, options)) is not None:
                return annotated
    if options.label_type not in (None, "class"):
        # The folder may have boxes, masks or depth maps, but not the labels that are asked for.
        for read in _ANNOTATED:
            found = read(src, folders, replace(options, label_type=None, classes=None))
            if found is not None:
                raise CallError(
                    f"--label-type {options.label_type}: {src} has labels of the type"
                    f" {found.label_type} ({found.layout})",
                    hint=f"leave out --label-type, or set --label-type {found.label_type}",
                )
    refuse_other_layouts(src, folders)
    return read_image_folders(src, folders, options)


def _read_file_names(src: str, text: str, options: SourceOptions) -> Source:
    """Read a folder with ``--pattern``: labels from the file names, or only extra columns of class folders."""
    folders, pattern = list_folders(src), parse_pattern(text)
    if options.unlabelled:
        return add_columns(read_unlabelled(src, folders), pattern)
    if options.label_column or has_label(pattern) or not has_class_folders(src, folders):
        return read_by_pattern(src, folders, text, options)
    refuse_other_layouts(src, folders)
    return add_columns(read_image_folders(src, folders, options), pattern)


_FILE_NAMES = Kind("is a folder", lambda _, options: options.pattern, _read_file_names, _PATHS)
_LISTS = Kind(
    "contains list files",
    _find_lists,
    lambda src, found, options: read_lists(found, options.image_root or src, options),
    _COLUMN_OPTIONS,
)
_IMAGE_FOLDERS = Kind(
    "is a folder",
    lambda src, _: src,
    _read_image_folders,
    {**_PATHS, "label_column": "a table or --pattern"},
)

#: The kinds of folders in the order in which they are tried.
FOLDERS = (
    Kind(
        "is a prepared dataset",
        lambda src, _: is_prepared(src),
        lambda src, _, options: read_prepared(src, options),
        _OF_TABLES,
    ),
    Kind(
        "contains archives",
        lambda src, _: find_imagenet_tars(src),
        lambda src, _, options: read_imagenet_tars(src, options),
        _OF_TABLES,
    ),
    Kind("is a folder", lambda src, _: find_kaggle_imagenet(src), _read_kaggle, {}),
    _LISTS,
    Kind(
        "is a folder",
        lambda src, _: find_parquet_files(src, list_folders(src)),
        read_hugging_face,
        dict.fromkeys(("image_root", "split_column"), "a list or a table"),
    ),
    Kind(
        "contains LMDB databases",
        lambda src, _: find_databases(src, list_folders(src)),
        read_lmdb,
        _OF_TABLES,
    ),
    Kind(
        "contains RecordIO files",
        lambda src, _: not list_folders(src) and find_recordio(src),
        read_recordio,
        _OF_TABLES,
    ),
    _IMAGE_FOLDERS,
)


# --- files ----------------------------------------------------------------------------------------


def _find_images_in_parquet(src: str, options: SourceOptions) -> bool:
    """Return whether a file is a Parquet file with images, and not one with paths of images."""
    images = image_columns(src) if suffix_of(src) == ".parquet" else ()
    return bool(images) and (options.path_column is None or options.path_column in images)


def _read_archive(src: str, _: Any, options: SourceOptions) -> Source:
    if os.path.basename(src) == IMAGENET_VAL:
        return read_val(src, options.classes)
    if options.unlabelled:
        return read_unlabelled_archive(src)
    return read_archive(src, options)


def _find_list(src: str, _: SourceOptions) -> bool:
    refuse_other_files(src)
    return True


def _read_list(src: str, _: Any, options: SourceOptions) -> Source:
    return read_lists([src], options.image_root or parent_folder(src) or ".", options)


def _in_folder(
    read: Callable[[str, list[str], SourceOptions], Source],
) -> Callable[[str, Any, SourceOptions], Source]:
    """Return a reader of one file, by a reader of files in a folder."""
    return lambda src, _, options: read(parent_folder(src) or ".", [os.path.basename(src)], options)


#: A pattern applies to no file; it is refused first.
_PATTERN = {"pattern": "a folder"}

#: The kinds of files in the order in which they are tried.
FILES = (
    Kind("is a file", lambda _, options: options.pattern, _read_list, _PATTERN),
    Kind(
        "contains the images",
        _find_images_in_parquet,
        _in_folder(read_hugging_face),
        dict.fromkeys(("image_root", "split_column"), "a table of paths"),
    ),
    Kind(
        "is a table",
        lambda src, _: src.lower().endswith(TABLE_SUFFIXES),
        lambda src, _, options: read_table(src, options),
        {},
    ),
    Kind("is none", lambda src, _: suffix_of(src) == SUFFIX, _in_folder(read_recordio), _OF_TABLES),
    Kind(
        "has annotations",
        lambda src, _: suffix_of(src) == ".json" and is_coco(src),
        lambda src, _, options: read_coco_file(src, options),
        _COLUMN_OPTIONS,
    ),
    Kind("is an archive", lambda src, _: is_archive(src), _read_archive, _OF_TABLES),
    Kind("is a list file", _find_list, _read_list, _COLUMN_OPTIONS),
)


# --- files and paths that are not a source --------------------------------------------------------


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")

#: The kind of a file by its suffixes, and what to do with it.
_ARCHIVE = ("an archive", "unpack it and give the folder, or name a tar .tar and a zip .zip")
_SHARD = (
    "a shard",
    (
        "give the folder of the prepared dataset; for shards of other tools, run `dataprep index`"
        " on it first"
    ),
)
_COMPRESSED = (
    "an archive that is compressed as a whole, so it cannot be read in place",
    (
        "decompress it (`gunzip`, `xz -d`, `zstd -d`) and give the .tar, or unpack it and give the"
        " folder"
    ),
)
_TABLE = ("not one of the tables that can be read", "save it as CSV, JSON Lines or Parquet")
_SPREADSHEET = (
    "a spreadsheet",
    (
        "save it as `CSV UTF-8` in the spreadsheet program, or with pandas:"
        " `pandas.read_excel(file).to_csv(...)`"
    ),
)
_IMAGE = ("an image", "give the folder that contains the class folders, or a list of images")
_BY_SUFFIX = {
    **dict.fromkeys((".7z", ".rar"), _ARCHIVE),
    **dict.fromkeys((".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst"), _COMPRESSED),
    **dict.fromkeys((".tfrecord", ".tfrecords"), _SHARD),
    **dict.fromkeys((".json", ".feather", ".arrow", ".orc"), _TABLE),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"), _SPREADSHEET),
    **dict.fromkeys(
        (".npz", ".npy", ".h5", ".hdf5", ".mat", ".pkl", ".pt", ".mdb", ".lmdb", ".db", ".sqlite"),
        _TABLE,
    ),
    **dict.fromkeys(IMAGE_SUFFIXES, _IMAGE),
}

#: First bytes of files that are recognized by any name.
_BY_CONTENT = {
    b"PK\x03\x04": _ARCHIVE,
    b"\x1f\x8b": _COMPRESSED,
    b"7z\xbc\xaf\x27\x1c": _ARCHIVE,
    b"\xff\xd8\xff": _IMAGE,
    b"\x89PNG\r\n\x1a\n": _IMAGE,
}


def missing_source(src: str, path: str) -> CallError:
    """Return the error for a `src` that does not exist.

    `path` is the part of it that is missing.
    """
    if _URL.match(src):
        return CallError(
            f"--src {printable(src)} looks like a URL", hint="write it like s3://bucket/folder"
        )
    if _WINDOWS.match(src):
        hint = "write it as this system does; WSL has C:\\photos at /mnt/c/photos"
        return CallError(
            f"--src {printable(src)} is a path of Windows, which does not exist here", hint=hint
        )
    hint = "check the path"
    if is_read_only(src):
        hint = "give a list or a table: a web server has no folders that could be listed"
    if path == src:
        return CallError(f"--src {printable(src)} does not exist", hint=hint)
    return CallError(f"--src {printable(src)}: {printable(path)} does not exist", hint=hint)


def refuse_other_files(src: str) -> None:
    """Check that a file is not of a known other kind, before it is read as a list of images.

    Raises:
        CallError: it is an archive, a shard, an image, or a table that cannot be read.

    """
    found = _BY_SUFFIX.get(os.path.splitext(src)[1].lower())
    if found is None:
        with open_file(src, SOURCE_LIST) as file:
            start = file.read(512)
        by_content = (kind for magic, kind in _BY_CONTENT.items() if start.startswith(magic))
        found = next(by_content, _ARCHIVE if start[257:262] == b"ustar" else None)
    if found is not None:
        raise CallError(f"--src {printable(src)} is {found[0]}", hint=found[1])
