"""Downscaling: `dataprep convert --resize-shorter 256` against a loop over Pillow in as many processes.

The photographs are measured as they are (ImageNet's have 110 KB), and enlarged to JPEGs of
3840x2160 pixels and about 900 KB. Both sides read the same images from memory and write to memory,
in turn. `dataprep` does all of its work: scan, plan,
decoding that detects damage, encoding, index, table, checksums, reading back, and the start of its
second process. The Pillow loop opens, converts to RGB, resizes with Lanczos and saves, in forked
processes, which start at once. With one worker, the ratio compares the time per image and core.
First, the pixels that both sides would encode are compared, and both JPEGs with the pixels of the loop.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import shutil
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import Report, Row, Side, at_least, option, powers_of_two, usual
from inputs import as_jpeg, clear, convert_here, encoded, enlarged, fill_folder, photographs
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from dataprep.engines import default_workers
from dataprep.images.downscale import prepare, resize_image, target_size
from dataprep.images.tiff import orientation_of
from dataprep.images.validate import check_image
from dataprep.options import Downscale, Options

PHOTOS, LARGE = "photographs", "JPEG"
TAKES = "25 minutes on two cores"
NEEDS = "photographs, scikit-image, 3 GB of memory"
OPTIONS = [
    *usual("downscale", count=1440, repeats=3),
    option("--different", 24, "different photographs that the images are made from"),
    option("--workers", powers_of_two(default_workers()), "processes"),
    option("--only", [PHOTOS, LARGE], "kinds of images to measure", choices=[PHOTOS, LARGE]),
]
TO = Downscale(shorter=256)
QUALITY = 90
#: Ratio of images per second to the Pillow loop, and the similarity of the images.
TARGETS = {PHOTOS: at_least(1.5), LARGE: at_least(6.0)}
SIMILAR = {
    "PSNR, dB": at_least(45.0),
    "SSIM": at_least(0.995),
    "dB gained to Pillow's JPEG": at_least(-0.1),
}


def make_images(args: argparse.Namespace, src: Path, kind: str) -> list[Path]:
    """Make an ImageFolder of one kind, and return its different images."""
    files = photographs(args.images)
    folder = args.work / "different"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made: list[Path] = []
    for file in files[:: max(1, len(files) // args.different)][: args.different]:
        data = file.read_bytes() if kind == PHOTOS else as_jpeg(enlarged(file), 900_000)
        made.append(folder / f"{len(made)}.jpg")
        made[-1].write_bytes(data)
    count = args.count * (2 if kind == PHOTOS else 1)
    fill_folder(made, src, max(count, len(made)), 1, shutil.copyfile)
    return made


def by_pillow(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    size = target_size(image.width, image.height, TO)
    return image.resize(size or image.size, Image.Resampling.LANCZOS)


def pillow_loop(files: list[Path], out: Path) -> None:
    for file in files:
        by_pillow(file.read_bytes()).save(out / f"{file.stem}.jpg", quality=QUALITY)


def in_processes(src: Path, out: Path, workers: int) -> None:
    out.mkdir()
    files = sorted(src.rglob("*.jpg"))
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        parts = [(files[number::workers], out) for number in range(workers)]
        pool.starmap(pillow_loop, parts, chunksize=1)
        pool.close()
        pool.join()


def similarity(file: Path) -> tuple[float, float, float] | None:
    """Return PSNR in dB and SSIM between the pixels of both sides, and the dB that our JPEG gains.

    `None` for an image that only `dataprep` rotates, converts to sRGB, or leaves as it is.
    """
    data = file.read_bytes()
    info = check_image(data)
    size = target_size(info.width, info.height, TO)
    with Image.open(io.BytesIO(data)) as image:
        rotated = orientation_of(image.info) != 1
        if size is None or image.mode != "RGB" or image.info.get("icc_profile") or rotated:
            return None
    mine, theirs = resize_image(data, info, size, TO)[0], by_pillow(data)
    pixels = np.asarray(theirs)
    # Both JPEGs have the chroma subsampling that Pillow chooses.
    jpeg = prepare(data, Options(downscale=replace(TO, subsampling="420"))).data
    pillow_jpeg = encoded(theirs, "JPEG", quality=QUALITY)
    gained = decibels(pixels, decoded(jpeg)) - decibels(pixels, decoded(pillow_jpeg))
    ssim = structural_similarity(pixels, mine, channel_axis=2)
    return min(decibels(pixels, np.asarray(mine)), 99.0), ssim, gained


def decibels(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    with np.errstate(divide="ignore"):
        return float(peak_signal_noise_ratio(one, other))


def decoded(jpeg: bytes) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(jpeg)) as image:
        return np.asarray(image.convert("RGB"))


def report_similarity(report: Report, kind: str, files: list[Path]) -> None:
    found = [values for values in map(similarity, files) if values]
    if not found:  # all photographs are small
        return
    columns = dict(zip(SIMILAR, zip(*found, strict=True), strict=True))
    lengths = [file.stat().st_size / 1e6 for file in files]
    rows: list[Row] = []
    for name, values in columns.items():
        low, mean = float(min(values)), float(statistics.mean(values))
        rows.append({"similarity": name, "min": low, "mean": mean})
    title = f"{kind}: {len(found)} images of {min(lengths):.2f} to {max(lengths):.2f} MB"
    report.table(title, rows)
    for row in rows:
        name = row["similarity"]
        which = "mean" if name.startswith("dB") else "min"
        report.check(f"{kind}, {which} {name}", row[which], SIMILAR[name])


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure each kind with each number of processes."""
    src, out = args.work / "src", args.work / "out"
    for kind in args.only:
        report_similarity(report, kind, make_images(args, src, kind))
        count = len(list(src.rglob("*.jpg")))
        sides: dict[str, Side] = {}
        pairs = []
        for workers in args.workers:
            mine, loop = (f"{side}, {kind}, workers: {workers}" for side in ("dataprep", "Pillow"))
            sides[mine] = partial(convert_here, src, out, workers, downscale=TO)
            sides[loop] = partial(in_processes, src, out, workers)
            pairs.append((mine, loop, TARGETS[kind]))
        title, reset = f"{kind}: {count:,} images", partial(clear, out, ready=1 << 24)
        report.compare(title, sides, images=count, repeats=args.repeats, pairs=pairs, reset=reset)
        shutil.rmtree(src)
        shutil.rmtree(out)
