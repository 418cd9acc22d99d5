"""What all commands share: common options, and the code that turns an error into one line and an exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from dataprep.commands.console import console
from dataprep.commands.param_types import path_or_url
from dataprep.commands.sections import option, write_options
from dataprep.images.base import FAILED_HINT
from manifests.errors import CallError, SourceError
from manifests.files import CLASS_NAMES, read_file
from manifests.json_members import shorten
from manifests.process.program import end_of
from manifests.process.text import one_line, plural
from manifests.schema import DEFAULT_MAX_CLASSES, MAX_LABEL

Callback = TypeVar("Callback", bound=Callable[..., Any] | click.Command)

workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of processes.  [default: one per CPU]",
)
classes_option = option(
    "--classes",
    type=path_or_url,
    metavar="FILE",
    help="File of class names in label order, one per line.",
)
max_classes_option = option(
    "--max-classes",
    type=click.IntRange(1, MAX_LABEL + 1),
    metavar="N",
    default=DEFAULT_MAX_CLASSES,
    show_default=True,
    help=(
        "Refuse integer labels of N and more, unless --classes names them: the manifest lists every"
        " class up to the largest label."
    ),
)


class Command(click.Command):
    """A command whose callback returns an `ExitStatus`.

    An error becomes one line and an exit status.

    Every command has the options of `add_log_options`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        add_log_options(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options section by section."""
        write_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; report wrong ones as an event if ``--log-json`` is among them."""
        options = args[: args.index("--")] if "--" in args else args
        console.begin(self.name or "", is_json="--log-json" in options)
        with _report_usage(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run the callback, print an error as one line, and exit."""
        with _report_usage(ctx):
            console.configure(quiet=ctx.meta[_QUIET], verbose=ctx.meta[_VERBOSE])
            status = end_of(
                "dataprep",
                lambda: super(Command, self).invoke(ctx),
                reraise=(click.ClickException,),
                show=console.show_error,
            )
            console.end(status)
            ctx.exit(status)


_QUIET, _VERBOSE = "dataprep.quiet", "dataprep.verbose"


def add_log_options(command: Callback) -> Callback:
    """Add the options of all commands that say what to print on stderr. `Command` reads them."""
    for name, help_text in reversed(
        (
            ("--quiet", "Print no progress and no notes, only results and errors."),
            ("--verbose", "Also print what the command does in detail."),
            (
                "--log-json",
                (
                    "Print one JSON object per line on stderr: progress, warnings, errors, and the"
                    " result."
                ),
            ),
        )
    ):
        add = click.option(
            name, is_flag=True, expose_value=False, callback=_remember, help=help_text
        )
        add(command)
    return command


def _remember(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    ctx.meta[f"dataprep.{option.name}"] = value
    if ctx.meta.get(_QUIET) and ctx.meta.get(_VERBOSE):
        raise click.UsageError(
            "--quiet and --verbose exclude each other. Hint: leave one of them out.", ctx
        )


@contextmanager
def _report_usage(ctx: click.Context) -> Iterator[None]:
    """Report wrong arguments as events, if events are JSON."""
    try:
        yield
    except click.ClickException as error:
        if not console.is_json:
            raise
        console.error(error.format_message())
        console.end(error.exit_code)
        ctx.exit(error.exit_code)


def print_error(message: str) -> None:
    """Print an error to stderr."""
    console.error(message)


def print_failed(rows: Sequence[Mapping[str, str]]) -> None:
    """Print what to report if there are rows of ``rejected.jsonl`` with the reason ``"failed"``."""
    if rows:
        first, images = rows[0], plural(len(rows), "image")
        print_error(
            f"{first['source']}: dataprep failed on {images}, this one with {first['detail']}."
            f" Hint: {FAILED_HINT}."
        )


def print_note(message: str) -> None:
    """Print a notice for the user to stderr."""
    console.note(message)


def print_line(text: str = "") -> None:
    """Print a line of the result to stdout."""
    click.echo(one_line(text))


def read_classes(file: str | None) -> tuple[str, ...] | None:
    """Read the class names in the file that ``--classes`` names.

    Raises:
        CallError: the file cannot be read.
        SourceError: the file is empty, has a blank line, or repeats a name.

    """
    if file is None:
        return None
    try:
        names = tuple(
            line.strip()
            for line in read_file(file, CLASS_NAMES).decode("utf-8-sig").rstrip().split("\n")
        )
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CallError(
            f"--classes {file} cannot be read: {reason}",
            hint="give a UTF-8 text file with one class name per line",
        ) from None
    if not any(names):
        raise SourceError(
            "the file contains no class names", file=file, hint="write one class name per line"
        )
    if "" in names:
        line = names.index("") + 1
        raise SourceError(
            "the line is blank", file=file, line=line, hint="write one class name per line"
        )
    if len(set(names)) < len(names):
        line = _first_repeated(names)
        message = f"class {shorten(names[line - 1])} is listed twice"
        raise SourceError(message, file=file, line=line, hint="list each class once")
    return names


def _first_repeated(names: Sequence[str]) -> int:
    """Return the line of the first name that an earlier line has."""
    first = {name: line for line, name in reversed(list(enumerate(names, 1)))}
    return next(line for line, name in enumerate(names, 1) if first[name] < line)
