"""Sections of options: printed under one heading by ``--help``, and passed to a command's callback as one record."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields
from functools import partial, wraps
from typing import Any

import click

#: The heading of options that are in no section.
OTHERS = "Options"

Decorator = Callable[[Any], Any]


class _SectionOption(click.Option):
    """An option with the heading of its section."""

    def __init__(self, *args: Any, section: str = OTHERS, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


class RenamedOption(click.Option):
    """An option whose first name is in the help. Its other names are old ones, which still work."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the first name with its help."""
        shown = copy(self)
        shown.opts = self.opts[:1]
        return click.Option.get_help_record(shown, ctx)


def option(*names: str, **attributes: Any) -> Callable[..., Decorator]:
    """Return `click.option` with these arguments, for `section`.

    Called without arguments, it is in no section.
    """
    return partial(click.option, *names, cls=_SectionOption, **attributes)


def section(heading: str, *options: Callable[..., Decorator]) -> Decorator:
    """Return a decorator that adds these options to a command's callback, in this order.

    Args:
        heading: what ``--help`` prints above them.
        options: what `option` returns for each.

    """

    def add(callback: Any) -> Any:
        for each in reversed(options):
            callback = each(section=heading)(callback)
        return callback

    return add


def pass_record(name: str, record: type[Any], *sections: Decorator) -> Decorator:
    """Return a decorator that adds sections of options to a callback, and passes their values in one argument.

    Args:
        name: name of the argument.
        record: a dataclass whose fields have the names of the options.
        sections: what `section` or `pass_record` returns for each.

    """
    names = [field.name for field in fields(record)]

    def add(callback: Any) -> Any:
        @wraps(callback)
        def run(**values: Any) -> Any:
            values[name] = record(**{each: values.pop(each) for each in names})
            return callback(**values)

        added: Any = run
        for each in reversed(sections):
            added = each(added)
        return added

    return add


def write_options(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options of a command section by section, in the order of their first options."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            sections.setdefault(getattr(parameter, "section", OTHERS), []).append(record)
    for heading, records in sections.items():
        with formatter.section(heading):
            formatter.write_dl(records)
