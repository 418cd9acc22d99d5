"""DALI's readers return every image and label of a dataset as it was stored."""

import numpy as np
import nvidia.dali
import pytest
from helpers.datasets import FORMATS

from loaders.dali.readers import read_stored
from loaders.dataset.fields import Fields
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.ranks import Ranks

BATCH = 5
EACH_FORMAT = pytest.mark.parametrize("fmt", FORMATS)


def read_back(folder, shuffle=False, epochs=1):
    """Yield the encoded images and labels of each epoch, in the order of the reader."""
    split = open_split(folder, "train")
    fields = Fields(split, SampleTables(split), ("image", "label"))
    pipeline = nvidia.dali.Pipeline(batch_size=BATCH, num_threads=1, device_id=None, seed=3)
    with pipeline:
        records = read_stored(
            split, Ranks(), shuffle=shuffle, seed=3, shard_seed=3, started=0,
            with_label=fields.stored_label, with_source=fields.source,
        )  # fmt: skip
        pipeline.set_outputs(
            records.encoded, records.label if fields.stored_label else records.source
        )
    for _ in range(epochs):
        read = []
        while len(read) < split.samples:
            images, metadata = pipeline.run()
            array = np.asarray(metadata.as_tensor())
            given = (array, None) if fields.stored_label else (None, fields.rows(array))
            numbers = fields.values(*given)["label"]
            assert numbers.dtype == np.int64
            read += [(bytes(np.asarray(images[i])), int(numbers[i])) for i in range(BATCH)]
        yield read[: split.samples]


@EACH_FORMAT
@pytest.mark.parametrize("labels_in", ["records", "tables"])
def test_images_and_labels_are_read_bit_for_bit(make_dataset, mixed, fmt, labels_in):
    """Shuffled, every epoch has each sample once, in another order."""
    folder = make_dataset(fmt, mixed, labels_in=labels_in)
    (rows,) = read_back(folder)
    assert rows == [(data, label) for start in range(3) for _, data, label in mixed[start::3]]
    epochs = list(read_back(folder, shuffle=True, epochs=4))
    assert [sorted(each) for each in epochs] == [sorted(rows)] * 4
    assert len({tuple(label for _, label in each) for each in epochs}) == 4


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("tfrecord", {"label_offset": -1}),
        ("webdataset", {"label_offset": -1}),
        ("webdataset", {"label_texts": lambda label: b"%d\n" % label}),
    ],
)
def test_labels_that_are_stored_in_another_form(make_dataset, mixed, fmt, options):
    (rows,) = read_back(make_dataset(fmt, mixed, **options))
    assert sorted(label for _, label in rows) == list(range(23))


@EACH_FORMAT
@pytest.mark.parametrize("path", ["a:1:b", "../here//a:1:b"])
def test_labels_from_tables_whatever_the_path_of_the_folder(
    make_dataset, mixed, fmt, path, monkeypatch
):
    folder = make_dataset(fmt, mixed, labels_in="tables", name="a:1:b")
    link = folder.parent.parent / "here"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.parent)
    monkeypatch.chdir(folder.parent)
    (rows,) = read_back(path)
    assert sorted(label for _, label in rows) == list(range(23))
