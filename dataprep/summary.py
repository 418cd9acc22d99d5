"""What is in a prepared dataset, from its manifest and its tables. It never opens a shard."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.memory import SHORTER, CropWindow, ImageSizes, default_settings, estimate_memory
from manifests.schema import Manifest, Split
from manifests.store import read_manifest, read_table

#: Quantiles that are told of a column.
_QUANTILES = {"min": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "max": 1.0}


def describe(folder: str, batch_size: int | None = None) -> dict[str, Any]:
    """Summarise a dataset as plain data, ready for JSON.

    Args:
        folder: the dataset's.
        batch_size: of which to foretell the memory that loading takes; none leaves that out.

    Returns:
        ``format``, ``store`` (with ``pixels`` where that is raw), ``classes``, ``samples``, ``bytes``, ``rejected``,
        and ``splits``: for each its ``samples``, ``shards``, ``bytes``, ``labels`` (samples of each class by name),
        and quantiles of ``width``, ``height`` (pixels) and ``size`` (bytes of an encoded image), and with a batch
        size ``gpu_memory``: bytes, of imagenet-train and imagenet-eval, as the images are and as they would be resized
        to a shorter side of so many pixels; none where their sizes are not all known.

    Raises:
        ManifestError: the dataset is not whole.
        TableError: a table is damaged.

    """
    manifest = read_manifest(folder)
    return {
        "folder": os.path.abspath(folder),
        "format": manifest.format,
        "store": manifest.store,
        **({"pixels": list(manifest.pixels)} if manifest.pixels else {}),
        "samples": sum(split.samples for split in manifest.splits),
        "bytes": sum(split.bytes for split in manifest.splits),
        "classes": len(manifest.classes),
        "rejected": _rejected(folder, manifest),
        "options": dict(manifest.options),
        "splits": {split.name: _describe_split(folder, manifest, split, batch_size) for split in manifest.splits},
    }


def _rejected(folder: str, manifest: Manifest) -> int:
    if manifest.rejected is None:
        return 0
    try:
        with open(os.path.join(folder, manifest.rejected.name), "rb") as lines:
            return sum(1 for _ in lines)
    except OSError:
        return 0


def _describe_split(folder: str, manifest: Manifest, split: Split, batch_size: int | None) -> dict[str, Any]:
    counts = np.zeros(len(manifest.classes), np.int64)
    measured: dict[str, list[NDArray[np.int64]]] = {"width": [], "height": [], "size": []}
    for shard in split.shards:
        table = read_table(os.path.join(folder, shard.table.name), ["label", *measured])
        labels = np.asarray(table["label"])
        counts += np.bincount(labels[(labels >= 0) & (labels < len(counts))], minlength=len(counts))
        for name, column in measured.items():
            column.append(np.asarray(table[name]))
    memory = {"gpu_memory": _foretold(measured, batch_size, manifest.store == "encoded")} if batch_size else {}
    return {
        "samples": split.samples,
        "shards": len(split.shards),
        "bytes": split.bytes,
        **{name: _quantiles(np.concatenate([*column, np.empty(0, np.int64)])) for name, column in measured.items()},
        "labels": {name: int(count) for name, count in zip(manifest.classes, counts, strict=True)},
        **memory,
    }


def _foretold(
    measured: dict[str, list[NDArray[np.int64]]], batch_size: int, encoded: bool
) -> dict[str, dict[str, int]] | None:
    sides = [np.concatenate([*measured[name], np.empty(0, np.int64)]) for name in ("width", "height")]
    if not len(sides[0]) or not all(np.isfinite(each).all() for each in sides):
        return None
    sizes = ImageSizes(*(each.astype(np.int32) for each in sides))
    ways = {"as they are": sizes}
    if encoded:
        ways |= {str(shorter): sizes.resized(shorter) for shorter in SHORTER if shorter < min(sizes.largest)}
    windows = {"imagenet-train": CropWindow() if encoded else None, "imagenet-eval": None}
    return {
        name: {
            way: estimate_memory(each, default_settings(each, batch_size, window, encoded=encoded)).total
            for way, each in ways.items()
        }
        for name, window in windows.items()
    }


def _quantiles(values: NDArray[np.int64]) -> dict[str, int]:
    if not len(values):
        return dict.fromkeys(_QUANTILES, 0)
    return {
        name: int(value)
        for name, value in zip(
            _QUANTILES, np.quantile(values, list(_QUANTILES.values()), method="nearest"), strict=True
        )
    }
