"""Read prepared datasets as training batches: `build`, `Loader`, `Batch`, samplers, errors.

Importing this package imports neither torch, DALI nor Arrow. It sets CUDA_DEVICE_MAX_CONNECTIONS,
unless it is set; see `loaders.devices`.

::

    the call         build, options, resolve, spec
    the loader       loader, progress, batch, bad_images, checkpoint, receipt, metrics, explain
    the machine      devices, ranks, memory, tuning
    types            arrays
    the program      cli; packages bench, tune, preview, export, simulate
    packages         dataset (shards, tables), cache (object stores), samplers, transforms, dali
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] in {"loaders", "-mloaders"}:
    from manifests.process.interrupts import handle_interrupts

    handle_interrupts("loaders")  # `python -m loaders` imports this file before `__main__`
    from manifests.process.program import prepare_process

    prepare_process("loaders")

from typing import TYPE_CHECKING, Any

from loaders import devices as _devices  # noqa: F401 - it sets CUDA_DEVICE_MAX_CONNECTIONS

# Importing the submodule `loaders.build` sets the attribute `build` of this package to the
# submodule. This statement then replaces it by the function. Python sets the attribute only once,
# so later imports keep the function.
from loaders.build import build
from loaders.metrics import Metrics
from loaders.options import Batch
from loaders.samplers import (
    BucketSampler,
    ClassBalancedSampler,
    ClipSampler,
    PKSampler,
    RepeatedSampler,
    SequentialSampler,
    ShuffledSampler,
    SubsetSampler,
    WeightedSampler,
)
from manifests.errors import CallError, DamagedError, DatasetError

if TYPE_CHECKING:
    from loaders.loader import Loader

__all__ = [
    "Batch",
    "BucketSampler",
    "CallError",
    "ClassBalancedSampler",
    "ClipSampler",
    "DamagedError",
    "DatasetError",
    "Loader",
    "Metrics",
    "PKSampler",
    "RepeatedSampler",
    "SequentialSampler",
    "ShuffledSampler",
    "SubsetSampler",
    "WeightedSampler",
    "build",
]


def __getattr__(name: str) -> Any:
    # `Loader` needs DALI, which is slow to import.
    if name == "Loader":
        from loaders.loader import Loader

        return Loader
    if name == "__version__":
        from manifests.process.program import release

        return release()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
