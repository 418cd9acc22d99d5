"""Downscaling: `dataprep convert --resize-shorter 256` against a loop over Pillow in as many processes.

    python scripts/bench/downscale.py --images PHOTOS/ --count 1440 --work /dev/shm/bench

PHOTOS is a folder of JPEGs, at any depth; ImageNet's have 110 KB. They are measured as they are,
and enlarged to images of 3840x2160 pixels: JPEGs of about `--length` bytes, baseline and
progressive, PNG and WebP. Both sides read the same images from memory and write to memory, in turn.
`dataprep` does all of its work: scan, plan, decoding that detects damage, encoding, index, table,
checksums, reading back, and the start of its second process. The Pillow loop opens, converts to
RGB, resizes with Lanczos and saves, in forked processes, which start at once. With one worker, the
ratio is that of the time per image and core. Before the measurement, the pixels that both sides
would encode are compared, and both JPEGs with the pixels of the loop.
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

import numpy as np
from images import as_jpeg, clear, encoded, enlarged, photographs, powers_of_two
from PIL import Image
from report import Report, make_parser, time_in_turn
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from dataprep.engines import LocalEngine, default_workers
from dataprep.images.downscale import prepare, resize_image, target_size
from dataprep.images.other_formats import orientation_of
from dataprep.images.validate import check_image
from dataprep.options import Downscale, Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

TO = Downscale(shorter=256)
QUALITY = 90
#: Images of `photographs` are not enlarged.
PHOTOS = "photographs"
KINDS = {
    PHOTOS: ("jpg", "JPEG", {}),
    "JPEG": ("jpg", "JPEG", {}),
    "progressive JPEG": ("jpg", "JPEG", {"progressive": True}),
    "PNG": ("png", "PNG", {"compress_level": 6}),
    "WebP": ("webp", "WEBP", {"quality": 80, "method": 2}),
}
#: Images of the slower kinds, per thousand of --count.
SHARE = {PHOTOS: 2000, "PNG": 150, "WebP": 150}
#: The target of each kind's ratio.
TARGETS = {PHOTOS: "photographs", "JPEG": "jpeg"}


def make_images(photos: Path, src: Path, args: argparse.Namespace, kind: str) -> list[Path]:
    """Make an ImageFolder of one kind, and return its different images."""
    suffix, name, options = KINDS[kind]
    files = photographs(photos)
    count = args.count * SHARE.get(kind, 1000) // 1000
    shutil.rmtree(src, ignore_errors=True)
    (src / "class").mkdir(parents=True)
    made = []
    for number, file in enumerate(files[:: max(1, len(files) // args.different)][: args.different]):
        made.append(src / "class" / f"{number:08d}.{suffix}")
        if kind == PHOTOS:
            data = file.read_bytes()
        else:
            photo = enlarged(file)
            data = (
                as_jpeg(photo, args.length, options)
                if name == "JPEG"
                else encoded(photo, name, options)
            )
        made[-1].write_bytes(data)
    for number in range(len(made), count):
        shutil.copyfile(made[number % len(made)], src / "class" / f"{number:08d}.{suffix}")
    return made


def ours(src: Path, out: Path, workers: int) -> None:
    engine = LocalEngine(workers)
    engine.start("dataprep.shards.write")  # as the command does, while the source is scanned
    convert_dataset(read_source(str(src)), str(out), Options(downscale=TO), engine=engine)


def by_pillow(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    size = target_size(image.width, image.height, TO)
    return image.resize(size or image.size, Image.Resampling.LANCZOS)


def pillow_loop(task: tuple[list[Path], Path]) -> None:
    files, out = task
    for file in files:
        by_pillow(file.read_bytes()).save(out / f"{file.stem}.jpg", quality=QUALITY)


def in_processes(src: Path, out: Path, workers: int) -> None:
    out.mkdir()
    files = sorted((src / "class").iterdir())
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.map(
            pillow_loop, [(files[number::workers], out) for number in range(workers)], chunksize=1
        )
        pool.close()
        pool.join()


def similarity(file: Path) -> tuple[float, float, float] | None:
    """Return PSNR in dB and SSIM between the pixels of both sides, and how many dB the JPEG of `dataprep` gains.

    `None` for an image that only `dataprep` rotates, converts to sRGB, or leaves as it is.
    """
    data = file.read_bytes()
    info = check_image(data)
    size = target_size(info.width, info.height, TO)
    with Image.open(io.BytesIO(data)) as image:
        if (
            size is None
            or image.mode != "RGB"
            or image.info.get("icc_profile")
            or orientation_of(image.info) != 1
        ):
            return None
    mine, theirs = resize_image(data, info, size, TO)[0], by_pillow(data)
    out = io.BytesIO()
    theirs.save(out, "JPEG", quality=QUALITY)
    jpeg = prepare(data, Options(downscale=replace(TO, subsampling="420"))).data  # as Pillow does
    pixels = np.asarray(theirs)
    gained = peak_signal_noise_ratio(pixels, decoded(jpeg)) - peak_signal_noise_ratio(
        pixels, decoded(out.getvalue())
    )
    with np.errstate(divide="ignore"):
        psnr = min(peak_signal_noise_ratio(pixels, mine), 99.0)
    return float(psnr), structural_similarity(pixels, mine, channel_axis=2), float(gained)


def decoded(jpeg: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(jpeg)) as image:
        return np.asarray(image.convert("RGB"))


def report_similarity(report: Report, kind: str, files: list[Path]) -> None:
    found = [values for values in map(similarity, files) if values]
    if not found:  # all photographs are small
        return
    psnr, ssim, gained = zip(*found, strict=True)
    lengths = [file.stat().st_size / 1e6 for file in files]
    title = f"{kind}: {len(psnr)} different images of {min(lengths):.2f} to {max(lengths):.2f} MB"
    rows = [
        {"similarity": name, "min": float(min(values)), "mean": float(statistics.mean(values))}
        for name, values in (
            ("PSNR, dB", psnr),
            ("SSIM", ssim),
            ("dB gained to Pillow's JPEG", gained),
        )
    ]
    report.table(title, rows)
    report.check(f"{kind}, minimum PSNR", float(min(psnr)), "psnr_db")
    report.check(f"{kind}, minimum SSIM", float(min(ssim)), "ssim")
    report.check(
        f"{kind}, mean dB gained to Pillow's JPEG", float(statistics.mean(gained)), "encoded_db"
    )


def measure_kind(report: Report, args: argparse.Namespace, kind: str) -> None:
    src, out = args.work / "src-4k", args.work / "out"
    report_similarity(report, kind, make_images(args.images, src, args, kind))
    count = len(list((src / "class").iterdir()))
    sides, pairs = {}, []
    for workers in args.workers:
        mine, loop = (f"{side}, {kind}, workers: {workers}" for side in ("dataprep", "Pillow"))
        sides[mine] = partial(ours, src, out, workers)
        sides[loop] = partial(in_processes, src, out, workers)
        pairs.append((mine, loop, TARGETS.get(kind, "other")))
    timings = time_in_turn(sides, repeats=args.repeats, reset=lambda: clear(out, ready=1 << 24))
    report.rates(
        f"{kind}: {count:,} images, {args.repeats} repeats after one warm-up", timings, count
    )
    report.ratios(timings, pairs)
    shutil.rmtree(src, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=1440, help="JPEGs in the ImageFolder")
    parser.add_argument(
        "--different",
        type=int,
        default=24,
        help="different photographs that the images are made from",
    )
    parser.add_argument("--length", type=int, default=900_000, help="approximate bytes of a JPEG")
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench"), help="folder in memory"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=powers_of_two(default_workers()))
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of images to measure"
    )
    args = parser.parse_args()
    with Report("downscale", args.json) as report:
        for kind in args.only:
            measure_kind(report, args, kind)


if __name__ == "__main__":
    main()
