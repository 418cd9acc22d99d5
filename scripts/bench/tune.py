"""`loaders tune` against the defaults of `loaders.build` and against the best point of a full grid.

For each dataset, tune searches, then every point of the grid that tune has not measured is
measured. The default, what tune has found and the best point of the grid are measured again, in
turn, because the highest of many noisy rates is too high.
"""

import itertools
from argparse import Namespace
from functools import partial

from harness import Report, Row, at_least, option, timed, usual
from inputs import prepare

from loaders.bench.measure import Method, Rate
from loaders.tune.command import describe, make_problem, search
from loaders.tuning import Tuning

TAKES = "10 minutes; needs photographs, a GPU for the stated figures"
STORES = ["full", "256", "raw"]
OPTIONS = [
    *usual("tune", count=5_120, repeats=3, batch_size=256, stores=STORES, feeds=True),
    option("--seconds", 0.5, "duration of a repeat"),
    option("--rounds", 3, "rounds of the last comparison"),
    option("--threads", [4, 8, 12, 16], "grid: values of num_threads"),
    option("--prefetch", [2, 3, 5], "grid: values of prefetch"),
    option("--loads", [0.5, 0.65, 0.8, 1.0], "grid: values of hw_decoder_load"),
]
#: Ratios to the defaults, which is the same point if tune keeps them, and to the best of the grid.
TO_DEFAULT, TO_GRID = at_least(1.0), at_least(0.98)


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
    medians, rows = {}, []
    for name, point in named.items():
        medians[name] = Rate(tuple(final[point])).median
        row: Row = {f"{store}, {args.rounds} rounds": name, "options": describe(point)}
        row |= {"images/s": medians[name], "lowest": min(final[point])}
        rows.append(row | {"highest": max(final[point])})
    report.table(f"{store}: default, tune, best of the grid", rows)
    tuned = medians["tune"]
    report.check(f"{store}: tune / default", tuned / medians["default"], TO_DEFAULT)
    report.check(f"{store}: tune / best of the grid", tuned / medians["best of the grid"], TO_GRID)


def run(report: Report, args: Namespace) -> None:
    for store in args.stores:
        compare(report, store, args)
