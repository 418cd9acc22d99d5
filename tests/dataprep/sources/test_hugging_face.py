"""Parquet files with images, as Hugging Face distributes datasets."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.datasets import rejected_of
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows
from helpers.sources import has_notice, read, refused, synthetic

from dataprep.containers import read_location
from dataprep.containers.base import Location
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.plan.assign import make_plan
from manifests import parquet
from manifests.errors import SourceVanishedError

JPEG = encode(photo(0, 16, 16))
IMAGE = {"_type": "Image"}
LABEL = {"names": ["cat", "dog", "fox"], "_type": "ClassLabel"}


def write(path, columns=None, *, names=("cat", "dog"), count=3, features=None, **options):
    """Write a Parquet file of `count` images, as the library `datasets` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": JPEG, "path": f"{n}.jpg"} for n in range(count)]
    columns = {"image": images, **(columns or {"label": [n % 2 for n in range(count)]})}
    features = features or {"label": {"names": [*names], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": {"image": IMAGE, **features}}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, **options)
    return path


def load(file, row, column="image.bytes"):
    location = Location(file.name, "parquet", row, -1, column.encode())
    return read_location(str(file.parent), location, 0)


@pytest.mark.parametrize(("row", "splits"), read_rows(__file__, "names of files give the splits"))
def test_names_of_files_give_the_splits(row, splits, tmp_path):
    files = evaluate(row)
    splits = evaluate(splits)
    names = [f"{file}.parquet" for file in files.split()]
    for name in names:
        write(tmp_path / name)
    source = read(tmp_path)
    assert source.splits == splits
    assert has_notice(source, "1 of 2 files is not there: number 0") == ("of-00002" in files)
    assert sorted(source.path.to_pylist()) == sorted(
        f"{name}/{n}" for name in names for n in range(3)
    )


TRAIN = "train-00000-of-00001.parquet"
PATHS = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_files_that_are_refused(row, message, tmp_path):
    files = evaluate(row, globals())
    for name, options in files.items():
        write(tmp_path / name, **options)
    refused(tmp_path, message)


def test_images_that_cannot_be_read(tmp_path, monkeypatch):
    file = write(tmp_path / "train.parquet", count=1)
    for column, row, message in (
        ("image", 5, "has changed since it was scanned"),
        ("photo", 0, "the column does not exist any more"),
    ):
        with pytest.raises(SourceVanishedError, match=message):
            load(file, row, f"{column}.bytes")
    monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 100)
    limit = "unpacks to .* bytes, but the limit is 100; write the file with row groups of"
    with pytest.raises(Rejected, match=limit):
        load(file, 0)


def test_other_columns(tmp_path):
    columns = {
        "label": [0, 1, 0], "age": [3, 4, 5], "width": [1, 2, 3],
        "objects": [[{"bbox": [1, 2]}]] * 3, "mask": [{"bytes": JPEG, "path": None}] * 3,
    }  # fmt: skip
    source = read(write(tmp_path / "train.parquet", columns))
    assert source.extra.to_pydict() == {"age": [3, 4, 5], "column:width": [1, 2, 3]}
    notice = "skipped columns that are not text, numbers or booleans: objects, mask"
    assert has_notice(source, notice)


#: Columns with class names, the column that is the label, and another that can be chosen.
CHOICES = [
    ({"fine_label": [0, 1, 2], "coarse_label": [1, 0, 0]}, "fine_label", "coarse_label"),
    ({"artist": [0, 1, 2], "style": [0, 0, 1]}, "artist", "style"),
    ({"score": [1, 0, 1]}, "score", None),
]


@pytest.mark.parametrize(("columns", "label", "other"), CHOICES)
def test_columns_with_class_names(columns, label, other, tmp_path):
    """A class label is a class whatever its name is, and a choice among several is shown."""
    file = write(tmp_path / "train.parquet", columns, features=dict.fromkeys(columns, LABEL))
    source = read(file)
    assert (source.label_type, source.classes) == ("class", ("cat", "dog", "fox"))
    assert source.label.tolist() == columns[label]
    said = f"column {label}; {other} also has names", "--label-column"
    assert has_notice(source, *said) == bool(other)
    if other:
        assert source.extra.to_pydict() == columns
        source = read(file, label_column=other)
        assert source.label.tolist() == columns[other]
        assert not has_notice(source, "also has names")
        message = f"--label-column {other[:-1]}: .*Hint: did you mean '{other}'"
        refused(file, message, label_column=other[:-1])


LISTS = [{"feature": LABEL, "length": -1, "_type": "Sequence"}, [LABEL]]
LISTS += [{"feature": LABEL, "_type": name} for name in ("List", "LargeList")]


@pytest.mark.parametrize("feature", LISTS)
@pytest.mark.parametrize("name", ["labels", "animals"])
def test_lists_of_class_labels(feature, name, tmp_path):
    features = {"id": {"dtype": "int64", "_type": "Value"}, name: feature}
    columns = {"id": [5, 6, 7], name: [[2, 0], [], [1]]}
    source = read(write(tmp_path / "train.parquet", columns, features=features))
    assert (source.label_type, source.classes) == ("multi-label", ("cat", "dog", "fox"))
    assert source.extra.to_pydict() == {"id": [5, 6, 7], "labels": [[0, 2], [], [1]]}
    assert read(tmp_path, classes=("a", "b", "c")).classes == ("a", "b", "c")
    # The metadata says that the numbers are indices, never 0 or 1 for each class.
    columns = {"id": [5, 6, 7], name: [[0, 1, 1], [1, 0, 0], [1, 1, 1]]}
    source = read(write(tmp_path / "train.parquet", columns, features=features))
    assert source.extra["labels"].to_pylist() == [[0, 1], [0, 1], [1]]
    columns = {"id": [5, 6, 7], name: [[0, 3], [1], [1]]}
    refused(write(tmp_path / "train.parquet", columns, features=features), "3")


def test_binary_columns(tmp_path):
    for name in ("train", "test"):
        pq.write_table(pa.table({"image": [JPEG, JPEG]}), tmp_path / f"{name}.parquet")
    source = read(tmp_path, label_type="none")
    assert (len(source), source.splits, source.extra.column_names) == (4, ("train", "test"), [])
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"content": [JPEG, JPEG], "label": [0, 1]}), file)
    assert read(file).layout == "Parquet with images in column content"
    pq.write_table(pa.table({"one": [JPEG], "two": [JPEG], "label": [0]}), file)
    refused(file, "several columns of images: one, two. Hint: choose one with --path-column")
    assert "column two" in read(file, path_column="two").layout


def test_null_images_are_rejected_by_row(tmp_path, convert):
    image = [{"bytes": JPEG, "path": None}, {"bytes": None, "path": "x.jpg"}, None]
    file = write(tmp_path / "train.parquet", {"image": image, "label": [0, 1, 0]})
    convert(file, tmp_path / "out", "--max-rejected", 1)
    assert [tuple(row.values()) for row in rejected_of(tmp_path / "out")] == [
        (f"train.parquet/{row}", "empty", f"column 'image.bytes' of row {row} is null")
        for row in (1, 2)
    ]


def test_an_image_that_is_repeated_a_million_times_takes_its_size_once(tmp_path):
    """The dictionary stays one: the column would unpack to 17 GB."""
    file = tmp_path / "train.parquet"
    image = pa.DictionaryArray.from_arrays(
        pa.array([0] * 60_000, pa.int32()), pa.array([bytes(280_000)])
    )
    pq.write_table(pa.table({"image": image, "label": [0] * 60_000}), file, store_schema=False)
    assert len(read(file)) == 60_000
    assert load(file, 59_999, "image") == bytes(280_000)


def test_a_shard_reads_few_row_groups():
    """A shuffle of everything would unpack every row group for every shard."""
    group, size = np.repeat(np.arange(100), 100), [1 << 20] * 10_000  # a row group has 100 MiB
    source = synthetic(10_000, group=group, size=size)
    shards = make_plan(source, Options(shard_samples=200)).shards
    stored = [row for shard in shards for row in shard.rows.tolist()]
    assert sorted(stored) == [*range(len(source))]
    groups = [{*source.group[shard.rows].tolist()} for shard in shards]
    assert max(map(len, groups)) <= 3
    assert [min(each) for each in groups] != sorted(min(each) for each in groups)
    first = shards[0].rows.tolist()
    assert first != sorted(first)
    other = make_plan(source, Options(shard_samples=200, seed=1)).shards[0]
    assert other.rows.tolist() != first
