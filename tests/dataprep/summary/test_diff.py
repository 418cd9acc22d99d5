"""`dataprep diff`: every kind of difference between two datasets of real photographs."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest
from helpers.datasets import flip
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import loaders
from dataprep.summary.diff import diff_datasets, hash_texts


@pytest.fixture
def source(image_folder, tmp_path):
    """A copy of the photographs that a test may change."""
    return shutil.copytree(image_folder, tmp_path / "photos")


@pytest.fixture
def convert(convert, tmp_path):
    """A function that converts a source to a folder of a name, which it returns."""

    def run(source, name, *options):
        convert(source, tmp_path / name, *options)
        return str(tmp_path / name)

    return run


def counts(result):
    return {kind: count for kind, count in result.counts.items() if count}


def images(source, class_name="cat"):
    return sorted((source / class_name).iterdir())


def test_every_kind(convert, invoke, source):
    a = convert(source, "a")
    cats, others = images(source), images(source, "日本")
    cats[0].unlink()
    cats[1].rename(source / "日本" / cats[1].name)  # another class
    cats[2].rename(source / "cat" / "renamed.jpg")
    cats[3].write_bytes(cats[4].read_bytes())  # another image, which is also under its old name
    shutil.copy(others[0], source / "cat" / "copy.jpg")
    b = convert(source, "b")
    result = diff_datasets(a, b)
    assert counts(result) == {"added": 1, "removed": 1, "relabelled": 1, "changed": 1, "renamed": 1}
    first = {
        kind: [side and side.source for side in differences[0]]
        for kind, differences in result.first.items()
        if differences
    }
    assert first == {
        "added": [None, "cat/copy.jpg"],
        "removed": [f"cat/{cats[0].name}", None],
        "relabelled": [f"cat/{cats[1].name}", f"日本/{cats[1].name}"],
        "changed": [f"cat/{cats[3].name}"] * 2,
        "renamed": [f"cat/{cats[2].name}", "cat/renamed.jpg"],
    }
    output = invoke("diff", a, b, status=1).stdout
    assert f"cat/{cats[1].name} -> 日本/{cats[1].name}: cat -> 日本" in output
    assert counts(diff_datasets(b, a)) == counts(result)
    members = json.loads(invoke("diff", a, b, "--json", status=1).stdout)
    other = {"source": f"日本/{cats[1].name}", "class": "日本", "split": "train"}
    assert members["relabelled"]["first"][0]["b"] == other
    assert members["samples"] == {"a": 14, "b": 14, "same": 10}


def test_images_without_checksums_are_read(convert, invoke, source, tmp_path):
    a = convert(source, "a", "--fmt", "webdataset")
    (tmp_path / "indexed").mkdir()
    shutil.copy(f"{a}/train-00000.tar", tmp_path / "indexed")
    invoke("index", tmp_path / "indexed")
    assert diff_datasets(a, str(tmp_path / "indexed")).is_equal
    image, shard = images(source)[0].read_bytes(), tmp_path / "indexed" / "train-00000.tar"
    flip(shard, shard.read_bytes().index(image) + len(image) - 20)
    assert counts(diff_datasets(a, str(tmp_path / "indexed"))) == {"changed": 1}


def test_images_without_labels(convert, invoke, source):
    """No empty places in what is printed."""
    a = convert(source, "a", "--label-type", "none")
    output = invoke("diff", a, convert(source, "b"), "--limit", 1, status=1).output
    assert ": no label -> " in output
    path = images(source)[0]
    path.unlink()
    output = invoke("diff", a, convert(source, "c", "--label-type", "none"), status=1).output
    assert f"\n  cat/{path.name}, train\n" in output


def test_names_are_escaped_and_damaged_tables_named(convert, invoke, source, tmp_path):
    a = convert(source, "a")
    images(source)[0].rename(source / "cat" / "new\n\x1b[2J line.jpg")
    b = convert(source, "b")
    output = invoke("diff", a, b, status=1).stdout
    assert "new\\n\\x1b[2J line.jpg" in output
    assert "\x1b" not in output
    assert "does not exist" in invoke("diff", a, tmp_path / "none", status=2).stderr
    invoke("diff", a, status=2)
    table = tmp_path / "b" / "train-00000.parquet"
    for damage in (lambda: flip(table, 60), table.unlink):
        damage()
        result = invoke("diff", a, b, status=1)
        assert "b/train-00000.parquet" in result.stderr
        assert result.stdout == ""


def test_revisions_and_joined_columns(convert, invoke, source, tmp_path):
    a = convert(source, "a")
    table, receipt = tmp_path / "scores.jsonl", tmp_path / "receipt.json"
    sources = [f"{path.parent.name}/{path.name}" for path in sorted(source.rglob("*.*"))]
    for revision in (1, 2):
        rows = [
            {"source": name, "score": number / 4, "near": [name] * (number % 3), "note": None}
            for number, name in enumerate(sources)
        ]
        if revision == 2:
            rows[0] |= {"score": 9.5, "near": None}
            rows[1]["near"] = ["x"]
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
        invoke("join", a, table, "--on", "source")
    diff = ("diff", a, a, "--columns")
    assert "the same samples, classes and columns" in invoke(*diff).stdout
    assert "the same samples and classes" in invoke("diff", a, a, "--revision", 0).stdout
    output = invoke(*diff, "--revision", 0, status=1).stdout
    assert "columns added: near, note, score\n" in output
    output = invoke(*diff, "--revision", 2, "--b-revision", 0, status=1).stdout
    assert "columns removed: near, note, score\n" in output
    changed = {"added": [], "removed": [], "changed": {"near": 2, "score": 1}}
    found = json.loads(invoke(*diff, "--revision", 1, "--json", status=1).stdout)
    assert found["columns"] == changed
    options = {"batch_size": 2, "device": "cpu", "transforms": "imagenet-eval"}
    with loaders.build(a, split="train", revision=1, **options) as train:
        next(iter(train))
        receipt.write_text(json.dumps([train.receipt()]))
    found = json.loads(invoke(*diff, "--revision", receipt, "--json", status=1).stdout)
    assert found["columns"] == changed
    summary = json.loads(invoke("info", a, "--revision", receipt, "--json").stdout)
    assert len(summary["revisions"]) == 1
    other = receipt.read_text().replace('"samples": 14', '"samples": 15')
    for content, message in [
        (other, "is of a dataset with 15 samples in the split train, but"),
        ("[]", "does not say one revision"),
        ('{"dataset": {"folders": 3}}', "is not a receipt ([0].dataset.folders must be"),
        ("PK\x03", "is not a receipt ("),
        ("[" * 100_000, "is not a receipt ("),
    ]:
        receipt.write_text(content)
        assert message in invoke("info", a, "--revision", receipt, status=2).stderr
    os.mkfifo(tmp_path / "pipe")
    for number in (-1, 3, "9" * 5000, tmp_path / "pipe", tmp_path):
        invoke(*diff, f"--revision={number}", status=2)


def test_arrays_are_compared_by_sample(convert, invoke, source, tmp_path):
    made = []
    for name in "ab":
        for number, path in enumerate(
            sorted(each for each in source.rglob("*.*") if each.suffix != ".npy")
        ):
            array = np.full(3, number + 10 * (name == "b" and number in (2, 5)), np.float32)
            np.save(path.with_suffix(".npy"), array)
        made.append(convert(source, name, "--array", "e={stem}.npy", "--samples-per-shard", 4))
    assert "changed" not in invoke("diff", *made).stdout
    found = json.loads(invoke("diff", *made, "--columns", "--json", status=1).stdout)
    assert found["columns"] == {"added": [], "removed": [], "changed": {"e": 2}}
    os.unlink(f"{made[1]}/train-00000.e.npy")
    output = invoke("diff", *made, "--columns", status=1).stderr
    assert "train-00000.e.npy: the array file cannot be read" in output


samples = st.lists(st.tuples(*[st.integers(0, 2)] * 4), max_size=12)


@settings(max_examples=examples(), deadline=None)
@given(st.lists(st.text(max_size=6), max_size=30), st.integers(0, 5))
def test_hashes_are_equal_where_the_texts_are(texts, start):
    hashes = hash_texts(pa.chunked_array([texts, texts[::-1]], pa.large_string())).tolist()
    assert hashes[len(texts) :] == hashes[: len(texts)][::-1]
    assert len(set(hashes)) == len(set(texts))
    sliced = pa.array(texts, pa.large_string()).slice(start)
    assert hash_texts(pa.chunked_array([sliced])).tolist() == hashes[start : len(texts)]
