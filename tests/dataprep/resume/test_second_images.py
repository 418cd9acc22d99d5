"""A mask that was replaced between two runs is noticed, as a replaced image is."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from helpers import annotated
from PIL import Image

from dataprep.options import Downscale, Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from manifests.errors import CallError


@pytest.fixture(params=["mask", "depth", "voc"])
def source(request, tmp_path):
    """Return a source, its options, and one of its masks."""
    folder = tmp_path / "source"
    if request.param == "voc":
        annotated.make_voc(folder)
        return folder, {"label_type": "mask"}, folder / "SegmentationClass/2.png"
    annotated.make_pairs(folder, seconds=f"{request.param}s", kind=request.param)
    return folder, {}, folder / f"{request.param}s/2.png"


def read(folder, options):
    return read_source(str(folder), SourceOptions(**options))


def change(mask):
    """Replace a mask by one with other values, of the same kind."""
    with Image.open(mask) as opened:
        values, palette = np.array(opened), opened.getpalette()
    image = Image.fromarray(values[::-1].copy())
    if palette:
        image.putpalette(palette)
    image.save(mask)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_complete_dataset_of_other_masks_is_refused(source, tmp_path):
    folder, options, mask = source
    out, conversion = tmp_path / "out", Options(shard_samples=2)
    convert_dataset(read(folder, options), str(out), conversion, workers=1)
    change(mask)
    with pytest.raises(
        CallError, match=rf"image {mask.parent.name}/2.png of the source was replaced since"
    ):
        convert_dataset(read(folder, options), str(out), conversion, workers=1)
    convert_dataset(read(folder, options), str(out), conversion, overwrite=True, workers=1)
    convert_dataset(read(folder, options), str(tmp_path / "new"), conversion, workers=1)
    assert content(out) == content(tmp_path / "new")


def test_a_resumed_run_writes_shards_of_other_masks_again(source, tmp_path):
    folder, options, mask = source
    out, conversion = tmp_path / "out", Options(shard_samples=2)
    convert_dataset(read(folder, options), str(out), conversion, workers=1)
    (out / "manifest.json").unlink()  # as if the run had been killed
    change(mask)
    convert_dataset(read(folder, options), str(tmp_path / "new"), conversion, workers=1)
    result = convert_dataset(read(folder, options), str(out), conversion, workers=1)
    assert content(out) == content(tmp_path / "new")
    assert 0 < result.resumed < len([*out.glob("*.tfrecord")])


@pytest.mark.parametrize(
    "options", [Options(shard_samples=2), Options(downscale=Downscale(shorter=40))]
)
def test_a_copy_of_the_source_is_the_same(options, source, tmp_path):
    folder, chosen, mask = source
    out = tmp_path / "out"
    convert_dataset(read(folder, chosen), str(out), options, workers=1)
    before = content(out)
    shutil.copy(mask, tmp_path / "copy.png")
    os.replace(tmp_path / "copy.png", mask)
    if options.downscale:  # checksums are those of resized images
        with pytest.raises(CallError, match="may have been replaced"):
            convert_dataset(read(folder, chosen), str(out), options, workers=1)
    else:
        assert convert_dataset(read(folder, chosen), str(out), options, workers=1).resumed
    assert content(out) == before
