"""The golden batch of an export: stored images, and what the loader makes of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.records import Records
from loaders.dataset.tables import SampleTables
from loaders.spec import LoaderSpec


@dataclass(frozen=True, slots=True)
class Golden:
    """The first samples of a split.

    Attributes:
        encoded: the images as the shards store them: uint8 [bytes] each.
        images: what the loader returns, [B, ...].
        labels: int64 [B]. `None` if the labels of the dataset are not classes.

    """

    encoded: tuple[NDArray[np.uint8], ...]
    images: NDArray[Any]
    labels: NDArray[np.int64] | None


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
        images, rows, *labels = next(iter(loader))
    tables = SampleTables(spec.split)
    records = Records(spec.split, tables, mmap=spec.options.mmap)
    encoded = tuple(np.array(image) for image in records.images(rows))
    records.close()
    tables.close()
    return Golden(encoded, images, labels[0] if labels else None)


def padded(encoded: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return encoded images as one array, uint8 [B, bytes], with zeros after the shorter ones."""
    batch = np.zeros((len(encoded), max(map(len, encoded))), np.uint8)
    for row, image in zip(batch, encoded, strict=True):
        row[: len(image)] = image
    return batch


def npy(array: NDArray[Any]) -> bytes:
    """Return an array as the content of an .npy file, never pickled."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()
