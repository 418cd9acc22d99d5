"""`SampleTables` opens each sample table of a split once per build."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loaders.dataset.split import open_split
from loaders.dataset.tables import NO_CHECKSUM, SampleTables
from manifests.errors import CallError, TableError

#: Builds a loader, and prints how often Python opened each sample table. Arrow opens no file: it
#: gets the bytes.
COUNT_OPENS = """
import collections, json, sys
opens = collections.Counter()
def count(event, arguments):
    if event == "open" and str(arguments[0]).endswith(".parquet"):
        opens[str(arguments[0])] += 1
sys.addaudithook(count)
import loaders
options = json.loads(sys.argv[2])
sampler = loaders.PKSampler(2, 2) if options.pop("pk", False) else None
loader = loaders.build(sys.argv[1], batch_size=4, device="cpu", num_threads=1, sampler=sampler, **options)
loader.explain()
next(iter(loader))
print(json.dumps(opens))
"""

#: Works on whole images, so that the image sizes are read on the CPU too.
WHOLE_IMAGES = [
    "RandomGrayscale",
    {"RandomRotation": {"degrees": 5, "prob": 0.5}},
    {"RandomResizedCrop": {"size": 32}},
]


def count_opens(python, folder, **options):
    done = python.run("-c", COUNT_OPENS, folder, json.dumps(options))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def classes(make_dataset, mixed):
    """Two classes, so that a PK sampler has several samples of each."""
    return make_dataset(
        "tfrecord", [(extension, data, row % 2) for row, (extension, data, _) in enumerate(mixed)]
    )


@pytest.mark.parametrize(
    "options",
    [
        {"pk": True, "fields": ["image", "label", "key"], "transforms": WHOLE_IMAGES},
        {"pk": True, "fields": ["image", "label", "key", "index"], "transforms": "imagenet-train"},
        {"fields": ["image", "label", "key", "index"], "transforms": WHOLE_IMAGES},
    ],
)
def test_a_build_opens_each_table_once(classes, options, python):
    opens = count_opens(python, classes, **options)
    assert opens == {str(table): 1 for table in classes.glob("*.parquet")}
    assert len(opens) == 3


def test_a_build_that_needs_no_column_opens_no_table(classes, python):
    assert count_opens(python, classes, transforms="imagenet-train", shuffle=False) == {}


def test_columns_are_cached(classes):
    tables = SampleTables(open_split(classes, "train"))
    first = tables.columns(["label", "offset"], requested_by="a test")
    second = tables.columns(["offset", "size"], requested_by="a test")
    assert first["offset"] is second["offset"]
    assert len(second["size"]) == 23


def test_a_column_that_does_not_exist(classes):
    tables = SampleTables(open_split(classes, "train"))
    with pytest.raises(
        CallError, match=r"a test uses 'labell', which is not a column .* did you mean 'label'\?"
    ):
        tables.columns(["labell"], requested_by="a test")


def test_missing_checksums_are_marked(classes):
    split = open_split(classes, "train")
    path = split.path(split.shards[0].table)
    table = pq.read_table(path)
    place = table.column_names.index("crc32c")
    pq.write_table(table.set_column(place, "crc32c", pa.nulls(table.num_rows, pa.uint32())), path)
    checksums = SampleTables(split).columns(["crc32c"], requested_by="a test")["crc32c"]
    assert checksums.dtype == np.uint32
    assert (checksums == NO_CHECKSUM).sum() == split.shards[0].samples


@pytest.mark.parametrize("damage", ["missing", "cut", "without widths"])
def test_image_sizes_of_damaged_tables_are_unknown(classes, damage):
    split = open_split(classes, "train")
    path = classes / split.shards[1].table.name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        pq.write_table(pq.read_table(path).drop_columns(["width"]), path)
    tables = SampleTables(split)
    assert tables.image_sizes() is None
    with pytest.raises(TableError) as caught:
        tables.columns(["label", "width"], requested_by="a test")
    assert caught.value.file == str(path)
