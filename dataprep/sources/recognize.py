"""Read what ``--src`` names: recognize what it is, and read it with the module for that kind of source."""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dataprep import storage
from dataprep.containers import forget_readers
from dataprep.sources.archives import is_archive, read_archive, read_unlabelled_archive
from dataprep.sources.base import NamedSource, Source, SourceOptions
from dataprep.sources.coco import read_coco, read_coco_file
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
    used_classes,
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
from dataprep.sources.scan import IMAGE_SUFFIXES, has_folders, list_folders
from dataprep.sources.segmentation import read_segmentation
from dataprep.sources.tables import TABLE_SUFFIXES, read_lists, read_table, with_label_type
from dataprep.sources.voc import read_voc
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_LIST, open_file
from manifests.process.text import printable
from manifests.process.unexpected_errors import raise_machine_fault
from manifests.remote import is_url, parent_folder, parse_url

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
            mode = storage.stat(src).st_mode
            source = _read_folder(src, options) if stat.S_ISDIR(mode) else _read_file(src, options)
            source = with_label_type(source, options)
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
    return replace(
        source,
        notices=(*source.notices, *_unused_notices(src, source, options), *class_notices(source)),
    )


def _unused_notices(src: str, source: Source, options: SourceOptions) -> Iterator[str]:
    if options.label_separator is not None and source.label_type not in (
        "multi-label",
        "regression",
    ):
        yield (
            f"--label-separator has no effect: the labels of {printable(src)} are of the type"
            f" {source.label_type}"
        )


def read_sources(
    srcs: Sequence[str], options: SourceOptions, renames: str | None = None
) -> list[NamedSource]:
    """Read one or more sources, and rename classes.

    Args:
        srcs: what `read_source` reads.
        options: how to read each of them.
        renames: file of class names to rename; see `read_renames`. Then `options.classes` are the
            new names.

    Raises:
        CallError, SourceError: as `read_source`, `read_renames` and `rename_classes`.

    """
    if renames is None:
        return [NamedSource(src, read_source(src, options)) for src in srcs]
    table = read_renames(renames)
    sources = [read_source(src, replace(options, classes=None)) for src in srcs]
    renamed = [
        NamedSource(*each)
        for each in zip(srcs, rename_classes(sources, table, renames), strict=True)
    ]
    return (
        renamed
        if options.classes is None
        else [_numbered(each, options.classes) for each in renamed]
    )


def _numbered(named: NamedSource, classes: tuple[str, ...]) -> NamedSource:
    for label in used_classes(named.source).tolist():
        if named.source.classes[label] not in classes:
            message = f"class {printable(named.source.classes[label])} is not in --classes"
            raise SourceError(
                message, file=named.src, hint="add it to the class names, or rename it"
            )
    return NamedSource(named.src, relabel(named.source, classes))


def _read_folder(src: str, options: SourceOptions) -> Source:
    """Recognize the layout of a folder, and list its samples.

    Raises:
        CallError: an option does not apply.
        SourceError: the layout is not known, or a label or an image is not valid.

    """
    if options.pattern is not None:
        _refuse(
            options,
            ("image_root", "path_column", "split_column"),
            f"a list or a table, but {src} is a folder",
        )
        return _read_file_names(src, options.pattern, options)
    if (source := _read_containers(src, options)) is not None:
        return source
    kaggle = find_kaggle_imagenet(src)
    if kaggle is not None and not has_folders(f"{kaggle}/val"):
        return read_kaggle_imagenet(kaggle, options)
    src = kaggle or src
    lists = [name for name in LIST_NAMES if storage.is_file(os.path.join(src, name))]
    if lists:
        _refuse(
            options,
            ("path_column", "label_column", "split_column"),
            f"a table, but {src} contains list files",
        )
        return read_lists(
            [os.path.join(src, name) for name in lists], options.image_root or src, options
        )
    folders = list_folders(src)
    _refuse(
        options,
        ("image_root", "path_column", "split_column"),
        f"a list or a table, but {src} is a folder",
    )
    _refuse(options, ("label_column",), f"a table or --pattern, but {src} is a folder")
    if options.label_type == "none":
        return read_unlabelled(src, folders)
    return _read_image_folders(src, folders, options)


def _read_containers(src: str, options: SourceOptions) -> Source | None:
    """Read a folder whose images are in larger files; `None` if it is not known to be one."""
    columns = ("path_column", "label_column", "split_column")
    if is_prepared(src):
        _refuse(options, ("image_root", *columns), f"a table, but {src} is a prepared dataset")
        return read_prepared(src, options)
    if find_imagenet_tars(src):
        _refuse(options, ("image_root", *columns), f"a table, but {src} contains archives")
        return read_imagenet_tars(src, options)
    if any(storage.is_file(os.path.join(src, name)) for name in LIST_NAMES) or find_kaggle_imagenet(
        src
    ):
        return None
    folders = list_folders(src)
    if files := find_parquet_files(src, folders):
        _refuse(
            options, ("image_root", "split_column"), f"a list or a table, but {src} is a folder"
        )
        return read_hugging_face(src, files, options)
    return _read_databases(src, folders, options)


def _read_databases(src: str, folders: Sequence[str], options: SourceOptions) -> Source | None:
    columns = ("image_root", "path_column", "label_column", "split_column")
    if databases := find_databases(src, folders):
        _refuse(options, columns, f"a table, but {src} contains LMDB databases")
        return read_lmdb(src, databases, options)
    if not folders and (files := find_recordio(src)):
        _refuse(options, columns, f"a table, but {src} contains RecordIO files")
        return read_recordio(src, files, options)
    return None


def _read_image_folders(src: str, folders: Sequence[str], options: SourceOptions) -> Source:
    if (train_and_test := find_msmt17(src, folders)) is not None:
        return read_msmt17(src, train_and_test, options)
    if (layout := find_reid_layout(src, folders)) is not None:
        return read_reid_folders(src, folders, layout, options)
    annotated_readers = (
        () if options.label_type == "class" else (read_coco, read_voc, read_segmentation)
    )
    for read in annotated_readers:
        if (annotated := read(src, folders, options)) is not None:
            return annotated
    if options.label_type not in (None, "class"):
        _refuse_other_labels(src, folders, options)
    refuse_other_layouts(src, folders)
    return read_image_folders(src, folders, options)


def _refuse_other_labels(src: str, folders: Sequence[str], options: SourceOptions) -> None:
    """Refuse a folder that has boxes, masks or depth maps, but not the labels that ``--label-type`` names."""
    for read in (read_coco, read_voc, read_segmentation):
        if (
            found := read(src, folders, replace(options, label_type=None, classes=None))
        ) is not None:
            raise CallError(
                f"--label-type {options.label_type}: {src} has labels of the type"
                f" {found.label_type} ({found.layout})",
                hint=f"leave out --label-type, or set --label-type {found.label_type}",
            )


def _read_file_names(src: str, text: str, options: SourceOptions) -> Source:
    """Read a folder with ``--pattern``: labels from the file names, or only extra columns of class folders."""
    folders, pattern = list_folders(src), parse_pattern(text)
    if options.label_type == "none":
        return add_columns(read_unlabelled(src, folders), pattern)
    if options.label_column or has_label(pattern) or not has_class_folders(src, folders):
        return read_by_pattern(src, folders, text, options)
    refuse_other_layouts(src, folders)
    return add_columns(read_image_folders(src, folders, options), pattern)


def _read_file(src: str, options: SourceOptions) -> Source:
    """Recognize the kind of a file, and list its samples.

    Raises:
        CallError: an option does not apply, or the file is not a source.
        SourceError: a line, a label or an image is not valid.

    """
    _refuse(options, ("pattern",), f"a folder, but {src} is a file")
    if src.lower().endswith(TABLE_SUFFIXES):
        return _read_table(src, options)
    if src.lower().endswith(SUFFIX):
        _refuse(
            options,
            ("image_root", "path_column", "label_column", "split_column"),
            f"a table, but {src} is none",
        )
        return read_recordio(parent_folder(src) or ".", [os.path.basename(src)], options)
    if src.lower().endswith(".json") and (source := read_coco_file(src, options)) is not None:
        _refuse(
            options,
            ("path_column", "label_column", "split_column"),
            f"a table, but {src} has annotations",
        )
        return source
    if is_archive(src):
        _refuse(
            options,
            ("image_root", "path_column", "label_column", "split_column"),
            f"a table, but {src} is an archive",
        )
        if os.path.basename(src) == IMAGENET_VAL:
            return read_val(src, options.classes)
        return (
            read_unlabelled_archive(src)
            if options.label_type == "none"
            else read_archive(src, options)
        )
    refuse_other_files(src)
    _refuse(
        options,
        ("path_column", "label_column", "split_column"),
        f"a table, but {src} is a list file",
    )
    return read_lists([src], options.image_root or parent_folder(src) or ".", options)


def _read_table(src: str, options: SourceOptions) -> Source:
    if src.lower().endswith(".parquet"):
        images = image_columns(src)
        if images and (options.path_column is None or options.path_column in images):
            _refuse(
                options,
                ("image_root", "split_column"),
                f"a table of paths, but {src} contains the images",
            )
            return read_hugging_face(parent_folder(src) or ".", [os.path.basename(src)], options)
    return read_table(src, options)


def _refuse(options: SourceOptions, names: Sequence[str], requirement: str) -> None:
    """Raise an error if one of these options is set. `requirement` is what the options need."""
    for name in names:
        if getattr(options, name) is not None:
            raise CallError(
                f"--{name.replace('_', '-')} needs {requirement}", hint="remove the option"
            )


# --- files and paths that are not a source --------------------------------------------------------


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/{1,2}")
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
    if _URL.match(src) and not is_url(src):
        return CallError(
            f"--src {printable(src)} looks like a URL", hint="write it like s3://bucket/folder"
        )
    if _WINDOWS.match(src):
        hint = "write it as this system does; WSL has C:\\photos at /mnt/c/photos"
        return CallError(
            f"--src {printable(src)} is a path of Windows, which does not exist here", hint=hint
        )
    hint = "check the path"
    if is_url(src) and parse_url(src).is_read_only:
        hint = "give a list or a table: a web server has no folders that could be listed"
    if path == src:
        return CallError(f"--src {printable(src)} does not exist", hint=hint)
    return CallError(f"--src {printable(src)}: {printable(path)} does not exist", hint=hint)


def refuse_other_files(src: str) -> None:
    """Check that a file is not of a known other kind, before it is read as a list of images.

    Raises:
        CallError: it is an archive, a shard, an image, or a table that cannot be read.

    """
    suffix = os.path.splitext(src)[1].lower()
    kind = _BY_SUFFIX.get(suffix)
    if kind is None:
        with open_file(src, SOURCE_LIST) as file:
            start = file.read(512)
        by_content = (kind for magic, kind in _BY_CONTENT.items() if start.startswith(magic))
        kind = next(by_content, _ARCHIVE if start[257:262] == b"ustar" else None)
    if kind is not None:
        raise CallError(f"--src {printable(src)} is {kind[0]}", hint=kind[1])
