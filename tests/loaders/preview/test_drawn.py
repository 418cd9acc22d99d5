"""What a preview says about a draw is what happened to the pixels."""

import re

import numpy as np
import pytest
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows
from PIL import Image

import loaders

pytestmark = pytest.mark.filterwarnings("ignore:the transforms are not exact")

SIDE = 48
OPTIONS = {"batch_size": 4, "device": "cpu", "num_threads": 2, "dtype": "uint8"}
REGION = re.compile(r"(?:crop|erased|kept) (\d+) x (\d+) at (\d+), (\d+)")


@pytest.fixture(scope="module")
def pictures():
    return [np.asarray(photo(number, SIDE, SIDE - 8)) for number in range(6)]


@pytest.fixture
def drawn(make_dataset, pictures):
    """A function that returns pairs of stored and drawn pixels, with the caption."""
    samples = [("png", encode(each, "PNG"), number % 3) for number, each in enumerate(pictures)]
    dataset = make_dataset("tfrecord", samples, shards=1)

    def draw(*transforms, **options):
        with loaders.build(dataset, transforms=[*transforms], **OPTIONS | options) as loader:
            preview = loader.preview(samples=6, draws=6)
        found = []
        for item in preview.items:
            found += [(item.original, each.pixels, each.caption) for each in item.draws]
        return found

    return draw


def region(caption):
    width, height, left, top = map(int, REGION.search(caption).groups())
    return left, top, left + width, top + height


@pytest.mark.parametrize(
    "first", [[], [{"RandomGrayscale": {"p": 0.0}}], [{"Pad": {"padding": 0}}]]
)
def test_crop_and_flip(drawn, first):
    """Cut out of the stored image and flipped as the caption says, the result is the same."""
    flips, crop = set(), {"RandomResizedCrop": {"size": 32}}
    for stored, pixels, caption in drawn(*first, crop, "RandomHorizontalFlip"):
        part = Image.fromarray(stored).crop(region(caption))
        again = np.asarray(part.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
        flips.add(flipped := caption.endswith("flipped"))
        assert np.abs(again[:, :: -1 if flipped else 1] - pixels).mean() < 2
    assert flips == {True, False}


def test_random_place(drawn):
    for stored, pixels, caption in drawn({"RandomCrop": {"size": 24}}):
        left, top = map(int, re.fullmatch(r"crop at (\d+), (\d+)", caption).groups())
        assert np.array_equal(stored[top : top + 24, left : left + 24], pixels)


def test_only_images_that_are_changed(drawn):
    transforms = [{"RandomApply": {"transforms": [{"RandomVerticalFlip": {"p": 1.0}}], "p": 0.5}}]
    captions = set()
    for stored, pixels, caption in drawn(*transforms):
        captions.add(caption)
        assert np.array_equal(stored[::-1] if caption else stored, pixels)
    assert captions == {"", "flipped vertically"}


def test_color_jitter(drawn):
    for stored, pixels, caption in drawn({"ColorJitter": {"brightness": [0.3, 0.7]}}):
        factor = float(re.fullmatch(r"brightness (\d\.\d\d)", caption)[1])
        assert pixels.mean() / stored.mean() == pytest.approx(factor, abs=0.02)


def test_policies(drawn):
    captions = [caption for _, _, caption in drawn({"RandAugment": {"num_ops": 2, "magnitude": 9}})]
    steps = [step.split()[0] for caption in captions for step in caption.split(", ") if step]
    assert len(set(steps)) > 5
    for stored, pixels, caption in drawn({"RandAugment": {"num_ops": 1, "magnitude": 9}}):
        assert bool(caption) or np.array_equal(stored, pixels)


@pytest.mark.parametrize(("row", "caption"), read_rows(__file__, "captions"))
def test_captions(drawn, row, caption):
    for _, _, found in drawn(evaluate(row)):
        assert re.fullmatch(caption, found), found
