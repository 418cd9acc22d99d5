"""Every command under every fault of its environment: one line, and the status that the fault deserves."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from dataprep.verification.verify import verify_dataset

if sys.platform != "linux":
    pytest.skip("limits of processes and /dev/full are those of Linux", allow_module_level=True)


class Case(NamedTuple):
    """A command with the exit status of an undisturbed run."""

    command: str
    status: int = 0

    @property
    def program(self) -> str:
        return self.command.split()[0]

    def arguments(self, *more: str) -> list[str]:
        return [*self.command.split()[1:], *more]


CASES = {
    "convert": Case("dataprep convert --src photos --out out --samples-per-shard 3"),
    "dry run": Case("dataprep convert --src photos --out out --dry-run"),
    "rejected": Case("dataprep convert --src broken --out out --workers 1", 1),
    "index": Case("dataprep index tars --workers 1"),
    "verify": Case("dataprep verify sound --workers 2"),
    "verify damaged": Case("dataprep verify damaged --workers 1", 1),
    "info": Case("dataprep info sound --json"),
    "missing": Case("dataprep info none", 2),
    "help": Case("dataprep --help"),
    "report": Case("dataprep report sound --workers 1"),
    "memory": Case("loaders memory sound --batch-size 8"),
}
#: Commands that do something. The others only print.
WORKING = ("convert", "index", "verify", "verify damaged", "info", "report", "memory")


@pytest.fixture(scope="module")
def prepared(make_photos, dataprep, tmp_path_factory):
    """A folder with sources and datasets, sound and damaged ones."""
    folder = tmp_path_factory.mktemp("prepared")
    make_photos(folder / "photos", 9)
    make_photos(folder / "broken", 9)
    next((folder / "broken").glob("*/*.png")).write_bytes(b"")
    for name in ("sound", "damaged", "tars"):
        fmt = ["--fmt", "webdataset"] if name == "tars" else []
        call = ("convert", "--src", folder / "photos", "--out", folder / name, *fmt)
        assert dataprep(*call, "--samples-per-shard", 3).returncode == 0
    for path in (folder / "tars").glob("[!.]*"):
        if path.suffix != ".tar":
            path.unlink()
    table = folder / "damaged" / "train-00001.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    return folder


@pytest.fixture
def work(prepared, tmp_path) -> Path:
    """A copy of the prepared folder."""
    return Path(shutil.copytree(prepared, tmp_path / "work"))


@pytest.fixture
def run(work):
    """A function that runs a case in a new interpreter, or this code with the arguments of the case."""

    def call(name: str, code: str = "", *more: str, **options: object):
        case = CASES[name]
        program = ["-c", code, *more] if code else ["-m", case.program]
        command = [sys.executable, *program, *case.arguments()]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": work, **options}
        return subprocess.run(command, check=False, text=True, timeout=300, **pipes)

    return call


@pytest.fixture
def fork(work, warm):
    """A function that runs a case as `run` does, in a fork that first runs some code."""

    def call(name: str, before: str, *options: str, code: tuple[str, ...] = ()):
        case = CASES[name]
        program = ("-c", *code) if code else ("-m", case.program)
        before = f"import forked_workers\n{before}"
        return warm.run(*program, *case.arguments(*options), before=before, cwd=work)

    return call


def is_done(name: str, folder: Path) -> bool:
    """Return whether the command has written what it should write."""
    files = {"convert": "out/manifest.json", "index": "tars/manifest.json", "report": "report.html"}
    return name not in files or (folder / files[name]).exists()


#: How lines begin that a step prints when it has taken five seconds.
PROGRESS = tuple(
    f"{step}: "
    for step in [
        "converting", "verifying", "checking", "comparing", "decoding", "hashing", "indexing",
    ]
)  # fmt: skip


def error_of(done: subprocess.CompletedProcess[str], text: str | None = None) -> str:
    """Check that a command stopped with status 3 and one line about it; return the line."""
    text = done.stderr if text is None else text
    others = ("note: ", "photos: ", "broken: ", *PROGRESS)
    lines = [line for line in text.splitlines() if not line.startswith(others)]
    assert (done.returncode, len(lines)) == (3, 1), text
    assert lines[0].startswith(("dataprep: ", "loaders: "))
    assert " Hint: " in lines[0]
    return lines[0]


# --- standard streams ---------------------------------------------------------------------------


BOTH = ("stdout", "stderr")

#: Commands that end in different ways after they have printed.
PRINTING = ("dry run", "info", "help", "report", "memory")


@pytest.mark.parametrize(
    ("name", "streams"),
    [
        *((name, BOTH) for name in (*PRINTING, "convert", "rejected", "verify damaged")),
        *((name, (stream,)) for name in ("convert", "verify damaged") for stream in BOTH),
    ],
)
def test_a_reader_that_is_gone_changes_nothing(name, streams, fork, work):
    numbers = [{"stdout": 1, "stderr": 2}[stream] for stream in streams]
    broken = "import os; read, write = os.pipe(); os.close(read)"
    closed = f"[os.dup2(write, number) for number in {numbers}]; os.close(write)"
    done = fork(name, f"{broken}; {closed}")
    assert done.returncode == CASES[name].status, done.stderr
    assert is_done(name, work)
    assert "Traceback" not in (done.stderr or "")
    assert "rokenPipe" not in (done.stderr or "")


#: Code that opens a full disk as a standard stream.
FULL = "import os; full = os.open('/dev/full', os.O_WRONLY); os.dup2(full, {}); os.close(full)"


@pytest.mark.parametrize("name", [*PRINTING, "convert", "rejected", "verify damaged"])
def test_a_full_disk_behind_stdout(name, fork):
    done = fork(name, FULL.format(1))
    assert "standard output cannot be written: No space left on device" in error_of(done)


@pytest.mark.parametrize("name", ["convert", "missing"])
def test_a_full_disk_behind_stderr(name, fork):
    """The line goes to stdout; the status is 3 only if the command stopped for this reason."""
    done = fork(name, FULL.format(2))
    assert done.returncode == {"convert": 3, "missing": 2}[name]
    assert len(done.stdout.splitlines()) == 1
    assert "Hint: " in done.stdout


@pytest.mark.parametrize(
    ("name", "number"), [("convert", 1), ("convert", 2), ("help", 1), ("memory", 2)]
)
def test_a_closed_stream(name, number, run, work):
    done = run(name, preexec_fn=lambda: os.close(number))
    stream = {1: "standard output", 2: "standard error"}[number]
    assert f"{stream} is closed. Hint: redirect it" in error_of(done, done.stdout or done.stderr)
    assert not (work / "out").exists()


def test_all_streams_closed(run, work):
    """No file of the dataset gets the number of a standard stream."""
    assert run("convert", preexec_fn=lambda: os.closerange(0, 3)).returncode == 3
    assert run("convert", preexec_fn=lambda: os.close(0)).returncode == 0
    assert verify_dataset(str(work / "out"), workers=1).problems == ()


# --- the working directory ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["help", "convert", "index", "memory"])
def test_a_deleted_working_directory(name, run, tmp_path):
    (tmp_path / "gone").mkdir()
    gone = {"cwd": tmp_path / "gone", "preexec_fn": (tmp_path / "gone").rmdir}
    line = error_of(run(name, **gone))
    assert "the working directory does not exist any more. Hint: change to another folder" in line


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limit"), [*((name, 9) for name in WORKING), ("convert", 20), ("report", 20)]
)
def test_few_open_files(name, limit, fork, work):
    """It works with so few files, or says that it needs more; it takes this for no damage."""
    more = () if name in ("info", "memory") else ("--workers", "3" if name == "convert" else "2")
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))"
    done = fork(name, few, *more)
    if done.returncode == CASES[name].status:
        assert is_done(name, work)
        return
    line = error_of(done)
    assert "Too many open files" in line
    assert "Hint: raise the limit on open files (ulimit -n)" in line


#: What C libraries print before they end the process, because their callers have no way to handle
#: the error. Some print nothing.
LIBRARIES_THAT_EXIT = (
    "OpenBLAS error",
    "std::bad_alloc",
    "arrow::stl::BadAlloc",
    "cannot allocate memory for thread-local data",
    "<jemalloc>",
)


@pytest.mark.parametrize(
    ("name", "megabytes"), [("convert", 150), ("report", 150), ("memory", 150), ("convert", 300)]
)
def test_little_memory(name, megabytes, run, work):
    """Which allocation fails is a matter of chance, but nothing is ever taken for damage or for success."""
    limits = (megabytes << 20,) * 2
    done = run(name, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits))
    check_little_memory(name, done, work)


@pytest.mark.parametrize("name", WORKING)
def test_little_memory_is_left(name, fork, work):
    """The same after all imports: 8 MiB are left."""
    limit = "int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (8 << 20)"
    before = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit},) * 2)"
    check_little_memory(name, fork(name, before), work)


def check_little_memory(name: str, done: subprocess.CompletedProcess[str], folder: Path) -> None:
    crashed = {127, -signal.SIGABRT, -signal.SIGSEGV}
    ended = any(message in done.stderr for message in LIBRARIES_THAT_EXIT)
    if ended or done.returncode in crashed:
        assert done.returncode in {3, *crashed}
        assert "Traceback" not in done.stderr
    elif done.returncode != CASES[name].status:
        error_of(done)
    else:
        assert is_done(name, folder)


#: How `-c` starts a program.
START = {
    "dataprep": "from dataprep.__main__ import run; sys.argv[0] = 'dataprep'",
    "loaders": "from manifests.process.program import run_loaders as run; sys.argv[0] = 'loaders'",
}

#: Starts a program in which memory runs out at the import of a module with this name.
NO_MEMORY = """
import sys
name = sys.argv.pop(1)
class NoMemory:
    def find_spec(self, module, path=None, target=None):
        if module == name:
            raise MemoryError
{start}
sys.meta_path.insert(0, NoMemory())
run()
"""


#: Forgets the modules of this project, and one more with its submodules, so that a program imports
#: them again.
FORGET = """
import sys
for name in [*sys.modules]:
    if name.partition(".")[0] in ("manifests", "dataprep", "loaders", {package!r}):
        del sys.modules[name]
"""


@pytest.mark.parametrize(
    ("name", "module"),
    [
        *((name, "pyarrow") for name in WORKING),
        *((name, "manifests.tables") for name in ("convert", "memory")),
    ],
)
def test_no_memory_at_an_import(name, module, fork):
    """The same faults as above, each in its place in every run."""
    code = NO_MEMORY.format(start=START[CASES[name].program])
    done = fork(name, FORGET.format(package=module.partition(".")[0]), code=(code, module))
    assert NO_MEMORY_LEFT in error_of(done)


@pytest.mark.parametrize("module", ["click", "numpy"])
@pytest.mark.parametrize("name", ["convert", "memory"])
def test_no_memory_at_an_early_import(name, module, run):
    """C code imports NumPy too, and replaces the error by another."""
    code = NO_MEMORY.format(start=START[CASES[name].program])
    assert NO_MEMORY_LEFT in error_of(run(name, code, module))


NO_MEMORY_LEFT = "memory ran out. Hint: use fewer --workers or free some memory"


# --- Ctrl-C -------------------------------------------------------------------------------------

#: Starts a program in a process that sends itself SIGINT when the given number of modules has been
#: imported.
INTERRUPT = """
import os, signal, sys
class Interrupt:
    left = int(sys.argv.pop(1))
    def find_spec(self, name, path=None, target=None):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
{start}
sys.meta_path.insert(0, Interrupt())
run()
"""


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # The first imports of all commands of a program are the same.
        *(("convert", count) for count in (2, 12, 40, 90, 200, 300)),
        *(("memory", count) for count in (2, 40, 90, 200)),
        *((name, 200) for name in ("info", "report")),
    ],
)
def test_an_interrupt_during_any_import_is_one_line(name, count, run):
    """Also where C code imports a module, and replaces the error that a handler raises by another."""
    program = CASES[name].program
    done = run(name, INTERRUPT.format(start=START[program]), str(count))
    if done.returncode == 0:  # the program imports fewer modules
        assert count >= 200
        return
    assert done.returncode == 130, done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(f"{program}: interrupted. Run the same command again")
    assert len([line for line in lines if not line.startswith("photos: ")]) == 1


def test_an_interrupt_of_python_m_loaders_is_one_line(run):
    """`python -m loaders` imports the package, with NumPy, before the program."""
    named = "sys.argv[0] = '-m'; sys.orig_argv[:] = ['python', '-m', 'loaders', *sys.argv[1:]]"
    module = "runpy.run_module('loaders', run_name='__main__', alter_sys=True)"
    start = f"import runpy\ndef run():\n    {named}\n    {module}"
    done = run("memory", INTERRUPT.format(start=start), "60")
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("loaders: interrupted. ")
    assert len(done.stderr.splitlines()) == 1
