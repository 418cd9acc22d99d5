"""Scaling: images per second of `dataprep convert` with 1, 2, 4, ... worker processes.

The photographs (ImageNet's have 110 KB) are read as they are, and enlarged to JPEGs of 3840x2160
pixels and about 900 KB. Both become JPEGs of 256 pixels or raw pixels, in one shard and in many;
the images as they are are also copied. With N processes, N times as many images are converted as
with one, for about `--seconds`. A rate includes everything: the start of the processes, scan, plan,
checksums, reading back, index, table and manifest.

The efficiency of N processes is their rate, divided by N times the rate of one. Cores that share
caches, memory and power are slower together: `N commands of one worker`, which share nothing but
the machine, show how much.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import IMAGES, Report, Row, Target, at_least, cpu_seconds, option, usual
from inputs import (
    as_jpeg,
    convert_here,
    dataprep,
    enlarged,
    link_images,
    photographs,
    powers_of_two,
)

from dataprep.engines import default_workers
from dataprep.options import Downscale, Raw

TAKES = "5 minutes on 16 cores"
NEEDS = "photographs, 1 GB of memory for each core, many cores to be of use"
OPTIONS = [
    *usual("scaling"),
    IMAGES,
    option("--workers", powers_of_two(default_workers()), "numbers of processes"),
    option("--seconds", 4.0, "approximate time of one measurement"),
    option("--different", 16, "different 4K images"),
    option("--only", [""], "measure only the cases that contain one of these words"),
]
#: Shards per process, where there are many.
SHARDS = 8
#: A side converts at most so many bytes: copying is too fast for the memory otherwise.
MAX_BYTES = 6 << 30
EFFICIENCY, COMMANDS = at_least(0.8), at_least(1.0)


@dataclass(frozen=True)
class Case:
    """What is converted to what, by options and by flags; `guess` is a rate to begin with."""

    name: str
    source: str
    options: dict[str, Any]
    flags: tuple[str, ...]
    target: Target | None
    guess: float


RESIZE = ({"downscale": Downscale(shorter=256)}, ("--resize-shorter", "256"), EFFICIENCY)
CASES = (
    Case("110 KB to 256", "photos", *RESIZE, 400),
    Case("4K to 256", "4k", *RESIZE, 60),
    Case("110 KB to raw", "photos", {"raw": Raw(256)}, ("--store", "raw"), EFFICIENCY, 450),
    Case("110 KB as they are", "photos", {}, (), None, 8000),
)


def make_originals(args: argparse.Namespace) -> dict[str, list[Path]]:
    """Copy the photographs, and enlarge some of them; return the files of each kind."""
    photos = photographs(args.images)
    folder = args.work / "originals"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kinds: dict[str, list[Path]] = {"photos": [], "4k": []}
    for number, photo in enumerate(photos):
        kinds["photos"].append(folder / f"{number}.jpg")
        shutil.copyfile(photo, kinds["photos"][-1])
    some = photos[:: max(1, len(photos) // args.different)][: args.different]
    with multiprocessing.get_context("spawn").Pool(min(default_workers(), len(some))) as pool:
        for number, data in enumerate(pool.imap(enlarge, some)):
            kinds["4k"].append(folder / f"4k-{number}.jpg")
            kinds["4k"][-1].write_bytes(data)
    return kinds


def enlarge(photo: Path) -> bytes:
    return as_jpeg(enlarged(photo), 900_000)


def convert_apart(src: Path, out: Path, case: Case, workers: int, count: int) -> None:
    """Run `workers` commands of one worker, each of which converts all of `src`."""
    out.mkdir()
    options = ("--workers", 1, *case.flags, "--samples-per-shard", count)
    running = []
    for number in range(workers):
        command = dataprep("convert", "--src", src, *options, "--out", out / str(number))
        running.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        )
    if any(process.wait() for process in running):
        raise SystemExit(f"a command failed: {running[0].args!r}")


def measure(report: Report, case: Case, originals: list[Path], args: argparse.Namespace) -> None:
    """Measure all numbers of processes, with one shard and with many."""
    src, out = args.work / "src", args.work / "out"
    most, rates = args.workers[-1], dict[int, float]()
    size = sum(file.stat().st_size for file in originals) / len(originals)
    guess, apart = case.guess, 1.0

    def timed(name: str, count: int, processes: int, side: Callable[..., None]) -> Row:
        shutil.rmtree(out, ignore_errors=True)
        start, cpu_start = time.perf_counter(), cpu_seconds()
        side()
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu_start
        shutil.rmtree(out)
        one = rates.setdefault(1, count / seconds)
        row = {"processes": name, "images": count, "seconds": seconds}
        row |= {"images/s": round(count / seconds), "CPU ms/image": cpu / count * 1e3}
        return row | {"efficiency": count / seconds / processes / one}

    for shards in ("one shard", "many shards"):
        rows = []
        rates.clear()
        for workers in args.workers:
            count = max(workers, min(int(guess * args.seconds * workers), int(MAX_BYTES / size)))
            link_images(originals, src, count)
            per_shard = count if shards == "one shard" else max(1, count // (SHARDS * workers))
            options = {"shard_samples": per_shard, **case.options}
            side = partial(convert_here, src, out, workers, **options)
            rows.append(timed(f"{workers} workers", count, workers, side))
            rates[workers] = count / rows[-1]["seconds"]
            guess = max(guess, rates[1])
        if shards == "one shard" and most > 1:
            count = max(1, min(int(guess * args.seconds), int(MAX_BYTES / size / most)))
            link_images(originals, src, count)
            side = partial(convert_apart, src, out, case, most, count)
            rows.append(timed(f"{most} commands of one worker", count * most, most, side))
            apart = count * most / rows[-1]["seconds"]
        title = f"{case.name}, {shards}"
        report.table(title, rows)
        if case.target and most > 1:
            efficiency = rates[most] / most / rates[1]
            report.check(f"{title}: efficiency of {most} workers", efficiency, case.target)
            report.check(
                f"{title}: {most} workers / {most} commands", rates[most] / apart, COMMANDS
            )


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure the cases."""
    args.workers = sorted({1, *args.workers})
    try:
        originals = make_originals(args)
        for case in CASES:
            if any(word in case.name for word in args.only):
                measure(report, case, originals[case.source], args)
    finally:
        shutil.rmtree(args.work, ignore_errors=True)
