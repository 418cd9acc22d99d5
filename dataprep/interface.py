"""The commands as functions: `convert`, `index`, `join`, `verify`, `info` and `diff`.

A function takes the options of its command as keyword arguments: ``--val-fraction 0.1`` is
``val_fraction=0.1``, and a flag is ``True``. The arguments go through the parser of the command, so
types, ranges and messages are the same. What the command prints is returned as a dict for JSON.
"""

from __future__ import annotations

import difflib
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from dataprep.commands.base import Command, DeclaredOption, main
from dataprep.commands.console import console
from manifests.errors import CallError, DataProblemError, machine_fault

#: A path or a URL.
Place = str | os.PathLike[str]

#: Functions that return what their commands print as JSON. The others also return the messages.
_JSON = ("info", "diff")

#: The console and the progress of workers belong to one call at a time.
_lock = threading.Lock()


def convert(
    src: Place | Sequence[Place],
    out: Place | None = None,
    *,
    progress: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Convert images into shards, or append them to a dataset, as `dataprep convert` does.

    Returns:
        A dict for JSON. ``out`` is the output folder, ``splits`` the samples, bytes and shards of
        each split, ``images`` and ``rejected`` numbers of images of the source, ``revision`` the
        revision of the dataset, ``resumed`` the number of shards that an earlier run wrote,
        ``messages`` what the command prints on stderr. After ``append=True``, the splits are what
        was added, and ``known`` is the number of images that were in the dataset. With
        ``dry_run=True``, nothing is written, and the splits are the plan.

    Raises:
        DataProblemError: more images were rejected than ``max_rejected`` allows. The dataset is
            complete; `result` is the dict.

    """
    return _call("convert", [], {"src": src, "out": out, **options}, progress=progress)


def index(
    paths: Place | Sequence[Place], *, progress: bool = False, **options: Any
) -> dict[str, Any]:
    """Index shards that other tools wrote, as `dataprep index` does.

    Returns:
        A dict for JSON: the folder ``out``, the ``splits``, and ``messages``.

    Raises:
        DataProblemError: shards cannot be indexed, or records were left out; `result` says which.

    """
    return _call("index", _listed(paths), options, progress=progress)


def join(dataset: Place, table: Place, **options: Any) -> dict[str, Any]:
    """Add columns of a table to a dataset as its next revision, as `dataprep join` does.

    Returns:
        A dict for JSON: the ``revision`` of the dataset, the names of the joined ``columns``, the
        number of ``samples`` and how many are ``without_row``, the number of ``rows`` of the table
        and how many are ``without_sample``, and ``messages``. With ``dry_run=True``, nothing is
        written.

    """
    return _call("join", [dataset, table], options)


def verify(dataset: Place, *, progress: bool = False, **options: Any) -> dict[str, Any]:
    """Check a dataset for damage, as `dataprep verify` does.

    Returns:
        A dict for JSON: the numbers of ``samples`` and ``shards``, and how many are
        ``without_checksum``.

    Raises:
        DataProblemError: the dataset is damaged; ``result["problems"]`` lists the problems.

    """
    return _call("verify", [dataset], options, progress=progress)


def info(dataset: Place, **options: Any) -> dict[str, Any]:
    """Return what a dataset or a plan contains: the dict that `dataprep info --json` prints."""
    return _call("info", [dataset], options)


def diff(a: Place, b: Place, **options: Any) -> dict[str, Any]:
    """Return what differs between two datasets: the dict that `dataprep diff --json` prints."""
    return _call("diff", [a, b], options)


# --- calls ----------------------------------------------------------------------------------------


def _call(
    name: str, places: Sequence[Place], options: dict[str, Any], *, progress: bool = False
) -> dict[str, Any]:
    """Return what a command computes.

    Raises:
        DatasetError: as the command.

    """
    command = _command(name)
    arguments = [*_arguments(command, options), "--", *map(_text, places)]
    with _lock:
        try:
            context = command.make_context(f"dataprep {name}", arguments)
            console.quiet = not progress
            with context:
                return _compute(command, context.params)
        except click.UsageError as error:
            message, _, hint = str(error).partition(" Hint: ")
            raise CallError(message, hint=hint) from None
        except (OSError, MemoryError, RecursionError, RuntimeError, ImportError) as error:
            fault = machine_fault(error)
            if fault is None:
                raise
            raise fault from error


def _command(name: str) -> Command:
    command = main.get_command(click.Context(main), name)
    if not isinstance(command, Command) or command.compute is None:
        raise TypeError(f"dataprep {name} is no function")
    return command


def _compute(command: Command, values: dict[str, Any]) -> dict[str, Any]:
    arguments_of: Any = vars(command.callback)["arguments_of"]
    compute: Any = command.compute
    try:
        value: dict[str, Any] = compute(**arguments_of(values))
    except DataProblemError as error:
        error.result["messages"] = console.messages
        raise
    if command.name not in _JSON:
        value["messages"] = console.messages
    return value


def _arguments(command: Command, options: dict[str, Any]) -> Iterator[str]:
    """Yield the options as the command line has them.

    Raises:
        CallError: there is no such option, or a value is no text, number or path.

    """
    known = {each.name: each for each in _options(command)}
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, map(str, known), 1)
            hint = f"`help(dataprep.{command.name})` lists the options"
            if close:
                hint = f"did you mean {close[0]}?"
            raise CallError(f"dataprep.{command.name} has no option {name}", hint=hint)
        option = known[name]
        if value is None or (option.is_flag and value is False):
            continue
        if option.is_flag:
            if value is not True:
                message = f"{name}={value!r} is neither True nor False"
                raise CallError(message, hint=f"set {name}=True, or leave it out")
            yield option.opts[0]
            continue
        for each in _listed(value) if option.multiple else [value]:
            yield f"{option.opts[0]}={_text(each, name)}"


def _options(command: Command) -> list[DeclaredOption]:
    options = [each for each in command.params if isinstance(each, DeclaredOption)]
    return [each for each in options if each.name != "json"]


def _listed(values: Any) -> Sequence[Any]:
    if isinstance(values, (str, os.PathLike)):
        return [values]
    return list(values)


def _text(value: Any, name: str = "a path") -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, (bytes, dict, list, tuple, set)):
        raise CallError(
            f"{name}: {value!r} is neither text nor a number",
            hint="write the value as on the command line",
        )
    return str(value)


# --- help -----------------------------------------------------------------------------------------


def _describe(function: Callable[..., dict[str, Any]]) -> None:
    """Give a function the signature and the help of its command's options."""
    command = _command(function.__name__)
    signature = inspect.signature(function)
    parameters = [
        each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD
    ]
    context = click.Context(command)
    lines = []
    for option in _options(command):
        name = str(option.name)
        if name in signature.parameters:
            continue
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None))
        _, text = option.get_help_record(context) or ("", "")
        lines.append(f"    {name}: {text}")
    parameters.sort(key=lambda each: each.kind)
    vars(function)["__signature__"] = signature.replace(parameters=parameters)
    doc = inspect.getdoc(function) or ""
    if lines:
        args = "\n".join(["Args:", *lines])
        summary, _, rest = doc.partition("\n\n")
        doc = f"{summary}\n\n{args}\n\n{rest}"
    function.__doc__ = doc


for _function in (convert, index, join, verify, info, diff):
    _describe(_function)
