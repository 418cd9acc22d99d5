"""Datasets with one changed file: the manifest, an index or a sample table.

Most of the time, the checksums are right.
"""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from awscrt.checksums import crc32c
from helpers.oracles import read_with_dali
from PIL import Image

from fuzz import mutate
from fuzz.checks import Case, Loaded, command, load, require, write_case
from fuzz.seeds import CLASSES, KINDS, Kind, dataset
from loaders import ClassBalancedSampler

_NAME = "manifest.json"
_KEY = b"dataprep"

# --- manifests ----------------------------------------------------------------------------------


def _signed(body: dict[str, object]) -> bytes:
    """Serialize a manifest with its checksum."""
    body = {key: value for key, value in body.items() if key != "checksum"}
    return _dump({**body, "checksum": f"crc32c:{crc32c(_dump(body)):08x}"})


def _dump(body: object) -> bytes:
    return mutate.dump_json(body, indent=1) + b"\n"


def _odd_manifest(rng: Random, data: bytes) -> bytes:
    body = json.loads(data)
    if _signed(body) != data:
        raise AssertionError("manifests have another layout than this surface writes")
    kind = rng.random()
    if kind < 0.75:
        changed = mutate.mutate_json(rng, body)
        return _signed(changed) if isinstance(changed, dict) else _dump(changed)
    if kind < 0.8:
        names = [f"c{number}" for number in range(rng.choice((10**5, 10**6)))]
        return _signed({**body, "classes": rng.choice((names, [""] * 10**5, [{}] * 10**6))})
    return mutate.mutate_bytes(rng, data)


def _shards(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [shard for split in body["splits"].values() for shard in split["shards"]]


def _with_file(case: Case, name: str, data: bytes) -> Case:
    """Replace a file of a dataset, and update its length and checksum in the manifest."""
    body = json.loads(case[_NAME])
    for shard in _shards(body):
        for file in (shard["index"], shard["table"]):
            if file["name"] == name:
                file |= {"bytes": len(data), "checksum": f"crc32c:{crc32c(data):08x}"}
    return {**case, name: data, _NAME: _signed(body)}


# --- indexes ------------------------------------------------------------------------------------


def _odd_index(rng: Random, data: bytes) -> bytes:
    choice = rng.random()
    if choice >= 0.6:
        return mutate.mutate_bytes(rng, data)
    if choice >= 0.4:
        return mutate.mutate_text(rng, data.decode()).encode("utf-8", "surrogatepass")
    tokens = data.split(b" ")
    at = rng.choice([at for at, token in enumerate(tokens) if token.isdigit()])
    number = int(tokens[at])
    odd = [number + change for change in (512, -512, 1)]
    odd += [0, 1, number ^ 2, 2**31, 2**63 - 512, 2**63, 2**64 - 512, -512]
    tokens[at] = b"%d" % rng.choice(odd)
    return b" ".join(tokens)


# --- sample tables ------------------------------------------------------------------------------


def _odd_table(rng: Random, data: bytes) -> bytes:
    if rng.random() < 0.75:
        table = pq.read_table(io.BytesIO(data), use_threads=False)
        for _ in range(rng.choice((1, 1, 2))):
            table = rng.choice(CHANGES)(rng, table)
        options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
        if len(table) <= 1000:  # else a table of a few KB with many rows
            more = ({}, {"use_dictionary": False}, {"row_group_size": 1}, {"store_schema": False})
            options |= rng.choice(more)
        out = io.BytesIO()
        pq.write_table(table, out, **options)
        data = out.getvalue()
    return mutate.mutate_bytes(rng, data) if rng.random() < 0.3 else data


def _text(rng: Random) -> str:
    return mutate.odd_text(rng).replace("\udc80", "?")


def values_of(rng: Random, length: int) -> pa.Array:
    """Return a column of odd values or of an odd type."""
    number, zone = (
        rng.choice((0, -1, 1, 2**31, 2**62, 2**63 - 1)),
        rng.choice((None, "UTC", "Mars/X")),
    )
    kinds: tuple[Any, ...] = (
        lambda: pa.array([number] * length, pa.int64()),
        lambda: pa.array([None] * length, pa.int64()),
        lambda: pa.array([rng.choice((None, 0, 1)) for _ in range(length)], pa.int64()),
        lambda: pa.array([rng.choice((0.5, float("nan"), float("inf"))) for _ in range(length)]),
        lambda: pa.array([rng.random() < 0.5 for _ in range(length)]),
        lambda: pa.array([_text(rng).encode() for _ in range(length)], pa.binary()),
        lambda: pa.array([_text(rng) for _ in range(length)]),
        lambda: pa.array([number] * length, pa.int64()).cast(pa.timestamp("us", zone)),
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
    name = rng.choice((*table.column_names, _text(rng), "x" * 5000))
    return table.append_column(name, values_of(rng, len(table)))


def _remove(rng: Random, table: pa.Table) -> pa.Table:
    return table.remove_column(rng.randrange(table.num_columns)) if table.num_columns > 1 else table


def _rename(rng: Random, table: pa.Table) -> pa.Table:
    names = list(table.column_names)
    names[rng.randrange(len(names))] = rng.choice((rng.choice(names), _text(rng)))
    return table.rename_columns(names)


def _rows(rng: Random, table: pa.Table) -> pa.Table:
    count = len(table) or 1
    many = 2 * 10**6 if table.nbytes < 1000 * count and rng.random() < 0.15 else 100
    rows = rng.choice(
        (
            [rng.randrange(count) for _ in range(count)], range(count)[::-1], range(count - 1), [],
            [0] * many,
        )
    )  # fmt: skip
    return table.take(np.array(rows, np.int64)) if len(table) else table


def _metadata(rng: Random, table: pa.Table) -> pa.Table:
    body = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    value = mutate.mutate_json(rng, body) if rng.random() < 0.8 else mutate.odd_value(rng)
    return table.replace_schema_metadata({_KEY: mutate.dump_json(value)})


CHANGES = (_replace, *[_change_value] * 3, _add, _remove, _rename, _rows, _metadata)

# --- oracles ------------------------------------------------------------------------------------

#: The columns of a sample table that describe its image.
_COLUMNS = ("key", "label", "offset", "size", "width", "height", "crc32c")


@cache
def _intact_samples(kind: Kind) -> list[Loaded]:
    """Return what the loader returns for an intact dataset."""
    with tempfile.TemporaryDirectory() as name:
        samples = load(write_case(dataset(kind), Path(name, "data")))
    if not isinstance(samples, list):
        raise samples
    return samples


def _check_rows(shard: bytes, table: bytes, samples: int) -> None:
    """Compare a sample table with its shard."""
    rows = pq.read_table(io.BytesIO(table), use_threads=False).select(list(_COLUMNS)).to_pylist()
    require(len(rows) == samples, f"verify says sound: {len(rows)} rows for {samples} samples")
    for row in rows:
        data = shard[row["offset"] : row["offset"] + row["size"]]
        require(
            row["crc32c"] in (None, crc32c(data)), f"verify says sound, but the checksum: {row}"
        )
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            require(image.size == (row["width"], row["height"]), f"verify says sound, but {row}")
        is_right = isinstance(row["label"], int) and row["label"] >= 0 and row["key"]
        require(is_right, f"verify says sound, but the label or key: {row}")


class _Dataset(NamedTuple):
    """A surface: one file is changed, whose name ends in this way."""

    end: str
    change: Any

    def make(self, rng: Random) -> Case:
        kind = rng.choice(KINDS)
        _intact_samples(kind)  # cached before the check forks
        files = dataset(kind)
        name = rng.choice([name for name in files if name.endswith(self.end)])
        data = self.change(rng, files[name])
        is_updated = name != _NAME and rng.random() < 0.7
        changed = _with_file(files, name, data) if is_updated else {**files, name: data}
        return {**changed, "kind": kind.encode()}

    def check(self, case: Case, folder: Path) -> None:
        """Verify, describe, load and index the dataset, and compare it with other readers."""
        intact = dataset(case["kind"].decode())
        data = write_case({n: case[n] for n in case if n != "kind"}, folder / "data")
        verified = command("verify", data, "--decode", "--workers", 1, writable=[])
        for options in ((), ("--json",)):
            command("info", data, *options, writable=[])
        report = ("report", data, "--out", folder / "report.html", "--workers", 1)
        command(*report, writable=[folder])
        samples, sampler = load(data), ClassBalancedSampler()
        load(data, shuffle=None, sampler=sampler, last_batch="drop")
        indexes = [name for name in intact if name.endswith(".idx")]
        is_same = all(case[name] == intact[name] for name in indexes)
        require(verified.status or is_same, "verify says sound, but the index is another one")
        if isinstance(samples, list) and case[_NAME] == intact[_NAME] and self.end == ".idx":
            expected = _intact_samples(case["kind"].decode())
            require(samples == expected, f"the loader returns other samples: {samples}")
        if isinstance(samples, list):
            count = len(json.loads(case[_NAME])["classes"] or CLASSES)
            labels = [label for label, _, _ in samples]
            require(all(0 <= label < count for label in labels), f"labels: {labels}")
        if verified.status == 0:
            _check_sound(case, data)
        command("index", data, "--overwrite", "--workers", 1, writable=[data])


def _check_sound(case: Case, data: Path) -> None:
    body = json.loads(case[_NAME])
    shards = [shard for shard in _shards(body) if shard["samples"]]
    for shard in shards:
        _check_rows(case[shard["name"]], case[shard["table"]["name"]], shard["samples"])
    paths = [data / shard["name"] for shard in shards]
    indexes = [data / shard["index"]["name"] for shard in shards]
    components = body["components"]
    stored = (
        read_with_dali(paths, indexes, components["image"], components["label"]) if paths else []
    )
    stated = sum(split["samples"] for split in body["splits"].values())
    require(stated == len(stored), f"verify says sound, but DALI reads {len(stored)} of {stated}")


SURFACES = {
    "manifest": _Dataset(_NAME, _odd_manifest), "index": _Dataset(".idx", _odd_index),
    "table": _Dataset(".parquet", _odd_table),
}  # fmt: skip
