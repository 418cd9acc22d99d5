"""Filters over the columns of a table: the condition of a SQL ``WHERE`` clause, which DuckDB evaluates.

Apart from `manifests.tables`, because samplers with a filter are imported without Arrow.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manifests.errors import CallError
from manifests.process.text import printable, suggest

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

#: Longest filter, in characters.
MAX_FILTER = 10_000

#: What a filter may consist of, as DuckDB names the parts of an expression: no queries, windows,
#: lambdas or parameters.
_PARTS = frozenset(
    (
        "COLUMN_REF",
        "CONSTANT",
        "COMPARISON",
        "CONJUNCTION",
        "OPERATOR",
        "BETWEEN",
        "CASE",
        "CAST",
        "TYPE",
        "COLLATE",
    )
)

#: Functions of a filter. They give the same result in every run, and one in proportion to their
#: arguments: without the list, ``range(1000000000)`` takes all memory, and ``random()`` makes
#: another plan each time.
_FUNCTION_NAMES = """
+ - * / // % ** ^ @ & | ~ << >> || ~~ !~~ ~~* !~~* ~~~ !~~~ ^@ ~ !~ !
like_escape not_like_escape ilike_escape not_ilike_escape regexp_matches regexp_full_match regexp_extract
concat contains starts_with ends_with prefix suffix length len strlen lower lcase upper ucase trim ltrim rtrim left
right substring substr position strpos instr split_part ascii reverse strip_accents hash md5
abs round floor ceil ceiling trunc sqrt ln log log2 log10 exp pow power mod fmod sign greatest least isnan isinf
isfinite even if ifnull nullif coalesce
list_value list_contains array_contains list_has array_has list_has_any array_has_any list_has_all array_has_all
list_position array_length list_min list_max list_sum list_extract array_extract struct_extract
date_part datepart date_trunc datetrunc year month day hour minute second epoch dayofweek strptime
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())

EXAMPLE = 'write a condition over columns, for example "width >= 64 and label != 3"'


def filter_columns(where: str) -> tuple[str, ...]:
    """Return the names of the columns that a filter uses, as it writes them.

    Args:
        where: the condition, for example ``"width >= 64 and label in (1, 2)"``.

    Raises:
        CallError: the text is not a condition, contains a subquery, or DuckDB is not installed.

    """
    if not isinstance(where, str) or not where.strip() or len(where) > MAX_FILTER:
        raise CallError(f"where must be a text of 1 to {MAX_FILTER:,} characters", hint=EXAMPLE)
    query = f"SELECT 1 FROM samples WHERE ({where}\n)"  # noqa: S608
    nodes = []

    def collect(node: dict[str, Any]) -> dict[str, Any]:
        nodes.append(node)
        return node

    [(text,)] = _connect().execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
    answer = json.loads(text, object_hook=collect)
    if answer["error"] or len(answer["statements"]) != 1:
        raise _wrong(where, answer.get("error_message") or "more than one statement")
    # An expression comes after its parts, and is checked first.
    for node in reversed(nodes):
        _check_part(where, node)
    columns = [node["column_names"][-1] for node in nodes if node.get("class") == "COLUMN_REF"]
    return tuple(dict.fromkeys(columns))


def _check_part(where: str, node: Mapping[str, Any]) -> None:
    part = node.get("class")
    if part is None or part in _PARTS:
        return
    if part != "FUNCTION":
        kind = f"a {part.lower()} expression"
        if part == "SUBQUERY":
            kind = "a query"
        raise _wrong(where, f"a filter cannot contain {kind}")
    name = node["function_name"]
    if name == "random":
        raise _wrong(
            where,
            "it is another one in each run",
            "hash(COLUMN) % 10 = 0 takes a tenth of the values of a column, the same in every run",
        )
    if name not in _FUNCTIONS:
        hint = suggest(name, sorted(filter(str.isidentifier, _FUNCTIONS)))
        raise _wrong(where, f"it contains the function {printable(name)}", hint)


def matching_rows(where: str, columns: pa.Table) -> NDArray[np.bool_]:
    """Return which rows match a filter, bool [rows].

    A row for which the condition is NULL does not match.

    Args:
        where: the condition; see `filter_columns`.
        columns: the columns that it uses, and at least one.

    Raises:
        CallError: the condition does not fit the columns, for example in their types.

    """
    import duckdb
    import numpy as np

    [(name, count)] = Counter(map(str.lower, columns.column_names)).most_common(1)
    if count > 1:
        raise _wrong(where, f"it uses {count} columns whose names differ only in case: {name}")
    connection = _connect(_MEMORY + _BYTES_PER_ROW * len(columns))
    connection.register("samples", columns)
    try:
        query = f"SELECT coalesce(CAST(({where}\n) AS BOOLEAN), false) FROM samples"  # noqa: S608
        answer = connection.execute(query)
        return np.concatenate([np.zeros(0, bool), *answer.fetchnumpy().values()]).astype(bool)
    except duckdb.Error as error:
        raise _wrong(where, str(error).splitlines()[0]) from None


#: Memory of DuckDB in bytes, and in addition for each row.
_MEMORY, _BYTES_PER_ROW = 1 << 30, 16


def _connect(memory: int = _MEMORY) -> Any:
    try:
        import duckdb
    except ImportError:
        raise CallError(
            "a filter needs DuckDB, which is not installed",
            hint="run `pip install 'dataprep-loaders[sql]'`",
        ) from None
    # A filter computes with the given columns. It reads no files and loads no extensions.
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "threads": "1",
        "memory_limit": f"{memory >> 20}MiB",
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET lock_configuration = true")
    return connection


def _wrong(where: str, reason: str, hint: str = EXAMPLE) -> CallError:
    return CallError(f"the filter {printable(where)!r} cannot be used ({reason})", hint=hint)
