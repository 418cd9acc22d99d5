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

from loaders.transforms.argument import get_preset, parse_transforms
from loaders.transforms.crop_resize import Crop, Resize
from loaders.transforms.decode_normalize import Decode, Normalize
from loaders.transforms.geometry import Flip
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


def test_only_decoding_is_added():
    assert read_recipe([CROP]).operations == (Decode(), Crop((8, 8), rounding="down"))
    assert read_recipe(["ToCHWImage", "DecodeImage", CROP]).operations[0] == Decode()
    assert read_recipe([{"DecodeImage": {"to_rgb": False}}, CROP]).operations[0] == Decode("BGR")
    assert read_recipe([Decode("BGR"), CROP]).output.color_space == "BGR"


NORMALIZE = {"Normalize": {"mean": MEAN, "std": STD}}
ONE_SIZE = (
    "but a batch needs one size. Hint: add a crop (CropImage, RandCropImage) or a resize to a fixed"
    " size (ResizeImage with size)."
)
ONLY_ONCE = (
    "images are already decoded at this point. Hint: decode only once, as the first transform."
)
AT_THE_END = "Hint: move functions to the end of the list."

#: A list, options of `read_recipe`, and the begin and the end of the message.
REFUSED: list[tuple[list[Any], dict[str, Any], str, str]] = [
    # Where the mistake is.
    ([CROP, {"CropImage": {"size": "x"}}], {"source": "a.yaml: transform_ops"},
     "a.yaml: transform_ops[1]: CropImage: size must be one integer or two", "integers, got 'x'"),
    ([CROP], {"batch": ["MixUp", {"CutMix": {"alpha": 0}}]}, "batch_transforms[1]: CutMix: alpha", ""),
    ([CROP], {"batch": [3], "source": "a.yaml: transform_ops"},
     "a.yaml: batch_transform_ops[0] is not a transform: 3", ""),
    ([{"RandomResizedCrop": {"size": 8, "scale": [1, 0.5]}}], {},
     "transforms[0]: RandomResizedCrop: scale must be two numbers from 0 to 1 in ascending", ""),
    ([CROP, "NormalizeImage", "ToHSV"], {},
     "transforms[2]: ToHSV needs uint8 values from 0 to 255", "move it before the normalization."),
    ([CROP, "ToHSV", "RandomGrayscale"], {},
     "transforms[2]: RandomGrayscale needs red, green and blue channels, but the images are HSV", ""),
    # Arguments.
    *(([{name: {**valid_arguments(name), argument: wrong}}], {},
       f"transforms[0]: {name}: {argument} must be True or False, got {wrong!r}", "")
      for name, argument, wrong in (
          ("DecodeImage", "to_rgb", "False"), ("DecodeImage", "channel_first", 0),
          ("RandCropImage", "use_log_aspect", None), ("Resize", "antialias", []),
          ("RandomRotation", "expand", 1), ("RandomCrop", "pad_if_needed", "no"),
          ("ResizeImage", "return_numpy", 0), ("NormalizeImage", "output_fp16", None),
          ("Normalize", "to_rgb", "True"))),
    *(([{"NormalizeImage": {"order": wrong}}], {},
       f"transforms[0]: NormalizeImage: order must be one of 'chw', 'hwc', '', got {wrong!r}", "")
      for wrong in ("nchw", "CHW", None, 3)),
    ([{"Normalize": {"mean": 0.5, "std": 0.5, "data_format": "NCHW"}}], {},
     "transforms[0]: Normalize: data_format must be one of 'CHW', 'HWC', got 'NCHW'", ""),
    *(([{"CropImage": wrong}], {}, f"transforms[0]: CropImage takes named arguments, got {wrong!r}.",
       "Hint: write {'CropImage': {argument: value}}.") for wrong in (8, "8", [8], True, 0, "")),
    *(([CROP, wrong], {}, f"transforms[1] is not a transform: {wrong!r}", "")
      for wrong in (None, 3, b"Resize", [], ["Resize"], (), {}, {**CROP, "Resize": {"size": 8}},
                    {3: {}}, {None: None}, Resize, Flip, int)),
    # The order.
    ([CROP, doubled, "NormalizeImage"], {},
     "transforms[1]: doubled(images) is a function, which is called with the finished batch, but"
     " transforms[2] comes after it. ", AT_THE_END),
    ([Halved(), CROP], {}, "transforms[0]: Halved(images) is a function", AT_THE_END),
    ([type("Solarize", (Halved,), {})(), CROP], {}, "transforms[0]: Solarize(images) is a function",
     "Hint: write {'RandomSolarize': {...}} or torchvision's RandomSolarize instead of your own class."),
    ([CROP, doubled], {"batch": ["MixUp"]}, "transforms[1]: doubled(images) is a function",
     f"but batch_transforms[0] comes after it. {AT_THE_END}"),
    ([CROP, "DecodeImage"], {}, "transforms[1]: ", ONLY_ONCE),
    (["DecodeImage", CROP, "DecodeImage"], {}, "transforms[2]: ", ONLY_ONCE),
    (["DecodeImage", Decode()], {}, "transforms[1]: ", ONLY_ONCE),
    ([{"FiveCrop": {"size": 8}}, "RandomHorizontalFlip"], {},
     "transforms[1]: RandomHorizontalFlip() comes after FiveCrop or TenCrop", ""),
    ([CROP, {"MixUp": {"alpha": 0.2}}, "RandomHorizontalFlip"], {},
     "transforms[2]: RandomHorizontalFlip() works on single images, but comes after transforms[1],"
     " which mixes the images of a batch.", "Hint: move transforms that mix images to the end."),
    # Sizes.
    ([], {}, "transforms: images have different sizes, ", ONE_SIZE),
    (["DecodeImage"], {}, "transforms: images have different sizes after DecodeImage(), ", ONE_SIZE),
    ([{"ResizeImage": {"resize_short": 8}}, "NormalizeImage", "ToCHWImage"], {},
     "transforms: images have different sizes after NormalizeImage(), ", ONE_SIZE),
    ([{"CropImage": {"size": [8, 9]}}, "RandomRot90"], {},
     "transforms: images have different sizes after RandomRot90(), ", ONE_SIZE),
    ([Flip()], {"batch": ["MixUp"]}, f"batch_transforms[0]: images have different sizes after {Flip()!r},"
     " but MixUp() needs one size. Hint: add ", "(ResizeImage with size) before it."),
    # The scale of the values.
    ([CROP, "ToTensor", {"NormalizeImage": {}}], {},
     "transforms[2]: the values are already from 0 to 1 at this point, and are scaled by 0.003922"
     " again. ", "Hint: remove ToTensor before it, or use Normalize, which does not scale."),
    ([CROP, "ToTensor", {"NormalizeImage": {"scale": "0.00392157"}}], {},
     "transforms[2]: the values are already from 0 to 1", ""),
    ([CROP, "NormalizeImage", Normalize((0, 0, 0), (1, 1, 1))], {},
     "transforms[2]: the values are already normalized at this point", ""),
    ([CROP, "ToTensor", "ToTensor"], {}, "transforms[2]: ToTensor needs uint8 values", ""),
    ([CROP, NORMALIZE], {},
     "transforms[1]: the mean (0.485, 0.456, 0.406) and std (0.229, 0.224, 0.225) are for values from"
     " 0 to 1, but the values are from 0 to 255. Hint: put ToTensor before it, or use",
     "NormalizeImage, which scales by 1/255."),
    ([CROP, {"NormalizeImage": {"scale": 1.0}}], {}, "transforms[1]: the mean (0.485", ""),
    ([CROP, "ToTensor", {"Normalize": {"mean": 127.5, "std": 127.5}}], {},
     "transforms[2]: the mean (127.5, 127.5, 127.5)",
     "Hint: divide mean and std by 255, or remove ToTensor before it."),
]  # fmt: skip


@pytest.mark.parametrize(("items", "options", "start", "end"), REFUSED)
def test_lists_are_refused(items: list[Any], options: dict[str, Any], start: str, end: str) -> None:
    text = recipe_error(items, **options)
    assert text.startswith(start)
    assert text.endswith(end)


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
