"""Images stored smaller: what comes out beside what Pillow makes of the whole image, and what stays untouched."""

from __future__ import annotations

import io
import json
import struct
from fractions import Fraction

import numpy as np
import PIL
import pytest
from helpers import oracles
from helpers.pictures import encode, photo
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps, TiffImagePlugin
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from dataprep.convert import convert_dataset
from dataprep.images.base import Rejected
from dataprep.images.downscale import prepare, target_size
from dataprep.images.resampling import sharpen
from dataprep.options import CHANGE_COLUMNS, Downscale, Options, Raw
from dataprep.sources import read_source
from dataprep.verify import verify_dataset
from manifests.errors import CallError
from manifests.schema import TABLE_COLUMNS
from manifests.store import read_manifest, read_table, read_table_metadata, samples

LANCZOS = Image.Resampling.LANCZOS
#: So that what is compared is the resizing, not the encoding.
FINE = {"quality": 100, "subsampling": "444"}


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def likeness(first: Image.Image, second: Image.Image) -> tuple[float, float]:
    """PSNR in dB and SSIM of two images of one size."""
    left, right = (np.asarray(image.convert("RGB")) for image in (first, second))
    assert left.shape == right.shape
    if np.array_equal(left, right):
        return float("inf"), 1.0
    return (
        peak_signal_noise_ratio(left, right),
        structural_similarity(left, right, channel_axis=2, win_size=min(7, *left.shape[:2]) // 2 * 2 - 1),
    )


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    return Image.fromarray(pytest.importorskip("skimage.data").astronaut())


def change_of(data: bytes, options: Options) -> str:
    return str(prepare(data, options).further["change"])


# --- sizes --------------------------------------------------------------------------------------

lengths = st.integers(1, 5000)


@given(lengths, lengths, st.none() | lengths, st.none() | lengths, st.none() | lengths)
def test_sizes(width, height, shorter, longest, only_above):
    to = Downscale(shorter=shorter, longest=longest, only_above=only_above)
    short, long = min(width, height), max(width, height)
    fits = short <= (shorter or short) and long <= (longest or long)
    left_alone = only_above is not None and (short if shorter else long) <= only_above
    size = target_size(width, height, to)
    assert (size is None) == (fits or left_alone)
    if size is None:
        return
    new_short, new_long = (min(size), max(size)) if width != height else size
    assert 1 <= size[0] <= width
    assert 1 <= size[1] <= height
    assert new_short <= (shorter or short)
    assert new_long <= (longest or long)
    assert new_short == shorter or new_long == longest  # as large as may be
    factor = min(Fraction(shorter or short, short), Fraction(longest or long, long))
    for side, new_side in zip((width, height), size, strict=True):
        assert abs(new_side - max(Fraction(1), side * factor)) <= Fraction(1, 2)


def test_the_sides_of_what_is_stored():
    data = encode(photo(1, 300, 200))
    assert prepare(data, Options(downscale=Downscale(shorter=50))).info.width == 75
    assert opened(prepare(data, Options(downscale=Downscale(longest=60))).data).size == (60, 40)
    both = prepare(data, Options(downscale=Downscale(shorter=50, longest=60)))
    assert opened(both.data).size == (60, 40) == (both.info.width, both.info.height)
    assert both.further == dict(zip(CHANGE_COLUMNS, (300, 200, "jpeg", "resized"), strict=True))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("to", [Downscale(200), Downscale(longest=300), Downscale(100, only_above=200), Downscale(999)])
def test_what_need_not_shrink_is_not_touched(kind, to):
    options = {"exif": TURNED[6]} if kind == "JPEG" else {}
    data = encode(photo(1, 300, 200), kind, **options)
    stored = prepare(data, Options(downscale=to))
    assert stored.data is data
    assert (stored.info.format, stored.info.width, stored.info.height) == (kind.lower(), 300, 200)
    assert stored.further["change"] == ""
    assert prepare(encode(photo(1, 301, 201), kind), Options(downscale=to)).further["change"] == (
        "" if to.shorter == 999 else "resized"
    )


def test_damage_in_an_untouched_image_is_found_if_asked_for():
    whole = encode(photo(1))
    damaged = whole[: len(whole) - 300] + b"\xff\xd9"
    assert prepare(damaged, Options(downscale=Downscale(100))).data is damaged
    with pytest.raises(Rejected, match="corrupt"):
        prepare(damaged, Options(downscale=Downscale(100), validate="decode"))
    with pytest.raises(Rejected, match="corrupt"):  # it cannot be resized
        prepare(damaged, Options(downscale=Downscale(20), validate="none"))


# --- pixels -------------------------------------------------------------------------------------

KINDS = {
    "baseline": ("JPEG", {"quality": 92}),
    "progressive": ("JPEG", {"quality": 92, "progressive": True}),
    "444": ("JPEG", {"quality": 92, "subsampling": 0}),
    "422": ("JPEG", {"quality": 92, "subsampling": 1}),
    "restarts": ("JPEG", {"restart_marker_blocks": 4}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {"quality": 90}),
    "lossless webp": ("WEBP", {"lossless": True}),
    "bmp": ("BMP", {}),
    "tiff": ("TIFF", {"compression": "tiff_lzw"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", [30, 60, 100, 200, 300, 500])
def test_as_good_as_resizing_the_whole_image(kind, side, picture):
    """Beside Pillow's Lanczos over all pixels, before encoding: so a JPEG decoded smaller loses nothing to be seen."""
    data = encode(picture, KINDS[kind][0], **KINDS[kind][1])
    expected = opened(data).convert("RGB").resize((side, side), LANCZOS)
    found = Image.frombytes("RGB", (side, side), prepare(data, Options(raw=Raw(side))).data)
    psnr, ssim = likeness(expected, found)
    assert psnr > 40
    assert ssim > 0.995
    jpeg = opened(prepare(data, Options(downscale=Downscale(side, **FINE))).data)
    assert jpeg.format == "JPEG"
    assert likeness(expected, jpeg)[0] > 38


@pytest.mark.parametrize("name", ["lanczos", "bicubic", "bilinear", "box"])
def test_filters(name, picture):
    data = encode(picture, "PNG")
    found = Image.frombytes("RGB", (300, 300), prepare(data, Options(raw=Raw(300, filter=name))).data)
    expected = picture.resize((300, 300), Image.Resampling[name.upper()])
    assert np.array_equal(np.asarray(found), np.asarray(expected))  # less than twice smaller: nothing is cut short


SUBSAMPLINGS = {0: "444", 1: "422", 2: "420"}


@pytest.mark.parametrize("stored", SUBSAMPLINGS)
@pytest.mark.parametrize("asked", ["keep", "444", "422", "420"])
def test_subsampling_and_quality(stored, asked, picture):
    import simplejpeg

    data = encode(picture, subsampling=stored)
    made = {q: prepare(data, Options(downscale=Downscale(100, quality=q, subsampling=asked))).data for q in (30, 90)}
    assert simplejpeg.decode_jpeg_header(made[90])[3] == (SUBSAMPLINGS[stored] if asked == "keep" else asked)
    assert len(made[30]) < len(made[90]) / 2
    as_pillow = opened(encode(picture.resize((100, 100)), quality=90)).quantization
    assert opened(made[90]).quantization == as_pillow


def test_gray_stays_gray(picture):
    for kind in ("JPEG", "PNG", "TIFF"):
        stored = opened(prepare(encode(picture.convert("L"), kind), Options(downscale=Downscale(100))).data)
        assert (stored.mode, stored.size) == ("L", (100, 100))
        assert likeness(stored, picture.convert("L").resize((100, 100), LANCZOS))[0] > 34


# --- turned -------------------------------------------------------------------------------------


def exif_of(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


TURNED = {orientation: exif_of(orientation) for orientation in range(10)}


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied_and_forgotten(orientation, kind, picture):
    data = encode(picture.crop((0, 0, 512, 300)), kind, exif=TURNED[orientation])
    stored = prepare(data, Options(downscale=Downscale(100, **FINE)))
    upright = ImageOps.exif_transpose(opened(data))
    image = opened(stored.data)
    assert image.getexif() == {}
    assert image.size == (stored.info.width, stored.info.height)
    assert likeness(image, upright.resize(image.size, LANCZOS))[0] > 37
    assert (stored.further["original_width"], stored.further["original_height"]) == (512, 300)
    assert stored.further["change"] == ("resized turned" if 2 <= orientation <= 8 else "resized")
    square = Image.frombytes("RGB", (64, 64), prepare(data, Options(raw=Raw(64))).data)
    assert likeness(square, ImageOps.fit(upright.convert("RGB"), (64, 64), LANCZOS))[0] > 37


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_turned_tiff(orientation, picture):
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[0x0112] = orientation
    data = encode(picture.crop((0, 0, 512, 300)), "TIFF", tiffinfo=tags)
    image = opened(prepare(data, Options(downscale=Downscale(100, **FINE))).data)
    upright = opened(data)
    assert image.size == ((100, 171) if orientation in (6, 8) else (171, 100))
    assert likeness(image, upright.resize(image.size, LANCZOS))[0] > 37


@pytest.mark.parametrize(
    "block", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12"]
)
def test_a_damaged_exif_block_harms_nothing(block, picture):
    data = encode(picture, exif=block)
    assert change_of(data, Options(downscale=Downscale(100))) == "resized"


# --- colours ------------------------------------------------------------------------------------

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def other_profile() -> bytes:
    """SRGB with red and green exchanged: a profile that nobody can overlook."""
    return SRGB.replace(b"rXYZ", b"tmp!").replace(b"gXYZ", b"rXYZ").replace(b"tmp!", b"gXYZ")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_profile_is_turned_to_srgb(kind, picture):
    data = encode(picture, kind, icc_profile=other_profile())
    source = ImageCms.ImageCmsProfile(io.BytesIO(other_profile()))
    expected = ImageCms.profileToProfile(opened(data), source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    expected = expected.resize((100, 100), LANCZOS)
    stored = prepare(data, Options(downscale=Downscale(100, **FINE)))
    assert stored.further["change"] == "resized icc"
    assert opened(stored.data).info.get("icc_profile") is None
    assert likeness(opened(stored.data), expected)[0] > 36
    assert likeness(expected, picture.resize((100, 100)))[0] < 25  # it was worth it


@pytest.mark.parametrize("profile", [SRGB, SRGB[:200], b"no profile", other_profile()[:-40]])
def test_profiles_that_change_nothing(profile, picture):
    data = encode(picture, "PNG", icc_profile=profile)
    stored = prepare(data, Options(downscale=Downscale(100, **FINE)))
    assert stored.further["change"] == "resized"
    assert stored.data == prepare(encode(picture, "PNG"), Options(downscale=Downscale(100, **FINE))).data


def test_a_gray_image_with_a_profile_of_colours(picture):
    data = encode(picture.convert("L"), icc_profile=other_profile())
    assert change_of(data, Options(downscale=Downscale(100))) == "resized"


def with_alpha(mode: str) -> Image.Image:
    """Transparent where the colour is another."""
    image = photo(3, 64, 64).convert(mode[:-1])
    image.putalpha(Image.linear_gradient("L").resize((64, 64)))
    return image


def odd_images() -> dict[str, tuple[bytes, str]]:
    """Images of all kinds that are not simply RGB, and what has to be done to them."""
    rgb = photo(3, 64, 64)
    deep = Image.fromarray(np.linspace(0, 65535, 4096).astype(np.uint16).reshape(64, 64))
    return {
        "rgb jpeg": (encode(rgb), ""),
        "gray jpeg": (encode(rgb.convert("L")), ""),
        "cmyk jpeg": (encode(rgb.convert("CMYK"), quality=95), "rgb"),
        "cmyk tiff": (encode(rgb.convert("CMYK"), "TIFF"), "rgb"),
        "palette png": (encode(rgb.convert("P"), "PNG"), "rgb"),
        "palette png, one colour transparent": (encode(rgb.convert("P"), "PNG", transparency=7), "rgb alpha"),
        "palette png, more or less transparent": (
            encode(rgb.convert("P"), "PNG", transparency=bytes(256)),
            "rgb alpha",
        ),
        "palette bmp": (encode(rgb.convert("P"), "BMP"), "rgb"),
        "one bit png": (encode(rgb.convert("1"), "PNG"), "rgb"),
        "16 bits png": (encode(deep, "PNG"), "rgb"),
        "16 bits tiff": (encode(deep, "TIFF"), "rgb"),
        "rgba png": (encode(with_alpha("RGBA"), "PNG"), "alpha"),
        "gray and alpha png": (encode(with_alpha("LA"), "PNG"), "alpha"),
        "rgba webp": (encode(with_alpha("RGBA"), "WEBP", lossless=True, exact=True), "alpha"),
        "rgba tiff": (encode(with_alpha("RGBA"), "TIFF"), "alpha"),
        "a colour transparent": (encode(rgb, "PNG", transparency=(0, 0, 0)), "alpha"),
    }


ODD = odd_images()


def decoded_by_dali(data: bytes) -> np.ndarray:
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        image = fn.external_source(lambda: [np.frombuffer(data, np.uint8)])
        return fn.decoders.image(image, device="cpu", output_type=types.RGB)

    pipe = pipeline()
    pipe.build()
    return np.asarray(pipe.run()[0].at(0))


@pytest.mark.parametrize("name", ODD)
def test_colours_are_those_that_dali_decodes(name):
    """So images that were resized, and others that were not, look alike to the loader."""
    data, change = ODD[name]
    stored = prepare(data, Options(raw=Raw(64)))
    assert stored.further["change"] == change
    ours = np.frombuffer(stored.data, np.uint8).reshape(64, 64, 3)
    # DALI decodes no CMYK in a TIFF.
    expected = np.asarray(opened(data).convert("RGB")) if name == "cmyk tiff" else decoded_by_dali(data)
    assert np.abs(ours.astype(int) - expected).max() <= 2
    resized = prepare(data, Options(downscale=Downscale(20)))
    assert resized.further["change"] == f"resized {change}".strip()
    assert opened(resized.data).mode == ("L" if name in GRAY else "RGB")


GRAY = ("gray jpeg", "one bit png", "16 bits png", "16 bits tiff", "gray and alpha png")


# --- what must not get through ------------------------------------------------------------------


def test_a_bomb_is_refused_before_it_is_decoded(monkeypatch):
    def never(*_, **__):
        raise AssertionError("was opened")

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + bytes(4)
    jpeg = encode(photo(1, 300, 200))
    monkeypatch.setattr(Image, "open", never)
    monkeypatch.setattr("simplejpeg.decode_jpeg", never)
    for options in (Options(downscale=Downscale(100)), Options(raw=Raw(100))):
        with pytest.raises(Rejected, match="too-large: 60000x60000"):
            prepare(bomb, options)
    with pytest.raises(Rejected, match="too-large: 300x200"):
        prepare(jpeg, Options(downscale=Downscale(100), max_pixels=50_000))


def test_a_jpeg_of_endless_scans_is_refused():
    whole = encode(photo(1), progressive=True)
    last = whole[whole.rindex(b"\xff\xda") : -2]
    for validate, options in (("header", {"downscale": Downscale(20)}), ("decode", {"downscale": Downscale(900)})):
        with pytest.raises(Rejected, match="more than 500 scans"):
            prepare(whole[:-2] + last * 600 + b"\xff\xd9", Options(validate=validate, **options))


@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (2, 5000), (5000, 3)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_long_narrow_images(size, kind):
    data = encode(photo(1, *size), kind)
    for options in (
        Options(downscale=Downscale(longest=50)),
        Options(raw=Raw(300)),  # to cover the square first would take 270 million pixels
        Options(raw=Raw(300, "pad")),
    ):
        stored = prepare(data, options)
        assert stored.info.width * stored.info.height in (50, 300 * 300)


def test_a_side_that_no_jpeg_has():
    data = encode(Image.new("L", (90_000, 3)), "PNG")
    with pytest.raises(Rejected, match=r"75000x2 pixels after resizing.*--max-side"):
        prepare(encode(Image.new("L", (150_000, 4)), "PNG"), Options(downscale=Downscale(2)))
    assert prepare(data, Options(downscale=Downscale(2))).info.width == 60_000


# --- a whole dataset ----------------------------------------------------------------------------

FORMATS = ("tfrecord", "webdataset")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """An ImageFolder of tiny, large, turned, odd and broken images, with a table that has a further column."""
    folder = tmp_path_factory.mktemp("mixed") / "images"
    files = {f"{number:02d} large.jpg": encode(photo(number, 640, 480)) for number in range(6)}
    files |= {f"{number:02d} tiny.png": encode(photo(number, 40, 30), "PNG") for number in range(4)}
    files |= {f"turned {turn}.jpg": encode(photo(turn, 320, 240), exif=TURNED[turn]) for turn in (3, 6)}
    files |= {"cmyk.jpg": encode(photo(9, 320, 240).convert("CMYK")), "rgba.webp": encode(photo(1, 300, 200), "WEBP")}
    whole = encode(photo(1, 640, 480))
    files |= {"broken.jpg": whole[:-2000] + b"\xff\xd9", "page.jpg": b"<html>", "cut.jpg": whole[:-900]}
    for number, (name, data) in enumerate(files.items()):
        path = folder / f"class {number % 3}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    rows = [
        f"{path.relative_to(folder.parent)},{path.parent.name},{n}" for n, path in enumerate(sorted(folder.glob("*/*")))
    ]
    (folder.parent / "list.csv").write_text("\n".join(["path,label,camera", *rows]) + "\n")
    return folder


def stored_samples(out):
    for split in read_manifest(out).splits:
        for shard in split.shards:
            data = (out / shard.name).read_bytes()
            for row in samples(read_table(out / shard.table.name)):
                yield row, data[row.offset : row.offset + row.size]


@pytest.mark.parametrize("fmt", FORMATS)
def test_same_bytes_for_any_number_of_workers_and_the_table_says_what_was_done(fmt, mixed, snapshot, tmp_path):
    options = Options(fmt=fmt, shard_samples=4, downscale=Downscale(100, longest=120))
    source = read_source(str(mixed))
    for workers in (1, 2, 3):
        convert_dataset(source, str(tmp_path / str(workers)), options, workers=workers)
    assert snapshot(tmp_path / "1") == snapshot(tmp_path / "2") == snapshot(tmp_path / "3")
    out = tmp_path / "1"
    assert verify_dataset(str(out), decode=True, workers=1).faults == ()
    found = {row.source.split("/")[1]: (row, data) for row, data in stored_samples(out)}
    assert len(found) == 14
    for name, (row, data) in found.items():
        came = next(mixed.glob(f"*/{name}")).read_bytes()
        assert (row.extra["original_width"], row.extra["original_height"]) == opened(came).size
        assert (row.width, row.height) == opened(data).size
        assert (row.extra["change"] == "") == (data == came) == ("tiny" in name)
        assert row.extra["original_format"] == opened(came).format.lower()
    assert found["turned 6.jpg"][0].extra["change"] == "resized turned"
    assert found["cmyk.jpg"][0].extra["change"] == "resized rgb"
    rejected = [json.loads(line) for line in (out / "rejected.jsonl").read_text().splitlines()]
    assert {(line["source"].split("/")[1], line["reason"]) for line in rejected} == {
        ("broken.jpg", "corrupt"), ("page.jpg", "not-an-image"), ("cut.jpg", "truncated"),
    }  # fmt: skip


@pytest.mark.parametrize("fmt", FORMATS)
def test_other_readers_find_it_in_the_record_too(fmt, mixed, tmp_path):
    out = tmp_path / "out"
    convert_dataset(
        read_source(str(mixed.parent / "list.csv")), str(out), Options(fmt=fmt, downscale=Downscale(100)), workers=1
    )
    rows = [row for row, _ in stored_samples(out)]
    assert list(rows[0].extra) == ["camera", *CHANGE_COLUMNS]
    shard = out / ("train-00000.tar" if fmt == "webdataset" else "train-00000.tfrecord")
    if fmt == "webdataset":
        records = [json.loads(sample["json"]) for sample in oracles.read_with_webdataset(shard)]
        assert [{name: record[name] for name in row.extra} for record, row in zip(records, rows, strict=True)] == [
            dict(row.extra) for row in rows
        ]
        return
    records = [oracles.parse_example(payload) for payload in oracles.read_tfrecord(shard)]
    for record, row in zip(records, rows, strict=True):
        assert record["original_width"] == [row.extra["original_width"]]
        assert record["change"] == [row.extra["change"].encode()]
        assert record["image/width"] == [row.width]


def test_a_dataset_without_these_options_says_nothing_of_them(mixed, tmp_path):
    convert_dataset(read_source(str(mixed)), str(tmp_path / "out"), Options(), workers=1)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert not {"downscale", "raw"} & set(manifest["options"])
    assert "pixels" not in manifest
    assert tuple(read_table(tmp_path / "out" / "train-00000.parquet").column_names) == TABLE_COLUMNS


def test_other_options_are_another_dataset(mixed, tmp_path, snapshot):
    source, out = read_source(str(mixed)), tmp_path / "out"
    convert_dataset(source, str(out), Options(downscale=Downscale(100)), workers=1)
    before = snapshot(out)
    others = [
        Options(),
        Options(raw=Raw(64)),
        *(Options(downscale=Downscale(**choice)) for choice in (
            {"shorter": 101}, {"shorter": 100, "longest": 900}, {"shorter": 100, "only_above": 300},
            {"shorter": 100, "quality": 91}, {"shorter": 100, "subsampling": "444"}, {"shorter": 100, "filter": "box"},
        )),
    ]  # fmt: skip
    for options in others:
        with pytest.raises(CallError, match="not of this source with these options"):
            convert_dataset(source, str(out), options, workers=1)
        assert snapshot(out) == before
    result = convert_dataset(source, str(out), Options(downscale=Downscale(100)), workers=1)
    assert (result.resumed, snapshot(out)) == (1, before)
    convert_dataset(source, str(out), others[-1], workers=1, overwrite=True)
    assert read_manifest(out).options["downscale"]["filter"] == "box"


def test_a_run_that_stopped_does_not_go_on_with_another_release(mixed, tmp_path, snapshot, monkeypatch):
    """Which might encode otherwise, so that one dataset would be of two makes."""
    source, out = read_source(str(mixed)), tmp_path / "out"
    options = Options(downscale=Downscale(100), shard_samples=2)
    convert_dataset(source, str(out), options, workers=1)
    (out / "manifest.json").unlink()
    before = snapshot(out)
    assert read_table_metadata(out / "train-00000.parquet").conversion.plan
    with monkeypatch.context() as patch:
        patch.setattr("PIL.__version__", "0.0.1")
        with pytest.raises(CallError, match=r"these options and Pillow 0\.0\.1 and simplejpeg \d"):
            convert_dataset(source, str(out), options, workers=1)
    assert snapshot(out) == before
    assert convert_dataset(source, str(out), options, workers=1).resumed == len(list(out.glob("*.parquet")))
    assert set(read_manifest(out).options["made_by"]) == {"Pillow", "simplejpeg"}
    release = PIL.__version__
    with monkeypatch.context() as patch:
        patch.setattr("PIL.__version__", "0.0.1")
        with pytest.raises(CallError, match=rf"Pillow 0\.0\.1 and .* \(but with Pillow {release} and .*options and"):
            convert_dataset(source, str(out), options, workers=1)
    with pytest.raises(CallError, match="with these options, or is damaged"):
        convert_dataset(source, str(out), Options(downscale=Downscale(99), shard_samples=2), workers=1)


@pytest.mark.parametrize(
    "options",
    [Options(raw=Raw(256, "pad")), Options(raw=Raw(8)), Options(downscale=Downscale(longest=256))],
    ids=["pad", "crop", "smaller"],
)
def test_long_thin_images_are_sharpened_no_more_than_numbers_hold(options, monkeypatch):
    """Few pixels are left of a side that a JPEG's blocks do not divide evenly."""
    strengths = []

    def noted(pixels, strength):
        strengths.append(strength)
        return sharpen(pixels, strength)

    monkeypatch.setattr("dataprep.images.resampling.sharpen", noted)
    for short in range(1, 80):
        for size in ((4096, short), (short, 4096)):
            prepare(encode(Image.new("RGB", size, "white"), "JPEG"), options)
    assert strengths
    assert 0 <= min(strengths) <= max(strengths) <= 0.015


def test_a_column_of_the_same_name_is_refused(mixed, tmp_path):
    table = mixed.parent / "clash.csv"
    table.write_text("path,label,change\nimages/class 0/00 large.jpg,1,2\n")
    source = read_source(str(table))
    for options in (Options(downscale=Downscale(9)), Options(raw=Raw(9))):
        with pytest.raises(CallError, match=r"a column 'change'.*rename it"):
            convert_dataset(source, str(tmp_path / "out"), options, workers=1)


def test_shards_are_cut_by_what_is_stored(tmp_path, make_photos):
    """Large images that become small ones do not leave a host of tiny shards."""
    folder = make_photos(tmp_path / "photos", 60, side=200)
    source = read_source(str(folder))
    lengths = {}
    for name, options in (
        ("came", Options(shard_bytes=100_000)),
        ("small", Options(shard_bytes=100_000, downscale=Downscale(16))),
        ("raw", Options(shard_bytes=100_000, raw=Raw(16))),
    ):
        manifest = convert_dataset(source, str(tmp_path / name), options, workers=1).manifest
        lengths[name] = [shard.samples for shard in manifest.splits[0].shards]
    assert len(lengths["came"]) > 3
    assert lengths["small"] == [60]
    assert lengths["raw"] == [60]


# --- the command --------------------------------------------------------------------------------


def test_the_table_at_the_end(mixed, tmp_path, invoke):
    call = ["convert", "--src", mixed, "--resize-shorter", 100, "--out", tmp_path / "out", "--max-rejected", 1]
    call += ["--workers", 1, "--samples-per-shard", 4]
    lines = [line.split() for line in invoke(*call).stdout.splitlines()]
    total = sum(path.stat().st_size for path in mixed.glob("*/*.*"))
    counts = {line[0]: line[1] for line in lines if line and line[0] in ("kept", "resized", "rejected", "all")}
    assert counts == {"kept": "4", "resized": "10", "rejected": "3", "all": "17"}
    text = invoke(*call).stdout  # all done by an earlier run: the same is told
    assert "4 shards were done by an earlier run" in text
    assert "repaired: 3 images (rotated upright 2, converted to RGB 1)" in text
    assert f"{total / 1000:,.1f} KB" in text
    assert "kept" not in invoke("convert", "--src", mixed, "--out", tmp_path / "b", "--max-rejected", 1).stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--quality", 80], "--quality 80 requires --resize-shorter or --max-side"),
        (["--subsampling", "444"], "--subsampling 444 requires --resize-shorter"),
        (["--filter", "box"], "--filter box requires"),
        (["--only-above", 500], "--only-above 500 requires"),
        (["--raw-size", 64], "--raw-size 64 requires --store raw"),
        (["--raw-fit", "pad"], "--raw-fit pad requires --store raw"),
        (["--store", "raw", "--resize-shorter", 64], "--resize-shorter 64 cannot be used with --store raw"),
        (["--store", "raw", "--quality", 64], "--quality 64 cannot be used with --store raw"),
        (["--resize-shorter", 256, "--only-above", 200], "--only-above 200 is less than --resize-shorter 256"),
        (["--max-side", 256, "--only-above", 200], "--only-above 200 is less than --max-side 256"),
        (["--resize-shorter", 0], "--resize-shorter"),
        (["--quality", 101, "--max-side", 9], "--quality"),
    ],
)
def test_calls_that_make_no_sense(options, words, mixed, tmp_path, invoke):
    result = invoke("convert", "--src", mixed, "--out", tmp_path / "out", *options, status=2)
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_each_way_takes(mixed, tmp_path, invoke):
    """Every image of so few is tried, so that the estimate is exact but for those that are rejected."""
    sound = tmp_path / "sound"
    for path in sorted(mixed.glob("*/*large*")):
        (sound / path.parent.name).mkdir(parents=True, exist_ok=True)
        (sound / path.parent.name / path.name).write_bytes(path.read_bytes())
    came = sum(path.stat().st_size for path in sound.glob("*/*"))
    text = invoke("convert", "--src", sound, "--resize-shorter", 100, "--dry-run", "--workers", 1).stdout
    invoke("convert", "--src", sound, "--resize-shorter", 100, "--out", tmp_path / "out", "--workers", 1)
    stored = sum(row.size for row, _ in stored_samples(tmp_path / "out"))
    assert f"about {stored / 1000:.1f} KB to write" in text
    assert f"{came / 1000:.1f} KB for the images as they are" in text
    assert f"about {stored / 1000:.1f} KB with --resize-shorter 100, measured on 6 images" in text
    assert "1.2 MB with --store raw --raw-size 256" in text  # 6 x 256 x 256 x 3
    plain = invoke("convert", "--src", sound, "--dry-run", "--workers", 1).stdout
    assert "with --resize-shorter 256, measured on 6 images" in plain
    raw = invoke("convert", "--src", sound, "--store", "raw", "--raw-size", 64, "--dry-run", "--workers", 1).stdout
    assert f", {6 * 64 * 64 * 3 / 1000:.1f} KB to write" in raw
