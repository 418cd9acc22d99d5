"""Single images through `prepare`: size, quality, and what is rejected.

Colors are tested in test_pixels.py.
"""

from __future__ import annotations

import pytest
from helpers.bad_images import exif
from helpers.pictures import encode, photo
from helpers.rows import read_named
from helpers.similarity import open_image, psnr, ssim
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dataprep.images.base import Rejected
from dataprep.images.downscale import prepare, target_size
from dataprep.options import Downscale, Options, Raw

LANCZOS = Image.Resampling.LANCZOS
#: Encoding loses almost nothing, so comparisons measure the resizing.
HIGH_QUALITY = {"quality": 100, "subsampling": "444"}


# --- sizes ----------------------------------------------------------------------------------------


lengths = st.integers(1, 5000)


@given(lengths, lengths, lengths)
def test_an_area_is_met_as_closely_as_the_aspect_ratio_allows(width, height, pixels):
    size = target_size(width, height, Downscale(pixels=pixels))
    assert (size is None) == (width * height <= pixels)
    if size is None:
        return
    assert size[0] * size[1] <= pixels
    assert (size[0] > size[1]) <= (width > height)
    factor = (pixels / (width * height)) ** 0.5
    if min(width, height) * factor >= 1:
        for side, new_side in zip((width, height), size, strict=True):
            # The longer side gives way if the shorter one is rounded up.
            assert abs(side * factor - new_side) <= 1 + max(width, height) / min(width, height)
    assert target_size(20_000, 50, Downscale(pixels=224 * 224)) == (4480, 11)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize(
    "to", [Downscale(200), Downscale(longest=300), Downscale(100, only_above=200), Downscale(999)]
)
def test_images_that_need_no_resizing_keep_their_bytes(kind, to):
    options = {"exif": exif(6)} if kind == "JPEG" else {}
    data = encode(photo(1, 300, 200), kind, **options)
    stored = prepare(data, Options(downscale=to))
    assert stored.data is data
    assert (stored.info.format, stored.info.width, stored.info.height) == (kind.lower(), 300, 200)
    assert stored.extra["change"] == ""
    assert prepare(encode(photo(1, 301, 201), kind), Options(downscale=to)).extra["change"] == (
        "" if to.shorter == 999 else "resized"
    )


# --- quality --------------------------------------------------------------------------------------


KINDS = read_named(__file__, "kinds")


@pytest.fixture(scope="module")
def encoded(picture):
    """The picture in each kind, and all its pixels."""
    images = {kind: encode(picture, name, **options) for kind, (name, options) in KINDS.items()}
    return {kind: (data, open_image(data).convert("RGB")) for kind, data in images.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", [30, 100, 200, 500])
def test_result_is_close_to_resizing_the_full_image(kind, side, encoded):
    """Compare with Pillow's Lanczos filter over all pixels: decoding a JPEG at a smaller scale has no visible loss."""
    data, image = encoded[kind]
    expected = image.resize((side, side), LANCZOS)
    resized = Image.frombytes("RGB", (side, side), prepare(data, Options(raw=Raw(side))).data)
    assert psnr(expected, resized) > 40
    assert ssim(expected, resized) > 0.995
    jpeg = open_image(prepare(data, Options(downscale=Downscale(side, **HIGH_QUALITY))).data)
    assert jpeg.format == "JPEG"
    assert psnr(expected, jpeg) > 38


@pytest.mark.parametrize("name", ["lanczos", "bicubic", "bilinear", "box"])
def test_filters(name, picture):
    data = encode(picture, "PNG")
    resized = Image.frombytes(
        "RGB", (300, 300), prepare(data, Options(raw=Raw(300, filter=name))).data
    )
    expected = picture.resize((300, 300), Image.Resampling[name.upper()])
    assert psnr(expected, resized) > 53  # a reduction by less than two uses all pixels


SUBSAMPLINGS = {0: "444", 1: "422", 2: "420"}


@pytest.mark.parametrize("stored", SUBSAMPLINGS)
@pytest.mark.parametrize("requested", ["keep", "444", "422", "420"])
def test_subsampling_and_quality(stored, requested, picture):
    import simplejpeg

    data = encode(picture, subsampling=stored)
    jpegs = {
        q: prepare(data, Options(downscale=Downscale(100, quality=q, subsampling=requested))).data
        for q in (30, 90)
    }
    assert simplejpeg.decode_jpeg_header(jpegs[90])[3] == (
        SUBSAMPLINGS[stored] if requested == "keep" else requested
    )
    assert len(jpegs[30]) < len(jpegs[90]) / 2
    pillow_tables = open_image(encode(picture.resize((100, 100)), quality=90)).quantization
    assert open_image(jpegs[90]).quantization == pillow_tables


# --- what is refused ------------------------------------------------------------------------------


def test_jpeg_with_too_many_scans_is_rejected():
    whole = encode(photo(1), progressive=True)
    last = whole[whole.rindex(b"\xff\xda") : -2]
    for validate, options in (
        ("header", {"downscale": Downscale(20)}),
        ("decode", {"downscale": Downscale(900)}),
    ):
        with pytest.raises(
            Rejected, match=r"too-large: JPEG of 64x48 pixels with .* scans, but the limit is 500"
        ):
            prepare(whole[:-2] + last * 600 + b"\xff\xd9", Options(validate=validate, **options))


def test_side_longer_than_a_jpeg_allows():
    data = encode(Image.new("L", (90_000, 3)), "PNG")
    with pytest.raises(Rejected, match=r"75000x2 pixels after resizing.*--max-side"):
        prepare(encode(Image.new("L", (150_000, 4)), "PNG"), Options(downscale=Downscale(2)))
    assert prepare(data, Options(downscale=Downscale(2))).info.width == 60_000
