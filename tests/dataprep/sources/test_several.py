"""Several images in a sample: columns of tables and of Parquet files, and groups of files."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.datasets import write_csv
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows

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


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "images of a sample"))
def test_images_of_a_sample(row, expected, make) -> None:
    names, rows, options = evaluate(row, globals())
    expected = evaluate(expected, globals())
    source = read_source(str(make(names, rows)), SourceOptions(**options))
    order = options.get("image_columns", "left,right").split(",")
    assert list(source.image_names) == order
    found = zip(
        source.path.to_pylist(), source.extra[f"{order[1]}_source"].to_pylist(), strict=True
    )
    assert [*map(list, found)] == expected
    assert any(f"in this order: {', '.join(order)}" in notice for notice in source.notices)


@pytest.mark.parametrize(
    ("row", "message"), read_rows(__file__, "what is no sample is refused by name")
)
def test_what_is_no_sample_is_refused_by_name(row, message, make) -> None:
    names, rows, options = evaluate(row, globals())
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
    stored = batch.table.select(["size", "right_size"]).to_pydict()
    assert stored["size"] == [len(PICTURES[number]) for number in (0, 1, 3)]
    assert stored["right_size"] == [len(PICTURES[1]), 0, len(PICTURES[0])]
    assert not verify_dataset(str(out), decode=True, workers=1).problems


def test_a_note_names_two_frames_of_one_number(make) -> None:
    names = [f"cat/{number}.jpg" for number in range(4)]
    rows = [(name, "cat", "run", frame) for name, frame in zip(names, (0, 1, 1, ""), strict=True)]
    source = read_source(str(make(names, rows, "path,label,clip,frame")))
    (note,) = (note for note in source.notices if "ClipSampler" in note)
    assert "clip 'run' has the frame number 1 twice" in note
    assert "1 frame in all repeats a number" in note
    assert note.endswith("cat/1.jpg, cat/2.jpg")
