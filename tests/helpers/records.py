"""A manifest, sample tables and their metadata, to change in tests."""

from __future__ import annotations

import dataclasses
import json

import pyarrow.parquet as pq
from awscrt.checksums import crc32c

from manifests.arrays import ArrayKind
from manifests.schema import Components, Conversion, File, Manifest, Shard, Split
from manifests.serialization import checksum_text
from manifests.tables import build_table

FILE = File("train-00000.tar", 1024, "crc32c:0123abcd")
MANIFEST = Manifest(
    creator="convert",
    format="webdataset",
    store="encoded",
    components=Components(("jpg", "png"), "cls"),
    classes=("cat", "häß lich", "日本"),
    splits=(
        Split(
            "train",
            (
                Shard(
                    FILE, 2, File("train-00000.idx", 9, None), File("train-00000.parquet", 8, None)
                ),
            ),
        ),
    ),
    rejected=File("rejected.jsonl", 3, "crc32c:00000000"),
    options={"seed": 0, "val_fraction": 0.1, "split_by": None},
)


def with_valid_checksum(body):
    """Serialize any JSON object as a manifest with a valid checksum."""

    def dump():
        return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode(
            "utf-8", "surrogatepass"
        )

    body.pop("checksum", None)
    body["checksum"] = checksum_text(crc32c(dump()))
    return dump()


EMBEDDING = ArrayKind("float32", 3)
_SHARD = dataclasses.replace(
    MANIFEST.shards[0],
    arrays=(File("train-00000.embedding.npy", EMBEDDING.file_bytes(2), "crc32c:00000001"),),
)
WITH_ARRAYS = dataclasses.replace(
    MANIFEST, splits=(Split("train", (_SHARD,)),), arrays={"embedding": EMBEDDING}
)
RAW = dataclasses.replace(MANIFEST, store="raw", pixels=(40, 30, 3))

METADATA = Conversion("x", 1, 2, 3, ("jpeg",), FILE, FILE, ())

ROWS = {
    "key": ["0", "1"], "label": [1, 0], "offset": [512, 2048], "size": [700, 3], "width": [4, 5],
    "height": [6, 7], "source": ["a.jpg", "日本.jpg"], "crc32c": [0, None],
}  # fmt: skip


def with_metadata(path, text):
    pq.write_table(build_table(ROWS).replace_schema_metadata({"dataprep": text}), path)
