"""Sources of `convert` that list images: list files, CSV, TSV and Parquet tables, and files of class names."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fuzz import mutate
from fuzz.checks import Case, command, is_complete, require, write_case
from fuzz.seeds import CLASSES, images, table
from fuzz.surfaces.table import CHANGES


class Lists:
    """A surface: one kind of list. All cases have the images too."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def make(self, rng: Random) -> Case:
        """Return images, a mutated list of them, perhaps a mutated file of class names, and the options."""
        name, data = {"list": _list, "csv": _csv, "parquet": _parquet}[self.kind](rng)
        options = ["--src", name]
        case = {**images(), name: data}
        if rng.random() < 0.2:
            text = mutate.mutate_text(rng, "".join(f"{each}\n" for each in CLASSES))
            case["classes.txt"] = text.encode("utf-8", "surrogatepass")
            options += ["--classes", "classes.txt"]
        if rng.random() < 0.15:
            options += ["--val-fraction", "0.3", "--split-by", "identity"]
        if rng.random() < 0.1:
            options += rng.choice(
                (
                    ["--label-column", "identity"],
                    ["--split-column", "weight"],
                    ["--fmt", "webdataset"],
                )
            )
        return {**case, "options": json.dumps(options).encode()}

    def check(self, case: Case, folder: Path) -> None:
        """Convert, and compare the samples with what other parsers read from the list."""
        src = write_case(
            {name: data for name, data in case.items() if name != "options"}, folder / "source"
        )
        options = [src / word if word in case else word for word in json.loads(case["options"])]
        out = folder / "out"
        converted = command("convert", *options, "--out", out, "--workers", 1, writable=[out])
        if converted.status == 2:
            require(not out.exists(), "exit status 2, but the output folder exists")
        if converted.status != 0 or not is_complete(converted):
            return
        command("verify", out, "--decode", "--workers", 1, writable=[], statuses=(0,))
        name = json.loads(case["options"])[1]
        label_column = "identity" if "--label-column" in options else "label"
        expected = {"list": _read_list, "csv": _read_csv, "parquet": _read_parquet}[self.kind](
            name, case[name], label_column
        )
        names = [Path(path).name for path, _ in expected]
        require(len(names) == len({*names}), f"an image is listed twice: {expected}")
        found = _samples(out)
        require(len(found) == len(expected), f"{len(found)} samples of {len(expected)} lines")
        expected.sort(key=lambda row: Path(row[0]).name)
        for (path, label), (source, number, name) in zip(expected, found, strict=True):
            require(Path(path).name == Path(source).name, f"another path: {path!r} and {source!r}")
            require(
                str(label) == name or int(label) == number,
                f"another label: {label!r}, but {number} {name!r}",
            )


def _samples(out: Path) -> list[tuple[str, int, str]]:
    """Return the source, the label and the class name of each sample, sorted by file name."""
    classes = json.loads((out / "manifest.json").read_bytes())["classes"]
    rows = [
        row
        for path in out.glob("*.parquet")
        for row in pq.read_table(path, use_threads=False).to_pylist()
    ]
    samples = ((row["source"], row["label"], classes[row["label"]]) for row in rows)
    return sorted(samples, key=lambda sample: Path(sample[0]).name)


# --- list files ---------------------------------------------------------------------------------


def _list(rng: Random) -> tuple[str, bytes]:
    numbers = rng.random() < 0.5
    lines = [
        [name, str(at % 3) if numbers else CLASSES[at % 3]] for at, name in enumerate(images())
    ]
    if rng.random() < 0.5:
        _vary(rng, lines)
        return "train_list.txt", "".join(_joined(rng, *line) for line in lines).encode(
            "utf-8", "surrogatepass"
        )
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
        return rng.choice(
            (b"x" * 10**6, b"x y " * 250_000, b"\n" * 10**6, b'"' * 10**6, b"a,b\n" * 250_000)
        )
    data = mutate.mutate_text(rng, text).encode("utf-8", "surrogatepass")
    if kind < 0.2:
        return mutate.mutate_bytes(rng, data)
    if kind < 0.3:
        return rng.choice(
            (
                b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), data.replace(b"\n", b"\r"),
                data.rstrip(),
            )
        )  # fmt: skip
    return data


def _read_list(name: str, data: bytes, label_column: str) -> list[tuple[str, str]]:
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
    writer = csv.writer(
        out, delimiter=delimiter, quoting=quoting, lineterminator=rng.choice(("\n", "\r\n"))
    )
    writer.writerows([row[at] for at in order] for row in (header, *rows))
    return "list.tsv" if delimiter == "\t" else "list.csv", out.getvalue().encode(
        "utf-8", "surrogatepass"
    )


def _read_csv(name: str, data: bytes, label_column: str) -> list[tuple[str, str]]:
    header = data.decode("utf-8-sig").splitlines()[0]
    usual = "\t" if name.endswith(".tsv") else ","
    delimiter = next((each for each in (usual, ",", "\t", ";", "|") if each in header), usual)
    rows = list(
        csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter)
    )
    for row in rows:
        require("\n" not in row["path"] + row[label_column], f"lines are merged: {row}")
    lines = [line for line in data.replace(b"\r", b"\n").split(b"\n") if line.strip()]
    if not any({"\n", "\r"} & {*str(value)} for row in rows for value in row.values()):
        require(len(lines) == len(rows) + 1, f"{len(lines)} lines, but {len(rows)} rows")
    return [(row["path"], row[label_column]) for row in rows]


def _parquet(rng: Random) -> tuple[str, bytes]:
    content = pyarrow.csv.read_csv(
        io.BytesIO(table().encode()), pyarrow.csv.ReadOptions(use_threads=False)
    )
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


SURFACES = {kind: Lists(kind) for kind in ("list", "csv", "parquet")}
