"""The program behind ``scripts/fuzz``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = (
    "1"  # before NumPy is imported: a process with threads should not fork
)
sys.dont_write_bytecode = True


def main() -> int:
    from fuzz import runner
    from fuzz.surfaces import NAMES

    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description="Check mutated input against independent readers."
    )
    parser.add_argument("files", nargs="*", type=Path, help="saved cases to check again")
    parser.add_argument(
        "--minutes", type=float, help="how long to run  [default: 1, without --cases]"
    )
    parser.add_argument("--cases", type=int, help="number of cases of each surface")
    parser.add_argument(
        "--surface", choices=NAMES, action="append", help="only this surface; may be repeated"
    )
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="the same seed gives the same cases"
    )
    parser.add_argument(
        "--found",
        type=Path,
        default=Path("fuzz-found"),
        help="folder for the input of failing cases",
    )
    options = parser.parse_args()
    if options.files:
        return _check_again(options.files)
    seconds = options.minutes * 60 if options.minutes else float("inf") if options.cases else 60.0
    names = options.surface or list(NAMES)
    print(f"seed {options.seed}", flush=True)
    report = runner.run(
        names, options.seed, cases=options.cases, seconds=seconds, found=options.found
    )
    print(f"\n{'surface':14}{'cases':>10}{'faults':>10}")
    for name in names:
        kinds = {
            kind: number for (surface, kind), number in report.faults.items() if surface == name
        }
        print(f"{name:14}{report.cases[name]:>10,}{sum(kinds.values()):>10,}")
        for kind, number in kinds.items():
            print(f"    {number:,} x {kind}\n        scripts/fuzz {report.saved[name, kind]}")
    return 1 if report.faults else 0


def _check_again(files: list[Path]) -> int:
    from fuzz import runner

    failed = 0
    for file in files:
        fault = runner.check_case(*runner.read_saved(file))
        print(f"{file}: {fault or 'no fault'}", flush=True)
        failed += bool(fault)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
