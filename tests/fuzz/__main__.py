"""The program behind ``scripts/fuzz``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

# Before NumPy is imported: a process with threads should not fork.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.dont_write_bytecode = True


def main() -> int:
    from fuzz import runner
    from fuzz.surfaces import NAMES

    description = "Check mutated input against independent readers."
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=description)
    parser.add_argument("files", nargs="*", type=Path, help="saved cases to check again")
    parser.add_argument(
        "--minutes", type=float, help="how long to run  [default: 1, without --cases]"
    )
    parser.add_argument("--cases", type=int, help="number of cases of each surface")
    add = parser.add_argument
    add("--surface", choices=NAMES, action="append", help="only this surface; may be repeated")
    add("--seed", type=int, default=int(time.time()), help="the same seed gives the same cases")
    found = "folder for the input of failing cases"
    add("--found", type=Path, default=Path("fuzz-found"), help=found)
    options = parser.parse_args()
    if options.files:
        failed = 0
        for file in options.files:
            fault = runner.check_case(*runner.read_saved(file))
            print(f"{file}: {fault or 'no fault'}", flush=True)
            failed += bool(fault)
        return 1 if failed else 0
    seconds = 60 * (options.minutes or (float("inf") if options.cases else 1))
    names, limits = options.surface or list(NAMES), {"cases": options.cases, "seconds": seconds}
    print(f"seed {options.seed}", flush=True)
    report = runner.run(names, options.seed, **limits, found=options.found)
    print(f"\n{'surface':14}{'cases':>10}{'faults':>10}")
    for name in names:
        kinds = [(each, number) for each, number in report.faults.items() if each[0] == name]
        faults = sum(number for _, number in kinds)
        print(f"{name:14}{report.cases[name]:>10,}{faults:>10,}")
        for kind, number in kinds:
            print(f"    {number:,} x {kind[1]}\n        scripts/fuzz {report.saved[kind]}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
