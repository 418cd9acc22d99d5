"""Samplers: how long a plan takes to make, what memory, and how long a batch takes.

    python scripts/bench/samplers.py
    python scripts/bench/samplers.py --samples 1000000 --identities 1000 --world-size 8

Each sampler runs in a process of its own, over made-up columns. Peak is the most memory that the process had while it
made the plan, beyond what it had before, columns included. A batch is a global one, of all ranks; they are asked for
in turn, as training does, and `batch ms` is their mean.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from loaders.samplers import ClassBalancedSampler, PKSampler, Sampler, ShuffledSampler

SAMPLERS: dict[str, Sampler] = {
    "shuffled": ShuffledSampler(),
    "balanced": ClassBalancedSampler(by="identity"),
    "balanced, with replacement": ClassBalancedSampler(by="identity", replacement=True),
    "balanced, repeat factor": ClassBalancedSampler(by="identity", threshold=1e-5),
    "PK": PKSampler(64, 4, by="identity"),
    "PK, weight sample": PKSampler(64, 4, by="identity", weight="sample"),
    "PK, across cameras": PKSampler(64, 4, by="identity", across="camera"),
}


def memory(name: str) -> int:
    """Return a value of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measure(name: str, call: argparse.Namespace) -> None:
    rng = np.random.default_rng(call.seed)
    columns = {
        "identity": rng.integers(0, call.identities, call.samples, dtype=call.dtype),
        "camera": rng.integers(0, call.cameras, call.samples, dtype=call.dtype),
    }
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # The peak starts anew.
    start = time.perf_counter()
    plan = SAMPLERS[name].plan(
        columns, samples=call.samples, batch_size=256, world_size=call.world_size, seed=call.seed
    )
    seconds = time.perf_counter() - start
    peak = memory("VmHWM") - before
    batches = plan.samples // (256 * call.world_size)
    times = []
    for number in range(call.batches):
        start = time.perf_counter()
        plan.batch(number // batches, number % batches)
        times.append(time.perf_counter() - start)
    print(
        f"{name:28}{seconds:10.2f}{peak / 1e6:10.0f}{statistics.mean(times) * 1e3:12.3f}"
        f"{np.quantile(times, 0.99) * 1e3:10.3f}{max(times) * 1e3:10.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--identities", type=int, default=100_000)
    parser.add_argument("--cameras", type=int, default=6)
    parser.add_argument("--dtype", default="int64", choices=["int32", "int64"], help="of the columns")
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--batches", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SAMPLERS, help="this sampler, in this process")
    call = parser.parse_args()
    if call.only:
        measure(call.only, call)
        return
    print(f"{call.samples:,} samples, {call.identities:,} identities, {call.world_size} ranks of 256 samples")
    print(f"{'':28}{'plan s':>10}{'peak MB':>10}{'batch ms':>12}{'99% ms':>10}{'worst ms':>10}", flush=True)
    for name in SAMPLERS:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=True)


if __name__ == "__main__":
    main()
