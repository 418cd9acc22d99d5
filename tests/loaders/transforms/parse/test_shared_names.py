"""Names that PaddleClas and torchvision share: the arguments tell which library is meant."""

from __future__ import annotations

import pytest
from helpers.parsing import parse_notes, parse_operation, recipe_error

from loaders.transforms.parse import read_recipe
from loaders.transforms.policies import Level


@pytest.mark.parametrize(
    ("name", "paddleclas", "torchvision", "both"),
    [
        ("RandAugment", {"num_layers": 2}, {"num_ops": 2}, {"magnitude": 9}),
        ("AugMix", {"aug_severity": 1}, {"severity": 3}, {"mixture_width": 3}),
    ],
)
def test_arguments_decide(name, paddleclas, torchvision, both):
    assert parse_operation(name, **paddleclas, **both) == parse_operation(name, **both)
    assert parse_operation(name, **torchvision, **both) != parse_operation(name, **both)
    assert "this is PaddleClas's" in parse_notes(name, **both)
    assert "this is PaddleClas's" in parse_notes(name)
    assert "this is" not in parse_notes(name, **paddleclas) + parse_notes(name, **torchvision)
    text = recipe_error([{name: paddleclas | torchvision}])
    assert (
        f"{next(iter(paddleclas))} is an argument of PaddleClas, but {next(iter(torchvision))}"
        " is an" in text
    )


def test_auto_augment():
    assert parse_operation("AutoAugment", policy="imagenet") != parse_operation("AutoAugment")
    assert "set policy='imagenet' for torchvision's" in parse_notes("AutoAugment")
    assert "policy must be one of imagenet, cifar10, svhn, got 'mnist'" in recipe_error(
        [{"AutoAugment": {"policy": "mnist"}}]
    )


def test_a_warning_says_which_library_is_meant():
    recipe = read_recipe([{"CenterCrop": {"size": 8}}, {"RandAugment": {"magnitude": 9}}])
    assert any("set num_ops=2 for torchvision's" in note for note in recipe.all_notes)


def test_strength_of_torchvision_is_a_bin():
    steps = parse_operation("RandAugment", num_ops=3, magnitude=15).pool
    assert {step.level for step in steps} == {Level(5, 5)}
    assert [step.name for step in steps][:4] == ["identity", "shear_x", "shear_y", "translate_x"]
    assert len(steps) == 14
    assert "magnitude must be an integer from 0 to 30, got 31" in recipe_error(
        [{"RandAugment": {"num_ops": 2, "magnitude": 31}}]
    )
