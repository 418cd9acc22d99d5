"""What the benchmarks share: the same images for every side, sides in turn, repeats, spread and ratios."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def photographs(folder: Path) -> list[Path]:
    """Return the JPEGs of a folder, at any depth."""
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit(f"{folder} holds no .jpg or .jpeg file")
    return found


def refuse_memory(folder: Path) -> None:
    """Refuse a folder for measurements with --cold whose files are in memory, where no page can be dropped."""
    there = next(each for each in (folder.resolve(), *folder.resolve().parents) if each.exists())
    kind = subprocess.run(["stat", "-f", "-c", "%T", there], check=True, capture_output=True, text=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"--cold: {folder} is in memory and cannot be cold; name a folder on a disk with --work")


def paired(left: Sequence[float], right: Sequence[float]) -> list[float]:
    """Return how many times as fast as the right the left side was, sorted.

    Sides that ran one after the other are compared, so that a slow moment of the machine hits both.
    """
    return sorted(b / a for a, b in zip(left, right, strict=True))


def repeat_images(photos: Path, src: Path, count: int, classes: int = 100) -> Path:
    """Make an ImageFolder of `count` images out of a few; each is a file of its own."""
    if src.exists() and sum(len(files) for _, _, files in os.walk(src)) == count:
        return src
    shutil.rmtree(src, ignore_errors=True)
    files = photographs(photos)
    for number in range(count):
        folder = src / f"class{number % classes:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(files[number % len(files)], folder / f"{number:08d}.jpg")
    return src


def length(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def clear(out: Path, *, ready: int) -> None:
    """Remove a side's output and have `ready` bytes of memory at hand, so that none pays for getting them first.

    A virtual machine gives memory that is free back to its host, and the next side to use it would wait for it.
    """
    shutil.rmtree(out, ignore_errors=True)
    ballast = out.with_name("ballast")
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, ready)
    ballast.unlink()


def processor_seconds() -> float:
    """Time that this process and its ended children were at work: what others on the machine take is not in it."""
    return sum(os.times()[:4])


def run(
    sides: dict[str, Callable[[], float | None]],
    *,
    images: int,
    repeats: int,
    reset: Callable[[], None],
    ratios: Sequence[tuple[str, str, float]],
) -> None:
    """Time every side `repeats` times, in turn, after one round that does not count; print rates and ratios.

    A side that returns seconds has timed itself.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    busy: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        for name, side in sides.items():
            reset()
            begun, worked = time.perf_counter(), processor_seconds()
            timed = side()
            if repeat:
                seconds[name].append(time.perf_counter() - begun if timed is None else timed)
                busy[name].append(processor_seconds() - worked)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{images:,} images, {repeats} repeats after one warm-up; images a second:")
    print(f"  {'':34}{'median':>10}{'least':>10}{'most':>10}   processor, least")
    for name, times in seconds.items():
        rates = sorted(images / t for t in times)
        spent = min(busy[name]) / images * 1e6
        print(
            f"  {name:34}{statistics.median(rates):>10,.0f}{rates[0]:>10,.0f}{rates[-1]:>10,.0f}{spent:>8,.0f} us/image"
        )
    for left, right, bar in ratios:
        if left in seconds and right in seconds:
            pairs = paired(seconds[left], seconds[right])
            print(
                f"{left} / {right}: {statistics.median(pairs):.2f} (of pairs {pairs[0]:.2f} to {pairs[-1]:.2f}), "
                f"asked for: {bar:g}"
            )
