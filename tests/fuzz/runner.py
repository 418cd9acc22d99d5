"""Run the cases of a surface, each in a child process of its own, and save those that fail."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from fuzz.checks import Case
from fuzz.isolation import Fault
from fuzz.surfaces import surface_named

#: A case that takes longer, on a busy machine, hangs.
_TIME_LIMIT = 400

#: Failing cases of one kind that are saved. They may have different causes.
_SAVED = 5

_FORK = multiprocessing.get_context("fork")


@dataclass
class Report:
    """What has run so far.

    Attributes:
        cases: number of cases by surface.
        faults: number of failing cases by surface and summary.
        saved: path of the first failing case of each kind.

    """

    cases: Counter[str] = field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    saved: dict[tuple[str, str], Path] = field(default_factory=dict)


def make_case(name: str, seed: int, number: int) -> Case:
    """Return one case of a surface. The same arguments give the same case."""
    return surface_named(name).make(Random(f"{name} {seed} {number}"))


def check_case(name: str, case: Case) -> str:
    """Check a case in a child process and an empty folder; return what is wrong, or ``""``."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        receive, send = _FORK.Pipe(duplex=False)
        child = _FORK.Process(target=_check, args=(name, case, Path(folder), send))
        child.start()
        send.close()
        if not receive.poll(_TIME_LIMIT):
            os.killpg(child.pid, signal.SIGKILL)
            return f"hangs: no answer in {_TIME_LIMIT} s"
        try:
            return str(receive.recv())
        except EOFError:
            child.join()
            return f"the check ended with exit status {child.exitcode}"


def _check(name: str, case: Case, folder: Path, answer: Connection) -> None:
    os.setpgid(0, 0)
    try:
        (folder / "case").mkdir()
        surface_named(name).check(case, folder / "case")
        others = [path.name for path in folder.iterdir() if path.name != "case"]
        fault = f"writes outside of the output: {others}" if others else ""
    except Fault as error:
        fault = str(error)
    except BaseException:
        fault = f"the check itself failed: {traceback.format_exc()}"
    answer.send(fault)
    os._exit(0)


def summary(fault: str) -> str:
    """Return the kind of a fault: the start of its first line, up to a name or value, without numbers."""
    return re.sub(r"\d+", "N", re.split(r"['\"\[{(]| /", fault.partition("\n")[0])[0])[:160]


def save(case: Case, path: Path) -> Path:
    """Save the files of a case as a zip file, for `read_saved`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in case.items():
            file.writestr(name, data)
    return path


def read_saved(path: Path) -> tuple[str, Case]:
    """Return the surface and the files of a saved case."""
    with zipfile.ZipFile(path) as file:
        return path.name.split("-")[0], {name: file.read(name) for name in file.namelist()}


def run(names: list[str], seed: int, *, cases: int | None, seconds: float, found: Path) -> Report:
    """Check cases of the surfaces in turn.

    Args:
        names: the surfaces.
        seed: with the surface and the number of the case, determines the case.
        cases: number of cases of each surface; `None` is without limit.
        seconds: when to stop.
        found: folder for failing cases.

    """
    for name in names:
        surface_named(name)
    # Else each child process that collects garbage writes to, and so copies, the memory of all modules.
    gc.freeze()
    report, start = Report(), time.monotonic()
    for number in range(cases) if cases is not None else count():
        for name in names:
            if time.monotonic() - start > seconds:
                return report
            case = make_case(name, seed, number)
            report.cases[name] += 1
            if fault := check_case(name, case):
                kind = (name, summary(fault))
                report.faults[kind] += 1
                if report.faults[kind] <= _SAVED:
                    path = save(case, found / f"{name}-{seed}-{number}.zip")
                    report.saved.setdefault(kind, path)
                    print(f"\n{name}: {fault[:3000]}\n  scripts/fuzz {path}", flush=True)
        if sys.stderr.isatty():
            seconds_so_far = int(time.monotonic() - start)
            print(f"\r{seconds_so_far} s, {report.cases.total():,} cases", end="", file=sys.stderr)
    return report
