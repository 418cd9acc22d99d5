"""`loaders preview`: the files that it writes, and the options that it refuses."""

import io

import pytest
from click.testing import CliRunner
from helpers.datasets import write_csv
from helpers.loading import convert
from helpers.object_stores import upload
from helpers.rows import read_rows
from PIL import Image

from loaders.cli import main

TABLES = {"label": "012012012", "labels": ["a|b"] * 3 + ["b"] * 6}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, make_photos):
    """Nine images in three classes, and with several classes each. Tests must not change it."""
    folder = tmp_path_factory.mktemp("command")
    paths = sorted(make_photos(folder / "photos", 9).rglob("*.*"))
    for name, texts in TABLES.items():
        rows = zip(paths, texts, strict=True)
        convert(write_csv(folder / f"{name}.csv", f"path,{name}", rows), folder / name)
    return folder / "label"


def run(dataset, *options, transforms="imagenet-train", status=0):
    words = map(str, ("preview", dataset, "--transforms", transforms, *options, "--device", "cpu"))
    result = CliRunner().invoke(main, [*words])
    assert result.exit_code == status, result.output
    return result


def test_pictures_and_pages(dataset, tmp_path):
    out, page = tmp_path / "sheet.png", tmp_path / "page.html"
    out.write_text("mine")
    assert "exists, and is not a preview" in run(dataset, "--out", out, status=2).stderr
    assert out.read_text() == "mine"
    assert "6 samples" in run(dataset, "--out", out, "--overwrite").stdout
    first = out.read_bytes()
    run(dataset, "--out", out)
    assert out.read_bytes() == first
    assert Image.open(io.BytesIO(first)).text["Software"] == "loaders preview"
    run(dataset, "--pk", "3x2", "--out", page, transforms="reid-train")
    assert "PKSampler(classes_per_batch=3, samples_per_class=2)" in page.read_text()
    run(dataset, "--balanced", "--batch-size", 6, "--out", page, transforms="reid-train")
    assert "ClassBalancedSampler" in page.read_text()


def test_several_classes(dataset, tmp_path):
    folder, out = dataset.parent / "labels", tmp_path / "b.html"
    options = ("--balanced", "--by", "labels", "--out", out)
    assert "set threshold" in run(folder, *options, transforms="reid-train", status=2).stderr
    run(folder, *options, "--threshold", "0.5", transforms="reid-train")
    assert "ClassBalancedSampler(by=&#39;labels&#39;, threshold=0.5)" in out.read_text()


def test_an_object_store(dataset, tmp_path):
    url = upload(dataset, f"memory://bucket/{tmp_path.name}/label")
    local, remote = tmp_path / "local.html", tmp_path / "remote.html"
    run(dataset, "--out", local)
    run(url, "--out", remote, "--cache", tmp_path / "cache")
    assert remote.read_text() == local.read_text()
    result = run(url, "--out", tmp_path / "none.html", status=2)
    assert "is in an object store, and --cache is missing. Hint: set --cache to" in result.stderr


@pytest.mark.parametrize(("options", "message"), read_rows(__file__, "wrong options"))
def test_wrong_options(dataset, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    result = run(dataset, *options.split(), status=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) <= 2
