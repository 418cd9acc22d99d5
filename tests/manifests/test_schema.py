"""The records, their public names, and the rules for imports between the packages."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import manifests
from manifests import schema, store, tables
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


def test_public_names_are_frozen():
    assert public(schema) == [
        "Added",
        "Components",
        "Conversion",
        "File",
        "Manifest",
        "Revision",
        "Sample",
        "Shard",
        "Split",
        "is_split_name",
        "split_order",
    ]
    assert public(store) == [
        "RowBatch",
        "check_manifest_size",
        "has_shard_list",
        "manifest_bytes",
        "manifest_files",
        "may_replace_manifest",
        "parse_manifest",
        "read_dataset",
        "read_manifest",
        "read_manifest_bytes",
        "read_old_manifest",
        "read_older",
        "read_revision",
        "read_some_rows",
        "rejected_bytes",
    ]
    assert public(tables) == [
        "SampleTable",
        "build_table",
        "has_canonical_bytes",
        "outside_error",
        "parse_shard_list",
        "read_table",
        "read_table_metadata",
        "samples",
        "shard_list_bytes",
        "write_table",
    ]
    assert schema.TABLE_COLUMNS == (
        "key",
        "label",
        "offset",
        "size",
        "width",
        "height",
        "source",
        "crc32c",
    )
    assert schema.FORMAT_NAMES == ("tfrecord", "webdataset")
    assert schema.CREATORS == ("convert", "index")
    assert (schema.SCHEMA_VERSION, schema.SHARD_LIST_VERSION) == (1, 2)


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


def imported_packages(package):
    """Top-level packages that any file of a package imports, also inside functions, each with the file."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((alias.name.split(".")[0], path) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield node.module.split(".")[0], path


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("manifests", {"dataprep", "loaders", "nvidia", "torch", "PIL"}),
        ("dataprep", {"loaders", "nvidia", "torch"}),
        ("loaders", {"dataprep"}),
    ],
)
def test_no_package_imports_a_forbidden_package(package, forbidden):
    found = [(name, str(path.relative_to(ROOT))) for name, path in imported_packages(package)]
    assert len(found) > 10
    assert [(name, path) for name, path in found if name in forbidden] == []


def test_importing_the_command_line_of_dataprep_does_not_load_loaders():
    code = "import sys, dataprep.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {name.split(".")[0] for name in loaded} & {"loaders", "nvidia", "torch"}


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
