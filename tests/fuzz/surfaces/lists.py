"""Sources of `convert` that list images: list files, CSV, TSV and Parquet tables, and files of class names."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fuzz import mutate
from fuzz.checks import Case, require
from fuzz.seeds import CLASSES, images, table
from fuzz.sources import Made, Source
from fuzz.surfaces.datasets import CHANGES

#: Returns the name and the bytes of a mutated list.
MakeList = Callable[[Random], tuple[str, bytes]]
#: Returns the path and the label of each row, from the name, the bytes, and the column of labels.
ReadList = Callable[[str, bytes, str], list[tuple[str, object]]]

_ODD_OPTIONS = (
    ["--label-column", "identity"], ["--split-column", "weight"], ["--fmt", "webdataset"],
)  # fmt: skip


def _source(make_list: MakeList, read_list: ReadList) -> Source:
    def make(rng: Random) -> Case:
        """Return images, a list of them, perhaps a mutated file of class names, and the options."""
        name, data = make_list(rng)
        case, options = {**images(), name: data}, ["--src", name]
        if rng.random() < 0.2:
            text = mutate.mutate_text(rng, "".join(f"{each}\n" for each in CLASSES))
            case["classes.txt"] = text.encode("utf-8", "surrogatepass")
            options += ["--classes", "classes.txt"]
        if rng.random() < 0.15:
            options += ["--val-fraction", "0.3", "--split-by", "identity"]
        if rng.random() < 0.1:
            options += rng.choice(_ODD_OPTIONS)
        return {**case, "options": json.dumps(options).encode()}

    def oracle(case: Case, made: Made) -> None:
        """Compare the samples with what other parsers read from the list."""
        if not made.is_complete:
            return
        name = made.options[1]
        column = "identity" if "--label-column" in made.options else "label"
        expected = {Path(path).name: label for path, label in read_list(name, case[name], column)}
        count = len(read_list(name, case[name], column))
        require(count == len(expected) == len(made.rows), f"{len(made.rows)} of {count} lines")
        for row in made.rows:
            require(Path(row["source"]).name in expected, f"no line has the path of {row}")
            label, found = expected[Path(row["source"]).name], row.get("values")
            if "label" in row:
                found = row["label"]
                is_equal = str(label) == made.manifest["classes"][found] or int(str(label)) == found
            elif found is not None:
                is_equal = np.allclose([float(str(label))], found)
            else:
                is_equal = True
            require(is_equal, f"another label: {label!r}, but {row}")

    return Source(make, oracle, ways=[[]])


# --- list files ---------------------------------------------------------------------------------


def _list(rng: Random) -> tuple[str, bytes]:
    numbers = rng.random() < 0.5
    lines = []
    for at, name in enumerate(images()):
        lines.append([name, str(at % 3) if numbers else CLASSES[at % 3]])
    if rng.random() < 0.5:
        _vary(rng, lines)
        text = "".join(_joined(rng, *line) for line in lines)
        return "train_list.txt", text.encode("utf-8", "surrogatepass")
    return "train_list.txt", _odd_text(rng, "".join(f"{name} {label}\n" for name, label in lines))


def _joined(rng: Random, name: str, label: str) -> str:
    blank = rng.choice((" ", " ", " ", "\t", "  ", "\u00a0", "\u3000"))
    end = rng.choice(("\n", "\n", "\n", " \n", "\r\n", "\n\n"))
    return rng.choice(("", "", "", " ")) + f"{name}{blank}{label}{end}"


#: Labels, some of which are the same number or look like one.
_LABELS = (
    *("0", "1", "00", "+1", "1.0", "-1", "1e0", "\u0661", "01", "99999", "9999999", "1_0"),
    *("cat", "Cat", "c\u00e4t", "true", "nan"),
)


def _vary(rng: Random, rows: list[list[str]]) -> None:
    """Change labels, spell paths in another way, repeat, remove or shuffle rows: most lists stay valid."""
    for _ in range(rng.choice((1, 1, 2))):
        row = rng.choice(rows)
        kind = rng.randrange(5)
        if kind <= 1:
            label = rng.choice(_LABELS)
            for each in rows if kind == 0 else [row]:
                if each[1] == row[1]:
                    each[1] = label
        elif kind == 2:
            row[0] = rng.choice(("./", "x/../", ".//", "../source/")) + row[0]
        elif kind == 3:
            rng.shuffle(rows)
        elif rng.random() < 0.5 or len(rows) == 1:
            rows.append(list(row))
        else:
            rows.remove(row)


def _odd_text(rng: Random, text: str) -> bytes:
    kind = rng.random()
    if kind < 0.03:
        long = (b"x" * 10**6, b"x y " * 250_000, b"\n" * 10**6, b'"' * 10**6, b"a,b\n" * 250_000)
        return rng.choice(long)
    data = mutate.mutate_text(rng, text).encode("utf-8", "surrogatepass")
    if kind < 0.2:
        return mutate.mutate_bytes(rng, data)
    if kind < 0.3:
        ends = [data.replace(b"\n", end) for end in (b"\r\n", b"\r")]
        return rng.choice((b"\xef\xbb\xbf" + data, data.rstrip(), *ends))
    return data


def _read_list(name: str, data: bytes, label_column: str) -> list[tuple[str, object]]:
    lines = (line.split() for line in data.decode("utf-8-sig").split("\n"))
    return [(" ".join(words[:-1]), words[-1]) for words in lines if words]


# --- tables -------------------------------------------------------------------------------------


def _csv(rng: Random) -> tuple[str, bytes]:
    if rng.random() < 0.5:
        return _varied_csv(rng)
    if rng.random() < 0.5:
        return "list.csv", _odd_text(rng, table())
    return "list.tsv", _odd_text(rng, table().replace(",", "\t"))


def _varied_csv(rng: Random) -> tuple[str, bytes]:
    """Write the same table in another way, with odd values in the extra columns."""
    header, *rows = csv.reader(table().splitlines())
    _vary(rng, rows)
    for _ in range(rng.choice((0, 1, 3))):
        rng.choice(rows)[rng.choice((2, 3))] = mutate.odd_text(rng)[:500]
    order = rng.sample(range(4), 4) if rng.random() < 0.3 else range(4)
    out, delimiter = io.StringIO(), rng.choice((",", "\t", ";", "|"))
    quoting = rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    end = rng.choice(("\n", "\r\n"))
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=end)
    writer.writerows([row[at] for at in order] for row in (header, *rows))
    name = "list.tsv" if delimiter == "\t" else "list.csv"
    return name, out.getvalue().encode("utf-8", "surrogatepass")


def _read_csv(name: str, data: bytes, label_column: str) -> list[tuple[str, object]]:
    text = data.decode("utf-8-sig")
    usual = "\t" if name.endswith(".tsv") else ","
    found = [each for each in (usual, ",", "\t", ";", "|") if each in text.splitlines()[0]]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=[*found, usual][0])
    rows = list(reader)
    for row in rows:
        require("\n" not in row["path"] + row[label_column], f"lines are merged: {row}")
    lines = [line for line in data.replace(b"\r", b"\n").split(b"\n") if line.strip()]
    if not any({"\n", "\r"} & {*str(value)} for row in rows for value in row.values()):
        require(len(lines) == len(rows) + 1, f"{len(lines)} lines, but {len(rows)} rows")
    return [(row["path"], row[label_column]) for row in rows]


def _parquet(rng: Random) -> tuple[str, bytes]:
    options = pyarrow.csv.ReadOptions(use_threads=False)
    content = pyarrow.csv.read_csv(io.BytesIO(table().encode()), options)
    for _ in range(rng.choice((1, 1, 2))):
        content = rng.choice(CHANGES)(rng, content)
    out = io.BytesIO()
    pq.write_table(content, out)
    data = out.getvalue()
    return "list.parquet", mutate.mutate_bytes(rng, data) if rng.random() < 0.25 else data


def _read_parquet(name: str, data: bytes, label_column: str) -> list[tuple[str, object]]:
    content = pq.read_table(pa.BufferReader(data), use_threads=False)
    columns = (content.column(each).to_pylist() for each in ("path", label_column))
    return list(zip(*columns, strict=True))


SURFACES = {
    "list": _source(_list, _read_list), "csv": _source(_csv, _read_csv),
    "parquet": _source(_parquet, _read_parquet),
}  # fmt: skip
