"""The surfaces: one file for each kind of input, or for a few that differ only in their seeds."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Protocol

from fuzz.checks import Case

#: Each surface and its module, which has `make` and `check`, or `SURFACES` with several objects
#: that have them.
NAMES = {
    "manifest": "manifest",
    "table": "table",
    "index": "index",
    "tfrecord": "tfrecord",
    "tar": "tar",
    "jpeg": "images",
    "png": "images",
    "webp": "images",
    "bmp": "images",
    "tiff": "images",
    "ppm": "images",
    "jp2": "images",
    "avif": "images",
    "dicom": "images",
    "list": "lists",
    "csv": "lists",
    "parquet": "lists",
    "yaml": "yaml_config",
    "command": "command_line",
    "checkpoint": "checkpoint",
    "coco": "annotations",
    "voc": "annotations",
    "masks": "annotations",
    "labels": "annotations",
    "hugging-face": "containers",
    "recordio": "containers",
    "lmdb": "containers",
    "archive": "containers",
    "video": "videos",
}


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
