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
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from manifests.errors import CallError

pydicom = pytest.importorskip("pydicom")
pytest.importorskip("pylibjpeg")

FILES = Path(pydicom.__file__).parent / "data" / "test_files"
PNG, WINDOW = Options(transcode="png"), Options(transcode="png", window="40,400")
pytestmark = pytest.mark.filterwarnings("ignore")


def file_of(name: str) -> bytes:
    return (FILES / f"{name}.dcm").read_bytes()


def made(pixels: np.ndarray, **tags: object) -> bytes:
    """Return a DICOM of gray or RGB pixels."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    bits = pixels.dtype.itemsize * 8
    plain = {
        "Rows": pixels.shape[0], "Columns": pixels.shape[1],
        "SamplesPerPixel": pixels.shape[2] if pixels.ndim == 3 else 1,
        "PhotometricInterpretation": "RGB" if pixels.ndim == 3 else "MONOCHROME2",
        "PlanarConfiguration": 0, "BitsAllocated": bits, "BitsStored": bits, "HighBit": bits - 1,
        "PixelRepresentation": int(pixels.dtype.kind == "i"),
    }  # fmt: skip
    for name, value in {**plain, **tags}.items():
        setattr(dataset, name, value)
    dataset.PixelData = pixels.tobytes()
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


def stored(data: bytes, options: Options) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(prepare(data, options).data)))


GRAY = (
    *("CT_small", "MR_small", "MR_small_RLE", "MR_small_bigendian", "MR_small_jp2klossless", "JPEG2000"),
    *("MR_small_jpeg_ls_lossless", "JPGExtended", "693_J2KI", "examples_overlay", "image_dfl"),
)  # fmt: skip


@pytest.mark.parametrize("name", GRAY)
def test_a_window_is_the_window_of_pydicom(name):
    dataset = pydicom.dcmread(FILES / f"{name}.dcm")
    values = pydicom.pixels.apply_rescale(dataset.pixel_array, dataset)
    dataset.WindowCenter, dataset.WindowWidth = 300, 800
    dataset.VOILUTFunction = "LINEAR"
    windowed = pydicom.pixels.apply_windowing(values, dataset)
    # pydicom's window is in the units of the values; black and white are their largest range.
    low, high = _range(dataset)
    expected = np.rint((windowed - low) / (high - low) * 255)
    image = stored(file_of(name), Options(transcode="png", window="300,800"))
    assert np.array_equal(image, expected)
    assert prepare(file_of(name), WINDOW).extra["change"] == "transcoded window"


def _range(dataset: pydicom.Dataset) -> tuple[float, float]:
    bits, slope = dataset.BitsStored, float(dataset.get("RescaleSlope", 1))
    low = -(1 << bits - 1) if dataset.PixelRepresentation else 0
    ends = [
        end * slope + float(dataset.get("RescaleIntercept", 0))
        for end in (low, low + (1 << bits) - 1)
    ]
    return ends[0], ends[1]


@pytest.mark.parametrize(
    "name",
    [
        "SC_rgb_rle", "SC_rgb_dcmtk_+eb+cy+np", "SC_rgb_jpeg_dcmtk", "SC_rgb_gdcm_KY",
        "examples_jpeg2k", "image_dfl",
    ],
)  # fmt: skip
def test_8_bits_are_the_pixels_of_pydicom(name):
    image = stored(file_of(name), PNG)
    assert np.array_equal(image, pydicom.dcmread(FILES / f"{name}.dcm").pixel_array)
    assert prepare(file_of(name), PNG).extra["original_format"] == "dicom"


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
    inverted = made(values, PhotometricInterpretation="MONOCHROME1")
    assert np.array_equal(stored(inverted, WINDOW), 255 - stored(made(values), WINDOW))
    gray = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.array_equal(
        stored(made(gray, PhotometricInterpretation="MONOCHROME1"), PNG), 255 - gray
    )


@pytest.mark.parametrize("target", ["png", "tiff"])
@pytest.mark.parametrize("name", [*GRAY[:6], "made", "inverted"])
def test_16_bits_keep_the_rescaled_values(name, target):
    if name in GRAY:
        data = file_of(name)
    else:
        photometric = {"PhotometricInterpretation": "MONOCHROME1"} if name == "inverted" else {}
        data = made(np.array([[-1000, 40, 3000]], np.int16), **photometric)
    options = Options(transcode=target, channels=1, dtype="uint16")
    made_of = prepare(data, options)
    image = np.asarray(Image.open(io.BytesIO(made_of.data)))
    assert image.dtype == np.uint16
    slope, intercept = (made_of.extra[name] for name in RESCALE_COLUMNS)
    dataset = pydicom.dcmread(io.BytesIO(data))
    values = pydicom.pixels.apply_rescale(dataset.pixel_array, dataset)
    assert np.array_equal(image * slope + intercept, values)
    assert (slope < 0) == (name == "inverted")


@pytest.mark.parametrize(("row", "reason"), read_rows(__file__, "refusals"))
def test_refusals(row, reason):
    data = evaluate(row, globals())
    with pytest.raises(Rejected, match=reason):
        prepare(data(), PNG)


def test_without_the_option_it_is_unsupported_even_as_a_tiff():
    """A file may be a TIFF and a DICOM, and its bytes have the tags of the patient."""
    data = made(np.zeros((4, 4), np.uint8))
    tiff = b"II*\0" + data[4:]
    for each in (data, tiff):
        with pytest.raises(Rejected, match="unsupported: DICOM, which DALI does not decode"):
            check_image(each)
    assert stored(tiff, PNG).shape == (4, 4)


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_no_tag_of_the_patient_is_stored(fmt, tmp_path):
    name = "PLANTED^NAME"
    tags = {"PatientName": name, "PatientID": name, "StudyDescription": name, "RescaleType": name}
    values = np.arange(64, dtype=np.int16).reshape(8, 8)
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    (folder / "1.dcm").write_bytes(made(values, **tags))
    (folder / "IM0002").write_bytes(made(values + 1, **tags))
    (folder / "1.2.840.3").write_bytes(made(values.astype(np.uint8), **tags))
    (folder / "README").write_bytes(b"no image")
    # Rejected: frames, a word where a code belongs, and a file that ends early.
    (folder / "frames.dcm").write_bytes(made(values, NumberOfFrames=2, **tags))
    (folder / "colors.dcm").write_bytes(made(values, **{**tags, "PhotometricInterpretation": name}))
    (folder / "short.dcm").write_bytes(made(values, **tags)[:-20])
    bad = made(values, **tags, RescaleSlope="1.25").replace(b"1.25", b"NAME")
    (folder / "slope.dcm").write_bytes(bad.replace(b"PLANTED", b"PLANTED"))
    out = tmp_path / "out"
    options = Options(fmt=fmt, transcode="png", window="40,400")
    result = convert_dataset(read_source(str(folder.parent)), str(out), options)
    assert (result.images, result.rejected) == (7, 4)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert any(".dataprep" in str(path) for path in files)
    for path in files:
        assert b"PLANTED" not in path.read_bytes(), path
        assert b"NAME" not in path.read_bytes(), path


def test_it_is_resized_and_the_options_are_checked():
    image = prepare(
        file_of("CT_small"),
        Options(transcode="png", window="40,400", downscale=Downscale(shorter=64)),
    )
    assert (image.info.format, image.info.width, image.extra["change"]) == (
        "jpeg",
        64,
        "resized window",
    )
    for options in (
        Options(window="1,2"),
        *(Options(transcode="png", window=text) for text in ("1", "1,1", "a,b", "nan,9")),
    ):
        with pytest.raises(CallError, match="--window"):
            options.check()
