"""Images of more than 8 bits or other channels come back bit for bit, or are refused by name."""

import json
import re
import shutil
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pydicom
import pytest
from helpers import pixel_kinds as files_of
from helpers.datasets import FORMATS
from helpers.object_stores import upload
from helpers.parsing import valid_arguments
from helpers.pixel_kinds import H, W, cloud, jpeg2000, png, tiff, values
from helpers.rows import evaluate, read_named, read_rows
from PIL import Image

import loaders
from loaders.export.command import export
from loaders.transforms.parse import known_transforms
from manifests.errors import CallError
from manifests.pixels import show_bands
from manifests.store import read_manifest

TIFFS = {
    "plain": {}, "strips": {"rowsperstrip": 5}, "deflate": {"compression": "zlib"},
    "predictor": {"compression": "zlib", "predictor": 2}, "tiles": {"tile": (16, 16)},
    "deflated tiles": {"tile": (16, 32), "compression": "zlib"}, "big-endian": {"byteorder": ">"},
    "bigtiff": {"bigtiff": True},
}  # fmt: skip
if find_spec("imagecodecs"):
    TIFFS |= {
        "packbits": {"compression": "packbits"},
        "lzw": {"compression": "lzw", "predictor": 2},
        "zstd tiles": {"compression": "zstd", "tile": (16, 16)},
    }
_RGB = {"photometric": "rgb", "bigtiff": True, "byteorder": ">"}


def variants():
    """Yield name, type, channels, suffix, and the encoder of an array."""
    for name, options in TIFFS.items():
        for dtype in ("uint8", "uint16", "float32"):
            for channels in (1, 2, 3, 4, 5, 13) if name == "plain" else (1, 3, 13):
                is_picture = dtype == "uint8" and channels in (1, 3)
                if not is_picture and (dtype != "float32" or "predictor" not in options):
                    yield (
                        f"{name} {dtype} x{channels}",
                        dtype,
                        channels,
                        "tif",
                        partial(tiff, **options),
                    )
        if not _RGB.keys() & options.keys():
            yield f"rgb {name}", "uint8", 3, "tif", partial(tiff, **_RGB, **options)
    for suffix in ("jp2", "j2k"):
        for kind in ("uint8 x1", "uint8 x4", "uint16 x1", "uint16 x3", "uint16 x4"):
            dtype, _, channels = kind.partition(" x")
            if (suffix, kind) != ("jp2", "uint8 x4"):
                encoder = partial(jpeg2000, suffix=suffix)
                yield f"{suffix} {kind}", dtype, int(channels), suffix, encoder
    for channels in (1, 3, 4):
        yield f"png x{channels}", "uint16", channels, "png", png
    yield "overviews uint16 x13", "uint16", 13, "tif", cloud
    yield "overviews uint8 x3", "uint8", 3, "tif", partial(cloud, photometric="rgb")


VARIANTS = {name: tuple(variant) for name, *variant in variants()}


@pytest.fixture(scope="session")
def invoke(dataprep):
    """A function that runs the command line and checks its exit status."""

    def run(*arguments, status=0):
        result = dataprep(*arguments)
        assert result.returncode == status, result.stdout + result.stderr
        return result

    return run


@pytest.fixture
def convert(tmp_path, invoke):
    """A function that converts the files in the folder "src", and returns the dataset and what is printed."""

    def run(*options, status=0):
        plan = ("--src", tmp_path / "src", "--out", tmp_path / "out", "--no-shuffle")
        return tmp_path / "out", invoke("convert", *plan, *options, status=status).stderr

    return run


def put(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files of one class."""
    (folder / "a").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / "a" / name).write_bytes(data)
    return folder


def write(folder: Path, name: str, count: int = 3) -> list[np.ndarray]:
    dtype, channels, suffix, encoder = VARIANTS[name]
    arrays = [values(dtype, channels, seed) for seed in range(count)]
    put(folder, {f"{number}.{suffix}": encoder(array) for number, array in enumerate(arrays)})
    return arrays


def build(out, **options):
    kwargs = {"split": "train", "batch_size": 1, "device": "cpu", "shuffle": False}
    return loaders.build(str(out), **{**kwargs, "transforms": [], "framework": "numpy", **options})


def read(out, **options):
    """Return the images of a dataset, each of shape [H, W, C]."""
    with build(out, layout="NHWC", **options) as loader:
        return [batch[0] for batch, *_ in loader]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("kind", dict.fromkeys(each[:2] for each in VARIANTS.values()), ids=str)
def test_pixels_come_back_bit_for_bit(kind, fmt, tmp_path, invoke):
    """A dataset has images of all files of a kind; half of the datasets are made of an archive."""
    dtype, channels = kind
    arrays, source, out = [], tmp_path / "src", tmp_path / "out"
    names = [name for name, variant in VARIANTS.items() if variant[:2] == kind]
    for seed, name in enumerate(names):
        _, _, suffix, encoder = VARIANTS[name]
        arrays.append(values(dtype, channels, seed))
        put(source, {f"{seed}.{suffix}": encoder(arrays[-1])})
    if (fmt == "tfrecord") == channels % 2:
        source = shutil.make_archive(str(tmp_path / "src"), "zip", source)
    plan = ("convert", "--src", source, "--out", out, "--fmt", fmt, "--validate", "decode")
    unusual = f"of {dtype}" * ((channels, dtype) != (3, "uint8"))
    assert unusual in invoke(*plan).stderr
    invoke("verify", out, "--decode", "--workers", 1)
    assert read_manifest(str(out)).kind == (channels, dtype)
    assert unusual in invoke("info", out).stdout
    found = read(out, dtype=dtype)
    assert {each.dtype for each in found} == {np.dtype(dtype)}
    assert sorted(each.tobytes() for each in found) == sorted(each.tobytes() for each in arrays)


def test_buckets_archives_and_indexes_have_every_kind(tmp_path, bucket, invoke):
    kinds = ["png x3", "j2k uint16 x3", "deflated tiles uint16 x13", "overviews uint8 x3"]
    for number, name in enumerate([*kinds, "plain float32 x1", "plain uint8 x4"]):
        dtype, channels, *_ = VARIANTS[name]
        folder, url = tmp_path / str(number), f"{bucket.url}/{number}"
        arrays = write(folder / "src", name)
        source = upload(folder / "src", f"{url}/src")
        if number % 2:
            packed = shutil.make_archive(str(folder / "src"), "tar", folder / "src")
            bucket.put(f"{number}.tar", Path(packed).read_bytes())
            source = f"{bucket.url}/{number}.tar"
        fmt = ("--fmt", FORMATS[number // 2 % 2])
        invoke("convert", "--src", source, "--out", f"{url}/out", *fmt)
        invoke("verify", f"{url}/out", "--decode", "--workers", 1)
        invoke("convert", "--src", f"{url}/out", "--out", folder / "out", *fmt)
        (folder / "index").mkdir()
        for shard in folder.glob("out/train-00000.t*"):
            (folder / "index" / shard.name).write_bytes(shard.read_bytes())
        invoke("index", folder / "index")
        for other, cache in ((f"{url}/out", {"cache": folder / "cache"}), (folder / "index", {})):
            assert "the same samples" in invoke("diff", folder / "out", other).stdout
            assert read_manifest(str(other)).kind == (channels, dtype)
            found = {each.tobytes() for each in read(other, dtype=dtype, **cache)}
            assert found == {array.tobytes() for array in arrays}


#: Transforms that cut images into patches or into several.
_RESHAPED = {"Patchify", "FiveCrop", "TenCrop"}


@pytest.mark.parametrize("kind", ["plain uint16 x13", "plain float32 x1", "plain uint8 x4"])
def test_every_transform_keeps_channels_and_bits_or_is_refused(kind, tmp_path, convert):
    arrays = write(tmp_path / "src", kind)
    (out, _), channels = convert(), arrays[0].shape[2]
    told = f"dataset has {channels} channel|one for each channel|decode"
    kept, wrong = set(), {}
    for name in known_transforms():
        arguments = {"lambd": np.array} if name == "Lambda" else valid_arguments(name)
        steps = [{"CenterCrop": {"size": 32}}, {name: arguments}]
        try:
            with build(out, transforms=steps, dtype="float32", layout="NHWC") as loader:
                found, *_ = next(iter(loader))
        except CallError as error:
            if not re.search(told, str(error)):
                wrong[name] = str(error)
            continue
        kept.add(name)
        # Pixels of 8 bits would have at most 256 values.
        is_fine = arrays[0].dtype == np.uint8 or len(np.unique(found)) > min(256, found.size // 4)
        if not (is_fine and (name in _RESHAPED or found.shape[3] == channels)):
            wrong[name] = (found.shape, len(np.unique(found)))
    assert not wrong
    assert kept >= {"RandomResizedCrop", "Resize", "RandomRot90", "Pad", "ToTensor"}
    assert not kept & {"ColorJitter", "MixUp", "RandAugment", "RandomErasing"}


@pytest.fixture(scope="module")
def bands(tmp_path_factory, invoke):
    """A dataset of 13 bands of uint16."""
    folder = tmp_path_factory.mktemp("bands")
    arrays = write(folder / "src", "deflate uint16 x13", 8)
    invoke("convert", "--src", folder / "src", "--out", folder / "out", "--no-shuffle")
    return folder / "out", np.stack(arrays)


def test_a_preview_shows_three_bands(bands, tmp_path):
    mean = {"Normalize": {"mean": [0.5] * 13, "std": [0.1] * 13}}
    loader = build(bands[0], transforms=["ToTensor", mean], dtype="float32")
    preview = loader.preview(samples=2)
    assert "bands 4, 3, 2" in str(preview.notes)
    for item in preview.items:
        assert np.abs(item.original.astype(int) - item.draws[0].pixels).max() <= 1
        assert item.original.std() > 50
    preview.save(tmp_path / "preview.html")
    with np.errstate(all="raise"):
        assert not show_bands(np.full((2, 3, 13), 7.0)).any()  # a band of one value is black


def test_normalize_takes_a_mean_for_each_channel(bands):
    out, arrays = bands
    mean, std = np.linspace(0.1, 0.7, 13), np.linspace(0.2, 0.4, 13)
    steps = ["ToTensor", {"Normalize": {"mean": mean.tolist(), "std": std.tolist()}}]
    found = np.stack(read(out, transforms=steps, dtype="float32"))
    expected = (arrays / 65535 - mean) / std
    assert np.abs(found - expected).max() < 1e-5
    raw = [{"NormalizeImage": {"scale": 1.0, "mean": (mean * 1e4).tolist(), "std": [1e3] * 13}}]
    found = np.stack(read(out, transforms=raw, dtype="float32"))
    assert np.abs(found - (arrays - mean * 1e4) / 1e3).max() < 1e-4


def test_resized_pixels_are_close_to_a_triangle_filter(bands):
    """Pillow's filter takes the pixels around its box: here, the repeated border."""
    out, arrays = bands
    steps, box = [{"Resize": {"size": [20, 24]}}], (3, 3, 3 + W, 3 + H)
    with build(out, transforms=steps, dtype="uint16", layout="NHWC", batch_size=8) as loader:
        ((found, _),) = loader
    for image, pixels in zip(found, arrays, strict=True):
        for band, stored in zip(image.transpose(2, 0, 1), pixels.transpose(2, 0, 1), strict=True):
            padded = Image.fromarray(np.pad(stored, 3, "edge").astype(np.float32))
            expected = padded.resize((24, 20), Image.Resampling.BILINEAR, box=box)
            assert np.abs(band - np.asarray(expected)).max() <= 65535 / 2**15


CROP = [{"RandomCrop": {"size": 16}}, "RandomHorizontalFlip", "RandomVerticalFlip"]
ORDERS = {
    "pk": {"sampler": loaders.PKSampler(1, 2)},
    "views": {"views": [CROP, CROP], "transforms": []},
    "cache": {"sampler": loaders.ShuffledSampler()},
}


@pytest.mark.parametrize("order", ORDERS)
def test_crops_and_flips_move_all_channels_together(bands, order, tmp_path):
    out, arrays = bands
    options = {"batch_size": 2, "shuffle": None, "transforms": CROP, **ORDERS[order]}
    if order == "cache":
        out = upload(out, f"memory://bucket/{tmp_path.name}")
        options["cache"] = tmp_path / "cache"
    images = next(iter(build(out, dtype="uint16", **options)))[0]
    stored = {each.tobytes() for each in arrays.reshape(-1, 13)}
    for image in images if order == "views" else [images]:
        assert (image.shape, image.dtype) == ((2, 13, 16, 16), np.uint16)
        assert {each.tobytes() for each in image.transpose(0, 2, 3, 1).reshape(-1, 13)} <= stored


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_the_loader_refuses_what_it_cannot_do(bands, row, message):
    with pytest.raises(CallError, match=message) as caught:
        build(bands[0], **{"dtype": "float32", **evaluate(row)})
    assert caught.value.hint or "13 numbers" in message


@pytest.mark.parametrize("name", ["png x1", "png x3", "png x4", "predictor uint16 x13"])
def test_statistics_make_the_normalization(name, tmp_path, convert, invoke):
    """The printed transform makes the mean 0 and the deviation 1, and tables have what NumPy finds."""
    arrays = write(tmp_path / "src", name)
    (out, _), again = convert("--statistics"), tmp_path / "again"
    table = pq.read_table(next(out.glob("*.parquet")))
    for column, function in (("band_min", np.min), ("band_mean", np.mean), ("band_std", np.std)):
        expected = [function(each.reshape(-1, each.shape[2]), 0) for each in arrays]
        assert np.allclose(table[column].to_pylist(), expected, rtol=1e-12)
    line = invoke("info", out).stdout.rpartition("after ToTensor: ")[2].strip()
    steps = ["ToTensor", eval(line, {"Normalize": lambda **values: {"Normalize": values}})]
    found = np.stack(read(out, transforms=steps, dtype="float32"))
    assert np.abs(found.mean((0, 1, 2))).max() < 1e-4
    assert np.abs(found.std((0, 1, 2)) - 1).max() < 1e-4
    invoke("report", out, "--out", tmp_path / "report.html")
    assert line in (tmp_path / "report.html").read_text()
    # The columns are made again from the shard, and a copy keeps them.
    next(out.glob("*.parquet")).unlink()
    assert "rebuilt from" in invoke("repair", out).stdout
    assert pq.read_table(next(out.glob("*.parquet"))) == table
    invoke("convert", "--src", out, "--out", again, "--fmt", "webdataset", "--no-shuffle")
    assert pq.read_table(next(again.glob("*.parquet")))["band_std"] == table["band_std"]


def test_statistics_leave_out_pixels_without_data(tmp_path, convert):
    array = values("float32", 2)
    array[:4, :, 0], array[0, 0, 1] = -9999, np.nan
    data = tiff(array, extratags=[(42113, "s", 0, "-9999", True)])
    put(tmp_path / "src", {"1.tif": data})
    out, _ = convert("--statistics")
    (row,) = pq.read_table(next(out.glob("*.parquet"))).to_pylist()
    assert np.allclose(row["band_nodata"], [4 / H, 1 / (H * W)])
    assert row["band_min"] == [array[4:, :, 0].min(), np.nanmin(array[..., 1])]


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_georeference_is_in_the_tables(fmt, tmp_path, convert, invoke):
    scale, point = [10.0, 10.0, 0.0], [0.0] * 3 + [399960.0, 4500000.123456, 0.0]
    keys = (1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 32633)
    tags = [
        (33550, "d", 3, scale, True),
        (33922, "d", 6, point, True),
        (34735, "H", 12, keys, True),
    ]
    big_endian = tiff(BANDS, extratags=tags, byteorder=">")
    files = {"0.tif": cloud(BANDS, extratags=tags), "1.tif": big_endian, "2.tif": tiff(BANDS)}
    put(tmp_path / "src", files)
    out, _ = convert("--fmt", fmt, "--georeference")
    invoke("verify", out, "--decode", "--workers", 1)
    table = pq.read_table(next(out.glob("*.parquet")))
    assert table["geo_epsg"].to_pylist() == [32633, 32633, None]
    assert table["geo_scale"].to_pylist() == [scale, scale, None]
    assert table["geo_tiepoint"].to_pylist() == [point, point, None]
    assert "images by EPSG code: 32633 (2), none (1)" in invoke("info", out).stdout
    next(out.glob("*.parquet")).unlink()
    assert "rebuilt from" in invoke("repair", out).stdout


@pytest.mark.parametrize(
    "name", ["png x3", "plain uint8 x4", "plain float32 x1", "deflate uint16 x13"]
)
@pytest.mark.parametrize("fmt", FORMATS)
def test_raw_pixels_come_back_bit_for_bit(name, fmt, tmp_path, invoke):
    dtype, channels, suffix, encoder = VARIANTS[name]
    arrays = [values(dtype, channels, seed % 4)[:, :H] for seed in range(5)]
    put(tmp_path / "src", {f"{n}.{suffix}": encoder(each) for n, each in enumerate(arrays)})
    raw, encoded = tmp_path / "raw", tmp_path / "encoded"
    source = ("convert", "--src", tmp_path / "src", "--fmt", fmt, "--no-shuffle")
    invoke(*source, "--out", raw, "--store", "raw", "--raw-size", H)
    invoke(*source, "--out", encoded)
    invoke("verify", raw, "--decode", "--workers", 1)
    invoke("convert", "--src", raw, "--out", tmp_path / "again", "--store", "raw", "--raw-size", H)
    for folder in (tmp_path / "src", raw, encoded):
        assert "1 copy with the same bytes" in invoke("duplicates", folder).stdout
    steps = [{"RandomCrop": {"size": 24}}, {"Resize": {"size": [16, 16]}}, "RandomHorizontalFlip"]
    for folder in (raw, tmp_path / "again"):
        found = {each.tobytes() for each in read(folder, dtype=dtype)}
        assert found == {each.tobytes() for each in arrays}
    options = {"transforms": steps, "dtype": dtype, "batch_size": 4}
    one, other = (next(iter(build(each, **options)))[0] for each in (raw, encoded))
    assert np.array_equal(one, other)


#: Ends of names of images that packages ship.
PACKAGED = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".gif", ".jp2", ".dcm")  # fmt: skip


def read_dicom(path: Path, row: dict) -> np.ndarray:
    """Read a file as pydicom does: RGB of 8 bits, or the stored values of the rescaled ones."""
    file = pydicom.dcmread(path)
    pixels = file.pixel_array
    if row.get("rescale_slope") is not None:
        slope, intercept = file.get("RescaleSlope") or 1, file.get("RescaleIntercept") or 0
        rescaled = pixels * float(slope) + float(intercept)
        return ((rescaled - row["rescale_intercept"]) / row["rescale_slope"])[..., None]
    if file.PhotometricInterpretation == "MONOCHROME1":
        pixels = 255 - pixels
    return pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)


def read_packaged(path: Path, row: dict) -> np.ndarray:
    """Read a file as its library does: whole, and RGB if it has 8 bits."""
    if path.suffix == ".dcm":
        return read_dicom(path, row)
    pixels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype == np.uint8:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return pixels[..., ::-1] if pixels.shape[2] == 3 else pixels


@pytest.mark.parametrize("kind", [(3, "uint8"), (3, "uint16"), (1, "uint16")])
def test_files_of_installed_packages_come_back_whole(kind, tmp_path, invoke):
    """Each image in an installed package is rejected by name, or read as its library reads it."""
    files = {}
    for folder in {Path(each) for each in sys.path if each.endswith("-packages")}:
        for path in folder.rglob("*.*"):
            if path.suffix.lower() in PACKAGED:
                package, name = path.relative_to(folder).parts[0], f"{len(files)}{path.suffix}"
                (tmp_path / "src" / package).mkdir(parents=True, exist_ok=True)
                files[f"{package}/{name}"] = path
                (tmp_path / "src" / package / name).write_bytes(path.read_bytes())
    out, (channels, dtype) = tmp_path / "out", kind
    options = ("--channels", channels, "--dtype", dtype, "--no-shuffle")
    if dtype == "uint8" or channels == 1:
        options += ("--transcode", "png")
    invoke("convert", "--src", tmp_path / "src", "--out", out, *options, status=1)
    rejected = (out / "rejected.jsonl").read_text().splitlines()
    if not [*out.glob("*.parquet")]:
        pytest.skip("no installed package has such an image")
    rows = pq.read_table(out / "train-00000.parquet").to_pylist()
    assert len(rows) + len(rejected) == len(files)
    invoke("verify", out, "--workers", 1)
    invoke("verify", out, "--decode", "--workers", 1)
    for row, pixels in zip(rows, read(out, dtype=dtype), strict=True):
        name = row["source"]
        expected = read_packaged(files[name], row)
        assert pixels.shape == expected.shape, name
        # Decoders of JPEG round differently.
        most = 4 if name.endswith(("jpg", "jpeg")) else 0
        assert np.abs(pixels.astype(int) - expected).max() <= most, name


def test_an_export_names_the_pixels(bands, tmp_path):
    with pytest.raises(CallError, match="has 13 channels of uint16"):
        export(bands[0], str(tmp_path / "model"), transforms=["CenterCrop"], target="onnx")


REFUSED = {
    "planar.tif": tiff(values("uint16", 3).transpose(2, 0, 1), planarconfig="separate"),
    "lzma.tif": tiff(values("uint16", 3), compression="lzma"),
    "int16.tif": tiff(values("uint16", 3).view(np.int16)),
    "float64.tif": tiff(values("float32", 3).astype(np.float64)),
    "inverted.tif": tiff(values("uint16", 1), photometric="miniswhite"),
}


BANDS, DEEP = values("uint16", 5), values("uint16", 3)
#: What is rewritten without loss: bytes, the values, and options.
REWRITTEN = read_named(__file__, "rewritten", vars(files_of), globals())


@pytest.mark.parametrize("name", REWRITTEN)
def test_other_files_are_rewritten_without_loss(name, tmp_path, invoke):
    pytest.importorskip("imagecodecs")
    data, expected, options = REWRITTEN[name]
    source, out, fmt = tmp_path / "src.csv", tmp_path / "out", FORMATS[len(name) % 2]
    (tmp_path / "0.img").write_bytes(data)
    source.write_text("path,label\n0.img,a\n")
    plan = ("convert", "--src", source, "--out", out, "--fmt", fmt, "--transcode", "tiff")
    assert f"of {expected.dtype}" in invoke(*plan, *options).stderr
    invoke("verify", out, "--decode", "--workers", 1)
    (found,) = read(out, dtype=expected.dtype.name)
    assert np.array_equal(found, expected)


TO_TIFF = ("--transcode", "tiff")


@pytest.mark.parametrize(("first", "then"), [((), TO_TIFF), (TO_TIFF, (*TO_TIFF, "--page", 2))])
def test_what_would_not_come_back_is_refused_until_an_append_can_transcode_it(
    first, then, tmp_path, convert
):
    pytest.importorskip("imagecodecs")
    bad = {"pages.tif": cloud(DEEP, 3)} if first else REFUSED
    write(tmp_path / "src", "plain uint16 x3")
    put(tmp_path / "src", bad)
    out, _ = convert(*first, status=1)
    rejected = (out / "rejected.jsonl").read_text()
    assert {json.loads(line)["source"] for line in rejected.splitlines()} == {f"a/{n}" for n in bad}
    assert ("with 3 pages" if first else "compression") in rejected
    convert("--append", *then, status=0 if first else 1)
    assert len(read(out, dtype="uint16")) == (4 if first else 5)


def test_mixed_sources_are_refused_with_counts(tmp_path, convert):
    write(tmp_path / "src", "plain uint16 x13")
    put(tmp_path / "src", {"other.tif": tiff(values("uint16", 4))})
    out, error = convert(status=2)
    assert "3 with 13 channels of uint16" in error
    assert "1 with 4 channels of uint16, such as a/other.tif" in error
    kind = ("--channels", 13, "--dtype", "uint16")
    convert(*kind, status=1)
    assert read_manifest(str(out)).kind == (13, "uint16")
    for change in (("--resize-shorter", 9), ("--hash",)):
        assert "13 channels of uint16" in convert(*kind, *change, "--overwrite", status=2)[1]


GRAY8 = values("uint8", 1)
#: Files that become RGB of 8 bits, with their values before.
MIXED = {
    "0.png": (png(values("uint8", 3)), values("uint8", 3)),
    "1.png": (png(DEEP), DEEP),
    "2.tif": (tiff(values("uint16", 1)), values("uint16", 1)),
    "3.png": (png(values("uint16", 4)), values("uint16", 4)[..., :3]),
    "4.tif": (
        tiff(values("uint16", 4), photometric="rgb", extrasamples=["unassalpha"]),
        values("uint16", 4)[..., :3],
    ),
    "5.jp2": (jpeg2000(GRAY8), GRAY8),
}


def test_mixed_sources_become_rgb_of_8_bits(tmp_path, convert, invoke):
    source = tmp_path / "src"
    files = {name: data for name, (data, _) in MIXED.items()}
    put(source, {name: files[name] for name in ("0.png", "1.png", "2.tif")})
    assert "or --to-rgb8" in convert(status=2)[1]
    put(source, {**files, "x.tif": tiff(values("uint16", 4)), "y.tif": tiff(values("float32", 1))})
    convert("--channels", 3, "--dtype", "uint8", status=1)
    out, plan = convert("--append", "--to-rgb8", status=1)
    assert "by --to-rgb8; of the images that were looked at, 1 with 3 channels of uint8" in plan
    rejected = (out / read_manifest(str(out)).rejected.name).read_text()
    assert rejected.count("--to-rgb8 takes only") == 2
    changes = []
    for each in sorted(out.glob("*.parquet"))[1:]:
        changes += pq.read_table(each)["change"].to_pylist()
    assert changes == ["transcoded rgb"] * 2 + ["transcoded rgb alpha"] * 2 + ["transcoded rgb"]
    invoke("verify", out, "--decode", "--workers", 1)
    for pixels, (_, before) in zip(read(out, dtype="uint8"), MIXED.values(), strict=True):
        expected = before if before.dtype == np.uint8 else np.round(before / 257)
        assert np.array_equal(pixels, np.broadcast_to(expected, pixels.shape))


def test_damaged_pixels_are_rejected(tmp_path, convert):
    write(tmp_path / "src", "deflate uint16 x13")
    path = tmp_path / "src/a/0.tif"
    data = path.read_bytes()
    path.write_bytes(data[:2000] + bytes(500) + data[2500:])
    out, _ = convert("--validate", "decode", status=1)
    assert '"corrupt"' in (out / "rejected.jsonl").read_text()
