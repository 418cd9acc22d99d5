"""Read prepared datasets as training batches: `build`, `Loader`, the samplers, and the errors to catch.

Importing this package imports neither torch, DALI nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# The import of the submodule `loaders.build` binds it to this package's attribute `build`; then the name is bound to
# the function. Later imports of the submodule leave the attribute alone.
from loaders.build import build
from loaders.samplers import ClassBalancedSampler, PKSampler, ShuffledSampler
from manifests.errors import CallError, DamagedError, DatasetError

if TYPE_CHECKING:
    from loaders.loader import Loader

__all__ = [
    "CallError",
    "ClassBalancedSampler",
    "DamagedError",
    "DatasetError",
    "Loader",
    "PKSampler",
    "ShuffledSampler",
    "build",
]


def __getattr__(name: str) -> Any:
    # `Loader` needs DALI, which is slow to import.
    if name == "Loader":
        from loaders.loader import Loader

        return Loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
