"""Inputs of the benchmarks: photographs repeated up to a count, and the page cache."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image


def powers_of_two(most: int) -> list[int]:
    return sorted({*(1 << bit for bit in range(most.bit_length())), most})


def photographs(folder: Path) -> list[Path]:
    """Return the JPEGs of a folder, at any depth."""
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit(f"{folder} has no .jpg or .jpeg files")
    return found


def repeat_images(photos: Path, src: Path, count: int, classes: int = 100) -> Path:
    """Make an ImageFolder of `count` images from the photographs; each image is a separate file."""
    if src.exists() and sum(len(files) for _, _, files in os.walk(src)) == count:
        return src
    shutil.rmtree(src, ignore_errors=True)
    files = photographs(photos)
    for number in range(count):
        folder = src / f"class{number % classes:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(files[number % len(files)], folder / f"{number:08d}.jpg")
    return src


SIZE_4K = (3840, 2160)


def enlarged(file: Path) -> Image.Image:
    """Crop a photograph to 16:9 and resize it to `SIZE_4K`."""
    with Image.open(file) as image:
        # Copy the pixels to drop the color profile, because the Pillow loop ignores it.
        photo = Image.fromarray(np.asarray(image.convert("RGB")))
    height = min(photo.height, photo.width * 9 // 16)
    width = height * 16 // 9
    left, top = (photo.width - width) // 2, (photo.height - height) // 2
    return photo.resize(
        SIZE_4K, Image.Resampling.LANCZOS, box=(left, top, left + width, top + height)
    )


def encoded(photo: Image.Image, kind: str, options: dict[str, object]) -> bytes:
    out = io.BytesIO()
    photo.save(out, kind, **options)
    return out.getvalue()


def as_jpeg(photo: Image.Image, length: int, options: dict[str, object]) -> bytes:
    """Encode with the highest quality that needs at most `length` bytes."""
    low, high = 20, 98
    while low < high:
        middle = (low + high + 1) // 2
        if len(encoded(photo, "JPEG", {**options, "quality": middle})) > length:
            high = middle - 1
        else:
            low = middle
    return encoded(photo, "JPEG", {**options, "quality": low})


def shard_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in (".tfrecord", ".tar"))


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def clear(out: Path, *, ready: int) -> None:
    """Remove the output of a side, and make `ready` bytes of memory available to the next one.

    A virtual machine returns free memory to its host, and the next side to use it would wait to get
    it back.
    """
    shutil.rmtree(out, ignore_errors=True)
    ballast = out.with_name("ballast")
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, ready)
    ballast.unlink()


def drop_pages(files: Iterable[Path]) -> None:
    """Drop files from the page cache, so that the next read comes from the disk."""
    for file in files:
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def require_disk(folder: Path) -> None:
    """Exit if --cold is used with a folder in memory, whose pages cannot be dropped."""
    existing = next(each for each in (folder.resolve(), *folder.resolve().parents) if each.exists())
    query = ["stat", "-f", "-c", "%T", existing]
    kind = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"--cold: {folder} is in memory. Hint: set --work to a folder on a disk.")
