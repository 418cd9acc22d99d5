"""Each damaged or unusual image is kept, or rejected with the right reason, at both levels of validation."""

from __future__ import annotations

import io
import struct

import pytest
from helpers.bad_images import Case, cases, exif
from helpers.pictures import encode, photo
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dataprep.images import validate
from dataprep.images.base import REASONS, ImageInfo, Rejected
from dataprep.images.downscale import prepare
from dataprep.images.pixels import decode
from dataprep.images.validate import check_image, parse_header
from dataprep.options import Downscale, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

CASES = list(cases())
NAMES = [case.name for case in CASES]


def reason(data: bytes, validation: str) -> str:
    try:
        check_image(data, validation)
    except Rejected as error:
        return error.reason
    return ""


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_reason(case: Case):
    assert (reason(case.data, "header"), reason(case.data, "decode")) == (case.header, case.decode)
    # Changing an image decodes it, whatever the level. Only DALI needs the checksum after the pixels.
    expected = "" if case.name == "no checksum after the pixels.png" else case.decode
    for change in ({"downscale": Downscale(shorter=1)}, {"raw": Raw(70, "pad")}):
        try:
            stored = prepare(case.data, Options(**change))
        except Rejected as error:
            assert error.reason == expected  # noqa: PT017
        else:
            assert expected == ""
            assert "raw" not in change or len(stored.data) == 3 * 70 * 70


def test_cases_have_unique_names_and_cover_all_reasons():
    assert len(set(NAMES)) == len(NAMES) > 60
    assert {case.decode for case in CASES} - {""} == set(REASONS) - {
        "unreadable", "bad-name", "bad-label", "mask-size", "duplicate", "failed",
    }  # fmt: skip


def zero_webp() -> bytes:
    image = bytearray(encode(photo(0), "WEBP"))
    struct.pack_into("<HH", image, 26, 0, 100)
    return bytes(image)


def png_without_palette() -> bytes:
    image = encode(photo(5).convert("P"), "PNG")
    return image[:33] + image[image.index(b"IDAT") - 4 :]


@pytest.mark.parametrize(
    "change", [{"downscale": Downscale(shorter=9)}, {"raw": Raw(9)}], ids=["resize", "raw"]
)
@pytest.mark.parametrize("validation", ["none", "header", "decode"])
@pytest.mark.parametrize("make", [zero_webp, png_without_palette])
def test_images_without_pixels_or_palette_are_corrupt(make, validation, change):
    with pytest.raises(Rejected, match="corrupt: "):
        prepare(make(), Options(validate=validation, **change))


@pytest.fixture
def source(tmp_path):
    """A folder of three images."""
    (tmp_path / "images" / "class").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "images" / "class" / f"{number}.jpg").write_bytes(encode(photo(number)))
    return str(tmp_path / "images")


@pytest.mark.parametrize(
    "change", [{}, {"downscale": Downscale(shorter=9)}, {"raw": Raw(9)}], ids=["", "resize", "raw"]
)
def test_an_exception_rejects_the_image_and_asks_for_a_report(
    change, source, tmp_path, monkeypatch
):
    monkeypatch.setattr("dataprep.images.validate._parse_header", lambda _: 1 // 0)
    options = Options(**change)
    result = convert_dataset(read_source(source), str(tmp_path / "out"), options, workers=1)
    assert (result.rejected, len(result.failed)) == (3, 3)
    assert result.failed[0]["detail"].startswith(
        "ZeroDivisionError: integer division or modulo by zero (test_validate.py:"
    )


@pytest.mark.parametrize("validation", ["none", "header"])
def test_index_and_verify_print_the_same_line(validation, source, tmp_path, monkeypatch, invoke):
    out, tar = tmp_path / "out", tmp_path / "train-00000.tar"
    convert_dataset(read_source(source), str(out), Options(fmt="webdataset"), workers=1)
    parse, seen = validate._parse_header, []

    def fail_once(data: bytes) -> ImageInfo:
        seen.append(data)
        return 1 // 0 if data == seen[0] else parse(data)

    monkeypatch.setattr(validate, "_parse_header", fail_once)
    report = "Hint: this is a bug in dataprep; please report it with this line and the image."
    problem, _ = invoke("verify", out, "--workers", 1, status=1).stdout.splitlines()
    assert "record 0" in problem
    assert "(failed): ZeroDivisionError" in problem
    assert problem.endswith(report)
    (out / tar.name).rename(tar)
    index = ["index", tar, "--workers", 1, "--validate", validation]
    monkeypatch.setattr(validate, "_parse_header", parse)
    invoke(*index)
    monkeypatch.setattr(validate, "_parse_header", fail_once)
    seen.clear()
    lines = invoke(*index, "--overwrite", status=1).stderr.splitlines()
    (line,) = (line for line in lines if "dataprep failed on 1 image," in line)
    assert line.startswith("dataprep: train-00000.tar#0: ")
    assert line.endswith(report)


@pytest.mark.parametrize("name", ["exif", "xmp"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_as_pillow_reads_it(kind, name):
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    options: dict[str, object] = {"exif": exif(6)}
    if name == "xmp":
        info = PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp.decode())
        options = {"pnginfo": info} if kind == "PNG" else {"xmp": xmp}
    image = encode(photo(5, 24, 16), kind, **options)
    assert Image.open(io.BytesIO(image)).getexif()[0x0112] == 6
    info = parse_header(image)
    assert decode(image, info, 24, 16).orientation == 6


def test_decoding_imports_no_other_formats_of_pillow(warm, tmp_path):
    """Untrusted data could reach all 70 formats of Pillow, and each worker would import them."""
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF"):
        (tmp_path / kind).write_bytes(encode(photo(1), kind))
    program = (
        "import pathlib, sys; from dataprep.images.validate import check_image, open_with_pillow\nfor"
        " path in pathlib.Path().iterdir(): open_with_pillow(path.read_bytes(),"
        " check_image(path.read_bytes()))\nprint([name for name in ('Tiff', 'Fli', 'Psd') if"
        " f'PIL.{name}ImagePlugin' in sys.modules])\n"
    )
    done = warm.run("-c", program, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("['Tiff']\n", "")
