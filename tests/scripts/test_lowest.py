"""`constraints-lowest.txt` pins the lowest versions that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: `scripts/test-lowest` says why it is not pinned.
UNPINNED = {"torch"}


def parts(version):
    return [int(number) for number in version.split(".")]


def test_each_floor_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = {*project["dependencies"], *extras["demo"], *extras["test"]}
    floor = re.compile(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)")
    floors = dict(floor.match(each).groups() for each in requirements)
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert set(pins) == set(floors) - UNPINNED
    # The lowest release can have more digits than the floor, as 4.8.0.76 has for `>=4.8`.
    for name, pin in pins.items():
        assert parts(pin)[: len(parts(floors[name]))] == parts(floors[name])
