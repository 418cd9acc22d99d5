"""Each damaged or unusual image is kept, or rejected with the right reason, at both levels of validation."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import get_args

import pytest
from helpers.bad_images import IMAGES_TO_MUTATE, Case, cases
from helpers.datasets import write_images
from helpers.examples import examples
from helpers.pictures import encode, photo
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.images import validate
from dataprep.images.base import EXTENSIONS, REASONS, ImageInfo, Rejected
from dataprep.images.downscale import prepare
from dataprep.images.perceptual_hash import hash_image
from dataprep.images.validate import check_image
from dataprep.options import Downscale, Options, Raw, Validation
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

CASES = list(cases())
TIME_LIMIT = 2.0  # seconds of the CPU, for one image of a few KB


def reason(data: bytes, validation: str) -> str:
    start, found = time.thread_time(), ""
    try:
        info = check_image(data, validation, 1 << 25)
        assert info.format in EXTENSIONS
        assert 0 < info.width * info.height <= 1 << 25
    except Rejected as error:
        found = error.reason
        assert found in REASONS
    assert time.thread_time() - start < TIME_LIMIT
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reason(case: Case):
    assert (reason(case.data, "header"), reason(case.data, "decode")) == (case.header, case.decode)
    # Changing an image decodes it, whatever the level. Only DALI needs the checksum after the pixels.
    expected = "" if case.name == "no checksum after the pixels.png" else case.decode
    levels = (
        ("none", "header") if case.name in ("no palette.png", "zero wide.webp") else ("header",)
    )
    for change in ({"downscale": Downscale(shorter=1)}, {"raw": Raw(70, "pad")}):
        for level in levels:
            try:
                stored = prepare(case.data, Options(validate=level, **change))
            except Rejected as error:
                assert error.reason == expected  # noqa: PT017
            else:
                assert expected == ""
                assert "raw" not in change or len(stored.data) == 3 * 70 * 70
    with suppress(Rejected):
        info = check_image(case.data, "none")
        try:
            hash_image(case.data, info)
        except Rejected as error:
            assert error.reason != "failed"  # noqa: PT017


def test_cases_have_unique_names_and_cover_all_reasons():
    names = {case.name for case in CASES}
    assert len(names) == len(CASES) > 60
    assert {"no palette.png", "zero wide.webp"} < names
    assert {case.decode for case in CASES} - {""} == set(REASONS) - {
        "unreadable", "bad-name", "bad-label", "mask-size", "duplicate", "failed",
    }  # fmt: skip


WEBP = tuple(b"RIFF....WEBPVP8" + end for end in (b"X", b"L", b" "))
MAGIC = (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", *WEBP, b"BM", b"II*\0", b"MM\0*")


@settings(max_examples=examples(300))
@given(st.sampled_from(MAGIC), st.binary(max_size=200))
def test_random_bytes(magic, rest):
    for validation in get_args(Validation):
        reason(magic + rest, validation)


@pytest.mark.parametrize("data", IMAGES_TO_MUTATE)
def test_a_truncated_image_is_never_kept(data):
    for length in range(0, len(data), 5):
        assert reason(data[:length], "header"), length


# --- faults of the product ------------------------------------------------------------------------

REPORT = "Hint: this is a bug in dataprep; please report it with this line and the image."


@pytest.mark.parametrize("change", [{}, {"downscale": Downscale(shorter=9)}, {"raw": Raw(9)}])
def test_an_exception_rejects_the_image_and_asks_for_a_report(change, tmp_path, monkeypatch):
    source = read_source(str(write_images(tmp_path / "images", range(3), ("cat",))))
    monkeypatch.setattr(validate, "_parse_header", lambda _: 1 // 0)
    result = convert_dataset(source, str(tmp_path / "out"), Options(**change), workers=1)
    assert (result.rejected, len(result.failed)) == (3, 3)
    assert result.failed[0]["detail"].startswith(
        "ZeroDivisionError: integer division or modulo by zero (test_validate.py:"
    )


@pytest.mark.parametrize("validation", ["none", "header"])
def test_index_and_verify_print_the_same_line(validation, tmp_path, monkeypatch, convert, invoke):
    out, tar = tmp_path / "out", tmp_path / "train-00000.tar"
    convert(write_images(tmp_path / "images", range(3), ("cat",)), out, "--fmt", "webdataset")
    parse, seen = validate._parse_header, []

    def fail_once(data: bytes) -> ImageInfo:
        seen.append(data)
        return 1 // 0 if data == seen[0] else parse(data)

    monkeypatch.setattr(validate, "_parse_header", fail_once)
    problem, _ = invoke("verify", out, "--workers", 1, status=1).stdout.splitlines()
    assert "record 0" in problem
    assert "(failed): ZeroDivisionError" in problem
    assert problem.endswith(REPORT)
    (out / tar.name).rename(tar)
    seen.clear()
    index = ("index", tar, "--workers", 1, "--validate", validation)
    lines = invoke(*index, status=1).stderr.splitlines()
    (line,) = (line for line in lines if "dataprep failed on 1 image," in line)
    assert line.startswith("dataprep: train-00000.tar#0: ")
    assert line.endswith(REPORT)


def test_decoding_imports_no_other_formats_of_pillow(warm, tmp_path):
    """Untrusted data could reach all 70 formats of Pillow, and each worker would import them."""
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF"):
        (tmp_path / kind).write_bytes(encode(photo(1), kind))
    program = """
import pathlib, sys
from dataprep.images.perceptual_hash import hash_image
from dataprep.images.validate import check_image, open_with_pillow
for path in pathlib.Path().iterdir():
    open_with_pillow(path.read_bytes(), check_image(path.read_bytes()))
print([name for name in ("Tiff", "Fli", "Psd") if f"PIL.{name}ImagePlugin" in sys.modules])
"""
    done = warm.run("-c", program, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("['Tiff']\n", "")
