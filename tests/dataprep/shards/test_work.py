"""The work for each image that is copied: counted, because times differ between machines.

A feature that costs every image something shows here. If it is worth that, raise the limit.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from helpers.pictures import encode, photo

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source

IMAGES = 320

#: Calls for each image: of Python functions, of functions in C, and of those of the operating
#: system. Python 3.12 makes fewer, because comprehensions are no functions there.
MOST_CALLS = {"webdataset": (41, 56, 4), "tfrecord": (49, 61, 4)}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Photographs with bytes after their end, so that a batch has as many as one of photographs."""
    folder = tmp_path_factory.mktemp("work") / "src" / "class"
    folder.mkdir(parents=True)
    images = [encode(photo(number, 64, 48)) for number in range(8)]
    for number in range(IMAGES):
        image = images[number % len(images)]
        (folder / f"{number:04d}.jpg").write_bytes(image[:-2] + bytes(20_000) + image[-2:])
    return read_source(str(folder.parent))


@pytest.mark.parametrize("fmt", MOST_CALLS)
def test_calls_for_each_image(source, tmp_path, fmt):
    count_calls(source, tmp_path / "warm", fmt)  # imports, and caches of features
    calls = count_calls(source, tmp_path / "out", fmt)
    for found, most in zip(calls, MOST_CALLS[fmt], strict=True):
        assert found.total() / IMAGES <= most, found.most_common(30)


def count_calls(source, out, fmt):
    """Return the calls of Python functions, of functions in C, and of the operating system, by name."""
    python, c, system = Counter(), Counter(), Counter()

    def count(frame, event, argument):
        if event == "call":
            python[frame.f_code.co_name] += 1
        elif event == "c_call":
            c[argument.__name__] += 1
            if argument.__module__ == "posix":
                system[argument.__name__] += 1

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        convert_dataset(source, str(out), Options(fmt=fmt), workers=1)
    finally:
        sys.setprofile(previous)
    return python, c, system
