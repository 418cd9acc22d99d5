"""The tables of the pages in docs/ say what the code does."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

from loaders.transforms.argument import PRESETS
from loaders.transforms.parse import known_transforms, read_recipe

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/transforms.md").read_text("utf-8")


TABLES = runpy.run_path(str(ROOT / "docs/tables.py"))


@pytest.mark.parametrize("name", TABLES["TABLES"])
def test_the_tables_are_current(name):
    page = (ROOT / "docs" / name).read_text("utf-8")
    assert TABLES["updated"](name) == page, "run: python docs/tables.py"


def test_every_preset_is_shown_as_the_list_that_it_is():
    rows = re.findall(r'^\| `"([\w-]+)"` \| `(\[.+\])` \| ([\w ]+) \|$', PAGE, re.M)
    assert [name for name, *_ in rows] == list(PRESETS)
    for name, text, shown in rows:
        images, batch = PRESETS[name]
        expected = read_recipe(images, batch=batch, num_classes=4)
        copied = read_recipe(ast.literal_eval(text), num_classes=4)
        assert copied.text == expected.text
        height, width = copied.output.size or (0, 0)
        assert shown == (f"{height} x {width}" if height else "of the bucket")


def test_every_name_has_a_row():
    row = r"^\| `(\w+)` \| (?:torchvision|PaddleClas|timm|loaders)\b"
    names = dict.fromkeys(re.findall(row, PAGE, re.MULTILINE))
    assert list(names) == list(known_transforms())
