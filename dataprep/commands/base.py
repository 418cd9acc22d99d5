"""``dataprep`` itself, and what all commands share: options, help, and how an error becomes a line and a status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import Field, fields, is_dataclass
from functools import wraps
from importlib import import_module
from typing import Any, get_args

import click
from click.core import ParameterSource

from dataprep.commands.console import console
from dataprep.images.base import FAILED_HINT
from dataprep.options import (
    GROUPS,
    Declaration,
    Downscale,
    Options,
    Raw,
    declaration,
    flag_of,
    types_of,
)
from manifests.errors import CallError
from manifests.json_members import MAX_INTEGER
from manifests.process.options import Number
from manifests.process.program import end_of, usage_text
from manifests.process.text import format_bytes, one_line, parse_bytes, plural
from manifests.remote.url import normal_path
from manifests.schema import Manifest, RejectedRow, Store

Decorator = Callable[[Any], Any]


#: Options of all commands: what to print on stderr, and whether only ``--help-all`` shows them.
_LOG_OPTIONS = {
    "--quiet": ("Print no progress and no notes, only results and errors.", False),
    "--verbose": ("Also print what the command does in detail.", True),
    "--log-json": (
        "Print one JSON object per line on stderr: progress, warnings, errors, and the result.",
        True,
    ),
}
_QUIET, _VERBOSE, _HELP_ALL = "dataprep.quiet", "dataprep.verbose", "dataprep.help_all"


class Command(click.Command):
    """A command whose callback returns an `ExitStatus`. An error becomes one line and an exit status.

    Attributes:
        compute: the function of `dataprep.interface` takes what the callback takes, prints nothing,
            and returns a dict for JSON; `None` if the command is no function there.

    """

    def __init__(
        self, *args: Any, compute: Callable[..., dict[str, Any]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.compute = compute
        self._has_rare = any(getattr(each, "is_rare", False) for each in self.params)
        for name, (text, is_rare) in _LOG_OPTIONS.items():
            each = click.Option(
                [name], is_flag=True, expose_value=False, callback=_remember, help=text
            )
            each.is_rare = is_rare  # type: ignore[attr-defined]
            self.params.append(each)
        if self._has_rare:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all,
                    help="Show all options and exit.",
                )
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options group by group."""
        # Options without a group, such as --help, are in the last one.
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        hides = self._has_rare and not ctx.meta.get(_HELP_ALL)
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            is_hidden = hides and getattr(each, "is_rare", False)
            if record and isinstance(each, click.Option) and not is_hidden:
                groups[getattr(each, "group", GROUPS[-1])].append(record)
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; report wrong ones as an event if ``--log-json`` is among them."""
        # Events of wrong arguments are JSON too, so this option is looked up before they are parsed.
        options = args
        if "--" in args:
            options = args[: args.index("--")]
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


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _remember(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    ctx.meta[f"dataprep.{option.name}"] = value
    if ctx.meta.get(_QUIET) and ctx.meta.get(_VERBOSE):
        raise click.UsageError(
            "--quiet and --verbose exclude each other. Hint: leave one of them out.", ctx
        )


@contextmanager
def _report_usage(ctx: click.Context) -> Iterator[None]:
    """Add a hint to errors about wrong arguments; report them as events, if events are JSON."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        message = usage_text("dataprep", error)
        if not console.is_json:
            raise click.UsageError(message, error.ctx) from None
        console.error(message)
        console.end(error.exit_code)
        ctx.exit(error.exit_code)


# --- the options that records declare -------------------------------------------------------------------------


class DeclaredOption(click.Option):
    """An option that a record of `dataprep.options` declares.

    Attributes:
        field: name of the field that it sets: of the part, if it belongs to a part of the record.
        group: heading of the options among which the help shows it.
        is_rare: whether only ``--help-all`` shows it.

    """

    def __init__(
        self, *args: Any, field: str, group: str, is_rare: bool, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.field = field
        self.group = group
        self.is_rare = is_rare


def takes(**records: type[Any]) -> Decorator:
    """Return a decorator that adds the options of records to a command's callback.

    The callback gets each record as the keyword argument of this name.
    """

    def add(callback: Any) -> Any:
        command = callback.__name__
        # Records can share options; the first one decides where the help shows them.
        options: dict[str, Decorator] = {}
        for record in records.values():
            for name, decorate in _options(record, command):
                options.setdefault(name, decorate)

        def arguments_of(values: Mapping[str, Any]) -> dict[str, Any]:
            arguments = {name: value for name, value in values.items() if name not in options}
            for name, record in records.items():
                arguments[name] = _make(record, command, values)
            return arguments

        @wraps(callback)
        def run(**values: Any) -> Any:
            return callback(**arguments_of(values))

        # The decorator that is applied last is the first option in the help.
        decorated: Any = run
        decorated.arguments_of = arguments_of
        for decorate in reversed(options.values()):
            decorated = decorate(decorated)
        return decorated

    return add


def given_fields() -> set[str]:
    """Return the fields that the options of this command line set."""
    context = click.get_current_context()
    given = set()
    for each in context.command.params:
        if isinstance(each, DeclaredOption) and each.name is not None:
            source = context.get_parameter_source(each.name)
            if source is ParameterSource.COMMANDLINE:
                given.add(each.field)
    return given


def _options(record: Any, command: str, part: str = "") -> Iterator[tuple[str, Decorator]]:
    """Yield the options of a record that a command has, with the names of their parameters."""
    for member in _members(record, command):
        declared, flag = declaration(member), flag_of(member)
        kind = types_of(record)[member.name]
        if flag:
            decorate = click.option(
                flag,
                cls=DeclaredOption,
                field=part or member.name,
                group=declared.group,
                is_rare=declared.rare,
                required=declared.required,
                **_attributes(declared, kind, member.default, is_part=bool(part)),
            )
            yield _parameter(member), decorate
        if is_dataclass(kind):
            yield from _options(kind, command, member.name)


def _members(record: Any, command: str) -> Iterator[Field[Any]]:
    for member in fields(record):
        commands = declaration(member).commands
        if not commands or command in commands:
            yield member


def _parameter(member: Field[Any]) -> str:
    """Return the name that click gives to the value of an option."""
    return flag_of(member).removeprefix("--").replace("-", "_")


def _attributes(declared: Declaration, kind: Any, default: Any, *, is_part: bool) -> dict[str, Any]:
    """Return what `click.option` needs to know: help, type and default.

    An option of a part has no default, because giving it asks for the part.
    """
    text = declared.help
    shown = declared.unset
    if is_part:
        shown = default
    if shown:
        text = f"{text}  [default: {shown}]"
    if kind is bool:
        return {"help": text, "is_flag": True}
    unit, value_type = _type(declared, kind)
    attributes = {"help": text, "type": value_type, "metavar": declared.unit or unit}
    if default == ():
        return {**attributes, "multiple": True}
    if kind is Raw:
        default = get_args(Store)[0]
    elif declared.form == "bytes":
        default = f"{default >> 20}MiB"
    if not is_part:
        attributes |= {"default": default, "show_default": True}
    return attributes


def _type(declared: Declaration, kind: Any) -> tuple[str | None, Any]:
    """Return the placeholder and the type of a value on the command line."""
    if declared.form != "text":
        low, high = declared.low, declared.high
        forms = {"bytes": ("SIZE", byte_size), "seconds": ("SECONDS", Number(low, high))}
        return forms.get(declared.form, (None, path_or_url))
    if kind in (str, tuple[str, ...]):
        return "NAME", str
    if kind is float:
        return "FRACTION", Fraction(0, 1, max_open=not declared.closed)
    if kind is not int:
        names = declared.names or get_args(Store if kind is Raw else kind)
        return None, click.Choice(names)
    limits = (declared.low, declared.high)
    low, high = (None if abs(limit) >= MAX_INTEGER else limit for limit in limits)
    return "N", int if low is None and high is None else Count(low, high)


# --- records from values --------------------------------------------------------------------------


def _make(record: Any, command: str, values: Mapping[str, Any]) -> Any:
    """Return a record with the values of its options.

    Raises:
        CallError: the options contradict each other, or one has no effect.

    """
    members: dict[str, Any] = {}
    if record is Options:
        members |= _stored_images(values)
    for member in _members(record, command):
        kind = types_of(record)[member.name]
        if is_dataclass(kind):
            continue  # `_stored_images` reads the options of parts
        value = values[_parameter(member)]
        if declaration(member).form == "class names":
            from dataprep.labels.class_file import read_classes  # few runs need it

            value = read_classes(value)
        elif kind is bool and member.default:
            # The flag switches it off.
            value = not value
        members[member.name] = value
    made = record(**members)
    check: Callable[[], None] = getattr(made, "check", lambda: None)
    check()
    return made


def _stored_images(values: Mapping[str, Any]) -> dict[str, Downscale | Raw]:
    """Return how images are shrunk, or the size of raw pixels, as fields of `Options`.

    Raises:
        CallError: an option has no effect with the other options, or contradicts one of them.

    """
    downscale, raw = _given(Downscale, values), _given(Raw, values)
    if values["store"] == "raw":
        hint = "leave it out; --raw-size sets the image size"
        _refuse(Downscale, downscale, raw, "cannot be used with --store raw", hint)
        return {"raw": Raw(**raw)}
    hint = "add --store raw, or leave the option out"
    _refuse(Raw, raw, downscale, "requires --store raw", hint)
    # Without a size, images are stored as they are.
    side = downscale.get("shorter") or downscale.get("longest")
    if "pixels" in downscale:
        hint = "leave one of them out"
        others = ("pixels", "quality", "subsampling", "filter")
        reason = f"cannot be used with --resize-pixels {downscale['pixels']}"
        _refuse(Downscale, downscale, others, reason, hint)
        return {"downscale": Downscale(**downscale)}
    is_encoded = values["transcode"] or any(map(values.get, ("fps", "every", "all_frames")))
    if side is None and is_encoded and downscale.keys() == {"quality"}:
        return {"downscale": Downscale(**downscale)}  # for transcoded images; no other changes
    if side is None:
        hint = "set the size of the stored images with one of them"
        reason = "requires --resize-shorter, --max-side or --resize-pixels"
        _refuse(Downscale, downscale, (), reason, hint)
        return {}
    if downscale.get("only_above", side) < side:
        name = "--max-side"
        if "shorter" in downscale:
            name = "--resize-shorter"
        raise CallError(
            f"--only-above {downscale['only_above']} is less than {name} {side}, so it has no"
            " effect",
            hint="leave --only-above out, or set a larger value",
        )
    return {"downscale": Downscale(**downscale)}


def _given(record: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a part's options that were given."""
    given = {member.name: values[_parameter(member)] for member in fields(record)}
    return {name: value for name, value in given.items() if value is not None}


def _refuse(
    record: Any,
    given: Mapping[str, Any],
    allowed: Collection[str],
    reason: str,
    hint: str,
) -> None:
    for member in fields(record):
        if member.name in given and member.name not in allowed:
            raise CallError(f"{flag_of(member)} {given[member.name]} {reason}", hint=hint)


# --- values ---------------------------------------------------------------------------------------

_MAX_BYTES = 1 << 60

#: Without a unit, a smaller number is more likely meant to be in MiB.
_MIN_BARE = 1 << 20


def byte_size(text: str) -> int:
    """Parse a size in bytes such as ``256MiB``. Sizes over 1 EiB count as 1 EiB."""
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}. Hint: write it like 256MiB, 1GB or 4096.") from None
    if text.strip().isdigit() and 0 < size < _MIN_BARE:
        raise click.BadParameter(
            f"{text.strip()} means {text.strip()} bytes, less than 1 MiB. Hint: write"
            f" {text.strip()}MiB, or {text.strip()}B if you mean bytes."
        )
    if size < 1:
        raise click.BadParameter(f"{text!r} is less than one byte.")
    return min(size, _MAX_BYTES)


def path_or_url(text: str) -> str:
    """Normalize a path or a URL: a ``file://`` URL becomes a path."""
    try:
        return normal_path(text)
    except CallError as error:
        # A `ValueError` would make click show the URL, with all that is secret in it.
        raise click.BadParameter(str(error)) from None


class Count(click.IntRange):
    """An integer that fits into 64 bits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert text to an int."""
        number = int(super().convert(value, param, ctx))
        if number > MAX_INTEGER:
            self.fail(f"{value} is more than {MAX_INTEGER}.", param, ctx)
        return number


class Fraction(Number):
    """A number from 0 to 1, or a percentage."""

    name = "fraction"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert ``"0.01"`` or ``"1%"`` to a float."""
        if isinstance(value, str) and value.strip().endswith("%"):
            with suppress(ValueError):
                value = str(float(value.strip()[:-1]) / 100)
        return super().convert(value, param, ctx)


# --- what commands print --------------------------------------------------------------------------


def print_failed(rows: Sequence[RejectedRow]) -> None:
    """Print what to report if there are rows of ``rejected.jsonl`` with the reason ``"failed"``."""
    if rows:
        first, images = rows[0], plural(len(rows), "image")
        console.error(
            f"{first['source']}: dataprep failed on {images}, this one with {first['detail']}."
            f" Hint: {FAILED_HINT}."
        )


def print_line(text: str = "") -> None:
    """Print a line of the result to stdout."""
    click.echo(one_line(text))


def splits_value(manifest: Manifest) -> dict[str, dict[str, int]]:
    """Return the totals of each split of a manifest as JSON has them."""
    values = {}
    for split in manifest.splits:
        shards = len(split.shards)
        values[split.name] = {"samples": split.samples, "bytes": split.bytes, "shards": shards}
    return values


def format_totals(samples: int, size: int, shards: int) -> str:
    """Format the totals of a split: ``1,000 samples, 1.2 GB, 5 shards``."""
    return f"{plural(samples, 'sample')}, {format_bytes(size)}, {plural(shards, 'shard')}"


# --- the program ----------------------------------------------------------------------------------

#: The commands, and the module of each one that shares its module with another command.
_COMMANDS = (
    *("convert", "index", "verify", "info", "report", "repair", "revert", "diff", "duplicates"),
    *("croissant", "join", "remove", "sync", "plan", "work", "finish"),
)
_MODULES = {
    **dict.fromkeys(("plan", "work", "finish"), "convert"),
    **dict.fromkeys(("verify", "revert"), "repair"),
    **dict.fromkeys(("croissant", "diff", "report"), "info"),
}


class Program(click.Group):
    """Imports only the modules of the commands that are run or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; `None` if there is none of this name."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"dataprep.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="dataprep-loaders", prog_name="dataprep")
def main() -> None:
    """Convert image datasets into TFRecord or WebDataset shards with DALI indexes.

    \b
    dataprep convert --src ILSVRC2012/ --fmt tfrecord   write images into shards
    dataprep index   downloaded-shards/                 index shards that other tools wrote
    dataprep verify  ILSVRC2012-tfrecord/               check a dataset for damage
    dataprep info    ILSVRC2012-tfrecord/               print what a dataset contains
    dataprep report  ILSVRC2012-tfrecord/               write a page that shows a dataset
    dataprep repair  ILSVRC2012-tfrecord/               replace damaged and missing files
    dataprep revert  ILSVRC2012-tfrecord/               undo the last append, join or removal
    dataprep diff    ILSVRC2012-old/ ILSVRC2012-new/    compare two datasets
    dataprep duplicates ILSVRC2012-tfrecord/            find images that occur more than once

    \b
    The same as convert, in three steps for several machines:
    dataprep plan    --src ILSVRC2012/ --out OUT        decide what each shard contains
    dataprep work    OUT --task 0/8                     write a share of the shards
    dataprep finish  OUT                                write the manifest

    \b
    Exit status:
      0    success
      1    finished, but the data has a problem
      2    wrong usage; nothing was written
      3    stopped by a problem such as a full disk; run the same command again to resume
      130  interrupted
    """  # noqa: D301  (click reads the backslash)
