"""``dataprep`` itself, and what all commands share: options, help, and how an error becomes a line and a status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any

import click

from dataprep.commands.console import console
from dataprep.images.base import FAILED_HINT
from dataprep.options import GROUPS
from manifests.process.program import end_of, usage_text
from manifests.process.text import format_bytes, one_line, plural
from manifests.schema import RejectedRow

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

    Args:
        instead: options that users expect, and the hint for them; ``{value}`` in it is the value.
        args: see `click.Command`.
        kwargs: see `click.Command`.

    """

    def __init__(self, *args: Any, instead: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._instead = instead or {}
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
        value_of = dict(pairwise(args))
        with _report_usage(ctx):
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                # An option that users expect has a hint of its own.
                name = error.option_name
                if name not in self._instead:
                    raise
                hint = self._instead[name].format(value=value_of.get(name, "N"))
                raise click.UsageError(
                    f"`{ctx.command_path}` has no option {name}. Hint: {hint}.", ctx
                ) from None

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


def format_totals(samples: int, size: int, shards: int) -> str:
    """Format the totals of a split: ``1,000 samples, 1.2 GB, 5 shards``."""
    return f"{plural(samples, 'sample')}, {format_bytes(size)}, {plural(shards, 'shard')}"


# --- the program ----------------------------------------------------------------------------------

#: The commands, and the module of each one that shares its module with another command.
_COMMANDS = (
    *("convert", "index", "verify", "info", "report", "repair", "revert", "diff", "duplicates"),
    *("plan", "work", "finish"),
)
_MODULES = {"work": "plan", "finish": "plan", "revert": "repair", "diff": "info"}


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
    dataprep revert  ILSVRC2012-tfrecord/               undo the last `convert --append`
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
