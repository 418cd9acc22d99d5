"""`dataprep croissant`, read by the reference implementation."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.datasets import write_images

from manifests.store import read_dataset, read_manifest

#: Prints the problems of a description, and all records. Not in this process: it imports pandas.
READ = """
import json, os, sys
sys.path.append(sys.argv[1])
import mlcroissant
dataset = mlcroissant.Dataset(jsonld=sys.argv[2])
records = {each.uuid: [*dataset.records(each.uuid)] for each in dataset.metadata.record_sets}
print(json.dumps([[*dataset.metadata.ctx.issues.errors], records], default=bytes.decode), flush=True)
os._exit(0)  # threads of its libraries may abort the end of Python
"""
ORACLE = Path(sys.prefix) / "oracles" / "croissant"


@pytest.fixture
def described(convert, photos, tmp_path, invoke):
    convert(photos, tmp_path / "set", "--shard-size", "256KiB", "--val-fraction", "0.2")
    result = invoke("croissant", tmp_path / "set", "--license", "CC-BY-4.0", "--name", "Photos")
    return tmp_path / "set", result.output


@pytest.mark.skipif(not ORACLE.exists(), reason="needs mlcroissant")
def test_the_reference_implementation_reads_all_records(described):
    folder, shown = described
    assert "missing, because only you know it: --creator, --cite-as, --url, --description" in shown
    command = [sys.executable, "-c", READ, ORACLE, folder / "croissant.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    errors, records = json.loads(done.stdout)
    assert not errors
    found, stored = {}, {}
    for batch in read_dataset(str(folder)):
        for row in batch.table.select(["key", "label", "source"]).to_pylist():
            stored[batch.split, row["key"]] = row["label"], row["source"]
    for split in ("train", "val"):
        for record in records[split]:
            key, label, source = (record[f"{split}/{name}"] for name in ("key", "label", "source"))
            found[split, key] = label, source
    assert found == stored
    names = tuple(each["classes/name"] for each in records["classes"])
    assert names == read_manifest(folder).classes


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


def test_the_columns_of_licenses_are_counted_and_one_license_is_taken(convert, invoke, tmp_path):
    names = write_images(tmp_path / "set", range(6), ("cat", "dog"))
    files = sorted(f"{path.parent.name}/{path.name}" for path in names.rglob("*.jpg"))
    hosts = ["flickr", "zoo", "flickr", "", "zoo", "flickr"]

    def described(licenses, name):
        rows = [
            {"path": path, "label": "cat", "license": terms, "origin": host, "consent": None}
            for path, terms, host in zip(files, licenses, hosts, strict=True)
        ]
        rows[0]["consent"] = True
        table = names / f"{name}.jsonl"
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
        convert(table, tmp_path / name)
        invoke("croissant", tmp_path / name)
        out = tmp_path / f"{name}.html"
        invoke("report", tmp_path / name, "--out", out)
        whole = json.loads((tmp_path / name / "croissant.json").read_text())
        return whole.get("license"), json.loads(out.with_suffix(".json").read_text()), out

    taken, report, page = described(["CC-BY-4.0"] * 6, "one")
    assert taken == "CC-BY-4.0"
    assert report["provenance"] == {
        "license": {"values": {"CC-BY-4.0": 6}, "missing": 0, "missing_share": 0},
        "origin": {"values": {"flickr": 3, "zoo": 2}, "missing": 1, "missing_share": 0.166667},
        "consent": {"values": {"true": 1}, "missing": 5, "missing_share": 0.833333},
    }
    assert "16.7% of the images have none" in page.read_text()
    for number, licenses in enumerate((["CC0"] * 5 + [None], ["CC0"] * 5 + ["MIT"])):
        assert described(licenses, f"several{number}")[0] is None
    filtered = ("--where", "license = 'CC0'", "--label-column", "label")
    convert(names / "several1.jsonl", tmp_path / "free", *filtered)
    assert len(next(iter(read_dataset(str(tmp_path / "free")))).table) == 5
