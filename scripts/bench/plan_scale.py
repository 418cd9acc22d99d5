"""Very large datasets, by simulation: seconds and peak memory of each step, by number of samples.

    python scripts/bench/plan_scale.py --work /some/disk/scale
    python scripts/bench/plan_scale.py --work /tmp/scale --quick

Each step runs in a new process, which calls the functions that the commands call. `plan` plans
images that do not exist. `rows of 20 shards` is what one worker does before it reads an image.
`finish` reads tables and indexes of real shards of 1,000 tiny images. The other steps open a
dataset whose shards, indexes and tables are hard links to a few real ones. The last table extends a
line through the two largest sizes of each step to 10^8 and 10^9 samples.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import Report, make_parser, process_memory
from scale_data import make_dataset, make_source, small_source

from dataprep.options import Options
from dataprep.plan.files import read_plan
from dataprep.run.convert import plan_dataset
from dataprep.run.finish import finish
from dataprep.run.work import stored_tasks, work
from dataprep.verify.verify import verify_manifest
from manifests.store import read_manifest

SAMPLES_PER_SHARD = 1000
ROWS_OF = 20

Measure = Callable[[], tuple[float, float]]


def measured(function: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds of a call, and the peak of the process's memory during it, in MB."""
    Path("/proc/self/clear_refs").write_text("5")  # Reset the peak.
    start, cpu_start = time.perf_counter(), time.process_time()
    kept = function()
    row = {"seconds": time.perf_counter() - start, "CPU s": time.process_time() - cpu_start}
    row["peak MB"] = process_memory("VmHWM") / 1e6
    del kept
    return row


# --- steps ----------------------------------------------------------------------------------------


def plan(folder: Path, shards: int) -> dict[str, float]:
    out, source = folder / f"plan-{shards}", make_source(shards * SAMPLES_PER_SHARD)
    shutil.rmtree(out, ignore_errors=True)
    own = process_memory("VmRSS") / 1e6
    return measured(
        lambda: plan_dataset(source, str(out), Options(shard_samples=SAMPLES_PER_SHARD))
    ) | {"of it source MB": own}


def rows(folder: Path, shards: int) -> dict[str, float]:
    out = str(folder / f"plan-{shards}")

    def read() -> Any:
        stored = read_plan(out)
        job = stored.job(out)
        tasks = stored_tasks(job, range(len(job.shards)), 1, stored)
        return [len(tasks.read(number * (shards - 1) // ROWS_OF).keys) for number in range(ROWS_OF)]

    return measured(read)


def finish_work(folder: Path, shards: int) -> dict[str, float]:
    out, samples = folder / f"finish-{shards}", shards * SAMPLES_PER_SHARD
    shutil.rmtree(out, ignore_errors=True)
    plan_dataset(
        small_source(folder / "images", samples), str(out), Options(shard_samples=SAMPLES_PER_SHARD)
    )
    work(str(out))
    return measured(lambda: finish(str(out), workers=1))


def manifest(folder: Path, shards: int) -> dict[str, float]:
    out = make_dataset(folder, shards, SAMPLES_PER_SHARD)
    return measured(lambda: read_manifest(out))


def verify(folder: Path, shards: int) -> dict[str, float]:
    out = make_dataset(folder, shards, SAMPLES_PER_SHARD)
    return measured(lambda: verify_manifest(str(out)))


def build(folder: Path, shards: int) -> dict[str, float]:
    import loaders

    out = make_dataset(folder, shards, SAMPLES_PER_SHARD)
    return measured(
        lambda: loaders.build(out, batch_size=256, transforms="imagenet-train", framework="numpy")
    )


def sample(name: str, folder: Path, shards: int) -> dict[str, float]:
    """Plan the first epoch of a sampler, with the columns that it needs."""
    from loaders.dataset.split import open_split
    from loaders.dataset.tables import SampleTables
    from loaders.samplers import ClassBalancedSampler, PKSampler, Sampler, ShuffledSampler

    samplers: dict[str, Sampler] = {
        "ShuffledSampler": ShuffledSampler(),
        "ClassBalancedSampler": ClassBalancedSampler(),
        "PKSampler": PKSampler(64, 4),
    }
    split, sampler = (
        open_split(make_dataset(folder, shards, SAMPLES_PER_SHARD), "train"),
        samplers[name],
    )
    start = time.perf_counter()
    columns = SampleTables(split).columns(sampler.columns, requested_by=name)
    read = time.perf_counter() - start
    arguments = {"samples": split.samples, "batch_size": 256, "world_size": 1, "seed": 0}
    return measured(lambda: sampler.plan(columns, **arguments).batch(0, 0)) | {
        "of it source MB": 0.0,
        "labels s": read,
    }


STEPS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "plan": plan,
    f"rows of {ROWS_OF} shards": rows,
    "finish": finish_work,
    "manifest": manifest,
    "verify --manifest-only": verify,
    "build": build,
    "ShuffledSampler": lambda folder, shards: sample("ShuffledSampler", folder, shards),
    "ClassBalancedSampler": lambda folder, shards: sample("ClassBalancedSampler", folder, shards),
    "PKSampler": lambda folder, shards: sample("PKSampler", folder, shards),
}


# --- the table ------------------------------------------------------------------------------------


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("/tmp/bench-scale"),
        help="folder on a disk with hard links",
    )
    parser.add_argument(
        "--shards", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="of 1,000 samples"
    )
    parser.add_argument(
        "--plan-shards", type=int, nargs="+", default=[1_000, 10_000], help="for plan and its rows"
    )
    parser.add_argument(
        "--finish-shards", type=int, nargs="+", default=[20, 100], help="for finish"
    )
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=[*STEPS])
    parser.add_argument("--quick", action="store_true", help="10^4 and 10^5 samples")
    parser.add_argument(
        "--only", type=int, help="measure the one step of --steps in this process, and print JSON"
    )
    args = parser.parse_args()
    if args.only:
        print(json.dumps(STEPS[args.steps[0]](args.work, args.only)))
        return
    if args.quick:
        args.shards, args.plan_shards, args.finish_shards = [10, 100], [10, 100], [1, 2]
    args.work.mkdir(parents=True, exist_ok=True)
    with Report("plan_scale", args.json) as report:
        measurements = {step: measure(args, step) for step in args.steps}
        report.table("Measured", [row for found in measurements.values() for row in found])
        report.table(
            "Extended by a line",
            [row for step, found in measurements.items() for row in extended(step, found)],
        )
        check(report, measurements)


def measure(args: argparse.Namespace, step: str) -> list[dict[str, Any]]:
    planned = step == "plan" or step.startswith("rows")
    sizes = args.plan_shards if planned else args.finish_shards if step == "finish" else args.shards
    found = []
    for shards in sorted(sizes):
        command = [
            sys.executable,
            __file__,
            "--work",
            args.work,
            "--steps",
            step,
            "--only",
            str(shards),
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        row = json.loads(done.stdout.splitlines()[-1])
        base = {"step": step, "samples": shards * SAMPLES_PER_SHARD, "shards": shards}
        found.append(base | {"of it source MB": 0.0, "labels s": 0.0} | row)
        print(
            f"  {step}, {shards:,} shards: {row['seconds']:.1f} s, {row['peak MB']:,.0f} MB",
            flush=True,
        )
    return found


def extended(step: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Extend a line through the two largest sizes to 10^8 and 10^9 samples."""
    if len(found) < 2:
        return []
    one, two = found[-2:]
    rows = []
    for samples in (10**8, 10**9):
        if samples > two["samples"]:
            ratio = (samples - two["samples"]) / (two["samples"] - one["samples"])
            values = {
                key: max(0.0, two[key] + ratio * (two[key] - one[key]))
                for key in ("seconds", "peak MB")
            }
            rows.append({"step": step, "samples": samples, **values})
    return rows


def check(report: Report, measurements: dict[str, list[dict[str, Any]]]) -> None:
    for step, found in measurements.items():
        if step == "build":
            report.check("build on the largest dataset, s", found[-1]["seconds"], "build_seconds")
            report.check("its peak, MB", found[-1]["peak MB"], "build_mb")
        if step.startswith("rows"):
            growth = found[-1]["peak MB"] - found[0]["peak MB"]
            times = f"{found[-1]['samples'] // found[0]['samples']} times as many samples"
            report.check("growth of a worker's memory, MB", growth, "worker_growth_mb", times)


if __name__ == "__main__":
    main()
