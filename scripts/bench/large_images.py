"""Large images: speed and GPU memory by threads and share of the hardware decoder, beside DALI by hand.

The images, such as JPEGs of 3840x2160 pixels, are read from memory with imagenet-train. DALI's memory
pools belong to the process, so each point has a new one. Memory is what it takes on the GPU at the
end, with CUDA's own; the estimate comes from `loaders.memory`. The first points come again at the end,
to show how much the machine changes.
"""

import itertools
import statistics
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from feeds import HAND, OURS, Feed, endless, hand_feed, measure_feed, open_loader
from harness import Report, Row, apart, at_least, at_most, option, usual
from inputs import prepare

from loaders.memory import estimate_memory

TAKES = "5 minutes; needs large photographs (4K), a GPU"
OPTIONS = [
    *usual("large", count=512, repeats=3, batch_size=32, feeds=True),
    option("--threads", [1, 2, 4, 6, 8], "values of num_threads"),
    option("--loads", [0.65, 0.75, 0.9], "values of hw_decoder_load"),
    option("--seconds", 0.5, "duration of a repeat"),
]
DEFAULTS = f"{OURS}, defaults"
PARTS = ("context", "decoder", "images", "finished_batches")
#: To DALI by hand: images per second, and memory of the process on the GPU; the estimate to that memory.
SPEED, MEMORY, ESTIMATE = at_least(0.95), at_most(1.0), at_most(1.1)


def used_memory(args: Namespace) -> int:
    """Return the bytes of the GPU's memory that all processes have taken."""
    if args.device == "cpu":
        return 0
    torch.zeros(1, device="cuda")
    free, total = torch.cuda.mem_get_info()
    return total - free


def measure(args: Namespace, dataset: Path, before: int, point: Any) -> Row:
    """Measure a point in this process; `before` is the memory that other processes have taken."""
    side, threads, load = point
    options = {"num_threads": threads, "hw_decoder_load": load}
    parts = dict.fromkeys(PARTS, 0.0)
    if side == HAND:
        feed = hand_feed(dataset, args, **options, prefetch=2).__enter__()
    else:
        loader = open_loader(dataset, args, **options)
        options = {name: getattr(loader.options, name) for name in options}
        feed = Feed(endless(loader), loader.options.prefetch)
        if loader.spec.sizes is not None:
            estimated = estimate_memory(loader.spec.sizes, loader.spec.settings)
            parts = {name: getattr(estimated, name) / 2**30 for name in PARTS}
    rates = []
    for _ in range(args.repeats + 1):
        rates.append(1 / measure_feed(feed, args.count // 4, args.seconds)["s"])
    rates = rates[1:]
    row = {"side": side, "threads": options["num_threads"], "load": options["hw_decoder_load"]}
    row |= {"images/s": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}
    row |= {"GiB": (used_memory(args) - before) / 2**30, "estimated": sum(parts.values())}
    return row | parts


def run(report: Report, args: Namespace) -> None:
    dataset, before = prepare(args)[1], used_memory(args)
    ends = [(HAND, 8, 0.65), (DEFAULTS, None, None)]
    points = [*ends, *((OURS, *pair) for pair in itertools.product(args.threads, args.loads))]
    rows: list[Row] = []
    for point in [*points, *ends]:
        rows.append(apart(measure, args, dataset, before, point))
        print(", ".join(map(str, rows[-1].values())), flush=True)
    report.table("Large images", rows)
    hand, ours = ([row for row in rows if row["side"] == side] for side in (HAND, DEFAULTS))
    speeds = [statistics.mean(row["images/s"] for row in each) for each in (ours, hand)]
    report.check("defaults / by hand, images/s", speeds[0] / speeds[1], SPEED)
    if args.device == "gpu":
        most = max(row["GiB"] for row in ours)
        report.check("defaults / by hand, memory", most / max(row["GiB"] for row in hand), MEMORY)
        report.check("defaults, estimate / memory", ours[0]["estimated"] / most, ESTIMATE)
