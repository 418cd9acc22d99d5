"""Samplers: seconds and memory to plan an epoch, and milliseconds per batch.

    python scripts/bench/samplers.py
    python scripts/bench/samplers.py --samples 1000000 --identities 1000 --world-size 8

Each sampler runs in a new process, on random columns. `plan` is the time to make the plan. `epoch`
is the time of the first batch, which computes the order of its epoch. `CPU` is the CPU time of
both, which is less than the wall-clock time if the machine is busy. `next` is the time of the first
batch of the second epoch. `peak` is the peak memory of the process without the columns. `kept` is
the memory that the process still uses with two epochs planned. A batch is a global batch, of all
ranks; batches are requested in order, as a loader does. `epoch mean` spreads the time of an epoch's
order over its batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from report import Report, make_parser, process_memory

from loaders.samplers import ClassBalancedSampler, PKSampler, Sampler, ShuffledSampler

SAMPLERS: dict[str, Sampler] = {
    "shuffled": ShuffledSampler(),
    "shuffled, spread": ShuffledSampler(spread=True),
    "balanced": ClassBalancedSampler(by="identity"),
    "balanced, with replacement": ClassBalancedSampler(by="identity", replacement=True),
    "balanced, repeat factor": ClassBalancedSampler(by="identity", threshold=1e-5),
    "PK": PKSampler(64, 4, by="identity"),
    "PK, weight sample": PKSampler(64, 4, by="identity", weight="sample"),
    "PK, across cameras": PKSampler(64, 4, by="identity", across="camera"),
}


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    rng = np.random.default_rng(args.seed)
    ranges = {"identity": args.identities, "camera": args.cameras, "width": 4000, "height": 4000}
    columns = {
        column: rng.integers(0, ranges[column], args.samples, dtype=args.dtype)
        for column in SAMPLERS[name].columns
    }
    before = process_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Reset the peak.
    start, cpu_start = time.perf_counter(), time.process_time()
    plan = SAMPLERS[name].plan(
        columns, samples=args.samples, batch_size=256, world_size=args.world_size, seed=args.seed
    )
    planned = time.perf_counter() - start

    def seconds(epoch: int, number: int) -> float:
        start = time.perf_counter()
        plan.batch(epoch, number)
        return time.perf_counter() - start

    batches = max(1, plan.samples // (256 * args.world_size))
    first = seconds(0, 0)
    cpu = time.process_time() - cpu_start
    second = seconds(1, 0)
    peak, kept = process_memory("VmHWM") - before, process_memory("VmRSS") - before
    times = [seconds(1, number % batches) for number in range(args.batches)]
    return {
        "sampler": name,
        "plan s": planned,
        "epoch s": first,
        "CPU s": cpu,
        "next s": second,
        "peak MB": peak / 1e6,
        "kept MB": kept / 1e6,
        "batch ms": statistics.mean(times) * 1e3,
        "99% ms": float(np.quantile(times, 0.99)) * 1e3,
        "max ms": max(times) * 1e3,
        "epoch mean ms": (second / batches + statistics.mean(times)) * 1e3,
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--identities", type=int, default=100_000)
    parser.add_argument("--cameras", type=int, default=6)
    parser.add_argument(
        "--dtype", default="int64", choices=["int32", "int64"], help="dtype of the columns"
    )
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--batches", type=int, default=5_000, help="batches to time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", choices=SAMPLERS, help="measure this sampler in this process, and print JSON"
    )
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args)))
        return
    with Report("samplers", args.json) as report:
        rows = []
        for name in SAMPLERS:
            command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
            rows.append(
                json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            )
        report.table(
            f"{args.samples:,} samples, {args.identities:,} identities, {args.world_size} ranks of"
            " 256 samples",
            rows,
        )
        report.check(
            "slowest plan and first epoch, s",
            max(row["plan s"] + row["epoch s"] for row in rows),
            "plan_seconds",
        )
        report.check("largest peak, MB", max(row["peak MB"] for row in rows), "peak_mb")
        report.check(
            "slowest batch over an epoch, ms", max(row["epoch mean ms"] for row in rows), "batch_ms"
        )


if __name__ == "__main__":
    main()
