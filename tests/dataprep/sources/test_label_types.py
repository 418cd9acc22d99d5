"""What the labels of a source are: detected from its values, or set by an option."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.sources import has_notice, read

from manifests.errors import CallError, SourceError

N = 12


@pytest.fixture
def images(tmp_path):
    """A folder of files that are called like images; no image is opened."""
    for number in range(N):
        (tmp_path / f"{number}.jpg").write_bytes(b"x" * (number + 1))
    return tmp_path


def write_csv(folder, **columns):
    columns = {"path": [f"{number}.jpg" for number in range(N)], **columns}
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    (folder / "table.csv").write_text("\n".join(lines))
    return folder / "table.csv"


def write_parquet(folder, **columns):
    pq.write_table(
        pa.table({"path": [f"{number}.jpg" for number in range(N)], **columns}),
        folder / "table.parquet",
    )
    return folder / "table.parquet"


def write_jsonl(folder, **columns):
    rows = [
        {"path": f"{number}.jpg", **{name: values[number] for name, values in columns.items()}}
        for number in range(N)
    ]
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "table.jsonl"


TAGS = (["cat"], ["dog", "cat"], [], ["bird", "dog"]) * 3


@pytest.mark.parametrize("write", [write_parquet, write_jsonl])
def test_lists_of_names_are_several_classes(images, write):
    source = read(write(images, labels=TAGS))
    assert source.label_type == "multi-label"
    assert source.classes == ("bird", "cat", "dog")
    assert source.extra.to_pydict() == {"labels": [[1], [1, 2], [], [0, 2]] * 3}
    assert has_notice(source, "3 images without a class")


WRONG_LISTS = {
    "line 2: column 'labels' has a list with an item without a value": (
        [["cat"], ["dog", None]] + [["cat"]] * (N - 2)
    ),
    "column 'labels' has lists of list": [[[1]]] * N,
    "column 'labels' has the type list<element: bool>": [[True, False]] * N,
}


@pytest.mark.parametrize("message", WRONG_LISTS)
def test_lists_with_other_items_are_refused(images, message):
    for label_type in (None, "multi-label"):
        with pytest.raises(SourceError, match=message):
            read(write_parquet(images, labels=WRONG_LISTS[message]), label_type=label_type)


def test_lists_of_indices_and_multi_hot_lists(images):
    indices = [[0], [2, 0], [], [1]] * 3
    source = read(write_parquet(images, labels=indices), classes=("a", "b", "c", "d"))
    assert source.classes == ("a", "b", "c", "d")
    assert source.extra["labels"].to_pylist() == [[0], [0, 2], [], [1]] * 3
    hot = [[0, 1, 1], [0, 0, 0], [1, 0, 0]] * 4
    source = read(write_parquet(images, labels=hot))
    assert source.extra["labels"].to_pylist() == [[1, 2], [], [0]] * 4
    assert source.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("labels", "options", "classes"),
    [
        (["cat", "dog|cat", "bird | dog", ""] * 3, {}, ("bird", "cat", "dog")),
        (["cat", "dog;cat", "bird;dog", ""] * 3, {"label_separator": ";"}, ("bird", "cat", "dog")),
        (["0", "2 0", "1", "3"] * 3, {"label_separator": " "}, ("0", "1", "2", "3")),
    ],
)
def test_text_with_a_separator_is_several_classes(images, labels, options, classes):
    source = read(write_csv(images, label=labels), **options)
    assert source.label_type == "multi-label"
    assert source.classes == classes
    # The option wins.
    if not options:
        table = write_csv(images, label=[label or "none" for label in labels])
        assert read(table, label_type="class").classes == tuple(
            sorted({label or "none" for label in labels})
        )


def test_several_labels_in_a_cell_are_refused_with_both_readings(images):
    table = write_csv(images, label=["cat", "dog;cat", "dog", "bird"] * 3)
    with pytest.raises(SourceError, match="several labels in a cell, separated by ';': dog;cat"):
        read(table)
    assert read(table, label_separator=";").label_type == "multi-label"
    assert read(table, label_type="class").classes == ("bird", "cat", "dog", "dog;cat")
    commas = [
        f'"{name}"' for name in ("tench, Tinca tinca", "goldfish, Carassius auratus", "hen")
    ] * 4
    assert not has_notice(read(write_csv(images, label=commas)), "--label-separator")


def test_an_empty_class_is_an_error(images):
    with pytest.raises(SourceError, match=r"has an empty class between two '\|'") as caught:
        read(write_csv(images, label=["a|b", "a||b", *["a"] * 10]))
    assert caught.value.line == 3


@pytest.mark.parametrize("write", [write_csv, write_parquet, write_jsonl])
def test_fractions_are_a_regression(images, write):
    values = [number / 4 for number in range(N)]
    source = read(write(images, label=values))
    assert (source.label_type, source.classes) == ("regression", ())
    assert source.extra["values"].to_pylist() == [[value] for value in values]
    assert source.extra["values"].type.value_type == pa.float32()


def test_ages_are_not_classes(images):
    """60 ages must not become 60 classes without a word."""
    ages = [18 + 5 * number for number in range(N)]
    by_name = read(write_csv(images, age=ages), label_column="age")
    assert (by_name.label_type, by_name.classes) == ("regression", ())
    assert by_name.label_origin == "column age, 18 to 73"
    by_option = read(write_csv(images, label=ages), label_type="regression")
    assert by_option.extra["values"].to_pylist() == [[float(age)] for age in ages]
    unclear = read(write_csv(images, label=ages))
    assert unclear.label_type == "class"
    assert has_notice(unclear, "are taken as classes", "--label-type regression")
    assert has_notice(unclear, "each of the 12 images has a class of its own")
    for number, age in enumerate(ages):
        (images / f"{number}.jpg").rename(images / f"{age}_{number}.jpg")
    from_names = read(images, pattern="{age}_*", label_column="age")
    assert from_names.label_type == "regression"
    assert sorted(from_names.extra["values"].to_pylist()) == [[float(age)] for age in ages]


@pytest.mark.parametrize("column", ["label", "score", "caption"])
def test_labels_with_class_names_are_classes(images, column):
    names = ("1.5", "2.5", "3.5") if column == "label" else ("1", "2", "3")
    source = read(write_csv(images, **{column: [*names] * 4}), classes=names)
    assert (source.label_type, source.classes) == ("class", names)
    assert source.label.tolist() == [0, 1, 2] * 4


def test_integers_with_a_decimal_point_may_be_classes(images):
    notice = "the numbers in column label are integers; if they are classes, set --label-type class"
    assert has_notice(read(write_csv(images, label=[0.0, 1.0, 2.0] * 4)), notice)
    assert not has_notice(read(write_csv(images, label=[0.0, 1.0, 2.5] * 4)), notice)
    source = read(write_csv(images, label=[0.0, 1.0, 2.0] * 4), label_type="class")
    assert (source.label_type, source.classes) == ("class", ("0.0", "1.0", "2.0"))


def test_several_numbers(images):
    pairs = [[number / 3, -number] for number in range(N)]
    source = read(write_parquet(images, values=pairs))
    np.testing.assert_array_equal(source.extra["values"].to_pylist(), np.float32(pairs))
    x, y = zip(*pairs, strict=True)
    same = read(write_csv(images, x=x, y=y), label_column="x,y")
    assert same.extra["values"].to_pylist() == source.extra["values"].to_pylist()
    text = read(write_csv(images, at=[f"{a} {b}" for a, b in pairs]), label_column="at", label_type="regression",
                label_separator=" ")  # fmt: skip
    assert text.extra["values"].to_pylist() == source.extra["values"].to_pylist()


@pytest.mark.parametrize("zero", [0, -1, 0.0, "false", "False"])
def test_columns_of_zeros_and_ones_are_classes(zero, images):
    one = {"false": "true", "False": "True"}.get(zero, type(zero)(1))
    columns = {"cat": [zero, one, one] * 4, "dog": [one, zero, one] * 4}
    source = read(write_csv(images, **columns), label_column="cat,dog")
    assert (source.label_type, source.classes) == ("multi-label", ("cat", "dog"))
    assert source.extra["labels"].to_pylist() == [[1], [0], [0, 1]] * 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0]] * 11 + [[1.0]], "has 1 value in a row, but 2 in the first one"),
        ([[1.0]] * 11 + [[float("inf")]], "contains inf, which is not a finite number"),
        ([[1.0]] * 11 + [[None]], "has a list with an item without a value"),
        ([[1.0]] * 11 + [[1e39]], "contains inf"),
    ],
)
def test_wrong_numbers_are_named_with_their_row(images, values, message):
    with pytest.raises(SourceError, match=f"column 'values' {message}") as caught:
        read(write_parquet(images, values=values))
    assert caught.value.line == 12


def test_text_that_is_no_number(images):
    with pytest.raises(
        SourceError, match="column 'label' contains 'old', which is not a number"
    ) as caught:
        read(write_csv(images, label=["1.5", "old", *["2.5"] * 10]), label_type="regression")
    assert caught.value.line == 3


def test_captions(images):
    texts = [f"a photo of number {number}" for number in range(N)]
    source = read(write_csv(images, caption=texts))
    assert (source.label_type, source.extra.to_pydict()) == ("caption", {"caption": texts})
    assert read(write_csv(images, label=texts), label_type="caption").extra.to_pydict() == {
        "caption": texts
    }
    assert has_notice(
        read(write_csv(images, label=texts)), "--label-type regression, caption or none"
    )


def test_without_labels(images):
    columns = {"label": ["x"] * N, "camera": list(range(N))}
    source = read(write_csv(images, **columns), label_type="none")
    assert (source.label_type, source.classes) == ("none", ())
    assert source.extra.to_pydict() == {"column:label": ["x"] * N, "camera": list(range(N))}
    (images / "list.txt").write_text("".join(f"{number}.jpg\n" for number in range(N)))
    assert len(read(images / "list.txt", label_type="none")) == N
    for name in ("table.csv", "list.txt"):
        (images / name).unlink()
    flat = read(images, label_type="none")
    assert (len(flat), flat.splits, flat.label_type) == (N, ("train",), "none")
    with pytest.raises(SourceError, match="no class folders"):
        read(images)
    for split in ("train", "val"):
        (images / split / "deep").mkdir(parents=True)
    for number in range(N):
        (images / f"{number}.jpg").rename(
            images / ("train/deep", "val")[number % 2] / f"{number}.jpg"
        )
    splits = read(images, label_type="none")
    assert (splits.splits, np.bincount(splits.split).tolist()) == (("train", "val"), [6, 6])


def test_reserved_names_are_kept_under_a_prefix(images):
    source = read(
        write_csv(
            images, identity=list(range(N)), label=["a"] * N, index=list(range(N)), offset=[7] * N
        ),
        label_column="identity",
    )
    assert source.extra.column_names == ["identity", "column:label", "index", "column:offset"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"label_type": "boxes"},
            "--label-type boxes needs a source with such labels, but .* is a table",
        ),
        (
            {"label_type": "depth", "label_column": "number"},
            "needs a source with such labels, but .* is a table",
        ),
        ({"label_type": "caption", "label_column": "number"}, "captions are text"),
        ({"label_column": "x,number"}, "--label-column x,number: .* no such column"),
        (
            {"label_type": "multi-label", "label_column": "fraction"},
            "numbers with fractions, not classes",
        ),
    ],
)
def test_a_type_that_does_not_fit_is_refused(images, options, message):
    table = write_parquet(images, label=["a"] * N, number=list(range(N)), fraction=[0.5] * N)
    with pytest.raises((CallError, SourceError), match=message):
        read(table, **options)


def test_mixed_types_in_a_column(images):
    labels = [["cat"], "dog", *[["cat"]] * 10]
    with pytest.raises(SourceError, match="member 'labels' is text, but a list in line 1"):
        read(write_jsonl(images, labels=labels))
    with pytest.raises(
        SourceError, match="member 'labels' is a list of other values than text or numbers"
    ):
        read(write_jsonl(images, labels=[["cat", 1], *[["cat"]] * 11]))
    mixed = write_csv(images, label=["1.5", "cat", *["2.5"] * 10])
    with pytest.raises(
        SourceError,
        match=r"line 3: column label: 11 of 12 labels are numbers, but cat is not. Hint",
    ):
        read(mixed)
    assert has_notice(
        read(mixed, label_type="class"), "but cat is not, so all are taken as names of classes"
    )
    assert len(read(write_csv(images, label=["7", *["cat"] * 11])).classes) == 2


def test_one_number_for_each_image_or_none_is_multi_label_if_it_is_chosen(images):
    source = read(write_parquet(images, label=[1, None, 0] * 4), label_type="multi-label")
    assert source.extra["labels"].to_pylist() == [[1], [], [0]] * 4
    assert has_notice(source, "4 images without a class")
    source = read(write_parquet(images, label=[1, None, 2] * 4), label_separator="|")
    assert source.extra["labels"].to_pylist() == [[1], [], [2]] * 4


def test_a_separator_without_effect_is_mentioned(image_folder, images):
    assert has_notice(
        read(image_folder, label_separator=","),
        "--label-separator has no effect: ",
        "the type class",
    )
    table = write_csv(images, label=["a-b"] * N)
    assert not has_notice(read(table, label_separator="-"), "has no effect")
