"""Filters over the columns of a table, written as the condition of a SQL ``WHERE`` clause. DuckDB evaluates them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from manifests.errors import CallError
from manifests.text import printable

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

#: Longest filter, in characters.
MAX_FILTER = 10_000

_EXAMPLE = 'write a condition over columns, for example "width >= 64 and label != 3"'


def filter_columns(where: str) -> tuple[str, ...]:
    """Return the names of the columns that a filter uses, as it writes them.

    Args:
        where: the condition, for example ``"width >= 64 and label in (1, 2)"``.

    Raises:
        CallError: the text is not a condition, contains a subquery, or DuckDB is not installed.

    """
    if not isinstance(where, str) or not where.strip() or len(where) > MAX_FILTER:
        raise CallError(f"where must be a text of 1 to {MAX_FILTER:,} characters", hint=_EXAMPLE)
    query = f"SELECT 1 FROM samples WHERE ({where}\n)"  # noqa: S608
    answer = json.loads(_connect().execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0][0])
    if answer["error"] or len(answer["statements"]) != 1:
        raise _wrong(where, answer.get("error_message") or "more than one statement")
    nodes = list(_nodes(answer["statements"]))
    if any(node.get("class") == "SUBQUERY" for node in nodes):
        raise _wrong(where, "a filter cannot contain a query")
    names = (node["column_names"][-1] for node in nodes if node.get("class") == "COLUMN_REF")
    return tuple(dict.fromkeys(names))


def matching_rows(where: str, columns: pa.Table) -> NDArray[np.bool_]:
    """Return which rows match a filter, bool [rows]. A row for which the condition is NULL does not match.

    Args:
        where: the condition; see `filter_columns`.
        columns: the columns that it uses, and at least one.

    Raises:
        CallError: the condition does not fit the columns, for example in their types.

    """
    import duckdb
    import numpy as np

    connection = _connect()
    connection.register("samples", columns)
    try:
        answer = connection.execute(f"SELECT coalesce(CAST(({where}\n) AS BOOLEAN), false) FROM samples")  # noqa: S608
        return np.concatenate([np.zeros(0, bool), *answer.fetchnumpy().values()]).astype(bool)
    except duckdb.Error as error:
        raise _wrong(where, str(error).splitlines()[0]) from None


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(child)


def _connect() -> Any:
    try:
        import duckdb
    except ImportError:
        raise CallError(
            "a filter needs DuckDB, which is not installed", hint='run `pip install "dataprep-loaders[sql]"`'
        ) from None
    # A filter computes with the given columns. It reads no files and loads no extensions.
    connection = duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": "1"})
    connection.execute("SET lock_configuration = true")
    return connection


def _wrong(where: str, reason: str) -> CallError:
    return CallError(f"the filter {printable(where)!r} cannot be used ({reason})", hint=_EXAMPLE)
