"""Threads, prefetch and the share of the hardware decoder: `loaders tune` beside the defaults and a full grid.

    python scripts/bench tune --images PHOTOS/
    python scripts/bench tune --images LARGE/ --memory --stores full --batch-size 32 --threads 1 2 4 6 8

tune searches, then every point of the grid that it has not measured is measured. The default, what
tune has found and the best point of the grid are measured again, in turn, because the highest of many
noisy rates is too high.

With --memory, each point of threads and shares has a process of its own, beside DALI by hand: DALI's
memory pools belong to the process. Memory is what it takes on the GPU at the end, with CUDA's own; the
estimate comes from `loaders.memory`. The first points come again at the end, to show how much the
machine changes.
"""

import itertools
import statistics
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from feeds import HAND, OURS, Feed, endless, hand_feed, measure_feed, open_loader
from harness import Report, Row, apart, at_least, at_most, option, timed, usual
from inputs import prepare

from loaders.bench.measure import Method
from loaders.memory import estimate_memory
from loaders.tune.command import describe, make_problem, search
from loaders.tuning import Tuning

TAKES = "10 minutes; needs photographs, a GPU for the stated figures"
STORES = ["full", "256", "raw"]
OPTIONS = [
    *usual("tune", count=5_120, repeats=3, batch_size=256, stores=STORES, feeds=True),
    option("--seconds", 0.5, "duration of a repeat"),
    option("--rounds", 3, "rounds of the last comparison"),
    option("--memory", False, "measure the memory of each point"),
    option("--threads", [4, 8, 12, 16], "grid: values of num_threads"),
    option("--prefetch", [2, 3, 5], "grid: values of prefetch"),
    option("--loads", [0.5, 0.65, 0.8, 1.0], "grid: values of hw_decoder_load"),
]
#: Ratios to the defaults, which is the same point if tune keeps them, and to the best of the grid.
TO_DEFAULT, TO_GRID = at_least(1.0), at_least(0.98)
DEFAULTS = f"{OURS}, defaults"
#: To DALI by hand: images per second, and memory of the process on the GPU; the estimate to that memory.
SPEED, MEMORY, ESTIMATE = at_least(0.95), at_most(1.0), at_most(1.1)


def compare(report: Report, store: str, args: Namespace) -> None:
    problem = make_problem(
        str(prepare(args, store)[1]),
        transforms="imagenet-train",
        split="train",
        batch_size=args.batch_size,
        device=args.device,
        model=None,
        method=Method(args.seconds, args.repeats),
        announce=partial(print, flush=True),
    )
    with timed() as spent:
        found = search(problem.measure, problem.axes, problem.start)
    report.check(f"{store}: seconds of tune, which tried {len(found.trials)}", spent["seconds"])
    rates = {each.tuning: each.rate for each in found.trials}
    loads = args.loads if "hw_decoder_load" in problem.axes else [None]
    grid = [Tuning(*point) for point in itertools.product(args.threads, args.prefetch, loads)]
    for point in grid:
        if point not in rates:
            rates[point] = problem.measure(point)
    rows = [{"grid": describe(point), "images/s": rates[point].median} for point in grid]
    report.table(f"{store}: points of the grid", rows)
    best = max(grid, key=lambda point: rates[point].median)
    named = {"default": problem.start, "tune": found.best.tuning, "best of the grid": best}
    final: dict[Tuning, list[float]] = {point: [] for point in named.values()}
    for _, point in itertools.product(range(args.rounds), final):
        final[point] += problem.measure(point).repeats
    last: dict[str, Row] = {}
    for name, point in named.items():
        row: Row = {f"{store}, {args.rounds} rounds": name, "options": describe(point)}
        last[name] = row | spread(final[point])
    report.table(f"{store}: default, tune, best of the grid", [*last.values()])
    for name, target in (("default", TO_DEFAULT), ("best of the grid", TO_GRID)):
        ratio = last["tune"]["images/s"] / last[name]["images/s"]
        report.check(f"{store}: tune / {name}", ratio, target)


def spread(rates: list[float]) -> Row:
    return {"images/s": statistics.median(rates), "lowest": min(rates), "highest": max(rates)}


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
    estimated = 0.0
    if side == HAND:
        feed = hand_feed(dataset, args, **options, prefetch=2).__enter__()
    else:
        loader = open_loader(dataset, args, **options)
        options = {name: getattr(loader.options, name) for name in options}
        feed = Feed(endless(loader), loader.options.prefetch)
        if loader.spec.sizes is not None:
            estimated = estimate_memory(loader.spec.sizes, loader.spec.settings).total
    rates = []
    for _ in range(args.repeats + 1):
        rates.append(1 / measure_feed(feed, args.count // 4, args.seconds)["s"])
    row = {"side": side, "threads": options["num_threads"], "load": options["hw_decoder_load"]}
    row |= spread(rates[1:])
    return row | {"GiB": (used_memory(args) - before) / 2**30, "estimated": estimated / 2**30}


def compare_memory(report: Report, store: str, args: Namespace) -> None:
    dataset, before = prepare(args, store)[1], used_memory(args)
    ends = [(HAND, 8, 0.65), (DEFAULTS, None, None)]
    points = [*ends, *((OURS, *pair) for pair in itertools.product(args.threads, args.loads))]
    rows: list[Row] = []
    for point in [*points, *ends]:
        rows.append(apart(measure, args, dataset, before, point))
        print(", ".join(map(str, rows[-1].values())), flush=True)
    report.table(f"{store}: memory", rows)
    hand, ours = ([row for row in rows if row["side"] == side] for side in (HAND, DEFAULTS))
    speeds = [statistics.mean(row["images/s"] for row in each) for each in (ours, hand)]
    report.check("defaults / by hand, images/s", speeds[0] / speeds[1], SPEED)
    if args.device == "gpu":
        most = max(row["GiB"] for row in ours)
        report.check("defaults / by hand, memory", most / max(row["GiB"] for row in hand), MEMORY)
        report.check("defaults, estimate / memory", ours[0]["estimated"] / most, ESTIMATE)


def run(report: Report, args: Namespace) -> None:
    for store in args.stores:
        (compare_memory if args.memory else compare)(report, store, args)
