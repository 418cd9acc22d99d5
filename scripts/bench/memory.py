"""Memory and time to plan a conversion, by size of the dataset: scan and plan of empty files in 1,000 class folders.

    python scripts/bench/memory.py --work /dev/shm/bench-memory

Each size runs in a new process. The table shows its peak resident memory, and the bytes per
additional sample, compared with the smallest size.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import time
from pathlib import Path
from typing import Any

from report import Report, make_parser

from dataprep.options import Options
from dataprep.plan.assign import make_plan
from dataprep.sources import read_source


def make_files(folder: Path, count: int) -> None:
    for number in range(1000):
        (folder / f"n{number:08d}").mkdir(parents=True)
    for number in range(count):
        name = f"n{number % 1000:08d}"
        (folder / name / f"{name}_{number:08d}.JPEG").touch()


def measure(folder: str) -> tuple[int, float, float]:
    """Return the peak resident memory in bytes, the seconds to scan, and the seconds to plan."""
    start = time.perf_counter()
    source = read_source(folder)
    scanned = time.perf_counter()
    make_plan(source, Options(shard_samples=2400))
    planned = time.perf_counter()
    return (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        scanned - start,
        planned - scanned,
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-memory"), help="folder for the files"
    )
    parser.add_argument(
        "--counts", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="samples"
    )
    args = parser.parse_args()
    with Report("memory", args.json) as report:
        rows: list[dict[str, Any]] = []
        for count in args.counts:
            shutil.rmtree(args.work, ignore_errors=True)
            make_files(args.work, count)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                peak, scan, plan = pool.apply(measure, (str(args.work),))
            added = (peak - rows[0]["peak MB"] * 1e6) / (count - args.counts[0]) if rows else 0.0
            rows.append({
                "samples": f"{count:,}", "peak MB": peak / 1e6, "scan s": scan, "plan s": plan, "bytes/sample": added
            })  # fmt: skip
        report.table("Planning", rows)
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
