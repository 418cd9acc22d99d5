"""The surfaces: one file for each kind of input, or for a few that differ only in their seeds."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Protocol

from fuzz.checks import Case

#: Modules with `SURFACES`, which have several objects with `make` and `check`. The name of each
#: other surface is that of its module, which has the two functions.
_MODULES = {
    "images": "jpeg png webp bmp tiff ppm jp2 avif dicom",
    "lists": "list csv parquet",
    "annotations": "coco voc masks labels",
    "containers": "hugging-face recordio lmdb archive",
    "videos": "video",
}

#: Each surface and its module.
NAMES = {name: name for name in ("manifest", "table", "index", "tfrecord", "tar", "checkpoint")}
NAMES |= {"yaml": "yaml_config", "command": "command_line"}
for _module, _names in _MODULES.items():
    NAMES |= dict.fromkeys(_names.split(), _module)


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
