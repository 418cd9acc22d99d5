"""Tiles of many bands and clips of videos: `loaders.build` beside DataLoaders whose workers decode the files.

    python scripts/bench decoding --cases tiles --workers 4 16
    python scripts/bench decoding --cases 720 256 --device cpu

The files are made. Tiles are TIFFs of 13 bands of uint16, with Deflate and a predictor. All sides read
the same files, crop and flip at random, and normalize; the digests of the first batch as it is are
compared. Videos of 720 or 256 lines are photographs through which a window moves, with noise, in H.264
with 30 frames in a second and a key frame every 250. A clip is 8 frames at 5 frames in a second, with
one random crop of 224 pixels, flipped and normalized. `loaders.ClipSampler` reads stored frames; workers
seek to the key frame before a random place, and decode up to the last frame of the clip.
"""

import hashlib
import importlib
import importlib.util
import itertools
import shutil
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import tifffile
import torch
from by_hand import MEAN, STD
from feeds import OURS, Opener, compare_feeds, open_feeds, our_feed, workers_feed
from harness import CORES, DEVICE, Report, at_least, at_most, option, replaced, timed, usual
from helpers.photographs import photograph
from inputs import convert
from PIL import Image

import loaders

TAKES = "8 minutes for tiles, 8 for videos; needs 2 GB of memory; rasterio and torchgeo are measured if they are installed"
OPTIONS = [
    *usual("decoding", repeats=5, workers=[CORES]),
    DEVICE,
    option("--cases", ["tiles", "720", "256"], "tiles, or the lines of videos, 16:9"),
    option("--count", 0, "files; 0 is 1,024 tiles or 32 videos"),
    option("--batch-size", 0, "tiles or clips of a batch; 0 is 64 or 8"),
    option("--size", 256, "side of a tile in pixels"),
    option("--frames", 300, "frames of a video"),
    option("--seconds", 2.0, "shortest measurement of a side"),
]
BANDS = 13
LENGTH, EVERY, SIDE = 8, 6, 224
#: Tiles or clips per second beside each DataLoader.
SHARE = at_least(1.0)


class Files(torch.utils.data.Dataset[Any]):
    """What a function reads of the files of class folders, flipped at random, and labels."""

    def __init__(self, paths: list[str], read: Callable[[str], torch.Tensor]) -> None:
        self.paths, self.read = paths, read

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        torch.set_num_threads(1)
        images = self.read(self.paths[number])
        images = images.flip(-1) if torch.rand(()) < 0.5 else images
        return images, int(Path(self.paths[number]).parent.name[5:])


def normalized(images: Any, mean: Any, std: Any) -> Any:
    """Normalize on the device of the images; int16 are the bits of uint16."""
    images = images.view(torch.uint16) if images.dtype == torch.int16 else images
    mean, std = (torch.as_tensor(each, device=images.device).view(-1, 1, 1) for each in (mean, std))
    return images.float().sub_(mean).div_(std)


def make_tiles(folder: Path, args: Namespace) -> None:
    """Write steps of brightness with noise of 6 bits, in 10 classes."""
    rng, size = np.random.default_rng(0), args.size
    noise = rng.integers(0, 64, (size, size, BANDS), np.uint16)
    layout: Any = {"photometric": "minisblack", "planarconfig": "contig", "predictor": 2}
    for number in range(args.count):
        path = folder / f"class{number % 10}" / f"{number:05d}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        steps = rng.integers(500, 4000, (8, 8, BANDS), np.uint16)
        fields = steps.repeat(-(-size // 8), 0).repeat(-(-size // 8), 1)[:size, :size]
        pixels = fields + np.roll(noise, number, (0, 1))
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


def crop_tile(reader: Callable[..., Any], size: int, path: str) -> torch.Tensor:
    crop = size * 7 // 8
    top, left = torch.randint(size - crop + 1, (2,)).tolist()
    pixels = np.ascontiguousarray(reader(path, top, left, crop))
    # Not all versions of torch stack uint16.
    return torch.from_numpy(pixels.view(np.int16) if pixels.dtype == np.uint16 else pixels)


def digest(pixels: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels, np.uint16).tobytes()).hexdigest()[:16]


def open_tiles(
    report: Report, readers: dict[str, Any], paths: list[str], dataset: Path, args: Namespace
) -> dict[str, Opener]:
    """Compare what all sides read, and return what opens each."""
    plain = {"transforms": [], "dtype": "uint16", "shuffle": False}
    with our_feed(dataset, args, **plain) as feed:
        digests = {OURS: digest(feed.take(1)[0].cpu().numpy())}
    for name, reader in readers.items():
        whole = [reader(path, 0, 0, args.size) for path in paths[: args.batch_size]]
        digests[name] = digest(np.stack(whole))
    print(digests)
    report.check("different digests", len({*digests.values()}), at_most(1))
    mean, std = [2000.0] * BANDS, [1000.0] * BANDS
    steps: list[Any] = [{"RandomCrop": {"size": args.size * 7 // 8}}, "RandomHorizontalFlip"]
    steps += [{"NormalizeImage": {"scale": 1.0, "mean": mean, "std": std}}]
    sides: dict[str, Opener] = {}
    sides[OURS] = partial(our_feed, dataset, args, transforms=steps, dtype="float32")
    finish = partial(normalized, mean=mean, std=std)
    for workers, (name, reader) in itertools.product(args.workers, readers.items()):
        files = Files(paths, partial(crop_tile, reader, args.size))
        sides[f"{name}, {workers} workers"] = partial(workers_feed, files, args, workers, finish)
    return sides


def make_videos(folder: Path, args: Namespace, height: int) -> None:
    """Write videos with 3 Mbit/s at 720 lines, in 4 classes."""
    width, rng = height * 16 // 9 // 2 * 2, np.random.default_rng(0)
    noise = rng.normal(0, 3, (2 * height, 2 * width, 1)).astype(np.int16)
    for number in range(args.count):
        path = folder / f"class{number % 4}" / f"{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo = photograph(("astronaut", "chelsea", "coffee")[number % 3])
        large = Image.fromarray(photo).resize((2 * width, 2 * height), Image.Resampling.LANCZOS)
        pixels = np.asarray(large, np.int16)
        with av.open(str(path), "w") as out:
            stream: Any = out.add_stream("libx264", rate=30, options={"preset": "veryfast"})
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            stream.codec_context.gop_size = 250
            stream.bit_rate = 3_000_000 * height * width // (1280 * 720)
            for at in range(args.frames):
                top = int(height * (0.5 + 0.4 * np.sin(at / 40 + number)))
                left = int(width * (0.5 + 0.4 * np.cos(at / 60)))
                y, x = rng.integers(0, height), rng.integers(0, width)
                window = pixels[top : top + height, left : left + width]
                shown = window + noise[y : y + height, x : x + width]
                frame = np.ascontiguousarray(shown.clip(0, 255).astype(np.uint8))
                picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
                picture.pts = at
                out.mux(stream.encode(picture))
            out.mux(stream.encode(None))


def read_pyav(path: str, start: int) -> Any:
    """Return the frames of a clip, uint8 [T, H, W, C]."""
    needed, found = {start + number * EVERY for number in range(LENGTH)}, list[Any]()
    with av.open(path) as video:
        stream: Any = video.streams.video[0]
        stream.codec_context.thread_count = 1
        unit = float(stream.time_base) * 30
        video.seek(int(start / unit), stream=stream)
        frames: Any = video.decode(stream)
        while len(found) < LENGTH:
            frame = next(frames)
            if round(frame.pts * unit) in needed:
                found.append(frame.to_ndarray(format="rgb24"))
    return np.stack(found)


def crop_clip(reader: Callable[..., Any], frames: int, path: str) -> torch.Tensor:
    """Crop a clip at a random place as RandomResizedCrop does; return float32 [T, C, H, W]."""
    pixels = reader(path, int(torch.randint(frames - (LENGTH - 1) * EVERY, ())))
    # The usual crop has 0.08 to 1 of the area, and sides from 3:4 to 4:3.
    area, shape = torch.empty(2).uniform_().tolist()
    side, stretch = (0.08 + 0.92 * area) ** 0.5, 0.87 + 0.28 * shape
    both = pixels.shape[1] * pixels.shape[2]
    parts = []
    for most, share in zip(pixels.shape[1:3], (stretch, 1 / stretch), strict=True):
        length = min(most, round(both**0.5 * side * share))
        start = int(torch.randint(most - length + 1, ()))
        parts.append(slice(start, start + length))
    crop = torch.from_numpy(pixels[:, parts[0], parts[1]]).permute(0, 3, 1, 2).float()
    resize: Any = torch.nn.functional.interpolate
    images: torch.Tensor = resize(crop, (SIDE, SIDE), mode="bilinear", antialias=True)
    return images


def open_clips(
    readers: dict[str, Any], paths: list[str], dataset: Path, args: Namespace
) -> dict[str, Opener]:
    stored = replaced(args, batch_size=args.batch_size * LENGTH)
    options = {"sampler": loaders.ClipSampler(LENGTH), "dtype": "float32"}
    sides: dict[str, Opener] = {OURS: partial(our_feed, dataset, stored, **options)}
    scaled = ([255 * value for value in each] for each in (MEAN, STD))
    finish = partial(normalized, **dict(zip(("mean", "std"), scaled, strict=True)))
    for workers, (name, reader) in itertools.product(args.workers, readers.items()):
        files = Files(paths, partial(crop_clip, reader, args.frames))
        sides[f"{name}, {workers} workers"] = partial(workers_feed, files, args, workers, finish)
    return sides


TILE_READERS = {"tifffile": read_tifffile, "rasterio": read_rasterio, "torchgeo": read_torchgeo}
CLIP_READERS = {"av": read_pyav}


def run(report: Report, args: Namespace) -> None:
    for case in args.cases:
        tiles = case == "tiles"
        count, batch = (1024, 64) if tiles else (32, 8)
        sized = replaced(args, count=args.count or count, batch_size=args.batch_size or batch)
        folder, dataset = args.work / f"{case}-{sized.count}", args.work / f"dataset-{case}"
        if not folder.exists():
            make_tiles(folder, sized) if tiles else make_videos(folder, sized, int(case))
        shutil.rmtree(dataset, ignore_errors=True)
        options = ("--no-shuffle",) if tiles else ("--every", EVERY, "--resize-shorter", 256)
        with timed() as spent:
            convert(folder, dataset, "tfrecord", *options)
        report.check(f"{case}: files converted per second", sized.count / spent["seconds"])
        known: dict[str, Any] = TILE_READERS if tiles else CLIP_READERS
        readers = {name: known[name] for name in known if importlib.util.find_spec(name)}
        paths = sorted(str(path) for path in folder.rglob("*.*"))
        given = (readers, paths, dataset, sized)
        sides = open_tiles(report, *given) if tiles else open_clips(*given)
        pairs = [(OURS, name, SHARE) for name in [*sides][1:]]
        title = f"{case}, {args.device}, batches of {sized.batch_size}"
        measured = replaced(sized, count=max(sized.count, 8 * sized.batch_size))
        unit = "tiles/s" if tiles else "clips/s"
        with open_feeds(sides, [""]) as feeds:
            compare_feeds(report, title, feeds, measured, pairs, least=args.seconds, unit=unit)
