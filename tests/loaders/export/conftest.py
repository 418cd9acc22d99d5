"""Fixtures: a dataset of photographs."""

from pathlib import Path

import pytest
from helpers import handmade
from helpers.bad_images import exif
from helpers.pictures import encode, photo


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 12 images of different sizes, JPEG, PNG and WebP in turn, three of them turned, in one shard."""
    samples = []
    for number in range(12):
        kind = ("jpg", "png", "webp")[number % 3]
        options = {"exif": exif(6)} if number in (3, 7, 11) else {}
        picture = photo(number, 70 + 9 * number, 140 - 5 * number)
        samples.append((kind, encode(picture, kind, **options), number % 4))
    folder = tmp_path_factory.mktemp("export") / "photos"
    return handmade.make_dataset(folder, "tfrecord", samples, shards=1)
