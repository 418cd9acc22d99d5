"""DALI decodes every image that `convert_dataset` keeps of all damaged and unusual ones."""

from __future__ import annotations

import pytest
from helpers.bad_images import write_cases
from helpers.shards import decode_with_dali, stored_samples

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

FORMATS = ("tfrecord", "webdataset")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("corpus") / "images")


@pytest.mark.parametrize("fmt", FORMATS)
def test_dali_decodes_all_images_that_decode_validation_keeps(fmt, corpus, tmp_path):
    out = tmp_path / "out"
    convert_dataset(
        read_source(str(corpus)), str(out), Options(fmt=fmt, validate="decode"), workers=1
    )
    rows = [row for row, _ in stored_samples(out)]
    images = decode_with_dali(out)
    assert len(images) == len(rows)
    for row, image in zip(rows, images, strict=True):
        turned = row.source.endswith(("orientation 6.jpg", "orientation 8.jpg", "thumbnail.jpg"))
        height, width = (row.width, row.height) if turned else (row.height, row.width)
        assert image.shape == (height, width, 3), row.source
        assert image.std() > 1 or row.width == 1, row.source
