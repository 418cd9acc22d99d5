"""`remove`: a revision without some samples, whose shards keep their bytes."""

from __future__ import annotations

import json

import pytest
from helpers.datasets import rows_of, write_csv, write_images

from manifests.store import read_manifest


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
        (tmp_path / "keys.txt").write_text("\n".join(keys))
        return invoke("remove", dataset, "--keys", tmp_path / "keys.txt", **options)

    return run


def test_a_removal_is_a_revision_that_can_be_reverted(
    dataset, remove, invoke, convert, snapshot, tmp_path
):
    states = [snapshot(dataset)]
    keys = keys_of(dataset)
    (tmp_path / "keys.txt").write_text("\n".join(keys[:3]))
    dry = invoke("remove", dataset, "--keys", tmp_path / "keys.txt", "--dry-run").stdout
    assert f"3 samples of 8 would be removed: train -3; such as {keys[0]}" in dry
    assert snapshot(dataset) == states[0]
    assert "3 samples of 8 were removed: train -3" in remove(*keys[:3]).stdout
    states.append(snapshot(dataset))
    kept = {name: data for name, data in states[0].items() if name != "manifest.json"}
    assert states[1].items() >= kept.items()
    assert "nothing to do" in remove(*keys[:3]).stdout
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


#: Lists of keys that are refused, and the message. KEY is the key of a sample.
REFUSED = {
    "unknown": (["KEY", "x", "y"], "keys.txt, line 2: no sample of {out} has the key 'x', nor 1 other key of"),
    "empty": ([""], "keys.txt: the list is empty. Hint: write a key in each line"),
    "all": (["EVERY"], "all of 8 samples would be removed"),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "message"), REFUSED.values(), ids=REFUSED)
def test_lists_that_are_refused(lines, message, dataset, remove, snapshot):
    before, keys = snapshot(dataset), keys_of(dataset)
    text = "\n".join(lines).replace("KEY", keys[0]).replace("EVERY", "\n".join(keys))
    if lines == ["EVERY"]:
        text = "\n".join(keys)
    assert message.format(out=dataset) in remove(text, status=2).output
    assert snapshot(dataset) == before


def test_what_else_is_refused(dataset, remove, invoke, tmp_path):
    key = keys_of(dataset)[0]
    remove(key)
    assert "revision 1 has removed it" in remove(key, "x", status=2).output
    options = ("--where", "width > 0", "--keys", tmp_path / "keys.txt")
    for given in ((), options):
        assert "give one of --keys" in invoke("remove", dataset, *given, status=2).output
    assert read_manifest(dataset).revision == 1
