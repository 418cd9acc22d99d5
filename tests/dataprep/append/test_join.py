"""`join`: a revision with more columns, whose shards keep their bytes."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.datasets import rows_of, write_csv, write_images
from helpers.loading import build
from helpers.object_stores import upload
from helpers.rows import evaluate, read_rows

from manifests.arrays import ArrayKind
from manifests.store import read_manifest


@pytest.fixture
def dataset(convert, tmp_path):
    """Eight images of two classes, in two shards."""
    source = write_images(tmp_path / "first", range(8), ("cat", "dog"))
    convert(source, tmp_path / "out", "--samples-per-shard", 5)
    return tmp_path / "out"


def keys_of(dataset) -> list[str]:
    return sorted(row["key"] for row in rows_of(dataset))


def test_a_join_is_a_revision_that_can_be_reverted(dataset, invoke, convert, snapshot, tmp_path):
    states = [snapshot(dataset)]
    keys = keys_of(dataset)
    write_csv(
        tmp_path / "scores.csv", "key,score,width", [(k, n / 2, n) for n, k in enumerate(keys)]
    )
    join = ("join", dataset, tmp_path / "scores.csv", "--on", "key")
    assert "score would be joined to 8 samples" in invoke(*join, "--dry-run").stdout
    assert snapshot(dataset) == states[0]
    invoke(*join)
    states.append(snapshot(dataset))
    kept = {name: data for name, data in states[0].items() if name != "manifest.json"}
    assert states[1].items() >= kept.items()
    scores = {key: number / 2 for number, key in enumerate(keys)}
    assert {row["key"]: row["score"] for row in rows_of(dataset)} == scores
    assert "was joined before" in invoke(*join).stdout
    (revision,) = json.loads(invoke("info", dataset, "--json").stdout)["revisions"]
    assert (revision["source"], revision["joined"]) == ("scores.csv", ["score"])
    assert "revisions" not in json.loads(invoke("info", dataset, "--revision", 0, "--json").stdout)
    # Lists of any length, and an append, whose rows are null in the joined columns.
    lists = pa.array([["dog"], None], pa.list_(pa.large_string()))
    pq.write_table(pa.table({"key": keys[:2], "near": lists}), tmp_path / "near.parquet")
    near = ("join", dataset, tmp_path / "near.parquet", "--on", "key", "--missing")
    assert "6 of 8 samples have no row: null" in invoke(*near, "null").stdout
    states.append(snapshot(dataset))
    second = write_images(tmp_path / "second", range(20, 23), ("dog",), first=500)
    convert(second, dataset, "--append")
    assert "9 of 11 samples have no row" in invoke(*near, "keep", "--columns", "near").stdout
    assert [row["near"] for row in rows_of(dataset)].count(["dog"]) == 1
    convert(dataset, tmp_path / "copy", "--where", "score > 1")
    assert "5 images" in invoke("verify", tmp_path / "copy").stdout.replace("samples", "images")
    for command in ("verify", "repair"):
        assert "no" in invoke(command, dataset).stdout
    for state in (None, *reversed(states[:3])):
        invoke("revert", dataset)
        assert state is None or snapshot(dataset) == state
        invoke("verify", dataset)


def test_damaged_tables_of_a_join_are_found(dataset, invoke, tmp_path):
    for column in ("a", "b"):
        rows = [(key, 1) for key in keys_of(dataset)]
        table = write_csv(tmp_path / f"{column}.csv", f"key,{column}", rows)
        invoke("join", dataset, table, "--on", "key")
    tables = ("train-00001.1.parquet", "train-00001.2.parquet")
    for name in ("train-00000.parquet", *tables):
        path = dataset / name
        path.write_bytes(path.read_bytes()[:-1])
        assert name in invoke("verify", dataset, status=1).stdout
    found = invoke("repair", dataset, "--src", tmp_path / "first", status=1).stdout
    assert "train-00000.parquet" in found
    assert found.count("not repaired: columns of another table were joined to it") == 2
    assert "train-00000" not in invoke("verify", dataset, status=1).stdout
    (dataset / "train-00000.tfrecord").unlink()  # it has no column of a join
    assert "set --src to the source of the dataset" in invoke("repair", dataset, status=1).stdout


def test_corrected_labels_replace_the_labels(dataset, invoke, convert, snapshot, tmp_path):
    first, second = keys_of(dataset)[:2]
    rows = [json.dumps({"key": first, "label": "eel"}), json.dumps({"key": second, "label": "dog"})]
    (tmp_path / "labels.jsonl").write_text("\n".join(rows))
    convert(dataset, tmp_path / "before")
    invoke("join", dataset, tmp_path / "labels.jsonl", "--on", "key", "--missing", "keep")
    assert read_manifest(dataset).classes == ("cat", "dog", "eel")
    labels = {row["key"]: row["label"] for row in rows_of(dataset)}
    assert (labels[first], labels[second]) == (2, 1)
    assert "relabelled" in invoke("diff", tmp_path / "before", dataset, status=1).stdout
    invoke("verify", dataset)


def test_lists_of_classes_may_have_new_names(invoke, convert, make_photos, tmp_path):
    paths = sorted(make_photos(tmp_path / "photos", 4).rglob("*.*"))
    for name, key, lists in (
        ("source", "path", [["cat"], ["dog", "cat"], ["dog"], ["cat"]]),
        ("labels", "source", [["eel", "cat"], ["dog"], ["dog"], ["ant"]]),
    ):
        rows = []
        for path, labels in zip(paths, lists, strict=True):
            rows.append(json.dumps({key: str(path.relative_to(tmp_path)), "labels": labels}))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    dataset = tmp_path / "set"
    convert(tmp_path / "source.jsonl", dataset)
    shown = invoke("join", dataset, tmp_path / "labels.jsonl", "--on", "source").output
    assert "2 new classes: ant, eel" in shown
    assert read_manifest(dataset).classes == ("cat", "dog", "ant", "eel")
    found = {row["source"]: row["labels"] for row in rows_of(dataset)}
    assert [found[str(path.relative_to(tmp_path))] for path in paths] == [[0, 3], [1], [1], [2]]


def test_a_joined_split_moves_no_sample(dataset, invoke, tmp_path):
    write_csv(tmp_path / "splits.csv", "key,split", [(key, "val") for key in keys_of(dataset)])
    shown = invoke("join", dataset, tmp_path / "splits.csv", "--on", "key").output
    assert "a join moves no sample to another split" in shown
    assert [split.name for split in read_manifest(dataset).splits] == ["train"]


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_tables_that_are_refused(row, message, dataset, invoke, snapshot, tmp_path):
    """KEY is the key of a sample; "type" is joined after a table of numbers."""
    text, *options = evaluate(row, {})
    key, table = keys_of(dataset)[0], tmp_path / ("t.jsonl" if text[0] == "{" else "t.csv")
    join = ("join", dataset, table, "--on", "key")
    if message.startswith("column 'a' has the type string"):
        table.write_text(f"key,a\n{key},1\n")
        invoke(*join, "--missing", "null")
    before = snapshot(dataset)
    table.write_text(text.replace("KEY", key))
    assert message.replace("KEY", key) in invoke(*join, *options, status=2).output
    assert snapshot(dataset) == before


def test_an_interrupted_join_is_finished_or_removed(
    dataset, invoke, snapshot, monkeypatch, tmp_path
):
    before = snapshot(dataset)
    write_csv(tmp_path / "a.csv", "key,a", [(key, 1) for key in keys_of(dataset)])
    join = ("join", dataset, tmp_path / "a.csv", "--on", "key")

    def stop(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dataprep.run.join.publish_revision", stop)
        invoke(*join, status=3)
    assert "`dataprep join` was interrupted" in invoke("verify", dataset, status=1).stdout
    write_csv(tmp_path / "b.csv", "key,b", [(key, 1) for key in keys_of(dataset)])
    other = ("join", dataset, tmp_path / "b.csv", "--on", "key")
    assert "another join has not ended" in invoke(*other, status=2).output
    assert "append or join wrote was removed: 2 files" in invoke("revert", dataset).stdout
    assert snapshot(dataset) == before
    invoke(*join)
    invoke("verify", dataset)


def test_captions_are_joined_and_replaced(dataset, invoke, convert, tmp_path):
    """Of images with classes they are a column, which the field "caption" reads."""
    keys, table = keys_of(dataset), tmp_path / "captions.jsonl"
    rows = [json.dumps({"key": key, "captions": [key, "b"]}) for key in keys[1:]]
    table.write_text("\n".join(rows))
    join = ("join", dataset, table, "--on", "key", "--missing")
    invoke(*join, "null")
    options = {"fields": ("key", "caption"), "shuffle": False, "batch_size": 8}
    for choice, missing, other in (("first", None, None), ("all", [], "b")):
        with build(dataset, caption=choice, **options) as loader:
            ((found, texts),) = loader
        expected = [missing, *([key, other] if other else key for key in keys[1:])]
        assert dict(zip(found, texts, strict=True)) == dict(zip(keys, expected, strict=True))
    # Of images with captions they are the labels.
    source = tmp_path / "source.jsonl"
    paths = [row["source"] for row in rows_of(dataset)]
    lines = [json.dumps({"path": f"first/{each}", "captions": ["a", "b"]}) for each in paths]
    source.write_text("\n".join(lines))
    convert(source, tmp_path / "captions")
    key = keys_of(tmp_path / "captions")[0]
    table.write_text(json.dumps({"key": key, "captions": ["c"]}))
    invoke("join", tmp_path / "captions", table, "--on", "key", "--missing", "keep")
    found = {row["key"]: row["captions"] for row in rows_of(tmp_path / "captions")}
    assert found.pop(key) == ["c"]
    assert set(map(tuple, found.values())) == {("a", "b")}
    table.write_text(json.dumps({"key": key, "captions": []}))
    join = ("join", tmp_path / "captions", table, "--on", "key")
    assert "has a list without a text" in invoke(*join, status=2).output
    invoke("verify", tmp_path / "captions")


def test_boxes_and_a_missing_table_are_refused_by_name(dataset, invoke, tmp_path):
    keys = keys_of(dataset)
    boxes = pa.table({"key": keys, "bbox": [[[0.5, 1.0]]] * len(keys)})
    pq.write_table(boxes, tmp_path / "boxes.parquet")
    for name, message in (
        (
            "boxes.parquet",
            "column 'bbox' has lists of lists, such as boxes, which a join does not add",
        ),
        ("none.csv", "none.csv does not exist. Hint: check the path"),
    ):
        found = invoke("join", dataset, tmp_path / name, "--on", "key", status=2).output
        assert message in found


def test_arrays_are_files_of_the_revision(dataset, invoke, convert, snapshot, tmp_path):
    """Shards keep their bytes, and the files of the arrays are beside the new tables."""
    before, keys = snapshot(dataset), keys_of(dataset)
    values = np.arange(len(keys) * 3, dtype=np.float16).reshape(-1, 3)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 3)
    rows = pa.table({"key": keys[::-1], "emb": lists, "n": range(len(keys))})
    pq.write_table(rows, tmp_path / "emb.parquet")
    join = ("join", dataset, tmp_path / "emb.parquet", "--on", "key")
    assert "n, emb joined to 8 samples" in invoke(*join).stdout
    assert "was joined before" in invoke(*join).stdout
    assert read_manifest(dataset).arrays == {"emb": ArrayKind("float16", 3)}
    assert "arrays: emb (3 float16)" in invoke("info", dataset).output
    assert np.load(dataset / "train-00001.1.emb.npy").shape == (3, 3)
    expected = dict(zip(keys[::-1], values.tolist(), strict=True))
    options = {"fields": ("key", "emb"), "batch_size": 8}

    def loaded(folder, **others):
        with build(folder, **options, **others) as loader:
            ((found, arrays),) = loader
        return dict(zip(found, arrays.tolist(), strict=True))

    assert loaded(dataset) == expected
    url = upload(dataset, f"memory://bucket/{tmp_path.name}")
    assert loaded(url, cache=tmp_path / "cache") == expected
    joined = snapshot(dataset)
    assert joined.items() >= {name: data for name, data in before.items() if name[0] != "m"}.items()
    for command in ("verify", "repair"):
        assert "no" in invoke(command, dataset).stdout
    # A second array, and one of the name again; then what is left of a damaged file.
    more = [json.dumps({"key": key, "a": [0.5, n]}) for n, key in enumerate(keys)]
    (tmp_path / "a.jsonl").write_text("\n".join(more))
    invoke("join", dataset, tmp_path / "a.jsonl", "--on", "key")
    assert [*read_manifest(dataset).arrays] == ["a", "emb"]
    assert loaded(dataset) == expected
    invoke("verify", dataset)
    rows = rows.append_column("x", [[*range(len(keys))]])
    pq.write_table(rows, tmp_path / "emb.parquet")
    message = "has a column or an array 'emb', which a join of arrays does not replace"
    assert message in invoke(*join, status=2).output
    (tmp_path / "a.jsonl").write_text(more[0].replace('"a"', '"b"'))
    partial = ("join", dataset, tmp_path / "a.jsonl", "--on", "key", "--missing", "null")
    assert "every sample needs a value of the array 'b'" in invoke(*partial, status=2).output
    path = dataset / "train-00000.1.emb.npy"
    path.write_bytes(path.read_bytes()[:-1])
    assert "train-00000.1.emb.npy" in invoke("verify", dataset, status=1).output
    found = invoke("repair", dataset, status=1).output
    assert "columns of another table were joined to it" in found
    path.write_bytes(joined[path.name])
    # An append has the arrays too, and so has what a removal keeps.
    more = write_images(tmp_path / "more", range(4), ("cat",), first=700)
    for number, image in enumerate(sorted(more.rglob("*.jpg"))):
        np.save(image.with_suffix(".npy"), np.full(3, number, np.float16))
        np.save(image.with_suffix(".a.npy"), np.full(2, number, np.float32))
    arrays = ("--array", "emb={stem}.npy", "--array", "a={stem}.a.npy")
    state = snapshot(dataset)
    convert(more, dataset, "--append", *arrays)
    assert loaded(dataset, shuffle=False, last_batch="drop")
    invoke("verify", dataset)
    invoke("diff", dataset, dataset, "--columns")
    (tmp_path / "keys.txt").write_text(keys[0])
    invoke("remove", dataset, "--keys", tmp_path / "keys.txt")
    with build(dataset, fields=("key", "emb"), batch_size=11) as loader:
        ((found, kept),) = loader
    wanted = {key: row for key, row in expected.items() if key != keys[0]}
    assert dict(zip(found, kept.tolist(), strict=True)).items() >= wanted.items()
    invoke("verify", dataset)
    for _ in range(2):
        invoke("revert", dataset)
    assert snapshot(dataset) == state
    # The shards of the first revision can be made again from the source.
    shard = dataset / "train-00000.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-9])
    invoke("repair", dataset, "--src", tmp_path / "first")
    invoke("verify", dataset)
    convert(dataset, tmp_path / "copy")
    assert loaded(tmp_path / "copy").values().__len__() == 8
    for state in (joined, before):
        invoke("revert", dataset)
        assert snapshot(dataset) == state
