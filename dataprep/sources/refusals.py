"""Files and paths that people give as ``--src``, but that are not a source: say what they are, and what to give."""

from __future__ import annotations

import os
import re

from dataprep.sources.entries import IMAGE_SUFFIXES
from manifests.errors import CallError
from manifests.files import SOURCE_LIST, open_file
from manifests.process.text import printable
from manifests.remote import is_url, parse_url

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
