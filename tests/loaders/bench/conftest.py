"""Fixtures: a dataset of photographs."""

from pathlib import Path

import pytest
from helpers import handmade
from helpers.pictures import encode, photo


@pytest.fixture(scope="package")
def photographs(tmp_path_factory) -> Path:
    """24 JPEGs of 480 x 360 in three classes, as TFRecord."""
    samples = [("jpg", encode(photo(number, 480, 360), "JPEG"), number % 3) for number in range(24)]
    folder = tmp_path_factory.mktemp("bench") / "photographs"
    return handmade.make_dataset(folder, "tfrecord", samples, shards=2)
