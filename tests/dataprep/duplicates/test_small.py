"""Small images: other crops of a photograph are found, and different photographs are not, whatever their hashes are."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.pictures import encode
from PIL import Image

from dataprep.duplicates import small
from dataprep.duplicates.search import distances, low_frequencies, popcount
from dataprep.duplicates.small import aligned_correlation, correlation, show_the_same


def thumbnail(picture: Image.Image, box: tuple[float, float, float, float] = (0, 0, 1, 1)) -> Image.Image:
    """A part of a picture, as shares of its sides, in 32x32 pixels."""
    left, top, right, bottom = (share * side for share, side in zip(box, picture.size * 2, strict=True))
    return picture.resize((32, 32), Image.Resampling.BOX, box=(left, top, right, bottom))


#: All of a picture, and crops that lose up to a twentieth of a side.
CROPS = [(0, 0, 1, 1), (0.025, 0.025, 0.975, 0.975), (0.03, 0.03, 1, 1), (0, 0.03, 1, 1), (0.03, 0, 0.98, 1)]


def write(folder, pictures, boxes=CROPS):
    for name, picture in pictures.items():
        for number, box in enumerate(boxes):
            path = folder / ("train" if number else "val") / "x" / f"{name}-{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(thumbnail(picture, box), quality=85))


def pairs_of(invoke, *arguments, status=1):
    result = json.loads(invoke("duplicates", *arguments, "--limit", 1000, "--json", status=status).stdout)
    return [tuple(image["path"].split("/")[-1] for image in pair["images"]) for pair in result["pairs"]]


def test_crops_of_photographs(invoke, monkeypatch, pictures, tmp_path):
    write(tmp_path / "src", pictures)
    found = pairs_of(invoke, tmp_path / "src", "--across")
    names = [tuple(name.split("-")[0] for name in pair) for pair in found]
    assert all(first == second for first, second in names), "different photographs are not copies"
    assert len(found) >= 0.5 * len(pictures) * (len(CROPS) - 1)
    monkeypatch.setattr(small, "_COARSE_DISTANCE", 64)
    monkeypatch.setattr(small, "_MAX_COARSE_DISTANCE", 64)  # then the pixels alone decide
    names = [tuple(name.split("-")[0] for name in pair) for pair in pairs_of(invoke, tmp_path / "src", "--across")]
    assert all(first == second for first, second in names)
    monkeypatch.setattr(small, "_MIN_ALIGNED", 1.1)
    assert pairs_of(invoke, tmp_path / "src", "--across", status=0) == []


def test_mirrored_crops(invoke, pictures, tmp_path):
    mirrored = {name: picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for name, picture in pictures.items()}
    write(tmp_path / "a", pictures, CROPS[:1])
    write(tmp_path / "b", mirrored, CROPS[1:2])
    result = json.loads(
        invoke("duplicates", tmp_path / "a", tmp_path / "b", "--across", "--json", "--limit", 99, status=1).stdout
    )
    assert len(result["pairs"]) >= 0.6 * len(pictures)
    assert {pair["symmetry"] for pair in result["pairs"]} <= {"mirrored", "identical", "rotated 180", "flipped"}
    assert sum(pair["symmetry"] == "mirrored" for pair in result["pairs"]) >= len(result["pairs"]) - 1


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


def test_correlation_of_gradients():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (3, 32, 32)).astype(np.float32)
    assert correlation(a, a) == pytest.approx(1)
    assert (abs(correlation(a, a[::-1])[[0, 2]]) < 0.2).all()
    assert (correlation(a, np.zeros_like(a)) == 0).all()
    assert (aligned_correlation(a, np.zeros_like(a)) == 0).all()
    for shift in ((0, 0), (5, -8), (-3, 2)):
        shifted = np.roll(a, shift, (1, 2))
        assert aligned_correlation(a, shifted) == pytest.approx(1, abs=0.05)
    assert (aligned_correlation(a, np.roll(a, 12, 1)) < 0.5).all()


def test_flat_images_do_not_show_the_same():
    rng = np.random.default_rng(0)
    flat = (128 + rng.integers(-2, 3, (8, 32, 32))).astype(np.uint8)
    assert not show_the_same(flat, flat[::-1]).any()
    corner = flat.copy()
    corner[:, :4, :4] = 255
    assert not show_the_same(corner, corner[:, ::-1, ::-1]).any()
    assert show_the_same(corner, corner).all()


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
