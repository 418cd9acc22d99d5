"""Memory of the planning process by dataset size: scan, plan and the tasks' columns, for empty files in class folders.

    python scripts/bench/memory.py --work /dev/shm/bench-memory

Each size runs in a process of its own; printed are its peak resident memory and what a sample adds to the smallest.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import time
from pathlib import Path

from dataprep.plan import Options, make_plan
from dataprep.sources import read_source


def make_files(folder: Path, count: int) -> None:
    for number in range(1000):
        (folder / f"n{number:08d}").mkdir(parents=True)
    for number in range(count):
        name = f"n{number % 1000:08d}"
        (folder / name / f"{name}_{number:08d}.JPEG").touch()


def measure(folder: str) -> tuple[int, float, float]:
    """Return peak resident bytes, seconds of the scan and seconds of the plan."""
    begun = time.perf_counter()
    source = read_source(folder)
    scanned = time.perf_counter()
    make_plan(source, Options(shard_samples=2400))
    planned = time.perf_counter()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, scanned - begun, planned - scanned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/dev/shm/bench-memory"))
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    call = parser.parse_args()
    first: tuple[int, int] | None = None
    for count in call.counts:
        shutil.rmtree(call.work, ignore_errors=True)
        make_files(call.work, count)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peak, scan, plan = pool.apply(measure, (str(call.work),))
        line = f"{count:>10,} samples: peak {peak / 1e6:,.0f} MB, scan {scan:.2f} s, plan {plan:.2f} s"
        if first:
            line += f", {(peak - first[1]) / (count - first[0]):.0f} bytes a sample"
        first = first or (count, peak)
        print(line, flush=True)
    shutil.rmtree(call.work)


if __name__ == "__main__":
    main()
