"""Crops that torchvision refuses for an image that is too small are refused when a loader is built."""

import re

import pytest
from helpers.bad_images import exif
from helpers.handmade import make_dataset
from helpers.loading import build
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows

from manifests.errors import CallError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The last image has 60 rows, and one of 100 x 60 pixels is turned to 60 x 100."""
    pictures = [encode(photo(0, 120, 90)), encode(photo(5, 100, 60), exif=exif(6))]
    pictures.append(encode(photo(6, 200, 60)))
    folder = tmp_path_factory.mktemp("fit") / "set"
    return make_dataset(folder, "tfrecord", [("jpg", each, 0) for each in pictures], shards=1)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_an_image_that_is_too_small_is_refused(folder, row, message):
    transforms = evaluate(row)
    with pytest.raises(CallError, match=re.escape(message)):
        build(folder, batch_size=2, transforms=transforms)
    with pytest.raises(CallError, match=re.escape(message)):
        build(
            folder, batch_size=2, transforms=[], views=[[{"CenterCrop": {"size": 60}}], transforms]
        )


@pytest.mark.parametrize(("row", "side"), read_rows(__file__, "other crops are accepted"))
def test_other_crops_are_accepted(folder, row, side):
    with build(folder, batch_size=2, transforms=evaluate(row)) as loader:
        assert next(iter(loader))[0].shape[-1] == int(side)
