"""What all benchmarks share: timing sides in turn, tables, targets, and a JSON file with the machine and versions."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

TARGETS = Path(__file__).with_name("targets.toml")
PACKAGES = (
    "dataprep-loaders", "numpy", "pillow", "simplejpeg", "pyarrow", "webdataset", "tensorflow",
    "nvidia-dali-cuda120", "nvidia-dali-cuda130", "torch", "torchvision",
)  # fmt: skip


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the results to this file"
    )
    return parser


@dataclass
class Timing:
    """The measurements of one side: wall-clock seconds, and seconds of CPU time of the process and its children."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)


def time_in_turn(
    sides: Mapping[str, Callable[[], float | None]],
    *,
    repeats: int,
    reset: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:
    """Time every side `repeats` times, in turn, after one round of warm-up.

    Args:
        sides: a function for each side. A side that returns seconds has timed itself.
        repeats: rounds that count.
        reset: called before each run of a side.

    """
    timings = {name: Timing() for name in sides}
    for repeat in range(repeats + 1):
        for name, side in sides.items():
            reset()
            start, cpu_start = time.perf_counter(), cpu_seconds()
            seconds = side()
            if repeat:
                timings[name].seconds.append(
                    time.perf_counter() - start if seconds is None else seconds
                )
                timings[name].cpu_seconds.append(cpu_seconds() - cpu_start)
    return timings


def cpu_seconds() -> float:
    """Return the CPU time of this process and its finished children, which other programs do not affect."""
    return sum(os.times()[:4])


class Report:
    """The results of one benchmark: printed as they come, and written as JSON when the ``with`` block ends."""

    def __init__(self, benchmark: str, json_file: Path | None = None) -> None:
        """Print the machine; `benchmark` is the section of targets.toml."""
        self._targets = tomllib.loads(TARGETS.read_text()).get(benchmark, {})
        self._json_file = json_file
        self._results: dict[str, Any] = {
            "benchmark": benchmark,
            "command": shlex.join(["python", *sys.argv]),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "tables": [],
            "checks": [],
        }
        info = self._results["machine"]
        print(f"{info['cpu']}, {info['cores']} cores, {', '.join(info['gpus']) or 'no GPU'}")
        print(", ".join(f"{name} {number}" for name, number in self._results["versions"].items()))

    def __enter__(self) -> Report:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._json_file is not None and kind is None:
            self._json_file.write_text(json.dumps(self._results, indent=2) + "\n")

    def table(
        self, title: str, rows: Sequence[Mapping[str, Any]], hidden: Sequence[str] = ()
    ) -> None:
        """Print rows as a table, without the columns that only the JSON file has."""
        print(f"\n{title}")
        print(
            format_table(
                [{key: value for key, value in row.items() if key not in hidden} for row in rows]
            )
        )
        sys.stdout.flush()
        self._results["tables"].append({"title": title, "rows": [dict(row) for row in rows]})

    def rates(self, title: str, timings: Mapping[str, Timing], images: int) -> None:
        """Print images per second of each side: median and spread."""
        rows = []
        for name, timing in timings.items():
            rates = sorted(images / seconds for seconds in timing.seconds)
            cpu = statistics.median(timing.cpu_seconds) / images * 1e6
            rows.append({
                "images/s": name, "median": round(statistics.median(rates)), "min": round(rates[0]),
                "max": round(rates[-1]), "CPU us/image": cpu, "repeats": rates,
            })  # fmt: skip
        self.table(title, rows, hidden=["repeats"])

    def ratios(
        self, timings: Mapping[str, Timing], ratios: Sequence[tuple[str, str, str | None]]
    ) -> None:
        """Compare pairs of sides: how many times as fast the first is as the second.

        The third item names the target, if there is one.

        Compares runs that followed each other, because a slow moment of the machine affects both.
        """
        for left, right, target in ratios:
            if left in timings and right in timings:
                one, other = timings[left], timings[right]
                pairs = sorted(b / a for a, b in zip(one.seconds, other.seconds, strict=True))
                cpu = statistics.median(other.cpu_seconds) / max(
                    statistics.median(one.cpu_seconds), 1e-9
                )
                note = f"pairs {pairs[0]:.2f} to {pairs[-1]:.2f}, by CPU time {cpu:.2f}"
                self.check(f"{left} / {right}", statistics.median(pairs), target, note)

    def check(self, name: str, value: float, target: str | None, note: str = "") -> None:
        """Print a value beside its target, if it has one."""
        if target is None:
            print(f"{name}: {format_value(value)}" + (f" ({note})" if note else ""), flush=True)
            self._results["checks"].append(
                {"name": name, "value": value, "target": None, "note": note}
            )
            return
        ((bound, limit),) = self._targets[target].items()
        met = value >= limit if bound == "min" else value <= limit
        verdict = (
            f"target: at {'least' if bound == 'min' else 'most'} {limit:g},"
            f" {'met' if met else 'MISSED'}"
        )
        print(
            f"{name}: {format_value(value)} ({'; '.join(filter(None, [note, verdict]))})",
            flush=True,
        )
        check = {
            "name": name,
            "value": value,
            "target": target,
            bound: limit,
            "met": met,
            "note": note,
        }
        self._results["checks"].append(check)


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with equal keys as aligned text; the first column is the name of the row."""
    cells = [list(rows[0]), *([format_value(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        f"  {first:{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        for first, *rest in cells
    )


def format_value(value: Any) -> str:
    """Return a number with about three significant digits; anything else as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return (
            f"{value:,.0f}"
            if abs(value) >= 100
            else f"{value:.1f}"
            if abs(value) >= 10
            else f"{value:.3f}"
        )
    return str(value)


def machine() -> dict[str, Any]:
    """Return the CPU's model, the usable cores, the memory in GB, and the GPUs."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
        "gpus": gpus(),
        "system": platform.platform(),
    }


def process_memory(name: str) -> int:
    """Return a value of /proc/self/status in bytes, such as VmRSS."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def gpus() -> list[str]:
    """Return name and driver of each GPU, as nvidia-smi lists them."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    installed = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed
