"""Tiles of many bands: `loaders.build` beside DataLoaders with rasterio, tifffile or torchgeo.

    python scripts/bench pixels

The tiles are made: 13 bands of uint16 in class folders, as TIFFs with Deflate and a predictor. All
sides read the same files, crop and flip at random, and normalize each band; a DataLoader normalizes
whole batches, on the GPU if there is one. rasterio reads only the window. Before the measurement,
all sides read the first batch as it is, and the digests of its pixels are printed and compared.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from feeds import OURS, Opener, compare_feeds, digest, open_feeds, our_feed, workers_feed
from harness import DEVICE, Report, at_least, at_most, option, usual
from inputs import convert

TAKES = "5 minutes"
NEEDS = "2 GB of memory; rasterio and torchgeo are measured if they are installed"
OPTIONS = [
    *usual("pixels", repeats=5, batch_size=64),
    DEVICE,
    option("--count", 1024, "tiles"),
    option("--size", 256, "side of the tiles in pixels"),
    option("--seconds", 2.0, "shortest measurement of a side"),
    option("--workers", [4, 16], "processes of the DataLoaders"),
]
BANDS, MEAN, STD = 13, 2000.0, 1000.0
#: Patches per second beside each DataLoader.
SHARE = at_least(1.0)


def make_tiles(folder: Path, count: int, size: int) -> None:
    """Write steps of brightness with noise of 6 bits, in 10 classes."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 64, (size, size, BANDS), np.uint16)
    for number in range(count):
        path = folder / f"class{number % 10}" / f"{number:05d}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        steps = rng.integers(500, 4000, (8, 8, BANDS), np.uint16)
        fields = steps.repeat(-(-size // 8), 0).repeat(-(-size // 8), 1)[:size, :size]
        pixels = fields + np.roll(noise, number, (0, 1))
        layout: Any = {"photometric": "minisblack", "planarconfig": "contig", "predictor": 2}
        tifffile.imwrite(path, pixels, compression="zlib", **layout)


def read_tifffile(path: str, top: int, left: int, side: int) -> Any:
    return tifffile.imread(path)[top : top + side, left : left + side].transpose(2, 0, 1)


def read_rasterio(path: str, top: int, left: int, side: int) -> Any:
    with importlib.import_module("rasterio").open(path) as file:
        return file.read(window=((top, top + side), (left, left + side)))


def read_torchgeo(path: str, top: int, left: int, side: int) -> Any:
    """Do what torchgeo's NonGeoClassificationDataset does with a file."""
    whole = importlib.import_module("torchgeo.datasets.utils").rasterio_loader(path)
    return whole.astype(np.float32).transpose(2, 0, 1)[:, top : top + side, left : left + side]


READERS = {"tifffile": read_tifffile, "rasterio": read_rasterio, "torchgeo": read_torchgeo}


class Tiles(torch.utils.data.Dataset[Any]):
    """Class folders of tiles that a function reads, with random crops and flips."""

    def __init__(self, folder: Path, size: int, reader: Any) -> None:
        self.paths = sorted(map(str, folder.rglob("*.tif")))
        self.size, self.crop, self.reader = size, size * 7 // 8, reader

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        top, left = torch.randint(self.size - self.crop + 1, (2,)).tolist()
        pixels = self.reader(self.paths[number], top, left, self.crop)
        if torch.rand(()) < 0.5:
            pixels = pixels[..., ::-1]
        pixels = np.ascontiguousarray(pixels)
        # Not all versions of torch stack uint16.
        stacked = pixels.view(np.int16) if pixels.dtype == np.uint16 else pixels
        return torch.from_numpy(stacked), int(Path(self.paths[number]).parent.name[5:])


def normalized(images: Any) -> Any:
    stored = images.view(torch.uint16) if images.dtype == torch.int16 else images
    return stored.float().sub_(MEAN).div_(STD)


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare all readers with `loaders.build`."""
    folder, dataset = args.work / f"tiles-{args.count}-{args.size}", args.work / "dataset"
    if not folder.exists():
        make_tiles(folder, args.count, args.size)
    shutil.rmtree(dataset, ignore_errors=True)
    convert(folder, dataset, "tfrecord", "--no-shuffle")
    readers = {name: READERS[name] for name in READERS if importlib.util.find_spec(name)}
    with our_feed(dataset, args, transforms=[], dtype="uint16", shuffle=False) as plain:
        digests = {OURS: digest(plain.take(1)[0])}
    for name, reader in readers.items():
        first = Tiles(folder, args.size, reader).paths[: args.batch_size]
        whole = np.stack([reader(path, 0, 0, args.size) for path in first])
        digests[name] = digest(torch.from_numpy(whole.astype(np.uint16)))
    print(digests)
    report.check("different digests", len({*digests.values()}), at_most(1))

    scale = {"scale": 1.0, "mean": [MEAN] * BANDS, "std": [STD] * BANDS}
    steps: list[Any] = [{"RandomCrop": {"size": args.size * 7 // 8}}, "RandomHorizontalFlip"]
    steps += [{"NormalizeImage": scale}]
    build = {"transforms": steps, "dtype": "float32"}
    sides: dict[str, Opener] = {OURS: partial(our_feed, dataset, args, **build)}
    for workers, (name, reader) in itertools.product(args.workers, readers.items()):
        tiles = Tiles(folder, args.size, reader)
        sides[f"{name}, {workers} workers"] = partial(
            workers_feed, tiles, args, workers, normalized
        )
    title = f"{args.size} x {args.size} x {BANDS}, {args.device}, batches of {args.batch_size}"
    pairs = [(OURS, name, SHARE) for name in [*sides][1:]]
    with open_feeds(sides) as feeds:
        compare_feeds(report, title, feeds, args, pairs, least=args.seconds)
