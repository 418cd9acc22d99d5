"""A Python process that has imported modules, and runs programs in forks of itself: they start in milliseconds.

Each program begins as if `python` had been called with its arguments, except that modules are
imported already, and ends with the whole shutdown of the interpreter and of the modules after the
first one. The libraries of the first module are not unloaded: those of torch take 0.2 seconds of
CPU.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import pickle
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    from warm_executable import accept_programs, write_executable


class WarmPython:
    """Starts the process with the first program, and another one if something has killed it.

    Args:
        modules: modules to import. Importing them must not start threads.
        options: options of Python itself.

    """

    def __init__(self, *modules: str, options: Sequence[str] = ()) -> None:
        self._modules, self._options = modules, options
        self._server: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._executables: dict[tuple[str, ...], str] = {}

    def executable(self, *modules: str) -> str:
        """Return the path of an executable that programs can start in place of `python`.

        See `warm_executable`.

        Args:
            modules: more modules to import. The programs of `run` have them from now on.

        """
        if not hasattr(os, "pidfd_open"):  # only Linux has it
            return sys.executable
        if modules not in self._executables:
            folder = tempfile.mkdtemp(dir=self._temporary())
            self._executables[modules] = self._ask((modules, folder), 300)
        return self._executables[modules]

    def run(
        self,
        *arguments: object,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float = 300,
        check: bool = False,
        before: str = "",
        **text: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program and return its output.

        Args:
            arguments: those of `python`: ``-c CODE ...``, ``-m MODULE ...`` or ``FILE ...``.
            cwd: working directory.
            timeout: seconds after which the process and the program are killed.
            check: whether another exit status than 0 is an error.
            before: code that the process runs before the program, in place of `preexec_fn` of
                `subprocess`.
            text: how to decode the output: `encoding`, `errors`.

        """
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder, "stdout"), Path(folder, "stderr")]
            texts = [
                os.fsdecode(each) if isinstance(each, (bytes, os.PathLike)) else each
                for each in arguments
            ]
            status = self._ask(
                (texts, os.fspath(cwd or os.getcwd()), dict(os.environ), outputs, before), timeout
            )
            texts = [path.read_text(**text) for path in outputs]
            done = subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), *texts)
        if check:
            done.check_returncode()
        return done

    def close(self) -> None:
        """End the process. What `executable` has returned is gone."""
        self._end()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._executables.clear()

    def _end(self) -> None:
        if self._server is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            with suppress(BrokenPipeError):
                self._server.communicate()
            self._server = None

    def _temporary(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
        return self._folder.name

    def _ask(self, request: Any, timeout: float) -> Any:
        try:
            return self._request(request, timeout)
        except (
            BrokenPipeError,
            EOFError,
        ):  # something killed the process, as Ray does with children of its driver
            self._end()
        for modules, path in self._executables.items():  # the request may name them
            self._request((modules, os.path.dirname(path)), 300)
        return self._request(request, timeout)

    def _request(self, request: Any, timeout: float) -> Any:
        if self._server is None:
            command = [sys.executable, *self._options, __file__, *self._modules]
            self._server = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            timeout += 60
        pickle.dump(request, self._server.stdin)
        self._server.stdin.flush()
        if not select.select([self._server.stdout], [], [], timeout)[0]:
            self.close()
            raise subprocess.TimeoutExpired(request[0], timeout)
        return pickle.load(self._server.stdout)


#: Packages whose modules Python clears at the end of each program, as it does in any process.
_CLEARED = ("__main__", "builtins", "sys", "manifests", "dataprep", "loaders")


def _keep_libraries(libraries: list[ModuleType]) -> None:
    """At the end of a program, hide the libraries that were imported before it from Python, which would clear them.

    They take most of a program's CPU time: all their memory is written to, and thereby copied.
    """
    for module in libraries:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(libraries))


def _libraries() -> list[ModuleType]:
    return [
        module for name, module in sys.modules.items() if name.partition(".")[0] not in _CLEARED
    ]


def _serve() -> None:
    """Answer requests. In each fork, return what it has to run."""
    libraries: list[ModuleType] = []
    atexit.register(_keep_libraries, libraries)  # the first one is called last
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for number, name in enumerate(sys.argv[1:]):
        importlib.import_module(name)
        if number == 0:
            _skip_destructors()
    libraries[:] = _libraries()
    gc.freeze()  # else the last collection of each program looks at all modules, which takes most of a second
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            os._exit(0)
        if len(request) == 2:
            modules, folder = request
            for name in modules:
                importlib.import_module(name)
            libraries[:] = _libraries()
            gc.freeze()
            answer, listener = write_executable(folder)
            if not os.fork():
                requests.close()
                answers.close()
                _become(*accept_programs(listener)[:3])
                return
            listener.close()
        else:
            child = os.fork()
            if not child:
                requests.close()
                answers.close()
                *program, outputs, before = request
                _redirect(outputs)
                _become(*program, before)
                return
            answer = os.waitpid(child, 0)[1]
        answers.write(pickle.dumps(answer))
        answers.flush()


def _skip_destructors() -> None:
    """Leave out the C++ destructors of the libraries that are loaded by now.

    Functions run in reverse order at the exit of a process: destructors of libraries that are
    loaded later, a flush of the streams of C, and an exit with the same status.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


def _redirect(outputs: Sequence[Path]) -> None:
    files = [
        (os.devnull, os.O_RDONLY),
        *((path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for path in outputs),
    ]
    for number, (path, flags) in enumerate(files):
        file = os.open(path, flags)
        os.dup2(file, number)
        os.close(file)


def _become(
    arguments: Sequence[str], cwd: str, environment: dict[str, str], before: str = ""
) -> None:
    """Take over the directory, the environment and the arguments of a program."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    exec(before, {})
    sys.orig_argv[:] = [sys.executable, *arguments]
    sys.argv[:] = arguments


def _run() -> None:
    """Run the program that `sys.argv` names."""
    first = sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(first)) if not first.startswith("-") else ""
    if first == "-m":
        name = sys.argv.pop(0) and sys.argv[0]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif first == "-c":
        code = sys.argv.pop(1)
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(code, "<string>", "exec"), vars(module))
    else:
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve()
    _run()
