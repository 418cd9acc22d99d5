"""Run a function in a forked child process with limits, and report what it did.

The parent has paid the imports.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import re
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataprep.images.isolated import PROGRAM

#: Limits of one command. The harder limits below only protect the machine.
MAX_MEMORY = 512 << 20
MAX_SECONDS = 5

_HARD_MEMORY = 3 << 30
_HARD_SECONDS = 20
#: A child that does not end in this many seconds, on a busy machine, hangs.
_HANGS = 300
_HARD_FILE_SIZE = 256 << 20

#: Exit status of a child whose function raised an exception.
_RAISED = 70


class Fault(Exception):  # noqa: N818
    """A property does not hold."""


@dataclass(frozen=True)
class Outcome:
    """What a function in a child process did.

    Attributes:
        status: exit status.
        stdout: standard output.
        stderr: standard error.
        value: what the function returned; `None` if it ended the process.

    """

    status: int
    stdout: str
    stderr: str
    value: Any


def isolated(function: Callable[[], Any], writable: Sequence[Path]) -> Outcome:
    """Call a function in a child process.

    Raises:
        Fault: the function raised an exception, the process died from a signal or exceeded a limit,
            or it wrote a file outside of the folders `writable`, left a temporary file, or executed
            something.

    """
    sys.stdout.flush()
    sys.stderr.flush()
    names = ("stdout", "stderr", "value", "violations", "before")
    stdout, stderr, value, violations, before = files = [os.memfd_create(name) for name in names]
    temporary = tempfile.mkdtemp()
    child = os.fork()
    if not child:
        try:
            os.write(before, str(_memory()[1]).encode())
            _limit()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            faulthandler.dump_traceback_later(_HANGS, exit=True, file=2)
            tempfile.tempdir = temporary
            _watch(violations, [os.path.realpath(folder) for folder in (*writable, temporary)])
            os.write(value, pickle.dumps(function()))
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        os._exit(_RAISED)
    _, wait_status, usage = os.wait4(child, 0)
    contents = [os.pread(fd, os.fstat(fd).st_size, 0) for fd in files]
    for fd in files:
        os.close(fd)
    left = os.listdir(temporary)
    shutil.rmtree(temporary)
    output, errors, _, violated, _ = (data.decode("utf-8", "backslashreplace") for data in contents)
    returned = pickle.loads(contents[2]) if contents[2] else None
    status = os.waitstatus_to_exitcode(wait_status)
    outcome = Outcome(status, output, errors, returned)
    _require_limits(outcome, usage, usage.ru_maxrss * 1024 - int(contents[4]))
    if violated:
        raise Fault(violated)
    if left:
        raise Fault(f"leaves temporary files: {left}")
    return outcome


def _require_limits(outcome: Outcome, usage: resource.struct_rusage, memory: int) -> None:
    seconds = usage.ru_utime + usage.ru_stime
    if outcome.status < 0:
        raise Fault(f"signal {-outcome.status} after {seconds:.1f} s\n{outcome.stderr[-2000:]}")
    if outcome.stderr.startswith("Timeout (") or "\nTimeout (0:" in outcome.stderr:
        raise Fault(f"hangs: {[*_frames(outcome.stderr), '?'][0]}\n{outcome.stderr[-4000:]}")
    if outcome.status == _RAISED or "Traceback (most recent call last)" in outcome.stderr:
        raise Fault(_last_line(outcome.stderr) + "\n" + outcome.stderr[-4000:])
    if seconds > MAX_SECONDS:
        raise Fault(f"more than {MAX_SECONDS} s of CPU time: {seconds:.1f} s")
    if memory > MAX_MEMORY:
        raise Fault(f"more than {MAX_MEMORY >> 20} MiB of memory: {memory >> 20} MiB")


def _frames(text: str) -> list[str]:
    """Return the file and the function of each frame of this project."""
    pattern = r'File "[^"]*/((?:manifests|dataprep|loaders)/[^"]*)", line \d+,? in (\w+)'
    return [" ".join(found) for found in re.findall(pattern, text)]


def _last_line(text: str) -> str:
    """Return the function of this project that an exception passed through last, and the exception."""
    frames, lines = _frames(text), [line for line in text.splitlines() if line[:1].strip()]
    return f"traceback at {frames[-1] if frames else '?'}: {lines[-1][:300] if lines else ''}"


def _memory() -> tuple[int, int]:
    """Return the size of this process and its memory. A child begins without the mapped files."""
    with open("/proc/self/statm") as file:
        size, resident, *_ = map(int, file.read().split())
    return size * resource.getpagesize(), resident * resource.getpagesize()


def _limit() -> None:
    limits = {
        resource.RLIMIT_AS: _memory()[0] + _HARD_MEMORY, resource.RLIMIT_CPU: _HARD_SECONDS,
        resource.RLIMIT_FSIZE: _HARD_FILE_SIZE, resource.RLIMIT_CORE: 0,
    }  # fmt: skip
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))


# --- what the child may not do ------------------------------------------------------------------

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

#: Audit events that change paths. For each changed path: the number of the argument, and that of
#: its `dir_fd`.
_CHANGES = {
    **{f"os.{name}": ((0, 2),) for name in ("mkdir", "chmod")},
    **{f"os.{name}": ((0, 1),) for name in ("rmdir", "remove")},
    **{f"os.{name}": ((0, 3),) for name in ("chown", "utime")},
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
}
_EXECUTIONS = [
    "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect",
    "pickle.find_class",
]  # fmt: skip


def _watch(report: int, writable: Sequence[str]) -> None:
    """Report paths that are changed outside of the folders `writable`, and what is executed."""

    def tell(text: str) -> None:
        os.write(report, f"{text}\n".encode("utf-8", "backslashreplace"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        paths: list[Any] = []
        if event == "open":
            paths = [arguments[0]] if arguments[2] & _WRITING else []
        elif event in _CHANGES:
            paths = [_in_folder(arguments, *numbers) for numbers in _CHANGES[event]]
        elif event in _EXECUTIONS and not _is_expected(event, arguments):
            tell(f"executes: {event}{arguments!r:.300}")
        for path in paths:
            if not isinstance(path, int) and not _is_within(os.fsdecode(path), writable):
                tell(f"writes outside of the output: {event} {path!r}")

    sys.addaudithook(hook)


def _in_folder(arguments: tuple[Any, ...], number: int, folder_number: int | None) -> Any:
    """Return a path of an audit event, with the folder of its `dir_fd`."""
    path, folder = arguments[number], -1 if folder_number is None else arguments[folder_number]
    if isinstance(path, int) or folder < 0:
        return path
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))


#: Modules whose functions run in a process of their own.
_DECODERS = ("dataprep.images.decoders", "dataprep.containers.videos")


def _is_expected(event: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether a program is started that `dataprep` starts for any input."""
    if event != "subprocess.Popen":
        return False
    program, command, folder, _ = arguments
    programs = [PROGRAM.format(path=sys.path, module=name) for name in _DECODERS]
    is_decoder = command[:2] == [sys.executable, "-c"] and command[2:] in [[p] for p in programs]
    return is_decoder and program == sys.executable and folder is None


def _is_within(path: str, folders: Sequence[str]) -> bool:
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return real == os.devnull or any(
        real == folder or real.startswith(f"{folder}/") for folder in folders
    )
