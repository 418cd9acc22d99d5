"""Independent readers: what a dataset contains, from its bytes, with DALI and PyArrow and without this project."""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from awscrt.checksums import crc32c
from helpers.oracles import read_with_dali
from PIL import Image

from fuzz.checks import Case, Loaded, load, write_case
from fuzz.seeds import Kind, dataset

#: The columns of a sample table that describe its image.
COLUMNS = ("key", "label", "offset", "size", "width", "height", "crc32c")


@cache
def intact_samples(kind: Kind) -> list[Loaded]:
    """Return what the loader returns for an intact dataset."""
    with tempfile.TemporaryDirectory() as name:
        samples = load(write_case(dataset(kind), Path(name, "data")))
    if not isinstance(samples, list):
        raise samples
    return samples


def with_files(case: Case, changed: Case) -> Case:
    """Replace files of a dataset and update their lengths and checksums in the manifest."""
    from fuzz.surfaces.manifest import NAME, signed

    body = json.loads(case[NAME])
    for file in _files(body):
        if (data := changed.get(file["name"])) is not None:
            file["bytes"] = len(data)
            if file["checksum"] is not None:
                file["checksum"] = f"crc32c:{crc32c(data):08x}"
    return {**case, **changed, NAME: signed(body)}


def _files(body: Any) -> list[dict[str, Any]]:
    shards = [shard for split in body["splits"].values() for shard in split["shards"]]
    return [*shards, *(shard[kind] for shard in shards for kind in ("index", "table"))]


def count_stored(folder: Path, body: Any) -> int:
    """Return the number of samples that DALI reads from the shards of a manifest."""
    shards = [
        shard for split in body["splits"].values() for shard in split["shards"] if shard["samples"]
    ]
    if not shards:
        return 0
    paths, indexes = (
        [folder / shard["name"] for shard in shards],
        [folder / shard["index"]["name"] for shard in shards],
    )
    components = body["components"]
    return len(read_with_dali(paths, indexes, components["image"], components["label"]))


def check_rows(shard: bytes, table: bytes, samples: int) -> str:
    """Compare a sample table with its shard; return what is wrong, or ``""``."""
    rows = pq.read_table(io.BytesIO(table), use_threads=False).select(list(COLUMNS)).to_pylist()
    if len(rows) != samples:
        return f"{len(rows)} rows for {samples} samples"
    for number, row in enumerate(rows):
        data = shard[row["offset"] : row["offset"] + row["size"]]
        if row["crc32c"] not in (None, crc32c(data)):
            return f"row {number} has another checksum than its image"
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            if image.size != (row["width"], row["height"]):
                return f"row {number} has another size than its image"
        if not isinstance(row["label"], int) or row["label"] < 0 or not row["key"]:
            return f"row {number} has the label {row['label']} and the key {row['key']!r}"
    return ""
