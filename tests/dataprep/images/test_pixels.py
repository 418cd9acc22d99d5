"""Orientation, size, profiles and colors of decoded images, compared with Pillow and DALI."""

from __future__ import annotations

import io
import random
from contextlib import suppress

import numpy as np
import pytest
from fuzz.mutate import mutate_bytes
from helpers.bad_images import exif
from helpers.color_profiles import SRGB, curves, exchanged, matrix, multi_stage_profile
from helpers.photographs import photograph
from helpers.pictures import encode, photo
from helpers.similarity import open_image, psnr
from hypothesis import given
from hypothesis import strategies as st
from nvidia import dali
from nvidia.dali import fn
from PIL import Image, ImageCms, ImageOps
from PIL.PngImagePlugin import PngInfo

from dataprep.images.base import MAX_PROFILE_STAGES, ImageInfo, Rejected
from dataprep.images.downscale import find_placement, prepare
from dataprep.images.pixels import check_stages, decode
from dataprep.images.validate import check_image, parse_header, turns_on_side
from dataprep.options import Downscale, Options, Raw
from dataprep.shards.source_image import load_image
from loaders.dataset.orientation import is_turned

LANCZOS = Image.Resampling.LANCZOS
PICTURE = Image.fromarray(photograph("astronaut"))
#: Encoding loses almost nothing, so comparisons measure the decoding and resizing.
SMALL = Options(downscale=Downscale(100, quality=100, subsampling="444"))
KINDS = ("JPEG", "PNG", "WEBP", "TIFF")


def decode_with_dali(images: list[bytes]) -> tuple[list[np.ndarray], list[tuple[int, ...]]]:
    """Return the pixels of images, and the shapes that DALI reads in their headers."""
    arrays = [np.frombuffer(image, np.uint8) for image in images]
    pipeline = dali.Pipeline(len(images), 2, None, exec_dynamic=True)
    with pipeline:
        source = fn.external_source(lambda: arrays, batch=True)
        pipeline.set_outputs(fn.decoders.image(source), fn.peek_image_shape(source))
    pipeline.build()
    pixels, shapes = pipeline.run()
    numbers = range(len(images))
    return [np.array(pixels.at(n)) for n in numbers], [
        tuple(np.array(shapes.at(n))) for n in numbers
    ]


# --- orientation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("kind", KINDS[:3])
def test_orientation_is_applied_and_removed(orientation, kind):
    data = encode(PICTURE.crop((0, 0, 512, 300)), kind, exif=exif(orientation))
    stored = prepare(data, SMALL)
    upright = ImageOps.exif_transpose(open_image(data))
    image = open_image(stored.data)
    assert image.getexif() == {}
    assert image.size == (stored.info.width, stored.info.height)
    assert psnr(image, upright.resize(image.size, LANCZOS)) > 37
    assert (stored.extra["original_width"], stored.extra["original_height"]) == (512, 300)
    assert stored.extra["change"] == ("resized turned" if 2 <= orientation <= 8 else "resized")
    square = Image.frombytes("RGB", (64, 64), prepare(data, Options(raw=Raw(64))).data)
    assert psnr(square, ImageOps.fit(upright.convert("RGB"), (64, 64), LANCZOS)) > 37


def upright_size(data: bytes, kind: str) -> tuple[int, int]:
    info = ImageInfo(kind.lower(), 40, 30)
    return find_placement(data, info, info, None, changed=False).source


@pytest.mark.parametrize("kind", KINDS)
def test_the_upright_size_is_that_of_dali(kind):
    picture = Image.new("RGB", (40, 30))
    images = [encode(picture, kind, exif=exif(orientation)) for orientation in range(1, 9)]
    segments = 5 * (b"\xff\xeb\xff\xff" + bytes(65533))  # a JPEG with a long header
    images.append(encode(picture, kind, exif=exif(6), extra=segments))
    # DALI turns no image for XMP, Pillow does.
    xmp, info = '<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>', PngInfo()
    info.add_itxt("XML:com.adobe.xmp", xmp)
    options = {"PNG": {"pnginfo": info}, "TIFF": {}}.get(kind, {"xmp": xmp.encode()})
    images.append(encode(picture, kind, **options))
    if options:
        assert open_image(images[-1]).getexif()[0x0112] == 6
        assert decode(images[-1], parse_header(images[-1]), 40, 30).orientation == 6
    pixels, headers = decode_with_dali(images)
    shapes = [image.shape for image in pixels]
    assert shapes == headers
    sizes = [upright_size(image, kind) for image in images]
    assert sizes == [(width, height) for height, width, _ in shapes]
    sideways = [turns_on_side(image, check_image(image)) for image in images]
    assert sideways == [height > width for height, width, _ in shapes]
    assert sideways == [is_turned(np.frombuffer(image, np.uint8)) for image in images]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_metadata_is_rejected_or_gives_a_size(kind):
    rng, good = random.Random(0), encode(Image.new("RGB", (40, 30)), kind, exif=exif(6))
    for _ in range(300):
        damaged = mutate_bytes(rng, good)
        assert is_turned(np.frombuffer(damaged, np.uint8)) in (True, False)
        try:
            turns_on_side(damaged, ImageInfo(kind.lower(), 40, 30, may_turn=True))
            assert sorted(upright_size(damaged, kind)) == [30, 40]
        except Rejected as error:
            assert error.reason == "corrupt"  # noqa: PT017


# --- profiles -------------------------------------------------------------------------------------

OTHER = exchanged(b"r", b"g")


@pytest.mark.parametrize("kind", KINDS)
def test_profile_is_converted_to_srgb(kind):
    data = encode(PICTURE, kind, icc_profile=OTHER)
    source, srgb = ImageCms.ImageCmsProfile(io.BytesIO(OTHER)), ImageCms.createProfile("sRGB")
    expected = ImageCms.profileToProfile(open_image(data), source, srgb, outputMode="RGB")
    expected = expected.resize((100, 100), LANCZOS)
    stored = prepare(data, SMALL)
    assert stored.extra["change"] == "resized icc"
    assert open_image(stored.data).info.get("icc_profile") is None
    assert psnr(open_image(stored.data), expected) > 36
    assert psnr(expected, PICTURE.resize((100, 100))) < 25  # the conversion makes a difference


@pytest.mark.parametrize("profile", [SRGB, SRGB[:200], b"not a profile", OTHER[:-40]])
def test_profiles_without_effect(profile):
    stored = prepare(encode(PICTURE, "PNG", icc_profile=profile), SMALL)
    assert stored.extra["change"] == "resized"
    assert stored.data == prepare(encode(PICTURE, "PNG"), SMALL).data


STAGES = {
    "stages": (100_000, [matrix(), curves(1)]),
    "segments": (3, [curves(30_000)]),
    "just above": (402, [matrix(), curves(1)]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stages", STAGES)
def test_too_many_stages_are_rejected(stages, kind, tmp_path):
    image = encode(photo(5), kind, icc_profile=multi_stage_profile(*STAGES[stages]))
    assert check_image(image, "header").width  # an image that is stored unchanged keeps its profile
    (tmp_path / "image").write_bytes(image)
    message = f"too-large: a color profile of over {MAX_PROFILE_STAGES} processing stages"
    for options in (Options(downscale=Downscale(shorter=9)), Options(raw=Raw(9))):
        with pytest.raises(Rejected, match=message):
            load_image(str(tmp_path), "image", len(image), options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_profile_with_few_stages_is_applied(kind):
    image = encode(photo(5), kind, icc_profile=multi_stage_profile(4, [matrix(), curves(2)]))
    plain = encode(photo(5), kind)
    decoded, unchanged = (decode(data, parse_header(data), 9, 9) for data in (image, plain))
    assert decoded.repairs == ("icc",)
    assert (np.asarray(decoded.image) != np.asarray(unchanged.image)).any()


@given(st.binary(max_size=400))
def test_damaged_profiles_raise_nothing_else(data):
    good = multi_stage_profile(4, [matrix(), curves(2)])
    for damaged in (data, good[: len(data)], good[: 128 + len(data)] + data, good[:132] + data):
        with suppress(Rejected):
            check_stages(damaged)


# --- colors ---------------------------------------------------------------------------------------

RGB = photo(3, 64, 64)
PALETTE = RGB.convert("P")


def with_alpha(mode: str) -> Image.Image:
    """Make an image whose transparent pixels have colors of their own."""
    image = RGB.convert(mode[:-1])
    image.putalpha(Image.linear_gradient("L").resize((64, 64)))
    return image


#: Images of all color modes, each with the repairs it needs.
MODES = {
    "rgb jpeg": (encode(RGB), ""),
    "gray jpeg": (encode(RGB.convert("L")), ""),
    "cmyk jpeg": (encode(RGB.convert("CMYK"), quality=95), "rgb"),
    "cmyk tiff": (encode(RGB.convert("CMYK"), "TIFF"), "rgb"),
    "palette png": (encode(PALETTE, "PNG"), "rgb"),
    "palette png, one color transparent": (encode(PALETTE, "PNG", transparency=7), "rgb alpha"),
    "palette png, transparent": (encode(PALETTE, "PNG", transparency=bytes(256)), "rgb alpha"),
    "palette bmp": (encode(PALETTE, "BMP"), "rgb"),
    "one bit png": (encode(RGB.convert("1"), "PNG"), "rgb"),
    "rgba png": (encode(with_alpha("RGBA"), "PNG"), "alpha"),
    "gray and alpha png": (encode(with_alpha("LA"), "PNG"), "alpha"),
    "rgba webp": (encode(with_alpha("RGBA"), "WEBP", lossless=True, exact=True), "alpha"),
    "rgba tiff": (encode(with_alpha("RGBA"), "TIFF"), "alpha"),
    "one color transparent png": (encode(RGB, "PNG", transparency=(0, 0, 0)), "alpha"),
}


@pytest.mark.parametrize("name", MODES)
def test_colors_match_those_that_dali_decodes(name):
    """Resized images and images stored unchanged have the same colors in training."""
    data, change = MODES[name]
    stored = prepare(data, Options(raw=Raw(64)))
    assert stored.extra["change"] == change
    ours = np.frombuffer(stored.data, np.uint8).reshape(64, 64, 3)
    expected = np.asarray(open_image(data).convert("RGB"))
    if name != "cmyk tiff":  # which DALI does not decode
        expected = decode_with_dali([data])[0][0]
    assert np.abs(ours.astype(int) - expected).max() <= 2
    resized = prepare(data, Options(downscale=Downscale(20)))
    assert resized.extra["change"] == f"resized {change}".strip()
    is_gray = name in ("gray jpeg", "one bit png", "gray and alpha png")
    assert open_image(resized.data).mode == ("L" if is_gray else "RGB")
