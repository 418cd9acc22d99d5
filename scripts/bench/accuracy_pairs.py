"""Pairs of training runs, one with each loader: run both sides, keep their results in a file, and compare them."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from report import Report, make_parser

OURS = "loaders.build"


def add_arguments(
    parser: argparse.ArgumentParser, sides: Sequence[str], *, seeds: int, results: str
) -> None:
    """Add the options that all comparisons have."""
    parser.add_argument("--seeds", type=int, default=seeds, help="pairs of runs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="start no run that would end later than this",
    )
    parser.add_argument(
        "--results", type=Path, default=Path(results), help="file of the finished runs"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench"), help="folder for the shards"
    )
    parser.add_argument("--side", choices=sides, help=argparse.SUPPRESS)


def pairs_parser(
    description: str | None, sides: Sequence[str], *, seeds: int, results: str
) -> argparse.ArgumentParser:
    parser = make_parser(description)
    add_arguments(parser, sides, seeds=seeds, results=results)
    return parser


def run_sides(sides: Sequence[str]) -> None:
    """Run this command once for each side, at the same time."""
    running = [subprocess.Popen([sys.executable, *sys.argv, "--side", side]) for side in sides]
    failed = [side for side, process in zip(sides, running, strict=True) if process.wait()]
    if failed:
        raise SystemExit(f"the training with {' and '.join(failed)} failed")


def remaining_seeds(args: argparse.Namespace, settings: dict[str, Any]) -> list[int]:
    """Return the seeds without a result of this side."""
    done = read_results(args.results, settings).get(args.side, {})
    return [
        seed for seed in range(args.first_seed, args.first_seed + args.seeds) if seed not in done
    ]


def run_seeds(
    args: argparse.Namespace,
    settings: dict[str, Any],
    seeds: Iterable[int],
    run: Callable[[int], dict[str, float]],
) -> None:
    """Run with each seed while there is time, and append each result to the file."""
    end, took = time.monotonic() + args.seconds, 0.0
    for seed in seeds:
        start = time.monotonic()
        if start + took > end:
            break
        scores = run(seed)
        took = time.monotonic() - start
        row = {
            "side": args.side,
            "seed": seed,
            **scores,
            "seconds": round(took, 2),
            "settings": settings,
        }
        with args.results.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        text = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        print(f"{args.side}, seed {seed}: {text}, {took:.1f} s", flush=True)


def read_results(file: Path, settings: dict[str, Any]) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the runs of each side by seed that have the same settings."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        row = json.loads(line)
        if row["settings"] == settings:
            found.setdefault(row["side"], {})[row["seed"]] = row
    return found


def paired_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the differences, and half the width of its 95% interval.

    Infinite for a single one.
    """
    from scipy import stats

    count, mean = len(differences), statistics.fmean(differences)
    if count < 2:
        return mean, math.inf
    return mean, float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(differences) / math.sqrt(
        count
    )


def report_pairs(
    report: Report,
    args: argparse.Namespace,
    settings: dict[str, Any],
    *,
    title: str,
    names: Sequence[str],
    other: str,
    ours: str = OURS,
) -> Iterator[tuple[str, float, float]]:
    """Report the scores of both sides, and yield name, mean difference and half its interval for each score."""
    found = read_results(args.results, settings)
    seeds = sorted(set(found.get(ours, ())) & set(found.get(other, ())))
    if len(seeds) < 2:
        raise SystemExit(
            f"an interval needs two pairs of runs, there are {len(seeds)}. Hint: raise --seeds or"
            " --seconds."
        )
    rows = []
    for side in (other, ours):
        row: dict[str, Any] = {"mean of the seeds": side, "seeds": len(seeds)}
        for name in [
            name for name in found[side][seeds[0]] if name not in ("side", "seed", "settings")
        ]:
            values = [found[side][seed][name] for seed in seeds]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            row |= {
                name: f"{statistics.fmean(values):.2f}",
                f"deviation of {name}": f"{deviation:.2f}",
            }
            row |= {f"{name} of each seed": values}
        rows.append(row)
    hidden = [
        name for name in rows[0] if name.endswith("of each seed") or name == "deviation of seconds"
    ]
    report.table(title, rows, hidden=hidden)
    for name in names:
        mean, half = paired_interval(
            [found[ours][seed][name] - found[other][seed][name] for seed in seeds]
        )
        print(
            f"{name}, {ours} - {other}: {mean:+.3f} ± {half:.3f} percentage points (95%,"
            f" {len(seeds)} pairs)"
        )
        yield name, mean, half
