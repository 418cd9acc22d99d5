"""Everything that benchmarks share: arguments, sides in turn, spread, tables, targets, JSON.

    python scripts/bench --list                      # what each measures, how long it takes, what it needs
    python scripts/bench SUBJECT --help
    python scripts/bench SUBJECT [OPTION ...] [--json FILE]

A subject is a module beside this one. The first line of its docstring says what it measures, and
`TAKES` is a string, which `--list` reads without importing the module: a machine may lack what it
imports. `OPTIONS` are made by `option` and `usual`, and `run(report, args)` measures.

`Report.compare` runs each side once to warm up, then all sides in turn as often as `--repeats` says.
A target is `at_least` or `at_most` a number. `apart` calls a function in a new process: for memory, the
start, and files that no process has mapped. `inputs` makes images and datasets, `feeds` opens what feeds
a model and measures several in turn, and `by_hand` has DALI's pipelines without this project's packages.

The packages of this tree are measured, also if it is only a copy that nobody has installed.
"""

import argparse
import ast
import datetime
import importlib
import itertools
import json
import multiprocessing
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
#: The interpreter of the programs that benchmarks start.
PYTHON = sys.executable
CORES = len(os.sched_getaffinity(0))
PACKAGES = (
    *("dataprep-loaders", "numpy", "pillow", "simplejpeg", "pyarrow", "webdataset", "tensorflow"),
    *("nvidia-dali-cuda120", "nvidia-dali-cuda130", "torch", "torchvision"),
)
Row = dict[str, Any]

# The packages come first: `tests`, whose helpers some subjects use, has folders of the same names.
for _path in (FOLDER.parent, ROOT / "tests", ROOT):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))


class WrongOptionError(Exception):
    """Options that would measure nothing; the message names them."""


def option(name: str, default: Any, text: str, **more: Any) -> Any:
    """Return an option whose type and number of values follow from its default."""
    if isinstance(default, bool):
        return name, {"action": "store_true", "help": text, **more}
    kind: Row = {"nargs": "+"} if isinstance(default, list) else {}
    for value in default if isinstance(default, list) else [default]:
        if value is not None:
            kind["type"] = Path if isinstance(value, Path) else type(value)
    shown = f" [default: {default}]" if default not in (None, [], [""]) else ""
    return name, {"default": default, "help": f"{text}{shown}", **kind, **more}


IMAGES = option("--images", None, "folder of photographs (JPEG)", type=Path, required=True)
DEVICES = ["auto", "gpu", "cpu"]
DEVICE = option("--device", "auto", "auto is the GPU if there is one", choices=DEVICES)
FORMATS = ("tfrecord", "webdataset")
STORES = "full (as they are), raw, raw32 for so many pixels, or the pixels of the shorter side"
ONLY = option("--only", [""], "measure only what has one of these words in its name")
#: What options mean that several subjects have.
MEANINGS = {
    "count": "images, which repeat the photographs",
    "repeats": "measurements of each side, after a warm-up",
    "batch_size": "images of a batch",
    "stores": f"how images are stored: {STORES}",
    "seconds": "duration of a measurement",
    "min_seconds": "minimum duration of a measurement",
    "workers": "worker processes",
}


def usual(subject: str, *, feeds: bool = False, **defaults: Any) -> list[Any]:
    """Return options that several subjects have, with these defaults; `feeds` are read by a device."""
    work = Path("/dev/shm/bench") / subject
    options = [option("--work", work, "folder for the files, in memory if it can be")]
    options += [IMAGES] * ("count" in defaults)
    for name, default in defaults.items():
        options.append(option(f"--{name.replace('_', '-')}", default, MEANINGS[name]))
    if feeds:
        options += [DEVICE, option("--fmt", "tfrecord", "format of the shards", choices=FORMATS)]
    return options


def check_options(args: Namespace) -> None:
    """Replace `--device auto` by what this machine has, and refuse fewer images than a batch."""
    if getattr(args, "device", "") == "auto":
        import torch

        args.device = "gpu" if torch.cuda.is_available() else "cpu"
    sizes = [*getattr(args, "batch_sizes", []), getattr(args, "batch_size", None) or 0]
    if getattr(args, "count", max(sizes)) < max(sizes):
        name = "--batch-sizes" if "batch_sizes" in args else "--batch-size"
        raise WrongOptionError(f"--count {args.count} is less than {name} {max(sizes)}")


def torch_device(args: Namespace) -> Any:
    import torch

    return torch.device("cuda", 0) if args.device == "gpu" else torch.device("cpu")


def chosen(sides: Mapping[str, Any], only: Sequence[str]) -> dict[str, Any]:
    """Return the sides that `--only` names, at least one."""
    found = {name: each for name, each in sides.items() if any(word in name for word in only)}
    if not found:
        known = ", ".join(sides)
        raise WrongOptionError(f"--only {' '.join(only)} matches none of the sides: {known}")
    return found


def replaced(args: Namespace, **values: Any) -> Namespace:
    return Namespace(**{**vars(args), **values})


def subjects() -> dict[str, Row]:
    """Return for each subject the first line of its docstring, and what it takes and needs."""
    found = {}
    for file in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        what = (ast.get_docstring(tree) or "").partition("\n")[0]
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TAKES":
                found[file.stem] = {"WHAT": what, "TAKES": ast.literal_eval(node.value)}
    return found


def make_parser(subject: str) -> tuple[argparse.ArgumentParser, Any]:
    try:
        module = importlib.import_module(subject)
    except ModuleNotFoundError as error:
        hint = f"Hint: {PYTHON} -m pip install -e '.[test]'"
        missing = f"{subject} needs the module {error.name}, which is not installed. {hint}"
        raise SystemExit(missing) from None
    parser = argparse.ArgumentParser(
        f"scripts/bench {subject}",
        description=f"{module.__doc__}\nTakes {module.TAKES}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    json_file = option("--json", None, "write the results to this file", type=Path)
    for name, settings in [*module.OPTIONS, json_file]:
        parser.add_argument(name, **settings)
    return parser, module


def main() -> None:
    known = subjects()
    first = sys.argv[1] if len(sys.argv) > 1 else "--help"
    names = f"The subjects are {', '.join(known)}."
    if first == "--list":
        for name, facts in known.items():
            print(f"{name}\n    {facts['WHAT']}\n    {facts['TAKES']}")
    elif first in ("-h", "--help"):
        raise SystemExit(f"{__doc__}\n{names}")
    elif first not in known:
        print(f"There is no subject {first!r}. {names}", file=sys.stderr)
        raise SystemExit(2)
    else:
        # The programs that a subject starts run the code of this tree, too.
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        parser, module = make_parser(first)
        args, report = parser.parse_args(sys.argv[2:]), Report(first)
        try:
            check_options(args)
            module.run(report, args)
        except WrongOptionError as error:
            parser.error(str(error))
        if args.json:
            report.write(args.json)


#: What is measured; a side that returns seconds and CPU seconds has timed itself.
Side = Callable[[], tuple[float, float] | None]
#: Names of two sides, and the limit of the ratio of their rates.
Pairs = Sequence[tuple[str, str, "Target | None"]]


@contextmanager
def timed() -> Iterator[Row]:
    """Put the seconds of the block, and its CPU seconds in this process and ended children, into a row."""
    row: Row = {}
    start, cpu_start = time.perf_counter(), sum(os.times()[:4])
    yield row
    row |= {"seconds": time.perf_counter() - start, "CPU s": sum(os.times()[:4]) - cpu_start}


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return what functions of modules return, all at the same time, each in a new process."""
    with ProcessPoolExecutor(len(calls), multiprocessing.get_context("spawn")) as pool:
        return [running.result() for running in [pool.submit(call) for call in calls]]


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of a module returns in a new process."""
    return together([partial(function, *arguments)])[0]


def reset_peak() -> None:
    """Let VmHWM, the peak of this process's memory, begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def process_memory(name: str) -> float:
    """Return a value of /proc/self/status in MB, such as VmRSS."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(name))


def own_memory() -> Row:
    """Return the MB of this process that no other has (USS), and with its part of shared ones (PSS)."""
    sizes: dict[str, float] = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, size, _ = line.split()
        sizes[name] = int(size) * 1024 / 1e6
    return {"USS MB": sizes["Private_Clean:"] + sizes["Private_Dirty:"], "PSS MB": sizes["Pss:"]}


@dataclass(frozen=True)
class Target:
    """The lowest or the highest value that is good enough."""

    bound: str
    limit: float

    def met(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value >= self.limit if self.bound == "at least" else value <= self.limit


at_least, at_most = partial(Target, "at least"), partial(Target, "at most")


class Report:
    """The results of one benchmark, printed as they come."""

    def __init__(self, benchmark: str) -> None:
        self.results: Row = {
            "benchmark": benchmark,
            "command": shlex.join(["python", *sys.argv]),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "tables": [],
            "checks": [],
        }

    def write(self, file: Path) -> None:
        """Write everything as JSON."""
        file.write_text(json.dumps(self.results, indent=2) + "\n")

    def table(self, title: str, rows: Sequence[Row], hidden: Sequence[str] = ()) -> None:
        """Print rows with equal keys, without the columns that only the JSON file has."""
        if not self.results["tables"]:
            info, numbers = self.results["machine"], self.results["versions"].items()
            print(f"{info['cpu']}, {info['cores']} cores, {', '.join(info['gpus']) or 'no GPU'}")
            print(", ".join(" ".join(pair) for pair in numbers))
        shown = [{key: row[key] for key in row if key not in hidden} for row in rows]
        print(f"\n{title}\n{format_table(shown)}", flush=True)
        self.results["tables"].append({"title": title, "rows": [dict(row) for row in rows]})

    def compare(
        self, title: str, sides: Mapping[str, Side], images: int, repeats: int, *,
        pairs: Pairs = (), unit: str = "images/s", reset: Callable[[], object] = lambda: None,
    ) -> dict[str, float]:  # fmt: skip
        """Time all sides in turn, print their rates and ratios, and return the median seconds of each.

        A ratio is how many times as fast the first side of a pair is as the second, in runs that
        followed each other, because a slow moment of the machine affects both.
        """
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for repeat, (name, side) in itertools.product(range(repeats + 1), sides.items()):
            reset()
            with timed() as row:
                own = side()
            if repeat:  # after the warm-up
                taken[name].append(own or (row["seconds"], row["CPU s"]))
        rows, medians, cpu = [], {}, {}
        for name, measured in taken.items():
            rates = sorted(images / seconds for seconds, _ in measured)
            medians[name] = statistics.median(seconds for seconds, _ in measured)
            cpu[name] = statistics.median(spent for _, spent in measured)
            row = {unit: name, "median": statistics.median(rates), "min": rates[0]}
            row |= {"max": rates[-1], "repeats": rates}
            rows.append(row | {f"CPU us/{unit.removesuffix('s/s')}": cpu[name] / images * 1e6})
        self.table(title, rows, hidden=["repeats"])
        for left, right, target in pairs:
            if left in taken and right in taken:
                together = zip(taken[left], taken[right], strict=True)
                ratios = sorted(other / one for (one, _), (other, _) in together)
                note = f"pairs {ratios[0]:.2f} to {ratios[-1]:.2f}, by CPU time"
                note += f" {cpu[right] / max(cpu[left], 1e-9):.2f}"
                self.check(f"{left} / {right}", statistics.median(ratios), target, note)
        return medians

    def check(self, name: str, value: float, target: Target | None = None, note: str = "") -> None:
        """Print a value beside its target, if it has one."""
        check: Row = {"name": name, "value": value, "target": None, "note": note}
        verdict = ""
        if target is not None:
            check |= {"target": f"{target.bound} {target.limit:g}", "met": target.met(value)}
            verdict = f"target: {check['target']}, {'met' if check['met'] else 'MISSED'}"
        remarks = "; ".join(filter(None, [note, verdict]))
        print(f"{name}: {format_value(value)}" + (f" ({remarks})" if remarks else ""), flush=True)
        self.results["checks"].append(check)


def format_table(rows: Sequence[Row]) -> str:
    """Return rows with equal keys as aligned text; the first column is the name of the row."""
    cells = [list(rows[0]), *([format_value(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *rest in cells:
        columns = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([f"  {first:{widths[0]}}", *columns]))
    return "\n".join(lines)


def format_value(value: Any) -> str:
    """Return a number with about three significant digits; anything else as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
        return f"{value:,.{digits}f}"
    return str(value)


def extended(
    found: Sequence[Row], size: str, names: Sequence[str], sizes: Sequence[int]
) -> list[Row]:
    """Extend lines through the two largest of the rows, which are in order, to larger sizes."""
    rows = []
    for larger in sizes:
        if len(found) > 1 and larger > found[-1][size]:
            one, two = found[-2:]
            ratio = (larger - two[size]) / (two[size] - one[size])
            rows.append({size: larger})
            for name in names:
                rows[-1][name] = max(0.0, two[name] + ratio * (two[name] - one[name]))
    return rows


def machine() -> Row:
    """Return the CPU's model, the usable cores, the memory in GB, and the GPUs."""
    from loaders.devices import cpu_name

    return {
        "cpu": cpu_name(),
        "cores": CORES,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "gpus": query_gpus("--query-gpu=name,driver_version"),
        "system": platform.platform(),
    }


def query_gpus(query: str) -> list[str]:
    """Return the lines with which nvidia-smi answers, none without it."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(command, text=True).strip().splitlines()
    return []


def versions() -> dict[str, str]:
    installed = {"Python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed
