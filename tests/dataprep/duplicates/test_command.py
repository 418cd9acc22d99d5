"""`dataprep duplicates` on photographs with copies of every kind, and what it stores and shows."""

from __future__ import annotations

import json
import shutil
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.datasets import rows_of, write_csv, write_images
from helpers.pictures import encode

from dataprep.duplicates import collection, search
from dataprep.engines import LocalEngine
from dataprep.options import HASHES_NAME
from manifests.errors import StorageError

#: Each copy of the fixture `source`: its original, distance and symmetry. The rotation is clockwise
#: from the copy.
COPIES = {
    "val/a/astronaut.jpg": ("train/a/astronaut.jpg", None, "identical"),
    "val/b/half.jpg": ("train/b/coffee.jpg", 24, "identical"),
    "val/a/mirrored.jpg": ("train/b/coins.jpg", 24, "mirrored"),
    "val/a/rotated.png": ("train/a/moon.jpg", 24, "rotated 90"),
}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def check_pairs(result):
    found = {pair["images"][1]["path"]: pair for pair in result["pairs"]}
    assert {*found} == {*COPIES}
    for copy, (original, distance, symmetry) in COPIES.items():
        pair = found[copy]
        assert pair["images"][0]["path"] == original
        assert (pair["same_bytes"], pair["symmetry"]) == (distance is None, symmetry)
        assert pair["distance"] <= (distance or 0)
        assert pair["leak"]
        assert pair["conflicting_labels"] == (copy == "val/a/mirrored.jpg")
    assert result["pairs"][0]["conflicting_labels"], "conflicting labels come first"
    (leak,) = result["leaks"]
    assert (leak["images"], leak["of"]["split"], leak["in"]["split"]) == (4, "val", "train")
    assert (result["exact"], result["near"], result["conflicts"], result["groups"]) == (1, 3, 1, 4)


def test_a_source(compare, invoke, source):
    result = compare(source, status=1)
    check_pairs(result)
    assert all(image["key"] is None for pair in result["pairs"] for image in pair["images"])
    output = invoke("duplicates", source, "--limit", 2, status=1).stdout
    assert output.index("conflicting labels") < output.index("same bytes, different splits")
    assert "4 images of val are also in train" in output
    assert "and 2 more; --limit 4 lists all" in output
    output = invoke("duplicates", source, "--limit", 0, status=1).stdout
    assert output.startswith("4 pairs are not listed; --limit 4 lists all\n")
    assert "not listed" not in invoke("duplicates", source, "--limit", 4, status=1).stdout
    result = compare(source, "--distance", -1, status=1)
    assert (result["exact"], result["near"]) == (1, 0)


def test_across_datasets(compare, invoke, source, tmp_path):
    """Nothing repeats in either dataset; both together have a leak."""
    a, b = tmp_path / "a", tmp_path / "b"
    shutil.copytree(source / "train", a)
    shutil.copytree(source / "val", b)
    assert "no image is in more than one split" in invoke("duplicates", a).stdout
    one, other = ({"dataset": str(folder), "split": "train"} for folder in (a, b))
    for option in ((), ("--across",)):
        result = compare(a, b, *option, status=1)
        assert (result["exact"], result["near"]) == (1, 3)
        assert result["leaks"] == [{"images": 4, "of": other, "in": one}]
    output = invoke("duplicates", a, b, status=1).stdout
    assert f"{a} train" in output
    assert f"{b} train" in output


def test_images_that_do_not_decode_are_named(invoke, source):
    data = (source / "val/b/grass.jpg").read_bytes()
    (source / "val/b/damaged.jpg").write_bytes(b"\xff\xd8 nothing")
    (source / "val/b/cut.jpg").write_bytes(data[: len(data) // 3])
    result = invoke("duplicates", source, "--json", status=1)
    assert "damaged.jpg" in result.stderr
    assert json.loads(result.stdout)["images"] == 17


def test_equal_checksums_are_not_equal_images(monkeypatch, compare, source):
    """Images count as copies only if their bytes are equal, not if their CRC-32C and their size are."""
    monkeypatch.setattr(collection, "crc32c", lambda data: 1)
    original = source / "train/a/astronaut.jpg"
    (source / "train/b/other.jpg").write_bytes(original.read_bytes()[:-1] + b"\0")
    assert compare(source, "--workers", 1, status=1)["exact"] == 1


def test_refusals(monkeypatch, invoke, source):
    monkeypatch.chdir(source.parent)
    assert "is given twice" in invoke("duplicates", source, f"{source.name}/", status=2).stderr
    monkeypatch.setattr(search, "MAX_PAIRS", 2)
    output = invoke("duplicates", source, status=2).stderr
    assert "more than 2 pairs" in output
    assert "set a smaller --distance; -1 finds only images with the same bytes" in output


def test_labels_that_are_not_classes(convert, compare, invoke, pictures, tmp_path):
    """Copies with other numbers are in conflict; equal numbers and no labels are not."""
    rows = []
    for name, quality, value in (
        ("coffee", 90, 0.25), ("coffee", 60, 0.25), ("coins", 90, 0.5), ("coins", 60, 1.5),
    ):  # fmt: skip
        (tmp_path / f"{name}{quality}.jpg").write_bytes(encode(pictures[name], quality=quality))
        rows.append((f"{name}{quality}.jpg", value))
    table = write_csv(tmp_path / "list.csv", "path,label", rows)
    for kind, conflicts in (("regression", 1), ("none", 0)):
        convert(table, tmp_path / kind, "--label-type", kind)
        result = compare(tmp_path / kind, status=0)
        assert (result["near"], result["conflicts"]) == (2, conflicts)
        if conflicts:
            labels = {image["label"] for image in result["pairs"][0]["images"]}
            assert labels == {"0.5", "1.5"}
    result = compare(tmp_path / "regression", tmp_path / "none", status=1)
    # A label does not contradict an image without one.
    assert (result["exact"], result["conflicts"]) == (4, 1)
    images = tmp_path / "flat"
    images.mkdir()
    for path in tmp_path.glob("coffee*"):
        shutil.copy(path, images)
    invoke("duplicates", images, status=2)
    assert compare(images, "--label-type", "none", status=0)["near"] == 1


# --- hashes that are stored beside a dataset ------------------------------------------------------


def test_computed_hashes_are_stored_beside_the_dataset(
    convert, invoke, monkeypatch, snapshot, source, out, tmp_path
):
    """The second run reads no image, whatever has no hash, and no other file changes."""
    (source / "train/a/white.png").write_bytes(encode(np.full((80, 90, 3), 255, np.uint8), "PNG"))
    data = (source / "val/b/grass.jpg").read_bytes()
    (source / "val/b/odd.jpg").write_bytes(data[: len(data) // 2] + b"\xff\xd9")
    convert(source, out, "--samples-per-shard", 4)
    before = snapshot(out)
    first = invoke("duplicates", out, "--json", "--no-store", status=1)
    assert snapshot(out) == before
    assert invoke("duplicates", out, "--json", status=1).stdout == first.stdout
    after = snapshot(out)
    assert {**before, HASHES_NAME: after[HASHES_NAME]} == after
    invoke("verify", out)
    monkeypatch.setattr(collection, "read_some", None)
    again = invoke("duplicates", out, "--json", status=1)
    texts = (again.stdout, again.stderr)
    assert texts == (first.stdout, first.stderr), "also the image that does not decode"
    assert snapshot(out) == after
    options = ("--duplicates", "drop", "--where", "path not like '%coffee%'")
    convert(out, tmp_path / "dropped", *options)
    assert "val/b/half.jpg" in {row["source"] for row in rows_of(tmp_path / "dropped")}


@pytest.fixture
def counts(monkeypatch):
    """A list that receives the number of images of each reading."""
    counts, read_some = [], collection.read_some

    def counted(images, rows, *args, **options):
        counts.append(len(rows))
        return read_some(images, rows, *args, **options)

    monkeypatch.setattr(collection, "read_some", counted)
    return counts


def test_only_new_images_are_read_after_an_append(convert, compare, invoke, counts, pictures, source, out, tmp_path):  # fmt: skip
    convert(source, out)
    compare(out, status=1)
    (tmp_path / "more" / "a").mkdir(parents=True)
    new = encode(pictures["brick"].rotate(7), quality=80)
    (tmp_path / "more" / "a" / "new.jpg").write_bytes(new)
    convert(tmp_path / "more", out, "--append")
    counts.clear()
    for _ in range(2):
        compare(out, status=1)
    invoke("revert", out)
    compare(out, status=1)
    assert counts == [1]


def test_stored_hashes_that_do_not_fit_are_computed_again(
    convert, compare, counts, source, out, tmp_path
):
    other = tmp_path / "other"
    convert(source, out)
    convert(source, other, "--seed", 5)
    expected = compare(out)
    compare(other, status=1)
    good, path = (out / HASHES_NAME).read_bytes(), out / HASHES_NAME
    table = pq.read_table(path)
    counts.clear()
    recipe = json.dumps({"recipe": "dct256-2"})
    wrong = [
        (other / HASHES_NAME).read_bytes(),
        good[:-40],
        b"",
        *(table.replace_schema_metadata({b"dataprep": text}) for text in (recipe, b"[", b"[]")),
        table.drop_columns(["hash"]),
        table.set_column(3, "hash", pa.array(["0" * 64] * len(table))),
        table.slice(0, 0),
    ]
    for number, changed in enumerate(wrong):
        if isinstance(changed, bytes):
            path.write_bytes(changed)
        else:
            pq.write_table(changed, path)
        assert compare(out) == expected, number
        assert len(counts) == number + 1
        assert path.read_bytes() == good, number
    assert all(counts)


def test_a_dataset_that_cannot_be_written_to(convert, invoke, monkeypatch, source, out):
    convert(source, out)

    def refuse(path, _):
        raise StorageError("the file cannot be written (Read-only file system)", file=path)

    monkeypatch.setattr("dataprep.storage.replace_file", refuse)
    output = invoke("duplicates", out, status=1).stderr
    reason = "the file cannot be written (Read-only file system)"
    assert f"the hashes are not stored ({reason})" in output
    assert not (out / HASHES_NAME).exists()


#: A file of the search for near hashes, and one of the check of pixels.
SEARCH, CHECK = "*/*.npy", "*/pixels"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("duplicates", SEARCH), ("duplicates", CHECK), ("convert", CHECK), ("report", SEARCH),
        ("report", CHECK),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("quick_programs")
def test_no_temporary_file_remains(command, file, convert, invoke, monkeypatch, tmp_path):
    """Small images, each twice in different quality: their pixels are compared."""
    out, temporary, source = tmp_path / "out", tmp_path / "temporary", tmp_path / "photos"
    for name, quality in (("low", 80), ("high", 95)):
        write_images(source, range(4), (name,), quality=quality)
    temporary.mkdir()
    if command == "report":
        convert(source, out, "--hash")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    run, seen = LocalEngine.run, []

    def interrupted(*arguments):
        seen.extend(temporary.glob(file))
        if seen:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(LocalEngine, "run", interrupted)
    arguments = {
        "duplicates": (source,),
        "convert": ("--src", source, "--out", out, "--duplicates", "drop"),
        "report": (out, "--out", tmp_path / "report.html"),
    }[command]
    output = invoke(command, *arguments, "--workers", 2, status=130).output
    assert "dataprep: interrupted. Run the same command again" in output
    assert seen
    assert list(temporary.iterdir()) == []
