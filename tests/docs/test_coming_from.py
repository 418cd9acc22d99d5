"""The pages for people who come from another loader name what that library really has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils import data

import loaders
from loaders.options import DATALOADER_HINTS
from loaders.transforms.parse import read_recipe

DOCS = Path(__file__).parents[2] / "docs"
#: What FFCV normalizes with, in levels of 255.
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def calls(page: str, heading: str) -> list[tuple[str, list[str]]]:
    """Return what the first column of a table names: `a(b, c=…)` is `("a", ["c"])`."""
    table = (DOCS / page).read_text("utf-8").split(f"\n| {heading} |")[1].split("\n\n")[0]
    found = []
    for line in table.splitlines()[2:]:
        for text in re.findall(r"`([^`]+)`", line.split("|")[1]):
            found.append((text.partition("(")[0], re.findall(r"(\w+)=", text)))
    return found


def parameters(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_every_argument_of_dataloader_is_explained():
    explained = [name for name, _ in calls("from-dataloader.md", "`DataLoader`")]
    assert explained == parameters(data.DataLoader)


def test_what_to_leave_out_is_what_build_refuses():
    table = (DOCS / "from-dataloader.md").read_text("utf-8")
    for name in DATALOADER_HINTS:
        with pytest.raises(loaders.CallError, match="no argument"):
            loaders.build("photos", batch_size=4, transforms=[], **{name: 1})
        assert f"| `{name}` |" in table


def test_every_sampler_of_torch_is_explained():
    named = calls("from-dataloader.md", "`torch.utils.data`")
    samplers = {name for name in data.__all__ if name.endswith("Sampler")} - {"Sampler"}
    assert {name for name, _ in named} == samplers
    for name, keywords in named:
        assert set(keywords) <= set(parameters(getattr(data, name)))


def test_webdataset_works_as_its_page_says():
    wds = pytest.importorskip("webdataset", minversion="1.0.2")  # the version that the page names
    named = calls("from-webdataset.md", "webdataset")
    for name, keywords in named:
        if name.startswith("."):
            assert callable(getattr(wds.WebDataset, name[1:]))
        else:
            assert set(keywords) <= set(parameters(getattr(wds, name))), name
    assert len(named) > 15
    options = {name for name, _ in calls("from-webdataset.md", "`ShardWriter`")}
    assert options <= {*parameters(wds.ShardWriter), *parameters(wds.TarWriter)}
    assert len(options) > 4


def test_loaders_knows_the_transforms_that_the_page_on_ffcv_names():
    table = (DOCS / "from-ffcv.md").read_text("utf-8").split("| decoder or transform |")[1]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")]
    lists = [text for row in rows for text in re.findall(r'`([{"].+?)`', row)]
    for text in lists:
        items = eval(f"[{text}]", {"mean": MEAN, "std": STD})
        assert read_recipe(items, image_size=lambda: (256, 256), num_classes=4).operations
    assert len(lists) > 6


def test_mean_and_deviation_of_ffcv_give_the_same_values():
    found = []
    for arguments in ({"scale": 1.0, "mean": MEAN, "std": STD}, {}):
        items = [{"NormalizeImage": arguments}]
        step = read_recipe(items, image_size=lambda: (8, 8), num_classes=4).operations[-1]
        for mean, std in zip(step.mean, step.std, strict=True):
            found.append([(pixel * step.scale - mean) / std for pixel in (0, 255)])
    assert found[:3] == [pytest.approx(each) for each in found[3:]]
