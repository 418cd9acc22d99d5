"""DICOM images become 8-bit pixels, compared with pydicom; nothing of the patient is stored."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from helpers.rows import evaluate, read_rows
from PIL import Image

from dataprep.images.base import Rejected
from dataprep.images.downscale import prepare
from dataprep.images.validate import check_image
from dataprep.options import RESCALE_COLUMNS, Downscale, Options
from manifests.errors import CallError

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("pylibjpeg")

FILES = Path(pydicom.__file__).parent / "data" / "test_files"
PNG, WINDOW = Options(transcode="png"), Options(transcode="png", window="40,400")
INVERTED = {"PhotometricInterpretation": "MONOCHROME1"}
pytestmark = pytest.mark.filterwarnings("ignore")


def file_of(name: str) -> bytes:
    return (FILES / f"{name}.dcm").read_bytes()


def read(data: bytes) -> pydicom.Dataset:
    return pydicom.dcmread(io.BytesIO(data))


def made(pixels: np.ndarray, **tags: object) -> bytes:
    """Return a DICOM of gray pixels."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    bits = pixels.dtype.itemsize * 8
    dataset.set_pixel_data(pixels.copy(), "MONOCHROME2", bits)
    for name, value in tags.items():
        setattr(dataset, name, value)
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


def stored(data: bytes, options: Options) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(prepare(data, options).data)))


GRAY = (
    "CT_small", "MR_small", "MR_small_RLE", "MR_small_bigendian", "MR_small_jp2klossless",
    "JPEG2000", "MR_small_jpeg_ls_lossless", "JPGExtended", "693_J2KI", "examples_overlay", "image_dfl",
)  # fmt: skip


@pytest.mark.parametrize("name", GRAY)
def test_a_window_is_the_window_of_pydicom(name):
    data = file_of(name)
    dataset = read(data)
    values = pydicom.pixels.apply_rescale(dataset.pixel_array, dataset)
    dataset.WindowCenter, dataset.WindowWidth = 300, 800
    dataset.VOILUTFunction = "LINEAR"
    windowed = pydicom.pixels.apply_windowing(values, dataset)
    # pydicom's window is in the units of the values; black and white are their largest range.
    lowest = -(1 << dataset.BitsStored - 1) if dataset.PixelRepresentation else 0
    ends = np.array([lowest, lowest + (1 << dataset.BitsStored) - 1])
    low, high = ends * float(dataset.get("RescaleSlope", 1)) + float(
        dataset.get("RescaleIntercept", 0)
    )
    expected = np.rint((windowed - low) / (high - low) * 255)
    assert np.array_equal(stored(data, Options(transcode="png", window="300,800")), expected)
    assert prepare(data, WINDOW).extra["change"] == "transcoded window"


@pytest.mark.parametrize(
    "name",
    [
        "SC_rgb_rle", "SC_rgb_dcmtk_+eb+cy+np", "SC_rgb_jpeg_dcmtk", "SC_rgb_gdcm_KY",
        "examples_jpeg2k", "image_dfl",
    ],
)  # fmt: skip
def test_8_bits_are_the_pixels_of_pydicom(name):
    data = file_of(name)
    assert np.array_equal(stored(data, PNG), read(data).pixel_array)
    assert prepare(data, PNG).extra["original_format"] == "dicom"


def test_values_signs_and_monochrome1():
    values = np.array([[-1000, -160, 40, 240, 3000]], np.int16)
    window = [[0, 0, 128, 255, 255]]
    for data in (
        made(values),
        made((values + 1024).astype(np.uint16), RescaleSlope=1, RescaleIntercept=-1024),
        made(values // 2, RescaleSlope=2, RescaleIntercept=0),
        made(values, RescaleSlope=None, RescaleIntercept=None),
    ):
        assert np.abs(stored(data, WINDOW).astype(int) - window).max() <= 1
    inverted = stored(made(values, **INVERTED), WINDOW)
    assert np.array_equal(inverted, 255 - stored(made(values), WINDOW))
    gray = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.array_equal(stored(made(gray, **INVERTED), PNG), 255 - gray)


@pytest.mark.parametrize("target", ["png", "tiff"])
@pytest.mark.parametrize("name", [*GRAY[:6], "made", "inverted"])
def test_16_bits_keep_the_rescaled_values(name, target):
    if name in GRAY:
        data = file_of(name)
    else:
        tags = INVERTED if name == "inverted" else {}
        data = made(np.array([[-1000, 40, 3000]], np.int16), **tags)
    made_of = prepare(data, Options(transcode=target, channels=1, dtype="uint16"))
    image = np.asarray(Image.open(io.BytesIO(made_of.data)))
    assert image.dtype == np.uint16
    slope, intercept = (made_of.extra[column] for column in RESCALE_COLUMNS)
    dataset = read(data)
    values = pydicom.pixels.apply_rescale(dataset.pixel_array, dataset)
    assert np.array_equal(image * slope + intercept, values)
    assert (slope < 0) == (name == "inverted")


@pytest.mark.parametrize(("row", "reason"), read_rows(__file__, "refusals"))
def test_refusals(row, reason):
    with pytest.raises(Rejected, match=reason):
        prepare(evaluate(row, globals())(), PNG)


def test_without_the_option_it_is_unsupported_even_as_a_tiff():
    """A file may be a TIFF and a DICOM, and its bytes have the tags of the patient."""
    data = made(np.zeros((4, 4), np.uint8))
    tiff = b"II*\0" + data[4:]
    for each in (data, tiff):
        with pytest.raises(Rejected, match="unsupported: DICOM, which DALI does not decode"):
            check_image(each)
    assert stored(tiff, PNG).shape == (4, 4)


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_no_tag_of_the_patient_is_stored(fmt, convert, snapshot, tmp_path):
    name = "PLANTED^NAME"
    tags = {"PatientName": name, "PatientID": name, "StudyDescription": name, "RescaleType": name}
    values = np.arange(64, dtype=np.int16).reshape(8, 8)
    files = {
        "1.dcm": made(values, **tags),
        "IM0002": made(values + 1, **tags),
        "1.2.840.3": made(values.astype(np.uint8), **tags),
        "README": b"no image",
        # Rejected: frames, a word where a code or a number belongs, and a file that ends early.
        "frames.dcm": made(values, NumberOfFrames=2, **tags),
        "colors.dcm": made(values, **tags, PhotometricInterpretation=name),
        "short.dcm": made(values, **tags)[:-20],
        "slope.dcm": made(values, **tags, RescaleSlope="1.25").replace(b"1.25", b"NAME"),
    }
    folder, out = tmp_path / "images", tmp_path / "out"
    (folder / "a").mkdir(parents=True)
    for file, data in files.items():
        (folder / "a" / file).write_bytes(data)
    options = ("--fmt", fmt, "--transcode", "png", "--window", "40,400", "--max-rejected", 1)
    assert "rejected: 4 of 7 images" in convert(folder, out, *options).output
    written = snapshot(out)
    assert any(".dataprep" in path for path in written)
    for path, data in written.items():
        assert b"PLANTED" not in data, path
        assert b"NAME" not in data, path


def test_it_is_resized_and_the_options_are_checked():
    options = Options(transcode="png", window="40,400", downscale=Downscale(shorter=64))
    image = prepare(file_of("CT_small"), options)
    assert (image.info.format, image.info.width) == ("jpeg", 64)
    assert image.extra["change"] == "resized window"
    wrong = [Options(transcode="png", window=text) for text in ("1", "1,1", "a,b", "nan,9")]
    for options in (Options(window="1,2"), *wrong):
        with pytest.raises(CallError, match="--window"):
            options.check()
