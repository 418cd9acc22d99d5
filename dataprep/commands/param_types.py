"""Kinds of values that options take, besides those that click has."""

from __future__ import annotations

from typing import Any, get_args

import click

from dataprep.images.base import Validation

VALIDATION = click.Choice(get_args(Validation))


class Bytes(click.ParamType[int]):
    """A length in bytes with a unit: 256MiB, 1GB, 4096."""

    name = "size"
    _UNITS = {"": 1, "b": 1} | {
        prefix + end: base**power
        for power, prefix in enumerate("kmgt", 1)
        for end, base in (("", 1024), ("b", 1000), ("ib", 1024))
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Turn ``256MiB`` into 268435456."""
        if isinstance(value, int):
            return value
        digits = value.strip().rstrip("BbIiKkMmGgTt ")
        unit = value.strip()[len(digits) :].strip().lower()
        try:
            length = int(float(digits) * self._UNITS[unit])
        except (KeyError, ValueError, OverflowError):
            self.fail(f"{value!r} is no size; write it like 256MiB, 1GB or 4096", param, ctx)
        if length < 1:
            self.fail(f"{value!r} is less than one byte", param, ctx)
        return min(length, 1 << 60)


class Fraction(click.FloatRange):
    """A share from 0 to 1; NaN is none."""

    name = "fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn ``0.01`` into a number."""
        number = float(super().convert(value, param, ctx))
        if number != number:  # noqa: PLR0124  (only NaN differs from itself)
            self.fail(f"{value!r} is no number from 0 to 1", param, ctx)
        return number
