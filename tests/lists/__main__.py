"""The program behind ``scripts/random-lists``."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from lists.check import Range, Result, check, count_used

#: The number of lists that a process compares at a time.
_PART = 10


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/random-lists",
        description="Compare random lists of transforms with the library that they come from.",
    )
    parser.add_argument(
        "--library", choices=("torchvision", "timm", "paddleclas"), default="torchvision",
        help="the library  [default: torchvision]",
    )  # fmt: skip
    parser.add_argument("--count", type=int, default=1000, help="number of lists  [default: 1000]")
    parser.add_argument("--start", type=int, default=0, help="number of the first list")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same lists")
    parser.add_argument("--jobs", type=int, default=2, help="processes  [default: 2]")
    parser.add_argument("--verbose", action="store_true", help="print the lists that are refused")
    options = parser.parse_args()
    started = time.monotonic()
    last = options.start + options.count
    parts = []
    for first in range(options.start, last, _PART):
        parts.append(Range(options.library, options.seed, first, min(first + _PART, last)))
    results: list[Result] = []
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(check, parts):
            results += found
            for result in found:
                outcome = result.outcome
                if outcome.is_fault or (options.verbose and outcome.kind == "refused"):
                    print(f"{result.number} {outcome.kind}: {outcome.detail}\n    {result.text}")
            sys.stdout.flush()
    print(f"\n{options.library}, seed {options.seed}, {len(results):,} lists,"
          f" {time.monotonic() - started:.0f} s")  # fmt: skip
    return _summarize(results)


def _summarize(results: list[Result]) -> int:
    """Print how the lists went and what was drawn; return the exit status."""
    kinds = Counter(result.outcome.kind for result in results)
    for kind, count in kinds.most_common():
        print(f"{count:6,} {kind}")
    refused: Counter[str] = Counter()
    for result in results:
        if result.outcome.kind == "refused":
            refused[result.outcome.detail.split(" Hint:")[0][:110]] += 1
    for message, count in refused.most_common(30):
        print(f"{count:10,} x {message}")
    used = count_used(results)
    print("\nname and arguments, with the number of times drawn")
    for name in sorted({each for each, _ in used}):
        arguments = []
        for (each, argument), count in sorted(used.items()):
            if each == name and argument:
                arguments.append(f"{argument} {count}")
        print(f"{name:24}{used[name, '']:6,}  {', '.join(arguments)}")
    return 1 if any(result.outcome.is_fault for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
