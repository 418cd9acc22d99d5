"""A filter that differs from torchvision's is announced."""

import pytest
from helpers.parsing import parse_notes


@pytest.mark.parametrize("name", ["Resize", "RandomResizedCrop"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"interpolation": "bicubic", "antialias": False}, "up to 28 of 255"),
        ({"interpolation": "box"}, "the box filter is replaced"),
        ({"interpolation": "hamming"}, "the hamming filter is replaced"),
        ({"interpolation": "bicubic"}, None),
        ({"interpolation": "bilinear", "antialias": False}, None),
        ({"interpolation": "nearest-exact"}, None),
    ],
)
def test_filters_that_differ_have_a_note(name, arguments, expected):
    notes = parse_notes(name, size=[40, 40], **arguments)
    if expected is None:
        assert not notes
    else:
        assert expected in str(notes)
