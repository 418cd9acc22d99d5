"""Run the cases of a surface, each in a child process of its own, and save those that fail."""

from __future__ import annotations

import gc
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from random import Random

from fuzz.checks import Case
from fuzz.isolation import Fault
from fuzz.surfaces import Surface, surface_named

#: A case that takes longer, on a busy machine, hangs.
_TIME_LIMIT = 400

#: Failing cases of one kind that are saved. They may have different causes.
_SAVED = 5


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
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.close(receive)
        os.write(
            send,
            _check(surface_named(name), case, folder).encode("utf-8", "backslashreplace")[:60_000],
        )
        os._exit(0)
    os.close(send)
    try:
        answer = _receive(receive, child)
    finally:
        os.close(receive)
        shutil.rmtree(folder, ignore_errors=True)
    return answer


def _check(surface: Surface, case: Case, folder: Path) -> str:
    try:
        (folder / "case").mkdir()
        surface.check(case, folder / "case")
    except Fault as fault:
        return str(fault)
    except BaseException:
        return f"the check itself failed: {traceback.format_exc()}"
    others = [path.name for path in folder.iterdir() if path.name != "case"]
    return f"writes outside of the output: {others}" if others else ""


def _receive(pipe: int, child: int) -> str:
    """Wait for the answer of a child process, and end the child with all of its children."""
    answer, end = b"", time.monotonic() + _TIME_LIMIT
    while select.select([pipe], [], [], max(0, end - time.monotonic()))[0]:
        if not (data := os.read(pipe, 1 << 16)):
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return answer.decode() if status == 0 else f"the check ended with exit status {status}"
        answer += data
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"hangs: no answer in {_TIME_LIMIT} s"


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
    gc.freeze()  # else each child process that collects garbage writes to, and so copies, the memory of all modules
    report, start, shown = Report(), time.monotonic(), 0.0
    for name, number in _turns(names, cases):
        if time.monotonic() - start > seconds:
            break
        case = make_case(name, seed, number)
        if fault := check_case(name, case):
            kind = (name, summary(fault))
            report.faults[kind] += 1
            if report.faults[kind] <= _SAVED:
                path = save(case, found / f"{name}-{seed}-{number}.zip")
                report.saved.setdefault(kind, path)
                print(f"\n{name}: {fault[:3000]}\n  scripts/fuzz {path}", flush=True)
        report.cases[name] += 1
        if time.monotonic() - shown > (1 if sys.stderr.isatty() else 30):
            shown = time.monotonic()
            _show_progress(report, name, shown - start)
    return report


def _turns(names: list[str], cases: int | None) -> zip[tuple[str, int]]:
    numbers = (number for number in (range(cases) if cases is not None else count()) for _ in names)
    return zip(cycle(names), numbers, strict=False)


def _show_progress(report: Report, name: str, seconds: float) -> None:
    minutes, rest = divmod(int(seconds), 60)
    text = (
        f"{minutes:3d}:{rest:02d}  {report.cases.total():,} cases  {len(report.faults)} kinds of"
        f" faults  {name}"
    )
    print(
        f"\r{text:70}" if sys.stderr.isatty() else text,
        end="" if sys.stderr.isatty() else "\n",
        file=sys.stderr,
    )
