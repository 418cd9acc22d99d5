"""What a file of `loaders tune` gives a loader."""

from __future__ import annotations

import os
from dataclasses import dataclass

from loaders.dataset.split import OpenSplit
from loaders.devices import Device, device_name
from loaders.transforms.parse import Recipe
from loaders.tune.file import Tuning, TuningKey, read_tuning


@dataclass(frozen=True, slots=True)
class Tuned:
    """The options that a file gives a loader.

    Attributes:
        options: the options; all are `None` without a file.
        warnings: what the user should know.

    """

    options: Tuning
    warnings: tuple[str, ...] = ()


#: What a loader has without a file.
UNTUNED = Tuned(Tuning())


def tuning_key(device: Device, cores: int, split: OpenSplit, recipe: Recipe) -> TuningKey:
    """Return what a file of ``loaders tune`` must have been measured for, to be used by a loader."""
    return TuningKey(device_name(device), cores, split.fingerprint, recipe.text)


def use_tuning(path: str | os.PathLike[str], key: TuningKey, batch_size: int) -> Tuned:
    """Return what a file gives a loader. A result for another batch size is used with a warning.

    Args:
        path: the file.
        key: what the loader is.
        batch_size: its images per batch.

    Raises:
        CallError: see `read_tuning`.

    """
    entry = read_tuning(path, key, batch_size)
    if entry.batch_size == batch_size:
        return Tuned(entry.tuning)
    warning = (
        f"{os.fspath(path)} was measured with batches of {entry.batch_size:,} images, and this"
        f" loader has batches of {batch_size:,}, for which other options may be faster: add them"
        f" with `loaders tune --batch-size {batch_size}`"
    )
    return Tuned(entry.tuning, (warning,))
