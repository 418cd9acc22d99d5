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

DATAPREP, LOADERS = ("-m", "dataprep"), ("-m", "loaders")


class Case(NamedTuple):
    """A command with the exit status of an undisturbed run."""

    program: tuple[str, ...]
    arguments: tuple[str, ...]
    status: int = 0


CASES = {
    "convert": Case(
        DATAPREP, ("convert", "--src", "photos", "--out", "out", "--samples-per-shard", "3")
    ),
    "dry run": Case(DATAPREP, ("convert", "--src", "photos", "--out", "out", "--dry-run")),
    "rejected": Case(DATAPREP, ("convert", "--src", "broken", "--out", "out", "--workers", "1"), 1),
    "index": Case(DATAPREP, ("index", "tars", "--workers", "1")),
    "verify": Case(DATAPREP, ("verify", "sound", "--workers", "2")),
    "verify damaged": Case(DATAPREP, ("verify", "damaged", "--workers", "1"), 1),
    "info": Case(DATAPREP, ("info", "sound", "--json")),
    "info damaged": Case(DATAPREP, ("info", "damaged"), 1),
    "missing": Case(DATAPREP, ("info", "none"), 2),
    "wrong option": Case(DATAPREP, ("verify", "--nope"), 2),
    "help": Case(DATAPREP, ("--help",)),
    "report": Case(DATAPREP, ("report", "sound", "--workers", "1")),
    "report damaged": Case(DATAPREP, ("report", "damaged", "--workers", "1"), 1),
    "memory": Case(LOADERS, ("memory", "sound", "--batch-size", "8")),
    "memory damaged": Case(LOADERS, ("memory", "damaged", "--batch-size", "8"), 1),
    "loaders help": Case(LOADERS, ("memory", "--help")),
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
        call = [
            "convert",
            "--src",
            folder / "photos",
            "--out",
            folder / name,
            "--samples-per-shard",
            "3",
            *fmt,
        ]
        assert dataprep(*call).returncode == 0
    for path in (folder / "tars").glob("[!.]*"):
        if path.suffix != ".tar":
            path.unlink()
    table = folder / "damaged" / "train-00001.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    return folder


@pytest.fixture
def run(prepared, tmp_path):
    """A function that runs a case in a copy of the prepared folder."""
    shutil.copytree(prepared, tmp_path / "work")

    def call(case: Case, **options: object) -> subprocess.CompletedProcess[str]:
        options = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": tmp_path / "work",
            **options,
        }
        command = [sys.executable, *case.program, *case.arguments]
        return subprocess.run(command, check=False, text=True, timeout=300, **options)

    return call


@pytest.fixture
def fork(prepared, warm, tmp_path):
    """A function that runs a case as `run` does, in a fork that first runs some code."""
    shutil.copytree(prepared, tmp_path / "work")

    def call(case: Case, before: str) -> subprocess.CompletedProcess[str]:
        before = f"import forked_workers\n{before}"
        return warm.run(*case.program, *case.arguments, before=before, cwd=tmp_path / "work")

    return call


def is_done(case: Case, folder: Path) -> bool:
    """Return whether the command has written what it should write."""
    files = {"convert": "out/manifest.json", "index": "tars/manifest.json", "report": "report.html"}
    written = files.get(case.arguments[0])
    return written is None or "--dry-run" in case.arguments or (folder / written).exists()


#: How lines begin that a step prints when it has taken five seconds.
PROGRESS = (
    "converting: ",
    "verifying: ",
    "checking: ",
    "comparing: ",
    "decoding: ",
    "hashing: ",
    "indexing: ",
)


def error_of(done: subprocess.CompletedProcess[str], text: str | None = None) -> str:
    """Check that a command stopped with status 3 and one line about it; return the line."""
    text = done.stderr if text is None else text
    lines = [
        line
        for line in text.splitlines()
        if not line.startswith(("note: ", "photos: ", "broken: ", *PROGRESS))
    ]
    assert done.returncode == 3, (done.returncode, text)
    assert len(lines) == 1, text
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
def test_a_reader_that_is_gone_changes_nothing(name, streams, fork, tmp_path):
    case = CASES[name]
    numbers = [{"stdout": 1, "stderr": 2}[stream] for stream in streams]
    broken = "import os; read, write = os.pipe(); os.close(read)"
    done = fork(
        case, f"{broken}; [os.dup2(write, number) for number in {numbers}]; os.close(write)"
    )
    assert done.returncode == case.status, done.stderr
    assert is_done(case, tmp_path / "work")
    assert "Traceback" not in (done.stderr or "")
    assert "rokenPipe" not in (done.stderr or "")


#: Code that opens a full disk as a standard stream.
FULL = "import os; full = os.open('/dev/full', os.O_WRONLY); os.dup2(full, {}); os.close(full)"


@pytest.mark.parametrize("name", [*PRINTING, "convert", "rejected", "verify damaged"])
def test_a_full_disk_behind_stdout(name, fork):
    done = fork(CASES[name], FULL.format(1))
    assert "standard output cannot be written: No space left on device" in error_of(done)


@pytest.mark.parametrize("name", ["convert", "missing"])
def test_a_full_disk_behind_stderr(name, fork):
    """The line goes to stdout; the status is 3 only if the command stopped for this reason."""
    done = fork(CASES[name], FULL.format(2))
    assert done.returncode == {"convert": 3, "missing": 2}[name]
    assert len(done.stdout.splitlines()) == 1
    assert "Hint: " in done.stdout


@pytest.mark.parametrize(
    ("name", "number"), [("convert", 1), ("convert", 2), ("help", 1), ("memory", 2)]
)
def test_a_closed_stream(name, number, run, tmp_path):
    done = run(CASES[name], preexec_fn=lambda: os.close(number))
    stream = {1: "standard output", 2: "standard error"}[number]
    assert f"{stream} is closed. Hint: redirect it" in error_of(done, done.stdout or done.stderr)
    assert not (tmp_path / "work" / "out").exists()


def test_all_streams_closed(run, tmp_path):
    """No file of the dataset gets the number of a standard stream."""
    assert run(CASES["convert"], preexec_fn=lambda: os.closerange(0, 3)).returncode == 3
    assert run(CASES["convert"], preexec_fn=lambda: os.close(0)).returncode == 0
    assert verify_dataset(str(tmp_path / "work" / "out"), workers=1).problems == ()


# --- the working directory ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["help", "convert", "index", "memory"])
def test_a_deleted_working_directory(name, prepared, tmp_path):
    case = CASES[name]
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        [sys.executable, *case.program, *case.arguments], capture_output=True, text=True, check=False, timeout=300,
        cwd=gone, preexec_fn=gone.rmdir,
    )  # fmt: skip
    assert (
        "the working directory does not exist any more. Hint: change to another folder"
        in error_of(done)
    )


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limit"), [*((name, 9) for name in WORKING), ("convert", 20), ("report", 20)]
)
def test_few_open_files(name, limit, fork, tmp_path):
    """It works with so few files, or says that it needs more; it takes this for no damage."""
    case = CASES[name]
    more = () if name in ("info", "memory") else ("--workers", "3" if name == "convert" else "2")
    done = fork(
        case._replace(arguments=(*case.arguments, *more)),
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))",
    )
    if done.returncode != case.status:
        line = error_of(done)
        assert "Too many open files" in line
        assert "Hint: raise the limit on open files (ulimit -n)" in line
    else:
        assert is_done(case, tmp_path / "work")


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
def test_little_memory(name, megabytes, run, tmp_path):
    """Which allocation fails is a matter of chance, but nothing is ever taken for damage or for success."""
    limit = megabytes << 20
    done = run(
        CASES[name], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    )
    check_little_memory(CASES[name], done, tmp_path / "work")


@pytest.mark.parametrize("name", WORKING)
def test_little_memory_is_left(name, fork, tmp_path):
    """The same after all imports: 8 MiB are left."""
    limit = "int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (8 << 20)"
    done = fork(
        CASES[name], f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit},) * 2)"
    )
    check_little_memory(CASES[name], done, tmp_path / "work")


def check_little_memory(case: Case, done: subprocess.CompletedProcess[str], folder: Path) -> None:
    ended = any(message in done.stderr for message in LIBRARIES_THAT_EXIT)
    if ended or done.returncode in {127, -signal.SIGABRT, -signal.SIGSEGV}:
        assert done.returncode in {3, 127, -signal.SIGABRT, -signal.SIGSEGV}
        assert "Traceback" not in done.stderr
    elif done.returncode != case.status:
        error_of(done)
    else:
        assert is_done(case, folder)


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
    case = CASES[name]
    start = NO_MEMORY.format(start=START[case.program[1]])
    done = fork(
        case._replace(program=("-c", start, module)),
        FORGET.format(package=module.partition(".")[0]),
    )
    assert "memory ran out. Hint: use fewer --workers or free some memory" in error_of(done)


@pytest.mark.parametrize("module", ["click", "numpy"])
@pytest.mark.parametrize("name", ["convert", "memory"])
def test_no_memory_at_an_early_import(name, module, run):
    """C code imports NumPy too, and replaces the error by another."""
    case = CASES[name]
    start = NO_MEMORY.format(start=START[case.program[1]])
    done = run(case._replace(program=("-c", start, module)))
    assert "memory ran out. Hint: use fewer --workers or free some memory" in error_of(done)


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
    case = CASES[name]
    program = case.program[1]
    start = INTERRUPT.format(start=START[program])
    done = run(case._replace(program=("-c", start, str(count))))
    if done.returncode == 0:  # the program imports fewer modules
        assert count >= 200
        return
    assert done.returncode == 130, done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(f"{program}: interrupted. Run the same command again")
    assert len([line for line in lines if not line.startswith("photos: ")]) == 1


def test_an_interrupt_of_python_m_loaders_is_one_line(prepared):
    """`python -m loaders` imports the package, with NumPy, before the program."""
    hook = INTERRUPT.format(
        start=(
            "import runpy; run = lambda: runpy.run_module('loaders', run_name='__main__',"
            " alter_sys=True)"
        )
    )
    source = hook.replace(
        "run()",
        "sys.argv[0] = '-m'; sys.orig_argv[:] = ['python', '-m', 'loaders', *sys.argv[1:]]; run()",
    )
    done = subprocess.run(
        [sys.executable, "-c", source, "60", "memory", prepared / "sound", "--batch-size", "8"], check=False,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("loaders: interrupted. ")
    assert len(done.stderr.splitlines()) == 1
