"""How the programs ``dataprep`` and ``loaders`` start, print and end.

Whatever happens, a program prints one line about it, not a traceback, and ends with a documented
status. Its standard streams may be closed, lead to a full disk, or be a pipe without a reader.
"""

from __future__ import annotations

import importlib
import io
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from manifests.errors import (
    CallError,
    DatasetError,
    ExitStatus,
    StorageError,
    describe_bug,
    machine_fault,
)
from manifests.process.interrupts import (
    end_now,
    handle_interrupts,
    how_interrupted,
    was_interrupted,
)
from manifests.process.text import one_line

if TYPE_CHECKING:
    import click
    from _typeshed import ReadableBuffer

#: Callbacks that C calls, which must never be freed.
_kept: list[object] = []

#: If this environment variable is set, an error also prints its traceback.
DEBUG_VARIABLE = "DATAPREP_DEBUG"


def run_program(program: str, module: str) -> NoReturn:
    """Run the click command `main` of a module with the arguments of this process, and end the process."""
    prepare_process(program)
    if not debugs():
        # C extensions call it for an error that they replace by another one.
        sys.excepthook = lambda *_: None
    status = end_of(program, lambda: _run(program, module))
    if status != ExitStatus.STOPPED:
        status = end_of(program, sys.stdout.flush) or status
    # Skip Python's own shutdown. It reports an output that cannot be flushed once more, and it
    # stops the threads of libraries, which aborts the process in about one run in a thousand.
    os._exit(status)


def run_loaders() -> NoReturn:
    """Run the program ``loaders``. It starts here because importing `loaders` takes time."""
    run_program("loaders", "loaders.cli")


def prepare_process(program: str) -> None:
    """Handle Ctrl-C and everything that Python would print a traceback for."""
    handle_interrupts(program)
    # Without this, NumPy reserves memory and starts a thread for each CPU, for linear algebra that
    # no command uses.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not debugs():
        sys.excepthook = lambda _, error, __: os._exit(_report_error(program, error))
        sys.unraisablehook = _end_if_interrupted
    _catch_exits_of_libraries()


def _catch_exits_of_libraries() -> None:
    """Change the exit status of a library that ends the process because memory ran out, as OpenBLAS does.

    Its status 1 would say that something is wrong with the data.
    """
    if (
        sys.platform != "linux"
        or resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    ):
        return
    import ctypes

    callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(
        lambda *_: os._exit(ExitStatus.STOPPED)
    )
    _kept.append(callback)
    with suppress(AttributeError):  # musl has no `on_exit`
        ctypes.CDLL(None).on_exit(callback, None)


def end_of(
    program: str,
    command: Callable[[], int | None],
    reraise: tuple[type[BaseException], ...] = (),
    show: Callable[[str, BaseException], None] | None = None,
) -> int:
    """Call a command and print an error as one line, except errors of the types `reraise`.

    Return the exit status.

    Args:
        program: its name.
        command: what to call.
        reraise: errors of these types are raised.
        show: prints the line of an error instead of `report`; it also gets the error.

    """
    try:
        return command() or ExitStatus.SUCCESS
    except reraise:
        raise
    except BaseException as error:
        if debugs():
            sys.__excepthook__(type(error), error, error.__traceback__)
        return _report_error(program, error, show)


def report(text: str) -> None:
    """Print a line to stderr, or to stdout if stderr cannot be written."""
    for stream in (sys.stderr, sys.stdout):
        with suppress(Exception):
            stream.write(f"{one_line(text)}\n")
            stream.flush()
            return


def debugs() -> bool:
    """Return whether the user wants tracebacks."""
    return bool(os.environ.get(DEBUG_VARIABLE))


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process if Ctrl-C arrived where Python cannot raise an exception, for example in a destructor."""
    if unraisable.exc_type is KeyboardInterrupt:
        end_now()


def _report_error(
    program: str, error: BaseException, show: Callable[[str, BaseException], None] | None = None
) -> int:
    message, status = _describe(program, error)
    text = f"{program}: {message}"
    if show:
        with suppress(Exception):  # stderr cannot be written
            show(text, error)
            return status
    report(text)
    return status


def _describe(program: str, error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return how_interrupted(str(error))
    if was_interrupted():
        return how_interrupted()
    known: BaseException | None = error
    if not isinstance(known, DatasetError):
        known = machine_fault(error)
    if known is None:
        return describe_bug(program, error), ExitStatus.STOPPED
    return str(known), known.status


def _run(program: str, module: str) -> int:
    open_streams()
    try:
        os.getcwd()
    except OSError:
        raise StorageError(
            "the working directory does not exist any more",
            hint="change to another folder and run the command there",
        ) from None
    import click

    main: click.Command = importlib.import_module(module).main
    try:
        return main.main(prog_name=program, standalone_mode=False) or ExitStatus.SUCCESS
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            sys.stderr.write(f"{error.format_message()}\n")
        else:
            report(f"{program}: {usage_text(program, error)}")
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as end:
        # click ends the completion of a shell this way.
        if f"_{program.upper()}_COMPLETE" not in os.environ:
            raise
        return int(end.code or 0)


def usage_text(program: str, error: click.ClickException) -> str:
    """Return the message about a wrong command line, with a hint."""
    import click

    message = error.format_message()
    if "Hint:" in message:
        return message
    if isinstance(error, click.UsageError) and error.ctx:
        program = error.ctx.command_path
    hint = f"`{program} --help` shows how to call it"
    if isinstance(error, click.NoSuchOption):
        message = f"No such option {error.option_name}"
        if error.possibilities:
            hint = f"did you mean {' or '.join(error.possibilities)}?"
    elif isinstance(error, click.MissingParameter) and error.param:
        name = error.param.metavar or error.param.human_readable_name
        # click lists the choices on lines of their own.
        message = message.partition(" Choose from:")[0]
        if isinstance(error.param.type, click.Choice):
            name = "|".join(map(str, error.param.type.choices))
        if isinstance(error.param, click.Option):
            name = f"{error.param.opts[0]} {name}"
        hint = f"add {name.strip()}; {hint}"
    return str(CallError(message, hint=hint))


# --- standard streams -----------------------------------------------------------------------------

_HINT = "redirect it to a file that can be written, or to /dev/null"


def open_streams() -> None:
    """Make the standard streams of this process safe to use.

    What is written to a pipe without a reader is dropped, so a command that is piped into ``head``
    ends with the same status as alone. Any other failure to write raises `StorageError`.

    Raises:
        StorageError: stdout or stderr is closed.

    """
    closed = set()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            # A file of a dataset must never get the number of a standard stream: libraries print to
            # these numbers. The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)
    if 2 in closed and 1 not in closed:
        os.dup2(1, 2)  # the error that follows is printed there
    names = {1: "standard output", 2: "standard error"}
    sys.stdout, sys.stderr = (_open_text(number, name) for number, name in names.items())
    for number in closed & names.keys():
        raise StorageError(f"{names[number]} is closed", hint=_HINT)


def _open_text(number: int, name: str) -> io.TextIOWrapper:
    # A file name that is not valid text, or that the encoding of the terminal lacks, is printed
    # with escapes.
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, name)),
        encoding=getattr(sys.__stdout__, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=os.isatty(number) or number == 2,
    )


class _Output(io.FileIO):
    """Writes to a standard stream as long as somebody reads it."""

    def __init__(self, number: int, title: str) -> None:
        super().__init__(number, "wb", closefd=False)
        self._title = title

    def write(self, data: ReadableBuffer, /) -> int:
        """Write data, or drop it if the reader of a pipe is gone."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:
            raise StorageError(
                f"{self._title} cannot be written: {error.strerror}", hint=_HINT
            ) from None


# --- release --------------------------------------------------------------------------------------


def release() -> str:
    """Return the version, or ``"unknown"`` for a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dataprep-loaders")
    except PackageNotFoundError:
        return "unknown"
