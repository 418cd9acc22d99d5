"""Preparation: `dataprep convert` with 1, 2, 4, ... processes, beside a loop over Pillow and commands of one process.

    python scripts/bench convert --images PHOTOS/
    python scripts/bench convert --images PHOTOS/ --only 256 --workers 1 --repeats 3

The photographs (ImageNet's have 110 KB), and the same enlarged to JPEGs of 3840x2160 pixels and about
900 KB, become JPEGs of 256 pixels, and the first also raw pixels, in one shard and in many, from memory
to memory. With N processes, N times as many images are converted as with one. The rates of `dataprep`
include everything from scan to manifest. The Pillow loop opens, converts to RGB, resizes with Lanczos
and saves, in forked processes.

The efficiency of N processes is their rate, divided by N times the rate of one. Cores that share
caches, memory and power are slower together: N commands of one process, which share nothing but the
machine, show how much. First, the pixels that both sides would encode are compared, and both JPEGs
with the pixels of the loop.
"""

import io
import itertools
import multiprocessing
import shutil
import statistics
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import IMAGES, ONLY, Report, Side, Target, at_least, chosen, option, usual
from inputs import convert, convert_here, copy_photographs, encoded, fill_folder
from PIL import Image, ImageOps

from dataprep.engines import default_workers
from dataprep.images.downscale import prepare, resize_image, target_size
from dataprep.images.tiff import orientation_of
from dataprep.images.validate import check_image
from dataprep.options import Downscale, Options

TAKES = "15 minutes on 16 cores; needs photographs, 1 GB of memory for each core, many cores to be of use"
POWERS = [1 << bit for bit in range(default_workers().bit_length())]
OPTIONS = [
    *usual("convert", repeats=1, workers=sorted({*POWERS, default_workers()})),
    IMAGES,
    option("--seconds", 4.0, "approximate time of one measurement"),
    option("--different", 24, "different 4K images"),
    ONLY,
]
OURS, PILLOW, COMMANDS = "dataprep", "Pillow", "commands of one process"
#: Shards per process, where there are many; and bytes of the images of a side, which are in memory.
SHARDS, MAX_BYTES = 8, 6 << 30
EFFICIENCY, TO_COMMANDS = at_least(0.8), at_least(1.0)
TO, QUALITY = Downscale(shorter=256), 90
#: Of a resized image beside the Pillow loop's: the worst PSNR in dB, and the mean dB that its JPEG gains.
PSNR, GAINED = at_least(45.0), at_least(-0.1)


@dataclass(frozen=True)
class Case:
    """What is converted, with which options; `guess` is a rate of one process."""

    large: bool
    options: dict[str, Any]
    guess: float
    to_pillow: Target | None = None


CASES = {
    "110 KB to 256": Case(False, {"resize_shorter": 256}, 400, at_least(1.5)),
    "4K to 256": Case(True, {"resize_shorter": 256}, 60, at_least(6.0)),
    "110 KB to raw": Case(False, {"store": "raw"}, 450),
}


def enlarge(file: Path, length: int = 900_000) -> bytes:
    """Crop and resize a photograph to 4K, and encode with the highest quality that needs at most `length` bytes."""
    with Image.open(file) as image:
        # Copy the pixels to drop the color profile, because the Pillow loop ignores it.
        photo = Image.fromarray(np.asarray(image.convert("RGB")))
    large = ImageOps.fit(photo, (3840, 2160), Image.Resampling.LANCZOS)
    low, high = 20, 98
    while low < high:
        middle = (low + high + 1) // 2
        if len(encoded(large, "JPEG", quality=middle)) > length:
            high = middle - 1
        else:
            low = middle
    return encoded(large, "JPEG", quality=low)


def enlarge_some(files: list[Path], different: int) -> list[Path]:
    found = []
    for file in files[:: max(1, len(files) // different)][:different]:
        found.append(file.with_name(f"4k-{file.name}"))
        found[-1].write_bytes(enlarge(file))
    return found


def resized(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    size = target_size(image.width, image.height, TO)
    return image.resize(size or image.size, Image.Resampling.LANCZOS)


def decibels(one: Any, other: Any) -> float:
    """Return the PSNR of two images, at most 99."""
    error = np.square(np.asarray(one, np.float64) - np.asarray(other)).mean()
    return float(10 * np.log10(255**2 / max(error, 255**2 / 10**9.9)))


def similarity(file: Path) -> tuple[float, float] | None:
    """Return the PSNR of the pixels of both sides, and the dB that our JPEG gains."""
    data = file.read_bytes()
    info = check_image(data)
    size = target_size(info.width, info.height, TO)
    with Image.open(io.BytesIO(data)) as image:
        rotated = orientation_of(image.info) != 1
        if size is None or image.mode != "RGB" or image.info.get("icc_profile") or rotated:
            return None
    theirs = resized(data)
    # Both JPEGs have the chroma subsampling that Pillow chooses.
    jpegs = (
        prepare(data, Options(downscale=replace(TO, subsampling="420"))).data,
        encoded(theirs, "JPEG", quality=QUALITY),
    )
    ours, pillow = (decibels(theirs, Image.open(io.BytesIO(jpeg))) for jpeg in jpegs)
    return decibels(theirs, resize_image(data, info, size, TO)[0]), ours - pillow


def save_resized(file: Path, out: Path) -> None:
    resized(file.read_bytes()).save(out / file.name, quality=QUALITY)


def by_pillow(src: Path, out: Path, processes: int) -> None:
    out.mkdir()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        pool.map(partial(save_resized, out=out), sorted(src.rglob("*.jpg")))


def convert_apart(src: Path, out: Path, options: dict[str, Any], commands: int) -> None:
    """Run commands of one process, each of which converts all of `src`."""
    flags = ["--workers=1", "--samples-per-shard=1000000"]
    flags += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with ThreadPoolExecutor(commands) as pool:
        places = [out / str(number) for number in range(commands)]
        list(pool.map(lambda place: convert(src, place, "tfrecord", *flags), places))


def measure(report: Report, name: str, case: Case, files: list[Path], args: Namespace) -> None:
    """Measure all numbers of processes, with one shard and with many."""
    src, part, out = (args.work / folder for folder in ("src", "part", "out"))
    most = args.workers[-1]
    size = statistics.fmean(file.stat().st_size for file in files)
    each = max(1, min(int(case.guess * args.seconds), int(MAX_BYTES / size / most)))
    fill_folder(files, part, each)
    alone = 0.0
    for shards, workers in itertools.product((1, SHARDS), args.workers):
        count = each * workers
        fill_folder(files, src, count)
        sizes = {"samples_per_shard": max(1, count // (shards * workers if shards > 1 else 1))}
        given = {"workers": workers, **sizes, **case.options}
        sides: dict[str, Side] = {OURS: partial(convert_here, src, out, **given)}
        if shards == 1 and case.to_pillow:
            sides[PILLOW] = partial(by_pillow, src, out, workers)
        if shards == 1 and workers == most > 1:
            sides[COMMANDS] = partial(convert_apart, part, out, case.options, most)
        title = f"{name}, {'one shard' if shards == 1 else 'many shards'}, processes: {workers}"
        pairs = [(OURS, PILLOW, case.to_pillow), (OURS, COMMANDS, TO_COMMANDS)]
        reset = partial(shutil.rmtree, out, ignore_errors=True)
        seconds = report.compare(title, sides, count, args.repeats, pairs=pairs, reset=reset)
        if workers == 1:
            alone = seconds[OURS]
            continue
        report.check(f"{title}: efficiency", alone / seconds[OURS], EFFICIENCY)
        if COMMANDS in seconds:
            report.check(f"{title}: efficiency of {COMMANDS}", alone / seconds[COMMANDS])


def run(report: Report, args: Namespace) -> None:
    args.workers = sorted({1, *args.workers})
    photos = copy_photographs(args.images, args.work)
    for name, case in chosen(CASES, args.only).items():
        files = enlarge_some(photos, args.different) if case.large else photos
        found = [values for values in map(similarity, files) if values] if case.to_pillow else []
        if found:  # not all photographs are small
            psnr, gains = zip(*found, strict=True)
            report.check(f"{name}, worst PSNR", min(psnr), PSNR, f"{len(found)} images")
            note = f"worst {min(gains):.2f}"
            report.check(f"{name}, mean gain", statistics.fmean(gains), GAINED, note)
        measure(report, name, case, files, args)
    shutil.rmtree(args.work)
