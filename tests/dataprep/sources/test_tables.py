"""Lists and tables of every kind: paths, columns, splits, several rows for an image, and forms."""

from __future__ import annotations

import json
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.examples import examples
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, read, refused, rows
from helpers.tables import LISTED, TABLES, write_table
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.sources import text_tables
from manifests.errors import SourceError

PATHS = ("0.jpg", "1.jpg", "2.jpg")
LABELS = ("a", "b", "a")


@pytest.fixture
def images(make_tree):
    return make_tree(dict.fromkeys(PATHS, "x"))


# --- lists ----------------------------------------------------------------------------------------


def test_image_root(make_tree, tmp_path):
    root = make_tree(["images/a/1.jpg"])
    (tmp_path / "absolute.jpg").write_bytes(b"xy")
    (tmp_path / "train.txt").write_text(f"a/1.jpg 0\n{tmp_path}/absolute.jpg 1\n")
    source = read(tmp_path / "train.txt", image_root=str(root / "images"))
    assert source.size.tolist() == [1, 2]
    assert refused(tmp_path / "train.txt", "--image-root").line == 1


# --- paths ----------------------------------------------------------------------------------------

FILES = ("a/1.jpg", "a/2.png", "b c/3.jpg")

#: How a list writes the paths of `FILES`.
WRITTEN = read_named(__file__, "paths", globals())


@pytest.mark.parametrize("kind", [*LISTED, "coco"])
def test_paths_are_read_as_files_that_exist(kind, make_tree):
    root = make_tree(dict.fromkeys(FILES, "x"))
    for name, paths in WRITTEN.items():
        if kind == "coco":
            pictures = [{"id": n, "file_name": path} for n, path in enumerate(paths)]
            file = {"images": pictures, "annotations": [], "categories": [{"id": 0, "name": "cat"}]}
            table = root / "table.json"
            table.write_text(json.dumps(file))
        else:
            table = write_table(root, kind, {"path": paths, "label": ("x", "y", "z")})
        source = read(table, image_root=str(root))
        assert source.path.to_pylist() == [*FILES], name
        assert source.size.tolist() == [1, 1, 1]
        changed = name not in ("as they are", "relative")
        assert has_notice(source, "not exist as written") == changed


#: The files, the path in the list, and what the error says.
NO_IMAGE = read_named(__file__, "no image")


@pytest.mark.parametrize("case", NO_IMAGE)
@pytest.mark.parametrize("kind", LISTED)
def test_a_path_that_cannot_be_read_is_refused_with_the_reason(case, kind, make_tree):
    files, path, message = NO_IMAGE[case]
    root = make_tree(files)
    error = refused(write_table(root, kind, {"path": [path], "label": ["x"]}), message)
    assert "Unicode" not in str(error)


def test_hints_about_paths_work(make_tree):
    """CheXpert's paths begin with the name of the folder that its table is in."""
    composed, decomposed = (unicodedata.normalize(form, "é.jpg") for form in ("NFC", "NFD"))
    table = {"small/t.csv": "path,label\nsmall/train/1.jpg,a\n", "l.txt": f"{composed} 0\n"}
    root = make_tree({"small/train/1.jpg": "x", decomposed: "x", **table})
    above = refused(root / "small/t.csv", "--image-root").hint.rpartition("--image-root ")[2]
    assert len(read(root / "small/t.csv", image_root=above)) == 1
    refused(root / "l.txt", "Unicode form NFD")


@pytest.mark.parametrize("kind", [".txt", ".csv"])
def test_a_path_and_its_absolute_twin_are_the_same_image(kind, make_tree):
    root = make_tree(["a/1.jpg", "a/2.jpg"])
    (root.parent / "link").symlink_to(root)
    columns = {"path": ["a/1.jpg", f"{root}/a/2.jpg"], "label": [0, 1]}
    assert read(write_table(root, kind, columns)).path.to_pylist() == columns["path"]
    for folder in (root, root.parent / "link"):
        columns = {"path": ["a/1.jpg", "a/2.jpg", folder / "a/1.jpg"], "label": [0, 1, 1]}
        message = r"line [34]: image '.*a/1\.jpg' is listed twice .*line [12]"
        refused(write_table(root, kind, columns), message)


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_given_column_names(kind, images):
    columns = {"where": PATHS, "what": [3, 0, 1], "fold": LABELS}
    unclear = write_table(images, kind, {**columns, "label": ["no"] * 3})
    refused(unclear, r"--path-column.*its columns are where, what, fold, label")
    options = {"path_column": "where", "label_column": "what"}
    table = write_table(images, kind, columns)
    source = read(table, **options, split_column="fold")
    found = [("a", "0.jpg", "3"), ("b", "1.jpg", "0"), ("a", "2.jpg", "1")]
    assert [row[:3] for row in rows(source)] == found
    message = r"--split-column absent: .* has no such column\. Hint: valid names are 'where', 'what', 'fold'"
    refused(table, message, **options, split_column="absent")


def test_dictionaries_of_parquet_are_names(images):
    """Pandas writes a categorical column like this."""
    columns = {"path": pa.array(PATHS), "label": pa.array(["b", "a", "b"]).dictionary_encode()}
    pq.write_table(pa.table(columns), images / "l.parquet")
    assert [row[2] for row in rows(read(images / "l.parquet"))] == ["b", "a", "b"]


# --- forms of text --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_an_index_is_left_out(kind, images):
    for name in ("", "Unnamed: 0"):
        for index in ((0, 1, 2), (5, 6, 7), ("", "", "")):
            columns = {name: index, "path": PATHS, "label": LABELS}
            source = read(write_table(images, kind, columns))
            assert [row[1:] for row in rows(source)] == [*zip(PATHS, LABELS, strict=True)]
            assert has_notice(source, "left out 1 column without a name")


@pytest.mark.parametrize(("name", "form"), read_rows(__file__, "forms"))
def test_forms_of_csv(name, form, images):
    for table in ("t.csv", "t.tsv"):
        (images / table).write_bytes(evaluate(form))
        assert [row[:3] for row in rows(read(images / table))] == [("train", "0.jpg", "a")], name


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".txt"])
def test_utf_16_is_named(kind, images):
    table = write_table(images, kind, {"path": PATHS, "label": LABELS})
    table.write_bytes(table.read_text().encode("utf-16"))
    refused(table, r"is text in UTF-16.*iconv -f UTF-16 -t UTF-8")
    # The hint works.
    table.write_bytes(table.read_bytes().decode("utf-16").encode())
    assert len(read(table)) == 3


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["all.jsonl", "all.NDJSON"])
def test_members_are_columns(name, images, monkeypatch):
    lines = [
        {"path": "0.jpg", "label": "cat", "split": "train", "age": 3, "weight": 1, "note": "é"},
        {"split": "val", "label": "dog", "path": "./1.jpg", "weight": 2.5, "big": True},
        {"label": "cat", "path": "2.jpg", "split": "train", "age": None, "weight": None},
    ]
    (images / name).write_text("\n\n".join(map(json.dumps, lines)))
    for batch in (text_tables._BATCH, 1):
        monkeypatch.setattr(text_tables, "_BATCH", batch)
        source = read(images / name)
        assert rows(source) == [
            ("train", "0.jpg", "cat", 3, 1.0, "é", None),
            ("val", "1.jpg", "dog", None, 2.5, None, True),
            ("train", "2.jpg", "cat", None, None, None, None),
        ]
        types = [pa.int64(), pa.float64(), pa.large_string(), pa.bool_()]
        assert source.extra.schema.types == types


GIVEN = dict(zip(PATHS, LABELS, strict=True))


def test_a_json_file_is_a_table_of_its_items(images):
    for value, extra in (
        ([{"file_name": path, "label": label} for path, label in GIVEN.items()], {}),
        (GIVEN, {}),
        ({path: {"label": label, "age": 3} for path, label in GIVEN.items()}, {"age": [3] * 3}),
    ):
        (images / "all.json").write_text(json.dumps(value, indent=1))
        source = read(images / "all.json")
        assert [row[1:3] for row in rows(source)] == [*GIVEN.items()]
        assert source.extra.to_pydict() == extra


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def containers(inner):
    return st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)


VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | st.text(), containers, max_leaves=12)
ITEMS, ARRAYS = st.lists(VALUES, max_size=4), ("images", "annotations")
OTHERS = {"info": ITEMS | containers(VALUES), "x": containers(VALUES)}
JSON_FILES = st.fixed_dictionaries({}, optional={**dict.fromkeys(ARRAYS, ITEMS), **OTHERS}).flatmap(
    lambda content: st.permutations([*content.items()]).map(dict)
)


@settings(max_examples=examples(60), deadline=None)
@given(JSON_FILES, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans(), st.data())
def test_large_json_files_are_read_as_python_reads_them(
    tmp_path_factory, content, size, indent, ascii_only, data
):
    """Wherever the reads of the file end; a damaged file is refused, or read as by Python."""
    path = tmp_path_factory.getbasetemp() / "file.json"

    def items(text):
        path.write_bytes(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_tables, "_READ", size)
            return list(text_tables.read_arrays(str(path), [*ARRAYS]))

    def parsed(text):
        found = []
        for name, values in json.loads(text.decode()).items():
            if name in ARRAYS:
                found += [(name, number, value) for number, value in enumerate(values)]
        return found

    text = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode()
    assert repr(items(text)) == repr(parsed(text))
    damaged = bytearray(text)
    damaged[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = items(bytes(damaged))
    except SourceError:
        return
    assert len(found) == len(parsed(bytes(damaged)))


# --- several rows for an image --------------------------------------------------------------------

TWICE = ("0.jpg", "0.jpg", "1.jpg", "2.jpg", "1.jpg")


@pytest.mark.parametrize("kind", TABLES)
def test_columns_with_several_values_for_an_image_are_left_out(kind, images):
    columns = {
        "path": TWICE,
        "label": ("a", "b", "a", "a", "b"),
        "split": ("train", "train", "val", "train", "val"),
        "rater": (1, 2, 1, 1, 2),
        "age": (7, 7, 8, 9, 8),
    }
    source = read(write_table(images, kind, columns), label_type="multi-label")
    assert source.extra["age"].to_pylist() == [7, 8, 9]
    assert [source.splits[split] for split in source.split] == ["train", "val", "train"]
    assert has_notice(source, "left out columns with several values for an image: rater")
    columns["split"] = ("train", "val", "val", "train", "val")
    message = r"'0.jpg' has split 'val' here, but 'train' in an earlier row"
    refused(write_table(images, kind, columns), message, label_type="multi-label")


# --- a box in each row ----------------------------------------------------------------------------

CORNERS = ((1, 2, 30, 40), (5, 6, 50, 60), (0, 0, 9, 9))
SIZES = ((1, 2, 29, 38), (5, 6, 45, 54), (0, 0, 9, 9))
NAMES = {
    ("xmin", "ymin", "xmax", "ymax"): CORNERS, ("XMin", "YMin", "XMax", "YMax"): CORNERS,
    ("x1", "y1", "x2", "y2"): CORNERS, ("x", "y", "w", "h"): SIZES,
    ("x", "y", "width", "height"): SIZES,
}  # fmt: skip


def box_table(images, kind, names, corners, **others):
    sides = dict(zip(names, zip(*corners, strict=True), strict=True))
    paths = {"filename": ("0.jpg", "0.jpg", "2.jpg"), "class": ("dog", "cat", "dog")}
    return write_table(images, kind, {**paths, **sides, **others})


@pytest.mark.parametrize("kind", TABLES)
def test_one_row_for_each_box(kind, images):
    others = {"camera": (3, 3, 4), "truncated": (0, 1, 0)}
    for names, corners in NAMES.items():
        source = read(box_table(images, kind, names, corners, **others))
        assert (source.label_type, source.classes) == ("boxes", ("cat", "dog"))
        extra = source.extra.to_pydict()
        assert extra["boxes"] == [[[1, 2, 30, 40], [5, 6, 50, 60]], [[0, 0, 9, 9]]]
        assert (extra["box_labels"], extra["camera"]) == ([[1, 0], [1]], [3, 4])
        assert source.path.to_pylist() == ["0.jpg", "2.jpg"]
        assert source.label_origin == f"columns {', '.join(names)}"
        assert "truncated" not in source.extra.column_names


@pytest.mark.parametrize("kind", TABLES)
def test_the_size_of_the_image_fractions_and_rows_without_a_box(kind, images):
    names, corners = next(iter(NAMES.items()))
    sizes = {"width": (96, 96, 64), "height": (72, 72, 48)}
    extra = read(box_table(images, kind, names, corners, **sizes)).extra
    assert extra["annotated_width"].to_pylist() == [96, 64]
    assert extra["annotated_height"].to_pylist() == [72, 48]
    parts = [[side / 64 for side in box] for box in corners]
    extra = read(box_table(images, kind, names, parts, **sizes)).extra
    assert extra["annotated_width"].to_pylist() == [1, 1]
    blank = "" if kind in (".csv", ".tsv") else None
    found = [*corners[:2], (blank,) * 4]
    source = read(box_table(images, kind, names, found))
    assert [len(boxes) for boxes in source.extra["boxes"].to_pylist()] == [2, 0]
    found[1] = (5, blank, 50, 60)
    refused(box_table(images, kind, names, found), "column 'ymin' is empty")
