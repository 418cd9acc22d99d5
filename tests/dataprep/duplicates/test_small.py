"""Small images: other crops of a photograph are found, and different photographs are not, whatever their hashes are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.pictures import encode
from PIL import Image, ImageDraw

from dataprep.duplicates import find as pixel_check
from dataprep.duplicates import near, pixels
from dataprep.duplicates import near as small
from dataprep.duplicates.pixels import aligned_correlation, correlation, show_the_same, transform
from dataprep.duplicates.search import distances, low_frequencies, popcount

pytestmark = pytest.mark.usefixtures("quick_programs")


def thumbnail(
    picture: Image.Image, box: tuple[float, float, float, float] = (0, 0, 1, 1)
) -> Image.Image:
    """A part of a picture, as shares of its sides, in 32x32 pixels."""
    left, top, right, bottom = (
        share * side for share, side in zip(box, picture.size * 2, strict=True)
    )
    return picture.resize((32, 32), Image.Resampling.BOX, box=(left, top, right, bottom))


#: All of a picture, and crops that lose up to a twentieth of a side.
CROPS = [
    (0, 0, 1, 1),
    (0.025, 0.025, 0.975, 0.975),
    (0.03, 0.03, 1, 1),
    (0, 0.03, 1, 1),
    (0.03, 0, 0.98, 1),
]


def write(folder, pictures, boxes=CROPS):
    for name, picture in pictures.items():
        for number, box in enumerate(boxes):
            path = folder / ("train" if number else "val") / "x" / f"{name}-{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(thumbnail(picture, box), quality=85))


def pairs_of(invoke, *arguments, status=1):
    result = json.loads(
        invoke("duplicates", *arguments, "--limit", 1000, "--json", status=status).stdout
    )
    return [
        tuple(image["path"].split("/")[-1] for image in pair["images"]) for pair in result["pairs"]
    ]


def test_crops_of_photographs(invoke, monkeypatch, pictures, tmp_path):
    write(tmp_path / "src", pictures)
    found = pairs_of(invoke, tmp_path / "src", "--across")
    names = [tuple(name.split("-")[0] for name in pair) for pair in found]
    assert all(first == second for first, second in names), "different photographs are not copies"
    assert len(found) >= 0.5 * len(pictures) * (len(CROPS) - 1)
    monkeypatch.setattr(small, "_COARSE_DISTANCE", 64)
    monkeypatch.setattr(small, "_MAX_COARSE_DISTANCE", 64)  # then the pixels alone decide
    names = [
        tuple(name.split("-")[0] for name in pair)
        for pair in pairs_of(invoke, tmp_path / "src", "--across")
    ]
    assert all(first == second for first, second in names)
    monkeypatch.setattr(pixels, "MIN_ALIGNED", 1.1)
    assert pairs_of(invoke, tmp_path / "src", "--across", status=0) == []


def test_mirrored_crops(invoke, pictures, tmp_path):
    mirrored = {
        name: picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for name, picture in pictures.items()
    }
    write(tmp_path / "a", pictures, CROPS[:1])
    write(tmp_path / "b", mirrored, CROPS[1:2])
    result = json.loads(
        invoke(
            "duplicates",
            tmp_path / "a",
            tmp_path / "b",
            "--across",
            "--json",
            "--limit",
            99,
            status=1,
        ).stdout
    )
    assert len(result["pairs"]) >= 0.6 * len(pictures)
    assert {pair["symmetry"] for pair in result["pairs"]} <= {
        "mirrored",
        "identical",
        "rotated 180",
        "flipped",
    }
    assert (
        sum(pair["symmetry"] == "mirrored" for pair in result["pairs"]) >= len(result["pairs"]) - 1
    )


def test_small_and_large_images(invoke, pictures, tmp_path):
    """A small copy of a large image is found by its hash, and its pixels are compared too."""
    for name, picture in pictures.items():
        for split, image in (("train", picture), ("val", thumbnail(picture))):
            path = tmp_path / split / "x" / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(image, "PNG"))
    found = pairs_of(invoke, tmp_path)
    assert all(first == second for first, second in found)
    assert len(found) >= len(pictures) - 2


def test_distance_applies_to_small_images_in_proportion(invoke, pictures, tmp_path):
    write(tmp_path, pictures)
    counts = [len(pairs_of(invoke, tmp_path, "--across", "--distance", d)) for d in (6, 20, 31, 63)]
    assert counts == sorted(counts)
    assert counts[0] < counts[1] < counts[2]


def aligned(a, b):
    return aligned_correlation(transform(a), transform(b))


def test_correlation_of_gradients():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (3, 32, 32)).astype(np.float32)
    assert correlation(a, a) == pytest.approx(1)
    assert (abs(correlation(a, a[::-1])[[0, 2]]) < 0.2).all()
    assert (correlation(a, np.zeros_like(a)) == 0).all()
    assert (aligned(a, np.zeros_like(a)) == 0).all()
    for shift in ((0, 0), (5, -8), (-3, 2)):
        shifted = np.roll(a, shift, (1, 2))
        assert aligned(a, shifted) == pytest.approx(1, abs=0.05)
    assert (aligned(a, np.roll(a, 12, 1)) < 0.5).all()


def test_aligned_correlation_is_the_largest_of_all_shifts(pictures):
    """Each shift by itself, from what both images have in common then."""
    images = np.stack(
        [np.asarray(thumbnail(picture).convert("L"), np.float32) for picture in pictures.values()]
    )
    others = np.roll(images, (3, -2), (1, 2))[np.r_[1 : len(images), 0]]
    others[::2] = images[::2]
    a, b = (
        np.stack([np.diff(x, axis=2)[:, :-1], np.diff(x, axis=1)[:, :, :-1]], 1)
        for x in (images, others)
    )

    def part(gradients, y, x):
        return gradients[..., max(y, 0) : 31 + min(y, 0), max(x, 0) : 31 + min(x, 0)]

    best = np.zeros(len(images))
    for y in range(-8, 9):
        for x in range(-8, 9):
            one, other = part(a, y, x), part(b, -y, -x)
            energies = [(some**2).sum((1, 2, 3)) for some in (one, other)]
            is_enough = np.all(
                [
                    some >= all_ * 0.25
                    for some, all_ in zip(
                        energies, [(g**2).sum((1, 2, 3)) for g in (a, b)], strict=True
                    )
                ],
                axis=0,
            )
            likeness = (one * other).sum((1, 2, 3)) / np.sqrt(energies[0] * energies[1])
            best = np.maximum(best, np.where(is_enough, likeness, 0))
    assert aligned(images, others) == pytest.approx(best, abs=1e-4)
    assert (best[::2] > 0.99).all()


def compare(a, b):
    every = np.arange(len(a))
    return show_the_same(a, b, every, every)


def test_flat_images_do_not_show_the_same():
    rng = np.random.default_rng(0)
    flat = (128 + rng.integers(-2, 3, (8, 32, 32))).astype(np.uint8)
    assert not compare(flat, flat[::-1]).any()
    corner = flat.copy()
    corner[:, :4, :4] = 255
    assert not compare(corner, corner[:, ::-1, ::-1]).any()
    assert compare(corner, corner).all()


def test_pairs_do_not_depend_on_each_other(pictures):
    """A pair is compared in the same way, whatever others are compared with it."""
    crops = [thumbnail(picture, box).convert("L") for picture in pictures.values() for box in CROPS]
    a = np.stack([np.asarray(crop) for crop in crops])
    first, second = (each.ravel() for each in np.mgrid[: len(a), : len(a)])
    together = show_the_same(a, a, first, second)
    some = np.random.default_rng(0).choice(len(first), 60, replace=False)
    assert [show_the_same(a, a, first[at : at + 1], second[at : at + 1]).item() for at in some] == [
        *together[some]
    ]
    picture = np.arange(len(a)) // len(CROPS)
    assert (together.reshape(len(a), -1) <= (picture[:, None] == picture)).all()
    assert together.sum() > 2 * len(a)


def test_low_frequencies():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (50, 16, 16), np.uint8)
    hashes = np.packbits(bits.reshape(50, -1), axis=1).view(np.uint64)
    other = bits.copy()
    other[:, 8:], other[:, :, 8:] = 1 - other[:, 8:], 1 - other[:, :, 8:]
    changed = np.packbits(other.reshape(50, -1), axis=1).view(np.uint64)
    assert (distances(hashes, changed) > 100).all()
    assert (low_frequencies(hashes) == low_frequencies(changed)).all()
    expected = (bits[:25, :8, :8] != bits[25:, :8, :8]).sum((1, 2))
    low = low_frequencies(hashes)
    assert (popcount(low[:25] ^ low[25:])[:, 0] == expected).all()


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


def found_in(invoke, *arguments):
    result = invoke("duplicates", *arguments, "--limit", 100_000, "--json", status=1)
    return json.loads(result.stdout), result.stderr


@pytest.mark.parametrize("options", [[], ["--across"]])
def test_too_many_candidates_are_narrowed(invoke, monkeypatch, options, tmp_path):
    """Only the nearest candidates are compared, and the result says so. Copies are still found."""
    write_strokes(tmp_path, 120)
    copies = {}
    for number in range(0, 120, 4):
        image = Image.open(tmp_path / "val" / "x" / f"{number}.png")
        copy = tmp_path / "train" / "x" / f"copy-{number}.jpg"
        copy.write_bytes(encode(image, quality=90))
        copies[f"{number}.png"] = copy.name
    everything, text = found_in(invoke, tmp_path, *options)
    (doubt,) = everything["notes"]
    assert "of the 150 images with a side of less than 64 pixels count as near copies" in doubt
    assert doubt in text.replace("\n", " ")
    monkeypatch.setattr(small, "_CANDIDATES", 4)
    monkeypatch.setattr(small, "_FEW_CANDIDATES", 0)
    monkeypatch.setattr(pixel_check, "_TASK_PAIRS", 50)
    narrowed, text = found_in(invoke, tmp_path, *options)
    note, doubt = narrowed["notes"]
    assert "count as near copies" in doubt
    assert "so many of the 150 images" in note
    assert "only the 4 nearest ones of each were compared" in note
    assert note in text.replace("\n", " ")
    assert 0 < narrowed["near"] <= 4 * 150
    assert narrowed["near"] < everything["near"]
    pairs, some = (
        {
            tuple(sorted(image["path"].split("/")[-1] for image in pair["images"]))
            for pair in result["pairs"]
        }
        for result in (everything, narrowed)
    )
    assert some <= pairs
    assert {tuple(sorted(pair)) for pair in copies.items()} <= some


def test_narrowed_search_does_not_depend_on_the_number_of_processes(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(small, "_CANDIDATES", 4)
    monkeypatch.setattr(small, "_FEW_CANDIDATES", 0)
    monkeypatch.setattr(near, "_FEW_COMPARISONS", 0)
    write_strokes(tmp_path, 60)
    one, two = (found_in(invoke, tmp_path, "--workers", workers)[0] for workers in (1, 2))
    assert one == two
    assert one["notes"]


def test_conversion_says_that_candidates_were_narrowed(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(small, "_CANDIDATES", 2)
    monkeypatch.setattr(small, "_FEW_CANDIDATES", 0)
    write_strokes(tmp_path / "src", 60)
    result = invoke(
        "convert",
        "--src",
        tmp_path / "src",
        "--duplicates",
        "drop",
        "--out",
        tmp_path / "out",
        "--hash",
    )
    assert (
        "only the 2 nearest ones of each were compared with it: some near copies may be missing"
        in result.stderr.replace("\n", " ")
    )
    page = tmp_path / "report.html"
    invoke("report", tmp_path / "out", "--out", page)
    assert "nearest ones of each were compared with it" in page.read_text()


@pytest.mark.parametrize("options", [[], ["--across"]])
@pytest.mark.parametrize("is_narrowed", [False, True])
def test_large_images_do_not_change_the_pairs_of_small_ones(
    invoke, monkeypatch, pictures, options, is_narrowed, tmp_path
):
    """Small images are compared with each other in one way only.

    Copies of large ones are found too.
    """
    if is_narrowed:
        monkeypatch.setattr(small, "_CANDIDATES", 1)
        monkeypatch.setattr(small, "_FEW_CANDIDATES", 0)
    write_strokes(tmp_path, 60)
    for number in range(0, 60, 4):  # more copies of each than are compared
        image = Image.open(tmp_path / "val" / "x" / f"{number}.png")
        for quality, split in ((95, "train"), (90, "val"), (85, "train"), (80, "train")):
            (tmp_path / split / "x" / f"{number}-{quality}.jpg").write_bytes(
                encode(image, quality=quality)
            )
    alone, _ = found_in(invoke, tmp_path, *options)
    assert len(alone["notes"]) == 1 + is_narrowed
    copies = {
        "large.png": pictures["coffee"],
        "large.jpg": pictures["coffee"],
        "tiny.png": thumbnail(pictures["coffee"]),
    }
    for name, picture in copies.items():
        path = tmp_path / ("train" if name == "large.png" else "val") / "x" / name
        path.write_bytes(encode(picture, "JPEG" if name.endswith("jpg") else "PNG"))
    mixed, _ = found_in(invoke, tmp_path, *options)
    of_small, of_large = [], []
    for pair in mixed["pairs"]:
        names = {image["path"].split("/")[-1] for image in pair["images"]}
        (of_large if names & copies.keys() else of_small).append(
            names if names & copies.keys() else pair
        )
    assert of_small == alone["pairs"]
    assert {"large.png", "large.jpg"} in of_large
    assert {"large.png", "tiny.png"} in of_large
    assert ({"large.jpg", "tiny.png"} in of_large) == (not options), "these are in one split"
    assert len(of_large) == (2 if options else 3)
