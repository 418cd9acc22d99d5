"""Types of option values that click does not have."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from manifests.errors import CallError
from manifests.process.options import Number
from manifests.process.text import parse_bytes
from manifests.remote.url import normal_path

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
    except (
        CallError
    ) as error:  # as a ValueError, click would replace it by the URL, with all that is secret in it
        raise click.BadParameter(str(error)) from None


#: The largest integer that manifests and plans store.
_MAX_INTEGER = 2**63 - 1


class Count(click.IntRange):
    """An integer that fits into 64 bits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert text to an int."""
        number = int(super().convert(value, param, ctx))
        if number > _MAX_INTEGER:
            self.fail(f"{value} is more than {_MAX_INTEGER}.", param, ctx)
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
