"""Values are scaled from 0-255 to 0-1 exactly once."""

from __future__ import annotations

import pytest
from helpers.parsing import recipe_error

from loaders.transforms.decode_normalize import Normalize
from loaders.transforms.parse import read_recipe

CROP = {"CenterCrop": {"size": 8}}
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMALIZE = {"Normalize": {"mean": MEAN, "std": STD}}


def test_scaling_twice_is_refused():
    text = recipe_error([CROP, "ToTensor", {"NormalizeImage": {}}])
    assert (
        text == "transforms[2]: the values are already from 0 to 1 at this point, and are scaled by"
        " 0.003922 again. Hint: remove ToTensor before it, or use Normalize, which does not"
        " scale."
    )
    text = recipe_error([CROP, "ToTensor", {"NormalizeImage": {"scale": "0.00392157"}}])
    assert text.startswith("transforms[2]: the values are already from 0 to 1")
    text = recipe_error([CROP, "NormalizeImage", Normalize((0, 0, 0), (1, 1, 1))])
    assert text.startswith("transforms[2]: the values are already normalized at this point")
    assert recipe_error([CROP, "ToTensor", "ToTensor"]).startswith(
        "transforms[2]: ToTensor needs uint8 values"
    )


def test_no_scaling_is_refused():
    text = recipe_error([CROP, NORMALIZE])
    assert (
        text
        == "transforms[1]: the mean (0.485, 0.456, 0.406) and std (0.229, 0.224, 0.225) are for"
        " values from 0 to 1, but the values are from 0 to 255. Hint: put ToTensor before it, or"
        " use NormalizeImage, which scales by 1/255."
    )
    assert recipe_error([CROP, {"NormalizeImage": {"scale": 1.0}}]).startswith(
        "transforms[1]: the mean (0.485"
    )


def test_a_mean_for_bytes_after_scaling_is_refused():
    text = recipe_error([CROP, "ToTensor", {"Normalize": {"mean": 127.5, "std": 127.5}}])
    assert text.startswith("transforms[2]: the mean (127.5, 127.5, 127.5)")
    assert text.endswith("Hint: divide mean and std by 255, or remove ToTensor before it.")


@pytest.mark.parametrize(
    "items",
    [
        ["ToTensor", NORMALIZE],
        ["ToTensor", NORMALIZE, NORMALIZE],
        ["ToTensor", {"NormalizeImage": {"scale": 1.0}}],
        ["NormalizeImage"],
        [
            {
                "NormalizeImage": {
                    "scale": 1.0,
                    "mean": [123.7, 116.3, 103.5],
                    "std": [58.4, 57.1, 57.4],
                }
            }
        ],
        [{"Normalize": {"mean": 127.5, "std": 127.5}}],
        [{"NormalizeImage": {"scale": 1.0, "mean": [0, 0, 0], "std": [1, 1, 1]}}],
        [{"NormalizeImage": {"scale": 1.0, "mean": [0, 0, 0], "std": [255, 255, 255]}}],
    ],
)
def test_lists_that_scale_once(items):
    assert not read_recipe([CROP, *items]).output.is_uint8
