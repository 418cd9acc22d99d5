"""What commands share: errors become a line and an exit status; options; progress. It must never know a dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from manifests.errors import CallError, DamagedError, DatasetError, SourceError, StoppedError

#: Exit status: the call was wrong; the machine stopped the work; interrupted by the user.
WRONG_CALL, STOPPED, INTERRUPTED = 2, 3, 130
#: Done, and something is wrong with the data.
WRONG_DATA = 1

workers_option = click.option("--workers", type=click.IntRange(1), help="Processes.  [default: one a processor]")
classes_option = click.option("--classes", metavar="FILE", help="Class names in label order, one a line.")


def command(function: Callable[..., int | None]) -> click.Command:
    """Make a command of a function: errors become one line and an exit status."""

    def guarded(**options: Any) -> None:
        try:
            status = function(**options)
        except DatasetError as error:
            _fail(str(error), _status_of(error))
        except BrokenPipeError:  # `dataprep info ... | head`
            sys.stderr.close()
            sys.exit(0)
        except KeyboardInterrupt:
            _fail("interrupted; what was finished is kept, and the same command goes on from there", INTERRUPTED)
        sys.exit(status or 0)

    guarded.__name__, guarded.__doc__ = function.__name__, function.__doc__
    if hasattr(function, "__click_params__"):
        guarded.__click_params__ = function.__click_params__  # type: ignore[attr-defined]
    return click.command()(guarded)


def _status_of(error: DatasetError) -> int:
    if isinstance(error, StoppedError):
        return STOPPED
    return WRONG_DATA if isinstance(error, DamagedError) else WRONG_CALL


def _fail(message: str, status: int) -> None:
    click.echo(f"dataprep: {message}", err=True)
    sys.exit(status)


def say(message: str) -> None:
    """Tell the user something that is no result."""
    click.echo(message, err=True)


def read_classes(file: str | None) -> tuple[str, ...] | None:
    """Read what ``--classes`` names.

    Raises:
        CallError: it cannot be read.
        SourceError: it names no class, a line is blank, or one is said twice.

    """
    if file is None:
        return None
    try:
        names = tuple(line.strip() for line in Path(file).read_text("utf-8-sig").rstrip().split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise CallError(f"--classes {file}: {getattr(error, 'strerror', None) or error}") from None
    if not any(names):
        raise SourceError("names no class", file=file)
    if "" in names:
        raise SourceError("has a blank line where a class was expected", file=file, line=names.index("") + 1)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"names {twice!r} twice", file=file, hint="a class has one line")
    return names


class ShardsBar:
    """Progress over shards on standard error, where that is a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, total: int) -> Callable[[Any], None]:
        """Begin with so many shards; return what to call with each that is done."""
        from tqdm import tqdm

        self._bar = tqdm(total=total, unit=" shards", disable=None, dynamic_ncols=True)
        return lambda _: self._bar.update()

    def __enter__(self) -> ShardsBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
