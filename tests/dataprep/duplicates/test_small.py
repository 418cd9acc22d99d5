"""Small images: other crops of a photograph are found, and different photographs are not, whatever their hashes are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.pictures import encode
from PIL import Image, ImageDraw

from dataprep.duplicates import find, near
from dataprep.duplicates.pixels import aligned_correlation, show_the_same, transform

pytestmark = pytest.mark.usefixtures("quick_programs")


@pytest.fixture
def compare(invoke):
    """A function that returns the JSON of a comparison, and the messages."""

    def run(*arguments):
        result = invoke("duplicates", *arguments, "--limit", 100_000, "--json", status=1)
        return json.loads(result.stdout), result.stderr.replace("\n", " ")

    return run


def test_aligned_correlation_is_the_largest_of_all_shifts(pictures):
    """Each shift by itself, from what both images have in common then."""
    crops = []
    for picture in pictures.values():
        crop = picture.resize((32, 32), Image.Resampling.BOX).convert("L")
        crops.append(np.asarray(crop, np.float32))
    images = np.stack(crops)
    others = np.roll(images, (3, -2), (1, 2))[np.r_[1 : len(images), 0]]
    others[::2] = images[::2]
    a, b = (
        np.stack([np.diff(x, axis=2)[:, :-1], np.diff(x, axis=1)[:, :, :-1]], 1)
        for x in (images, others)
    )
    totals = [(gradients**2).sum((1, 2, 3)) for gradients in (a, b)]

    def part(gradients, y, x):
        return gradients[..., max(y, 0) : 31 + min(y, 0), max(x, 0) : 31 + min(x, 0)]

    best = np.zeros(len(images))
    for y in range(-8, 9):
        for x in range(-8, 9):
            one, other = part(a, y, x), part(b, -y, -x)
            energies = [(some**2).sum((1, 2, 3)) for some in (one, other)]
            is_enough = np.all(np.array(energies) >= np.array(totals) * 0.25, axis=0)
            likeness = (one * other).sum((1, 2, 3)) / np.sqrt(energies[0] * energies[1])
            best = np.maximum(best, np.where(is_enough, likeness, 0))
    found = aligned_correlation(transform(images), transform(others))
    assert found == pytest.approx(best, abs=1e-4)
    assert (best[::2] > 0.99).all()


def show_same(a, b):
    every = np.arange(len(a))
    return show_the_same(a, b, every, every)


def test_flat_images_do_not_show_the_same():
    rng = np.random.default_rng(0)
    flat = (128 + rng.integers(-2, 3, (8, 32, 32))).astype(np.uint8)
    assert not show_same(flat, flat[::-1]).any()
    corner = flat.copy()
    corner[:, :4, :4] = 255
    assert not show_same(corner, corner[:, ::-1, ::-1]).any()
    assert show_same(corner, corner).all()


# --- many images that look alike ------------------------------------------------------------------


def write_strokes(folder, count, seed=0):
    """Write images of one bright stroke each on black, at about the same place, as digits have them."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        image = Image.new("L", (112, 112))
        points = np.array([[40, 20], [65, 50], [45, 90]]) + rng.normal(0, 5, (3, 2))
        ImageDraw.Draw(image).line(
            [tuple(point) for point in points], fill=255, width=int(rng.integers(8, 16))
        )
        path = folder / ("train" if number % 4 else "val") / "x" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.resize((28, 28), Image.Resampling.BOX).save(path)


def paths_of(pair):
    return tuple(sorted(image["path"].split("/")[-1] for image in pair["images"]))


@pytest.mark.parametrize("options", [[], ["--across"]])
def test_too_many_candidates_are_narrowed(compare, monkeypatch, options, tmp_path):
    """Only the nearest candidates are compared, and the result says so. Copies are still found."""
    write_strokes(tmp_path, 120)
    copies = set()
    for number in range(0, 120, 4):
        image = Image.open(tmp_path / "val" / "x" / f"{number}.png")
        copy = tmp_path / "train" / "x" / f"copy-{number}.jpg"
        copy.write_bytes(encode(image, quality=90))
        copies.add((f"{number}.png", copy.name))
    everything, text = compare(tmp_path, *options)
    (doubt,) = everything["notes"]
    assert "of the 150 images with a side of less than 64 pixels count as near copies" in doubt
    assert doubt in text
    monkeypatch.setattr(near, "_CANDIDATES", 4)
    monkeypatch.setattr(near, "_FEW_CANDIDATES", 0)
    monkeypatch.setattr(find, "_TASK_PAIRS", 50)
    narrowed, text = compare(tmp_path, *options)
    note, doubt = narrowed["notes"]
    assert "count as near copies" in doubt
    assert "so many of the 150 images" in note
    assert "only the 4 nearest ones of each were compared" in note
    assert note in text
    assert 0 < narrowed["near"] <= 4 * 150
    assert narrowed["near"] < everything["near"]
    pairs, some = ({*map(paths_of, result["pairs"])} for result in (everything, narrowed))
    assert copies <= some <= pairs
    if not options:
        monkeypatch.setattr(near, "_FEW_COMPARISONS", 0)
        assert compare(tmp_path, "--workers", 2)[0] == narrowed, "whatever the number of processes"


def test_conversion_says_that_candidates_were_narrowed(convert, invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(near, "_CANDIDATES", 2)
    monkeypatch.setattr(near, "_FEW_CANDIDATES", 0)
    write_strokes(tmp_path / "src", 60)
    result = convert(tmp_path / "src", tmp_path / "out", "--duplicates", "drop", "--hash")
    note = "nearest ones of each were compared with it"
    message = f"only the 2 {note}: some near copies may be missing"
    assert message in result.stderr.replace("\n", " ")
    page = tmp_path / "report.html"
    invoke("report", tmp_path / "out", "--out", page)
    assert note in page.read_text()
