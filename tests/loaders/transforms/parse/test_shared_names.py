"""Names that PaddleClas and torchvision have for different transforms: arguments, or the other names, decide."""

from __future__ import annotations

import pytest
from helpers.parsing import AMBIGUOUS, recipe_error, valid_arguments

from loaders.transforms.parse import read_recipe
from loaders.transforms.parse.items import parse_transform
from manifests.errors import CallError

RESIZE = {"Resize": {"size": [32, 32]}}

#: Lists whose other names belong to a library.
LISTS = {
    "PaddleClas": [{"ResizeImage": {"size": 32}}, "ToCHWImage"],
    "torchvision": [RESIZE, "ToImage", {"RandomInvert": {"p": 0.1}}],
}

#: Arguments that only one library has, and what both have.
ONLY = {
    "RandAugment": ({"num_layers": 2}, {"num_ops": 2}),
    "AugMix": ({"aug_severity": 1}, {"severity": 3}),
    "RandomErasing": ({"EPSILON": 0.5}, {"p": 0.5}),
    "RandomHorizontalFlip": ({"prob": 0.5}, {"p": 0.5}),
}


def arguments_of(name):
    return {key: value for key, value in valid_arguments(name).items() if key != "library"}


def operations(items, name):
    recipe = read_recipe(items)
    return next(item for item in recipe.items if item.description.startswith(name)).operations


@pytest.mark.parametrize("name", AMBIGUOUS)
@pytest.mark.parametrize("library", LISTS)
def test_the_other_names_of_the_list_decide(name, library):
    arguments = arguments_of(name)
    first, *rest = LISTS[library]
    expected = operations([first, {name: {**arguments, "library": library}}, *rest], name)
    assert operations([first, {name: arguments}, *rest], name) == expected
    # Also inside another list, and for names inside another list.
    nested = {"RandomApply": {"transforms": [{name: arguments}], "p": 0.5}}
    applied = operations([first, nested, *rest], "RandomApply")
    assert applied[0].operations == expected
    evidence = {"RandomOrder": {"transforms": rest[-1:]}}
    if library == "torchvision":
        assert operations([RESIZE, {name: arguments}, evidence], name) == expected


@pytest.mark.parametrize("name", AMBIGUOUS)
@pytest.mark.parametrize("others", [[], ["ToGray"], [*LISTS["PaddleClas"], *LISTS["torchvision"]]])
def test_an_error_shows_both_spellings_if_the_list_does_not_say(name, others):
    arguments = arguments_of(name)
    text = recipe_error([RESIZE, {name: arguments}, *others])
    assert f"transforms[1]: {name} is another transform in " in text
    for library in LISTS:
        assert f"{{'{name}': {{'library': '{library}', ...}}}}" in text
        assert read_recipe([RESIZE, {name: {**arguments, "library": library}}])


@pytest.mark.parametrize("name", ONLY)
def test_arguments_decide(name):
    for library, arguments in zip(LISTS, ONLY[name], strict=True):
        expected = parse_transform(name, {**arguments, "library": library})
        assert parse_transform(name, arguments) == expected
        for others in LISTS.values():
            assert operations([RESIZE, {name: arguments}, *others[1:]], name) == expected[:1]
    (first, *_), (second, *_) = ONLY[name]
    text = recipe_error([RESIZE, {name: ONLY[name][0] | ONLY[name][1]}])
    assert {f"{first} is an argument of PaddleClas", f"{second} is an argument of torchvision"} == {
        *text.partition(f"{name}: ")[2].partition(". Hint")[0].split(", but ")
    }
    text = recipe_error([RESIZE, {name: {"library": "torchvision", first: 1}}])
    assert f"library is 'torchvision', but {first} is an argument of PaddleClas" in text
    text = recipe_error([RESIZE, {name: {"library": "timm"}}])
    assert "library must be one of" in text
    with pytest.raises(CallError, match=f"{name} has no argument 'nothing'"):
        parse_transform(name, {"nothing": 1})


@pytest.mark.parametrize("name", ["Resize", "RandomResizedCrop"])
def test_resizes_are_opencv_only_of_the_arrays_of_decode_image(name):
    """PaddleClas resizes the arrays with OpenCV, without antialiasing."""
    item = {name: {"size": [32, 32]}}
    named = {name: {"size": [32, 32], "library": "torchvision"}}
    (array,) = operations([{"DecodeImage": {}}, item], name)
    assert not array.antialias
    (image,) = operations([item, "ToTensor"], name)
    assert image.antialias
    for items in (
        [item, "NormalizeImage"],
        [{"DecodeImage": {"to_np": False, "backend": "pil"}}, item],
        [{"DecodeImage": {}}, named],
    ):
        assert operations(items, name) == (image,)
