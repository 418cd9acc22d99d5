"""The records, their public names, and the rules for imports between the packages."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import manifests
from manifests import schema
from manifests.schema import (
    Components,
    Conversion,
    File,
    Manifest,
    Shard,
    Split,
    split_order,
)

ROOT = Path(manifests.__file__).resolve().parents[1]


def public(module):
    """Names of the classes and functions that a module defines."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


FILES = [
    File(f"train-00000.{end}", length, None)
    for end, length in (("tar", 100), ("idx", 10), ("parquet", 20))
]
SHARD = Shard(FILES[0], 7, FILES[1], FILES[2])
CONVERSION = Conversion("plan", 7, 8, 900, ("jpeg",), FILES[0], FILES[1], ())


def test_records_sum_their_shards_and_are_frozen():
    split = Split("train", (SHARD, SHARD))
    manifest = Manifest(
        "webdataset", "encoded", Components(("jpg",), "cls"), ("a",), (split,), creator="convert"
    )
    assert (split.samples, split.bytes, SHARD.name) == (14, 200, "train-00000.tar")
    assert manifest.split("train") is split
    assert manifest.split("val") is None
    for record in (FILES[0], SHARD, split, manifest, CONVERSION):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, dataclasses.fields(record)[0].name, 1)


def test_order_of_splits():
    assert split_order({"zoo", "test", "val", "a", "train"}) == ("train", "val", "test", "a", "zoo")
    assert set(schema.SPLIT_ALIASES.values()) == set(schema.SPLIT_NAMES)


# --- imports ------------------------------------------------------------------------------------


def test_importing_manifests_loads_no_heavy_package():
    modules = [
        f"manifests.{path.stem}"
        for path in (ROOT / "manifests").glob("*.py")
        if path.stem != "__init__"
    ]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"dataprep", "loaders", "nvidia", "torch", "PIL", "numpy", "pyarrow"}
    assert not {name.split(".")[0] for name in loaded} & heavy
