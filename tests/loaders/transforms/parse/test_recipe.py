"""Lists of transforms: what they become, and the location of every mistake."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.examples import examples
from helpers.parsing import (
    named_parameters,
    recipe_error,
    required_parameters,
    valid_arguments,
    valid_value,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders.transforms.argument import PRESETS, get_preset, parse_transforms
from loaders.transforms.base import ImageSpec
from loaders.transforms.crop_resize import Crop, Resize
from loaders.transforms.decode_normalize import Decode, Normalize
from loaders.transforms.geometry import Flip
from loaders.transforms.mixing import Mixup
from loaders.transforms.parse import known_transforms, read_recipe
from loaders.transforms.parse.items import parse_transform
from manifests.errors import CallError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = {"CropImage": {"size": 8}}


def doubled(images):
    return images * 2


class Halved:
    def __call__(self, images):
        return images / 2


# Lists
# --------------------------------------------------------------------------------------------------


def test_list_with_every_kind_of_item():
    recipe = read_recipe(
        ["DecodeImage", {"ResizeImage": {"size": 12}}, Flip(0.25), {"CropImage": {"size": [8, 9]}},
         {"NormalizeImage": None}, "ToCHWImage", {"MixUp": {"alpha": 0.3}}, doubled, Halved(), len],
        notes=["a note"],
    )  # fmt: skip
    assert recipe.operations == (
        Decode(), Resize((12, 12), antialias=False), Flip(0.25), Crop((9, 8), rounding="down"), Normalize(MEAN, STD)
    )  # fmt: skip
    assert recipe.mixing == (Mixup(0.3, None, "previous"),)
    assert [each.location for each in recipe.items] == [
        f"transforms[{number}]" for number in range(10)
    ]
    assert [each.description for each in recipe.items[-4:]] == [
        "MixUp(alpha=0.3)",
        "doubled(images)",
        "Halved(images)",
        "len(images)",
    ]
    assert recipe.items[2].description == repr(Flip(0.25))
    assert recipe.batch_functions[0] is doubled
    assert recipe.batch_functions[2] is len
    assert recipe.output == ImageSpec((9, 8), is_uint8=False)
    assert recipe.output.size == (9, 8)
    assert recipe.all_notes == ("a note",)


def test_only_decoding_is_added():
    assert read_recipe([CROP]).operations == (Decode(), Crop((8, 8), rounding="down"))
    assert read_recipe(["ToCHWImage", "DecodeImage", CROP]).operations[0] == Decode()
    assert read_recipe([{"DecodeImage": {"to_rgb": False}}, CROP]).operations[0] == Decode("BGR")
    assert read_recipe([Decode("BGR"), CROP]).output.color_space == "BGR"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_parse(name):
    items, batch = get_preset(name)
    recipe = read_recipe(items, source=name, batch=batch)
    assert recipe.output == ImageSpec(recipe.output.size, is_uint8=False)


def test_unknown_preset_suggests_the_nearest():
    with pytest.raises(CallError) as error:
        get_preset("imagenet-trian")
    assert (
        str(error.value)
        == "transforms='imagenet-trian' is neither a preset nor an existing YAML file. Hint: did"
        " you mean 'imagenet-train'?"
    )


def test_errors_state_the_location():
    text = recipe_error([CROP, {"CropImage": {"size": "x"}}], source="a.yaml: transform_ops")
    assert (
        text
        == "a.yaml: transform_ops[1]: CropImage: size must be one integer or two integers, got 'x'"
    )
    text = recipe_error([CROP], batch=["MixUp", {"CutMix": {"alpha": 0}}])
    assert text.startswith("batch_transforms[1]: CutMix: alpha")
    text = recipe_error([CROP], batch=[3], source="a.yaml: transform_ops")
    assert text.startswith("a.yaml: batch_transform_ops[0] is not a transform: 3")
    text = recipe_error([{"RandomResizedCrop": {"size": 8, "scale": [1, 0.5]}}])
    assert text.startswith(
        "transforms[0]: RandomResizedCrop: scale must be two numbers from 0 to 1 in ascending order"
    )
    text = recipe_error([CROP, "NormalizeImage", "ToHSV"])
    assert text.startswith("transforms[2]: ToHSV needs uint8 values from 0 to 255")
    assert text.endswith("Hint: move it before the normalization.")
    text = recipe_error([CROP, "ToHSV", "RandomGrayscale"])
    assert text.startswith(
        "transforms[2]: RandomGrayscale needs red, green and blue channels, but the images are HSV"
    )


@pytest.mark.parametrize(
    "item",
    [None, 3, 1.5, b"Resize", [], ["Resize"], (), {}, {"Resize": {"size": 8}, "CropImage": {"size": 8}}, {3: {}},
     {None: None}, Resize, Flip, int],
)  # fmt: skip
def test_items_that_are_not_transforms(item):
    text = recipe_error([CROP, item])
    assert text.startswith(f"transforms[1] is not a transform: {item!r}")
    assert "write a name, or a name with arguments" in text


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("DecodeImage", "to_rgb"),
        ("DecodeImage", "channel_first"),
        ("RandCropImage", "use_log_aspect"),
        ("Resize", "antialias"),
        ("RandomRotation", "expand"),
        ("RandomCrop", "pad_if_needed"),
        ("ResizeImage", "return_numpy"),
        ("NormalizeImage", "output_fp16"),
        ("Normalize", "to_rgb"),
    ],
)
def test_flags_must_be_bools(name, argument):
    arguments = valid_arguments(name)
    for value in ("False", 0, None, []):
        assert (
            recipe_error([{name: arguments | {argument: value}}])
            == f"transforms[0]: {name}: {argument} must be True or False, got {value!r}"
        )


@pytest.mark.parametrize("order", ["chw", "hwc", ""])
def test_channel_order_is_checked_and_changes_nothing(order):
    assert parse_transform("NormalizeImage", {"order": order}) == parse_transform(
        "NormalizeImage", {}
    )
    for wrong in ("nchw", "CHW", None, 3):
        assert (
            recipe_error([{"NormalizeImage": {"order": wrong}}])
            == "transforms[0]: NormalizeImage: order must be one of 'chw', 'hwc', '', got"
            f" {wrong!r}"
        )
    given = {"mean": 0.5, "std": 0.5}
    assert parse_transform("Normalize", given | {"data_format": "HWC"}) == parse_transform(
        "Normalize", given
    )
    assert "data_format must be one of 'CHW', 'HWC', got 'NCHW'" in recipe_error(
        [{"Normalize": given | {"data_format": "NCHW"}}]
    )


def test_half_precision_gives_a_note():
    assert not read_recipe([CROP, "NormalizeImage"]).all_notes
    (note,) = read_recipe([CROP, {"NormalizeImage": {"output_fp16": True}}]).all_notes
    assert "build's dtype sets the type of a batch" in note


@pytest.mark.parametrize("arguments", [8, "8", [8], True, 0, ""])
def test_arguments_must_be_named(arguments):
    assert (
        recipe_error([{"CropImage": arguments}])
        == f"transforms[0]: CropImage takes named arguments, got {arguments!r}. "
        "Hint: write {'CropImage': {argument: value}}."
    )


def test_functions_come_last():
    text = recipe_error([CROP, doubled, "NormalizeImage"])
    assert (
        text
        == "transforms[1]: doubled(images) is a function, which is called with the finished batch,"
        " but transforms[2] comes after it. Hint: move functions to the end of the list."
    )
    assert recipe_error([Halved(), CROP]).startswith("transforms[0]: Halved(images) is a function")
    assert recipe_error([CROP, doubled], batch=["MixUp"]).endswith(
        "but batch_transforms[0] comes after it. Hint: move functions to the end of the list."
    )


def test_decoding_comes_first_and_once():
    for items in (
        [CROP, "DecodeImage"],
        ["DecodeImage", CROP, "DecodeImage"],
        ["DecodeImage", Decode()],
    ):
        text = recipe_error(items)
        assert (
            text == f"transforms[{len(items) - 1}]: images are already decoded at this point. "
            "Hint: decode only once, as the first transform."
        )


def test_varying_sizes_at_the_end_are_an_error():
    for items, after in (
        ([], ""),
        (["DecodeImage"], " after DecodeImage()"),
        (
            [{"ResizeImage": {"resize_short": 8}}, "NormalizeImage", "ToCHWImage"],
            " after NormalizeImage()",
        ),
        ([{"CropImage": {"size": [8, 9]}}, "RandomRot90"], " after RandomRot90()"),
    ):
        text = recipe_error(items)
        assert (
            text
            == f"transforms: images have different sizes{after}, but a batch needs one size. Hint:"
            " add a crop (CropImage, RandCropImage) or a resize to a fixed size (ResizeImage"
            " with size)."
        )
    text = recipe_error([Flip()], batch=["MixUp"])
    assert text.startswith(
        f"batch_transforms[0]: images have different sizes after {Flip()!r}, but MixUp() needs one"
        " size. Hint: add "
    )
    assert text.endswith("(ResizeImage with size) before it.")


def test_mixing_comes_last():
    text = recipe_error([CROP, {"MixUp": {"alpha": 0.2}}, "RandomHorizontalFlip"])
    assert (
        text == "transforms[2]: RandomHorizontalFlip() works on single images, but comes after"
        " transforms[1], which mixes the images of a batch. Hint: move transforms that mix"
        " images to the end."
    )


def test_number_of_classes_of_mixed_labels():
    assert read_recipe([CROP]).num_classes is None
    assert read_recipe([CROP, "MixUp"], num_classes=7).num_classes == 7
    assert read_recipe([CROP, {"MixUp": {"num_classes": 5}}], num_classes=7).num_classes == 5
    assert read_recipe([CROP]).smoothing == 0
    assert read_recipe([CROP, "MixupCutmixHybrid"]).smoothing == 0.1


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
