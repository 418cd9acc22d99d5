"""From what users write to operations: every word works or says what it lacks, and every mistake is named."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders import transforms
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.decode_normalize import Decode, Normalize
from loaders.transforms.geometry import Crop, Flip, Resize
from loaders.transforms.mixing import Mixing, Mixup
from loaders.transforms.parse import known_transforms, read_recipe
from loaders.transforms.parse.registry import (
    _PARSERS,
    Note,
    height_width,
    number,
    numbers,
    pair,
    parse_transform,
    register,
    width_height,
)
from loaders.transforms.presets import PRESETS
from manifests.errors import CallError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = {"CropImage": {"size": 8}}


def refused(items: Any, **options: Any) -> str:
    with pytest.raises(CallError) as error:
        read_recipe(items, **options)
    return str(error.value)


def doubled(images):
    return images * 2


class Halved:
    def __call__(self, images):
        return images / 2


# Words ---------------------------------------------------------------------------------------------------------------


def required(name: str) -> list[str]:
    """Return the arguments that a word cannot do without."""
    parameters = inspect.signature(_PARSERS[name]).parameters.values()
    return [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]


#: Something sensible for each argument that has no default.
GIVEN = {
    "size": 8, "pad": 1, "padding": 1, "degrees": 10, "prob": 0.5, "kernel_size": 3, "mean": 0.5, "std": 0.2,
}  # fmt: skip
#: Words whose arguments all have defaults, but that need one of some.
ONE_OF_SOME = {"ResizeImage": "needs size or resize_short"}
#: Arguments that a note says are not followed, whatever they hold.
NOT_FOLLOWED = {("RandCropImage", "progress_size"), ("RandAugmentV2", "progress_magnitude")}


@pytest.mark.parametrize("name", known_transforms())
def test_every_word_works_or_says_what_it_lacks(name):
    assert inspect.getdoc(_PARSERS[name]), f"{name} has no docstring"
    lacking = required(name)
    if lacking:
        with pytest.raises(CallError, match=f"^{name} lacks its argument '{lacking[0]}'; write {{'{name}'"):
            parse_transform(name, {})
    elif name in ONE_OF_SOME:
        with pytest.raises(CallError, match=f"^{name}: {ONE_OF_SOME[name]}; write {{'{name}'"):
            parse_transform(name, {})
        return
    meaning = parse_transform(name, {each: GIVEN[each] for each in lacking})
    assert all(isinstance(each, (Operation, Note)) for each in meaning)
    operations = [each for each in meaning if isinstance(each, Operation)]
    assert operations or name in ("ToCHWImage", "OpSampler")
    # Compared by value, and so that two equal ones are one key.
    assert meaning == parse_transform(name, {each: GIVEN[each] for each in lacking})
    assert len({hash(each) for each in operations}) == len(set(operations))
    for note in meaning[len(operations) :]:
        assert note.text
        assert not note.text.endswith(".")
        assert "\n" not in note.text


@pytest.mark.parametrize("name", known_transforms())
def test_every_word_is_read_in_a_list(name):
    arguments = {each: GIVEN[each] for each in required(name)}
    if name in ONE_OF_SOME:
        arguments = {"size": 8}
    mixes = any(isinstance(each, Mixing) for each in parse_transform(name, arguments))
    recipe = read_recipe([CROP, {name: arguments}] if mixes else [{name: arguments}, CROP])
    assert isinstance(recipe.operations[0], Decode)
    assert recipe.size == (8, 8)
    step = recipe.items[1 if mixes else 0]
    assert step.text.startswith(f"{name}(")
    assert all(f"{key}={value!r}" in step.text for key, value in arguments.items())


@pytest.mark.parametrize("name", known_transforms())
def test_every_word_names_an_unknown_argument(name):
    with pytest.raises(CallError) as error:
        parse_transform(name, {"no such thing": 1})
    if name == "OpSampler":
        assert "draws from MixupOperator, CutmixOperator, FmixOperator, got 'no such thing'" in str(error.value)
    else:
        assert f"{name} has no argument 'no such thing'; " in str(error.value)


@pytest.mark.parametrize("name", known_transforms())
def test_every_argument_is_checked(name):
    given = {each: GIVEN[each] for each in required(name)} | ({"size": 8} if name in ONE_OF_SOME else {})
    for each in inspect.signature(_PARSERS[name]).parameters.values():
        if each.kind is each.VAR_KEYWORD or (name, each.name) in NOT_FOLLOWED:
            continue
        with pytest.raises(CallError, match=f"^{name}: "):
            parse_transform(name, given | {each.name: object()})


#: Something sensible for each field that has no default.
RECORDS = {
    "size": (8, 8), "share": 0.5, "degrees": (0, 1), "mean": (0.5,) * 3, "std": (0.5,) * 3, "window": (3, 3),
    "space": "RGB", "name": "identity", "left": 1, "top": 1, "right": 1, "bottom": 1, "area": (0.1, 1.0),
    "pool": (transforms.Step("identity"),), "sequences": ((transforms.Step("identity"),),),
    "operations": (Mixup(),), "probabilities": (1.0,),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(transforms.__all__) - {"Operation", "ImageSpec"}))
def test_every_field_of_a_record_is_checked(name):
    kind = getattr(transforms, name)
    given = {each.name: RECORDS[each.name] for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING}
    if name in ("CropAtRatio", "Resize"):
        given["size"] = 8 if name == "CropAtRatio" else (8, 8)
    hash(kind(**given))
    for field in dataclasses.fields(kind):
        for wrong in (object(), [object()], (object(), object())):
            with pytest.raises(CallError):
                kind(**(given | {field.name: wrong}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: transforms.Crop([8, 9]),
        lambda: transforms.RandomResizedCrop((8, 8), area=[0.5, 1]),
        lambda: transforms.Normalize([0.5] * 3, (1, 1, 1)),
    ],
)
def test_a_list_in_a_record_is_to_be_a_tuple(make):
    with pytest.raises(CallError, match=r"got \[.*\]; write a tuple"):
        make()


def test_a_name_has_one_meaning():
    with pytest.raises(ValueError, match="ResizeImage has a meaning already"):
        register("ResizeImage")(lambda: iter(()))
    assert "ResizeImage" in known_transforms()
    assert list(known_transforms()) == sorted(known_transforms())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ResizImage", "ResizeImage"),
        ("resizeimage", "ResizeImage"),
        ("RandomHorizontalflip", "RandomHorizontalFlip"),
        ("Normalise", "Normalize"),
        ("CentreCrop", "CenterCrop"),
    ],
)
def test_an_unknown_name_has_the_nearest(name, near):
    text = refused([name])
    assert f"transforms[0]: {name!r} is no known transform; did you mean " in text
    assert near in text


def test_a_name_like_no_other_has_all():
    text = refused(["quux"])
    assert all(name in text for name in known_transforms())


def test_an_unknown_argument_has_the_nearest():
    text = refused([CROP, {"ResizeImage": {"resize_shrt": 8}}])
    assert text == "transforms[1]: ResizeImage has no argument 'resize_shrt'; did you mean resize_short or size?"
    text = refused([{"CropImage": {"size": 8, "xyz": 1}}])
    assert text == "transforms[0]: CropImage has no argument 'xyz'; known are size"
    text = refused([{"ToTensor": {"scale": 1}}])
    assert text == "transforms[0]: ToTensor has no argument 'scale'; it takes no argument"
    assert "has no argument 3" in refused([{"CropImage": {3: 1, "size": 8}}])
    assert "has no argument 3" in refused([CROP, {"OpSampler": {3: 1}}])


# Values --------------------------------------------------------------------------------------------------------------


def test_sizes_as_each_library_writes_them():
    assert width_height([8, 9]) == (9, 8)
    assert height_width([8, 9]) == (8, 9)
    assert width_height(7) == height_width(7) == (7, 7)
    for wrong in (None, "8", 8.0, [8], [8, 9, 10], [8, "9"], {8: 9}, True, [8, True]):
        with pytest.raises(CallError, match="size must be one whole number or two"):
            height_width(wrong)
    # PaddleClas: width, height. torchvision: height, width.
    for name, expected in (("ResizeImage", (9, 8)), ("CropImage", (9, 8)), ("RandCropImage", (9, 8))):
        assert read_recipe([{name: {"size": [8, 9]}}]).size == expected
    for name, expected in (("Resize", (8, 9)), ("CenterCrop", (8, 9)), ("RandomResizedCrop", (8, 9))):
        assert read_recipe([{name: {"size": [8, 9]}}]).size == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.0/255.0", 1 / 255),
        ("1/255", 1 / 255),
        (" 1 / 4 ", 0.25),
        ("-1/4", -0.25),
        ("1e-3", 0.001),
        ("1E2/1e1", 10.0),
        (".5", 0.5),
        ("0", 0.0),
        (3, 3.0),
        (0.5, 0.5),
    ],
)
def test_numbers_and_fractions(value, expected):
    found = number(value, "scale")
    assert found == expected
    assert isinstance(found, float)


@pytest.mark.parametrize(
    "value",
    ["__import__('os')", "1/0", "1.0/255.0/2", "1+1", "2**9", "1/-2", "", ".", "1.2.3", "1e", "0x10", "1_000", "nan",
     "inf", "1e999", "9" * 400, 10**400, math.inf, math.nan, True, None, [1], {}, "1/255 # half", "(1)/2", "1//2"],
)  # fmt: skip
def test_what_is_no_number_is_refused(value):
    with pytest.raises(CallError, match="scale must be a number or a fraction"):
        number(value, "scale")


def test_a_fraction_is_read_and_never_run(monkeypatch):
    monkeypatch.setattr(os, "system", lambda command: pytest.fail(f"ran {command}"))
    text = refused([CROP, {"NormalizeImage": {"scale": "__import__('os').system('true')"}}])
    assert "transforms[1]: NormalizeImage: scale must be a number or a fraction such as '1.0/255.0', got" in text
    recipe = read_recipe([CROP, {"NormalizeImage": {"scale": "1.0/255.0", "mean": ["1/2", 0, 1], "std": "1/4"}}])
    assert recipe.operations[-1] == Normalize((0.5, 0.0, 1.0), (0.25, 0.25, 0.25), 1 / 255)


def test_lists_of_numbers():
    assert numbers(["1/2", 3], "scale") == (0.5, 3.0)
    assert pair((1, 2), "scale") == (1.0, 2.0)
    with pytest.raises(CallError, match="scale must be a list of numbers, got '12'"):
        numbers("12", "scale")
    with pytest.raises(CallError, match="scale must be two numbers, got"):
        pair([1, 2, 3], "scale")


# Lists ---------------------------------------------------------------------------------------------------------------


def test_a_list_of_everything():
    recipe = read_recipe(
        ["DecodeImage", {"ResizeImage": {"size": 12}}, Flip(0.25), {"CropImage": {"size": [8, 9]}},
         {"NormalizeImage": None}, "ToCHWImage", {"MixUp": {"alpha": 0.3}}, doubled, Halved(), len],
        notes=["a note"],
    )  # fmt: skip
    assert recipe.operations == (
        Decode(), Resize((12, 12), antialias=False), Flip(0.25), Crop((9, 8), rounding="down"), Normalize(MEAN, STD)
    )  # fmt: skip
    assert recipe.mixing == (Mixup(0.3, None, "previous"),)
    assert [each.location for each in recipe.items] == [f"transforms[{number}]" for number in range(10)]
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
    assert recipe.size == (9, 8)
    assert recipe.all_notes == ("a note",)


def test_nothing_but_decoding_is_added():
    assert read_recipe([CROP]).operations == (Decode(), Crop((8, 8), rounding="down"))
    assert read_recipe(["ToCHWImage", "DecodeImage", CROP]).operations[0] == Decode()
    assert read_recipe([{"DecodeImage": {"to_rgb": False}}, CROP]).operations[0] == Decode("BGR")
    assert read_recipe([Decode("BGR"), CROP]).spec.color_space == "BGR"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_read(name):
    items, batch = PRESETS[name]
    recipe = read_recipe(items, source=name, batch=batch)
    assert recipe.output == ImageSpec(recipe.size, is_uint8=False)


def test_the_place_is_named():
    text = refused([CROP, {"CropImage": {"size": "x"}}], source="a.yaml: transform_ops")
    assert text == "a.yaml: transform_ops[1]: CropImage: size must be one whole number or two, got 'x'"
    text = refused([CROP], batch=["MixUp", {"CutMix": {"alpha": 0}}])
    assert text.startswith("batch_transforms[1]: CutMix: alpha")
    text = refused([CROP, "NormalizeImage", "ToHSV"])
    assert text.startswith("transforms[2]: ConvertColor works on whole values from 0 to 255")
    assert text.endswith("put it before the normalisation")
    text = refused([CROP, "ToHSV", "RandomGrayscale"])
    assert text.startswith("transforms[2]: RandomGrayscale works on red, green and blue")


@pytest.mark.parametrize(
    "item",
    [None, 3, 1.5, b"Resize", [], ["Resize"], (), {}, {"Resize": {"size": 8}, "CropImage": {"size": 8}}, {3: {}},
     {None: None}, Resize, Flip, int],
)  # fmt: skip
def test_what_is_no_transform_is_named(item):
    text = refused([CROP, item])
    assert text.startswith(f"transforms[1] is no transform: {item!r}")
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
def test_a_text_is_neither_true_nor_false(name, argument):
    given = {each: GIVEN[each] for each in required(name)} | ({"size": 8} if name in ONE_OF_SOME else {})
    for value in ("False", 0, None, []):
        assert refused([{name: given | {argument: value}}]) == (
            f"transforms[0]: {name}: {argument} must be True or False, got {value!r}"
        )


@pytest.mark.parametrize("order", ["chw", "hwc", ""])
def test_channels_are_known_whatever_order_says(order):
    assert parse_transform("NormalizeImage", {"order": order}) == parse_transform("NormalizeImage", {})
    for wrong in ("nchw", "CHW", None, 3):
        assert refused([{"NormalizeImage": {"order": wrong}}]) == (
            f"transforms[0]: NormalizeImage: order must be one of 'chw', 'hwc', '', got {wrong!r}"
        )
    given = {"mean": 0.5, "std": 0.5}
    assert parse_transform("Normalize", given | {"data_format": "HWC"}) == parse_transform("Normalize", given)
    assert "data_format must be one of 'CHW', 'HWC', got 'NCHW'" in refused(
        [{"Normalize": given | {"data_format": "NCHW"}}]
    )


def test_half_precision_is_noted():
    assert not read_recipe([CROP, "NormalizeImage"]).all_notes
    (note,) = read_recipe([CROP, {"NormalizeImage": {"output_fp16": True}}]).all_notes
    assert "build's dtype decides" in note


@pytest.mark.parametrize("arguments", [8, "8", [8], True, 0, ""])
def test_arguments_must_be_named(arguments):
    assert refused([{"CropImage": arguments}]) == (
        f"transforms[0], CropImage: its arguments must be named, got {arguments!r}; "
        "write {'CropImage': {argument: value}}"
    )


def test_functions_come_last():
    text = refused([CROP, doubled, "NormalizeImage"])
    assert text == "transforms[2]: a function works on the finished batch; put it at the end of the list"
    assert refused([CROP, doubled], batch=["MixUp"]).startswith("batch_transforms[0]: a function works on")


def test_decoding_comes_first_and_once():
    for items in ([CROP, "DecodeImage"], ["DecodeImage", CROP, "DecodeImage"], ["DecodeImage", Decode()]):
        text = refused(items)
        assert text == f"transforms[{len(items) - 1}]: images are decoded already; decode first, and once"


def test_sizes_that_vary_at_the_end_are_named_with_what_mends_them():
    for items, after in (
        ([], ""),
        (["DecodeImage"], " after DecodeImage()"),
        ([{"ResizeImage": {"resize_short": 8}}, "NormalizeImage", "ToCHWImage"], " after NormalizeImage()"),
        ([{"CropImage": {"size": [8, 9]}}, "RandomRot90"], " after RandomRot90()"),
    ):
        text = refused(items)
        assert text == (
            f"transforms: images would have different sizes{after}, and a batch needs one size; add a crop "
            "(CropImage), a resize to height and width (ResizeImage with size) or a RandCropImage"
        )
    assert "different sizes after Flip" in refused([Flip()], batch=["MixUp"])


def test_mixing_comes_last():
    text = refused([CROP, {"MixUp": {"alpha": 0.2}}, "RandomHorizontalFlip"])
    assert text == (
        "transforms[2]: RandomHorizontalFlip() works on an image, and transforms[1] on a batch; "
        "put what mixes images last"
    )


def test_classes_of_mixed_labels():
    assert read_recipe([CROP]).num_classes is None
    assert read_recipe([CROP, "MixUp"], num_classes=7).num_classes == 7
    assert read_recipe([CROP, {"MixUp": {"num_classes": 5}}], num_classes=7).num_classes == 5
    assert read_recipe([CROP]).smoothing == 0
    assert read_recipe([CROP, "MixupCutmixHybrid"]).smoothing == 0.1


# Anything ------------------------------------------------------------------------------------------------------------

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
    """Draw a word with some of its arguments, and perhaps others."""
    name = draw(st.sampled_from(known_transforms()))
    named = [each for each in inspect.signature(_PARSERS[name]).parameters if each != "operators"]
    named += ["MixupOperator", "CutmixOperator"] if name == "OpSampler" else []
    chosen = draw(st.lists(st.sampled_from(named), unique=True)) if named else []
    arguments: dict[Any, Any] = {each: GIVEN.get(each, 8) for each in required(name)}
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


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(items, max_size=4), st.booleans(), st.lists(items, max_size=1))
def test_whatever_is_written_is_read_or_refused_by_name(sequence, sized, batch):
    sequence = [CROP, *sequence] if sized else sequence
    try:
        recipe = read_recipe(sequence, batch=batch)
    except CallError as error:
        assert str(error).startswith(("transforms", "batch_transforms"))  # noqa: PT017 -- most are refused
        return
    hash(recipe.operations)
    assert recipe.size == recipe.output.size
    assert 0 <= recipe.smoothing <= 1
    assert recipe == read_recipe(sequence, batch=batch)


@settings(max_examples=300, deadline=None)
@given(st.text() | st.from_regex(r"[-+0-9.e/ ]*", fullmatch=True))
def test_whatever_text_is_a_finite_number_or_refused(text):
    with contextlib.suppress(CallError):
        assert math.isfinite(number(text, "scale"))
