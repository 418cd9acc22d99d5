"""Read what ``--src`` names: recognize what it is, and read it with the module for that kind of source."""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain, dropwhile
from typing import Any

from dataprep import storage
from dataprep.containers import forget_readers
from dataprep.options import SourceOptions
from dataprep.progress import Progress
from dataprep.sources import (
    box_tables,
    coco,
    databases,
    exports,
    imagenet,
    parquet,
    patterns,
    prepared,
    published,
    refused,
    segmentation,
    voc,
    yolo,
)
from dataprep.sources.archives import is_tar, is_zip, opened_archive, refuse_shard
from dataprep.sources.arrays import with_arrays
from dataprep.sources.base import Kind, NamedSource, Names, Source, first_names, no_images
from dataprep.sources.folders import (
    CLASS_FOLDERS,
    MAX_ENTERED,
    read_image_folders,
    read_unlabelled,
    refuse_one_class,
    table_notices,
)
from dataprep.sources.merge import class_notices, clip_notices, read_renames, rename_classes
from dataprep.sources.scan import list_folders, look_into, seeking, split_of, suffix_of
from dataprep.sources.several import image_names
from dataprep.sources.tables import is_json_table, is_table, read_lists, read_table, with_label_type
from dataprep.sources.videos import refuse_unfitting, with_frames
from manifests.errors import CallError, SourceError, raise_machine_fault
from manifests.files import (
    IMAGE_SUFFIXES,
    SOURCE_LIST,
    SOURCE_TABLE,
    VIDEO_SUFFIXES,
    FileKind,
    mounted_at,
    open_file,
)
from manifests.remote.url import is_read_only, is_url, parent_folder

_log = logging.getLogger(__name__)

#: A file or folder in an archive of an object store: ``s3://bucket/photos.zip/labels.csv``.
_IN_ARCHIVE = re.compile(r"(?P<archive>.+?\.(zip|tar))/.", re.IGNORECASE)

LIST_NAMES = ("train_list.txt", "val_list.txt", "test_list.txt")


def read_source(
    src: str, options: SourceOptions | None = None, progress: Progress | None = None
) -> Source:
    """Recognize the layout of `src` and list its samples. No image is opened.

    Args:
        src: a folder, a list file, or a table (CSV, TSV, JSON Lines, Parquet).
        options: how to read a source that does not follow the defaults.
        progress: receives the videos whose frames are counted.

    Raises:
        CallError: `src` does not exist, or an option does not apply to it.
        SourceError: the layout is not known, or a line, a label or an image is not valid.

    """
    options = options or SourceOptions()
    started = time.monotonic()
    forget_readers()
    try:
        archive = _archive_of(src) or _archive_of(f"{options.image_root or ''}/.")
        with storage.remember(src), seeking(VIDEO_SUFFIXES if options.frames else IMAGE_SUFFIXES):
            source = _read_archive(src, archive, options) if archive else _read(src, options)
            source = with_arrays(with_label_type(source, options), options)
        source = with_frames(source, options, progress)
    except SourceError:
        refuse_unfitting(src, options)
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing_source(src, str(error.filename or src)) from None
    except OSError as error:
        raise_machine_fault(error)
        raise SourceError(
            f"the path cannot be read ({error.strerror})",
            file=str(error.filename or src),
            hint="check its permissions",
        ) from None
    if not len(source):
        refuse_unfitting(src, options)
        raise no_images(src, source.rejected)
    _log.info(
        "%s: %d images, %d bytes, in %d splits, found in %.1f s",
        src,
        len(source),
        source.bytes,
        len(source.splits),
        time.monotonic() - started,
    )
    if options.label_separator is not None and not source.labels.is_separable:
        source = source.with_notices(
            f"--label-separator has no effect: the labels of {src} are of the type"
            f" {source.label_type}"
        )
    return source.with_notices(*class_notices(source), *clip_notices(source))


def _archive_of(path: str) -> str:
    """Return the archive that a path leads into; empty if it leads into none."""
    if is_url(path):
        match = _IN_ARCHIVE.match(path)
        return match["archive"] if match and storage.is_file(match["archive"]) else ""
    above = os.path.dirname(path)
    while above and not os.path.lexists(above):
        above = os.path.dirname(above)
    return above if os.path.isfile(above) and (is_zip(above) or is_tar(above)) else ""


def read_sources(
    srcs: Names, options: SourceOptions, progress: Progress | None = None
) -> list[NamedSource]:
    """Read one or more sources, and rename classes.

    Args:
        srcs: what `read_source` reads.
        options: how to read each of them. If they rename classes, `options.classes` are the new
            names.
        progress: receives the videos whose frames are counted.

    Raises:
        CallError, SourceError: as `read_source`, `read_renames` and `rename_classes`.

    """
    if options.rename_classes is None:
        return _read_each(srcs, options, progress)
    # The option --classes lists the new names, so it does not apply to what is read.
    renames = read_renames(options.rename_classes)
    parts = _read_each(srcs, replace(options, classes=None), progress)
    return rename_classes(parts, renames, options)


def _read_each(srcs: Names, options: SourceOptions, progress: Progress | None) -> list[NamedSource]:
    """Read sources. If there are several, an error names the one that it is about."""
    parts = []
    for src in srcs:
        try:
            parts.append(NamedSource(src, read_source(src, options, progress)))
        except (CallError, SourceError) as error:
            if len(srcs) > 1 and src not in str(error):
                error.file = error.file or src
            raise
    return parts


# --- kinds ----------------------------------------------------------------------------------------

#: Options that only some kinds take.
_OPTIONS = (
    "image_root",
    "path_column",
    "label_column",
    "split_column",
    "pattern",
    "image_columns",
    "missing_images",
    "class_folders",
    "zip_encoding",
)

#: Options about several images in a sample.
_SEVERAL = ("image_columns", "missing_images")

#: A folder in a folder, and an archive, take the options of what they contain.
_CONTAINER_OPTIONS = _OPTIONS[:-1]


def _read(src: str, options: SourceOptions) -> Source:
    """Read a source as the first kind that it is of; the last kinds take everything.

    Raises:
        CallError: an option does not apply.
        SourceError: the layout is not known, or a label or an image is not valid.

    """
    is_folder = stat.S_ISDIR(storage.stat(src).st_mode)
    folders = list_folders(src) if is_folder else ()
    # The last kind of each table takes everything.
    for kind in FOLDERS if is_folder else FILES:
        if found := kind.detect(src, folders, options):
            break
    # An option that the kind does not take would have no effect.
    for name in _OPTIONS:
        if getattr(options, name) is not None and name not in kind.takes:
            others = []
            for other in (*FILES, *FOLDERS):
                if name in other.takes and not {*_CONTAINER_OPTIONS} <= {*other.takes}:
                    others.append(other.name)
            others = others or ["a zip archive"]
            raise CallError(
                f"--{name.replace('_', '-')} does not apply to {src}, which is {kind.name}",
                hint=f"remove the option; it applies to {first_names(others, 5)}",
            )
    if mounted_at(src) and not kind.in_archives:
        raise SourceError(
            f"it contains {kind.name}, which is not read inside of an archive",
            file=src,
            hint="unpack the archive and give the folder",
        )
    source = kind.read(src, found, options)
    if options.missing_images and not source.image_names:
        raise CallError(
            f"--missing-images is for samples with several images, but {src} has one in each",
            hint="set --image-columns, or name a part of --pattern {image}; or leave it out",
        )
    return source.with_notices(*_notices_beside(source, kind, src, folders, options))


def _notices_beside(
    source: Source, kind: Kind, src: str, folders: Names, options: SourceOptions
) -> list[str]:
    """Report annotations beside the ones that were read, and beside class folders."""
    if kind is FOLDERS[-1]:
        return refused.stray_notices(src, folders) + coco.other_notices(src, folders)
    notices = []
    classes = coco.class_like(src, folders) if kind in coco.KINDS else []
    if len(classes) > 1:
        notices.append(
            f"read as {kind.name}; the folders {first_names(classes, 2)} may be classes, which are"
            f" read if {source.label_origin} is moved away"
        )
    formats = [*dropwhile(lambda kinds: kind not in kinds, _FORMATS)][1:]
    for other in chain.from_iterable(formats):
        with suppress(CallError, SourceError):
            if other.detect(src, folders, options):
                notices.append(
                    f"read as {kind.name}; it is also {other.name}, which is read if the"
                    f" annotations of the first ({source.label_origin}) are moved away"
                )
    return notices


# --- folders --------------------------------------------------------------------------------------


def _find_lists(src: str, _: Names, __: SourceOptions) -> list[str]:
    paths = (os.path.join(src, name) for name in LIST_NAMES)
    return [*filter(storage.is_file, paths)]


#: The kinds of folders with images and files of labels, which may be in the only folder of an
#: archive, by the format of the labels.
_FORMATS = (exports.KINDS, coco.KINDS, voc.KINDS, yolo.KINDS)
_ANNOTATED = (*chain.from_iterable(_FORMATS),)


def _find_only_folder(src: str, folders: Names, options: SourceOptions) -> str:
    """Return the only folder in a folder without images, if it contains folders or other files than images."""
    if refused.has_named_layout(src):
        return ""  # which is refused later
    if len(folders) == 1 and not options.unlabelled and not look_into(src).has_images:
        inner = os.path.join(src, folders[0])
        inside = list_folders(inner)
        if any(kind.detect(inner, inside, options) for kind in _ANNOTATED):
            return folders[0]
    entered, name = src, folders[0] if len(folders) == 1 else ""
    for _level in range(MAX_ENTERED):
        if len(folders) != 1 or split_of(folders[0]) or look_into(entered).has_images:
            return name if entered != src else ""
        entered = os.path.join(entered, folders[0])
        content = look_into(entered)
        if content.has_images:
            return ""
        folders = content.folders
    return ""  # not a folder in a folder, but a tree


def _read_only_folder(src: str, folder: str, options: SourceOptions) -> Source:
    source = _read(os.path.join(src, folder), options)
    if source.layout.startswith(CLASS_FOLDERS):
        refuse_one_class(src, source, options)
        source = source.with_notices(*table_notices(src, [folder, *source.classes]))
    note = f"read {folder}/, the only folder"
    return replace(source, notices=(note, *source.notices))


_ONLY_FOLDER = Kind(
    "a folder with one folder in it",
    _find_only_folder,
    _read_only_folder,
    _CONTAINER_OPTIONS,
    example="download/photos/cat/1.jpg",
)


#: The kinds of folders in the order in which they are tried.
FOLDERS = (
    patterns.PATTERN_KIND,
    *prepared.KINDS,
    *imagenet.KINDS,
    Kind(
        "ImageNet in Kaggle's layout with list files",
        imagenet.find_sorted_kaggle,
        lambda _, folder, options: _read(folder, options),
        ("image_root",),
        example="kaggle/ILSVRC/Data/CLS-LOC/train_list.txt",
    ),
    Kind(
        "a folder of list files",
        _find_lists,
        lambda src, found, options: read_lists(found, options.image_root or src, options),
        ("image_root",),
        example="photos/train_list.txt",
    ),
    *parquet.KINDS,
    *databases.KINDS,
    # From here on, the images are files.
    *published.KINDS,
    _ONLY_FOLDER._replace(
        detect=lambda *call: call[2].unlabelled and _find_only_folder(*call),
    ),
    Kind(
        "a folder of images without labels",
        lambda _, __, options: options.unlabelled,
        read_unlabelled,
        example="photos/2024/1.jpg",
    ),
    *patterns.KINDS,
    *exports.KINDS,
    *coco.KINDS,
    *voc.KINDS,
    *yolo.KINDS,
    *segmentation.KINDS,
    *refused.KINDS,
    _ONLY_FOLDER,
    # Other kinds have labels beside images, too.
    Kind("a shard of a WebDataset", refuse_shard, read_image_folders),
    Kind(
        "a folder of class folders",
        lambda *_: True,
        read_image_folders,
        ("class_folders",),
        example="photos/cat/1.jpg",
    ),
)


# --- files ----------------------------------------------------------------------------------------


def _find_images_in_parquet(src: str, _: Names, options: SourceOptions) -> bool:
    """Return whether a file is a Parquet file with images, and not one with paths of images."""
    images = parquet.image_columns(src) if suffix_of(src) == ".parquet" else ()
    names = image_names(options) or (options.path_column,)
    return bool(images) and names[0] in (None, *images)


def _read_archive(src: str, archive_path: str, options: SourceOptions) -> Source:
    """Read an archive, or what is in it, as the folder that it would be unpacked to."""
    if options.frames:
        raise SourceError(
            "videos are not read inside of an archive",
            file=src,
            hint="unpack the archive and give the folder",
        )
    with opened_archive(archive_path, options) as archive:
        source = _read(src, replace(options, zip_encoding=None))
        if source.image_names:
            raise SourceError(
                "it contains several images of each sample, which are not read inside of an archive",
                file=src,
                hint="unpack the archive and give the folder",
            )
        return archive.locate(source)


def _in_folder(
    read: Callable[[str, list[str], SourceOptions], Source],
) -> Callable[[str, Any, SourceOptions], Source]:
    """Return a reader of one file, by a reader of files in a folder."""
    return lambda src, _, options: read(parent_folder(src) or ".", [os.path.basename(src)], options)


#: The kinds of files in the order in which they are tried.
FILES = (
    Kind(
        # Before tables: Parquet files contain either images or paths.
        "a Parquet file with images",
        _find_images_in_parquet,
        _in_folder(parquet.read_hugging_face),
        ("path_column", "label_column", *_SEVERAL),
        in_archives=False,
        example="train-00000-of-00001.parquet",
    ),
    refused.EXPORT,
    *box_tables.KINDS,
    Kind(
        "a table of paths",
        lambda src, *_: _is_table(src),
        read_table,
        ("image_root", "path_column", "label_column", "split_column", *_SEVERAL),
        example="table.csv",
    ),
    Kind(
        "a list of images in JSON",
        is_json_table,
        read_table,
        ("image_root", "path_column", "label_column", "split_column", *_SEVERAL),
        example="labels.json",
    ),
    Kind(
        "a RecordIO file",
        lambda src, _, __: suffix_of(src) == databases.SUFFIX,
        _in_folder(databases.read_recordio),
        in_archives=False,
        example="train.rec",
    ),
    Kind(
        "an annotation file of COCO",
        lambda src, _, __: suffix_of(src) == ".json" and coco.is_coco(src),
        coco.read_coco_file,
        ("image_root",),
        example="instances_train2017.json",
    ),
    Kind(
        "ImageNet's archive of validation images",
        lambda src, _, __: os.path.basename(src) == imagenet.VAL,
        imagenet.read_val,
        in_archives=False,
        example="ILSVRC2012_img_val.tar",
    ),
    Kind("a zip archive", is_zip, _read_archive, _OPTIONS, in_archives=False, example="photos.zip"),
    Kind(
        "a tar archive",
        is_tar,
        _read_archive,
        _CONTAINER_OPTIONS,
        in_archives=False,
        example="photos.tar",
    ),
    # Any other file is a list, unless it is known to be something else.
    Kind(
        "a list file",
        lambda src, *_: is_list(src),
        lambda src, _, options: read_lists(
            [src], options.image_root or parent_folder(src) or ".", options
        ),
        ("image_root",),
        example="train.txt",
    ),
)

KINDS = (*FOLDERS, *FILES)


# --- files and paths that are not a source --------------------------------------------------------


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")

#: Stands for the start of a spreadsheet that is a zip archive, and the first names in such archives.
_SPREADSHEET = b"spreadsheet"
_IN_SPREADSHEETS = (
    b"[Content_Types].xml",
    b"_rels/",
    b"docProps/",
    b"xl/",
    b"mimetypeapplication/vnd.oasis",
)

#: Files that are no source: what they are, what to do with them, their suffixes, and the bytes that
#: they start with.
_OTHER_FILES: tuple[tuple[str, str, Names, tuple[bytes, ...]], ...] = (
    (
        "an archive",
        "unpack it and give the folder, or name a tar .tar and a zip .zip",
        (".7z", ".rar"),
        (b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c", b"ustar"),
    ),
    (
        "an archive that is compressed as a whole, so it cannot be read in place",
        "decompress it (`gunzip`, `xz -d`, `zstd -d`) and give the .tar or the table, or unpack it"
        " and give the folder",
        (".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst"),
        (b"\x1f\x8b",),
    ),
    (
        "a shard",
        "give the folder of the prepared dataset; for shards of other tools, run `dataprep index`"
        " on it first",
        (".tfrecord", ".tfrecords"),
        (),
    ),
    (
        "a spreadsheet",
        "save it as `CSV UTF-8` in the spreadsheet program, or with pandas:"
        " `pandas.read_excel(file).to_csv(...)`",
        (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"),
        (_SPREADSHEET, b"\xd0\xcf\x11\xe0"),
    ),
    (
        "a web page",
        "download the file itself; a page often asks to sign in, or to confirm",
        (".html", ".htm"),
        (b"<!doctype html", b"<html"),
    ),
    (
        "not one of the tables that can be read",
        "save it as CSV, JSON Lines or Parquet",
        (".json", ".feather", ".arrow", ".orc", ".mdb", ".lmdb", ".db", ".sqlite"),
        (),
    ),
    (
        "a file of arrays",
        refused.ARRAYS_HINT,
        (".npz", ".npy", ".h5", ".hdf5", ".mat", ".pkl", ".pickle", ".pt", ".pth", ".bin"),
        (b"\0\0\x08\x01", b"\0\0\x08\x03"),
    ),
    (
        "a video",
        "give the folder that contains it, with --fps 5, --every 8 or --all-frames",
        (*VIDEO_SUFFIXES,),
        (b"\x1a\x45\xdf\xa3",),
    ),
    (
        "an image",
        "give the folder that contains the class folders, or a list of images",
        (*IMAGE_SUFFIXES,),
        (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"),
    ),
)


def missing_source(src: str, path: str) -> CallError:
    """Return the error for a `src` that does not exist.

    `path` is the part of it that is missing.
    """
    if _URL.match(src):
        return CallError(f"--src {src} looks like a URL", hint="write it like s3://bucket/folder")
    if _WINDOWS.match(src):
        hint = "write it as this system does; WSL has C:\\photos at /mnt/c/photos"
        return CallError(f"--src {src} is a path of Windows, which does not exist here", hint=hint)
    hint = "check the path"
    if is_read_only(src):
        hint = "give a list or a table: a web server has no folders that could be listed"
    if path == src:
        return CallError(f"--src {src} does not exist", hint=hint)
    return CallError(f"--src {src}: {path} does not exist", hint=hint)


def is_list(src: str) -> bool:
    """Return whether a file may be a list of images: any file that is not of a known other kind.

    Raises:
        CallError: it is an archive, a shard, an image, or a table that cannot be read.

    """
    suffix = os.path.splitext(src)[1].lower()
    start = b""
    if not any(suffix in suffixes for _, _, suffixes, _ in _OTHER_FILES):
        start = _start_of(src, SOURCE_LIST)
    _refuse_other(src, suffix, start, "")
    return True


def _is_table(src: str, *_: Any) -> bool:
    """Return whether a file is a table; see `tables.is_table`.

    Raises:
        CallError: it is called .csv or .tsv, and is of another kind.

    """
    if suffix_of(src) not in (".csv", ".tsv"):
        return is_table(src)
    _refuse_other(src, "", _start_of(src, SOURCE_TABLE), ", in spite of its name")
    return True


def _refuse_other(src: str, suffix: str, start: bytes, note: str) -> None:
    for what, hint, suffixes, starts in _OTHER_FILES:
        if suffix in suffixes or start.startswith(starts):
            raise CallError(f"--src {src} is {what}{note}", hint=hint)


def _start_of(src: str, kind: FileKind) -> bytes:
    """Return the first bytes of a file, or the mark of its kind that lies further behind."""
    with open_file(src, kind) as file:
        start = file.read(512)
    if start[257:262] == b"ustar":
        return b"ustar"
    if start[:4] == b"PK\x03\x04" and start[30:].startswith(_IN_SPREADSHEETS):
        return _SPREADSHEET
    if start.lstrip()[:1] == b"<":
        return start.lstrip().lower()
    return start
