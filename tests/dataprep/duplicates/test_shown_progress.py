"""Each step of a search is shown once, from its beginning to its end, however many parts it has."""

from __future__ import annotations

import json

import pytest
from helpers.pictures import encode, photo
from helpers.sources import read

from dataprep.duplicates.collection import collect
from dataprep.duplicates.find import find_duplicates


@pytest.fixture
def mixed(tmp_path):
    """Two folders with large images, small ones that look alike, and copies of both, also of each other."""
    for name in ("first", "second"):
        folder = tmp_path / name / "cat"
        folder.mkdir(parents=True)
        for number in range(6):
            for side in (48, 96):
                data = encode(photo(number, side, side), quality=90 if name == "first" else 80)
                (folder / f"{side}-{number}.jpg").write_bytes(data)
                (folder / f"{side}-{number}-copy.jpg").write_bytes(data)
    return tmp_path / "first", tmp_path / "second"


def steps_of(result):
    """The states of each step, in the order in which they were shown."""
    events = [json.loads(line) for line in result.stderr.splitlines()]
    steps = {}
    for event in events:
        if event["event"] == "progress":
            steps.setdefault(event["step"], []).append((event["done"], event["total"]))
    return steps


#: What is shown of 48 images: the beginning and the end.
SHOWN = [(0, 48), (48, 48)]


def test_duplicates(invoke, mixed):
    result = invoke("duplicates", *mixed, "--log-json", "--json", status=1)
    assert json.loads(result.stdout)["near"] > 0
    assert steps_of(result) == {"hashing": SHOWN, "comparing": SHOWN}


def test_only_equal_bytes(invoke, mixed):
    result = invoke("duplicates", *mixed, "--log-json", "--distance", -1, status=0)
    assert steps_of(result) == {"hashing": SHOWN, "comparing": SHOWN}


def test_convert(invoke, mixed, tmp_path):
    src = [word for folder in mixed for word in ("--src", folder)]
    result = invoke(
        "convert", *src, "--out", tmp_path / "out", "--duplicates", "drop", "--log-json"
    )
    steps = steps_of(result)
    assert [*steps] == ["hashing", "comparing", "converting"]
    assert steps["hashing"] == steps["comparing"] == SHOWN


def test_append(invoke, mixed, tmp_path):
    """Revisions with other options are compared one after the other."""
    first, second = mixed
    out = tmp_path / "out"
    invoke("convert", "--src", first, "--out", out)
    invoke("convert", "--src", second, "--out", out, "--append", "--val-fraction", 0.5)
    for folder in mixed:
        (folder / "cat" / "new.jpg").write_bytes(encode(photo(9, 80, 80)))
    src = [word for folder in mixed for word in ("--src", folder)]
    shown = steps_of(invoke("convert", *src, "--out", out, "--append", "--log-json"))["comparing"]
    assert len(shown) == 2
    assert shown[0][0] == 0
    assert shown[1][0] == shown[1][1] > 0


class Steps:
    """The images that are done after each advance that took time."""

    def __init__(self):
        self.total, self.done, self.reached = 0, 0, set()

    def start(self, images, shards):
        self.total += images

    def advance(self, shard, images, *, resumed=False):
        self.done += images
        if not resumed:
            self.reached.add(self.done)


def test_each_part_of_the_search_advances_its_share(mixed):
    """Half of the images that are repeated; then large and small ones in proportion.

    A third of these in the search.
    """
    images = collect([read(folder) for folder in mixed], workers=1)
    steps = Steps()
    assert len(find_duplicates(images, workers=1, progress=steps).pairs.first)
    assert (steps.total, steps.done) == (48, 48)
    assert {24, 24 + 12, 24 + 12 + 4, 48} <= steps.reached
