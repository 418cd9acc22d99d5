"""Find shards that another tool wrote, and where their records store the image and the label.

Only the first record of the first shard is read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from braceexpand import braceexpand

from dataprep import storage
from dataprep.formats import FORMATS, ScanOptions
from dataprep.options import IndexOptions
from manifests.errors import CallError, ShardError, TableError
from manifests.json_members import is_unicode
from manifests.process.text import shown
from manifests.remote import absolute, is_url, open_store, parent_folder
from manifests.schema import (
    MAX_LABEL_OFFSET,
    SPLIT_ALIASES,
    Components,
    Format,
    TableMetadata,
    is_split_name,
)
from manifests.tables import read_table_metadata

#: TensorFlow Datasets and many scripts write TFRecord shards without an extension:
#: ``train-00012-of-01024``.
_TENSORFLOW_NAME = re.compile(r"-\d+-of-\d+$")


@dataclass(frozen=True, slots=True)
class FoundShards:
    """The shards of one dataset.

    Attributes:
        folder: folder of the dataset.
        names: paths relative to `folder`; sorted if the user gave a folder, else in the order
            given.
        format: record format of all shards.

    """

    folder: str
    names: tuple[str, ...]
    format: Format

    @property
    def paths(self) -> Iterator[str]:
        """Paths of the shards, in the order of `names`."""
        return (os.path.join(self.folder, name) for name in self.names)


def find_shards(paths: Sequence[str]) -> FoundShards:
    """Find the shards at the paths that the user gives.

    Args:
        paths: a folder, which is searched with all its subfolders, or shards of one folder. A path
            that does not exist is expanded as in a shell: ``train-{000..012}.tar`` names 13 shards.

    Raises:
        CallError: a path does not exist, there are no shards, they are in several folders or
            formats, or two of them would have the same index file.

    """
    files = [
        file for path in paths for expanded in _expand_braces(path) for file in _shards_of(expanded)
    ]
    if not files:
        raise CallError(
            f"{paths[0]} contains no .tar, .tfrecord or NAME-00000-of-00001 file",
            hint="unpack compressed shards (.tar.gz, .tgz) first",
        )
    folder = paths[0] if len(paths) == 1 and storage.is_folder(paths[0]) else _common_folder(files)
    names = tuple(_relative(file, folder) for file in files)
    _check_names(names)
    return FoundShards(folder, names, _format_of(names, folder))


def _expand_braces(path: str) -> Iterator[str]:
    if exists(path):  # its name may contain braces
        yield path
        return
    try:
        yield from braceexpand(path)
    except ValueError:  # UnbalancedBracesError, which the type stubs do not define
        raise CallError(
            f"{path} does not exist, and its braces are unbalanced", hint="close each brace"
        ) from None


def _shards_of(path: str) -> Iterator[str]:
    if storage.is_folder(path):
        yield from sorted(_walk(path))
    elif exists(path):
        yield path
    else:
        raise CallError(
            f"{path} does not exist", hint="give a folder of shards, or the shard files"
        )


def exists(path: str) -> bool:
    """Return whether there is a file or an object of this name, or a local folder."""
    return storage.file_length(path) >= 0 if is_url(path) else os.path.exists(path)


def _relative(file: str, folder: str) -> str:
    return file[len(folder) + 1 :] if is_url(file) else os.path.relpath(file, folder)


def _walk(folder: str) -> Iterator[str]:
    if is_url(folder):
        for name in (info.name for info in open_store(folder).list_objects()):
            if not any(part.startswith(".") for part in name.split("/")) and _formats_of(name):
                yield f"{folder}/{name}"
        return
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in files:
            if not name.startswith(".") and _formats_of(name):
                yield os.path.join(parent, name)


def _common_folder(files: Sequence[str]) -> str:
    folders = {parent_folder(absolute(file)) for file in files}
    if len(folders) > 1:
        raise CallError(
            f"the shards are in {len(folders)} folders",
            hint="give the one folder that contains them all",
        )
    return folders.pop()


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        repeated = next(name for name, count in Counter(names).items() if count > 1)
        raise CallError(f"{repeated} is given twice", hint="give each shard once")
    if wrong := [name for name in names if not is_unicode(name)]:
        raise CallError(
            f"the name {wrong[0]!r} is not valid UTF-8", hint="rename the file or its folder"
        )
    by_stem: dict[str, str] = {}
    for name in names:
        other = by_stem.setdefault(shard_stem(name), name)
        if other != name:
            raise CallError(
                f"{other} and {name} would have the same index file", hint="rename one of them"
            )


def _format_of(names: Sequence[str], folder: str) -> Format:
    examples: dict[Format, str] = {}
    for name in names:
        for fmt in _formats_of(name):
            examples.setdefault(fmt, name)
    if len(examples) > 1:
        raise CallError(
            f"{folder} contains shards of several record formats: {', '.join(examples.values())}",
            hint="give only the shards of one format",
        )
    if not examples:
        raise CallError(
            f"{names[0]} is neither a .tar nor a .tfrecord file",
            hint="if it is a shard, rename it to end in .tar or .tfrecord",
        )
    return next(iter(examples))


def _formats_of(name: str) -> tuple[Format, ...]:
    """Return the format that a file name stands for, if any."""
    if _TENSORFLOW_NAME.search(name):
        return ("tfrecord",)
    return tuple(
        fmt
        for fmt, record_format in FORMATS.items()
        if name.lower().endswith(record_format.SUFFIXES)
    )


def shard_stem(name: str) -> str:
    """Return a shard's name without its extension. The index and the table are named after it."""
    return name if _TENSORFLOW_NAME.search(name) else os.path.splitext(name)[0]


def split_of(name: str, options: IndexOptions) -> str:
    """Return the split of a shard: the one in the options, else the last one in its path, else ``"train"``."""
    if options.split:
        return SPLIT_ALIASES.get(options.split.lower(), options.split)
    parts = re.split(r"[^a-z]+", name.lower())
    return next((SPLIT_ALIASES[part] for part in reversed(parts) if part in SPLIT_ALIASES), "train")


def table_name(folder: str, name: str) -> str:
    """Return the name of a shard's sample table: ``STEM.parquet``, or ``STEM.samples.parquet`` if that is taken.

    img2dataset writes its own Parquet file next to each shard; that file is kept.
    """
    preferred = f"{shard_stem(name)}.parquet"
    path = os.path.join(folder, preferred)
    if storage.file_length(path) < 0 or table_metadata(path):
        return preferred
    return f"{shard_stem(name)}.samples.parquet"


def table_metadata(path: str) -> TableMetadata | None:
    """Read the metadata of a sample table.

    `None` if the file is missing, damaged, or from another tool.
    """
    try:
        return read_table_metadata(path) if storage.file_length(path) >= 0 else None
    except TableError:
        return None


# --- where a record stores its image and label --------------------------------------------------


def find_components(shards: FoundShards, options: IndexOptions) -> ScanOptions:
    """Find where records store the image and the label, from the options and the first record.

    Raises:
        CallError: the first record has no label, or no image or label under the name that an option
            gives; or the options contradict each other.
        ShardError: the first record cannot be read.

    """
    if options.split and not is_split_name(options.split):
        raise CallError(
            f"--split {shown(options.split)} cannot be part of a file name",
            hint="use letters, digits, - and _",
        )
    if options.label and options.label_key:
        raise CallError(
            "--label and --label-key cannot be used together", hint="leave one of them out"
        )
    if abs(options.label_offset) > MAX_LABEL_OFFSET:
        raise CallError(
            f"--label-offset {options.label_offset} is out of the range -{MAX_LABEL_OFFSET} to"
            f" {MAX_LABEL_OFFSET}",
            hint="give the difference between the labels in the shards and those from 0",
        )
    if options.label_key and shards.format != "webdataset":
        raise CallError(
            "--label-key requires WebDataset shards",
            hint="give the feature of the label with --label",
        )
    path = next(shards.paths)
    with storage.open_view(path) as (view, size):
        components = FORMATS[shards.format].find_components(view, size, path, options.image)
    label = None if options.label_key else options.label or components.label
    if options.label_type != "class":
        return _without_class(shards, options, components)
    if label is None and options.label_key is None:
        raise CallError(
            f"{shards.names[0]} has no label in its first record",
            hint=(
                "give the feature or extension of the label with --label, or its member of the"
                " .json with --label-key; or add --unlabelled, or --label-type caption"
            ),
        )
    scan = ScanOptions(
        replace(components, label=label, label_offset=options.label_offset), options.label_key
    )
    if options.label or options.label_key:
        _check_label(path, shards.format, scan)
    return scan


#: Features and extensions of captions, the most specific first.
_CAPTIONS: dict[Format, tuple[str, ...]] = {
    "tfrecord": ("image/caption", "caption", "text"),
    "webdataset": ("txt",),
}


def _without_class(
    shards: FoundShards, options: IndexOptions, components: Components
) -> ScanOptions:
    """Find where records store what `options.label_type` says: a caption, or nothing."""
    if (
        options.label_key
        or options.label_offset
        or (options.label and options.label_type == "none")
    ):
        raise CallError(
            f"--label-type {options.label_type} excludes --label, --label-key and --label-offset",
            hint="leave one of them out",
        )
    scan = ScanOptions(replace(components, label=None))
    if options.label_type == "none":
        return scan
    if options.label_type != "caption":
        raise CallError(
            f"--label-type {options.label_type}: only classes and captions are read from shards of"
            " other tools",
            hint="add --unlabelled, or convert the source with dataprep convert",
        )
    names = (options.label,) if options.label else _CAPTIONS[shards.format]
    path = next(shards.paths)
    with storage.open_view(path) as (view, size):
        for name in names:
            record = next(
                FORMATS[shards.format].scan(view, size, path, scan._replace(caption=name))
            )
            if record.caption is not None:
                return scan._replace(caption=name)
    raise CallError(
        f"{shards.names[0]} has no caption in its first record",
        hint="give the feature or extension of the caption with --label",
    )


def _check_label(path: str, fmt: Format, scan: ScanOptions) -> None:
    """Check that the first record has an integer label under the name that an option gives.

    A damaged record is not reported here: indexing the shard reports it.

    Raises:
        CallError: the record is intact, but has no such label.
        ShardError: the record cannot be read even without its label.

    """
    message = _label_problem(path, fmt, scan)
    if message is None:
        return
    if scan.label_key:
        option, hint = (
            f"--label-key {scan.label_key}",
            "give the member of the .json that contains the label",
        )
    else:
        option, hint = (
            f"--label {scan.components.label}",
            "give the feature or extension that contains the label",
        )
    raise CallError(f"{option}: {path}: {message}", hint=hint)


def _label_problem(path: str, fmt: Format, scan: ScanOptions) -> str | None:
    without_label = scan._replace(components=replace(scan.components, label=None), label_key=None)
    with storage.open_view(path) as (view, size):
        try:
            record = next(FORMATS[fmt].scan(view, size, path, scan))
        except ShardError as error:
            if (
                scan.label_key and error.byte is not None
            ):  # the .json is damaged, so another --label-key would not help
                return None
            message = error.message
        else:
            if record.label is not None:
                return None
            message = "the first record has no integer under that name"
        next(FORMATS[fmt].scan(view, size, path, without_label))
    return message
