"""PPM, PGM and PBM: DALI decodes what is stored to the pixels that Pillow decodes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.pictures import encode, photo
from helpers.shards import decode_with_dali, stored_samples
from PIL import Image

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

PICTURES = {
    "color.ppm": photo(1),
    "gray.pgm": photo(2).convert("L"),
    "bitmap.pbm": photo(3).convert("1"),
}


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_pixels_are_the_pixels_of_pillow(fmt, tmp_path):
    folder = tmp_path / "photos" / "a"
    folder.mkdir(parents=True)
    for name, picture in PICTURES.items():
        (folder / name).write_bytes(encode(picture, "PPM"))
    options = Options(fmt=fmt, validate="decode")
    convert_dataset(read_source(str(folder.parent)), str(tmp_path / "out"), options, workers=1)
    rows = [row for row, _ in stored_samples(tmp_path / "out")]
    assert {row.source for row in rows} == {f"a/{name}" for name in PICTURES}
    for row, image in zip(rows, decode_with_dali(tmp_path / "out"), strict=True):
        stored = Image.open(io.BytesIO((folder.parent / row.source).read_bytes()))
        pixels = np.asarray(stored.convert("RGB"))
        assert np.array_equal(image, np.broadcast_to(pixels.reshape(48, 64, -1), image.shape))
