"""The pages for people who come from another loader name what that library really has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import loaders
from loaders.options import DATALOADER_HINTS

DOCS = Path(__file__).parents[2] / "docs"


def first_column(page: str, heading: str) -> list[str]:
    """Return the first cells of the table that has this heading."""
    lines = (DOCS / page).read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    cells = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells.append(line.split("|")[1].strip())
    return cells


def calls(cell: str) -> list[tuple[str, list[str]]]:
    """Return what a cell names in backquotes: `a(b, c=…)` is `("a", ["b", "c"])`."""
    found = []
    for text in re.findall(r"`([^`]+)`", cell):
        name, _, arguments = text.partition("(")
        names = [
            part.partition("=")[0].strip()
            for part in arguments.removesuffix(")").split(",")
            if "=" in part
        ]
        found.append((name, names))
    return found


def test_every_argument_of_dataloader_is_explained():
    from torch.utils.data import DataLoader

    explained = [
        name
        for cell in first_column("from-dataloader.md", "`DataLoader`")
        for name, _ in calls(cell)
    ]
    assert explained == list(inspect.signature(DataLoader).parameters)


def test_what_to_leave_out_is_what_build_refuses():
    table = (DOCS / "from-dataloader.md").read_text("utf-8")
    for name in DATALOADER_HINTS:
        with pytest.raises(loaders.CallError, match="no argument"):
            loaders.build("photos", batch_size=4, transforms=[], **{name: 1})
        assert f"| `{name}` |" in table


def test_every_sampler_of_torch_is_explained():
    import torch.utils.data as data

    cells = first_column("from-dataloader.md", "`torch.utils.data`")
    named = {name for cell in cells for name, _ in calls(cell)}
    assert named == {name for name in data.__all__ if name.endswith("Sampler")} - {"Sampler"}
    for cell in cells:
        for name, keywords in calls(cell):
            assert set(keywords) <= set(inspect.signature(getattr(data, name)).parameters)


@pytest.fixture
def wds():
    return pytest.importorskip("webdataset", minversion="1.0.2")  # the version that the page names


def test_webdataset_reads_as_its_page_says(wds):
    named = [
        call for cell in first_column("from-webdataset.md", "webdataset") for call in calls(cell)
    ]
    for name, keywords in named:
        if name.startswith("."):
            assert callable(getattr(wds.WebDataset, name[1:]))
        else:
            assert set(keywords) <= set(inspect.signature(getattr(wds, name)).parameters), name
    assert len(named) > 15


def test_webdataset_writes_as_its_page_says(wds):
    named = [
        name
        for cell in first_column("from-webdataset.md", "`ShardWriter`")
        for name, _ in calls(cell)
    ]
    options = {
        *inspect.signature(wds.ShardWriter).parameters,
        *inspect.signature(wds.TarWriter).parameters,
    }
    assert set(named) <= options
    assert len(named) > 4


def test_loaders_knows_the_transforms_that_the_page_on_ffcv_names():
    from loaders.transforms.parse import read_recipe

    lines = (
        (DOCS / "from-ffcv.md").read_text("utf-8").split("| decoder or transform |")[1].splitlines()
    )
    rows = [line.split("|")[2] for line in lines if line.startswith("|")]
    lists = [text for row in rows for text in re.findall(r'`([{"].+?)`', row)]
    for text in lists:
        items = eval(
            f"[{text}]", {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
        )
        assert read_recipe(items, image_size=lambda: (256, 256), num_classes=4).operations
    assert len(lists) > 6


def test_mean_and_deviation_of_ffcv_give_the_same_values():
    from loaders.transforms.parse import read_recipe

    def normalized(**arguments):
        *_, step = read_recipe(
            [{"NormalizeImage": arguments}], image_size=lambda: (8, 8)
        ).operations
        return [
            (pixel * step.scale - mean) / std
            for pixel in (0, 255)
            for mean, std in zip(step.mean, step.std, strict=True)
        ]

    ours, theirs = (
        normalized(),
        normalized(scale=1.0, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    )
    assert theirs == pytest.approx(ours)
