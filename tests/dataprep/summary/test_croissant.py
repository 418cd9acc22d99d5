"""`dataprep croissant`, read by the reference implementation."""

import hashlib
import json

import mlcroissant
import pytest

from manifests.store import read_dataset, read_manifest


@pytest.fixture
def described(convert, photos, tmp_path, invoke):
    convert(photos, tmp_path / "set", "--shard-size", "256KiB", "--val-fraction", "0.2")
    result = invoke("croissant", tmp_path / "set", "--license", "CC-BY-4.0", "--name", "Photos")
    return tmp_path / "set", result.output


def test_the_reference_implementation_reads_all_records(described):
    folder, shown = described
    assert "missing, because only you know it: --creator, --cite-as, --url, --description" in shown
    dataset = mlcroissant.Dataset(jsonld=folder / "croissant.json")
    assert not dataset.metadata.ctx.issues.errors
    expected = {"train": {}, "val": {}}
    for batch in read_dataset(str(folder)):
        for row in batch.table.to_pylist():
            expected[batch.split][row["key"]] = row
    for split, rows in expected.items():
        found = {}
        for record in dataset.records(split):
            values = {name.removeprefix(f"{split}/"): value for name, value in record.items()}
            found[values["key"].decode()] = values
        assert found.keys() == rows.keys()
        for key, row in rows.items():
            assert found[key]["label"] == row["label"]
            assert found[key]["source"].decode() == row["source"]
    names = [record["classes/name"] for record in dataset.records("classes")]
    assert tuple(names) == read_manifest(folder).classes


def test_every_file_has_its_digest_and_nothing_is_guessed(described, invoke):
    folder, _ = described
    whole = json.loads((folder / "croissant.json").read_text())
    assert whole["license"] == "CC-BY-4.0"
    assert "creator" not in whole
    files = {file["contentUrl"]: file for file in whole["distribution"] if "sha256" in file}
    stored = {path.name for path in folder.iterdir() if path.is_file()}
    assert files.keys() == stored - {"manifest.json", "rejected.jsonl", "croissant.json"}
    for name, file in files.items():
        assert file["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    invoke("verify", folder)
    invoke("croissant", folder)  # again: the file is its own
    (folder / "croissant.json").write_text("{}")
    invoke("croissant", folder, status=2)
