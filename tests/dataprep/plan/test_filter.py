"""`dataprep convert --where`: filters over the columns of the source."""

from __future__ import annotations

import json
import sys

import pyarrow.parquet as pq
import pytest
from helpers.sources import read

from dataprep.plan.splits import filter_source
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError
from manifests.store import read_manifest


def stored(folder):
    return {
        row["source"]: row
        for path in folder.glob("*.parquet")
        for row in pq.read_table(path).to_pylist()
    }


def test_image_folder(invoke, image_folder, tmp_path):
    where = "LABEL <> 'cat' and size > 1000"
    result = invoke("convert", "--src", image_folder, "--out", tmp_path / "out", "--where", where)
    expected = {
        f"{path.parent.name}/{path.name}"
        for path in image_folder.glob("*/*")
        if path.parent.name != "cat" and path.stat().st_size > 1000
    }
    assert 0 < len(expected) < 14
    assert set(stored(tmp_path / "out")) == expected
    assert f"--where: {len(expected)} of 14 images match" in result.stderr
    assert "no image of 1 class matches" in result.stderr
    manifest = read_manifest(tmp_path / "out")
    assert manifest.options["where"] == where
    assert manifest.classes == ("cat", "ein Häßlicher Name", "日本")
    assert verify_dataset(str(tmp_path / "out"), workers=1).problems == ()
    invoke("convert", "--src", image_folder, "--out", tmp_path / "out", "--where", where)
    other = invoke("convert", "--src", image_folder, "--out", tmp_path / "out", status=2)
    assert "--where" in other.stderr


def test_prepared_dataset_knows_sizes_in_pixels(invoke, image_folder, tmp_path):
    invoke("convert", "--src", image_folder, "--out", tmp_path / "all", "--val-fraction", 0.3)
    rows = stored(tmp_path / "all")
    invoke(
        "convert",
        "--src",
        tmp_path / "all",
        "--out",
        tmp_path / "wide",
        "--where",
        "width > height and split = 'train'",
    )
    wide = stored(tmp_path / "wide")
    train = {
        row["source"]
        for path in (tmp_path / "all").glob("train*.parquet")
        for row in pq.read_table(path).to_pylist()
    }
    assert set(wide) == {name for name in train if rows[name]["width"] > rows[name]["height"]}
    assert all(row["crc32c"] == rows[name]["crc32c"] for name, row in wide.items())
    assert [split.name for split in read_manifest(tmp_path / "wide").splits] == ["train"]


def test_extra_columns_and_plan(invoke, image_folder, tmp_path):
    lines = ["path,label,age"]
    for number, path in enumerate(sorted(image_folder.glob("*/*"))):
        lines.append(f"{path},{path.parent.name},{number if number % 5 else ''}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    options = ("--src", tmp_path / "table.csv", "--where", "age < 8")
    result = invoke("convert", *options, "--out", tmp_path / "a", "--dry-run")
    assert "--where: 6 of 14 images match" in result.stderr
    assert "train: 6 images" in result.stdout
    invoke("convert", *options, "--out", tmp_path / "a")
    assert sorted(row["age"] for row in stored(tmp_path / "a").values()) == [1, 2, 3, 4, 6, 7]
    invoke("plan", *options, "--out", tmp_path / "b")
    invoke("work", tmp_path / "b", "--task", "0/1")
    invoke("finish", tmp_path / "b")
    assert (tmp_path / "a/manifest.json").read_bytes() == (
        tmp_path / "b/manifest.json"
    ).read_bytes()
    (tmp_path / "a/train-00000.tfrecord").unlink()
    invoke("repair", tmp_path / "a", "--src", tmp_path / "table.csv")
    assert (tmp_path / "a/train-00000.tfrecord").read_bytes() == (
        tmp_path / "b/train-00000.tfrecord"
    ).read_bytes()


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        ("age < 3", 3),
        ('"Age" < 98', 2),
        ("Size = 7", 1),
        ("size = 7", 0),
        ("AGE < 3", "may be the column 'Age' or 'age'"),
        ("age < 3 or Age < 98", "differ only in case"),
    ],
)
def test_columns_whose_names_differ_only_in_case(invoke, image_folder, tmp_path, where, matches):
    lines = ["path,label,Size,Age,age"]
    for number, path in enumerate(sorted(image_folder.glob("*/*"))[:5]):
        lines.append(f"{path},a,{number + 5},{100 - number},{number}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    options = (
        "--src",
        tmp_path / "table.csv",
        "--where",
        where,
        "--out",
        tmp_path / "out",
        "--dry-run",
    )
    if isinstance(matches, str) or not matches:
        assert (matches or "matches none") in invoke("convert", *options, status=2).stderr
    else:
        assert f"{matches} of 5 images match" in invoke("convert", *options).stderr


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("labl = 'cat'", "did you mean 'label'"),
        ("width > 3", "not known before they are opened"),
        ("label =", "cannot be used"),
        ("size > (select 1)", "cannot contain a query"),
        ("label > 3", "cannot be used"),
        ("size < 0", "matches none of 14 images"),
        ("", "1 to"),
        ("1=1); drop table samples; --", "cannot be used"),
        ("size > (select count(*) from read_csv('/etc/passwd'))", "cannot contain a query"),
        ("size > 1; attach '/tmp/x' as x", "cannot be used"),
        ("size > 1) union (select 1", "cannot be used"),
        ("list_sum(range(1000000000)) > size", "it contains the function range"),
        ("generate_series(1, 1000000000) is not null", "it contains the function generate_series"),
        ("length(repeat(path, 100000000)) > 1", "it contains the function repeat"),
        (
            "length(replace(replace(path, '', path), '', path)) > 1",
            "it contains the function replace",
        ),
        ("length(lpad(path, 1000000000, 'x')) > 1", "it contains the function lpad"),
        ("len(list_transform([1], x -> x)) > 1", "cannot be used"),
        ("read_text('/etc/passwd') = ''", "it contains the function read_text"),
        ("getenv('HOME') = ''", "it contains the function getenv"),
        ("current_setting('threads') = '1'", "it contains the function current_setting"),
        ("row_number() over () < 5", "cannot contain a window expression"),
        ("random() < 0.1", "Hint: hash(COLUMN) % 10 = 0 takes a tenth"),
        ("current_timestamp > '2020-01-01'", "no column"),
        ("lenght(path) > 1", "did you mean 'length'"),
    ],
)
def test_filters_that_are_refused(where, message, invoke, image_folder, tmp_path):
    result = invoke(
        "convert", "--src", image_folder, "--out", tmp_path / "out", "--where", where, status=2
    )
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "where",
    [
        "label like 'c%' or label ~ '^d' or path not ilike '%x%' or path glob '*'",
        (
            "size / 2 + 1 >= 0 and -size < 1 and size % 7 != 9 and abs(size) ** 2 > 0 and"
            " round(size, -1) >= 0"
        ),
        (
            "lower(path) != upper('x') and path || 'x' != '' and starts_with(path, '') and"
            " contains(path, '')"
        ),
        "length(path) between 1 and 500 and label in ('cat', 'dog') or label is not null",
        "case when size > 0 then true else coalesce(label = 'x', false) end",
        (
            "try_cast(split_part(path, '.', 1) as integer) is null and if(true, nullif(size, 0) >"
            " 0, false)"
        ),
        "regexp_extract(path, '[0-9]+') != 'x' and split = 'train' and hash(path) % 2 in (0, 1)",
    ],
)
def test_what_filters_can_do(where, image_folder):
    assert len(filter_source(read(image_folder), where)) == 14


def test_without_duckdb(image_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(CallError, match=r"dataprep-loaders\[sql\]"):
        filter_source(read(image_folder), "size > 1")


def test_every_column_of_samples_is_filtered(image_folder):
    source = read(image_folder)
    part = filter_source(source, "size % 2 = 0")
    rows = [row for row, size in enumerate(source.size.tolist()) if size % 2 == 0]
    assert part.path.to_pylist() == [source.path[row].as_py() for row in rows]
    assert part.label.tolist() == source.label[rows].tolist()
    assert part.stamp.tolist() == source.stamp[rows].tolist()
    assert len(part) == len(rows)
    assert json.dumps(part.classes) == json.dumps(source.classes)


@pytest.mark.parametrize(
    "where",
    ["", "size >", "size > 'x'", "label", "read_csv('x')", "random() < 1", "(select 1) = 1"],
)
def test_errors_name_the_option_and_a_filter_that_works(where, invoke, image_folder, tmp_path):
    output = invoke(
        "convert", "--src", image_folder, "--where", where, "--out", tmp_path / "out", status=2
    ).stderr
    assert output.splitlines()[-1].startswith("dataprep: --where")
    if "for example" in output:
        example = output.split('for example "')[1].split('"')[0]
        invoke("convert", "--src", image_folder, "--where", example, "--out", tmp_path / "out")


def test_classes_that_are_left_out_are_counted(invoke, image_folder, tmp_path):
    where = "label = 'cat'"
    result = invoke(
        "convert", "--src", image_folder, "--where", where, "--out", tmp_path / "out", "--dry-run"
    )
    assert "note: --where: no image of 2 classes matches" in result.stderr


def test_a_column_with_a_reserved_name(invoke, image_folder, tmp_path):
    lines = [f"{path},cat,{number}" for number, path in enumerate(sorted(image_folder.glob("*/*")))]
    (tmp_path / "table.csv").write_text("\n".join(["path,label,height", *lines]) + "\n")
    call = (
        "convert",
        "--src",
        tmp_path / "table.csv",
        "--out",
        tmp_path / "out",
        "--dry-run",
        "--where",
    )
    output = invoke(*call, "Height > 9", status=2).stderr
    assert (
        "--where: the column 'Height' of the source is called 'column:height' in shards and"
        " filters. " in output
    )
    where = output.split("Hint: write ")[1].split(",")[0] + " > 9"
    assert "--where: 4 of 14 images match" in invoke(*call, where).stderr
