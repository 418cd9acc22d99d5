"""The surfaces: one file for each kind of input, or for a few that differ only in their seeds."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Protocol

from fuzz.checks import Case

#: Modules and their `SURFACES`, which are objects with `make` and `check`. A module with one surface
#: has the two functions.
_MODULES = {
    "datasets": "manifest index table",
    "images": "jpeg png webp bmp tiff ppm jp2 avif dicom",
    "lists": "list csv parquet",
    "annotations": "coco voc masks labels",
    "containers": "hugging-face recordio lmdb archive",
    "videos": "video",
    **{name: name for name in ("tfrecord", "tar", "checkpoint")},
    "yaml_config": "yaml",
    "command_line": "command",
}

#: Each surface and its module.
NAMES = {name: module for module, names in _MODULES.items() for name in names.split()}


class Surface(Protocol):
    """One kind of input."""

    def make(self, rng: Random) -> Case:
        """Return a case."""

    def check(self, case: Case, folder: Path) -> None:
        """Write the case into an empty folder, use it, and raise `Fault` if a property does not hold."""


@cache
def surface_named(name: str) -> Surface:
    """Return a surface, with everything imported that its checks need."""
    module = import_module(f"fuzz.surfaces.{NAMES[name]}")
    surface: Surface = getattr(module, "SURFACES", {}).get(name, module)
    surface.make(Random(0))  # makes the seeds before the first fork
    return surface
