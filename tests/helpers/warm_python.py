"""A Python process that has imported modules, and runs programs in forks of itself: they start in milliseconds.

A program begins as if `python` had been called with its arguments, except that modules are imported
already. It gets the folder, the environment and the open files of its caller over a socket. If the
caller is killed or closes the socket, the program is killed.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

#: Seconds until a program that does not end fails its test.
_LIMIT = 300

#: An executable that tests start in place of `python`. It imports little, because it starts in
#: 15 ms. With other options of Python than these it becomes an ordinary interpreter.
_EXECUTABLE = """#!{python} -IS
import _socket, marshal, os, sys
arguments = sys.argv[1:]
program = [*arguments]
while program and (program[0][:2] in ("-u", "-P", "-B", "-W") or program[:2] == ["-X", "utf8={utf8}"]):
    del program[: 1 + (program[0] in ("-W", "-X"))]
if not program or program[0][:1] == "-" and program[0] not in ("-c", "-m"):
    os.execv({python!r}, [{python!r}, *arguments])
files = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)]
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
request = marshal.dumps((program, os.getcwd(), dict(os.environ), files, "", False))
rights = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
server.sendmsg([len(request).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
server.sendall(request)
for number in files:  # a reader at the other end of a pipe waits for the fork only
    os.close(number)
answer = server.recv(12, _socket.MSG_WAITALL)
status = int.from_bytes(answer[4:], "big", signed=True) if len(answer) == 12 else 1
if status < 0:
    import _signal
    if -status != _signal.SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class WarmPython:
    """Starts the process with the first program, and another one if something has killed it.

    Args:
        modules: modules to import. Importing them must not start threads.
        options: options of Python itself.

    """

    def __init__(self, *modules: str, options: Sequence[str] = ()) -> None:
        self._modules, self._options = [*modules], options
        self._server: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory()

    def executable(self, *modules: str) -> str:
        """Return the path of an executable that programs can start in place of `python`.

        Args:
            modules: more modules, which all later programs have.

        """
        new = [name for name in modules if name not in self._modules]
        self._modules += new
        with self.connect([], [], f"import {', '.join(new)}" if new else "") as connection:
            assert connection.recv(8), f"cannot import {new}"
        return f"{self._folder.name}/python"

    def run(
        self,
        *arguments: str | bytes | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        timeout: float = _LIMIT,
        check: bool = False,
        before: str = "",
        errors: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program, as `subprocess.run` does, and return its output.

        Args:
            arguments: those of `python`: ``-c CODE ...``, ``-m MODULE ...`` or ``FILE ...``.
            cwd: working directory.
            timeout: seconds after which the program is killed.
            check: whether another exit status than 0 is an error.
            before: code that the process runs before the program, in place of `preexec_fn`.
            errors: how to decode the output.

        """
        with (
            open(os.devnull) as null,
            tempfile.TemporaryFile("w+", errors=errors) as stdout,
            tempfile.TemporaryFile("w+", errors=errors) as stderr,
        ):
            outputs = [stdout, stderr]
            files = [file.fileno() for file in (null, *outputs)]
            program = [*map(os.fsdecode, arguments)]
            answer = b""
            while len(answer) < 8:  # else the process was killed, as Ray does with children
                with (
                    suppress(ConnectionError),
                    self.connect(program, files, before, cwd) as connection,
                ):
                    connection.settimeout(timeout)
                    answer = connection.makefile("rb").read()
            for file in outputs:
                file.seek(0)
            texts = [file.read() for file in outputs]
        status = int.from_bytes(answer[-8:], "big", signed=True)
        done = subprocess.CompletedProcess(arguments, status, *texts)
        if check:
            done.check_returncode()
        return done

    def connect(
        self,
        program: Sequence[str],
        files: Sequence[int],
        before: str = "",
        cwd: str | os.PathLike[str] | None = None,
        leads_group: bool = False,
    ) -> socket.socket:
        """Start a program; return the socket over which its process ID and its exit status come.

        Args:
            program: the arguments of `python`. Without them, the process itself runs `before`.
            files: what become the files 0, 1 and so on.
            before: code that runs before the program, and before its process ID is sent.
            cwd: working directory.
            leads_group: whether the program gets a process group and a session of its own.

        """
        address = f"{self._folder.name}/socket"
        if self._server is None or self._server.poll() is not None:
            Path(address).unlink(missing_ok=True)  # of a process that was killed
            command = [sys.executable, *self._options, __file__, address, *self._modules]
            # The folder of the test that is running may be gone when a later one imports modules.
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )
            assert self._server.stdout.read(1), "the warm process does not start"
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        numbers = [*range(len(files))]
        folder = os.fspath(cwd or os.getcwd())
        request = (program, folder, dict(os.environ), numbers, before, leads_group)
        data = marshal.dumps(request)
        socket.send_fds(connection, [len(data).to_bytes(8, "big")], files)
        connection.sendall(data)
        return connection

    def close(self) -> None:
        """End the process and its programs."""
        if self._server is not None:
            self._server.communicate()
            self._server = None
        self._folder.cleanup()


class WarmProcess:
    """What `subprocess.Popen(..., start_new_session=True)` is for a program of a `WarmPython`.

    Its output goes to pipes. When this object is collected, the process is killed; other processes
    of its group are not.

    Args:
        python: where the program begins.
        arguments: the arguments of `python`.
        before: code that the process runs first.

    Attributes:
        pid: the process, which leads a process group.
        stdout: what it prints.
        returncode: its exit status, or the negative number of the signal that ended it; `None`
            while it runs.

    """

    def __init__(self, python: WarmPython, *arguments: str, before: str) -> None:
        self.returncode: int | None = None
        pipes = [os.pipe(), os.pipe()]
        self.stdout, self._stderr = (os.fdopen(reader) for reader, _ in pipes)
        null, *writers = files = [os.open(os.devnull, os.O_RDONLY), *(each[1] for each in pipes)]
        self._connection = python.connect(arguments, files, before, leads_group=True)
        for file in (null, *writers):
            os.close(file)
        self.pid = int.from_bytes(self._connection.recv(4), "big")

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self._await_end(0)

    def wait(self, timeout: float = _LIMIT) -> int:
        """Wait for the end; return `returncode`."""
        if self._await_end(timeout) is None:
            raise subprocess.TimeoutExpired("dataprep", timeout)
        assert self.returncode is not None
        return self.returncode

    def _await_end(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            status = self._connection.recv(8)
            assert status, "the warm process has ended"
            self.returncode = int.from_bytes(status, "big", signed=True)
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float = _LIMIT) -> tuple[str, str]:
        """Wait until no process has the pipes open; return what came to stdout and stderr."""
        pool = ThreadPoolExecutor(2)
        try:
            files = (self.stdout, self._stderr)
            stdout, stderr = pool.map(lambda file: file.read(), files, timeout=timeout)
        except TimeoutError:
            os.killpg(self.pid, signal.SIGKILL)
            raise
        finally:
            pool.shutdown()
        self.stdout.close()
        self._stderr.close()
        self.wait(timeout)
        return stdout, stderr

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its end is not reported yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)


# --- in the process ---------------------------------------------------------------------------

#: Packages whose modules Python clears at the end of each program, as it does in any process.
_CLEARED = ("__main__", "builtins", "sys", "manifests", "dataprep", "loaders")


class _Program(NamedTuple):
    """A program that runs: its process, a file that reports its end, and the socket of its caller."""

    process: int
    report: int
    caller: socket.socket

    def close(self) -> None:
        os.close(self.report)
        self.caller.close()


def _serve(address: str, modules: Sequence[str]) -> None:
    """Start programs until standard input ends. Return in the fork of each, which has to run it."""
    libraries: list[ModuleType] = []
    atexit.register(_keep_libraries, libraries)  # the first one is called last
    ready = os.dup(1)
    os.dup2(2, 1)
    importlib.import_module(modules[0])
    _skip_destructors()
    exec(f"import {', '.join(modules)}", {})
    _freeze(libraries)
    listener = _listen(address)
    os.write(ready, b"\n")
    os.close(ready)
    poll = select.poll()
    poll.register(0, 0)  # that it ends is always reported
    poll.register(listener, select.POLLIN)
    programs: dict[int, _Program] = {}
    while True:
        (file, _), *_ = poll.poll()
        if file == 0:
            _end(programs.values())
        if file != listener.fileno():
            ended = programs[file]
            _report_end(ended, is_abandoned=file != ended.report)
            for number in (ended.report, ended.caller.fileno()):
                poll.unregister(number)
                del programs[number]
            ended.close()
            continue
        caller, _ = listener.accept()
        request, files = _receive(caller)
        if not request or not request[0]:
            _import(request, files, caller, libraries)
            continue
        process = os.fork()
        if not process:
            listener.close()
            for each in {*programs.values()}:
                each.close()
            _become(*request, files, caller)
            return
        for number in files:  # a reader of the output must not wait for this process
            os.close(number)
        started = _Program(process, os.pidfd_open(process), caller)
        for number in (started.report, caller.fileno()):
            programs[number] = started
            poll.register(number, select.POLLIN)


def _import(
    request: tuple[Any, ...], files: list[int], caller: socket.socket, libraries: list[ModuleType]
) -> None:
    """Import the modules of a request, or forget one that did not arrive."""
    for number in files:
        os.close(number)
    if request:
        exec(request[4], {})
        _freeze(libraries)
        caller.sendall(bytes(8))
    caller.close()


def _listen(address: str) -> socket.socket:
    """Return a socket for programs, and write the executable beside it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(100)
    executable = Path(address).with_name("python")
    names = {"python": sys.executable, "utf8": sys.flags.utf8_mode, "address": address}
    executable.write_text(_EXECUTABLE.format(**names))
    executable.chmod(0o700)
    return listener


def _receive(caller: socket.socket) -> tuple[tuple[Any, ...], list[int]]:
    """Return a request of `WarmPython.connect` and its files; an empty one of a program that was killed while it asked."""
    files: list[int] = []
    with suppress(EOFError, ConnectionError), caller.makefile("rb") as stream:
        size, files, *_ = socket.recv_fds(caller, 8, 250)
        return marshal.loads(stream.read(int.from_bytes(size, "big"))), files
    return (), files


def _end(programs: Iterable[_Program]) -> NoReturn:
    for each in programs:
        os.kill(each.process, signal.SIGKILL)
    os._exit(0)


def _report_end(program: _Program, *, is_abandoned: bool) -> None:
    """Tell the caller the status of a program, which is killed if its caller is gone."""
    if is_abandoned:
        os.kill(program.process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(program.process, 0)[1])
    with suppress(OSError):
        program.caller.sendall(status.to_bytes(8, "big", signed=True))


def _freeze(libraries: list[ModuleType]) -> None:
    """Leave what is imported out of garbage collections, and list the libraries."""
    for name, module in sys.modules.items():
        if name.partition(".")[0] not in _CLEARED:
            libraries.append(module)
    gc.freeze()  # else the last collection of each program takes most of a second


def _keep_libraries(libraries: list[ModuleType]) -> None:
    """At the end of a program, hide the libraries that were imported before it from Python, which would clear them.

    They take most of a program's CPU time: all their memory is written to, and thereby copied.
    """
    for module in libraries:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(libraries))


def _skip_destructors() -> None:
    """Leave out the C++ destructors of the libraries that are loaded by now: those of torch take 0.2 seconds.

    Functions run in reverse order at the exit of a process: destructors of libraries that are
    loaded later, a flush of the streams of C, and an exit with the same status.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


def _become(
    program: list[str],
    cwd: str,
    environment: dict[str, str],
    numbers: list[int],
    before: str,
    leads_group: bool,
    files: list[int],
    caller: socket.socket,
) -> None:
    """Take over the files, the folder, the environment and the arguments of a program."""
    if leads_group:
        os.setsid()
    given = [*files, caller.detach()]
    # First to numbers that no file has at the end.
    free = 1 + max(*given, *numbers)
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, free) for file in given]
    for file in given:
        os.close(file)
    for file, number in zip(moved[:-1], numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    exec(before, {})
    sys.orig_argv[:] = [sys.executable, *program]
    sys.argv[:] = program
    os.write(moved[-1], os.getpid().to_bytes(4, "big"))
    os.close(moved[-1])


def _run() -> None:
    """Run the program that `sys.argv` names."""
    first = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(first)) if not first.startswith("-") else ""
    if first == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        code = sys.argv.pop(1)
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(code, "<string>", "exec"), vars(module))
    else:
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
    _run()
