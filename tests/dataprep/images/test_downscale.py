"""Single images through `prepare`: size, quality, and what is rejected.

Colors are tested in test_pixels.py.
"""

from __future__ import annotations

import PIL
import pytest
from helpers.bad_images import exif
from helpers.datasets import write_images
from helpers.photographs import photograph
from helpers.pictures import encode, photo
from helpers.rows import read_named
from helpers.shards import stored_samples
from helpers.similarity import open_image, psnr, ssim
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dataprep.images.base import Rejected
from dataprep.images.downscale import prepare, target_size
from dataprep.options import Downscale, Options, Raw
from manifests.store import read_manifest

PICTURE = Image.fromarray(photograph("astronaut"))

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
    larger = prepare(encode(photo(1, 301, 201), kind), Options(downscale=to))
    assert larger.extra["change"] == ("" if to.shorter == 999 else "resized")


# --- quality --------------------------------------------------------------------------------------

KINDS = read_named(__file__, "kinds")


def raw(data: bytes, side: int, **options: object) -> Image.Image:
    return Image.frombytes(
        "RGB", (side, side), prepare(data, Options(raw=Raw(side, **options))).data
    )


@pytest.mark.parametrize("kind", KINDS)
def test_result_is_close_to_resizing_the_full_image(kind):
    """Compare with Pillow's Lanczos filter over all pixels: decoding a JPEG at a smaller scale has no visible loss."""
    name, options = KINDS[kind]
    data = encode(PICTURE, name, **options)
    image = open_image(data).convert("RGB")
    for side in (30, 100, 200, 500):
        expected = image.resize((side, side), Image.Resampling.LANCZOS)
        resized = raw(data, side)
        assert psnr(expected, resized) > 40
        assert ssim(expected, resized) > 0.995
        fine = Downscale(side, quality=100, subsampling="444")
        jpeg = open_image(prepare(data, Options(downscale=fine)).data)
        assert jpeg.format == "JPEG"
        assert psnr(expected, jpeg) > 38


@pytest.mark.parametrize("name", ["lanczos", "bicubic", "bilinear", "box"])
def test_filters(name):
    expected = PICTURE.resize((300, 300), Image.Resampling[name.upper()])
    # A reduction by less than two uses all pixels.
    assert psnr(expected, raw(encode(PICTURE, "PNG"), 300, filter=name)) > 53


SUBSAMPLINGS = {0: "444", 1: "422", 2: "420"}


@pytest.mark.parametrize("stored", SUBSAMPLINGS)
@pytest.mark.parametrize("requested", ["keep", "444", "422", "420"])
def test_subsampling_and_quality(stored, requested):
    import simplejpeg

    data, jpegs = encode(PICTURE, subsampling=stored), {}
    for quality in (30, 90):
        options = Options(downscale=Downscale(100, quality=quality, subsampling=requested))
        jpegs[quality] = prepare(data, options).data
    expected = SUBSAMPLINGS[stored] if requested == "keep" else requested
    assert simplejpeg.decode_jpeg_header(jpegs[90])[3] == expected
    assert len(jpegs[30]) < len(jpegs[90]) / 2
    pillow_tables = open_image(encode(PICTURE.resize((100, 100)), quality=90)).quantization
    assert open_image(jpegs[90]).quantization == pillow_tables


# --- what is refused ------------------------------------------------------------------------------


def test_jpeg_with_too_many_scans_is_rejected():
    whole = encode(photo(1), progressive=True)
    data = whole[:-2] + whole[whole.rindex(b"\xff\xda") : -2] * 600 + b"\xff\xd9"
    for validate, side in (("header", 20), ("decode", 900)):
        with pytest.raises(
            Rejected, match=r"too-large: JPEG of 64x48 pixels with .* scans, but the limit is 500"
        ):
            prepare(data, Options(validate=validate, downscale=Downscale(side)))


def test_side_longer_than_a_jpeg_allows():
    options = Options(downscale=Downscale(2))
    with pytest.raises(Rejected, match=r"75000x2 pixels after resizing.*--max-side"):
        prepare(encode(Image.new("L", (150_000, 4)), "PNG"), options)
    assert prepare(encode(Image.new("L", (90_000, 3)), "PNG"), options).info.width == 60_000


# --- the command ----------------------------------------------------------------------------------


def test_resume_refuses_other_library_versions(convert, tmp_path, snapshot, monkeypatch):
    """Another version might encode differently, so the shards of a dataset would not be consistent."""
    source, out = write_images(tmp_path / "images", range(6), ("cat", "dog")), tmp_path / "out"

    def run(side: int = 20, status: int = 0) -> str:
        sizes = ("--resize-shorter", side, "--samples-per-shard", 2)
        return " ".join(convert(source, out, *sizes, "--workers", 1, status=status).output.split())

    run()
    (out / "manifest.json").unlink()
    before, release = snapshot(out), PIL.__version__
    with monkeypatch.context() as patch:
        patch.setattr("PIL.__version__", "0.0.1")
        assert "these options and Pillow 0.0.1 and simplejpeg" in run(status=2)
    assert snapshot(out) == before
    run()
    assert snapshot(out).items() >= before.items()
    assert set(read_manifest(out).options["made_by"]) == {"Pillow", "cykooz-resizer", "simplejpeg"}
    with monkeypatch.context() as patch:
        patch.setattr("PIL.__version__", "0.0.1")
        output = run(status=2)
        assert "Pillow 0.0.1 and " in output
        assert f"(but with Pillow {release} and " in output
    assert "with these options, or is damaged" in run(19, status=2)


def test_dry_run_estimates_sizes(tmp_path, invoke):
    """So few images are all converted for the estimate, which is exact without rejected images."""
    source = write_images(tmp_path / "images", range(6), ("cat", "dog"))
    source_bytes = sum(path.stat().st_size for path in source.glob("*/*"))
    call = ["convert", "--src", source, "--workers", 1]
    text = invoke(*call, "--resize-shorter", 20, "--dry-run").stdout
    invoke(*call, "--resize-shorter", 20, "--out", tmp_path / "out")
    stored_bytes = sum(row.size for row, _ in stored_samples(tmp_path / "out"))
    stored = f"about {stored_bytes / 1000:.1f} KB"
    assert f"{stored} to write" in text
    assert f"{source_bytes / 1000:.1f} KB for the images as they are" in text
    assert f"{stored} with --resize-shorter 20, measured on 6 images" in text
    assert "1.2 MB with --store raw --raw-size 256" in text  # 6 x 256 x 256 x 3
    plain = invoke(*call, "--dry-run").stdout
    assert "with --resize-shorter 256, measured on 6 images" in plain
    pixels = invoke(*call, "--store", "raw", "--raw-size", 64, "--dry-run").stdout
    assert f", {6 * 64 * 64 * 3 / 1000:.1f} KB to write" in pixels
