"""`loaders tune` against the defaults of `loaders.build` and against the best point of a full grid.

    python scripts/bench/tune.py --images PHOTOS/ --count 5120
    python scripts/bench/tune.py --images PHOTOS/ --stores 256 --threads 8 12 16 --loads 0.5 0.65
    0.8 --prefetch 2 3 python scripts/bench/tune.py --images PHOTOS/ --count 64 --batch-size 8
    --device cpu --threads 1 2 --prefetch 2

PHOTOS is a folder of JPEGs, which are repeated up to the count and converted: as they are, resized
to 256 pixels, and as raw pixels. For each dataset, tune searches, then every point of the grid that
tune has not measured is measured. The default, what tune has found and the best point of the grid
are measured again, in turn, because the highest of many noisy rates is too high.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time

from load_data import STORES, dataset_parser, prepare_store
from report import Report

from loaders.bench.measure import Method, Rate
from loaders.tune.command import describe, make_problem, search
from loaders.tuning import Tuning

_STARTED = time.perf_counter()


def main() -> None:
    args = parse()
    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="          %(message)s", stream=sys.stdout)
    with Report("tune", args.json) as report:
        for store in args.stores:
            compare(report, store, args)


def compare(report: Report, store: str, args: argparse.Namespace) -> None:
    _, dataset = prepare_store(args, store)
    problem = make_problem(
        str(dataset),
        transforms="imagenet-train",
        split="train",
        batch_size=args.batch_size,
        device=args.device,
        model=args.model,
        method=Method(args.seconds, args.repeats),
        announce=announce,
    )
    started = time.perf_counter()
    found = search(problem.measure, problem.axes, problem.start)
    searched = time.perf_counter()
    loads = args.loads if "hw_decoder_load" in problem.axes else [None]
    grid = [Tuning(*point) for point in itertools.product(args.threads, args.prefetch, loads)]
    tried = [
        {"tried by tune": describe(each.tuning), "images/s": each.rate.median}
        for each in found.trials
    ]
    report.table(f"{store}: points of tune", tried)
    known = {each.tuning: each.rate for each in found.trials}
    rates = {point: known[point] if point in known else problem.measure(point) for point in grid}
    print(
        f"{store}: tune tried {len(found.trials)} points in {searched - started:.0f} s; the other"
        f" {len(rates.keys() - known.keys())} points of the grid took"
        f" {time.perf_counter() - searched:.0f} s"
    )
    measured = [{"grid": describe(point), "images/s": rate.median} for point, rate in rates.items()]
    report.table(f"{store}: points of the grid", measured)
    named = {
        "default": problem.start,
        "tune": found.best.tuning,
        "best of the grid": max(rates, key=lambda point: rates[point].median),
    }
    final = measure_in_rounds(problem.measure, list(dict.fromkeys(named.values())), args.rounds)
    rows = [
        {
            f"{store}, {args.rounds} rounds": name, "options": describe(point), "images/s": final[point].median,
            "lowest": min(final[point].repeats), "highest": max(final[point].repeats),
        }
        for name, point in named.items()
    ]  # fmt: skip
    report.table(f"{store}: default, tune, best of the grid", rows)
    tuned = final[named["tune"]].median
    report.check(f"{store}: tune / default", tuned / final[named["default"]].median, "default")
    report.check(
        f"{store}: tune / best of the grid", tuned / final[named["best of the grid"]].median, "grid"
    )


def announce(point: str) -> None:
    """Print each point as its measurement begins, so that a run that is stopped has said what it did."""
    print(f"{time.perf_counter() - _STARTED:6.1f} s  {point}", flush=True)


def measure_in_rounds(measure, points: list[Tuning], rounds: int) -> dict[Tuning, Rate]:
    measured = [{point: measure(point) for point in points} for _ in range(rounds)]
    return {
        point: Rate(tuple(rate for each in measured for rate in each[point].repeats))
        for point in points
    }


def parse() -> argparse.Namespace:
    parser = dataset_parser(__doc__, count=5_120, work="/dev/shm/bench-tune")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--device", choices=["auto", "gpu", "cpu"], default="auto")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--model", help="as `loaders tune --model`")
    parser.add_argument(
        "--verbose", action="store_true", help="print how long pipelines take to start"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the last comparison")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[4, 8, 12, 16], help="grid: values of num_threads"
    )
    parser.add_argument(
        "--prefetch", type=int, nargs="+", default=[2, 3, 5], help="grid: values of prefetch"
    )
    parser.add_argument(
        "--loads",
        type=float,
        nargs="+",
        default=[0.5, 0.65, 0.8, 1.0],
        help="grid: hw_decoder_load",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
