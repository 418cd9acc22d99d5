"""`Loader.preview` and `loaders preview`: what they show is what the model gets, and the loader does not notice."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from helpers.chromium import chromium, find_chromium
from helpers.pictures import encode, photo
from PIL import Image

import loaders
from loaders.cli import main
from loaders.preview import Preview
from loaders.preview.preview import draw_sheet
from manifests.errors import CallError, DamagedError
from manifests.remote.store import open_store
from manifests.store import MANIFEST_NAME, manifest_bytes, read_manifest

NORMALIZE = {"NormalizeImage": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
RANDOM = [{"RandomResizedCrop": {"size": 32}}, "RandomHorizontalFlip", NORMALIZE]
OPTIONS = {"batch_size": 4, "device": "cpu", "num_threads": 2}
SIDE = 48


@pytest.fixture(scope="module")
def pictures():
    return [photo(number, SIDE, SIDE) for number in range(12)]


@pytest.fixture
def dataset(make_dataset, pictures):
    samples = [
        ("png", encode(picture, "PNG"), number % 3) for number, picture in enumerate(pictures)
    ]
    return make_dataset("tfrecord", samples, shards=2)


def stored_order(number: int) -> int:
    """Return the number of the picture in a row: `make_dataset` puts sample i into shard i modulo 2."""
    return number * 2 if number < 6 else (number - 6) * 2 + 1


def build(dataset, transforms, **options):
    return loaders.build(dataset, transforms=transforms, **OPTIONS | options)


def images_of(preview: Preview):
    return [[draw.pixels for draw in item.draws] for item in preview.items]


def same_images(first: Preview, second: Preview) -> bool:
    pairs = zip(chain(*images_of(first)), chain(*images_of(second)), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# --- the pixels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transforms", "options"),
    [
        ([NORMALIZE], {}),
        ([NORMALIZE], {"dtype": "bfloat16"}),
        ([NORMALIZE], {"dtype": "float32", "layout": "NHWC"}),
        ([NORMALIZE], {"framework": "numpy"}),
        (["ToTensor"], {}),
        (["ToTensor", {"Normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}], {}),
        ([{"DecodeImage": {"to_rgb": False}}, NORMALIZE], {"dtype": "float32"}),
        ([{"ResizeImage": {"size": SIDE}}], {"dtype": "uint8"}),
    ],
)
def test_undoing_the_normalization_gives_the_stored_pixels(dataset, pictures, transforms, options):
    with build(dataset, transforms, shuffle=False, **options) as loader:
        preview = loader.preview(samples=12, draws=1)
    precision = 4 if options.get("dtype") == "bfloat16" else 1
    for row, (item,) in enumerate(images_of(preview)):
        expected = np.asarray(pictures[stored_order(row)]).astype(int)
        assert np.abs(item.astype(int) - expected).max() <= precision
    original = preview.items[0].original
    assert np.array_equal(original, np.asarray(pictures[0]))


def test_the_note_says_what_the_model_gets(dataset):
    with build(dataset, [NORMALIZE], dtype="float32") as loader:
        images, _ = next(iter(loader))
        note = loader.preview().notes[-1]
    assert "(-2.12, -2.04, -1.80) is black and (2.25, 2.43, 2.64) is white" in note
    assert images.min() >= -2.12
    assert images.max() <= 2.65


def test_raw_pixels(invoke_dataprep, make_photos, tmp_path):
    source = make_photos(tmp_path / "photos", 9, side=40)
    invoke_dataprep(
        "convert", "--src", source, "--out", tmp_path / "raw", "--store", "raw", "--raw-size", 40
    )
    with build(tmp_path / "raw", [NORMALIZE], dtype="float32") as loader:
        for item in loader.preview(samples=9, draws=1).items:
            assert item.original.shape == (40, 40, 3)
            assert np.abs(item.draws[0].pixels.astype(int) - item.original).max() <= 1


@pytest.fixture
def invoke_dataprep(dataprep):
    def run(*arguments):
        done = dataprep(*arguments)
        assert done.returncode == 0, done.stderr

    return run


def test_functions_of_a_batch_are_seen_and_stretched(dataset):
    def half(images):
        return images[:, :, :, : SIDE // 2] * 1000 + 7

    with build(dataset, ["ToTensor", half]) as loader:
        preview = loader.preview(samples=2)
    assert all(
        draw.pixels.shape == (SIDE, SIDE // 2, 3) for item in preview.items for draw in item.draws
    )
    assert all(
        (draw.pixels.min(), draw.pixels.max()) == (0, 255)
        for item in preview.items
        for draw in item.draws
    )
    assert "stretched" in preview.notes[-1]
    assert "half" in preview.notes[-1]


def test_views_and_crops_have_captions(dataset):
    with build(dataset, [], views=[RANDOM, RANDOM]) as loader:
        draws = loader.preview(samples=2, draws=2).items[0].draws
    assert [draw.caption.split(",")[0] for draw in draws] == ["view 1", "view 2"] * 2
    with build(dataset, [{"FiveCrop": {"size": 16}}, "ToTensor"]) as loader:
        draws = loader.preview(samples=1, draws=1).items[0].draws
    assert [draw.caption for draw in draws] == [f"crop {number}" for number in range(1, 6)]
    assert draws[0].pixels.shape == (16, 16, 3)


def test_mixed_labels_follow_the_parameters(dataset):
    with build(dataset, [*RANDOM, {"MixupOperator": {"alpha": 1.0}}]) as loader:
        preview = loader.preview(samples=4, draws=3)
    captions = [draw.caption.split("; ")[1] for item in preview.items for draw in item.draws]
    assert all("class " in caption for caption in captions)
    for caption in captions:
        weights = [float(part.split()[0]) for part in caption.split(", ")]
        assert sum(weights) == pytest.approx(1, abs=0.02)
    assert any(len(caption.split(", ")) > 1 for caption in captions)


# --- samples and groups -------------------------------------------------------------------------


def test_draws_differ_and_the_seed_decides(dataset):
    previews = []
    for seed in (0, 0, 1):
        with build(dataset, RANDOM, seed=seed) as loader:
            previews.append(loader.preview(samples=5, draws=3))
    first = images_of(previews[0])
    assert all(not np.array_equal(draws[0], draws[1]) for draws in first)
    assert same_images(previews[0], previews[1])
    assert not same_images(previews[0], previews[2])
    assert [item.key for item in previews[0].items] == [item.key for item in previews[1].items]


def test_the_loader_does_not_notice(dataset):
    def epoch(loader, *, look):
        batches = []
        for images, labels in loader:
            if look:
                loader.preview(samples=2)
            batches.append((images.clone(), labels.clone()))
        return batches

    with build(dataset, RANDOM) as plain, build(dataset, RANDOM) as looked:
        looked.preview()
        for _ in range(2):
            for (images, labels), (others, other_labels) in zip(
                epoch(plain, look=False), epoch(looked, look=True), strict=True
            ):
                assert torch.equal(images, others)
                assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("sampler", ["pk", "balanced", "subset"])
def test_groups_are_those_of_the_batch(dataset, sampler):
    chosen = {
        "pk": (loaders.PKSampler(3, 2), 6),
        "balanced": (loaders.ClassBalancedSampler(), 8),
        "subset": (loaders.SubsetSampler(rows=range(12), sampler=loaders.PKSampler(3, 2)), 6),
    }
    given, size = chosen[sampler]
    with build(dataset, RANDOM, sampler=given, batch_size=size, fields=("label", "key")) as loader:
        labels, keys = next(iter(loader))
    with build(dataset, RANDOM, sampler=given, batch_size=size) as loader:
        preview = loader.preview(samples=8)
    expected = list(zip(labels.tolist(), keys, strict=True))
    shown = [
        (int(group.title.split("label ")[1][:-1]), item.key)
        for group in preview.groups
        for item in group.items
    ]
    assert sorted(shown) == sorted(expected)
    assert preview.groups[0].title.startswith("class ")
    assert all(len(item.draws) == 1 for item in preview.items)
    assert "grouped by label" in preview.notes[0]


def test_the_number_of_groups_is_limited(dataset):
    with build(dataset, RANDOM, sampler=loaders.PKSampler(3, 2), batch_size=6) as loader:
        preview = loader.preview(samples=2, draws=2)
    assert [len(group.items) for group in preview.groups] == [2, 2]
    assert {len(item.draws) for item in preview.items} == {2}


def test_one_rank_of_several(dataset):
    with build(dataset, RANDOM, rank=1, world_size=2, batch_size=2) as loader:
        assert len(loader.preview(samples=3).items) == 3


def test_more_samples_than_there_are(dataset):
    with build(dataset, RANDOM) as loader:
        preview = loader.preview(samples=100, draws=1)
        assert sorted(item.key for item in preview.items) == sorted(
            [f"{row:06d}" for row in range(6)] * 2
        )
        with pytest.raises(CallError, match="samples must be an integer of at least 1"):
            loader.preview(samples=0)
        with pytest.raises(CallError, match="draws must be at most 64"):
            loader.preview(draws=65)
    with pytest.raises(CallError, match="closed"):
        loader.preview()


def test_an_image_that_cannot_be_decoded_is_named(make_dataset):
    data = encode(photo(1))
    folder = make_dataset(
        "tfrecord", [("jpg", data, 0), ("jpg", data[:30] + bytes(len(data) - 30), 0)], shards=1
    )
    with (
        build(folder, RANDOM, batch_size=1) as loader,
        pytest.raises(DamagedError, match=r"train-00000\.tfrecord"),
    ):
        loader.preview()


# --- files --------------------------------------------------------------------------------------


@pytest.fixture
def preview(dataset):
    manifest = replace(
        read_manifest(dataset), classes=("<script>alert(1)</script>", "evil\u202egnp", "\"'><b>")
    )
    (dataset / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
    with build(dataset, RANDOM) as loader:
        return loader.preview(samples=6, draws=3)


@pytest.mark.parametrize(("ending", "kind"), [("png", "PNG"), ("jpg", "JPEG"), ("webp", "WEBP")])
def test_pictures(preview, tmp_path, ending, kind):
    for name in ("a", "b"):
        preview.save(tmp_path / f"{name}.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    with Image.open(tmp_path / f"a.{ending}") as picture:
        assert picture.format == kind
        assert picture.size == draw_sheet(preview).size
    assert sorted(path.name for path in tmp_path.glob("*.partial")) == []


def test_the_sheet_shows_the_pixels(dataset):
    """With one sample and 168 pixels per tile, the sheet contains the drawn pixels unchanged."""
    with build(dataset, [{"ResizeImage": {"size": 168}}], dtype="uint8") as loader:
        preview = loader.preview(samples=1, draws=1)
    sheet = np.asarray(draw_sheet(preview)).astype(int)
    windows = np.lib.stride_tricks.sliding_window_view(sheet[:, :, 0], (168, 168))
    (item,) = preview.items
    wanted = item.draws[0].pixels[:, :, 0].astype(int)
    hits = np.argwhere(
        (windows[:, :, 0, 0] == wanted[0, 0]) & (windows[:, :, -1, -1] == wanted[-1, -1])
    )
    assert any(np.array_equal(windows[y, x], wanted) for y, x in hits)


def test_a_picture_that_would_be_too_large(preview):
    many = replace(preview, groups=preview.groups * 60)
    with pytest.raises(CallError, match=r"save it as \.html"):
        draw_sheet(many)


def test_html_escapes_names(preview, tmp_path):
    text = preview._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "\u202e" not in text
    assert text.count('<img src="data:image/jpeg;base64,') == 6 * 4
    preview.save(tmp_path / "a.html")
    assert "default-src 'none'" in (tmp_path / "a.html").read_text("utf-8")


@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium or Chrome")
def test_html_in_a_browser(preview, tmp_path):
    preview.save(tmp_path / "a.html")
    with chromium(tmp_path) as browser:
        for width in (390, 1400):
            browser.open(tmp_path / "a.html", width)
            assert browser.complaints() == []
            assert browser.evaluate("document.documentElement.scrollWidth") == width
            assert browser.evaluate("[...document.images].every(each => each.decode && each.alt)")


def test_other_files_are_refused(preview, tmp_path):
    with pytest.raises(CallError, match=r"does not end in \.png"):
        preview.save(tmp_path / "a.gif")
    assert "6 samples, 18 draws" in repr(preview)


# --- the command --------------------------------------------------------------------------------


def command(*arguments, status=0):
    result = CliRunner().invoke(main, ["preview", *map(str, arguments), "--device", "cpu"])
    assert result.exit_code == status, result.output
    return result


def test_command(dataset, tmp_path):
    out = tmp_path / "sheet.png"
    assert "6 samples" in command(dataset, "--transforms", "imagenet-train", "--out", out).stdout
    first = out.read_bytes()
    command(dataset, "--transforms", "imagenet-train", "--out", out)
    assert out.read_bytes() == first
    assert Image.open(io.BytesIO(first)).text["Software"] == "loaders preview"
    command(dataset, "--transforms", "reid-train", "--pk", "3x2", "--out", tmp_path / "pk.html")
    assert (
        "PKSampler(classes_per_batch=3, samples_per_class=2)" in (tmp_path / "pk.html").read_text()
    )
    command(
        dataset,
        "--transforms",
        "reid-train",
        "--balanced",
        "--batch-size",
        6,
        "--out",
        tmp_path / "b.html",
    )
    assert "ClassBalancedSampler" in (tmp_path / "b.html").read_text()


def test_command_with_several_classes(invoke_dataprep, make_photos, tmp_path):
    source = make_photos(tmp_path / "photos", 9)
    paths = sorted(source.rglob("*.*"))
    rows = [f"{path},{'a|b' if number < 3 else 'b'}" for number, path in enumerate(paths)]
    (tmp_path / "table.csv").write_text("\n".join(["path,labels", *rows]))
    invoke_dataprep("convert", "--src", tmp_path / "table.csv", "--out", tmp_path / "data")
    out = tmp_path / "b.html"
    options = ["--transforms", "reid-train", "--balanced", "--by", "labels", "--out", out]
    assert "set threshold" in command(tmp_path / "data", *options, status=2).stderr
    command(tmp_path / "data", *options, "--threshold", "0.5")
    assert "ClassBalancedSampler(by=&#39;labels&#39;, threshold=0.5)" in out.read_text()


def test_command_in_an_object_store(dataset, tmp_path):
    url = f"memory://bucket/{tmp_path.name}/set"
    store = open_store(url)
    for path in sorted(dataset.iterdir()):
        store.put(path.name, path.read_bytes())
    local, remote = tmp_path / "local.html", tmp_path / "remote.html"
    command(dataset, "--transforms", "imagenet-train", "--out", local)
    command(url, "--transforms", "imagenet-train", "--out", remote, "--cache", tmp_path / "cache")
    assert remote.read_text() == local.read_text().replace("data set, split", "set, split")
    result = command(
        url, "--transforms", "imagenet-train", "--out", tmp_path / "none.html", status=2
    )
    assert (
        "is in an object store, and --cache is missing. Hint: set --cache to a folder"
        in result.stderr
    )


def test_command_replaces_only_previews(dataset, tmp_path):
    out = tmp_path / "sheet.png"
    out.write_text("mine")
    result = command(dataset, "--transforms", "imagenet-train", "--out", out, status=2)
    assert "exists, and is not a preview" in result.stderr
    assert out.read_text() == "mine"
    command(dataset, "--transforms", "imagenet-train", "--out", out, "--overwrite")
    assert out.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pk", "3"], "is not two numbers such as 8x4"),
        (["--pk", "3x2", "--balanced"], "cannot be combined"),
        (["--batch-size", "4"], "--batch-size is for --balanced"),
        (["--threshold", "0.1"], "--threshold is for --balanced"),
        (["--out", "sheet.gif"], "does not end in .png"),
        (["--out", "none/sheet.png"], "does not exist"),
        (["--samples", "0"], "samples must be an integer of at least 1"),
        (["--split", "test"], "test"),
    ],
)
def test_wrong_options(dataset, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    result = command(dataset, "--transforms", "imagenet-train", *options, status=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) <= 2
