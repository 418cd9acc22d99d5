"""Sections of options: added to a command together, and printed under one heading by ``--help``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

#: The heading of options that are in no section.
OTHERS = "Options"

Decorator = Callable[[Any], Any]


def section(heading: str, *options: Decorator) -> Decorator:
    """Return a decorator that adds these options to a command's callback, in this order.

    Args:
        heading: what ``--help`` prints above them.
        options: what `click.option` returns for each.

    """

    def add(callback: Any) -> Any:
        before = len(getattr(callback, "__click_params__", ()))
        for option in reversed(options):
            callback = option(callback)
        for parameter in callback.__click_params__[before:]:
            parameter.section = heading
        return callback

    return add


def write_options(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options of a command section by section, in the order of their first options."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            sections.setdefault(getattr(parameter, "section", OTHERS), []).append(record)
    for heading, records in sections.items():
        with formatter.section(heading):
            formatter.write_dl(records)
