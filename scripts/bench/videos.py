"""Clips of videos: `loaders.ClipSampler` over stored frames beside decoding videos in training.

    python scripts/bench videos

The videos are made: photographs through which a window moves, with noise, in H.264 with 30 frames in
a second and a key frame every 250. A clip is 8 frames at 5 frames in a second, with one random crop
of 224 pixels, flipped and normalized. Workers of a DataLoader seek to the key frame before a random
place, decode up to the last frame of the clip, and resize the frames that they need.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from by_hand import MEAN, STD
from feeds import OURS, Feed, endless, measure_feed, open_feeds, workers_feed
from harness import CORES, DEVICE, Report, at_least, option, usual
from helpers.photographs import photograph
from inputs import convert
from PIL import Image

import loaders

TAKES = "8 minutes"
NEEDS = "2 GB of memory; torchcodec is measured if it is installed"
OPTIONS = [
    *usual("videos", repeats=5, batch_size=8),
    DEVICE,
    option("--count", 32, "videos"),
    option("--frames", 300, "frames of a video"),
    option("--heights", [720, 256], "heights of the videos, 16:9"),
    option("--clips", 64, "clips of a measurement"),
    option("--workers", CORES, "processes of the DataLoaders"),
]
LENGTH, EVERY, SIDE = 8, 6, 224
#: Clips per second beside each DataLoader.
SHARE = at_least(1.0)


def make_videos(folder: Path, count: int, frames: int, height: int) -> None:
    """Write videos with 3 Mbit/s at 720 lines, in 4 classes."""
    width, rng = height * 16 // 9 // 2 * 2, np.random.default_rng(0)
    noise = rng.normal(0, 3, (2 * height, 2 * width, 1)).astype(np.int16)
    for number in range(count):
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
            for at in range(frames):
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
    needed = {start + number * EVERY for number in range(LENGTH)}
    with av.open(path) as video:
        stream: Any = video.streams.video[0]
        stream.codec_context.thread_count = 1
        unit = float(stream.time_base) * 30
        video.seek(int(start / unit), stream=stream)
        found = []
        frames: Any = video.decode(stream)
        for frame in frames:
            if round(frame.pts * unit) in needed:
                found.append(frame.to_ndarray(format="rgb24"))
            if len(found) == LENGTH:
                break
    return np.stack(found)


def read_torchcodec(path: str, start: int) -> Any:
    """Return the frames of a clip, as `read_pyav` does."""
    decoders = importlib.import_module("torchcodec.decoders")
    video = decoders.VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=1)
    return video.get_frames_at([start + number * EVERY for number in range(LENGTH)]).data.numpy()


READERS = {"PyAV": read_pyav, "torchcodec": read_torchcodec}


class Clips(torch.utils.data.Dataset[Any]):
    """A clip at a random place of each video, cropped as RandomResizedCrop does, float32 [T, C, H, W]."""

    def __init__(self, folder: Path, frames: int, reader: Any) -> None:
        self.paths = sorted(map(str, folder.rglob("*.mp4")))
        self.frames, self.reader = frames, reader

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        torch.set_num_threads(1)
        last = self.frames - (LENGTH - 1) * EVERY
        pixels = self.reader(self.paths[number], int(torch.randint(last, ())))
        height, width = pixels.shape[1:3]
        # The usual crop has 0.08 to 1 of the area, and sides from 3:4 to 4:3.
        area, shape = torch.empty(2).uniform_().tolist()
        rows = min(
            height, round((height * width * (0.08 + 0.92 * area)) ** 0.5 * (0.87 + 0.28 * shape))
        )
        columns = min(
            width, round((height * width * (0.08 + 0.92 * area)) ** 0.5 / (0.87 + 0.28 * shape))
        )
        top, left = (int(torch.randint(most + 1, ())) for most in (height - rows, width - columns))
        crop = torch.from_numpy(pixels[:, top : top + rows, left : left + columns])
        images = torch.nn.functional.interpolate(
            crop.permute(0, 3, 1, 2).float(), (SIDE, SIDE), mode="bilinear", antialias=True
        )
        if torch.rand(()) < 0.5:
            images = images.flip(-1)
        return images, int(Path(self.paths[number]).parent.name[5:])


def normalized(images: Any) -> Any:
    mean, std = (torch.tensor(each, device=images.device).view(3, 1, 1) for each in (MEAN, STD))
    return images.div_(255).sub_(mean).div_(std)


@contextmanager
def stored_clips(dataset: Path, args: argparse.Namespace) -> Iterator[Feed]:
    """Open a loader of clips of the stored frames."""
    with loaders.build(
        dataset,
        split="train",
        batch_size=args.batch_size * LENGTH,
        device=args.device,
        transforms="imagenet-train",
        dtype="float32",
        sampler=loaders.ClipSampler(LENGTH),
        last_batch="drop",
    ) as loader:
        yield Feed(endless(loader), loader.options.prefetch)


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure all sides with videos of each height."""
    for height in args.heights:
        folder = args.work / f"videos-{args.count}-{args.frames}-{height}"
        dataset = args.work / f"frames-{height}"
        if not folder.exists():
            make_videos(folder, args.count, args.frames, height)
        shutil.rmtree(dataset, ignore_errors=True)
        start = time.perf_counter()
        convert(folder, dataset, "tfrecord", "--every", EVERY, "--resize-shorter", 256)
        seconds = time.perf_counter() - start
        report.check(f"videos of {height} lines converted per second", args.count / seconds, None)
        openers: dict[str, Any] = {OURS: partial(stored_clips, dataset, args)}
        for name, reader in READERS.items():
            if importlib.util.find_spec(name.lower()) or name == "PyAV":
                clips = Clips(folder, args.frames, reader)
                opener = partial(workers_feed, clips, args, args.workers, normalized)
                openers[f"{name}, {args.workers} workers"] = opener
        with open_feeds(openers) as feeds:
            sides = {name: partial(measure, feed, args.clips) for name, feed in feeds.items()}
            pairs = [(OURS, name, SHARE) for name in list(feeds)[1:]]
            title = f"videos of {height} lines"
            report.compare(
                title, sides, images=1, repeats=args.repeats, pairs=pairs, unit="clips/s"
            )


def measure(feed: Feed, clips: int) -> tuple[float, float]:
    row = measure_feed(feed, clips)
    return row["s"], row["CPU s"]
