"""Temporary files, on the disk that ``TMPDIR`` names."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifests.errors import StorageError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a folder, which is removed at the end of the block. The block writes no other files.

    Raises:
        StorageError: the disk is full, or there is no folder for temporary files.

    """
    try:
        parent = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageError(
            f"temporary files cannot be written: {error.strerror}",
            hint="set TMPDIR to a folder with free space that this user can write to",
        ) from error
    try:
        with tempfile.TemporaryDirectory(prefix="dataprep-", dir=parent) as folder:
            yield folder
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StorageError(
            f"temporary files cannot be written: {error.strerror}",
            file=parent,
            hint=(
                "free some space there, or set TMPDIR to a folder with more, and run the same"
                " command again"
            ),
        ) from error


def save_array(path: str, array: NDArray[Any]) -> None:
    """Write an array as `numpy.save` does, whose error on a full disk does not say what is wrong."""
    array = np.ascontiguousarray(array)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)
