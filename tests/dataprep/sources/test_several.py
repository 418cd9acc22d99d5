"""Several images in a sample: columns of tables and of Parquet files, and groups of files."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.datasets import write_csv
from helpers.pictures import encode, photo

from dataprep.options import Options, SourceOptions
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, SourceError
from manifests.store import read_dataset, read_manifest

PICTURES = [encode(photo(number, 24 + number, 20)) for number in range(4)]


@pytest.fixture
def make(tmp_path):
    """A function that writes files, of which some are rows of a table, and returns the source."""

    def make(names, rows=None, header="left,label,right"):
        for number, name in enumerate(names):
            path = tmp_path / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(PICTURES[number % 4])
        if rows is None:
            return tmp_path / "source"
        return write_csv(tmp_path / "source" / "list.csv", header, rows)

    return make


PAIR = ["cat/1_left.jpg", "cat/1_right.jpg"]
PATTERN, COLUMNS = {"pattern": "{key}_{image}"}, {"image_columns": "left,right"}
ROW = (PAIR[0], "cat", PAIR[1])
VALID = {"missing_images": "valid"}


@pytest.mark.parametrize(
    ("names", "rows", "options", "expected"),
    [
        (PAIR, None, PATTERN, [PAIR]),
        (PAIR, None, {**PATTERN, "image_columns": "right,left"}, [PAIR[::-1]]),
        (PAIR, None, {"pattern": "{class}/{key}_{image}.jpg"}, [PAIR]),
        (
            ["cat/a_b_left.jpg", "cat/a_b_right.jpg"],
            None,
            PATTERN,
            [["cat/a_b_left.jpg", "cat/a_b_right.jpg"]],
        ),
        (
            ["left/cat/1.jpg", "right/cat/1.jpg"],
            None,
            {"pattern": "{image}/{class}/{key}"},
            [["left/cat/1.jpg", "right/cat/1.jpg"]],
        ),
        (
            ["left/1.jpg", "right/1.jpg"],
            None,
            {"pattern": "{image}/{key}", "label_type": "none"},
            [["left/1.jpg", "right/1.jpg"]],
        ),
        ([*PAIR, "dog/1_left.jpg"], None, {**PATTERN, **VALID}, [PAIR, ["dog/1_left.jpg", None]]),
        (PAIR, [ROW], COLUMNS, [PAIR]),
        (PAIR, [ROW], {"image_columns": "right,left"}, [PAIR[::-1]]),
        (PAIR, [(PAIR[0], "cat", "")], {**COLUMNS, **VALID}, [[PAIR[0], None]]),
        (PAIR, [ROW], {**COLUMNS, "label_type": "none"}, [PAIR]),
    ],
)
def test_images_of_a_sample(names, rows, options, expected, make) -> None:
    source = read_source(str(make(names, rows)), SourceOptions(**options))
    order = options.get("image_columns", "left,right").split(",")
    assert list(source.image_names) == order
    found = zip(
        source.path.to_pylist(), source.extra[f"{order[1]}_source"].to_pylist(), strict=True
    )
    assert [*map(list, found)] == expected
    assert any(f"in this order: {', '.join(order)}" in notice for notice in source.notices)


@pytest.mark.parametrize(
    ("names", "rows", "options", "message"),
    [
        ([*PAIR, "cat/2_left.jpg"], None, PATTERN, "1 sample has no image right: 'cat/2_left.jpg'"),
        ([*PAIR, "cat/2_right.jpg"], None, {**PATTERN, **VALID}, "1 sample has no image left"),
        (["left/1.jpg", "right/1.jpg"], None, {"pattern": "{image}/{key}"}, "no part for the label"),
        (["cat/1_1.jpg", "cat/1_2.jpg"], None, PATTERN, "'1' is not a name of an image"),
        ([*PAIR, "cat/1_left.png"], None, PATTERN, "are both the image left of a sample"),
        (PAIR, None, {**PATTERN, **COLUMNS, "image_columns": "left,top"}, "is left, right"),
        (PAIR, [(PAIR[0], "cat", "")], COLUMNS, "the sample has no image right"),
        (PAIR, [(PAIR[0], "cat", "x.jpg")], COLUMNS, "image 'x.jpg' does not exist"),
        (PAIR, [ROW, ROW], COLUMNS, "is listed twice"),
        (PAIR, [ROW, (PAIR[0], "cat", PAIR[0])], COLUMNS, "line 3: .*1_left.jpg' has right .*known by"),
        (PAIR, [ROW], {"image_columns": "left,top"}, "--image-columns top: .* has no such column"),
        (PAIR, [ROW], {"image_columns": "left,original"}, "'original' is not a name of an image"),
        (PAIR, [ROW], {"image_columns": "left"}, "an image is named twice, or alone"),
        (PAIR, [ROW], {**COLUMNS, "path_column": "right"}, "name different columns"),
        (PAIR, [ROW], {"path_column": "left", **VALID}, "--missing-images is for samples with"),
        (PAIR, None, COLUMNS, "--image-columns does not apply to"),
        (PAIR, [(*ROW, 1)], {**COLUMNS, "label_column": "label"}, "has a column 'right_size'"),
    ],
)  # fmt: skip
def test_what_is_no_sample_is_refused_by_name(names, rows, options, message, make) -> None:
    header = "left,label,right,right_size" if "right_size" in message else "left,label,right"
    with pytest.raises((CallError, SourceError), match=message):
        read_source(str(make(names, rows, header)), SourceOptions(**options))


@pytest.mark.parametrize("is_struct", [False, True])
def test_columns_of_a_parquet_file(is_struct, tmp_path) -> None:
    """The bytes are in the file; what is damaged in one image rejects the sample, by name."""
    right = [PICTURES[1], None, PICTURES[3][:200], PICTURES[0]]
    columns = {"left": PICTURES, "right": right}
    if is_struct:
        for name, values in columns.items():
            columns[name] = [{"bytes": value, "path": None} for value in values]
    pq.write_table(pa.table({**columns, "label": [0, 1, 0, 1]}), tmp_path / "train.parquet")
    with pytest.raises(SourceError, match=r"1 sample has no image right: train.parquet/1"):
        read_source(str(tmp_path / "train.parquet"), SourceOptions(**COLUMNS))
    source = read_source(str(tmp_path / "train.parquet"), SourceOptions(**COLUMNS, **VALID))
    out = tmp_path / "out"
    convert_dataset(source, str(out), Options(shuffle=False, fmt="webdataset"), workers=1)
    assert read_manifest(out).images == ("left", "right")
    (rejected,) = map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    assert rejected["detail"].startswith("its right train.parquet/2/right: ")
    (batch,) = read_dataset(out)
    sizes = [(len(PICTURES[0]), len(PICTURES[1])), (len(PICTURES[1]), 0)]
    assert [*zip(*(batch.table[n].to_pylist() for n in ("size", "right_size")), strict=True)] == [
        *sizes,
        (len(PICTURES[3]), len(PICTURES[0])),
    ]
    assert not verify_dataset(str(out), decode=True, workers=1).problems


def test_a_note_names_two_frames_of_one_number(make) -> None:
    names = [f"cat/{number}.jpg" for number in range(4)]
    rows = [(name, "cat", "run", frame) for name, frame in zip(names, (0, 1, 1, ""), strict=True)]
    source = read_source(str(make(names, rows, "path,label,clip,frame")))
    (note,) = (note for note in source.notices if "ClipSampler" in note)
    assert "clip 'run' has the frame number 1 twice" in note
    assert "1 frame in all repeats a number" in note
    assert note.endswith("cat/1.jpg, cat/2.jpg")
