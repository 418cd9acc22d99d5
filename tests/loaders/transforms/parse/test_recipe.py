"""Lists of transforms: what they become, and the location of every mistake."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import parsing
from helpers.examples import examples
from helpers.parsing import named_parameters, recipe_error, required_parameters, valid_value
from helpers.rows import evaluate, read_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders.transforms import crop_resize, decode_normalize, geometry
from loaders.transforms.argument import get_preset, parse_transforms
from loaders.transforms.crop_resize import Crop
from loaders.transforms.decode_normalize import Decode
from loaders.transforms.parse import known_transforms, read_recipe
from loaders.transforms.parse.items import parse_transform
from manifests.errors import CallError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = {"CropImage": {"size": 8}}
RECORDS = (crop_resize, decode_normalize, geometry)


def doubled(images):
    return images * 2


class Halved:
    def __call__(self, images):
        return images / 2


# Lists
# --------------------------------------------------------------------------------------------------


def test_only_decoding_is_added():
    assert read_recipe([CROP]).operations == (Decode(), Crop((8, 8), rounding="down"))
    assert read_recipe(["ToCHWImage", "DecodeImage", CROP]).operations[0] == Decode()
    assert read_recipe([{"DecodeImage": {"to_rgb": False}}, CROP]).operations[0] == Decode("BGR")
    assert read_recipe([Decode("BGR"), CROP]).output.color_space == "BGR"


def test_the_nearest_filter_of_torchvision_depends_on_what_it_resizes():
    nearest, exact = (
        {"Resize": {"size": [9, 9], "interpolation": name}} for name in ("nearest", "nearest-exact")
    )
    for items, noted in (
        (["ToImage", nearest], True),
        ([nearest, "ToImage"], False),
        (["ToTensor", exact], False),
        (["ToImage", {"Resize": {"size": [9, 9]}}], False),
    ):
        notes = read_recipe(items).all_notes
        assert ["of tensors it takes" in note for note in notes] == [True] * noted


NORMALIZE = {"Normalize": {"mean": MEAN, "std": STD}}


@pytest.mark.parametrize(("text", "message"), read_rows(__file__, "refused"))
def test_lists_are_refused(text: str, message: str) -> None:
    items, options = evaluate(text, *map(vars, RECORDS), vars(parsing), globals())
    start, _, end = message.partition("[...]")
    error = recipe_error(items, **options)
    assert error.startswith(start)
    assert error.endswith(end)


@pytest.mark.parametrize(
    "items",
    [
        ["ToTensor", NORMALIZE],
        ["ToTensor", NORMALIZE, NORMALIZE],
        ["ToTensor", {"NormalizeImage": {"scale": 1.0}}],
        ["NormalizeImage"],
        [{"NormalizeImage": {"scale": 1.0, "mean": [123.7, 116.3, 103.5], "std": [58, 57, 57]}}],
        [{"Normalize": {"mean": 127.5, "std": 127.5}}],
        [{"NormalizeImage": {"scale": 1.0, "mean": [0, 0, 0], "std": [1, 1, 1]}}],
        [{"NormalizeImage": {"scale": 1.0, "mean": [0, 0, 0], "std": [255, 255, 255]}}],
    ],
)
def test_lists_that_scale_once(items):
    assert not read_recipe([CROP, *items]).output.is_uint8


def test_what_changes_nothing():
    plain = parse_transform("NormalizeImage", {})
    for order in ("chw", "hwc", ""):
        assert parse_transform("NormalizeImage", {"order": order}) == plain
    given = {"mean": 0.5, "std": 0.5}
    same = parse_transform("Normalize", {**given, "data_format": "HWC"})
    assert same == parse_transform("Normalize", given)
    (note,) = read_recipe([CROP, {"NormalizeImage": {"output_fp16": True}}]).all_notes
    assert "build's dtype sets the type of a batch" in note
    with pytest.raises(CallError, match=r"is neither a preset nor .* mean 'imagenet-train'"):
        get_preset("imagenet-trian")


# Any list
# --------------------------------------------------------------------------------------------------

TEXTS = [
    "", "bilinear", "nearest", "random", "cv2", "pil", "batch", "elem", "const", "none", "1.0/255.0", "1/0", "1e999",
    "__import__('os')", "rand-m9-mstd0.5-inc1", "augmix-w0-d0", "v0", "rand-n100", "edge", "reflect", "constant",
]  # fmt: skip
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.just(10**400),
    st.floats(-3, 3),
    st.floats(),
    st.sampled_from(TEXTS),
    st.text(max_size=6),
)
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=4),
    st.lists(st.integers(1, 40), min_size=2, max_size=2),
    st.lists(st.floats(0, 1), min_size=2, max_size=3),
    st.dictionaries(st.text(max_size=4) | st.just("prob"), scalars, max_size=2),
)


@st.composite
def calls(draw: st.DrawFn) -> dict[Any, Any]:
    """Draw a name with some of its arguments, and sometimes with an unknown one."""
    name = draw(st.sampled_from(known_transforms()))
    named = named_parameters(name)
    named += ["MixupOperator", "CutmixOperator"] if name == "OpSampler" else []
    chosen = draw(st.lists(st.sampled_from(named), unique=True)) if named else []
    arguments: dict[Any, Any] = {each: valid_value(each) for each in required_parameters(name)}
    arguments |= {each: draw(values) for each in chosen}
    if draw(st.integers(0, 19)) == 0:
        arguments |= {draw(scalars): draw(values)}
    return {name: arguments}


items = st.one_of(
    calls(),
    calls(),
    calls(),
    values,
    st.sampled_from(known_transforms()),
    st.dictionaries(st.sampled_from(known_transforms()) | scalars, values, max_size=2),
)


@settings(max_examples=examples(800), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(items, max_size=4), st.booleans(), st.lists(items, max_size=1))
def test_any_list_parses_or_gives_an_error_with_its_location(sequence, sized, batch):
    sequence = [CROP, *sequence] if sized else sequence
    try:
        recipe = read_recipe(sequence, batch=batch)
    except CallError as error:
        assert str(error).startswith(("transforms", "batch_transforms"))  # noqa: PT017 -- most lists are errors
        return
    hash(recipe.operations)
    assert recipe.output.size
    assert 0 <= recipe.smoothing <= 1
    assert recipe == read_recipe(sequence, batch=batch)


def test_an_object_that_makes_several_crops_is_refused_with_views():
    class TwoCrops:
        def __call__(self, image):
            return [image, image]

    with pytest.raises(CallError, match=r"got <.*TwoCrops.*if it returns several images.*views="):
        parse_transforms(TwoCrops(), split="train")
