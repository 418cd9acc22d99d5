"""Datasets of downscaled images and raw pixels: `convert_dataset` and `dataprep convert`."""

from __future__ import annotations

import PIL
import pytest
from helpers.bad_images import exif
from helpers.pictures import encode, photo
from helpers.shards import stored_samples

from dataprep.options import Downscale, Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from manifests.errors import CallError
from manifests.store import read_manifest
from manifests.tables import read_table_metadata

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
