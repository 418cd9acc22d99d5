"""Downscaling: `dataprep convert --resize-shorter 256` beside a loop over Pillow in as many processes.

Both sides read the same images from memory and write into memory, in turn, in one run:

    python scripts/bench/downscale.py --images PHOTOS/ --count 1440 --work /dev/shm/bench

PHOTOS is a folder of JPEGs, at any depth, of which images of 3840x2160 are made: JPEGs of about `--length` bytes,
baseline and progressive, PNG and WebP. `dataprep` does all of its work: scan, plan, decoding that notices damage,
encoding, index, table, checksums, reading back, and the start of its second process; Pillow's loop opens, converts to
RGB, resizes by Lanczos and saves, in forked processes, which start at once. Before that, what both make of each image
is compared before it is encoded.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import shutil
import statistics
from functools import partial
from pathlib import Path

import compare
import numpy as np
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from dataprep import engines
from dataprep.convert import convert_dataset
from dataprep.images.downscale import resize_image, target_size
from dataprep.images.validate import inspect
from dataprep.options import Downscale, Options
from dataprep.sources import read_source

SIZE = (3840, 2160)
TO = Downscale(shorter=256)
QUALITY = 90
KINDS = {
    "JPEG": ("jpg", "JPEG", {}),
    "progressive JPEG": ("jpg", "JPEG", {"progressive": True}),
    "PNG": ("png", "PNG", {"compress_level": 6}),
    "WebP": ("webp", "WEBP", {"quality": 80, "method": 2}),
}
#: Of how many images in a thousand the slower kinds are measured.
SHARE = {"PNG": 150, "WebP": 150}


def enlarged(file: Path) -> Image.Image:
    """Cut a photograph to 16:9 and bring it to `SIZE`."""
    with Image.open(file) as image:
        photo = Image.fromarray(np.asarray(image.convert("RGB")))  # without a profile, which Pillow's loop would ignore
    height = min(photo.height, photo.width * 9 // 16)
    width = height * 16 // 9
    left, top = (photo.width - width) // 2, (photo.height - height) // 2
    return photo.resize(SIZE, Image.Resampling.LANCZOS, box=(left, top, left + width, top + height))


def encoded(photo: Image.Image, kind: str, options: dict[str, object]) -> bytes:
    out = io.BytesIO()
    photo.save(out, kind, **options)
    return out.getvalue()


def as_jpeg(photo: Image.Image, length: int, options: dict[str, object]) -> bytes:
    """Encode in the highest quality that takes no more than `length` bytes."""
    least, most = 20, 98
    while least < most:
        middle = (least + most + 1) // 2
        if len(encoded(photo, "JPEG", {**options, "quality": middle})) > length:
            most = middle - 1
        else:
            least = middle
    return encoded(photo, "JPEG", {**options, "quality": least})


def make_images(photos: Path, src: Path, call: argparse.Namespace, kind: str) -> list[Path]:
    """Make an ImageFolder of one kind; give its different images."""
    suffix, name, options = KINDS[kind]
    files = sorted(file for file in photos.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise SystemExit(f"{photos} holds no .jpg or .jpeg file")
    count = call.count * SHARE.get(kind, 1000) // 1000
    shutil.rmtree(src, ignore_errors=True)
    (src / "class").mkdir(parents=True)
    made = []
    for number, file in enumerate(files[:: max(1, len(files) // call.different)][: call.different]):
        photo = enlarged(file)
        data = as_jpeg(photo, call.length, options) if name == "JPEG" else encoded(photo, name, options)
        made.append(src / "class" / f"{number:08d}.{suffix}")
        made[-1].write_bytes(data)
    for number in range(len(made), count):
        shutil.copyfile(made[number % len(made)], src / "class" / f"{number:08d}.{suffix}")
    return made


# --- the sides ----------------------------------------------------------------------------------


def ours(src: Path, out: Path, workers: int, count: int) -> None:
    engine = engines.LocalEngine(workers)
    engine.start("dataprep.shards")  # as the command does
    # Enough shards that none of the processes waits long for the others.
    options = Options(shard_samples=-(-count // (8 * workers)), downscale=TO)
    convert_dataset(read_source(str(src)), str(out), options, engine=engine)


def by_pillow(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    size = target_size(image.width, image.height, TO)
    return image.resize(size, Image.Resampling.LANCZOS)


def pillow_loop(task: tuple[list[Path], Path]) -> None:
    files, out = task
    for file in files:
        by_pillow(file.read_bytes()).save(out / f"{file.stem}.jpg", quality=QUALITY)


def in_processes(src: Path, out: Path, workers: int) -> None:
    out.mkdir()
    files = sorted((src / "class").iterdir())
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        pool.map(pillow_loop, [(files[number::workers], out) for number in range(workers)], chunksize=1)
        pool.close()
        pool.join()


# --- likeness -----------------------------------------------------------------------------------


def likeness(file: Path) -> tuple[float, float]:
    """PSNR in dB and SSIM between the two sides' pixels of one image."""
    data = file.read_bytes()
    info = inspect(data)
    mine = resize_image(data, info, target_size(info.width, info.height, TO), TO)[0]
    theirs = np.asarray(by_pillow(data))
    return peak_signal_noise_ratio(theirs, mine), structural_similarity(theirs, mine, channel_axis=2)


def print_likeness(files: list[Path]) -> None:
    psnr, ssim = zip(*map(likeness, files), strict=True)
    lengths = [file.stat().st_size / 1e6 for file in files]
    print(f"{len(files)} different images of {min(lengths):.2f} to {max(lengths):.2f} MB, before encoding:")
    print(f"  PSNR, least and mean: {min(psnr):.1f}, {statistics.mean(psnr):.1f} dB, asked for: 45")
    print(f"  SSIM, least and mean: {min(ssim):.4f}, {statistics.mean(ssim):.4f}, asked for: 0.995")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=1440, help="JPEGs in the ImageFolder made of them")
    parser.add_argument("--different", type=int, default=24, help="photographs that they are made of")
    parser.add_argument("--length", type=int, default=900_000, help="bytes of a JPEG, about")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm/bench"), help="folder in memory")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of images to measure")
    call = parser.parse_args()

    src, out = call.work / "src-4k", call.work / "out"
    for kind in call.only:
        print(f"\n{kind}; load {os.getloadavg()[0]:.2f}")
        different = make_images(call.images, src, call, kind)
        print_likeness(different)
        mine, loop = f"dataprep, {kind}", f"Pillow, {kind}"
        count = len(list((src / "class").iterdir()))
        compare.run(
            {mine: partial(ours, src, out, call.workers, count), loop: partial(in_processes, src, out, call.workers)},
            images=count,
            repeats=call.repeats,
            reset=lambda: compare.clear(out, ready=1 << 24),
            ratios=[(mine, loop, 6.0 if kind == "JPEG" else 1.0)],
        )
    shutil.rmtree(src, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()
