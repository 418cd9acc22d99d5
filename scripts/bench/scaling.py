"""Scaling: images per second of `dataprep convert` with 1, 2, 4, ... worker processes.

    python scripts/bench/scaling.py --photos PHOTOS/

PHOTOS is a folder of JPEGs, at any depth; ImageNet's have 110 KB. They are read as they are, and
enlarged to JPEGs of 3840x2160 pixels and about 900 KB. Both become JPEGs of 256 pixels or raw
pixels, in one shard and in many; the images as they are are also copied. With N processes, N times
as many images are converted as with one, for about `--seconds`. A rate includes everything: the
start of the processes, scan, plan, checksums, reading back, index, table and manifest.

The efficiency of N processes is their rate, divided by N times the rate of one. Cores that share
caches, memory and power are slower together: `N commands of one worker`, which share nothing but
the machine, show how much.

On 16 cores it takes about 5 minutes and 15 GB in --work, a folder in memory if there is one of that
size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from images import as_jpeg, enlarged, photographs, powers_of_two
from report import Report, cpu_seconds, make_parser

from dataprep.engines import LocalEngine, default_workers
from dataprep.options import Downscale, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

CLASSES = 100
#: Shards per process, where there are many.
SHARDS = 8
#: A side converts at most so many images: copying is too fast for the memory otherwise.
MAX_BYTES = 6 << 30


@dataclass(frozen=True)
class Case:
    """What is converted to what.

    `target` names the lowest efficiency, `guess` is a rate to begin with.
    """

    name: str
    source: str
    options: Options
    flags: tuple[str, ...]
    target: str | None
    guess: float


RESIZE = (Options(downscale=Downscale(shorter=256)), ("--resize-shorter", "256"))
CASES = (
    Case("110 KB to 256", "photos", *RESIZE, "efficiency", 400),
    Case("4K to 256", "4k", *RESIZE, "efficiency", 60),
    Case("110 KB to raw", "photos", Options(raw=Raw(256)), ("--store", "raw"), "efficiency", 450),
    Case("110 KB as they are", "photos", Options(), (), None, 8000),
)


# --- images --------------------------------------------------------------------------------------


def make_originals(photos: list[Path], folder: Path, different: int) -> dict[str, list[Path]]:
    """Copy the photographs to the folder, and enlarge some of them.

    Return the files of each kind.
    """
    kinds: dict[str, list[Path]] = {"photos": [], "4k": []}
    for kind in kinds:
        (folder / kind).mkdir(parents=True)
    for number, photo in enumerate(photos):
        kinds["photos"].append(folder / "photos" / f"{number}.jpg")
        shutil.copyfile(photo, kinds["photos"][-1])
    with multiprocessing.get_context("spawn").Pool(min(default_workers(), different)) as pool:
        for number, data in enumerate(
            pool.imap(enlarge, photos[:: max(1, len(photos) // different)][:different])
        ):
            kinds["4k"].append(folder / "4k" / f"{number}.jpg")
            kinds["4k"][-1].write_bytes(data)
    return kinds


def enlarge(photo: Path) -> bytes:
    return as_jpeg(enlarged(photo), 900_000, {})


def link_images(originals: list[Path], src: Path, count: int) -> None:
    """Make an ImageFolder of hard links: many images, in the memory of a few."""
    shutil.rmtree(src, ignore_errors=True)
    for number in range(min(CLASSES, count)):
        (src / f"class{number:04d}").mkdir(parents=True)
    for number in range(count):
        os.link(
            originals[number % len(originals)],
            src / f"class{number % CLASSES:04d}" / f"{number:08d}.jpg",
        )


# --- sides ---------------------------------------------------------------------------------------


def convert(src: Path, out: Path, case: Case, workers: int, shard_samples: int) -> None:
    engine = LocalEngine(workers)
    engine.start("dataprep.shards.write")  # as the command does, while the source is scanned
    members = {field: getattr(case.options, field) for field in ("downscale", "raw")}
    convert_dataset(
        read_source(str(src)),
        str(out),
        Options(shard_samples=shard_samples, **members),
        engine=engine,
    )


def convert_apart(src: Path, out: Path, case: Case, workers: int, count: int) -> None:
    """Run `workers` commands of one worker each.

    Every one converts all of `src`, which has its share of images.
    """
    command = [
        sys.executable,
        "-m",
        "dataprep",
        "convert",
        "--src",
        src,
        "--workers",
        "1",
        *case.flags,
    ]
    command += ["--samples-per-shard", count]
    out.mkdir()
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [
        subprocess.Popen([*map(str, command), "--out", str(out / str(number))], **pipes)
        for number in range(workers)
    ]
    if any(process.wait() for process in running):
        raise SystemExit(f"a command failed: {command}")


def timed(side: partial[None], out: Path) -> tuple[float, float]:
    """Return the seconds that a side takes, and the seconds of CPU time."""
    shutil.rmtree(out, ignore_errors=True)
    start, cpu_start = time.perf_counter(), cpu_seconds()
    side()
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu_start
    shutil.rmtree(out)
    return seconds, cpu


def measure(report: Report, case: Case, originals: list[Path], args: argparse.Namespace) -> None:
    src, out = args.work / "src", args.work / "out"
    size = sum(file.stat().st_size for file in originals) / len(originals)
    guess, apart = case.guess, 1.0
    for shards in ("one shard", "many shards"):
        rows, rates = [], {}
        for workers in args.workers:
            count = max(workers, min(int(guess * args.seconds * workers), int(MAX_BYTES / size)))
            link_images(originals, src, count)
            per_shard = count if shards == "one shard" else max(1, count // (SHARDS * workers))
            seconds, cpu = timed(partial(convert, src, out, case, workers, per_shard), out)
            rates[workers] = count / seconds
            guess = max(guess, rates[workers] / workers) if workers == 1 else guess
            rows.append(
                row(f"{workers} workers", count, seconds, cpu, rates[workers] / workers / rates[1])
            )
        most = args.workers[-1]
        if shards == "one shard" and most > 1:
            count = max(1, min(int(guess * args.seconds), int(MAX_BYTES / size / most)))
            link_images(originals, src, count)
            seconds, cpu = timed(partial(convert_apart, src, out, case, most, count), out)
            apart = count * most / seconds
            rows.append(
                row(
                    f"{most} commands of one worker",
                    count * most,
                    seconds,
                    cpu,
                    apart / most / rates[1],
                )
            )
        report.table(f"{case.name}, {shards}", rows)
        if case.target and most > 1:
            name = f"{case.name}, {shards}: efficiency of {most} workers"
            report.check(name, rates[most] / most / rates[1], case.target)
            report.check(
                f"{case.name}, {shards}: {most} workers / {most} commands",
                rates[most] / apart,
                "commands",
            )


def row(name: str, count: int, seconds: float, cpu: float, efficiency: float) -> dict[str, object]:
    return {
        "processes": name, "images": count, "seconds": seconds, "images/s": round(count / seconds),
        "CPU ms/image": cpu / count * 1e3, "efficiency": efficiency,
    }  # fmt: skip


def default_work() -> Path:
    """Return a new folder in memory, or on the disk if the file system in memory is small."""
    memory = Path("/dev/shm")
    in_memory = memory.is_dir() and shutil.disk_usage(memory).free > 16 << 30
    return Path(tempfile.mkdtemp(prefix="scaling-", dir=memory if in_memory else None))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--workers", type=int, nargs="+", default=powers_of_two(default_workers()))
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="approximate time of one measurement"
    )
    parser.add_argument("--different", type=int, default=16, help="different 4K images")
    parser.add_argument(
        "--work",
        type=Path,
        help="new folder  [default: in memory if there is room, else on the disk]",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="measure only the cases that contain one of these words",
    )
    args = parser.parse_args()
    args.workers = sorted({1, *args.workers})
    args.work = args.work or default_work()
    cases = [case for case in CASES if any(word in case.name for word in args.only)]
    try:
        with Report("scaling", args.json) as report:
            print(f"in {args.work}")
            originals = make_originals(
                photographs(args.photos), args.work / "originals", args.different
            )
            for case in cases:
                measure(report, case, originals[case.source], args)
    finally:
        shutil.rmtree(args.work, ignore_errors=True)


if __name__ == "__main__":
    main()
