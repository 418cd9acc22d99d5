"""The field "valid" marks the samples that only fill up a batch."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest
from helpers import loading
from helpers.damaged import BAD, SAMPLES, make

import loaders
from loaders.dataset.fields import shadowed_columns

SIZE = [{"Resize": {"size": [16, 16]}}]


def build(folder, **options):
    return loading.build(folder, **{"fields": ("index", "valid"), "transforms": SIZE, **options})


@pytest.mark.parametrize(("split", "own"), [("val", 1), ("train", 13)])
def test_no_batch_is_empty(tmp_path, split, own):
    """40 samples on 3 ranks in batches of 13 leave one, which training leaves out."""
    folder = make(tmp_path / "data set", "tfrecord", rows=40, shards=2, split=split)
    options = {"split": split, "last_batch": "partial", "batch_size": 13, "world_size": 3}
    for order in ({"shuffle": False}, {"sampler": loaders.SequentialSampler()}):
        sizes, counts = [], Counter()
        for rank in range(3):
            with build(folder, rank=rank, **options, **order) as loader:
                batches = list(loader)
            for index, valid in batches:
                assert valid.shape == index.shape
                counts.update(index[valid].tolist())
            sizes.append(len(batches[-1][0]))
        assert sizes == [own] * 3
        assert counts.total() == len(counts) == (40 if split == "val" else 39)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": False}, 'get an empty batch. Hint: with fields=("image", "label", "valid")'),
        ({"shuffle": True}, "1 sample at the end of each epoch of split 'val' is left out"),
        ({"shuffle": "buffer"}, "1 sample at the end of each epoch of split 'val' is left out"),
    ],
)
def test_samples_that_are_fewer_than_the_ranks_are_announced(tmp_path, options, message):
    folder = make(tmp_path / "data set", "tfrecord", rows=40, shards=2, split="val")
    options = {"split": "val", "fields": ("index",), "batch_size": 13, **options}
    with pytest.warns(UserWarning, match=re.escape(message)):
        build(folder, rank=1, world_size=3, last_batch="partial", **options).close()


@pytest.mark.parametrize(
    ("on_error", "last_batch"), [("skip", "pad"), ("replace", "partial"), ("replace", "drop")]
)
def test_what_takes_the_place_of_a_bad_image_is_not_valid(prepared, on_error, last_batch):
    options = {"on_error": on_error, "last_batch": last_batch, "shuffle": False}
    fields = ("image", "index", "valid")
    with build(prepared["damaged tfrecord"], fields=fields, **options) as loader:
        for _ in range(2):
            counts = Counter()
            for _, index, valid in loader:
                counts.update(index[valid].tolist())
            assert set(counts.values()) == {1}
            assert not set(counts) & set(BAD)
            assert last_batch == "drop" or len(counts) == SAMPLES - len(BAD)


def test_a_column_of_the_same_name_is_reported():
    tables = SimpleNamespace(column_names=("key", "label", "valid"))
    (warning,) = shadowed_columns(tables, ("image", "valid"))
    message = 'the field "valid" is false for samples that fill up a batch, not the column "valid"'
    assert warning.startswith(message)
    assert shadowed_columns(tables, ("image", "index")) == []
