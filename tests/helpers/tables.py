"""Write one table as every kind of table that is read."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: Kinds of tables with a header, by their suffixes.
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
#: All kinds: a list has a path and a label in each line.
LISTED = (*TABLES, ".txt")


def write_table(folder: Path, kind: str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write columns as a table; a list has the values of the first two, separated by a blank."""
    file = folder / f"table{kind}"
    rows = [*zip(*columns.values(), strict=True)]
    if kind == ".parquet":
        pq.write_table(pa.table({name: [*values] for name, values in columns.items()}), file)
    elif kind == ".jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        file.write_text("\n".join(lines) + "\n")
    elif kind == ".txt":
        file.write_text("".join(f"{path} {label}\n" for path, label, *_ in rows))
    else:
        with file.open("w", newline="") as opened:
            delimiter = "\t" if kind == ".tsv" else ","
            csv.writer(opened, delimiter=delimiter).writerows([[*columns], *rows])
    return file
