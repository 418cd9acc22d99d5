"""Keep the samples of a source that match a filter: ``--where`` of ``dataprep convert``.

No image is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dataprep.sources.base import Source, take_rows, text_array
from manifests.errors import CallError
from manifests.filters import EXAMPLE, filter_columns, matching_rows
from manifests.process.text import plural, shown, suggest
from manifests.schema import COLUMN_PREFIX

Result = TypeVar("Result")

#: Here, labels are names.
_HINT = "write a condition over columns, for example \"size >= 1000 and label != 'cat'\""

#: Columns that only a prepared dataset has before its images are opened.
_MEASURED = ("width", "height")


def filter_source(source: Source, where: str) -> Source:
    """Return a source with the samples that match a filter.

    Classes keep their labels, also classes without samples.

    Args:
        source: the samples.
        where: the condition of a SQL ``WHERE`` clause over the columns ``path``, ``label`` (the
            name of the class, if the labels are classes), ``split`` and ``size``, the extra
            columns, and ``width`` and ``height`` of a prepared dataset.

    Raises:
        CallError: the filter cannot be used, names a column that the source does not have, or
            matches no sample.

    """
    columns = _columns(source)
    names = _of_option(filter_columns, where)
    used = dict.fromkeys([_column_of(name, columns) for name in names] or ["size"])
    table = pa.table({name: _column(source, name) for name in used})
    rows = np.flatnonzero(_of_option(matching_rows, where, table))
    if not len(rows):
        raise CallError(
            f"--where {shown(where)} matches none of {plural(len(source), 'image')}",
            hint="check the filter",
        )
    left = len(np.unique(source.label[rows]))
    notices = [f"--where: {len(rows):,} of {plural(len(source), 'image')} match"]
    if lost := len(np.unique(source.label)) - left:
        notices.append(f"--where: no image of {plural(lost, 'class')} matches")
    return replace(take_rows(source, rows), notices=(*source.notices, *notices))


def _of_option(apply: Callable[..., Result], *arguments: object) -> Result:
    """Apply a filter; errors name the option."""
    try:
        return apply(*arguments)
    except CallError as error:
        message = error.message
        message = f"--{message}" if message.startswith("where ") else f"--where: {message}"
        raise CallError(message, hint=_HINT if error.hint == EXAMPLE else error.hint) from None


def _columns(source: Source) -> list[str]:
    """Return the names of the columns of a filter."""
    names = ["path", "label", "split", "size"]
    if not source.labels.is_class:
        names.remove("label")
    if source.measured is not None:
        names += source.measured.column_names
    return [*dict.fromkeys([*names, *source.extra.column_names])]


def _column(source: Source, name: str) -> pa.Array | pa.ChunkedArray:
    if name == "label" and source.labels.is_class:
        return text_array(source.classes).take(pa.array(source.label))
    if name == "split":
        return text_array(source.splits).take(pa.array(source.split))
    if name in ("path", "size"):
        return source.table[name]
    if source.measured is not None and name in source.measured.column_names:
        return source.measured[name]
    return source.extra[name]


def _column_of(name: str, columns: Sequence[str]) -> str:
    """Return the column that a name stands for.

    As in SQL, case does not matter, unless only it tells columns apart.
    """
    alike = [each for each in columns if each.lower() == name.lower()]
    if not alike:
        raise _unknown(name, columns)
    if name not in alike and len(alike) > 1:
        message = f"--where: {shown(name)} may be the column {' or '.join(map(shown, alike))}"
        raise CallError(message, hint="write the name as the column has it")
    return name if name in alike else alike[0]


def _unknown(name: str, columns: Sequence[str]) -> CallError:
    message = f"--where: the source has no column {shown(name)}"
    hint = suggest(name, columns)
    own = [each for each in columns if each.lower() == f"{COLUMN_PREFIX}{name}".lower()]
    if own:
        message = (
            f"--where: the column {shown(name)} of the source is called {shown(own[0])} in shards"
            " and filters"
        )
        hint = f'write "{own[0]}", in double quotes'
    elif name.lower() in _MEASURED:
        message = f"--where: the {name} of images is not known before they are opened"
        hint = "convert the source without --where first, then convert that dataset with it"
    return CallError(message, hint=hint)
