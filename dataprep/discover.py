"""Shards that someone else wrote: which files they are, of which format and split, and where a record has what.

It must never read more of them than the first record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dataprep import formats, storage
from dataprep.options import IndexOptions
from manifests.errors import CallError, ShardError, TableError
from manifests.schema import FORMAT_NAMES, SPLIT_ALIASES, Format, TableMetadata
from manifests.store import read_table_metadata

_OF = re.compile(r"-\d+-of-\d+$")  # TensorFlow's names: train-00012-of-01024


def find_shards(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Return the dataset's folder and the shards in it, in the order of their names.

    Args:
        paths: a folder of shards, or shards of one folder.

    Raises:
        CallError: there are none, one is named twice, files lie in several folders, or two would share an index file.

    """
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            files += sorted(_shards_below(path))
        elif os.path.isfile(path):
            files.append(path)
        else:
            raise CallError(f"{path} does not exist", hint="name a folder of shards, or shards")
    if not files:
        raise CallError(
            f"{paths[0]} holds no .tar, .tfrecord or NAME-00000-of-00001 file",
            hint="compressed shards (.tar.gz, .tgz) must be unpacked first",
        )
    if len(paths) == 1 and os.path.isdir(paths[0]):
        folder = paths[0]
    else:
        folders = {os.path.dirname(os.path.abspath(file)) for file in files}
        if len(folders) > 1:
            raise CallError(f"the shards lie in {len(folders)} folders", hint="name the one folder that holds them all")
        folder = folders.pop()
    names = [os.path.relpath(file, folder) for file in files]
    if len(set(names)) < len(names):
        raise CallError("a shard is named twice")
    stems: dict[str, str] = {}
    for name in names:
        if (other := stems.setdefault(stem(name), name)) != name:
            raise CallError(f"{other} and {name} would have the same index file", hint="rename one")
    return folder, names


def _shards_below(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            if not name.startswith(".") and _is_shard(name):
                yield os.path.join(parent, name)


def _is_shard(name: str) -> bool:
    suffixes = tuple(suffix for fmt in FORMAT_NAMES for suffix in formats.FORMATS[fmt].SUFFIXES)
    return name.lower().endswith(suffixes) or _OF.search(name) is not None


def stem(name: str) -> str:
    """Return a shard's name without what says the format; its index and table are named by it."""
    return name if _OF.search(name) else os.path.splitext(name)[0]


def format_of(names: Sequence[str], folder: str) -> Format:
    """Tell the one format of shards by their names.

    Raises:
        CallError: there are two, or none.

    """
    kinds: dict[Format, str] = {}
    for name in names:
        for fmt in FORMAT_NAMES:
            if name.lower().endswith(formats.FORMATS[fmt].SUFFIXES) or (fmt == "tfrecord" and _OF.search(name)):
                kinds.setdefault(fmt, name)
    if len(kinds) > 1:
        raise CallError(f"{folder} holds both {' and '.join(kinds.values())}", hint="index one format at a time")
    if not kinds:
        raise CallError(f"{names[0]} is neither .tar nor .tfrecord", hint="rename it, if it is one")
    return next(iter(kinds))


def split_of(name: str, options: IndexOptions) -> str:
    """Tell a shard's split: as the options say, else by a word in its name or folder; train where there is none."""
    if options.split:
        return SPLIT_ALIASES.get(options.split.lower(), options.split)
    words = re.split(r"[^a-z]+", name.lower())
    return next((SPLIT_ALIASES[word] for word in reversed(words) if word in SPLIT_ALIASES), "train")


def table_name(folder: str, name: str) -> str:
    """Name a shard's table; img2dataset has a Parquet file of its own under the first choice, which must stay."""
    first = f"{stem(name)}.parquet"
    path = os.path.join(folder, first)
    if not os.path.exists(path) or stated_by_table(path):
        return first
    return f"{stem(name)}.samples.parquet"


def stated_by_table(path: str) -> TableMetadata | None:
    """Return what a sample table says of itself; nothing where the file is missing, damaged or another's."""
    try:
        return read_table_metadata(path)
    except TableError:
        return None


def find_components(folder: str, names: Sequence[str], fmt: Format, options: IndexOptions) -> formats.ScanOptions:
    """Find out by the first record, and by what the options name, where records have image and label.

    Raises:
        CallError: there is none, or none of the name that an option says; or options exclude each other.
        ShardError: the first record cannot be read.

    """
    path = os.path.join(folder, names[0])
    with storage.open_view(path) as (view, size):
        components = formats.FORMATS[fmt].find_components(view, size, path, options.image)
    if options.label and options.label_key:
        raise CallError("--label and --label-key exclude each other", hint="leave one out")
    if options.label_key and fmt != "webdataset":
        raise CallError("--label-key goes with WebDataset shards", hint="name the label's feature with --label")
    label = None if options.label_key else options.label or components.label
    if label is None and options.label_key is None:
        raise CallError(
            f"{names[0]} shows no label in its first record",
            hint="name its feature or extension with --label, or a member of its .json with --label-key",
        )
    want = formats.ScanOptions(replace(components, label=label, label_offset=options.label_offset), options.label_key)
    if options.label or options.label_key:
        _check_label(path, fmt, want)
    return want


def _check_label(path: str, fmt: Format, want: formats.ScanOptions) -> None:
    """Refuse a name under which the first record, sound otherwise, has no integer label: the call is wrong."""
    unlabelled = want._replace(components=replace(want.components, label=None), label_key=None)
    with storage.open_view(path) as (view, size):
        try:
            if next(formats.FORMATS[fmt].scan(view, size, path, want)).label is not None:
                return
            message = "has no integer of that name in its first record"
        except ShardError as error:
            if want.label_key and error.byte is not None:  # its .json cannot be read, whatever member is asked for
                return
            message = error.message
        next(formats.FORMATS[fmt].scan(view, size, path, unlabelled))
    if want.label_key:
        raise CallError(f"--label-key {want.label_key}: {path} {message}", hint="name the member that holds the label")
    raise CallError(
        f"--label {want.components.label}: {path} {message}", hint="name the feature or extension that holds the label"
    )
