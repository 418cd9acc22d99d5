"""Sample tables: Parquet files with other columns, types, rows and metadata, or with mutated bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz import mutate
from fuzz.checks import Case, command, load, require, write_case
from fuzz.oracles import check_rows, with_files
from fuzz.seeds import KINDS, dataset
from loaders import ClassBalancedSampler

_KEY = b"dataprep"


def make(rng: Random) -> Case:
    intact = dataset(rng.choice(KINDS))
    name = rng.choice([name for name in intact if name.endswith(".parquet")])
    data = intact[name]
    if rng.random() < 0.75:
        table = pq.read_table(io.BytesIO(data), use_threads=False)
        for _ in range(rng.choice((1, 1, 2))):
            table = rng.choice(CHANGES)(rng, table)
        data = _written(rng, table)
    if rng.random() < 0.3:
        data = mutate.mutate_bytes(rng, data)
    changed = {name: data}
    return with_files(intact, changed) if rng.random() < 0.8 else {**intact, **changed}


def _written(rng: Random, table: pa.Table) -> bytes:
    out = io.BytesIO()
    options: dict[str, Any] = rng.choice(
        ({}, {"use_dictionary": False}, {"row_group_size": 1}, {"store_schema": False})
    )
    if len(table) > 1000:  # a table of a few KB with many rows
        options = {}
    pq.write_table(table, out, **{"compression": "zstd", "write_page_checksum": True, **options})
    return out.getvalue()


def values_of(rng: Random, length: int) -> pa.Array:
    """Return a column of odd values or of an odd type."""
    number = rng.choice((0, -1, 1, 2**31, 2**62, 2**63 - 1))
    kinds: tuple[Any, ...] = (
        lambda: pa.array([number] * length, pa.int64()),
        lambda: pa.array([None] * length, pa.int64()),
        lambda: pa.array([rng.choice((None, 0, 1)) for _ in range(length)], pa.int64()),
        lambda: pa.array([rng.choice((0.5, float("nan"), float("inf"))) for _ in range(length)]),
        lambda: pa.array([rng.random() < 0.5 for _ in range(length)]),
        lambda: pa.array(
            [mutate.odd_text(rng).encode("utf-8", "surrogatepass") for _ in range(length)],
            pa.binary(),
        ),
        lambda: pa.array([mutate.odd_text(rng).replace("\udc80", "?") for _ in range(length)]),
        lambda: pa.array([number] * length, pa.int64()).cast(
            pa.timestamp("us", rng.choice((None, "UTC", "Mars/X")))
        ),
        lambda: pa.array([[1, None]] * length),
        lambda: pa.array([{"a": 1}] * length),
        lambda: pa.nulls(length),
        lambda: pa.array([b"a"] * length, pa.binary()).dictionary_encode(),
        lambda: pa.array(["a"] * length).dictionary_encode(),
        lambda: pa.array([1] * length, pa.decimal128(30, 2)),
        lambda: pa.array([0.5] * length, pa.float16()),
        lambda: pa.array([1] * length, pa.uint64()),
        lambda: pa.array([1] * length, pa.date32()),
    )
    return rng.choice(kinds)()


def _replace(rng: Random, table: pa.Table) -> pa.Table:
    at = rng.randrange(table.num_columns)
    return table.set_column(at, table.column_names[at], values_of(rng, len(table)))


def _change_value(rng: Random, table: pa.Table) -> pa.Table:
    at = rng.randrange(table.num_columns)
    column = table.column(at)
    values = column.to_pylist()
    if not values:
        return table
    row = rng.randrange(len(values))
    odd = rng.choice((None, values[rng.randrange(len(values))], mutate.tweaked(rng, values[row])))
    values[row] = odd
    try:
        return table.set_column(at, table.column_names[at], pa.array(values, column.type))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError):
        return table


def _add(rng: Random, table: pa.Table) -> pa.Table:
    name = rng.choice(
        (*table.column_names, mutate.odd_text(rng).replace("\udc80", "?"), "x" * 5000)
    )
    return table.append_column(name, values_of(rng, len(table)))


def _remove(rng: Random, table: pa.Table) -> pa.Table:
    return table.remove_column(rng.randrange(table.num_columns)) if table.num_columns > 1 else table


def _rename(rng: Random, table: pa.Table) -> pa.Table:
    names = list(table.column_names)
    names[rng.randrange(len(names))] = rng.choice(
        (rng.choice(names), mutate.odd_text(rng).replace("\udc80", "?"))
    )
    return table.rename_columns(names)


def _rows(rng: Random, table: pa.Table) -> pa.Table:
    count = len(table) or 1
    rows = rng.choice(
        (
            lambda: [rng.randrange(count) for _ in range(count)],
            lambda: list(range(count))[::-1],
            lambda: list(range(count - 1)),
            list,
            lambda: (
                [0] * (2 * 10**6 if table.nbytes < 1000 * count and rng.random() < 0.15 else 100)
            ),
        )
    )()
    return table.take(np.array(rows, np.int64)) if len(table) else table


def _metadata(rng: Random, table: pa.Table) -> pa.Table:
    body = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    value = mutate.mutate_json(rng, body) if rng.random() < 0.8 else mutate.odd_value(rng)
    return table.replace_schema_metadata({_KEY: mutate.dump_json(value)})


CHANGES = (_replace, *[_change_value] * 3, _add, _remove, _rename, _rows, _metadata)


def check(case: Case, folder: Path) -> None:
    data = write_case(case, folder / "data")
    verified = command("verify", data, "--decode", "--workers", 1, writable=[])
    for options in ((), ("--json",)):
        command("info", data, *options, writable=[])
    command("report", data, "--out", folder / "report.html", "--workers", 1, writable=[folder])
    load(data)
    load(
        data,
        fields=("image", "label", "key"),
        shuffle=None,
        sampler=ClassBalancedSampler(),
        last_batch="drop",
    )
    if verified.status == 0:
        body = json.loads(case["manifest.json"])
        for split in body["splits"].values():
            for shard in split["shards"]:
                problem = check_rows(
                    case[shard["name"]], case[shard["table"]["name"]], shard["samples"]
                )
                require(
                    not problem,
                    f"verify says sound, but in the table of {shard['name']}: {problem}",
                )
    command("index", data, "--overwrite", "--workers", 1, writable=[data])
