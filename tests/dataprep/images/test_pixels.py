"""Orientation, profiles and colors of decoded images, compared with Pillow and DALI."""

from __future__ import annotations

import io
from contextlib import suppress

import numpy as np
import pytest
from helpers.bad_images import exif
from helpers.color_profiles import curves, matrix, multi_stage_profile
from helpers.pictures import encode, photo
from helpers.similarity import open_image, psnr
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps

from dataprep.images.base import MAX_PROFILE_STAGES, Rejected
from dataprep.images.downscale import prepare
from dataprep.images.pixels import check_stages, decode
from dataprep.images.validate import check_image, parse_header
from dataprep.options import Downscale, Options, Raw
from dataprep.shards.source_image import load_image

LANCZOS = Image.Resampling.LANCZOS
#: Encoding loses almost nothing, so comparisons measure the decoding and resizing.
HIGH_QUALITY = {"quality": 100, "subsampling": "444"}


# --- orientation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied_and_removed(orientation, image_format, picture):
    data = encode(picture.crop((0, 0, 512, 300)), image_format, exif=exif(orientation))
    stored = prepare(data, Options(downscale=Downscale(100, **HIGH_QUALITY)))
    upright = ImageOps.exif_transpose(open_image(data))
    image = open_image(stored.data)
    assert image.getexif() == {}
    assert image.size == (stored.info.width, stored.info.height)
    assert psnr(image, upright.resize(image.size, LANCZOS)) > 37
    assert (stored.extra["original_width"], stored.extra["original_height"]) == (512, 300)
    assert stored.extra["change"] == ("resized turned" if 2 <= orientation <= 8 else "resized")
    square = Image.frombytes("RGB", (64, 64), prepare(data, Options(raw=Raw(64))).data)
    assert psnr(square, ImageOps.fit(upright.convert("RGB"), (64, 64), LANCZOS)) > 37


# --- profiles -------------------------------------------------------------------------------------


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def other_profile() -> bytes:
    """Return sRGB with red and green exchanged, which changes all colors visibly."""
    return SRGB.replace(b"rXYZ", b"tmp!").replace(b"gXYZ", b"rXYZ").replace(b"tmp!", b"gXYZ")


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_profile_is_converted_to_srgb(image_format, picture):
    data = encode(picture, image_format, icc_profile=other_profile())
    source = ImageCms.ImageCmsProfile(io.BytesIO(other_profile()))
    expected = ImageCms.profileToProfile(
        open_image(data), source, ImageCms.createProfile("sRGB"), outputMode="RGB"
    )
    expected = expected.resize((100, 100), LANCZOS)
    stored = prepare(data, Options(downscale=Downscale(100, **HIGH_QUALITY)))
    assert stored.extra["change"] == "resized icc"
    assert open_image(stored.data).info.get("icc_profile") is None
    assert psnr(open_image(stored.data), expected) > 36
    assert psnr(expected, picture.resize((100, 100))) < 25  # the conversion makes a difference


@pytest.mark.parametrize("profile", [SRGB, SRGB[:200], b"not a profile", other_profile()[:-40]])
def test_profiles_without_effect(profile, picture):
    data = encode(picture, "PNG", icc_profile=profile)
    stored = prepare(data, Options(downscale=Downscale(100, **HIGH_QUALITY)))
    assert stored.extra["change"] == "resized"
    assert (
        stored.data
        == prepare(encode(picture, "PNG"), Options(downscale=Downscale(100, **HIGH_QUALITY))).data
    )


# --- colors ---------------------------------------------------------------------------------------


def with_alpha(mode: str) -> Image.Image:
    """Make an image whose transparent pixels have colors of their own."""
    image = photo(3, 64, 64).convert(mode[:-1])
    image.putalpha(Image.linear_gradient("L").resize((64, 64)))
    return image


def images_of_other_modes() -> dict[str, tuple[bytes, str]]:
    """Return images of all color modes, each with the repairs it needs."""
    rgb = photo(3, 64, 64)
    return {
        "rgb jpeg": (encode(rgb), ""),
        "gray jpeg": (encode(rgb.convert("L")), ""),
        "cmyk jpeg": (encode(rgb.convert("CMYK"), quality=95), "rgb"),
        "cmyk tiff": (encode(rgb.convert("CMYK"), "TIFF"), "rgb"),
        "palette png": (encode(rgb.convert("P"), "PNG"), "rgb"),
        "palette png, one color transparent": (
            encode(rgb.convert("P"), "PNG", transparency=7),
            "rgb alpha",
        ),
        "palette png, partly transparent": (
            encode(rgb.convert("P"), "PNG", transparency=bytes(256)),
            "rgb alpha",
        ),
        "palette bmp": (encode(rgb.convert("P"), "BMP"), "rgb"),
        "one bit png": (encode(rgb.convert("1"), "PNG"), "rgb"),
        "rgba png": (encode(with_alpha("RGBA"), "PNG"), "alpha"),
        "gray and alpha png": (encode(with_alpha("LA"), "PNG"), "alpha"),
        "rgba webp": (encode(with_alpha("RGBA"), "WEBP", lossless=True, exact=True), "alpha"),
        "rgba tiff": (encode(with_alpha("RGBA"), "TIFF"), "alpha"),
        "one color transparent png": (encode(rgb, "PNG", transparency=(0, 0, 0)), "alpha"),
    }


MODES = images_of_other_modes()


GRAY = ("gray jpeg", "one bit png", "gray and alpha png")


def decode_with_dali(data: bytes) -> np.ndarray:
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        image = fn.external_source(lambda: [np.frombuffer(data, np.uint8)])
        return fn.decoders.image(image, device="cpu", output_type=types.RGB)

    pipe = pipeline()
    pipe.build()
    return np.asarray(pipe.run()[0].at(0))


@pytest.mark.parametrize("name", MODES)
def test_colors_match_those_that_dali_decodes(name):
    """Resized images and images stored unchanged have the same colors in training."""
    data, change = MODES[name]
    stored = prepare(data, Options(raw=Raw(64)))
    assert stored.extra["change"] == change
    ours = np.frombuffer(stored.data, np.uint8).reshape(64, 64, 3)
    # DALI does not decode a CMYK TIFF.
    expected = (
        np.asarray(open_image(data).convert("RGB"))
        if name == "cmyk tiff"
        else decode_with_dali(data)
    )
    assert np.abs(ours.astype(int) - expected).max() <= 2
    resized = prepare(data, Options(downscale=Downscale(20)))
    assert resized.extra["change"] == f"resized {change}".strip()
    assert open_image(resized.data).mode == ("L" if name in GRAY else "RGB")


CHANGES = pytest.mark.parametrize(
    "change", [{"downscale": Downscale(shorter=9)}, {"raw": Raw(9)}], ids=["resize", "raw"]
)
KINDS = pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])


@KINDS
@CHANGES
@pytest.mark.parametrize(
    ("count", "elements"),
    [(100_000, [matrix(), curves(1)]), (3, [curves(30_000)]), (402, [matrix(), curves(1)])],
    ids=["stages", "segments", "just above"],
)
def test_too_many_stages_are_rejected(count, elements, change, kind, tmp_path):
    image = encode(photo(5), kind, icc_profile=multi_stage_profile(count, elements))
    assert check_image(image, "header").width  # an image that is stored unchanged keeps its profile
    (tmp_path / "image").write_bytes(image)
    with pytest.raises(
        Rejected, match=f"too-large: a color profile of over {MAX_PROFILE_STAGES} processing stages"
    ):
        load_image(str(tmp_path), "image", len(image), Options(**change))


@KINDS
def test_a_profile_with_few_stages_is_applied(kind):
    image = encode(photo(5), kind, icc_profile=multi_stage_profile(4, [matrix(), curves(2)]))
    plain = encode(photo(5), kind)
    decoded, unchanged = (decode(data, parse_header(data), 9, 9) for data in (image, plain))
    assert decoded.repairs == ("icc",)
    assert (np.asarray(decoded.image) != np.asarray(unchanged.image)).any()


@given(st.binary(max_size=400))
def test_damaged_profiles_raise_nothing_else(data):
    profile = multi_stage_profile(4, [matrix(), curves(2)])
    for damaged in (
        data,
        profile[: len(data)],
        profile[: 128 + len(data)] + data,
        profile[:132] + data,
    ):
        with suppress(Rejected):
            check_stages(damaged)
