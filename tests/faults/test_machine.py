"""Every command under every fault of its environment: one line, and the status that the fault deserves."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataprep.verification.verify import verify_dataset

if sys.platform != "linux":
    pytest.skip("limits of processes and /dev/full are those of Linux", allow_module_level=True)


#: Commands, with the exit status of an undisturbed run.
CASES = {
    "convert": ("dataprep convert --src photos --out out --samples-per-shard 3", 0),
    "dry run": ("dataprep convert --src photos --out out --dry-run", 0),
    "rejected": ("dataprep convert --src broken --out out --workers 1", 1),
    "index": ("dataprep index tars --workers 1", 0),
    "verify": ("dataprep verify sound --workers 2", 0),
    "verify damaged": ("dataprep verify damaged --workers 1", 1),
    "info": ("dataprep info sound --json", 0),
    "missing": ("dataprep info none", 2),
    "help": ("dataprep --help", 0),
    "report": ("dataprep report sound --workers 1", 0),
    "memory": ("loaders memory sound --batch-size 8", 0),
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

    def call(name: str, *code: str, **options: object):
        module, *arguments = CASES[name][0].split()
        program = ("-c", *code) if code else ("-m", module)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": work, **options}
        command = [sys.executable, *program, *arguments]
        return subprocess.run(command, check=False, text=True, timeout=300, **pipes)

    return call


@pytest.fixture
def fork(work, warm):
    """A function that runs a case as `run` does, in a fork that first runs some code."""

    def call(name: str, before: str, *options: str, code: tuple[str, ...] = ()):
        module, *arguments = CASES[name][0].split()
        program = ("-c", *code) if code else ("-m", module)
        before = f"import forked_workers\n{before}"
        return warm.run(*program, *arguments, *options, before=before, cwd=work)

    return call


def is_done(name: str, folder: Path) -> bool:
    """Return whether the command has written what it should write."""
    files = {"convert": "out/manifest.json", "index": "tars/manifest.json", "report": "report.html"}
    return name not in files or (folder / files[name]).exists()


#: How other lines begin: notes, and what a step prints when it has taken five seconds.
OTHERS = tuple(
    f"{name}: "
    for name in [
        "note", "photos", "broken", "converting", "verifying", "checking", "comparing", "decoding",
        "hashing", "indexing",
    ]
)  # fmt: skip


def error_of(done: subprocess.CompletedProcess[str], text: str | None = None) -> str:
    """Check that a command stopped with status 3 and one line about it; return the line."""
    text = done.stderr if text is None else text
    lines = [line for line in text.splitlines() if not line.startswith(OTHERS)]
    assert (done.returncode, len(lines)) == (3, 1), text
    assert lines[0].startswith(("dataprep: ", "loaders: "))
    assert " Hint: " in lines[0]
    return lines[0]


# --- standard streams ---------------------------------------------------------------------------


#: Commands that end in different ways after they have printed.
PRINTING = ("dry run", "info", "help", "report", "memory", "convert", "rejected", "verify damaged")


@pytest.mark.parametrize(
    ("name", "streams"),
    [
        *((name, (1, 2)) for name in PRINTING),
        *((name, (stream,)) for name in ("convert", "verify damaged") for stream in (1, 2)),
    ],
)
def test_a_reader_that_is_gone_changes_nothing(name, streams, fork, work):
    broken = "import os; read, write = os.pipe(); os.close(read)"
    closed = f"[os.dup2(write, number) for number in {streams}]; os.close(write)"
    done = fork(name, f"{broken}; {closed}")
    assert done.returncode == CASES[name][1], done.stderr
    assert is_done(name, work)
    assert "Traceback" not in done.stderr
    assert "rokenPipe" not in done.stderr


#: Code that opens a full disk as a standard stream.
FULL = "import os; full = os.open('/dev/full', os.O_WRONLY); os.dup2(full, {}); os.close(full)"


@pytest.mark.parametrize("name", PRINTING)
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
    if done.returncode == CASES[name][1]:
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
    ("name", "megabytes"),
    [
        ("convert", 150),
        ("report", 150),
        ("memory", 150),
        ("convert", 300),
        *((n, 0) for n in WORKING),
    ],
)
def test_little_memory(name, megabytes, run, fork, work):
    """Which allocation fails is a matter of chance, but nothing is ever taken for damage or for success.

    With 0 megabytes: the same after all imports, when 8 MiB are left.
    """
    if megabytes:
        limits = (megabytes << 20,) * 2
        done = run(name, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits))
    else:
        used = "int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()"
        limit = f"resource.setrlimit(resource.RLIMIT_AS, ({used} + (8 << 20),) * 2)"
        done = fork(name, f"import resource; {limit}")
    crashed = {127, -signal.SIGABRT, -signal.SIGSEGV}
    ended = any(message in done.stderr for message in LIBRARIES_THAT_EXIT)
    if ended or done.returncode in crashed:
        assert done.returncode in {3, *crashed}
        assert "Traceback" not in done.stderr
    elif done.returncode != CASES[name][1]:
        error_of(done)
    else:
        assert is_done(name, work)


#: Code that starts the program that is named next.
START = """
program = sys.argv.pop(1)
if program == "dataprep":
    from dataprep.__main__ import run
elif program == "loaders":
    from manifests.process.program import run_loaders as run
else:  # `python -m loaders` imports the package, with NumPy, before the program
    import runpy
    sys.orig_argv[:] = ["python", "-m", "loaders", *sys.argv[1:]]
    def run():
        runpy.run_module("loaders", run_name="__main__", alter_sys=True)
sys.argv[0] = program
sys.meta_path.insert(0, Finder())
run()
"""

#: Starts a program in which memory runs out at the import of a module with this name.
NO_MEMORY = f"""
import sys
name = sys.argv.pop(1)
class Finder:
    def find_spec(self, module, path=None, target=None):
        if module == name:
            raise MemoryError
{START}"""

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
        # C code imports NumPy too, and replaces the error by another.
        *((name, module) for name in ("convert", "memory") for module in ("click", "numpy")),
    ],
)
def test_no_memory_at_an_import(name, module, run, fork):
    """The same faults as above, each in its place in every run."""
    code = (NO_MEMORY, module, CASES[name][0].split()[0])
    if module in ("click", "numpy"):  # imported too early for a fork
        done = run(name, *code)
    else:
        done = fork(name, FORGET.format(package=module.partition(".")[0]), code=code)
    assert "memory ran out. Hint: use fewer --workers or free some memory" in error_of(done)


#: Starts a program in a process that sends itself SIGINT when the given number of modules has been
#: imported.
INTERRUPT = f"""
import os, signal, sys
class Finder:
    left = int(sys.argv.pop(1))
    def find_spec(self, name, path=None, target=None):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
{START}"""


@pytest.mark.parametrize(
    ("name", "count", "program"),
    [
        # The first imports of all commands of a program are the same.
        *(("convert", count, "dataprep") for count in (2, 12, 40, 90, 200, 300)),
        *(("memory", count, "loaders") for count in (2, 40, 90, 200)),
        *((name, 200, "dataprep") for name in ("info", "report")),
        ("memory", 60, "-m"),
    ],
)
def test_an_interrupt_during_any_import_is_one_line(name, count, program, run):
    """Also where C code imports a module, and replaces the error that a handler raises by another."""
    done = run(name, INTERRUPT, str(count), program)
    if done.returncode == 0:  # the program imports fewer modules
        assert count >= 200
        return
    assert done.returncode == 130, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("photos: ")]
    begin = f"{CASES[name][0].split()[0]}: interrupted. Run the same command again"
    assert [line[: len(begin)] for line in lines] == [begin]
