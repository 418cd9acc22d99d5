"""Small loaders on the CPU, what they return, and datasets that many tests read and none changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import loaders
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from helpers import annotated, damaged, handmade, small
from helpers.pictures import encode, photo


def build(dataset: Any, **options: Any) -> loaders.Loader:
    """Build a loader of small images."""
    defaults = {"batch_size": 4, "transforms": small.EVAL, "device": "cpu", "num_threads": 2}
    return loaders.build(dataset, **{**defaults, **options})


def take(loader: loaders.Loader, count: int) -> list[Any]:
    """Return some batches of an epoch, and leave the epoch."""
    iteration = iter(loader)
    return [next(iteration) for _ in range(count)]


def state_after(loader: loaders.Loader, count: int) -> dict[str, Any]:
    """Return the state within an epoch, after some batches."""
    iteration = iter(loader)
    for _ in range(count):
        next(iteration)
    return loader.state_dict()


def column(loader: loaders.Loader) -> list[list[Any]]:
    """Return an epoch of a loader of one field."""
    return [list(values.tolist()) for (values,) in loader]


def flat(loader: loaders.Loader) -> list[Any]:
    """Return an epoch of a loader of one field, sample by sample."""
    return [value for batch in column(loader) for value in batch]


def equal(first: Any, second: Any) -> bool:
    """Return whether two values are equal bit for bit: arrays, or nested lists of them."""
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return np.array_equal(first, second)


def convert(src: Any, out: Any, read: SourceOptions | None = None, **options: Any) -> Path:
    """Convert a source that is read with these options; the others are the fields of `Options`."""
    convert_dataset(read_source(str(src), read), str(out), Options(**options), workers=1)
    return Path(out)


def converted(src: Path, out: Path, fmt: Any = "tfrecord", **options: Any) -> Path:
    """Convert a source into shards of 4 samples; the options are the fields of `SourceOptions`."""
    return convert(src, out, SourceOptions(**options), fmt=fmt, shard_samples=4)


def mixed() -> list[handmade.Sample]:
    """Return 23 small images, alternately JPEG, PNG and WebP; the mean color of each is ten times its label."""
    samples = []
    for label in range(23):
        extension = ("jpg", "png", "webp", "JPG")[label % 4]
        pixels = np.full((40 + label, 60 - label, 3), 10 * label, np.uint8)
        samples.append((extension, encode(pixels, extension), label))
    return samples


def _people(folder: Path) -> None:
    """Write 40 gray images of ten identities with 1 to 9 images, from three cameras."""
    identities = np.repeat(np.arange(10), [1, 1, 2, 2, 3, 4, 5, 6, 7, 9])
    rows = []
    for number, identity in enumerate(identities.tolist()):
        path = folder / f"{number:02d}.png"
        path.write_bytes(encode(np.full((40 + number, 60, 3), 6 * number, np.uint8), "png"))
        names = {"identity": f"p{identity}", "camera": number % 3, "frame": number}
        rows.append({"path": path.name, "label": identity, **names})
    pq.write_table(pa.Table.from_pylist(rows), folder / "people.parquet")


class Prepared:
    """Datasets by kind and format, such as ``"mixed tfrecord"``, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, dict[str, tuple[int, int]]] = {}

    def __getitem__(self, name: str) -> Path:
        if name not in self._made:
            kind, fmt = name.split()
            self._make(kind, fmt, self._root / name)
            self._made[name] = self._files(name)
        return self._root / name

    def changed(self) -> list[str]:
        """Return the datasets that a test has changed."""
        return [name for name, files in self._made.items() if files != self._files(name)]

    def _files(self, name: str) -> dict[str, tuple[int, int]]:
        files = sorted((self._root / name).iterdir())
        return {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in files}

    def _make(self, kind: str, fmt: Any, out: Path) -> None:
        if kind == "mixed":
            handmade.make_dataset(out, fmt, mixed())
        elif kind in ("gray", "damaged"):
            damaged.make(out, fmt)
            if kind == "damaged":
                damaged.damage(out)
        elif kind == "photos":
            samples = [("jpg", encode(photo(number)), number) for number in range(8)]
            handmade.make_dataset(out, fmt, samples, shards=1)
        else:
            convert(self.source(kind), out, fmt=fmt, shard_samples=7 if kind == "people" else 3)

    def source(self, kind: str) -> Path:
        """Return the source of converted datasets of a kind."""
        folder = self._root / "sources"
        if not folder.exists():
            (folder / "people").mkdir(parents=True)
            _people(folder / "people")
            annotated.make_each_kind(folder)
        return folder / "people/people.parquet" if kind == "people" else folder / kind
