"""The records, the error tree and the names that others may rely on."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from dataprep import sources
from manifests import errors, schema, store
from manifests.schema import Components, File, Manifest, Shard, Split, split_order

TREE = {
    "CallError": "DatasetError",
    "SourceError": "DatasetError",
    "StoppedError": "DatasetError",
    "SourceVanishedError": "StoppedError",
    "StorageError": "StoppedError",
    "WorkerDiedError": "StoppedError",
    "DamagedError": "DatasetError",
    "ManifestError": "DamagedError",
    "ShardError": "DamagedError",
    "IndexFileError": "DamagedError",
    "TableError": "DamagedError",
}
KINDS = [getattr(errors, name) for name in ("DatasetError", *TREE)]


def public(module):
    """Names that a module defines itself."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def test_the_tree_is_the_one_drawn():
    assert public(errors) == sorted([*TREE, "DatasetError", "printable"])
    for name, base in TREE.items():
        assert [kind.__name__ for kind in getattr(errors, name).__bases__] == [base]
    drawn = [
        line.split("--")[-1].split()[0]
        for line in errors.__doc__.splitlines()
        if "Error" in line and "raises" not in line
    ]
    assert set(drawn) == {*TREE, "DatasetError"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_crosses_processes_whole(kind):
    error = kind("is wrong", file="a\n.tar", record=3, line=4, byte=512, hint="hint it")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
        assert vars(other) == vars(error)
        assert other.args == error.args


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "is wrong"),
        ({"hint": "do this"}, "is wrong; do this"),
        ({"file": "a.tar"}, "a.tar: is wrong"),
        ({"file": "a.tar", "record": 0, "byte": 0}, "a.tar, record 0, byte 0: is wrong"),
        ({"file": "l.txt", "line": 7, "hint": "x"}, "l.txt, line 7: is wrong; x"),
        ({"file": "a\n\x1b[2J\udce9.tar"}, "a\\n\\x1b[2J\\udce9.tar: is wrong"),
    ],
)
def test_message_forms(place, text):
    error = errors.ShardError("is wrong", **place)
    assert str(error) == text
    assert error.message == "is wrong"


@pytest.mark.parametrize("name", ["a b.jpg", "日本.jpg", "é", "'\"\\"])
def test_a_plain_name_is_printed_as_it_is(name):
    assert errors.printable(name) == name


def test_public_names_are_frozen():
    assert public(schema) == ["Components", "File", "Manifest", "Sample", "Shard", "Split", "split_order"]
    assert set(sources.__all__) == {"Source", "SourceOptions", "UNREADABLE", "read_source"}
    assert public(store) == [
        "build_table",
        "checksum_text",
        "has_no_other_manifest",
        "is_as_written",
        "manifest_bytes",
        "parse_manifest",
        "read_manifest",
        "read_table",
        "read_table_metadata",
        "rejected_bytes",
        "samples",
        "write_table",
    ]
    assert schema.TABLE_COLUMNS == ("key", "label", "offset", "size", "width", "height", "source", "crc32c")
    assert schema.FORMATS == ("tfrecord", "webdataset")
    assert schema.SCHEMA_VERSION == 1


FILES = [File(f"train-00000.{end}", length, None) for end, length in (("tar", 100), ("idx", 10), ("parquet", 20))]
SHARD = Shard(FILES[0], 7, FILES[1], FILES[2])


def test_records_add_up_and_do_not_change():
    split = Split("train", (SHARD, SHARD))
    manifest = Manifest("webdataset", "encoded", Components(("jpg",), "cls"), ("a",), (split,))
    assert (split.samples, split.bytes, SHARD.name) == (14, 200, "train-00000.tar")
    assert manifest.split("train") is split
    assert manifest.split("val") is None
    for record in (FILES[0], SHARD, split, manifest):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, dataclasses.fields(record)[0].name, 1)


def test_order_of_splits():
    assert split_order({"zoo", "test", "val", "a", "train"}) == ("train", "val", "test", "a", "zoo")
    assert set(schema.SPLIT_ALIASES.values()) == set(schema.SPLIT_NAMES)


def test_the_contract_imports_neither_wing():
    code = "import sys, dataprep.sources, manifests.store, manifests.schema; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.split(".")[0] for name in modules} & {"dataprep", "loaders", "nvidia", "torch", "PIL"}
