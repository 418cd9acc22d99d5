"""What identifies a split; `SampleTables` opens each sample table of a split once per build."""

import hashlib
import json

import pyarrow.parquet as pq
import pytest

import loaders
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from manifests.errors import TableError

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
    samples = [(extension, data, label % 2) for extension, data, label in mixed]
    return make_dataset("tfrecord", samples)


def test_a_build_opens_each_table_once(classes, python):
    fields = ["image", "label", "key", "index"]
    opens = count_opens(python, classes, pk=True, fields=fields, transforms=WHOLE_IMAGES)
    assert opens == {str(table): 1 for table in classes.glob("*.parquet")}
    assert len(opens) == 3


def test_labels_and_places_of_a_shard_are_read_together(classes, monkeypatch):
    read, shards = SampleTables._read_defined, []
    monkeypatch.setattr(
        SampleTables, "_read_defined", lambda *given: shards.append(given[1]) or read(*given)
    )
    options = {"transforms": "imagenet-train", "sampler": loaders.ShuffledSampler()}
    loaders.build(classes, batch_size=4, device="cpu", num_threads=1, **options).close()
    assert sorted(shards) == [0, 1, 2]


def test_a_build_that_needs_no_column_opens_no_table(classes, python):
    assert count_opens(python, classes, transforms="imagenet-train", shuffle=False) == {}


def test_the_fingerprint_is_that_of_the_text_of_all_files_and_is_computed_once(classes):
    """Checkpoints of earlier releases contain it."""
    split = open_split(classes, "train")
    text = repr([(shard.file, shard.index) for shard in split.shards])
    assert split.fingerprint == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert split.fingerprint is split.fingerprint


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
