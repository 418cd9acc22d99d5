"""Single images through `prepare`: size, quality, and what is rejected.

Colors are tested in test_pixels.py.
"""

from __future__ import annotations

import PIL
import pytest
from helpers.bad_images import exif
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
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from manifests.errors import CallError
from manifests.store import read_manifest
from manifests.tables import read_table_metadata

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


pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """An ImageFolder of tiny, large, rotated, CMYK and damaged images."""
    folder = tmp_path_factory.mktemp("mixed") / "images"
    whole = encode(photo(1, 640, 480))
    files = {f"{number:02d} large.jpg": encode(photo(number, 640, 480)) for number in range(6)}
    files |= {f"{number:02d} tiny.png": encode(photo(number, 40, 30), "PNG") for number in range(4)}
    for value in (3, 6):
        files[f"orientation {value}.jpg"] = encode(photo(value, 320, 240), exif=exif(value))
    files |= {
        "cmyk.jpg": encode(photo(9, 320, 240).convert("CMYK")),
        "rgba.webp": encode(photo(1, 300, 200), "WEBP"),
        "broken.jpg": whole[:-2000] + b"\xff\xd9",
        "page.jpg": b"<html>",
        "cut.jpg": whole[:-900],
    }
    for number, (name, data) in enumerate(files.items()):
        path = folder / f"class {number % 3}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_resume_refuses_other_library_versions(mixed, tmp_path, snapshot, monkeypatch):
    """Another version might encode differently, so the shards of a dataset would not be consistent."""
    source, out = read_source(str(mixed)), tmp_path / "out"
    options = Options(downscale=Downscale(100), shard_samples=2)
    convert_dataset(source, str(out), options, workers=1)
    (out / "manifest.json").unlink()
    before = snapshot(out)
    assert read_table_metadata(out / "train-00000.parquet").plan
    with monkeypatch.context() as patch:
        patch.setattr("PIL.__version__", "0.0.1")
        with pytest.raises(CallError, match=r"these options and Pillow 0\.0\.1 and simplejpeg \d"):
            convert_dataset(source, str(out), options, workers=1)
    assert snapshot(out) == before
    assert convert_dataset(source, str(out), options, workers=1).resumed == len(
        list(out.glob("*.parquet"))
    )
    assert set(read_manifest(out).options["made_by"]) == {"Pillow", "cykooz-resizer", "simplejpeg"}
    release = PIL.__version__
    with monkeypatch.context() as patch:
        patch.setattr("PIL.__version__", "0.0.1")
        with pytest.raises(
            CallError, match=rf"Pillow 0\.0\.1 and .* \(but with Pillow {release} and .*options and"
        ):
            convert_dataset(source, str(out), options, workers=1)
    with pytest.raises(CallError, match="with these options, or is damaged"):
        convert_dataset(
            source, str(out), Options(downscale=Downscale(99), shard_samples=2), workers=1
        )


# --- the command ----------------------------------------------------------------------------------


def test_dry_run_estimates_sizes(mixed, tmp_path, invoke):
    """So few images are all converted for the estimate, which is exact without rejected images."""
    intact = tmp_path / "intact"
    for path in sorted(mixed.glob("*/*large*")):
        (intact / path.parent.name).mkdir(parents=True, exist_ok=True)
        (intact / path.parent.name / path.name).write_bytes(path.read_bytes())
    source_bytes = sum(path.stat().st_size for path in intact.glob("*/*"))
    call = ["convert", "--src", intact, "--workers", 1]
    text = invoke(*call, "--resize-shorter", 100, "--dry-run").stdout
    invoke(*call, "--resize-shorter", 100, "--out", tmp_path / "out")
    stored_bytes = sum(row.size for row, _ in stored_samples(tmp_path / "out"))
    stored = f"about {stored_bytes / 1000:.1f} KB"
    assert f"{stored} to write" in text
    assert f"{source_bytes / 1000:.1f} KB for the images as they are" in text
    assert f"{stored} with --resize-shorter 100, measured on 6 images" in text
    assert "1.2 MB with --store raw --raw-size 256" in text  # 6 x 256 x 256 x 3
    plain = invoke(*call, "--dry-run").stdout
    assert "with --resize-shorter 256, measured on 6 images" in plain
    raw = invoke(*call, "--store", "raw", "--raw-size", 64, "--dry-run").stdout
    assert f", {6 * 64 * 64 * 3 / 1000:.1f} KB to write" in raw
