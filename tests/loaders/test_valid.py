"""The field "valid" marks the samples that only fill up a batch."""

import re

import pytest
from helpers import loading
from helpers.damaged import make

SIZE = [{"Resize": {"size": [16, 16]}}]


def build(folder, **options):
    return loading.build(folder, **{"fields": ("index", "valid"), "transforms": SIZE, **options})


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
