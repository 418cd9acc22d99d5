"""Write the files of an export, all of them or none."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loaders.arrays import Array, Bytes, Ints
from loaders.dataset.images import StoredImages
from loaders.dataset.tables import SampleTables
from loaders.spec import LoaderSpec
from manifests.errors import CallError, StorageError
from manifests.process.text import printable

#: The file of each export that says what made it.
RECORD = "export.json"


def check_folder(folder: str, *, overwrite: bool) -> None:
    """Check that a folder can be written, before the work begins.

    Args:
        folder: the folder to make.
        overwrite: it may replace an export.

    Raises:
        CallError: it exists and is not an export, or `overwrite` is false, or it cannot be made.

    """
    parent = os.path.dirname(os.path.abspath(folder))
    # Folders between are made.
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise CallError(f"{printable(parent)} is not a folder", hint="choose another OUT")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise CallError(f"this user cannot write to {printable(parent)}", hint="choose another OUT")
    if not os.path.lexists(folder):
        return
    # Never replace a folder with files of the user.
    if not os.path.isfile(os.path.join(folder, RECORD)):
        raise CallError(
            f"{printable(folder)} exists, and is not an export", hint="choose another OUT"
        )
    if not overwrite:
        raise CallError(
            f"{printable(folder)} exists", hint="choose another OUT, or use --overwrite"
        )


def write_folder(folder: str, files: Mapping[str, bytes]) -> None:
    """Write files into a new folder, which appears complete or not at all.

    An export of this name is replaced.

    Args:
        folder: the folder.
        files: content by path in the folder.

    Raises:
        StorageError: the folder cannot be written.

    """
    parent, name = os.path.split(os.path.abspath(folder))
    # In the same folder, so that renaming does not copy.
    partial = os.path.join(parent, f".{name}.{os.getpid()}.partial")
    replaced = f"{partial}.old"
    try:
        os.makedirs(parent, exist_ok=True)
        for path, data in files.items():
            target = os.path.join(partial, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(data)
        if os.path.isdir(folder):
            os.rename(folder, replaced)
        _rename(partial, folder, replaced)
    except OSError as error:
        raise StorageError(f"the export cannot be written: {error.strerror}", file=folder) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _rename(partial: str, folder: str, replaced: str) -> None:
    try:
        os.rename(partial, folder)
    except OSError:
        # Put the old export back.
        if os.path.isdir(replaced):
            os.rename(replaced, folder)
        raise


@dataclass(frozen=True, slots=True)
class Golden:
    """The first samples of a split.

    Attributes:
        encoded: the images as the shards store them: uint8 [bytes] each.
        images: what the loader returns, [B, ...].
        labels: int64 [B]. `None` if the labels of the dataset are not classes.

    """

    encoded: tuple[Bytes, ...]
    images: Array
    labels: Ints | None = None


def golden_batch(spec: LoaderSpec) -> Golden:
    """Return the first batch of a loader with the encoded images that it comes from.

    Args:
        spec: what the loader is built from: NumPy arrays, the fields ``"image"``, ``"index"`` and
            perhaps ``"label"``, in stored order.

    Raises:
        DamagedError: an image cannot be read or decoded.

    """
    from loaders.loader import Loader

    with Loader[Any](spec) as loader:
        images, rows, *others = next(iter(loader))
    # The loader has closed its own files.
    tables = SampleTables(spec.split)
    stored = StoredImages(spec.split, tables, mmap=spec.options.mmap)
    encoded = tuple(np.array(image) for image in stored.images(rows))
    stored.close()
    tables.close()
    return Golden(encoded, images, *others)


def padded(encoded: Sequence[Bytes]) -> Bytes:
    """Return encoded images as one array, uint8 [B, bytes], with zeros after the shorter ones."""
    batch = np.zeros((len(encoded), max(map(len, encoded))), np.uint8)
    for row, image in zip(batch, encoded, strict=True):
        row[: len(image)] = image
    return batch


def npy(array: Array) -> bytes:
    """Return an array as the content of an .npy file, never pickled."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()
