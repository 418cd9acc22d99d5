"""`remove`: a revision without some samples, whose shards keep their bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import annotated
from helpers.datasets import flip, rows_of, write_csv, write_images

from dataprep.ledger.state import names_of_dataset
from manifests.store import read_manifest, read_revision


@pytest.fixture(params=["tfrecord", "webdataset"])
def dataset(request, convert, tmp_path):
    """Eight images of two classes, in two shards."""
    source = write_images(tmp_path / "first", range(8), ("cat", "dog"))
    convert(source, tmp_path / "out", "--samples-per-shard", 5, "--fmt", request.param)
    return tmp_path / "out"


def keys_of(dataset) -> list[str]:
    return sorted(row["key"] for row in rows_of(dataset))


@pytest.fixture
def remove(dataset, invoke, tmp_path):
    """Remove samples by their keys."""

    def run(*keys: str, **options: int):
        flags = [key for key in keys if key.startswith("--")]
        (tmp_path / "keys.txt").write_text("\n".join(key for key in keys if key not in flags))
        return invoke("remove", dataset, "--keys", tmp_path / "keys.txt", *flags, **options)

    return run


def test_a_removal_is_a_revision_that_can_be_reverted(
    dataset, remove, invoke, convert, snapshot, tmp_path
):
    states = [snapshot(dataset)]
    keys = keys_of(dataset)
    (tmp_path / "keys.txt").write_text("\n".join(keys[:3]), "utf-8-sig")
    dry = invoke("remove", dataset, "--keys", tmp_path / "keys.txt", "--dry-run").stdout
    assert f"3 samples of 8 would be removed: train -3; such as {keys[0]}" in dry
    assert snapshot(dataset) == states[0]
    assert "3 samples of 8 were removed: train -3" in remove(*keys[:3]).stdout
    states.append(snapshot(dataset))
    kept = {name: data for name, data in states[0].items() if name != "manifest.json"}
    assert states[1].items() >= kept.items()
    assert "has this removal already" in remove(*keys[:3]).stdout
    # Its shards alone would list the samples again.
    assert "were removed" in invoke("index", dataset, "--overwrite", status=2).output
    (revision,) = json.loads(invoke("info", dataset, "--json").stdout)["revisions"]
    assert revision["removed"] == {"train": 3}
    assert "revision 1: train -3, removed as in keys.txt" in invoke("info", dataset).stdout
    # Other revisions follow: an append, a join, and another removal.
    second = write_images(tmp_path / "second", range(20, 23), ("dog",), first=500)
    convert(second, dataset, "--append")
    states.append(snapshot(dataset))
    write_csv(tmp_path / "a.csv", "key,a", [(key, n) for n, key in enumerate(keys_of(dataset))])
    invoke("join", dataset, tmp_path / "a.csv", "--on", "key")
    states.append(snapshot(dataset))
    where = ("remove", dataset, "--where", "a in (0, 7)", "--reason", "asked to")
    assert "2 samples of 8 were removed" in invoke(*where).stdout
    states.append(snapshot(dataset))
    assert len(rows_of(dataset)) == 6
    for command in ("verify", "repair"):
        assert "no" in invoke(command, dataset).stdout
    convert(dataset, tmp_path / "copy")
    assert "the same samples" in invoke("diff", dataset, tmp_path / "copy").stdout
    invoke("duplicates", dataset, "--no-store")
    for page in ("report", "croissant"):
        invoke(page, dataset, "--out", tmp_path / f"{page}.html")
    for state in reversed(states[:-1]):
        invoke("revert", dataset)
        assert snapshot(dataset) == state
        invoke("verify", dataset)


def test_an_append_does_not_bring_removed_images_back(dataset, invoke, convert, tmp_path):
    gone = sorted(row["source"] for row in rows_of(dataset))[:2]
    (tmp_path / "gone.txt").write_text("\n".join(gone))
    invoke("remove", dataset, "--sources", tmp_path / "gone.txt")
    again = convert(tmp_path / "first", dataset, "--append").output
    assert f"2 images of the source were removed from {dataset} before" in again
    assert "nothing to append: all 8 images of the source are in" in again
    moved = tmp_path / "moved" / "cat" / "other.jpg"
    moved.parent.mkdir(parents=True)
    moved.write_bytes((tmp_path / "first" / gone[0]).read_bytes())
    write_images(tmp_path / "moved", range(30, 32), ("dog",), first=900)
    grown = convert(tmp_path / "moved", dataset, "--append").output
    assert "is left out: cat/other.jpg" in grown
    assert "already" not in grown
    assert len(rows_of(dataset)) == 8
    # An image of which a copy was removed stays known.
    assert "nothing to append" in convert(tmp_path / "moved", dataset, "--append").output
    invoke("verify", dataset)


def test_resized_images_are_recognized(convert, invoke, tmp_path):
    source = write_images(tmp_path / "first", range(4), ("cat",))
    convert(source, tmp_path / "out", "--resize-shorter", 8)
    (tmp_path / "gone").write_text("cat/0001.jpg")
    invoke("remove", tmp_path / "out", "--sources", tmp_path / "gone")
    (source / "cat" / "0001.jpg").rename(source / "cat" / "new.jpg")
    grown = convert(source, tmp_path / "out", "--append", "--keep-removed").output
    assert "is left out: cat/new.jpg" in grown
    assert len(rows_of(tmp_path / "out")) == 3


def test_damage_is_found_and_repaired(dataset, remove, invoke, snapshot):
    keys = keys_of(dataset)
    remove(*keys[:3])
    remove(keys[4])
    before = snapshot(dataset)
    new = [name for name in before if name.startswith("train") and name.count(".") == 2]
    assert len(new) == 6
    for name in new:
        (dataset / name).write_bytes(b"x")
        assert name in invoke("verify", dataset, status=1).stdout
        invoke("repair", dataset)
        assert snapshot(dataset) == before
    for name, status in {"train-00000.idx": 0, "removed.1.parquet": 1}.items():
        (dataset / name).unlink()
        assert name in invoke("verify", dataset, status=1).stdout
        assert name in invoke("repair", dataset, status=status).stdout


def test_what_is_refused(dataset, remove, invoke, snapshot, tmp_path):
    before, keys = snapshot(dataset), keys_of(dataset)
    unknown = f"keys.txt, line 2: no sample of {dataset} has the key 'x', nor 1 other key of"
    for text, message in (
        ((keys[0], "x", "y"), unknown),
        ((), "keys.txt: the list is empty. Hint: write a key in each line"),
        (keys, "all of 8 samples would be removed"),
    ):
        assert message in remove(*text, status=2).output
        assert snapshot(dataset) == before
    remove(keys[0])
    assert "revision 1 has removed it" in remove(keys[0], "x", status=2).output
    missing = invoke("remove", dataset, "--sources", tmp_path / "no list", status=2).output
    assert "no list does not exist. Hint: check the path" in missing
    options = ("--where", "width > 0", "--keys", tmp_path / "keys.txt")
    for given in ((), options):
        assert "give one of --keys" in invoke("remove", dataset, *given, status=2).output
    assert read_manifest(dataset).revision == 1


def files_with_values(dataset: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the content of every file of a dataset, and the values of its tables."""
    for path in filter(Path.is_file, dataset.rglob("*")):
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += repr(pq.read_table(path).to_pylist()).encode()
        yield path, content


def test_a_scrub_leaves_no_byte(dataset, remove, invoke, convert, tmp_path):
    second = write_images(tmp_path / "second", range(20, 26), ("dog",), first=500)
    convert(second, dataset, "--append")
    rows = {row["key"]: row for row in rows_of(dataset)}
    keys = sorted(rows)
    gone = {keys[0], keys[1], keys[8]}
    invoke("duplicates", dataset)
    remove(keys[0])
    (dataset / "notes.txt").write_text("mine")
    scrub = remove(keys[1], keys[8], "--scrub").output
    assert "not searched for removed samples: 1 other file, notes.txt" in scrub
    assert "2 samples of 13 were removed" in scrub
    for _, content in files_with_values(dataset):
        for key in gone:
            folder = "second" if "-" in key else "first"
            assert (tmp_path / folder / rows[key]["source"]).read_bytes() not in content
            assert rows[key]["source"].encode() not in content
    assert {row["key"] for row in rows_of(dataset)} == {*rows} - gone
    assert "removed as in keys.txt, and shards scrubbed" in invoke("info", dataset).stdout
    assert "has this removal already" in remove(keys[1], keys[8], "--scrub").output
    assert "the older revisions are gone" in invoke("revert", dataset, status=2).output
    gone = invoke("info", dataset, "--revision", 0, status=2).output
    assert "has revision 0 no longer" in gone
    assert "Hint: name a copy of the dataset from before, or" in gone
    # What follows numbers its shards after the ones that were scrubbed.
    assert "is left out" in convert(second, dataset, "--append").output
    third = write_images(tmp_path / "third", range(40, 42), ("dog",), first=700)
    convert(third, dataset, "--append")
    write_csv(tmp_path / "a.csv", "key,a", [(key, 1) for key in keys_of(dataset)])
    invoke("join", dataset, tmp_path / "a.csv", "--on", "key")
    # The files that the scrub kept belong to the dataset, although the join replaced its tables.
    manifest = read_manifest(dataset)
    listed = {*names_of_dataset(manifest)}
    for revision in (3, 4):
        files = read_revision(dataset, revision).shard_files
        assert listed.issuperset(file.name for file in files)
    assert "no problems" in invoke("verify", dataset).stdout
    invoke("revert", dataset)
    remove(keys[3])
    for command in ("verify", "repair"):
        assert "no" in invoke(command, dataset).stdout
    invoke("remove", dataset, "--scrub")
    again = ("remove", dataset, "--scrub", "--reason", "again")
    assert "there is nothing to scrub" in invoke(*again, status=2).output
    invoke("verify", dataset, "--decode")
    assert len(rows_of(dataset)) == 12
    (removed,) = dataset.glob("removed.*")
    data = removed.read_bytes()
    removed.unlink()
    lost = "nothing else lists the removed samples. Hint: restore it from a copy."
    assert lost in invoke("repair", dataset, status=1).stdout
    removed.write_bytes(data)
    (shard, *_) = sorted(dataset.glob("train-00000.*.t*r*"))
    flip(shard)
    found = invoke("repair", dataset, "--src", tmp_path / "first", status=1).stdout
    assert "without removed samples" in found


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_other_images_and_arrays_are_scrubbed_with_their_samples(fmt, convert, invoke, tmp_path):
    kinds = annotated.make_each_kind(tmp_path / "sources")
    kinds["views"] = annotated.make_views(tmp_path / "sources" / "views")
    kinds["arrays"] = write_images(tmp_path / "sources" / "arrays", range(8), ("cat", "dog"))
    for number, path in enumerate(sorted(kinds["arrays"].rglob("*.jpg"))):
        np.save(path.with_suffix(".npy"), np.full(3, number, np.int16))
    options = {"views": ("--pattern", "{key}_{image}"), "arrays": ("--array", "a={stem}.npy")}
    for kind, source in kinds.items():
        out = tmp_path / kind
        convert(source, out, "--samples-per-shard", 3, "--fmt", fmt, *options.get(kind, ()))
        shutil.copytree(out, tmp_path / f"{kind}-before")
        (tmp_path / "keys").write_text(rows_of(out)[1]["key"])
        invoke("remove", out, "--keys", tmp_path / "keys", "--scrub")
        invoke("verify", out, "--decode")
        found = invoke("diff", tmp_path / f"{kind}-before", out, "--json", status=1).stdout
        found = json.loads(found)
        counts = found["samples"]
        assert counts["same"] == counts["b"]
        assert found["removed"]["count"] == counts["a"] - counts["b"]
    order = [str(p.relative_to(kinds["arrays"])) for p in sorted(kinds["arrays"].rglob("*.jpg"))]
    for path in (tmp_path / "arrays").glob("train-*.parquet"):
        rows = pq.read_table(path)["source"].to_pylist()
        values = np.load(path.with_suffix(".a.npy"))
        assert values[:, 0].tolist() == [*map(order.index, rows)]


def test_a_scrub_keeps_joined_columns_and_labels(dataset, remove, invoke, convert, tmp_path):
    keys = keys_of(dataset)
    rows = [(key, f"name of {key}", ("cat", "emu")[n % 2]) for n, key in enumerate(keys)]
    write_csv(tmp_path / "names.csv", "key,name,label", rows)
    invoke("join", dataset, tmp_path / "names.csv", "--on", "key")
    second = write_images(tmp_path / "second", range(20, 23), ("dog",), first=500)
    convert(second, dataset, "--append")
    keys = keys_of(dataset)
    places = {"key": keys, "place": [[n + 0.25, 1.0] for n in range(len(keys))]}
    pq.write_table(pa.table(places), tmp_path / "places.parquet")
    invoke("join", dataset, tmp_path / "places.parquet", "--on", "key")
    before = {row["key"]: row for row in rows_of(dataset)}

    def check(gone):
        manifest = read_manifest(dataset)
        values = [f"name of {key}".encode() for key in gone]
        values += [np.float64(keys.index(key) + 0.25).tobytes() for key in gone]
        for path, content in files_with_values(dataset):
            assert not any(value in content for value in values), path
        after = {row["key"]: row for row in rows_of(dataset)}
        kept = [name for name in before[keys[0]] if name not in ("offset", "shard")]
        for key in {*before} - gone:
            for name in kept:
                assert after[key].get(name) == before[key].get(name), (key, name)
        assert len(after) == len(before) - len(gone)
        listed = {file.name for file in manifest.shard_files} | {"manifest.json"}
        listed |= {manifest.removed.name, f"shards.{manifest.revision}.parquet"}
        assert {path.name for path in dataset.iterdir()} - {".dataprep"} <= listed
        for command in (("verify", "--decode"), ("repair",)):
            assert "no" in invoke(command[0], dataset, *command[1:]).stdout

    remove(keys[0], "--scrub")
    check({keys[0]})
    # The other shard has the files of the join until it is scrubbed, too.
    table = dataset / read_manifest(dataset).shards[1].table.name
    whole = table.read_bytes()
    flip(table)
    left = invoke("repair", dataset, "--src", tmp_path / "first", status=1).stdout
    assert f"{table.name}: the file does not match its checksum; not repaired: columns of" in left
    table.write_bytes(whole)
    remove(keys[7])
    invoke("remove", dataset, "--scrub")
    check({keys[0], keys[7]})
    flip(dataset / read_manifest(dataset).shards[0].table.name)
    assert "columns of another table" in invoke("repair", dataset, status=1).stdout


def test_a_list_that_a_scrub_kept_belongs_to_the_dataset(convert, remove, dataset, tmp_path):
    for number, name in enumerate(("third", "fourth")):
        source = write_images(tmp_path / name, range(40 + 3 * number, 43 + 3 * number), ("dog",))
        (source / "dog" / f"broken{number}.jpg").write_bytes(b"")
        convert(source, dataset, "--append", "--max-rejected", 1)
        if not number:
            remove(keys_of(dataset)[0], "--scrub")
    listed = {*names_of_dataset(read_manifest(dataset))}
    assert {"rejected.1.jsonl", "rejected.3.jsonl"} <= listed
    assert (dataset / "rejected.1.jsonl").exists()
