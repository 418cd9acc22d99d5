"""Columns of one name in several sources: merged and appended by one rule, or refused by name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from helpers.pictures import encode, photo
from helpers.tables import write_table

from manifests.store import read_dataset

LARGE = (1 << 53) + 1


#: The values of the column in two sources, and the values of both; `None` if they are refused.
PAIRS = {
    "integers and fractions": ([1, 2], [0.5, 1.5], [1.0, 2.0, 0.5, 1.5]),
    "large integers and fractions": ([LARGE, 2], [0.5, 1.5], None),
    "fractions and large integers": ([0.5, 1.5], [LARGE, 2], None),
    "values and nothing": ([1, 2], [None, None], [1, 2, None, None]),
    "nothing and values": ([None, None], [1, 2], [None, None, 1, 2]),
    "nothing and text": ([None, None], ["a", "b"], [None, None, "a", "b"]),
    "nothing and fractions": ([None, None], [0.5, 1.5], [None, None, 0.5, 1.5]),
    "nothing and nothing": ([None, None], [None, None], [None] * 4),
    "text and numbers": (["a", "b"], [1, 2], None),
    "codes and numbers": (["007", "010"], [1, 2], None),
    "booleans and numbers": ([True, False], [1, 2], None),
}


@pytest.fixture
def tables(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(encode(photo(number)))

    def write(kind, number, values):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        paths = [f"../{2 * number + row}.jpg" for row in range(2)]
        return write_table(folder, kind, {"path": paths, "label": ["cat", "dog"], "x": values})

    return write


def stored(out):
    rows = [row for batch in read_dataset(str(out)) for row in batch.table.to_pylist()]
    return [row["x"] for row in sorted(rows, key=lambda row: row["source"][-5:])]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_merge_and_append_follow_one_rule(kind, pair, tables, invoke, tmp_path):
    first, second, expected = PAIRS[pair]
    if kind == ".csv":
        first = ["" if value is None else value for value in first]
        second = ["" if value is None else value for value in second]
    a, b = tables(kind, 0, first), tables(kind, 1, second)
    status = 0 if expected else 2
    merged = ["convert", "--src", a, "--src", b, "--out", tmp_path / "merged"]
    invoke("convert", "--src", a, "--out", tmp_path / "appended")
    for arguments in (merged, ["convert", "--src", b, "--out", tmp_path / "appended", "--append"]):
        output = invoke(*arguments, status=status).output
        if not expected:
            assert "column x has the type" in output
            continue
        out = arguments[arguments.index("--out") + 1]
        assert stored(out) == expected
        if kind == ".csv":
            continue
        # The result can be a source again.
        again = tmp_path / f"{out.name}-again"
        invoke("convert", "--src", out, "--out", again, "--fmt", "webdataset")
        assert stored(again) == expected


def test_an_integer_that_a_record_cannot_have_is_refused(tables, convert, tmp_path):
    table = tables(".parquet", 0, pa.array([2**64 - 1, 0], pa.uint64()))
    convert(table, tmp_path / "webdataset", "--fmt", "webdataset")
    assert stored(tmp_path / "webdataset") == [2**64 - 1, 0]
    output = convert(table, tmp_path / "out", status=2).output
    assert "column x has the integer 18446744073709551615" in output
    assert not (tmp_path / "out").exists()
