"""Sources whose images are in larger files: Hugging Face's Parquet, RecordIO, LMDB, zip, tar, and tar of tars."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from helpers.make_sources import MAKERS, Image, tar_of

from fuzz import mutate
from fuzz.checks import Case, read_folder, require
from fuzz.seeds import CLASSES, images
from fuzz.sources import Made, Source, each_row
from fuzz.surfaces.datasets import CHANGES


@cache
def _made(kind: str) -> Case:
    """Return the files of a small source of a kind of `make_sources.MAKERS`."""
    small = []
    for number, (name, data) in enumerate(images().items()):
        small.append(Image("val" if number % 4 == 3 else "train", name, number % 3, data))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "source")
        MAKERS[kind](folder, small)
        return read_folder(folder)


# --- Hugging Face -------------------------------------------------------------------------------


def _hugging_face(rng: Random) -> Case:
    case = dict(_made("hugging face"))
    name = rng.choice(sorted(case))
    if rng.random() < 0.3:
        return {**case, name: mutate.mutate_bytes(rng, case[name])}
    table = pq.read_table(pa.BufferReader(case[name]), use_threads=False)
    for _ in range(rng.choice((1, 1, 2))):
        table = rng.choice((*CHANGES, _odd_images, _odd_metadata))(rng, table)
    out = io.BytesIO()
    try:
        pq.write_table(table, out, row_group_size=rng.choice((1, 2, 100)))
    except pa.ArrowException:
        return case
    return {**case, name: out.getvalue()}


def _odd_images(rng: Random, table: pa.Table) -> pa.Table:
    if "image" not in table.column_names or not len(table):
        return table
    rows = table["image"].to_pylist()
    odd = (
        None, {"bytes": None, "path": "x.jpg"}, {"bytes": b"", "path": None},
        {"bytes": b"x" * 99, "path": "../x"},
    )  # fmt: skip
    rows[rng.randrange(len(rows))] = rng.choice(odd)
    names = rng.choice([("bytes", "path")] * 2 + [("bytes",), ("path",), ("data", "path")])
    values = []
    for row in rows:
        pairs = zip(names, ("bytes", "path"), strict=False)
        values.append(row and {new: row.get(old) for new, old in pairs})
    return table.set_column(table.column_names.index("image"), "image", pa.array(values))


def _odd_metadata(rng: Random, table: pa.Table) -> pa.Table:
    label = {"names": [*CLASSES], "_type": "ClassLabel"}
    metadata = {"info": {"features": {"image": {"_type": "Image"}, "label": label}}}
    changed = mutate.dump_json(mutate.mutate_json(rng, metadata))
    return table.replace_schema_metadata({"huggingface": changed})


def _check_hugging_face(case: Case, row: dict[str, Any], made: Made) -> None:
    name, _, number = row["source"].rpartition("/")
    table = pq.read_table(pa.BufferReader(case[name]), use_threads=False)
    require(int(number) < len(table), f"there is no row {number} in {name}")


# --- RecordIO and LMDB --------------------------------------------------------------------------


def _recordio(rng: Random) -> Case:
    case = dict(_made("recordio"))
    name = rng.choice(("train.rec", "train.rec", "train.rec", "train.lst", "train.idx", "val.rec"))
    if rng.random() < 0.15:
        del case[rng.choice(sorted(case))]
    if name not in case:
        return case
    if not name.endswith(".rec"):
        text = mutate.mutate_text(rng, case[name].decode())
        return {**case, name: text.encode("utf-8", "surrogatepass")}
    data, mark = bytearray(case[name]), struct.pack("<I", 0xCED7230A)
    heads = [at for at in range(0, len(data) - 8, 4) if data[at : at + 4] == mark]
    at = rng.choice(heads)
    if rng.random() < 0.6:  # a word of a header: length, flag, label, id
        words = (0, 1, 3, 1 << 29, 3 << 29, 7 << 29, 0x1FFFFFFF, 0xFFFFFFFF, rng.randrange(4000))
        value, place = rng.choice(words), at + 4 * rng.randrange(1, 8)
        data[place : place + 4] = struct.pack("<I", value)
    else:
        data = bytearray(mutate.mutate_bytes(rng, bytes(data)))
    return {**case, name: bytes(data)}


def _lmdb(rng: Random) -> Case:
    case = dict(_made(rng.choice(("lmdb of Caffe", "lmdb of LSUN"))))
    name = rng.choice(sorted(case))
    data = bytearray(case[name])
    if rng.random() < 0.7:  # a word of the header, or of the first bytes of a page
        page = 4096 * rng.randrange(max(1, len(data) // 4096))
        place = page + 2 * rng.randrange(80 if page else 100)
        value = rng.choice((0, 1, 2, 4, 8, 0x7FFF, 0x8000, 0xFFFF, rng.randrange(65536)))
        data[place : place + 2] = struct.pack("<H", value)
    if rng.random() < 0.4:
        data = bytearray(mutate.mutate_bytes(rng, bytes(data)))
    return {**case, name: bytes(data)}


def _check_container(case: Case, row: dict[str, Any], made: Made) -> None:
    containers = {name.partition("/")[0] for name in case}
    require(row["source"].partition("/")[0] in containers, f"no such file: {row}")
    count = len(made.manifest["classes"])
    require(0 <= row["label"] < count, f"the label {row['label']} is no class")


# --- archives -----------------------------------------------------------------------------------


def _archive(rng: Random) -> Case:
    kind = rng.choice(("zip", "tar", "tar of tars", "tar of tars", "imagenet"))
    case = dict(_made(kind))
    name = rng.choice(sorted(case))
    data = case[name]
    if kind == "tar of tars" and rng.random() < 0.6:
        data = _nested(rng)
    elif kind == "zip" and rng.random() < 0.6:
        data = _odd_zip(rng, data)
    else:
        data = mutate.mutate_bytes(rng, data)
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data) + 1)]
    case[name] = data
    if kind == "imagenet":
        return case
    return {**case, "options": json.dumps(["--src", name]).encode()}


def _nested(rng: Random) -> bytes:
    """Return a tar of tars in which one is cut, repeated, nested deeper, or something else."""
    inner = [
        (f"train/{each}.tar", tar_of([*images().items()][number::3]))
        for number, each in enumerate(CLASSES)
    ]
    at = rng.randrange(3)
    name, data = inner[at]
    names = (f"../{name}", "x.tar", "train/cat.tar", "train/.tar", "a.tar.gz", "train/cat")
    inner[at] = rng.choice(
        (
            (name, data[: rng.randrange(len(data))]),
            (name, tar_of([("deeper.tar", data)])),
            (name, mutate.mutate_bytes(rng, data)),
            (rng.choice(names), data),
            (name, b""),
            (name.replace(".tar", ".jpg"), data),
        )
    )
    return tar_of(inner)


def _odd_zip(rng: Random, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as given, zipfile.ZipFile(out, "w") as archive:
        for info in given.infolist():
            name = rng.choice(("../x.jpg", "/x.jpg", "a\\b.jpg", "x/" * 90))
            name = info.filename if rng.random() < 0.8 else name
            method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
            archive.writestr(name, given.read(info), method)
        if rng.random() < 0.2:
            archive.writestr("photos/train/cat/bomb.jpg", bytes(64 << 20), zipfile.ZIP_DEFLATED)
    result = bytearray(out.getvalue())
    if rng.random() < 0.6:
        signature = rng.choice((b"PK\3\4", b"PK\1\2", b"PK\5\6"))
        place = result.find(signature, rng.randrange(len(result)))
        if place >= 0:
            at = place + 4 + 2 * rng.randrange(20)
            result[at : at + 2] = struct.pack("<H", rng.choice((0, 1, 8, 99, 0x7FFF, 0xFFFF)))
    return bytes(result)


def _check_archive(case: Case, row: dict[str, Any], made: Made) -> None:
    _check_container(case, row, made)
    options = made.manifest["options"]
    if options.get("downscale") or options.get("raw") or row["size"] == 0:
        return
    sizes = _member_sizes(case[row["source"].partition("/")[0]])
    is_known = sizes is None or row["size"] in sizes
    require(is_known, f"no member has {row['size']} bytes: {row['source']}")


def _member_sizes(data: bytes) -> set[int] | None:
    """Return the sizes of all members, also in tars of a tar; `None` for a refused archive."""
    try:
        if data[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return {info.file_size for info in archive.infolist()}
        with tarfile.open(fileobj=io.BytesIO(data)) as outer:
            sizes = set()
            for member in outer:
                sizes.add(member.size)
                content = outer.extractfile(member)
                if member.name.endswith(".tar") and content is not None:
                    sizes |= _member_sizes(content.read()) or set()
            return sizes
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        ValueError,
        EOFError,
        OSError,
        NotImplementedError,
    ):
        return None


SURFACES = {
    "hugging-face": Source(_hugging_face, each_row(_check_hugging_face)),
    "recordio": Source(_recordio, each_row(_check_container)),
    "lmdb": Source(_lmdb, each_row(_check_container)),
    "archive": Source(_archive, each_row(_check_archive)),
}
