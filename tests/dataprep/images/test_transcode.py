"""`--transcode`: formats that DALI does not decode become images of another format, with the pixels of their decoder."""

from __future__ import annotations

import io
import signal
import struct
from contextlib import suppress

import numpy as np
import pytest
from helpers.bad_images import exif
from helpers.color_profiles import exchanged
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows
from helpers.shards import decode_with_dali, stored_samples
from PIL import Image

from dataprep.images import decoders
from dataprep.images.base import Rejected
from dataprep.images.downscale import prepare
from dataprep.images.isolated import ISOLATED, Limits
from dataprep.options import Downscale, Options, Raw
from manifests.store import read_manifest

pillow_heif = pytest.importorskip("pillow_heif")
pytest.importorskip("pillow_jxl")
pillow_heif.register_heif_opener()

PNG = Options(transcode="png")
PICTURE = photo(3, 120, 90)
LOSSLESS = {
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    "HEIF": {"quality": -1},
    "JXL": {"lossless": True},
    "GIF": {},
}
FRAMES = {"save_all": True, "append_images": [photo(8, 120, 90)]}


def encoded(kind: str, image: Image.Image = PICTURE, **options: object) -> bytes:
    return encode(image, kind, **{**LOSSLESS[kind], **options})


def pixels_of(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), int)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_pixels_are_the_pixels_of_the_decoder(kind):
    data = encoded(kind)
    stored = prepare(data, PNG)
    assert np.array_equal(pixels_of(stored.data), pixels_of(data))
    assert [*stored.extra.values()][:3] == [120, 90, kind.lower()]
    assert stored.extra["change"] == ("transcoded rgb" if kind == "GIF" else "transcoded")
    # As stable as the decoder: resumed runs and appends compare bytes.
    assert prepare(data, PNG) == stored
    if kind in ("GIF", "AVIF"):  # the first frame of several
        data = encoded(kind, **FRAMES)
        stored = prepare(data, PNG)
        assert "frame" in stored.extra["change"].split()
        assert np.array_equal(pixels_of(stored.data), pixels_of(data))


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_orientation_and_color_profile_are_applied_once_and_dropped(kind):
    stored = prepare(encoded(kind, exif=exif(6)), PNG)
    upright = np.asarray(PICTURE.transpose(Image.Transpose.ROTATE_270), int)
    assert np.abs(pixels_of(stored.data) - upright).mean() < 5
    assert stored.extra == {
        "original_width": 90,
        "original_height": 120,
        "original_format": kind.lower(),
        "change": "transcoded turned" if kind == "AVIF" else "transcoded",
    }
    assert not Image.open(io.BytesIO(stored.data)).info
    stored = prepare(encoded(kind, icc_profile=exchanged(b"r", b"b")), PNG)
    assert "icc" in stored.extra["change"].split()
    assert np.abs(pixels_of(stored.data)[..., ::-1] - np.asarray(PICTURE, int)).mean() < 6


def test_colors_without_a_profile_that_are_not_srgb_are_refused():
    data = encoded("AVIF", PICTURE.resize((16, 16)))
    at = data.index(b"colrnclx") + 8
    for colors, reason in (((9, 16), r"high dynamic range \(PQ\)"), ((12, 13), "primaries 12")):
        with pytest.raises(Rejected, match=f"unsupported: .*{reason}"):
            prepare(data[:at] + struct.pack(">HH", *colors) + data[at + 4 :], PNG)


@pytest.mark.parametrize(("row", "change"), read_rows(__file__, "it composes with other options"))
def test_it_composes_with_other_options(row, change):
    options, form, size = evaluate(row, globals(), {"Raw": Raw, "Downscale": Downscale})
    data = encoded("AVIF")
    stored = prepare(data, options)
    assert (stored.info.format, stored.info.width, stored.info.height) == (form, *size)
    assert stored.extra["change"] == change
    if form in ("jpeg", "webp") and size == (120, 90):
        assert np.abs(pixels_of(stored.data) - pixels_of(data)).mean() < 4


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("dataprep.images.transcode.find_spec", lambda _: None)
    message = r"HEIC needs pillow_heif; .*pip install 'dataprep-loaders\[heic\]'"
    with pytest.raises(Rejected, match=message):
        prepare(encoded("HEIF"), PNG)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_damaged_and_large_images_are_rejected(kind):
    data = encoded(kind)
    for damaged in (data[:40], data[: len(data) // 2]):
        with suppress(Rejected):
            prepare(damaged, PNG)
    with pytest.raises(Rejected, match="too-large: 120x90 pixels, but the limit is 9999"):
        prepare(data, Options(transcode="png", max_pixels=9999))
    # The next image decodes.
    assert prepare(data, PNG).info.width == 120


def test_a_decoder_that_crashes_or_works_too_long_costs_one_image():
    data = encoded("AVIF", Image.new("RGB", (3000, 3000)), speed=10)
    flat = encoded("GIF", Image.new("L", (9000, 9000)))
    with pytest.raises(Rejected, match="too-large: decoding it takes more than 16 MiB of memory"):
        ISOLATED.call("decode", flat, {"kind": "gif"}, Limits(16 << 20, 60))
    measure = ("measure", data, {"kind": "avif"}, Limits(1 << 30, 60))
    ISOLATED.call(*measure)
    ISOLATED._process.send_signal(signal.SIGSEGV)
    with pytest.raises(Rejected, match="corrupt: the decoder crashed with SIGSEGV"):
        ISOLATED.call(*measure)
    assert ISOLATED.call(*measure)[0]["width"] == 3000


@pytest.mark.parametrize("size", [(8, 8), (264, 256), (300, 7), (70_000, 1), (1, 2000)])
def test_the_header_of_a_jpeg_xl(size):
    data = encoded("JXL", Image.new("L", size))
    assert [*decoders.measure(data, "jxl")[0].values()][:2] == [*size]


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_a_dataset_that_dali_decodes(fmt, convert, tmp_path):
    folder, out = tmp_path / "images", tmp_path / "out"
    (folder / "a").mkdir(parents=True)
    for kind in LOSSLESS:
        (folder / "a" / f"{kind}.{kind.lower()}").write_bytes(encoded(kind))
    (folder / "a/plain.png").write_bytes(plain := encode(PICTURE, "PNG"))
    convert(folder, out, "--fmt", fmt, "--transcode", "png")
    rows = [*stored_samples(out)]
    assert len(rows) == 5
    for (row, stored), image in zip(rows, decode_with_dali(out), strict=True):
        assert np.array_equal(image, pixels_of((folder / row.source).read_bytes()))
        assert row.source != "a/plain.png" or stored == plain
    options = read_manifest(out).options
    assert options["transcode"] == "png"
    assert {"pillow-heif", "pillow-jxl-plugin"} < options["made_by"].keys()


# --- arrays ---------------------------------------------------------------------------------------


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("shape", [(7, 9), (7, 9, 3), (7, 9, 1)])
def test_arrays_are_stored_as_they_are(shape):
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    for array in (values, np.asfortranarray(values)):
        stored = prepare(npy(array), PNG)
        pixels = np.asarray(Image.open(io.BytesIO(stored.data)))
        assert np.array_equal(pixels.reshape(shape), values)
        assert (stored.extra["original_format"], stored.extra["change"]) == ("npy", "transcoded")


@pytest.mark.parametrize(("row", "reason"), read_rows(__file__, "other arrays are refused"))
def test_other_arrays_are_refused(row, reason):
    with pytest.raises(Rejected, match=reason):
        prepare(evaluate(row, globals()), PNG)
