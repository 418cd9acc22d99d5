"""Limits: no transform, list or config takes unbounded memory or time, and the message states the limit."""

from __future__ import annotations

import time
from typing import Any

import pytest
from helpers.parsing import named_parameters, recipe_error, valid_arguments

from loaders.samplers.choose import configured_sampler
from loaders.transforms import base
from loaders.transforms.combinators import RandomOrder
from loaders.transforms.geometry import Flip
from loaders.transforms.parse import known_transforms, read_recipe
from loaders.transforms.parse.items import parse_transform
from loaders.transforms.parse.paddleclas import read_config
from manifests.errors import CallError

CROP = {"CropImage": {"size": 8}}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


#: Values that take long or much memory to handle without limits, or that cannot be printed.
EXTREME = [
    10**9, -(10**9), 10**5000, 10**300, 1e308, 5e-324, " " * 10**4 + "x", "1" + " " * 10**4, "1:" * 10**4 + "1",
    "x" * 10**6, [1] * 10**4, nested(5000), {"a": nested(5000)}, (10**9, 10**9), [10**5000] * 2, "rand-m9-n1000000",
    b"\xff" * 10**5,
]  # fmt: skip


def error_text(name: str, arguments: dict[str, Any]) -> str:
    """Return the message of the error for these arguments; empty if they are valid."""
    try:
        parse_transform(name, arguments)
    except CallError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", known_transforms())
def test_extreme_arguments_are_parsed_or_refused_at_once(name: str) -> None:
    for parameter in named_parameters(name):
        for value in EXTREME:
            started = time.thread_time()
            text = error_text(name, valid_arguments(name) | {parameter: value})
            assert len(text) < 2000
            assert "\n" not in text
            assert time.thread_time() - started < 2


def test_lists_have_a_limit() -> None:
    most = base.MAX_TRANSFORMS
    assert len(read_recipe([CROP] * most).items) == most
    assert (
        recipe_error([CROP] * (most + 1))
        == f"transforms has {most + 1} transforms, but at most {most} are supported"
    )


def test_the_work_of_containers_has_a_limit() -> None:
    order = RandomOrder(((Flip(1.0),),) * 6)
    assert order.work == 36
    message = "RandomOrder would run 1296 operations per image, but at most 100"
    with pytest.raises(CallError, match=message):
        RandomOrder(((order,),) * 6)
    with pytest.raises(CallError, match="chains must contain at most 6 values, got 7"):
        RandomOrder(((Flip(1.0),),) * 7)
    for depth in (9, 5000):
        name: Any = "RandomInvert"
        for _ in range(depth):
            name = {"RandomApply": {"transforms": [name]}}
        assert "transforms are nested more than 8 levels deep" in recipe_error([name])


def test_images_of_known_size_have_a_limit() -> None:
    items = [{"Resize": {"size": [32768, 1]}}, {"Resize": {"size": 16384}}, CROP]
    assert (
        "transforms[1]: Resize(size=16384) makes images of 536870912 x 16384 pixels"
        in recipe_error(items)
    )
    text = recipe_error([{"CropImage": {"size": 16384}}, {"Pad": {"padding": 16384}}, CROP])
    assert "makes images of 49152 x 49152 pixels, but at most 32768 per side" in text


MANY = ", ".join(f"k{number}: 1" for number in range(400))


@pytest.mark.parametrize(
    ("text", "message", "most"),
    [
        ("transform_ops: []\nsampler: {batch_size: 1000000}\n", "from 1 to 65536, got 1000000", 600),
        ("transform_ops: []\nArch: {class_num: 2000000}\n", "Arch.class_num must be an integer from 1 to 1000000", 600),
        (f"- CropImage: {{size: {'1:' * 10**4}1}}\n", "more than 4096 characters in one value", 600),
        (f"- CropImage: {{size: {'1:' * 2000}1}}\n", "two integers of at least 1, got ", 600),
        (f"- &{'x' * 10**4} a\n- *{'y' * 10**4}", "", 600),
        (f"{{{MANY}}}", "", 2000),
        (f"Train: {{{MANY}}}", "", 2000),
    ],
    ids=range(7),
)  # fmt: skip
def test_values_of_configs_have_limits(tmp_path, text, message, most) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(CallError) as caught:
        read_recipe(read_config(path).transforms)
    assert message in str(caught.value)
    assert len(str(caught.value)) < most


def test_samplers_of_configs_have_limits() -> None:
    for section, message in (
        ({"sample_per_id": 10**9}, "sample_per_id must be at most 65536, got 1000000000"),
        ({"sample_per_id": 10**5000}, "sample_per_id must be at most 65536, got a value of type"),
        ({"sample_per_id": 4, "max_iters": 10**9}, "max_iters must be at most 524288, got 10000"),
        ({"sample_per_id": 4, "sample_method": "x" * 10**6}, "sampler.sample_method is 'xxx"),
    ):
        with pytest.raises(CallError) as caught:
            configured_sampler({"name": "PKSampler", **section}, 64)
        assert message in str(caught.value)
        assert len(str(caught.value)) < 600
    _, notes = configured_sampler({"name": "x" * 10**6}, 64)
    assert len(notes[0]) < 300
