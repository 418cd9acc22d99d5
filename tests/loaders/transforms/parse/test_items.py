"""Objects of torchvision.transforms, v1 and v2, wherever they stand in a list."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.parsing import recipe_error
from helpers.rows import evaluate, read_rows
from helpers.torchvision_oracle import import_torchvision
from PIL.Image import Resampling

from loaders.transforms.color import RandomGrayscale
from loaders.transforms.combinators import RandomChoice
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale
from loaders.transforms.erasing import RandomErasing
from loaders.transforms.parse import known_transforms, read_recipe
from loaders.transforms.parse.items import REFUSED
from manifests.errors import CallError

v1, v2 = import_torchvision()
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BOTH = pytest.mark.parametrize("t", [v1, v2], ids=["v1", "v2"])


def words(*items):
    return read_recipe([*items, {"CenterCrop": {"size": 8}}]).operations


@BOTH
@pytest.mark.parametrize(
    ("row", "item"), read_rows(__file__, "objects are the words of their class")
)
def test_objects_are_the_words_of_their_class(t, row, item):
    make = evaluate(row, globals())
    item = evaluate(item, globals())
    found, expected = words(make(t)), words(item)
    if isinstance(found[1], RandomChoice) and t is v1:
        assert found[1].chains == expected[1].chains
    else:
        assert found == expected


@BOTH
def test_random_erasing_erases_each_image_for_itself(t):
    recipe = read_recipe(
        [t.CenterCrop(8), t.ToTensor(), t.Normalize(MEAN, STD), t.RandomErasing(p=1.0)]
    )
    assert not recipe.batch_functions
    assert recipe.operations[-1] == RandomErasing(
        1.0, (0.02, 0.33), (0.3, 3.3), log_ratio=True, attempts=10
    )
    noisy = read_recipe([t.CenterCrop(8), t.ToTensor(), t.RandomErasing(value="random")])
    assert noisy.operations[-1].mode == "pixels"


@BOTH
def test_compose_is_its_transforms_wherever_it_stands(t):
    train = t.Compose(
        [t.CenterCrop(8), t.Compose([t.RandomGrayscale()]), t.ToTensor(), t.Normalize(MEAN, STD)]
    )
    recipe = read_recipe(["DecodeImage", train])
    assert recipe.operations[0] == Decode()
    assert recipe.operations[2:] == (
        RandomGrayscale(),
        Rescale(),
        Normalize(tuple(MEAN), tuple(STD), scale=1.0),
    )
    assert [item.location for item in recipe.items] == [
        "transforms[0]", "transforms[1][0]", "transforms[1][1][0]", "transforms[1][2]", "transforms[1][3]",
    ]  # fmt: skip
    inner = torch.nn.Sequential(t.CenterCrop(8), t.RandomInvert())
    for sequential in (inner, torch.nn.Sequential(inner, torch.nn.Identity())):
        assert read_recipe([sequential]).output.size == (8, 8)


def test_v2_conversions():
    to_float, to_bytes = (v2.ToDtype(each, scale=True) for each in (torch.float32, torch.uint8))
    scaled = words(v2.ToImage(), to_float, v2.ToPureTensor(), v2.RGB(), v2.Identity())
    assert scaled[1:-1] == (Rescale(),)
    assert words(to_bytes)[1:-1] == ()
    assert "ToFloat" in repr(words(v2.ToDtype(torch.float32)))


@BOTH
def test_lambda_is_a_function_of_the_batch(t):
    recipe = read_recipe([t.CenterCrop(8), t.Lambda(len)])
    assert recipe.batch_functions == (len,)
    assert "the function gets the finished batch" in recipe.all_notes[0]


class Mine(v2.Transform):
    def transform(self, image, params):
        return image


class Blur(v1.RandomApply):
    def __init__(self):
        super().__init__([v1.GaussianBlur(3)])


ALBUMENTATIONS = type("HorizontalFlip", (), {"__module__": "albumentations.core"})


def nested(count):
    item = v2.RandomInvert()
    for _ in range(count):
        item = v2.Compose([item])
    return item


@pytest.mark.parametrize(("text", "message"), read_rows(__file__, "refused"))
def test_lists_are_refused(text, message):
    error = recipe_error(evaluate(text, globals()))
    start, _, end = message.partition("[...]")
    assert error.startswith(start)
    assert error.endswith(end) or end in error


def test_a_class_that_extends_a_container_is_its_transforms():
    plain = v1.RandomApply([v1.GaussianBlur(3)])
    assert words(Blur()) == words(plain)


def test_every_class_has_a_name_or_a_reason():
    """Every transform of torchvision, v1 and v2. The guide has the reasons too."""
    bases = {"Transform", "Compose"}
    for t in (v1, v2):
        classes = {
            name
            for name in dir(t)
            if isinstance(getattr(t, name), type) and hasattr(getattr(t, name), "forward")
        }
        assert classes - bases <= {*known_transforms(), *REFUSED}
    assert not REFUSED.keys() & {*known_transforms()}
    guide = (Path(__file__).parents[4] / "docs" / "transforms.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", guide, re.M)).items() >= REFUSED.items()


def test_one_of_several_mixing_operations() -> None:
    mix = [v2.CutMix(num_classes=7), v2.MixUp(num_classes=7)]
    for item, probabilities in (
        (v2.RandomChoice(mix), (0.5, 0.5)),
        (v2.RandomChoice(mix, p=[3, 1]), (0.75, 0.25)),
        (v2.RandomApply(mix[:1], p=0.3), (0.3,)),
        (v2.RandomApply([v2.RandomChoice(mix, p=[3, 1])], p=0.5), (0.375, 0.125)),
    ):
        (found,) = read_recipe([{"CenterCrop": {"size": 8}}, item]).mixing
        assert found.probabilities == probabilities
        assert found.classes == 7


def test_values_of_other_libraries() -> None:
    from torchvision.tv_tensors import Image, Mask

    mean, std = np.array([0.5, 0.4, 0.3]), torch.tensor([0.25, 0.5, 1.0])
    plain = words("ToTensor", {"Normalize": {"mean": mean.tolist(), "std": std.tolist()}})
    assert words("ToTensor", v1.Normalize(mean, std)) == plain
    assert words("ToTensor", {"Normalize": {"mean": list(mean), "std": tuple(std)}}) == plain
    assert words({"CenterCrop": {"size": np.int64(9)}}) == words({"CenterCrop": {"size": 9}})
    # A value for each type of input is the value of images.
    dtypes = {Image: torch.float32, Mask: torch.int64, "others": None}
    assert words(v2.ToDtype(dtypes, scale=True)) == words("ToTensor")
    for fill in ({Image: (1, 2, 3), Mask: 0}, {Mask: 0, "others": (1, 2, 3)}):
        assert words(v2.Pad(2, fill=fill)) == words({"Pad": {"padding": 2, "fill": [1, 2, 3]}})
    # Filters of Pillow are filters of torchvision.
    for name, given in (("Resize", {"size": 9}), ("RandomAffine", {"degrees": 9})):
        expected = words({name: {**given, "interpolation": "bicubic"}})
        for filter_ in (Resampling.BICUBIC, 3):
            assert words({name: {**given, "interpolation": filter_}}) == expected


def to_rgb(image):
    """Convert an image."""
    return image.convert("RGB")


@pytest.mark.parametrize(
    "function",
    [
        to_rgb,
        lambda img: img.convert("RGB"),
        lambda img: img.convert(mode="RGB"),
        lambda img: img.convert("RGB") if img.mode != "RGB" else img,
    ],
)
def test_a_conversion_to_rgb_does_nothing(function) -> None:
    plain = words(v1.Resize(9), v1.ToTensor())
    assert words(v1.Resize(9), function, v1.ToTensor()) == plain
    assert words(v1.Lambda(function), v1.Resize(9), v1.ToTensor()) == plain
    assert not read_recipe([{"CenterCrop": {"size": 8}}, function]).batch_functions


def test_what_makes_two_crops_of_an_image_is_told_to_use_views() -> None:
    crops = SimpleNamespace(base_transform=v1.Compose([v1.CenterCrop(8), v1.ToTensor()]))
    with pytest.raises(CallError, match=r"on each image.*Hint: .*pass views=\[list, list\]"):
        read_recipe([crops])
    # What has transforms for tensors may be meant for the finished batch.
    batch = SimpleNamespace(transform=v1.Compose([v1.RandomInvert()]))
    assert "is not a transform" in recipe_error([batch])


def test_the_preprocessing_of_weights() -> None:
    from torchvision.transforms import _presets

    preset = _presets.ImageClassification(crop_size=9, resize_size=12)
    steps = [v1.Resize(12), v1.CenterCrop(9), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    assert read_recipe([preset]).operations == read_recipe(steps).operations
    segmentation = _presets.SemanticSegmentation(resize_size=12)
    assert words(segmentation) == words(v1.Resize(12), v1.ToTensor(), v1.Normalize(MEAN, STD))
    assert words(_presets.ObjectDetection()) == words(v1.ToTensor())
