"""Images whose pixels are not 8-bit gray or RGB: no command takes them for such."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.make_sources import tar_of
from helpers.pictures import encode, photo

from dataprep.images.validate import check_image
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

KIND = ("--channels", 3, "--dtype", "uint8")
GRAY = np.asarray(photo(1).convert("L"))

#: Encoded images, each with what it is.
OTHERS = {
    "deep.png": (encode(GRAY.astype(np.uint16) * 257, "PNG"), "PNG with 1 channel of uint16"),
    "deep.tif": (encode(GRAY.astype(np.uint16) * 257, "TIFF"), "TIFF with 1 channel of uint16"),
    "four.tif": (encode(photo(1).convert("RGBX"), "TIFF"), "TIFF with 4 channels of uint8"),
    "deep.pgm": (encode(GRAY.astype(np.uint16) * 257, "PPM"), "PPM with 1 channel of uint16"),
}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "photos" / "a"
    folder.mkdir(parents=True)
    (folder / "plain.png").write_bytes(encode(photo(2), "PNG"))
    for name, (data, _) in OTHERS.items():
        (folder / name).write_bytes(data)
    return folder.parent


@pytest.mark.parametrize("change", [(), ("--resize-shorter", 16), ("--store", "raw")])
def test_convert_refuses_them_by_name(source, tmp_path, convert, change):
    convert(source, tmp_path / "out", *KIND, *change, status=1)
    rejected = (tmp_path / "out" / "rejected.jsonl").read_text()
    assert rejected.count("unsupported") == len(OTHERS)
    assert all(what in rejected for _, what in OTHERS.values())


@pytest.mark.parametrize("validate", ["none", "decode"])
def test_index_refuses_them_by_name(tmp_path, invoke, validate):
    members = []
    for number, (data, _) in enumerate([*OTHERS.values(), (encode(photo(2), "PNG"), "")]):
        members += [(f"{number}.png", data), (f"{number}.cls", b"0")]
    (tmp_path / "train-0.tar").write_bytes(tar_of(members))
    invoke("index", tmp_path, "--image", "png", "--validate", validate, status=1)
    rejected = (tmp_path / "rejected.jsonl").read_text()
    assert all(what in rejected for _, what in OTHERS.values())


def test_verify_finds_them(source, tmp_path, invoke, monkeypatch):
    """An earlier release wrote them."""
    with monkeypatch.context() as patch:
        patch.setattr("dataprep.images.validate.check_pixel_kind", lambda *_: None)
        convert_dataset(read_source(str(source)), str(tmp_path / "out"), Options(), workers=1)
    for decode in ((), ("--decode",)):
        found = invoke("verify", tmp_path / "out", *decode, "--workers", 1, status=1).stdout
        assert all(what in found for name, (_, what) in OTHERS.items() if not name.endswith(".pgm"))


def test_a_picture_with_alpha_is_rgb():
    for kind, mode in (("TIFF", "RGBA"), ("PNG", "RGBA"), ("PNG", "LA"), ("TIFF", "P")):
        assert check_image(encode(photo(3).convert(mode), kind)).pixels == (3, "uint8")
