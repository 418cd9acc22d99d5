"""Large images: speed and GPU memory by threads and share of the hardware decoder, beside DALI by hand.

    python scripts/bench/large_images.py --images 4K/ --count 512
    python scripts/bench/large_images.py --images 4K/ --count 16 --batch-size 4 --device cpu
    --threads 1 2 --loads 0

4K is a folder of JPEGs, which are repeated up to the count, converted, and read from memory with
imagenet-train. DALI's memory pools belong to the process, so each point runs in a new process.
Memory is what the process takes on the GPU at the end of the measurement, with CUDA's own; the
estimate is that of `loaders.memory`.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from load_data import dataset_parser, prepare
from load_sides import HAND, OURS, Side, build, by_hand, endless
from report import Report

from loaders.memory import estimate_memory

DEFAULTS = f"{OURS}, defaults"

#: Parts of the estimate.
PARTS = ("context", "decoder", "images", "finished_batches")


class Point(NamedTuple):
    """What one process measures; without threads and load, those that `loaders.build` chooses."""

    side: str
    threads: int | None = None
    load: float | None = None


def used_memory() -> int:
    """Return the bytes of the GPU's memory that all processes have taken."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def measure(args: argparse.Namespace, dataset: Path, point: Point, before: int) -> dict[str, Any]:
    """Measure a point. `before` is the memory that the other processes have taken."""
    options = {"threads": point.threads, "load": point.load}
    parts: dict[str, float] = {}
    if point.side == HAND:
        hand = SimpleNamespace(num_threads=point.threads, hw_decoder_load=point.load, prefetch=2)
        side = by_hand(dataset, args, hand)
    else:
        loader = build(dataset, args, num_threads=point.threads, hw_decoder_load=point.load)
        found = loader.options
        options = {"threads": found.num_threads, "load": found.hw_decoder_load}
        if loader.spec.sizes is not None:
            estimated = estimate_memory(loader.spec.sizes, loader.spec.settings)
            parts = {name: getattr(estimated, name) / 2**30 for name in PARTS}
        side = Side(
            endless(loader), prefetch=found.prefetch, batches=args.batches, seconds=args.seconds
        )
    for _ in range(args.repeats + 1):
        side.measure()
    rates = [args.batches * args.batch_size / seconds for seconds in side.timing.seconds[1:]]
    memory = (used_memory() - before if args.device == "gpu" else 0) / 2**30
    return {
        "side": point.side,
        **options,
        "images/s": statistics.median(rates),
        "lowest": min(rates),
        "highest": max(rates),
        "GiB": memory,
        "estimated": sum(parts.values()),
        **{name.replace("_", " "): parts.get(name, 0.0) for name in PARTS},
    }


def points(args: argparse.Namespace) -> Iterator[Point]:
    """Yield what is measured.

    The first points come again at the end, to show how much the machine changes.
    """
    ends = Point(HAND, int(args.hand[0]), args.hand[1]), Point(DEFAULTS)
    yield from ends
    yield from (Point(OURS, *pair) for pair in itertools.product(args.try_threads, args.try_loads))
    if not args.once:
        yield from ends


def main() -> None:
    args = parse()
    before = 0
    if args.device == "gpu":
        torch.zeros(1, device="cuda")
        before = used_memory()
    _, dataset = prepare(args)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    with Report("large_images", args.json) as report:
        rows: list[dict[str, Any]] = []
        for point in points(args):
            with context.Pool(1) as pool:
                rows.append(pool.apply(measure, (args, dataset, point, before)))
            print(
                ", ".join(
                    f"{value:.3f}" if isinstance(value, float) else str(value)
                    for value in rows[-1].values()
                )
            )
        report.table("Large images", rows)
        hand, ours = ([row for row in rows if row["side"] == side] for side in (HAND, DEFAULTS))
        speed = statistics.mean(row["images/s"] for row in ours) / statistics.mean(
            row["images/s"] for row in hand
        )
        report.check("defaults / by hand, images/s", speed, "speed")
        if args.device == "gpu":
            most = max(row["GiB"] for row in ours)
            report.check(
                "defaults / by hand, memory", most / max(row["GiB"] for row in hand), "memory"
            )
            report.check("defaults, estimate / memory", ours[0]["estimated"] / most, "estimate")


def parse() -> argparse.Namespace:
    parser = dataset_parser(
        __doc__, count=512, work="/dev/shm/bench-large", images="folder of large JPEGs"
    )
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--threads",
        dest="try_threads",
        type=int,
        nargs="+",
        default=[1, 2, 4, 6, 8],
        help="values of num_threads",
    )
    parser.add_argument(
        "--loads",
        dest="try_loads",
        type=float,
        nargs="+",
        default=[0.65, 0.75, 0.9],
        help="values of hw_decoder_load",
    )
    parser.add_argument(
        "--hand", type=float, nargs=2, default=[8, 0.65], help="threads and load of DALI by hand"
    )
    parser.add_argument(
        "--once", action="store_true", help="measure DALI by hand and the defaults only once"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    # What load_data.py and load_sides.py ask for.
    vars(args).update(
        store="encoded", resize_shorter=None, preset="imagenet-train", order=None, threads=None
    )
    vars(args).update(batches=max(1, args.count // args.batch_size // 4), min_seconds=args.seconds)
    return args


if __name__ == "__main__":
    main()
