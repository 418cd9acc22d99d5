"""Scaling: images per second of `dataprep convert` with 1, 2, 4, ... worker processes.

The photographs (ImageNet's have 110 KB) are read as they are, and enlarged to JPEGs of 3840x2160
pixels and about 900 KB. Both become JPEGs of 256 pixels, and the first also raw pixels, in one
shard and in many. With N processes, N times as many images are converted as
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import inputs
from harness import IMAGES, ONLY, Report, Row, at_least, chosen, option, powers_of_two, timed, usual
from inputs import as_jpeg, convert_here, copy_photographs, dataprep, enlarged, fill_folder

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
    ONLY,
]
#: Shards per process, where there are many.
SHARDS = 8
#: A side converts at most so many bytes, which are in memory.
MAX_BYTES = 6 << 30
EFFICIENCY, COMMANDS = at_least(0.8), at_least(1.0)


@dataclass(frozen=True)
class Case:
    """What is converted to what, by options and by flags; `guess` is a rate to begin with."""

    source: str
    options: dict[str, Any]
    flags: tuple[str, ...]
    guess: float


RESIZE = ({"downscale": Downscale(shorter=256)}, ("--resize-shorter", "256"))
CASES = {
    "110 KB to 256": Case("photos", *RESIZE, 400),
    "4K to 256": Case("4k", *RESIZE, 60),
    "110 KB to raw": Case("photos", {"raw": Raw(256)}, ("--store", "raw"), 450),
}


def make_originals(args: argparse.Namespace) -> dict[str, list[Path]]:
    """Copy the photographs, and enlarge some of them; return the files of each kind."""
    copies = copy_photographs(args.images, args.work)
    kinds: dict[str, list[Path]] = {"photos": copies, "4k": []}
    photos = inputs.photographs(args.images)
    some = photos[:: max(1, len(photos) // args.different)][: args.different]
    with multiprocessing.get_context("spawn").Pool(min(default_workers(), len(some))) as pool:
        for number, data in enumerate(pool.imap(enlarge, some)):
            kinds["4k"].append(args.work / "originals" / f"4k-{number}.jpg")
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


def measure(
    report: Report, name: str, case: Case, originals: list[Path], args: argparse.Namespace
) -> None:
    """Measure all numbers of processes, with one shard and with many."""
    src, out = args.work / "src", args.work / "out"
    most, rates = args.workers[-1], dict[str, float]()
    size = sum(file.stat().st_size for file in originals) / len(originals)
    guess, single = case.guess, f"{most} commands of one worker"

    def measured(name: str, count: int, processes: int, side: Callable[[], object]) -> Row:
        shutil.rmtree(out, ignore_errors=True)
        with timed() as row:
            side()
        shutil.rmtree(out)
        rates[name] = count / row["seconds"]
        row = {"processes": name, "images": count, **row, "images/s": round(rates[name])}
        row["CPU ms/image"] = row.pop("CPU s") / count * 1e3
        return row | {"efficiency": rates[name] / processes / rates["1 workers"]}

    for shards in (1, SHARDS):
        rows = []
        for workers in args.workers:
            count = max(workers, min(int(guess * args.seconds * workers), int(MAX_BYTES / size)))
            fill_folder(originals, src, count)
            per_shard = count if shards == 1 else max(1, count // (shards * workers))
            options = {"shard_samples": per_shard, **case.options}
            side: Callable[[], object] = partial(convert_here, src, out, workers, **options)
            rows.append(measured(f"{workers} workers", count, workers, side))
            guess = max(guess, rates["1 workers"])
        if shards == 1 and most > 1:
            count = max(1, min(int(guess * args.seconds), int(MAX_BYTES / size / most)))
            fill_folder(originals, src, count)
            side = partial(convert_apart, src, out, case, most, count)
            rows.append(measured(single, count * most, most, side))
        title = f"{name}, {'one shard' if shards == 1 else 'many shards'}"
        report.table(title, rows)
        if most > 1:
            rate = rates[f"{most} workers"]
            efficiency = rate / most / rates["1 workers"]
            report.check(f"{title}: efficiency of {most} workers", efficiency, EFFICIENCY)
            commands = f"{title}: {most} workers / {most} commands"
            report.check(commands, rate / rates[single], COMMANDS)


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure the cases."""
    args.workers = sorted({1, *args.workers})
    try:
        originals = make_originals(args)
        for name, case in chosen(CASES, args.only).items():
            measure(report, name, case, originals[case.source], args)
    finally:
        shutil.rmtree(args.work, ignore_errors=True)
