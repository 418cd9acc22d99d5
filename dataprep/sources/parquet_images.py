"""Find Parquet files that contain images, and their columns of images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice

import pyarrow as pa

from dataprep.containers.parquet import ROWS_PER_BYTE
from dataprep.sources.entries import IMAGE_SUFFIXES, is_folder, scan_folder, suffix_of
from dataprep.sources.tables import PATH_COLUMNS
from manifests.errors import SourceError
from manifests.files import SOURCE_TABLE, open_file
from manifests.parquet import BoundedParquet
from manifests.parquet_errors import ParquetError


def find_parquet_files(src: str, folders: Sequence[str]) -> list[str]:
    """Return the Parquet files with images in a folder, relative to it and sorted.

    Empty if there are other images.

    They are in the folder itself, in its folders, or in the folders of these.

    Raises:
        SourceError: a Parquet file is damaged.

    """
    files = _parquet_files(src, "")
    if not files and len(folders) <= _MAX_FOLDERS:
        inner = [
            f"{folder}/{name}" for folder in folders for name in _peek(src, folder, folders=True)
        ]
        places = [*folders, *inner[:_MAX_FOLDERS]]
        peeked = {place: _peek(src, place) for place in places}
        if not any(
            suffix_of(name) in IMAGE_SUFFIXES for names in peeked.values() for name in names
        ):
            found = (
                place
                for place, names in peeked.items()
                if any(suffix_of(name) == ".parquet" for name in names)
            )
            files = sorted(name for place in found for name in _parquet_files(src, place))
    return files if files and image_columns(f"{src}/{files[0]}") else []


#: Folders and entries of a folder to look at: class folders can have millions of images.
_MAX_FOLDERS, _MAX_PEEKED = 100, 50


_SHARDS = (".tar", ".tfrecord", ".tfrecords")


def _peek(src: str, folder: str, *, folders: bool = False) -> list[str]:
    with scan_folder(os.path.join(src, folder)) as entries:
        return [entry.name for entry in islice(entries, _MAX_PEEKED) if is_folder(entry) == folders]


def _parquet_files(src: str, folder: str) -> list[str]:
    with scan_folder(os.path.join(src, folder)) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    if any(suffix_of(name) in _SHARDS for name in names):  # these are their tables
        return []
    return sorted(os.path.join(folder, name) for name in names if suffix_of(name) == ".parquet")


def image_columns(file: str) -> list[str]:
    """Return the columns of a Parquet file that contain images: structs with the member ``bytes``, or binary.

    In a table with a column of paths, binary columns are not images.

    Raises:
        SourceError: the file is damaged.

    """
    with opened(file) as parquet:
        leaves = [leaf for leaf in parquet.binary_leaves() if _is_image(parquet.schema, leaf)]
        texts = {field.name for field in parquet.schema if pa.types.is_string(field.type)}
    has_paths = bool(texts & {*PATH_COLUMNS})
    return [column_of(leaf) for leaf in leaves if not has_paths or leaf.endswith(".bytes")]


def column_of(leaf: str) -> str:
    """Return the column that the bytes at a path such as ``image.bytes`` are in."""
    return leaf.removesuffix(".bytes")


def _is_image(schema: pa.Schema, leaf: str) -> bool:
    name, dot, member = leaf.partition(".")
    arrow_type = schema.field(name).type if name in schema.names else None
    if arrow_type is None or (dot and member != "bytes"):
        return False
    if dot and pa.types.is_struct(arrow_type):
        arrow_type = (
            arrow_type.field("bytes").type
            if arrow_type.get_field_index("bytes") >= 0
            else pa.null()
        )
    return bool(pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type))


class opened:  # noqa: N801  (a context manager, named like a function)
    """Open a Parquet file, and raise what is wrong with it as a `SourceError`."""

    def __init__(self, file: str) -> None:
        self._path = file

    def __enter__(self) -> BoundedParquet:
        self._file = open_file(self._path, SOURCE_TABLE)
        try:
            return BoundedParquet(self._file, rows_per_byte=ROWS_PER_BYTE)
        except ParquetError as error:
            self._file.close()
            raise self._error(error) from None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._file.close()
        if isinstance(error, ParquetError):
            raise self._error(error) from None

    def _error(self, error: ParquetError) -> SourceError:
        message = f"the file is not a valid Parquet table ({error})"
        return SourceError(message, file=self._path, hint="download or write the file again")
