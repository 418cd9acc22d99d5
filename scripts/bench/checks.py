"""The cost of checks: `convert --check-shards`, the index check of `loaders.build`, and validating hostile images.

    python scripts/bench/checks.py --images PHOTOS/ --count 20000 --work /dev/shm/bench-checks
    python scripts/bench/checks.py --images PHOTOS/ --hostile FOLDER/

A rerun of a finished conversion is timed with and without --check-shards. The index check is timed
alone, for datasets of both formats. With --hostile, each level of validation converts that folder
with one worker, in a command of its own whose peak of resident memory is shown: a folder of images
that cost a decoder much more than their size.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from images import repeat_images
from report import Report, make_parser, time_in_turn

from loaders.dataset.damage import check_indexes
from loaders.dataset.split import open_split

LEVELS = {
    "header": (),
    "decode": ("--validate", "decode"),
    "resize": ("--resize-shorter", "256"),
    "raw": ("--store", "raw", "--raw-size", "64"),
}
#: Runs a command, and prints the peak of its resident memory in KiB.
MEASURED = (
    "import resource, subprocess, sys; status = subprocess.run(sys.argv[1:],"
    " stdout=subprocess.DEVNULL).returncode;print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss);"
    " sys.exit(status)"
)


def convert_command(source: Path, out: Path, *options: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "dataprep",
        "convert",
        "--src",
        str(source),
        "--out",
        str(out),
        *options,
    ]


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure_checks(report: Report, source: Path, count: int, work: Path, repeats: int) -> None:
    for fmt in ("tfrecord", "webdataset"):
        out = work / fmt
        command = convert_command(source, out, "--fmt", fmt)
        run(command)
        split = open_split(out, "train")
        sides = {
            f"{fmt}, rerun": lambda command=command: run(command),
            f"{fmt}, rerun --check-shards": lambda command=command: run(
                [*command, "--check-shards"]
            ),
            f"{fmt}, index check of build": lambda split=split: check_indexes(split),
        }
        report.rates(f"Images per second, {fmt}", time_in_turn(sides, repeats=repeats), count)


def measure_hostile(report: Report, source: Path, work: Path) -> None:
    rows = []
    for name, options in LEVELS.items():
        shutil.rmtree(work / "hostile", ignore_errors=True)
        command = convert_command(
            source, work / "hostile", "--workers", "1", "--max-rejected", "1", *options
        )
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"--hostile {source}: {done.stderr.strip()}")
        rows.append({"validation": name, "peak MB": int(done.stdout) * 1024 / 1e6})
    report.table("Hostile images", rows)
    report.check("highest peak, MB", max(row["peak MB"] for row in rows), "peak_mb")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=20_000, help="images to convert")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-checks"), help="folder for the files"
    )
    parser.add_argument(
        "--hostile", type=Path, metavar="FOLDER", help="ImageFolder of images to validate"
    )
    args = parser.parse_args()
    with Report("checks", args.json) as report:
        shutil.rmtree(args.work, ignore_errors=True)
        source = repeat_images(args.images, args.work / "images", args.count)
        measure_checks(report, source, args.count, args.work, args.repeats)
        if args.hostile is not None:
            measure_hostile(report, args.hostile, args.work)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
