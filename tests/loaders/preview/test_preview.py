"""`Loader.preview`: what it shows is what the model gets, and the loader does not notice."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import handmade
from helpers.chromium import chromium, find_chromium
from helpers.damaged import change_manifest
from helpers.datasets import write_csv
from helpers.loading import convert
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows
from PIL import Image

import loaders
from dataprep.options import Raw
from loaders.preview import Preview
from loaders.preview.preview import draw_sheet
from manifests.errors import CallError

NORMALIZE = {"NormalizeImage": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
RANDOM = [{"RandomResizedCrop": {"size": 32}}, "RandomHorizontalFlip", NORMALIZE]
OPTIONS = {"batch_size": 4, "device": "cpu", "num_threads": 2}
SIDE = 48


@pytest.fixture(scope="module")
def pictures():
    return [photo(number, SIDE, SIDE) for number in range(12)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, pictures):
    """Tests must not change it."""
    samples = [("png", encode(each, "PNG"), number % 3) for number, each in enumerate(pictures)]
    folder = tmp_path_factory.mktemp("preview") / "data set"
    return handmade.make_dataset(folder, "tfrecord", samples, shards=2)


def stored_order(number: int) -> int:
    """Return the number of the picture in a row: `make_dataset` puts sample i into shard i modulo 2."""
    return number * 2 if number < 6 else (number - 6) * 2 + 1


def build(dataset, transforms=RANDOM, **options):
    return loaders.build(dataset, transforms=transforms, **OPTIONS | options)


def previewed(dataset, transforms=RANDOM, samples=2, draws=1, **options):
    with build(dataset, transforms, **options) as loader:
        return loader.preview(samples=samples, draws=draws)


def pixels_of(preview: Preview):
    """Return the pixels of all draws, one after another."""
    return [draw.pixels for item in preview.items for draw in item.draws]


@pytest.mark.parametrize(("row", "options"), read_rows(__file__, "normalized"))
def test_undoing_the_normalization_gives_the_stored_pixels(dataset, pictures, row, options):
    options = evaluate(options)
    preview = previewed(dataset, evaluate(row, globals()), samples=12, shuffle=False, **options)
    precision = 4 if options.get("dtype") == "bfloat16" else 1
    for row, pixels in enumerate(pixels_of(preview)):
        expected = np.asarray(pictures[stored_order(row)]).astype(int)
        assert np.abs(pixels.astype(int) - expected).max() <= precision
    assert np.array_equal(preview.items[0].original, np.asarray(pictures[0]))
    if options == {"dtype": "float32", "layout": "NHWC"}:
        black_and_white = "(-2.12, -2.04, -1.80) is black and (2.25, 2.43, 2.64) is white"
        assert black_and_white in preview.notes[-1]


def test_raw_pixels(make_photos, tmp_path):
    source = make_photos(tmp_path / "photos", 9, side=40)
    raw = convert(source, tmp_path / "raw", raw=Raw(40))
    for item in previewed(raw, [NORMALIZE], samples=9, dtype="float32").items:
        assert item.original.shape == (40, 40, 3)
        assert np.abs(item.draws[0].pixels.astype(int) - item.original).max() <= 1


def test_functions_of_a_batch_are_seen_and_stretched(dataset):
    def half(images):
        return images[:, :, :, : SIDE // 2] * 1000 + 7

    preview = previewed(dataset, ["ToTensor", half])
    for pixels in pixels_of(preview):
        assert pixels.shape == (SIDE, SIDE // 2, 3)
        assert (pixels.min(), pixels.max()) == (0, 255)
    assert "stretched" in preview.notes[-1]
    assert "half" in preview.notes[-1]


def test_views_and_crops_have_captions(dataset):
    draws = previewed(dataset, [], draws=2, views=[RANDOM, RANDOM]).items[0].draws
    assert [draw.caption.split(",")[0] for draw in draws] == ["view 1", "view 2"] * 2
    draws = previewed(dataset, [{"FiveCrop": {"size": 16}}, "ToTensor"]).items[0].draws
    assert [draw.caption for draw in draws] == [f"crop {number}" for number in range(1, 6)]
    assert draws[0].pixels.shape == (16, 16, 3)


def test_frames_of_a_clip_share_what_is_drawn_as_in_training(tmp_path):
    """All frames of a clip are one picture, so equal draws give equal pixels."""
    rows = []
    for clip in range(2):
        for frame in range(3):
            name, words = f"{clip}{frame}.png", f"label {frame % 2}"
            (tmp_path / name).write_bytes(encode(photo(clip, SIDE, SIDE), "PNG"))
            rows.append((name, words, f"clip {clip}", frame))
    table = write_csv(tmp_path / "list.csv", "path,label,clip,frame", rows)
    convert(table, tmp_path / "out")
    options = {"sampler": loaders.ClipSampler(3), "batch_size": 6, "fields": ("image", "clip")}
    preview = previewed(tmp_path / "out", samples=2, draws=2, **options)
    assert {group.title for group in preview.groups} == {"clip clip 0", "clip clip 1"}
    for group in preview.groups:
        assert [item.source[1] for item in group.items] == ["0", "1", "2"]
        for draws in zip(*(item.draws for item in group.items), strict=True):
            assert len({(draw.caption, draw.pixels.tobytes()) for draw in draws}) == 1
        assert len({draw.caption for draw in group.items[0].draws}) == 2


def test_mixed_labels_follow_the_parameters(dataset):
    mixed = previewed(dataset, [*RANDOM, {"MixupOperator": {"alpha": 1.0}}], samples=4, draws=3)
    captions = [draw.caption.split("; ")[1] for item in mixed.items for draw in item.draws]
    for caption in captions:
        assert "class " in caption
        weights = [float(part.split()[0]) for part in caption.split(", ")]
        assert sum(weights) == pytest.approx(1, abs=0.02)
    assert any(len(caption.split(", ")) > 1 for caption in captions)


def test_the_loader_does_not_notice(dataset):
    with build(dataset) as plain, build(dataset) as looked:
        looked.preview()
        for _ in range(2):
            for (images, labels), (others, other_labels) in zip(plain, looked, strict=True):
                looked.preview(samples=2)
                assert torch.equal(images, others)
                assert torch.equal(labels, other_labels)


PK = loaders.PKSampler(3, 2)


def test_the_number_of_samples_and_draws(dataset):
    preview = previewed(dataset, draws=2, sampler=PK, batch_size=6)
    assert [len(group.items) for group in preview.groups] == [2, 2]
    assert {len(item.draws) for item in preview.items} == {2}
    assert len(previewed(dataset, samples=3, rank=1, world_size=2, batch_size=2).items) == 3
    with build(dataset) as loader:
        keys = [item.key for item in loader.preview(samples=100, draws=1).items]
        assert sorted(keys) == sorted([f"{row:06d}" for row in range(6)] * 2)
        with pytest.raises(CallError, match="samples must be an integer of at least 1"):
            loader.preview(samples=0)
        with pytest.raises(CallError, match="draws must be at most 64"):
            loader.preview(draws=65)
    with pytest.raises(CallError, match="closed"):
        loader.preview()


@pytest.fixture(scope="module")
def preview(dataset, tmp_path_factory):
    folder = shutil.copytree(dataset, tmp_path_factory.mktemp("hostile") / "data set")
    classes = ("<script>alert(1)</script>", "evil\u202egnp", "\"'><b>")
    return previewed(change_manifest(folder, classes=classes), samples=6, draws=3)


@pytest.mark.parametrize(("ending", "kind"), [("png", "PNG"), ("jpg", "JPEG"), ("webp", "WEBP")])
def test_pictures(preview, tmp_path, ending, kind):
    for name in ("a", "b"):
        preview.save(tmp_path / f"{name}.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    with Image.open(tmp_path / f"a.{ending}") as picture:
        assert (picture.format, picture.size) == (kind, draw_sheet(preview).size)
    assert not [*tmp_path.glob("*.partial")]


def test_the_sheet_shows_the_pixels(dataset):
    """With one sample and 168 pixels per tile, the sheet contains the drawn pixels unchanged."""
    preview = previewed(dataset, [{"ResizeImage": {"size": 168}}], samples=1, dtype="uint8")
    sheet = np.asarray(draw_sheet(preview))[:, :, 0].astype(int)
    wanted = preview.items[0].draws[0].pixels[:, :, 0].astype(int)
    windows = np.lib.stride_tricks.sliding_window_view(sheet, (168, 168))
    hits = np.argwhere(
        (windows[:, :, 0, 0] == wanted[0, 0]) & (windows[:, :, -1, -1] == wanted[-1, -1])
    )
    assert any(np.array_equal(windows[y, x], wanted) for y, x in hits)


def test_html_escapes_names_and_other_files_are_refused(preview, tmp_path):
    text = preview._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "\u202e" not in text
    assert text.count('<img src="data:image/jpeg;base64,') == 6 * 4
    preview.save(tmp_path / "a.html")
    assert "default-src 'none'" in (tmp_path / "a.html").read_text("utf-8")
    with pytest.raises(CallError, match=r"save it as \.html"):
        draw_sheet(replace(preview, groups=preview.groups * 60))
    with pytest.raises(CallError, match=r"does not end in \.png"):
        preview.save(tmp_path / "a.gif")
    assert "6 samples, 18 draws" in repr(preview)


@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium or Chrome")
def test_html_in_a_browser(preview, tmp_path):
    preview.save(tmp_path / "a.html")
    with chromium(tmp_path) as browser:
        for width in (390, 1400):
            browser.open(tmp_path / "a.html", width)
            assert browser.complaints() == []
            assert browser.evaluate("document.documentElement.scrollWidth") == width
            assert browser.evaluate("[...document.images].every(each => each.decode && each.alt)")
